"""What a Slurm under test offers to the contract and to the facts: the port, and the hands of others.

Behind a rig stands a real cluster, or a simulated one in which time passes only in `wait` and `pass_time`.
So the suites read no clock and never sleep. A hand that slurmctld may refuse returns its words, and nothing
where it obeyed.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from slurm_lifecycle.core.model import JobView, NodeView
from slurm_lifecycle.ports import Slurm

OURS = "slc:XID79 gpu3 fell off the bus"

# The default of `Rig.wait`. A simulated Slurm may let that much of its own time pass.
WAIT_S = 60.0


@dataclass(frozen=True, slots=True)
class Timing:
    """What of slurm.conf the facts vary. The defaults are those of the contract's cluster.

    Attributes:
        return_to_service: ReturnToService.
        resume_timeout_s: ResumeTimeout, after which a node that reboots counts as lost.
        slurmd_timeout_s: SlurmdTimeout; a ping round goes out every third of it.
    """

    return_to_service: int = 0
    resume_timeout_s: int = 120
    slurmd_timeout_s: int = 60


class Rig(Protocol):
    """A cluster of two nodes, each with two GPUs, and the hands of others on it."""

    # ------------------------------------------------------------ the cluster

    @property
    def slurm(self) -> Slurm:
        """The back end under test."""

    @property
    def nodes(self) -> tuple[str, str]:
        """The two nodes."""

    @property
    def release(self) -> str:
        """Slurm's release, e.g. `22.05`."""

    @property
    def requeue_delay_s(self) -> float:
        """How long a requeued job waits before it may start again, 2 min as Slurm comes."""

    @property
    def kill_wait_s(self) -> float:
        """KillWait: from TERM to KILL."""

    def configure(self, timing: Timing) -> None:
        """Give slurm.conf other values, in force on return; nodes and jobs stay as they are."""

    def restart_controller(self) -> None:
        """slurmctld stops in order and starts again from its saved state."""

    # ------------------------------------------------------------ time

    def now(self) -> float:
        """Seconds since the epoch, in the cluster's time."""

    def wait(self, what: Callable[[], bool], limit_s: float = WAIT_S) -> bool:
        """Let time pass until it holds; False when it never did."""

    def pass_time(self, seconds: float) -> None:
        """Let that much time pass."""

    # ------------------------------------------------------------ users

    def submit(
        self,
        node: str = "",
        *,
        reservation: str = "",
        held: bool = False,
        count: int = 1,
        requeue: bool = True,
        limit_s: int = 3600,
        exclude: str = "",
        ignores_term: bool = False,
    ) -> str:
        """A batch job on whole nodes that runs until it is killed; returns its id.

        Args:
            node: the node it insists on (`-w`), "" for any.
            count: how many nodes it takes.
            requeue: False for `--no-requeue`.
            limit_s: its time limit, full minutes.
            exclude: a node that it must not have (`-x`).
            ignores_term: it goes on after TERM, until KILL.
        """

    def suspend(self, job_id: str) -> None:
        """Suspend a running job."""

    def resume_job(self, job_id: str) -> None:
        """Let a suspended job go on."""

    def cancel(self, job_id: str) -> None:
        """Cancel a job."""

    def requeue_held(self, job_id: str) -> str:
        """`scontrol requeuehold`: requeue a running job and hold it."""

    def update_job(
        self,
        job_id: str,
        *,
        start_now: bool = False,
        requeue: bool | None = None,
        reservation: str | None = None,
        exclude: str | None = None,
        nodelist: str | None = None,
        count: int | None = None,
        keep: str | None = None,
    ) -> str:
        """`scontrol update JobId=`.

        Args:
            start_now: `StartTime=now`.
            requeue: `Requeue=`.
            reservation: `ReservationName=`.
            exclude: `ExcNodeList=`.
            nodelist: `ReqNodeList=`, the node it insists on; "" for any.
            count: `NumNodes=`; of a running job it drops the nodes at the end.
            keep: `NodeList=` of a running job: the node that it keeps.
        """

    # ------------------------------------------------------------ administrators

    def person_drains(self, node: str, reason: str) -> str:
        """An administrator drains a node."""

    def person_downs(self, node: str, reason: str) -> str:
        """An administrator sets a node DOWN."""

    def person_undrains(self, node: str) -> str:
        """`State=UNDRAIN`."""

    def person_resumes(self, node: str) -> str:
        """`State=RESUME`."""

    def person_sets_idle(self, node: str) -> str:
        """`State=IDLE`."""

    def person_writes_reason(self, node: str, reason: str) -> str:
        """`Reason=` and nothing else."""

    def person_reboots(self, node: str, *, asap: bool = False, nextstate: str = "", reason: str = "") -> str:
        """`scontrol reboot [ASAP] [nextstate=] [reason=] NODE`."""

    def person_cancels_reboot(self, node: str) -> str:
        """`scontrol cancel_reboot`."""

    def person_reserves(
        self,
        name: str,
        nodes: Sequence[str],
        *,
        start_in_s: int = 0,
        duration_s: int = 3600,
        flags: Sequence[str] = (),
        users: Sequence[str] = ("root",),
    ) -> str:
        """Create a reservation that starts in a while, for full minutes."""

    def person_moves_reservation(
        self,
        name: str,
        *,
        start_in_s: int | None = None,
        end_in_s: int | None = None,
        duration_s: int | None = None,
        nodes: Sequence[str] = (),
        add: str = "",
        remove: str = "",
    ) -> str:
        """Give it another start, end, duration or set of nodes; `end_in_s=0` ends it now.

        Args:
            nodes: `Nodes=`, the whole set.
            add: `Nodes+=`.
            remove: `Nodes-=`.
        """

    def person_deletes_reservation(self, name: str) -> str:
        """`scontrol delete ReservationName=`."""

    # ------------------------------------------------------------ the machines

    def slurmd_stops(self, node: str) -> None:
        """slurmd dies and all that it ran; the node answers no more."""

    def slurmd_starts(self, node: str, *, boot: bool) -> None:
        """slurmd starts, after a boot of the node or without one. Ends a boot that hangs, if with `boot`."""

    def boot_hangs(self, node: str) -> None:
        """The node's next reboot stops slurmd and does not come back until `slurmd_starts`."""

    def gpu_lost(self, node: str) -> None:
        """From its next start on, slurmd finds one GPU of the two."""

    def gpu_back(self, node: str) -> None:
        """From its next start on, slurmd finds both GPUs."""

    def prolog_fails(self, node: str, *, drains_as: str = "") -> None:
        """From now on the prolog exits 1 there; with a text, it drains the node with that text first."""


