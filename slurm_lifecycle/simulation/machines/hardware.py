"""What a machine is: how it boots, what is true of it now, and what it tells slurmctld."""

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from slurm_lifecycle.simulation.machines.faults import MINUTE_S, Fault, HostEffect, JobEffect
from slurm_lifecycle.simulation.slurmctld.records import Job
from slurm_lifecycle.simulation.timeline import Event

FaultHook = Callable[[Fault], None]


class Controller(Protocol):
    """What machines tell slurmctld and ask of it."""

    def registered(self, node: str, boot_time_s: float, gpus: int) -> None:
        """Its slurmd started or answers again."""

    def fell_silent(self, node: str) -> None:
        """Its slurmd does not answer from now on."""

    def job_exits(self, job_id: str, how: str) -> None:
        """The application ended by itself."""

    def jobs(self) -> Mapping[str, Job]:
        """Those that are not over."""


@dataclass(frozen=True, slots=True)
class MachineSettings:
    """How machines boot.

    Attributes:
        boot_s: mean time from the end of the old boot to slurmd; 10 min for large GPU nodes.
        boot_spread: share by which machines, and the boots of one, differ.
        shutdown_s: from RebootProgram's start to slurmd's end.
        boot_lost: chance that a boot never comes back, until power is cycled.
        boot_late, late_factor: chance that one takes so many times as long.
        prolog_fails, epilog_fails: chance on a node without any fault.
        first_step_s: from the start of a job to its end where it starts on a broken node.
    """

    boot_s: float = 10 * MINUTE_S
    boot_spread: float = 0.2
    shutdown_s: float = 5.0
    boot_lost: float = 0.0
    boot_late: float = 0.0
    late_factor: float = 8.0
    prolog_fails: float = 0.0
    epilog_fails: float = 0.0
    first_step_s: float = 60.0


@dataclass(slots=True)
class Machine:
    """What is true of one machine.

    Attributes:
        up: an operating system runs. slurmd, agent: run on it.
        stuck: it was started and will not come up by itself.
        installing: it runs an installer, not its own system.
        boots: boots that came up so far; tries: boots that began.
        rung: how the boot under way, or the last, was made.
        image: operation and name of the image on its disk, as its marker has them; "" where none is.
        last_fault_at: when a fault last stood on it, however short.
    """

    name: str
    gpus: int
    domain: str
    pace: float
    boot_id: str
    boot_time_s: float
    powered: bool = True
    up: bool = True
    slurmd: bool = True
    agent: bool = True
    agent_starts: bool = True
    stuck: bool = False
    installing: bool = False
    lemon: bool = False
    boots: int = 0
    tries: int = 0
    injected: int = 0
    rung: str = ""
    image: tuple[str, str] = ("", "")
    last_fault_at: float | None = None
    last_cause: str = ""
    faults: dict[str, Fault] = field(default_factory=dict)
    booting: Event | None = None

    @property
    def reachable(self) -> bool:
        """Whether its network carries anything."""
        return not any(one.shown and one.kind.host is HostEffect.SILENT for one in self.faults.values())

    @property
    def gpus_seen(self) -> int:
        """GPUs that slurmd finds when it starts."""
        gone = {one.component for one in self.faults.values() if one.shown and one.kind.takes_gpu}
        return max(0, self.gpus - len(gone))

    @property
    def striking(self) -> Fault | None:
        """The first fault that shows and would end a job, None where a job would run well."""
        for _, fault in sorted(self.faults.items()):
            if fault.shown and fault.kind.job is not JobEffect.NONE:
                return fault
        return None


def boot_id(rng: random.Random) -> str:
    """One as Linux makes them."""
    digits = f"{rng.getrandbits(128):032x}"
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"
