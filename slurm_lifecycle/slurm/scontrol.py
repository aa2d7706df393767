"""The Slurm port by way of scontrol and squeue: works with every release from 22.05 on.

Results are read back, never taken from an exit code: a list update exits 1 although part of it took effect,
and `scontrol reboot` exits 0 where it silently skipped the node. For that reason, and because a return of
many nodes at once cannot be taken back, every call here names one node.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from slurm_lifecycle.core.model import JobView, NodeView, ReservationView
from slurm_lifecycle.core.ownership import UNREADABLE
from slurm_lifecycle.errors import AmbiguousOutcome, PermanentError, TransientError
from slurm_lifecycle.slurm import parse
from slurm_lifecycle.slurm.arguments import free_text, plain_job_id, plain_name, plain_reason
from slurm_lifecycle.slurm.runner import DEFAULT_TIMEOUT_S, CommandRunner, base_environment

_FENCE_FLAGS = frozenset({"MAINT", "IGNORE_JOBS"})
_REBOOTING = frozenset({"REBOOT_REQUESTED", "REBOOT_ISSUED"})
# A reservation's end is kept to the second; the rest is room for rounding in either direction.
_END_SLACK_S = 60.0


@dataclass(frozen=True, slots=True)
class ScontrolSettings:
    """Where the commands are and who may use a fence.

    Attributes:
        slurm_conf: path for SLURM_CONF, None for the default of the installation.
        fence_users: users of a fence's reservation, comma separated: those whose check jobs may run inside.
    """

    scontrol: str = "scontrol"
    squeue: str = "squeue"
    slurm_conf: str | None = None
    fence_users: str = "root"
    timeout_s: float = DEFAULT_TIMEOUT_S
    attempts: int = 2


class ScontrolSlurm:
    """Implements `ports.Slurm` with the command line tools.

    Args:
        settings: where they are.
        sleep: waits between two tries of a read.
    """

    def __init__(
        self, settings: ScontrolSettings | None = None, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self._settings = settings or ScontrolSettings()
        self._runner = CommandRunner(
            environment=base_environment(self._settings.slurm_conf),
            timeout_s=self._settings.timeout_s,
            attempts=self._settings.attempts,
            sleep=sleep,
        )

    # ------------------------------------------------------------ reads

    def nodes(self) -> Mapping[str, NodeView]:
        """All nodes by name; one that cannot be read has the state `{UNREADABLE}`."""
        return parse.parse_nodes(self._read("read nodes", "show", "node"))

    def jobs(self) -> tuple[JobView, ...]:
        """All jobs that are not over.

        squeue's default states leave out STAGE_OUT, and a list of states by name leaves out what a later
        release invents. slurmctld sends all jobs in any case, so the choice is made by the parser.
        """
        argv = [self._settings.squeue, "--all", "--local", "--states=all"]
        return parse.parse_jobs(self._runner.read([*argv, "-O", parse.JOB_FORMAT], "read jobs"))

    def reservations(self) -> Mapping[str, ReservationView]:
        """All reservations by name."""
        return parse.parse_reservations(self._read("read reservations", "show", "reservation"))

    def node(self, name: str) -> NodeView:
        """One node, read now."""
        operation = f"read node {plain_name(name)}"
        node = parse.parse_nodes(self._read(operation, "show", "node", name)).get(name)
        if node is None:
            raise TransientError(operation, "scontrol printed something else than this node")
        return node

    def jobs_on(self, node: str) -> tuple[JobView, ...]:
        """The jobs that list a node, from the same read as `jobs`, so that both mean the same."""
        plain_name(node)
        return tuple(job for job in self.jobs() if node in job.nodes)

    def config(self) -> Mapping[str, str]:
        """slurmctld's configuration, `(null)` as the empty text."""
        return parse.parse_config(self._read("read configuration", "show", "config"))

    # ------------------------------------------------------------ nodes

    def drain(self, node: str, reason: str) -> None:
        """Set DRAIN and the reason in one update, read back."""
        operation = f"drain {plain_name(node)}"
        plain_reason(operation, reason)

        def drained(view: NodeView) -> bool:
            # Slurm appends ` : Not responding` and the like to a text, at any time.
            ours = view.reason == reason or view.reason.startswith(f"{reason} : ")
            return "DRAIN" in view.state and ours

        self._update_node(operation, node, ["State=DRAIN", f"Reason={reason}"], drained)

    def undrain(self, node: str) -> None:
        """Clear DRAIN only, read back."""
        self._update_node(f"undrain {plain_name(node)}", node, ["State=UNDRAIN"], _not_drained)

    def resume(self, node: str) -> None:
        """Clear DRAIN and DOWN, read back; a node in service already is success, as slurmctld refuses it."""
        operation = f"resume {plain_name(node)}"

        def resumed(view: NodeView) -> bool:
            return _not_drained(view) and "DOWN" not in view.state

        try:
            self._update_node(operation, node, ["State=RESUME"], resumed)
        except PermanentError as error:
            if "Invalid node state" not in error.detail or not resumed(self.node(node)):
                raise

    def set_comment(self, node: str, text: str) -> None:
        """Write the node's Comment, read back."""
        operation = f"set comment of {plain_name(node)}"
        argument = f"Comment={free_text(operation, text)}"
        self._update_node(operation, node, [argument], lambda view: view.comment == text)

    def set_extra(self, node: str, text: str) -> None:
        """Write the node's Extra, read back."""
        operation = f"set extra of {plain_name(node)}"
        argument = f"Extra={free_text(operation, text)}"
        self._update_node(operation, node, [argument], lambda view: view.extra == text)

    def reboot(self, node: str) -> None:
        """Plain reboot. That slurmctld took it up is read back; that the node boots is not waited for.

        Raises:
            TransientError: a reboot of this node is under way already, so this one was not sent.
        """
        operation = f"reboot {plain_name(node)}"
        before = self.node(node)
        if before.state & _REBOOTING:
            raise TransientError(operation, "a reboot of the node is already under way")

        def taken_up(view: NodeView) -> bool:
            # An emulated node may be back before the second look. A node that does not respond has no
            # boot time, so that one which appears is no evidence.
            old, new = before.boot_time_s, view.boot_time_s
            return bool(view.state & _REBOOTING) or (old is not None and new is not None and new > old)

        self._write(operation, ["reboot", node], lambda: taken_up(self.node(node)))

    # ------------------------------------------------------------ fences

    def create_fence(self, name: str, node: str) -> None:
        """Create the reservation that keeps jobs off a node, read back.

        Raises:
            PermanentError: a reservation of this name is not that fence.
        """
        operation = f"create fence {plain_name(name)} on {plain_name(node)}"
        users = self._settings.fence_users
        argv = ["create", "reservation", f"ReservationName={name}", "StartTime=now", "Duration=UNLIMITED"]
        argv += [f"Users={users}", "Flags=MAINT,IGNORE_JOBS", f"Nodes={node}"]

        def stands() -> bool:
            found = self.reservations().get(name)
            if found is None:
                return False
            whole = found.nodes == (node,) and found.flags >= _FENCE_FLAGS
            if not whole or set(found.users) != set(users.split(",")):
                raise PermanentError(operation, f"the reservation {name} is of another kind; delete it")
            return True

        try:
            self._write(operation, argv, stands)
        except PermanentError as error:
            if "uplicate" not in error.detail or not stands():
                raise

    def renew_fence(self, name: str, end_s: float) -> None:
        """Move a reservation's end, read back."""
        operation = f"renew fence {plain_name(name)}"
        end = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(end_s))

        def moved() -> bool:
            found = self.reservations().get(name)
            return found is not None and abs(found.end_s - end_s) <= _END_SLACK_S

        self._write(operation, ["update", f"ReservationName={name}", f"EndTime={end}"], moved)

    def remove_fence(self, name: str) -> None:
        """Delete a reservation, read back; one that is gone is success."""
        operation = f"remove fence {plain_name(name)}"

        def gone() -> bool:
            return name not in self.reservations()

        try:
            self._write(operation, ["delete", f"ReservationName={name}"], gone)
        except PermanentError:
            if not gone():
                raise

    # ------------------------------------------------------------ jobs

    def requeue(self, job_id: str) -> None:
        """Requeue a batch job; its restart count is the evidence, which the caller reads later."""
        self._runner.write(
            [self._settings.scontrol, "requeue", plain_job_id(job_id)], f"requeue job {job_id}"
        )

    def release(self, job_id: str) -> None:
        """Release a held job; harmless when repeated."""
        self._runner.write(
            [self._settings.scontrol, "release", plain_job_id(job_id)], f"release job {job_id}"
        )

    # ------------------------------------------------------------ how

    def _read(self, operation: str, *argv: str) -> str:
        return self._runner.read([self._settings.scontrol, *argv], operation)

    def _update_node(
        self, operation: str, node: str, settings: list[str], seen: Callable[[NodeView], bool]
    ) -> None:
        argv = ["update", f"NodeName={node}", *settings]
        self._write(operation, argv, lambda: seen(self.node(node)))

    def _write(self, operation: str, argv: list[str], seen: Callable[[], bool]) -> None:
        """Send a change once, then look: seen is success, whatever the command said about it.

        Not seen stays ambiguous even after exit 0: slurmctld may carry out later what it has received, and
        somebody else may have changed it again in between.
        """
        doubt = "the command succeeded, but reading back shows another state"
        try:
            self._runner.write([self._settings.scontrol, *argv], operation)
        except AmbiguousOutcome as error:
            doubt = error.detail
        try:
            if seen():
                return
        except TransientError as error:
            raise AmbiguousOutcome(operation, f"{doubt}; {error.detail}") from error
        raise AmbiguousOutcome(operation, doubt)


def _not_drained(view: NodeView) -> bool:
    return "DRAIN" not in view.state and UNREADABLE not in view.state
