"""What the simulated slurmctld is told: its configuration, its nodes, jobs as they are submitted."""

from dataclasses import dataclass
from typing import Protocol


class SlurmRefused(Exception):
    """slurmctld said no; `scontrol` or `sbatch` would print the text and exit 1."""


@dataclass(frozen=True, slots=True)
class SlurmConf:
    """The lines of slurm.conf that matter here.

    Attributes:
        ping_s: time between two rounds of pings; None for Slurm's own, a third of `slurmd_timeout_s`.
        requeue_delay_s: how long a requeued job waits, 120 s on every release (measured).
    """

    release: str = "22.05"
    resume_timeout_s: float = 3600.0
    slurmd_timeout_s: float = 300.0
    return_to_service: int = 1
    requeue_delay_s: float = 120.0
    kill_wait_s: float = 30.0
    ping_s: float | None = None


@dataclass(frozen=True, slots=True)
class NodeSpec:
    """A node as slurm.conf has it.

    Attributes:
        domain: its rack or leaf; Slurm does not look at it.
    """

    name: str
    partitions: tuple[str, ...] = ("batch",)
    gpus: int = 8
    domain: str = ""


@dataclass(frozen=True, slots=True)
class JobSpec:
    """A batch job as it is submitted; it gets whole nodes.

    Attributes:
        nodes_min: it starts with no less.
        nodes_max: it takes as many as it finds up to here.
        nodelist: nodes that it must have.
        exclude: nodes that it must not have.
        ignores_term: it dies by SIGKILL only, `kill_wait_s` later.
    """

    name: str
    uid: int = 1000
    nodes_min: int = 1
    nodes_max: int = 1
    time_limit_s: float = 86_400.0
    partition: str = "batch"
    requeue: bool = True
    held: bool = False
    nodelist: tuple[str, ...] = ()
    exclude: frozenset[str] = frozenset()
    reservation: str = ""
    priority: int = 0
    ignores_term: bool = False


class NodeSide(Protocol):
    """What slurmctld can reach on a node."""

    def reboot(self, node: str) -> None:
        """slurmd runs RebootProgram."""

    def responds(self, node: str) -> bool:
        """Whether slurmd answers now."""

    def prolog(self, node: str, job_id: str) -> bool:
        """Run the prolog; False when it failed."""

    def epilog(self, node: str, job_id: str) -> bool:
        """Run the epilog; False when it failed."""


class QuietSide:
    """Nodes that answer, pass every check and never boot: what stands there until somebody sets another."""

    def reboot(self, node: str) -> None:
        """Nothing happens."""

    def responds(self, node: str) -> bool:
        """It does."""
        del node
        return True

    def prolog(self, node: str, job_id: str) -> bool:
        """It passes."""
        del node, job_id
        return True

    def epilog(self, node: str, job_id: str) -> bool:
        """It passes."""
        del node, job_id
        return True


def user_name(uid: int) -> str:
    """The name by which reservations know a user."""
    return {0: "root", 65_534: "nobody"}.get(uid, f"u{uid}")
