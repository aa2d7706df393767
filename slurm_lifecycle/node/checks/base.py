"""What every check has in common."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Callable, FrozenSet, Optional, Tuple

from slurm_lifecycle.node.checks.nvml import Snapshot
from slurm_lifecycle.node.findings import Sign
from slurm_lifecycle.node.inventory import Inventory


@dataclass(frozen=True)
class GpuContext:
    """What a GPU check judges from.

    Attributes:
        expected: GPUs that this node must have, None where not configured.
        gpus_on_bus: NVIDIA GPUs that the kernel lists on the PCI bus, whatever the driver says.
    """

    snapshot: Snapshot
    inventory: Inventory
    expected: Optional[int] = None
    gpus_on_bus: int = 0


@dataclass(frozen=True)
class Judged:
    """What a check saw.

    Attributes:
        signs: what is wrong.
        unread: subjects that did not answer, so that what is on record of them stays.
    """

    signs: Tuple[Sign, ...] = ()
    unread: FrozenSet[str] = frozenset()


# None where the check does not apply here or was not asked this time, which changes nothing.
Judgement = Optional[Judged]


@dataclass(frozen=True)
class Check:
    """One check.

    Attributes:
        check_id: stable, used in configuration.
        needs: what must be there for it to apply.
        explains: one sentence for the administrator.
        codes: finding codes it can raise.
    """

    check_id: str
    needs: str
    explains: str
    codes: Tuple[str, ...]


@dataclass(frozen=True)
class GpuCheck(Check):
    """A check that judges one look at the driver."""

    judge: Callable[[GpuContext], Judgement]
