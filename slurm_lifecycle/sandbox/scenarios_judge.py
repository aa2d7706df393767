"""What must have happened in each scenario of the demonstration, judged by the observer's record.

A judgement begins with what has to be there: a scenario in which nothing happened is a failure.
"""

from __future__ import annotations

from collections.abc import Sequence

from slurm_lifecycle.sandbox.scenarios_case import (
    FENCE,
    IN_FLIGHT_S,
    OURS,
    Case,
    Facts,
    Judgement,
    verdict_of,
    verdicts_by_boot,
)
from slurm_lifecycle.sandbox.scenarios_record import Record

# The breaker must hold for so long, against work that otherwise starts within seconds, to have been seen.
_BREAKER_DWELL_S = 6.0


def xid79_busy(record: Record, node: str, facts: Facts) -> Judgement:
    """Drained at once, its job left to end, then one reboot, checks, back."""
    case = Case(record, node, facts)
    say = case.say
    drained = case.drained_by_us("slc:XID79 gpu3")
    done = case.job_completed(facts.text.get("job", ""))
    requests = case.rebooted(1, 1)
    if drained is None:
        return say
    say.expect(
        record.job_state(facts.text.get("job", ""), drained.at) == "RUNNING",
        "the job was running when the node was drained",
        "the job was not running when the node was drained",
    )
    # The log has the time of the request, the job's end is seen up to a round later.
    early = [at for at in requests if done is None or at < done - 1.0]
    say.expect(
        not early, "nothing was done to the node before the job ended", "rebooted before its job ended"
    )
    case.returned(drained)
    case.claimed(code="XID79", outcome="returned", cured_by="reboot")
    case.jobs_left_alone(spare=facts.text.get("job", ""))
    return say


def remap_failure_rma(record: Record, node: str, facts: Facts) -> Judgement:
    """Straight to the RMA: a ticket with serial and evidence, no reboot, stays drained."""
    case = Case(record, node, facts)
    say = case.say
    drained = case.drained_by_us("slc:REMAP_FAILURE gpu")
    case.rebooted(0, 0)
    if drained is not None:
        case.stays_drained(drained.at)
    ticket = facts.text.get("ticket", "")
    wanted = (node, facts.text.get("serial", "?"), "REMAP_FAILURE")
    missing = [word for word in wanted if word not in ticket]
    say.expect(
        bool(ticket) and not missing,
        f"ticket on disk names {' '.join(wanted)}",
        f"ticket lacks {' '.join(missing)}" if ticket else "no ticket on disk",
    )
    case.claimed(code="REMAP_FAILURE", step="awaiting_person", rung="rma")
    return say


def driver_mismatch_reimage(record: Record, node: str, facts: Facts) -> Judgement:
    """A reboot that does not cure, then a reimage that does."""
    case = Case(record, node, facts)
    say = case.say
    drained = case.drained_by_us("slc:DRIVER_MISMATCH", within_s=30.0)
    case.rebooted(1, 2)
    say.expect(
        facts.text.get("image_after") != facts.text.get("image_before")
        and bool(facts.text.get("image_after")),
        f"the node now runs image {facts.text.get('image_after')}",
        "the node was not reimaged",
    )
    if drained is None:
        return say
    order = list(verdicts_by_boot(case.story(drained.at)).values())
    say.expect(
        len(order) == 3 and "drain" in order[1] and "ok" not in order[1] and "ok" in order[2],
        "checks failed after the reboot and passed after the reimage",
        f"verdicts by boot were {order}",
    )
    case.returned(drained)
    case.claimed(code="DRIVER_MISMATCH", outcome="returned", cured_by="reimage")
    case.jobs_left_alone()
    return say


