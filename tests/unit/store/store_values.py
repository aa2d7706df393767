"""Values for the store's tests."""

from dataclasses import replace

from slurm_lifecycle.core.fault_catalog import FaultClass, Level
from slurm_lifecycle.core.model import Attempt, AttemptOutcome, Finding, Incident, Rung, Step

NOW = 1_800_000_000.0
DAY_S = 86400.0


def incident(node: str = "n1", opened_at: float = NOW, step: Step = Step.DRAINING) -> Incident:
    """An incident; a closed one was closed an hour after it was opened."""
    made = Incident(
        id=f"{node}.{int(opened_at)}",
        node=node,
        fault_class=FaultClass.REBOOT,
        code="XID79",
        component="gpu3",
        step=step,
        opened_at=opened_at,
        step_since=opened_at,
    )
    if step is Step.CLOSED:
        return replace(made, closed_at=opened_at + 3600, outcome="returned", cured_by="reboot")
    return made


def attempt(of: Incident, n: int = 1, rung: Rung = Rung.REBOOT, created_at: float = NOW) -> Attempt:
    """An unresolved attempt of an incident."""
    op_id = f"{of.id}.{rung.value}.{n}"
    return Attempt(op_id, of.id, of.node, rung, n, created_at, created_at + 1800)


def ended(of: Attempt, outcome: AttemptOutcome = AttemptOutcome.FAILED, at: float = NOW) -> Attempt:
    """The attempt after its end."""
    return replace(of, outcome=outcome, ended_at=at)


def finding(node: str = "n1", raised_at: float = NOW) -> Finding:
    """An open finding."""
    return Finding(node, "XID79", "gpu3", Level.DRAIN, "fell off the bus", "boot-1", raised_at)
