"""The Slurm port over the simulated slurmctld: the same checks, errors and reading back as by scontrol."""

import math
from collections.abc import Callable, Mapping

from slurm_lifecycle.core.model import JobView, NodeView, ReservationView
from slurm_lifecycle.errors import AmbiguousOutcome, PermanentError, TransientError
from slurm_lifecycle.simulation.slurmctld import Slurmctld, SlurmRefused
from slurm_lifecycle.slurm.arguments import free_text, plain_job_id, plain_name, plain_reason
from slurm_lifecycle.slurm.refusals import REFUSED, REFUSED_NOW

_FENCE_FLAGS = frozenset({"MAINT", "IGNORE_JOBS"})
_REBOOTING = frozenset({"REBOOT_REQUESTED", "REBOOT_ISSUED"})
_DOUBT = "the command succeeded, but reading back shows another state"


class SimSlurm:
    """Implements `ports.Slurm`.

    Args:
        ctld: whose port it is.
        fence_users: users of a fence's reservation, comma separated.
    """

    def __init__(self, ctld: Slurmctld, fence_users: str = "root") -> None:
        self._ctld = ctld
        self._fence_users = tuple(fence_users.split(","))

    # ------------------------------------------------------------ reads

    def nodes(self) -> Mapping[str, NodeView]:
        """All nodes by name; the same mapping until one changes."""
        return self._ctld.snapshot()

    def jobs(self) -> tuple[JobView, ...]:
        """All jobs that are not over; the same tuple until one changes."""
        return self._ctld.job_views()

    def reservations(self) -> Mapping[str, ReservationView]:
        """All reservations by name."""
        return self._ctld.reservations()

    def node(self, name: str) -> NodeView:
        """One node, read now."""
        operation = f"read node {plain_name(name)}"
        try:
            return self._ctld.view(name)
        except SlurmRefused as error:
            raise PermanentError(operation, f"Node {name} not found") from error

    def jobs_on(self, node: str) -> tuple[JobView, ...]:
        """The jobs that list a node, none where there is no such node."""
        return self._ctld.jobs_on(node) if plain_name(node) in self._ctld.views() else ()

    def config(self) -> Mapping[str, str]:
        """slurmctld's configuration, as far as it has one."""
        conf = self._ctld.conf
        return {
            "SLURM_VERSION": self._ctld.manners.version,
            "KillWait": f"{conf.kill_wait_s:.0f} sec",
            "RebootProgram": "/sbin/reboot",
            "ResumeTimeout": f"{conf.resume_timeout_s:.0f} sec",
            "ReturnToService": str(conf.return_to_service),
            "SlurmdTimeout": f"{conf.slurmd_timeout_s:.0f} sec",
        }

    # ------------------------------------------------------------ nodes

    def drain(self, node: str, reason: str) -> None:
        """Set DRAIN and the reason in one update, read back."""
        operation = f"drain {plain_name(node)}"
        plain_reason(operation, reason)

        def drained() -> bool:
            view = self.node(node)
            ours = view.reason == reason or view.reason.startswith(f"{reason} : ")
            return "DRAIN" in view.state and ours

        self._write(operation, lambda: self._ctld.update_node(node, "DRAIN", reason), drained)

    def undrain(self, node: str) -> None:
        """Clear DRAIN only, read back."""
        operation = f"undrain {plain_name(node)}"
        self._write(
            operation,
            lambda: self._ctld.update_node(node, "UNDRAIN"),
            lambda: "DRAIN" not in self.node(node).state,
        )

    def resume(self, node: str) -> None:
        """Clear DRAIN and DOWN, read back; a node in service already is success."""
        operation = f"resume {plain_name(node)}"

        def resumed() -> bool:
            return not self.node(node).state & {"DRAIN", "DOWN"}

        try:
            self._write(operation, lambda: self._ctld.update_node(node, "RESUME"), resumed)
        except PermanentError as error:
            if "Invalid node state" not in error.detail or not resumed():
                raise

    def set_comment(self, node: str, text: str) -> None:
        """Write the node's Comment."""
        operation = f"set comment of {plain_name(node)}"
        free_text(operation, text)
        self._write(operation, lambda: self._ctld.set_comment(node, text), lambda: True)

    def set_extra(self, node: str, text: str) -> None:
        """Write the node's Extra."""
        operation = f"set extra of {plain_name(node)}"
        free_text(operation, text)
        self._write(operation, lambda: self._ctld.set_extra(node, text), lambda: True)

    def reboot(self, node: str) -> None:
        """Plain reboot; that slurmctld took it up is read back."""
        operation = f"reboot {plain_name(node)}"
        if self.node(node).state & _REBOOTING:
            raise TransientError(operation, "a reboot of the node is already under way")
        self._write(
            operation,
            lambda: self._ctld.reboot(node),
            lambda: bool(self.node(node).state & _REBOOTING),
        )

    # ------------------------------------------------------------ fences

    def create_fence(self, name: str, node: str) -> None:
        """Create the reservation that keeps jobs off a node, read back."""
        operation = f"create fence {plain_name(name)} on {plain_name(node)}"

        def stands() -> bool:
            found = self._ctld.reservations().get(name)
            if found is None:
                return False
            whole = found.nodes == (node,) and found.flags >= _FENCE_FLAGS
            if not whole or set(found.users) != set(self._fence_users):
                raise PermanentError(operation, f"the reservation {name} is of another kind; delete it")
            return True

        def create() -> None:
            now = self._ctld.now
            self._ctld.create_reservation(name, (node,), now, math.inf, _FENCE_FLAGS, self._fence_users)

        try:
            self._write(operation, create, stands)
        except PermanentError as error:
            if "uplicate" not in error.detail or not stands():
                raise

    def renew_fence(self, name: str, end_s: float) -> None:
        """Move a reservation's end, which is kept to the second."""
        operation = f"renew fence {plain_name(name)}"
        end_s = float(int(end_s))
        self._write(operation, lambda: self._ctld.update_reservation(name, end_s=end_s), lambda: True)

    def remove_fence(self, name: str) -> None:
        """Delete a reservation; one that is gone is success."""
        operation = f"remove fence {plain_name(name)}"
        if name in self._ctld.reservations():
            self._write(operation, lambda: self._ctld.delete_reservation(name), lambda: True)

    # ------------------------------------------------------------ jobs

    def requeue(self, job_id: str) -> None:
        """Requeue a batch job."""
        operation = f"requeue job {plain_job_id(job_id)}"
        self._write(operation, lambda: self._ctld.requeue(job_id), lambda: True)

    def release(self, job_id: str) -> None:
        """Release a held job; harmless when repeated."""
        operation = f"release job {plain_job_id(job_id)}"
        self._write(operation, lambda: self._ctld.release(job_id), lambda: True)

    # ------------------------------------------------------------ how

    def _write(self, operation: str, act: Callable[[], None], seen: Callable[[], bool]) -> None:
        """Change something and look; a refusal means what it means for scontrol."""
        try:
            act()
        except SlurmRefused as error:
            detail = str(error)
            if any(text in detail for text in REFUSED_NOW):
                raise TransientError(operation, detail) from error
            if any(text in detail for text in REFUSED):
                raise PermanentError(operation, detail) from error
            raise AmbiguousOutcome(operation, detail) from error
        if not seen():
            raise AmbiguousOutcome(operation, _DOUBT)