def admin_drain_untouched(record: Record, node: str, facts: Facts) -> Judgement:
    """An administrator's drain stays byte for byte, though the node shows a fault."""
    case = Case(record, node, facts)
    say = case.say
    since, reason = facts.at.get("drained", facts.began), facts.text.get("reason", "")
    story = [c for c in record.story(node, since, facts.ended) if c.at > since]
    say.expect(
        bool(story) and all(c.drained_flag and c.reason == reason for c in story),
        f"drained all the time, reason byte for byte `{reason}`",
        f"seen: {sorted({(c.state, c.reason) for c in story if c.reason != reason or not c.drained_flag})}",
    )
    by = {c.reason_by for c in story}
    say.expect(len(by) == 1, "its author and time unchanged", f"author and time: {sorted(by)}")
    given = [text for _, text in record.reasons_set(node, facts.began, facts.ended)]
    say.expect(given == [reason], "nobody else ever gave a reason", f"reasons given: {given}")
    shown = [c for c in story if verdict_of(c)[1] == "drain" and c.at >= facts.at.get("injected", since)]
    say.expect(bool(shown), f"the node says `{shown[0].extra}`" if shown else "", "the fault never showed")
    fences = record.fences_over(node, facts.began, FENCE)
    say.expect(not fences, "no fence", f"fenced by {fences}")
    case.rebooted(0, 0)
    recorded = any(one.get("code") == "XID79" for one in facts.findings)
    say.expect(recorded, "the suite recorded the finding", "the suite has no finding XID79")
    case.claimed(code="XID79", step="held", hold="foreign")
    case.jobs_left_alone()
    return say


def app_xid13(record: Record, node: str, facts: Facts) -> Judgement:
    """An application's fault is recorded and nothing is drained."""
    case = Case(record, node, facts)
    say = case.say
    story = record.story(node, facts.began, facts.ended)
    shown = [c for c in story if verdict_of(c)[1:3] == ("warn", "XID13")]
    say.expect(bool(shown), f"the node says `{shown[0].extra}`" if shown else "", "the node never said XID13")
    out = [c.state for c in story if not c.in_service]
    say.expect(bool(story) and not out, "in service all the time", f"was {out}")
    given = record.reasons_set(node, facts.began, facts.ended)
    say.expect(not given, "no reason was ever given", f"reasons given: {given}")
    case.rebooted(0, 0)
    recorded = any(one.get("code") == "XID13" for one in facts.findings)
    say.expect(recorded, "the suite recorded the finding", "the suite has no finding XID13")
    opened = [claim for claim in facts.claims if claim.get("code") == "XID13"]
    say.expect(not opened, "and opened no incident", "the suite opened an incident for it")
    case.job_completed(facts.text.get("job", ""))
    case.jobs_left_alone(spare=facts.text.get("job", ""))
    return say


def daemon_killed(record: Record, node: str, facts: Facts) -> Judgement:
    """The daemon dies by SIGKILL while the node reboots; the next one goes on, and reboots nothing twice."""
    case = Case(record, node, facts)
    say = case.say
    drained = case.drained_by_us("slc:XID79 gpu5")
    requests = case.rebooted(1, 1)
    boots = record.boots(node, facts.began, facts.ended)
    killed, again = facts.at.get("killed", 0.0), facts.at.get("restarted", 0.0)
    say.expect(
        bool(requests and boots) and requests[0] < killed < boots[0],
        "the daemon was killed between the reboot's request and the new boot",
        "the daemon was not killed while the node rebooted",
    )
    say.expect(again > killed > 0.0, "another daemon went on", "no other daemon was started")
    if drained is not None:
        back = case.returned(drained)
        if back is not None:
            say.expect(
                back > again, "it was the second daemon that returned it", "returned before the restart"
            )
    case.claimed(code="XID79", outcome="returned", cured_by="reboot")
    return say


def dead_node(record: Record, node: str, facts: Facts) -> Judgement:
    """Slurm's own `Not responding` is adopted after its time; then the node waits for a person."""
    case = Case(record, node, facts)
    say = case.say
    since = facts.at.get("injected", facts.began)
    story = [c for c in record.story(node, since, facts.ended) if c.at > since]
    slurms = [c for c in story if "DOWN" in c.tokens and c.reason == "Not responding"]
    if not say.expect(bool(slurms), "Slurm: DOWN, `Not responding`", "Slurm never called it not responding"):
        return say
    waited_s = float(facts.text.get("adopt_after_s", "0"))
    ours = [c for c in story if c.reason.startswith("slc:NO_RESPONSE")]
    if say.expect(bool(ours), f"adopted: `{ours[0].reason}`" if ours else "", "never adopted"):
        after_s = ours[0].at - slurms[0].at
        # Slurm's own time has whole seconds only.
        say.expect(
            after_s >= waited_s - 1.5,
            f"{after_s:.0f} s after Slurm gave up on it (policy: {waited_s:g} s)",
            f"adopted {after_s:.1f} s after Slurm's reason, before the {waited_s:g} s of the policy",
        )
        case.stays_drained(ours[0].at)
    case.rebooted(0, 0)
    claim = case.claimed(code="NO_RESPONSE", step="awaiting_person")
    note = str(claim.get("note", ""))
    say.expect("node release" in note, f"a person is told: {note[:160]}", "no word for a person")
    return say


