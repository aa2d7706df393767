"""What waits for a person, told as long as it waits.

A page that is planned once, when something begins to wait, is lost with a daemon that dies before it sent
it, or with a mail server that is down for a minute. So everything that waits is named anew in every plan, and
the notifier keeps the repetition down: one key is told once a shift.
"""

from slurm_lifecycle.core.draft import Draft
from slurm_lifecycle.core.ladder import needs_bmc
from slurm_lifecycle.core.model import Incident, Step, Trip
from slurm_lifecycle.core.plan import Notice

# Begins the note of an incident whose node is broken and still has a job on it.
PAGED_BUSY = "paged: "


def standing(draft: Draft) -> tuple[Notice, ...]:
    """A page for every incident that waits for a person, every open trip, and a daemon that may not act."""
    found = [_of_trip(trip) for trip in sorted(draft.trips.values(), key=lambda one: one.scope)]
    if draft.claim_problem and not draft.claim_pending:
        me = draft.fleet.identity
        key = f"not_acting:{me.instance}:{me.generation}"
        found.append(Notice(key, "page", "", f"the daemon does nothing: {draft.claim_problem}"))
    for name in sorted(draft.incidents):
        incident = draft.incidents[name]
        if incident.step is Step.AWAITING_PERSON or (
            incident.step is Step.HELD and incident.hold != "foreign"
        ):
            found.append(_of_incident(draft, incident))
        elif incident.step is Step.DRAINING and incident.note.startswith(PAGED_BUSY):
            text = f"{name}: {incident.note.removeprefix(PAGED_BUSY)}"
            found.append(Notice(f"busy:{incident.id}", "page", name, text))
    return (*found, *_machines_in_the_middle(draft))


def _machines_in_the_middle(draft: Draft) -> list[Notice]:
    """Power cycles past their deadline: the machine may be off, and its BMC does not help."""
    late = [one for one in draft.open_attempts.values() if needs_bmc(one.rung, draft.policy)]
    return [
        Notice(
            f"machine:{one.op_id}",
            "page",
            one.node,
            f"{one.node}: {draft.held.get(one.node, one.rung.value)}; past its deadline: look at the machine",
        )
        for one in sorted(late, key=lambda one: one.op_id)
        if draft.now >= one.deadline
    ]


def begun_now(draft: Draft, notices: tuple[Notice, ...]) -> tuple[Notice, ...]:
    """Those whose cause began in this tick; they are actions of the plan as well."""
    changed = {one.node for one in draft.changed_incidents.values()}
    tripped = {_of_trip(one).key for one in draft.changed_trips}
    return tuple(one for one in notices if one.key in tripped or (one.node and one.node in changed))


def _of_trip(trip: Trip) -> Notice:
    text = f"breaker tripped for {trip.scope}: {trip.reason}; nothing new is started until"
    return Notice(
        f"breaker:{trip.scope}:{int(trip.tripped_at)}",
        "page",
        "",
        f"{text} `slurm-lifecycle breaker reset {trip.scope}`",
    )


def _of_incident(draft: Draft, incident: Incident) -> Notice:
    word = incident.hold or incident.step.value
    why = incident.note or draft.held.get(incident.node, "")
    command = f"slurm-lifecycle node release {incident.node}"
    todo = "" if command in why else f"; look at it, then `{command}`"
    return Notice(
        # Not by the revision, which small changes count up; a second wait of one incident is told anew.
        f"waits:{incident.id}:{word}:{int(incident.step_since)}",
        "page",
        incident.node,
        f"{incident.node} ({incident.code} {incident.component}) waits for a person: {word}: {why}{todo}",
    )