# ---------------------------------------------------------------- looks that the suites share


def job_of(rig: Rig, job_id: str) -> JobView:
    """A job that must be in the queue."""
    found = [job for job in rig.slurm.jobs() if job.job_id == job_id]
    assert len(found) == 1, f"job {job_id} is not in the queue"
    return found[0]


def job_state(rig: Rig, job_id: str) -> str:
    """The state of a job that must be in the queue."""
    return job_of(rig, job_id).state


def runs(rig: Rig, job_id: str, limit_s: float = WAIT_S) -> bool:
    """Wait until a job runs."""
    return rig.wait(lambda: job_state(rig, job_id) == "RUNNING", limit_s)


def gone(rig: Rig, job_id: str, limit_s: float = WAIT_S) -> bool:
    """Wait until a job has left the queue."""
    return rig.wait(lambda: all(job.job_id != job_id for job in rig.slurm.jobs()), limit_s)


def look(rig: Rig, node: str) -> tuple[set[str], str]:
    """State and reason of a node, of one moment."""
    view = rig.slurm.node(node)
    return set(view.state), view.reason


def becomes(rig: Rig, node: str, *state: str, limit_s: float = WAIT_S) -> NodeView:
    """Wait until a node's state is exactly this one, and return the node; fails with what it was instead."""
    assert rig.wait(lambda: rig.slurm.node(node).state == set(state), limit_s), rig.slurm.node(node)
    return rig.slurm.node(node)


def shows(rig: Rig, node: str, *tokens: str, limit_s: float = WAIT_S) -> NodeView:
    """Wait until a node's state holds all these tokens, and return the node."""
    assert rig.wait(lambda: rig.slurm.node(node).state >= set(tokens), limit_s), rig.slurm.node(node)
    return rig.slurm.node(node)
