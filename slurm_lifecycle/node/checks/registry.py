"""All checks by their stable ids."""

from __future__ import annotations

from typing import FrozenSet, Tuple

from slurm_lifecycle.node.checks import host, kernel
from slurm_lifecycle.node.checks.base import Check
from slurm_lifecycle.node.checks.gpu import GPU_CHECKS

KERNEL_LOG = Check(
    kernel.CHECK_ID,
    "the kernel log (root)",
    "The driver logged no XID, no NVSwitch error and no GPU off the bus; watched all the time.",
    (
        "XID*",
        "SXID*",
        "GPU_OFF_BUS",
        "RECOVERY_RESET",
        "RECOVERY_REBOOT",
        "RECOVERY_DRAIN_P2P",
        "CHECK_FAILED",
    ),
)

PROBES = Check(
    "probe",
    "nothing",
    "Each probe of the agent answers in time: hung, or stuck in the kernel, is itself a finding.",
    ("PROBE_HUNG", "PROBE_DSTATE", "CHECK_FAILED"),
)

ALL_CHECKS: Tuple[Check, ...] = (*GPU_CHECKS, KERNEL_LOG, host.SPACE, host.READ_ONLY, PROBES)
CHECK_IDS: FrozenSet[str] = frozenset(check.check_id for check in ALL_CHECKS)
