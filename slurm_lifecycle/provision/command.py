"""Reimages nodes by a site's own commands.

The contract, for whoever writes them. All get NODE, IMAGE and OP_ID in their environment.

`start` begins the work for OP_ID and ends at once. Status 0: accepted, also when that OP_ID was accepted
before. 75 (EX_TEMPFAIL): nothing was begun, asking again later may help. Any other: refused, nothing was
begun. It may leave a worker behind.

`poll` prints `running`, `done` or `failed <why>` on its first line and ends with 0. Everything else, a late
answer too, counts as not known, and is asked again until the attempt's deadline.

`abort`, where there is one, is told that OP_ID is over without success: the next start of the node has to be
from its disk. Status 0: so it is, also when it was so before.

Where the image proves itself by its marker, IMAGE and OP_ID have to reach the new root as
`/etc/slurm-lifecycle/image.json`: `{"image": IMAGE, "op_id": OP_ID}`.
"""

from collections.abc import Sequence

from slurm_lifecycle.core.model import ProvisionState, ProvisionStatus
from slurm_lifecycle.errors import AmbiguousOutcome, PermanentError, TransientError
from slurm_lifecycle.plain_text import plain_line
from slurm_lifecycle.site_command import Ended, run_site_command

_EX_TEMPFAIL = 75
_TEXT_LIMIT = 200


class CommandProvisioner:
    """Implements `ports.Provisioner`."""

    def __init__(
        self,
        start: Sequence[str],
        poll: Sequence[str],
        *,
        abort: Sequence[str] = (),
        image: str = "default",
        timeout_s: float = 60.0,
    ) -> None:
        """Set the commands; empty ones mean that this site has no way to reimage.

        Args:
            start: begins a reimage.
            poll: says how it stands.
            abort: told that an operation is over without success; none needed.
            image: told to `poll`; `start` is told the one that it is asked for.
            timeout_s: for each call of each command.
        """
        self._start = tuple(start)
        self._poll = tuple(poll)
        self._abort = tuple(abort)
        self._image = image
        self._timeout_s = timeout_s

    def start(self, node: str, image: str, op_id: str) -> None:
        """Begin to reimage.

        Raises:
            PermanentError: no command is set, it is not there, or it refused.
            TransientError: nothing was begun.
            AmbiguousOutcome: it was cut off, so that the work may have begun.
        """
        operation = f"reimage {node}"
        if not self._start:
            raise PermanentError(operation, "no command is set: set [reimage] start in the configuration")
        ended = self._run(self._start, node, image, op_id)
        if ended.code == 0:
            return
        said = plain_line(ended.first_words, _TEXT_LIMIT) or "it said nothing"
        if not ended.started:
            raise PermanentError(operation, f"{ended.failure}: correct [reimage] start")
        if ended.code is None or ended.code < 0:
            raise AmbiguousOutcome(
                operation, f"{ended.failure or f'ended by signal {-(ended.code or 0)}'}: {said}"
            )
        if ended.code == _EX_TEMPFAIL:
            raise TransientError(operation, f"not now: {said}")
        raise PermanentError(operation, f"{self._start[0]} refused with {ended.code}: {said}")

    def poll(self, op_id: str, node: str) -> ProvisionStatus:
        """How the operation stands; everything that is no clear answer is UNKNOWN."""
        if not self._poll:
            return _unknown("no command is set: set [reimage] poll in the configuration")
        ended = self._run(self._poll, node, self._image, op_id)
        said = plain_line(ended.first_words, _TEXT_LIMIT)
        if ended.code is None:
            return _unknown(ended.failure)
        if ended.code != 0:
            return _unknown(f"{self._poll[0]} ended with {ended.code}: {said}")
        lines = ended.stdout.splitlines()
        word, _, rest = (lines[0] if lines else "").strip().partition(" ")
        text = plain_line(rest, _TEXT_LIMIT)
        if word == "running":
            return ProvisionStatus(ProvisionState.RUNNING, text)
        if word == "done":
            return ProvisionStatus(ProvisionState.DONE, text)
        if word == "failed":
            return ProvisionStatus(ProvisionState.FAILED, text)
        return _unknown(f"{self._poll[0]} printed neither running, done nor failed: {said}")

    def abort(self, op_id: str, node: str) -> None:
        """Tell that an operation is over; does nothing where no command is set.

        Raises:
            TransientError: the command did not end well.
        """
        if not self._abort:
            return
        ended = self._run(self._abort, node, self._image, op_id)
        if ended.code != 0:
            said = plain_line(ended.failure or ended.first_words, _TEXT_LIMIT) or "it said nothing"
            raise TransientError(f"abort the reimage of {node}", f"{self._abort[0]}: {said}")

    def _run(self, argv: Sequence[str], node: str, image: str, op_id: str) -> Ended:
        environment = {"NODE": node, "IMAGE": image, "OP_ID": op_id}
        return run_site_command(argv, environment, timeout_s=self._timeout_s)


def _unknown(text: str) -> ProvisionStatus:
    return ProvisionStatus(ProvisionState.UNKNOWN, plain_line(text, 2 * _TEXT_LIMIT))
