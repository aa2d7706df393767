"""Which rung comes next: the path of the fault class, attempts used, caps of the node, relapses."""

from collections.abc import Iterable
from dataclasses import dataclass

from slurm_lifecycle.core.fault_catalog import FaultClass
from slurm_lifecycle.core.model import Attempt, AttemptOutcome, Incident, Rung
from slurm_lifecycle.core.policy import DAY_S, Policy, RungRule

# Rungs that end with a technician; `rma` in the site's `rungs` allows them all.
TICKET_RUNGS = frozenset({Rung.RMA, Rung.RESEAT})


def permission(rung: Rung) -> str:
    """The word in the site's `rungs` that allows a rung: a check needs what a return needs."""
    if rung in TICKET_RUNGS:
        return Rung.RMA.value
    return "return" if rung is Rung.VERIFY else rung.value


# An attempt that was never sent does not count, but three in a row mean that something is wrong.
MAX_CANCELLED_IN_A_ROW = 3


@dataclass(frozen=True, slots=True)
class Choice:
    """The rung to take now.

    Attributes:
        index: place in the path.
        rule: its rule, None when the ladder is exhausted.
        n: number of the attempt within the incident and rung, from 1.
        skipped: why lower places were passed over, for people.
    """

    index: int
    rule: RungRule | None
    n: int
    skipped: tuple[str, ...]


def needs_bmc(rung: Rung, policy: Policy) -> bool:
    """Whether a rung goes through the node's BMC in this installation."""
    return rung is Rung.POWER or (rung is Rung.REIMAGE and policy.reimage_by_pxe)


def used(attempts: Iterable[Attempt], incident_id: str, rung: Rung) -> int:
    """Attempts of a rung that count: every one but those never sent."""
    return sum(
        1
        for one in attempts
        if one.incident_id == incident_id
        and one.rung is rung
        and one.outcome not in (AttemptOutcome.CANCELLED, AttemptOutcome.SUPERSEDED)
    )


def cap_reached(policy: Policy, attempts: Iterable[Attempt], node: str, rung: Rung, now: float) -> str:
    """The cap that forbids one more attempt on the node, in words; "" when none does."""
    times = [
        one.created_at
        for one in attempts
        if one.node == node and one.rung is rung and one.outcome is not AttemptOutcome.CANCELLED
    ]
    for cap in policy.caps.get(rung, ()):
        recent = sum(1 for at in times if now - at < cap.window_s)
        if recent >= cap.count:
            return f"{rung.value} cap of {cap.count} in {cap.window_s / 3600:g} h reached"
    return ""


def choose(
    policy: Policy, incident: Incident, attempts: tuple[Attempt, ...], now: float, responding: bool
) -> Choice:
    """The first place at or after the incident's that may be tried now.

    A place is passed over when its attempts are used up, a cap of the node is reached, it has no effect in
    this installation or on this node, or it is a Slurm reboot of a node that does not respond (Slurm would
    keep the request and fire it whenever the node comes back, or mark it issued and never run it).
    """
    skipped: list[str] = []
    path = policy.paths.get(incident.fault_class, ())
    for index in range(max(incident.path_index, 0), len(path)):
        rule = path[index]
        count = used(attempts, incident.id, rule.rung)
        if count >= rule.attempts:
            continue
        if rule.rung not in policy.effects:
            skipped.append(f"no {rule.rung.value} here")
            continue
        if needs_bmc(rule.rung, policy) and incident.node not in policy.bmc:
            skipped.append(f"{rule.rung.value} needs a BMC with its serial number on record")
            continue
        if rule.rung is Rung.REBOOT and not responding:
            skipped.append("reboot needs a node that responds")
            continue
        if rule.rung is Rung.RMA and skipped and _nothing_tried(incident, attempts):
            skipped.append("no part is sent in before a repair was tried")
            continue
        cap = cap_reached(policy, attempts, incident.node, rule.rung, now)
        if cap:
            skipped.append(cap)
            continue
        total = sum(1 for one in attempts if one.incident_id == incident.id and one.rung is rule.rung)
        return Choice(index, rule, total + 1, tuple(skipped))
    return Choice(len(path), None, 1, tuple(skipped))


def _nothing_tried(incident: Incident, attempts: Iterable[Attempt]) -> bool:
    """A fault that is not certain to be hardware, on its first case, with every repair passed over."""
    certain = incident.fault_class is FaultClass.HARDWARE or incident.path_index > 0
    return not certain and not any(one.incident_id == incident.id for one in attempts)


def entry_index(
    policy: Policy, incident: Incident, history: Iterable[Incident], now: float
) -> tuple[int, str]:
    """Where the incident enters its path, and why when not at the start.

    A relapse (same class and component within `relapse_window_s` of its return) enters one rung above what
    "cured" it; a lemon (three incidents in 7 days or five in 28) goes to the last rung.
    """
    path = policy.paths.get(incident.fault_class, ())
    past = [
        one
        for one in history
        if one.node == incident.node and one.id != incident.id and one.outcome == "returned"
    ]
    within_7d = 1 + sum(1 for one in past if now - one.opened_at < 7 * DAY_S)
    within_28d = 1 + sum(1 for one in past if now - one.opened_at < 28 * DAY_S)
    if incident.fault_class is FaultClass.TRANSIENT:
        # A task that could not be killed says little of the hardware: checks, and a reboot the third time.
        reboot = next((index for index, rule in enumerate(path) if rule.rung is Rung.REBOOT), 0)
        often = within_7d >= policy.lemon_7d
        return (reboot, f"{within_7d} incidents in 7 days") if often else (0, "")
    if within_7d >= policy.lemon_7d or within_28d >= policy.lemon_28d:
        return max(len(path) - 1, 0), f"{within_7d} incidents in 7 days, {within_28d} in 28"
    highest, cure = 0, ""
    for one in past:
        same = one.fault_class is incident.fault_class and one.component == incident.component
        if same and one.closed_at is not None and now - one.closed_at < policy.relapse_window_s:
            above = _index_above(path, one.cured_by)
            # Of several returns the most that was done counts, not what happened to be done first.
            if above is not None and (above > highest or not cure):
                highest, cure = above, one.cured_by
    return highest, f"came back after {cure}" if cure else ""


def _index_above(path: tuple[RungRule, ...], rung: str) -> int | None:
    for index, rule in enumerate(path):
        if rule.rung.value == rung:
            return min(index + 1, len(path) - 1)
    return None


def needs_incident(fault_class: FaultClass, policy: Policy) -> bool:
    """Whether the class has a ladder at all; application, pending and unknown faults are only recorded."""
    return bool(policy.paths.get(fault_class))