def breaker(record: Record, nodes: Sequence[str], facts: Facts) -> Judgement:
    """Too many at once: nothing new is started, what runs is finished and returned; a person lets go.

    Args:
        record: what was seen.
        nodes: all of them; the first one's repair was under way when the others failed.
        facts: `tripped`, `lifted`, `reset` in `at`.
    """
    case = Case(record, nodes[0], facts)
    say = case.say
    tripped, reset = facts.at.get("tripped", 0.0), facts.at.get("reset", 0.0)
    if not say.expect(bool(tripped), "the suite says that the breaker tripped", "the breaker never tripped"):
        return say
    failing = [
        node
        for node in nodes
        if any(
            verdict_of(c)[1:3] == ("drain", "DRIVER_MISMATCH")
            for c in record.story(node, facts.began, tripped + IN_FLIGHT_S)
        )
    ]
    say.expect(
        len(failing) == len(nodes),
        f"{len(failing)} nodes said DRIVER_MISMATCH",
        f"only {failing} said DRIVER_MISMATCH",
    )
    say.expect(
        reset - tripped >= _BREAKER_DWELL_S,
        f"held for {reset - tripped:.0f} s until a person reset it",
        "was not held for long enough to see that nothing starts",
    )
    begun = [
        f"{node} {what} {at - tripped:.1f} s after the trip"
        for node in nodes
        for what, at in _begun(record, node, tripped + IN_FLIGHT_S, facts.at.get("lifted", reset))
    ]
    say.expect(not begun, "nothing new was started", ", ".join(begun))
    spared = [n for n in nodes if not record.reboot_requests(n, facts.began, reset)]
    say.expect(bool(spared), f"never rebooted: {' '.join(spared)}", "every node was rebooted: no breaker")
    _first_is_finished(case, tripped, reset)
    for node in nodes[1:]:
        _not_let_go(record, node, tripped, facts.at.get("lifted", reset), say)
    out = [node for node in nodes if not record.now(node).in_service]
    say.expect(not out, "all in service after lift and reset", f"still out: {' '.join(out)}")
    for node in nodes:
        Case(record, node, facts, say).jobs_left_alone()
    return say


def _begun(record: Record, node: str, since: float, until: float) -> list[tuple[str, float]]:
    drains = [("drained", at) for at, text in record.reasons_set(node, since, until) if text.startswith(OURS)]
    return drains + [("rebooted", at) for at in record.reboot_requests(node, since, until)]


def _first_is_finished(case: Case, tripped: float, reset: float) -> None:
    node, say = case.node, case.say
    requests = case.record.reboot_requests(node, case.facts.began, tripped + IN_FLIGHT_S)
    say.expect(bool(requests), f"{node} was under repair when it tripped", f"{node} was not under repair")
    later = [change for change in case.record.story(node, tripped, reset) if change.at > tripped]
    back = [change.at for change in later if change.in_service and requests]
    say.expect(
        bool(back),
        f"{node} was finished and returned {back[0] - tripped:.0f} s after the trip" if back else "",
        f"{node} was not returned while the breaker was open",
    )


def _not_let_go(record: Record, node: str, tripped: float, until: float, say: Judgement) -> None:
    """A trip undrains nothing by itself: what was drained by then stays so until a person lifts it."""
    story = record.story(node, tripped + IN_FLIGHT_S, until)
    if story and story[0].drained_flag:
        stays = all(change.drained_flag for change in story)
        say.expect(stays, f"{node} stays drained meanwhile", f"{node} was let go while the breaker was open")
