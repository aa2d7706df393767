"""From what nodes and Slurm say to findings and incidents; breaker hits are counted here."""

from dataclasses import replace

from slurm_lifecycle.core.budget import new_trip
from slurm_lifecycle.core.draft import FENCE_PREFIX, SLURM_SAYS, Draft, is_our_reservation
from slurm_lifecycle.core.fault_catalog import FaultClass, Level, fault_for
from slurm_lifecycle.core.formats import NO_COMPONENT, Mark, parse_mark, reason_code
from slurm_lifecycle.core.ladder import entry_index, needs_incident
from slurm_lifecycle.core.model import (
    BreakerHit,
    Fence,
    Finding,
    Incident,
    NodeView,
    Owner,
    Step,
    Trip,
)
from slurm_lifecycle.core.ownership import slurm_reason_code, understood

# Which class leads when several faults stand: the one with the most certain and most invasive answer.
_PRECEDENCE = (
    FaultClass.TRANSIENT,
    FaultClass.SOFTWARE,
    FaultClass.GPU_RESET,
    FaultClass.LINK,
    FaultClass.REBOOT,
    FaultClass.HARDWARE,
)


def precedence(fault_class: FaultClass) -> int:
    """Order among fault classes; those without a ladder come last."""
    return _PRECEDENCE.index(fault_class) if fault_class in _PRECEDENCE else -1


def take_in(draft: Draft) -> None:
    """Findings, then incidents, then the breaker, for every node in name order."""
    # Any other node is in service, names no fault, and has nothing on record that could end.
    concerned = {*draft.survey.restless, *draft.findings_by_node, *draft.incidents} & draft.nodes.keys()
    for name in sorted(concerned):
        view = draft.nodes[name]
        _take_verdict(draft, view)
        _take_slurm_reason(draft, view)
        _open_or_worsen(draft, view)
    _trip_if_too_many(draft)


def _take_verdict(draft: Draft, view: NodeView) -> None:
    verdict = draft.verdict(view)
    if verdict is None:
        return
    if verdict.code and verdict.level is not Level.OK:
        key = (view.name, verdict.code, verdict.component)
        if key not in draft.findings_by_node.get(view.name, {}):
            text = fault_for(verdict.code).text
            draft.put_finding(Finding(*key, verdict.level, text, verdict.boot_id, draft.now))
            draft.event(view.name, "finding", f"{verdict.code} {verdict.component}: {text}")
    for finding in draft.findings_of(view.name):
        present = (finding.code, finding.component) == (verdict.code, verdict.component)
        # The channel shows only the worst finding: another one of the same level may hide this one.
        if not present and finding.boot_id != SLURM_SAYS and verdict.level.rank < finding.level.rank:
            draft.put_finding(replace(finding, cleared_at=draft.now))
            draft.event(view.name, "cleared", f"{finding.code} {finding.component}")


def _take_slurm_reason(draft: Draft, view: NodeView) -> None:
    owner = draft.owner(view)
    code, stale = "", False
    if owner is Owner.SLURM:
        code = slurm_reason_code(view.reason)
    elif owner is Owner.TOOL:
        code = "FOREIGN_TOOL"
    elif stale := _down_under_a_stale_reason(draft, view, owner):
        code = slurm_reason_code(view.reason.split(" : ")[-1]) or "NO_RESPONSE"
    wanted = (code and draft.policy.adopt_slurm) or owner is Owner.TOOL
    if wanted and understood(view):
        key = (view.name, code, NO_COMPONENT)
        if key not in draft.findings_by_node.get(view.name, {}):
            # Under a stale reason the time is that of the drain that is over.
            since = draft.now if stale or view.reason_at_s is None else view.reason_at_s
            draft.put_finding(
                Finding(*key, Level.DRAIN, view.reason[:200], SLURM_SAYS, min(since, draft.now))
            )
            draft.event(view.name, "finding", f"{code}: Slurm says {view.reason[:120]!r}")
    incident = draft.incidents.get(view.name)
    if incident is not None and not _not_begun(incident, owner):
        return
    for finding in draft.findings_of(view.name):
        if finding.boot_id == SLURM_SAYS and finding.code != code:
            draft.put_finding(replace(finding, cleared_at=draft.now))


