"""What a boot from the network installs is fixed at the site's own server: nobody has to be told before."""

from slurm_lifecycle.core.model import ProvisionState, ProvisionStatus
from slurm_lifecycle.ports import Provisioner


class StagedProvisioner:
    """Implements `ports.Provisioner` where `start` needs no command; the others use those of the site."""

    def __init__(self, inner: Provisioner) -> None:
        """Wrap the site's commands, of which `start` is missing."""
        self._inner = inner

    def start(self, node: str, image: str, op_id: str) -> None:
        """Everything is in place already."""
        del node, image, op_id

    def poll(self, op_id: str, node: str) -> ProvisionStatus:
        """As the site's command says, where there is one; the marker on the node proves the end."""
        found = self._inner.poll(op_id, node)
        running = found.state is ProvisionState.UNKNOWN
        return ProvisionStatus(ProvisionState.RUNNING, found.text) if running else found

    def abort(self, op_id: str, node: str) -> None:
        """As the site's command does."""
        self._inner.abort(op_id, node)