def _down_under_a_stale_reason(draft: Draft, view: NodeView, owner: Owner) -> bool:
    """Slurm took a node in service down and left, or only added to, the reason of our drain that is over.

    24.11 and 25.11 without accounting keep a reason until the next job starts (measured). Without a case of
    ours such a node would be nobody's: our text, and no drain.
    """
    no_drain = "DOWN" in view.state and "DRAIN" not in view.state
    return owner is Owner.OURS and no_drain and view.name not in draft.incidents


def _not_begun(incident: Incident, owner: Owner) -> bool:
    """Nothing of ours has taken the place of Slurm's reason yet, so that its absence means that it is gone.

    Where we may only watch, a node whose outage ended by itself must not be drained for it once we may act.
    """
    waits = incident.step is Step.DRAINING or incident.hold == "foreign"
    return waits and not incident.drain_confirmed and owner in (Owner.NOBODY, Owner.PERSON)


def _standing(draft: Draft, view: NodeView) -> Finding | None:
    """The finding that leads: drain level, not acknowledged, with a ladder; Slurm's only when old enough."""
    candidates = [
        one
        for one in draft.findings_of(view.name)
        if one.level is Level.DRAIN
        and not one.acknowledged
        and needs_incident(fault_for(one.code).fault_class, draft.policy)
        and (one.boot_id != SLURM_SAYS or draft.now - one.raised_at >= draft.policy.adopt_after_s)
    ]
    return max(
        candidates,
        key=lambda one: (precedence(fault_for(one.code).fault_class), -one.raised_at, one.code),
        default=None,
    )


def _open_or_worsen(draft: Draft, view: NodeView) -> None:
    leading = _standing(draft, view)
    incident = draft.incidents.get(view.name)
    if incident is not None:
        if leading is not None and incident.step is Step.DRAINING:
            _worsen(draft, incident, leading)
        return
    if leading is None:
        _open_for_drain_of_ours(draft, view)
        return
    open_incident(draft, view, leading.code, leading.component)


def _worsen(draft: Draft, incident: Incident, leading: Finding) -> None:
    """A worse fault while the node still drains changes the path before it begins."""
    worse = fault_for(leading.code).fault_class
    if precedence(worse) <= precedence(incident.fault_class):
        return
    changed = replace(
        incident,
        fault_class=worse,
        code=leading.code,
        component=leading.component,
        revision=incident.revision + 1,
    )
    draft.put_incident(changed)
    draft.event(incident.node, "worse", f"{incident.code} -> {leading.code} {leading.component}", changed)


def _open_for_drain_of_ours(draft: Draft, view: NodeView) -> None:
    """A node that its agent drained and whose Extra says nothing (yet): the reason carries the code.

    Likewise one that is drained by us although a person had acknowledged its finding: the drain is newer than
    that word, and without an incident the node would stay out with nobody told. A mark of ours is there where
    the store knew the incident: that case is `adopt_unknown`'s.
    """
    if draft.owner(view) is not Owner.OURS or "DRAIN" not in view.state or not understood(view):
        return
    if parse_mark(view.comment) is not None:
        return
    verdict = draft.verdict(view)
    code, component = reason_code(view.reason)
    acknowledged = any(one.acknowledged for one in draft.findings_of(view.name))
    if not code or (verdict is not None and verdict.level is Level.DRAIN and not acknowledged):
        return
    open_incident(draft, view, code, component)


def open_incident(draft: Draft, view: NodeView, code: str, component: str, actor: str = "daemon") -> Incident:
    """Open a case: draining, or held where the drain is a person's."""
    fault_class = fault_for(code).fault_class
    if not needs_incident(fault_class, draft.policy):
        fault_class = FaultClass.SOFTWARE
    foreign = draft.owner(view) is Owner.PERSON
    incident = Incident(
        id=draft.new_incident_id(view.name),
        node=view.name,
        fault_class=fault_class,
        code=code,
        component=component,
        step=Step.HELD if foreign else Step.DRAINING,
        opened_at=draft.now,
        step_since=draft.now,
        deadline=None if foreign else draft.now + draft.policy.drain_deadline_s,
        hold="foreign" if foreign else "",
        revision=1,
    )
    index, why = entry_index(draft.policy, incident, draft.fleet.records.closed_incidents, draft.now)
    if index:
        incident = replace(incident, path_index=index, note=why)
    draft.put_incident(incident)
    words = f"{code} {component}" + (f", {why}" if why else "")
    draft.event(view.name, "opened", f"{words} -> {incident.step.value}", incident, actor)
    if actor == "daemon":
        draft.new_hits.append(BreakerHit(view.name, draft.now, code, incident.id))
    return incident


def _trip_if_too_many(draft: Draft) -> None:
    if not draft.new_hits:
        return
    gpu_nodes = sum(1 for view in draft.nodes.values() if view.gpus) or len(draft.nodes)
    hits = (*draft.fleet.records.hits, *draft.new_hits)
    reset = (one for one in (*draft.fleet.records.trips, *draft.changed_trips) if one.reset_at is not None)
    trips = (*reset, *draft.trips.values())
    trip = new_trip(hits, trips, draft.policy, gpu_nodes, draft.now)
    if trip is not None:
        _trip(draft, trip)


def _trip(draft: Draft, trip: Trip) -> None:
    draft.put_trip(trip)
    draft.event("", "breaker", f"tripped for {trip.scope}: {trip.reason}")


def adopt_unknown(draft: Draft) -> None:
    """Nodes whose marks or fences the store does not know: held for a person, and the breaker trips.

    That is how a lost, restored-old or foreign store shows itself.
    """
    doubtful: dict[str, str] = {}
    known_ids = {one.id for one in draft.fleet.records.closed_incidents}
    for name in draft.survey.marked:
        mark = parse_mark(draft.nodes[name].comment)
        if mark is not None and (why := _mark_problem(draft, name, mark, known_ids)):
            doubtful[name] = why
    for reservation in draft.fleet.observation.reservations.values():
        if not is_our_reservation(reservation.name) or reservation.name in draft.fences:
            continue
        for name in reservation.nodes:
            if name in draft.nodes and not knows_case(draft, reservation.name.removeprefix(FENCE_PREFIX)):
                doubtful.setdefault(name, f"fence {reservation.name} is not on record")
    for name, why in sorted(doubtful.items()):
        _adopt(draft, name, why)
    if doubtful and "fleet" not in draft.trips:
        _trip(draft, Trip("fleet", draft.now, f"store does not know our work on {len(doubtful)} nodes"))


def knows_case(draft: Draft, incident_id: str) -> bool:
    """Whether an incident is on record, open or closed, as this tick found it."""
    records = draft.fleet.records
    incidents = (*records.incidents.values(), *records.closed_incidents)
    return any(one.id == incident_id for one in incidents)


def _mark_problem(draft: Draft, name: str, mark: Mark, known_ids: set[str]) -> str:
    if not mark.incident_id or mark.incident_id == NO_COMPONENT:
        return ""
    incident = draft.fleet.records.incidents.get(name)
    if incident is not None:
        if incident.hold == "adopt":
            return ""
        if incident.id == mark.incident_id and mark.revision > incident.revision:
            return f"mark is at revision {mark.revision}, the store at {incident.revision}"
        if incident.id == mark.incident_id:
            return ""
    if mark.incident_id in known_ids:
        return ""
    return f"mark names incident {mark.incident_id} of instance {mark.instance}, which is not on record"


def _adopt(draft: Draft, name: str, why: str) -> None:
    incident = draft.incidents.get(name)
    if incident is not None and incident.hold == "adopt":
        return
    if incident is not None and incident.step not in (Step.CLOSED, Step.HELD):
        held = draft.move(incident, Step.HELD, why, hold="adopt", note=why)
    elif incident is not None:
        held = draft.put_incident(replace(incident, hold="adopt", note=why, revision=incident.revision + 1))
    else:
        code, component = reason_code(draft.nodes[name].reason)
        fault_class = fault_for(code).fault_class if code else FaultClass.REBOOT
        ladder_class = fault_class if needs_incident(fault_class, draft.policy) else FaultClass.REBOOT
        held = draft.put_incident(
            Incident(
                id=draft.new_incident_id(name),
                node=name,
                fault_class=ladder_class,
                code=code or "MANUAL",
                component=component,
                step=Step.HELD,
                opened_at=draft.now,
                step_since=draft.now,
                hold="adopt",
                note=why,
                revision=1,
            )
        )
        draft.event(name, "opened", f"held(adopt): {why}", held)
    for reservation in draft.fleet.observation.reservations.values():
        ours = is_our_reservation(reservation.name) and name in reservation.nodes
        if ours and reservation.name not in draft.fences:
            draft.put_fence(Fence(reservation.name, name, held.id, draft.now))
