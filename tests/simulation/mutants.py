"""Broken daemons: each is one changed predicate, which the safety suite must catch.

    python -m tests.simulation.mutants [--seeds 50] [NAME ...]

runs every mutant on seeds from 0 until an oracle objects, and prints which did and after how many seeds.
"""

import argparse
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from slurm_lifecycle.core import (
    budget,
    draft,
    evidence,
    formats,
    intake,
    invariants,
    ladder,
    ownership,
    planner,
    repair,
    returning,
    standing,
    steps,
)
from slurm_lifecycle.core.model import Attempt, AttemptOutcome, Fleet, Incident, NodeView, Owner, Rung, Step
from slurm_lifecycle.core.plan import Undrain
from slurm_lifecycle.core.policy import Budget
from slurm_lifecycle.errors import InvariantViolation
from slurm_lifecycle.service import executor, reconciler
from slurm_lifecycle.simulation.safety.suite import quiet, run_seed
from tests.simulation.mutants_power import POWER

SEEDS = 50


@dataclass(frozen=True, slots=True)
class Mutant:
    """A daemon with one thing wrong.

    Attributes:
        says: what is wrong with it.
        put: what is put in place of what: functions are replaced wherever they were imported, attributes of
            classes and modules where they are.
        seed: one that catches it, tried first.
        by: the oracle that objects then.
    """

    name: str
    says: str
    put: Callable[[], Mapping[tuple[Any, str], Any]]
    seed: int
    by: str


@contextmanager
def broken(mutant: Mutant) -> Iterator[None]:
    """The daemon is broken within this block, in this process."""
    undo: list[tuple[Any, str, Any]] = []
    for (owner, name), replacement in mutant.put().items():
        original = getattr(owner, name)
        places = _places(original) if callable(original) and not isinstance(owner, type) else []
        for place in places or [owner]:
            undo.append((place, name, getattr(place, name)))
            setattr(place, name, replacement)
    try:
        yield
    finally:
        for place, name, original in reversed(undo):
            setattr(place, name, original)


def _places(function: Any) -> list[Any]:
    """Every module of ours that holds the function under its own name."""
    name = getattr(function, "__name__", "")
    modules = [one for key, one in sorted(sys.modules.items()) if key.startswith("slurm_lifecycle.")]
    return [one for one in modules if getattr(one, name, None) is function]


def caught(mutant: Mutant, seeds: Iterable[int]) -> tuple[int, str, str] | None:
    """The first seed that catches the mutant: which, by which oracle, with which words."""
    with broken(mutant):
        for seed in seeds:
            report = run_seed(seed)
            if report.violations:
                first = report.violations[0]
                return seed, first.oracle, first.text
    return None


# ---------------------------------------------------------------- the mutants


def _is_drained_without_jobs(view: NodeView, jobs: object) -> bool:
    del jobs
    return ownership.understood(view) and "DRAIN" in view.state


def _no_idle_check() -> Mapping[tuple[Any, str], Any]:
    return {(ownership, "is_drained"): _is_drained_without_jobs}


def _no_count_within_a_tick() -> Mapping[tuple[Any, str], Any]:
    def admit_working(self: budget.Ledger, scopes: tuple[str, ...]) -> str:
        for scope in scopes:
            limit = self.limits.get(scope, Budget()).max_working
            if limit is not None and self.working.get(scope, 0) >= limit:
                return f"{scope} is full"
        return ""

    return {(budget.Ledger, "admit_working"): admit_working}


def _max_out_without_count() -> Mapping[tuple[Any, str], Any]:
    return {(budget.Ledger, "admit_out"): lambda self, scopes: ""}


def _cancelled_is_success() -> Mapping[tuple[Any, str], Any]:
    original = executor.Executor._end

    def _end(self: executor.Executor, attempt: Attempt, outcome: AttemptOutcome, detail: str) -> None:
        cancelled = outcome is AttemptOutcome.CANCELLED
        original(self, attempt, AttemptOutcome.SUCCEEDED if cancelled else outcome, detail)

    return {(executor.Executor, "_end"): _end}


def _ambiguous_is_success() -> Mapping[tuple[Any, str], Any]:
    original = evidence._judge

    def _judge(*args: Any) -> Any:
        judged = original(*args)
        if judged is not None and judged[0] is AttemptOutcome.AMBIGUOUS:
            return AttemptOutcome.SUCCEEDED, judged[1]
        return judged

    return {(evidence, "_judge"): _judge}


def _ownership_by_equality() -> Mapping[tuple[Any, str], Any]:
    def is_our_reason(reason: str) -> bool:
        return reason.startswith(formats.REASON_PREFIX) and " : " not in reason

    return {(formats, "is_our_reason"): is_our_reason}


def _a_persons_drain_is_ours() -> Mapping[tuple[Any, str], Any]:
    original = ownership.owner_of

    def owner_of(*args: Any) -> Owner:
        owner = original(*args)
        return Owner.OURS if owner is Owner.PERSON else owner

    return {(ownership, "owner_of"): owner_of}


def _resume_for_undrain() -> Mapping[tuple[Any, str], Any]:
    def _undrain(self: executor.Executor, action: Undrain) -> None:
        view = self._fresh(action.node)
        if ownership.owner_of(view, self._policy) is not Owner.OURS:
            raise executor.Skipped("not ours")
        if ownership.reboot_under_way(view):
            raise executor.Skipped("a reboot")
        self._ports.slurm.resume(action.node)

    return {(executor.Executor, "_undrain"): _undrain}


def _undrain_in_a_reboot() -> Mapping[tuple[Any, str], Any]:
    return {(ownership, "reboot_under_way"): lambda view: False}


def _no_memory() -> Mapping[tuple[Any, str], Any]:
    return {(ladder, "entry_index"): lambda policy, incident, history, now: (0, "")}


def _breaker_blocks_returns() -> Mapping[tuple[Any, str], Any]:
    original = draft.Draft.not_allowed

    def not_allowed(self: draft.Draft, view: NodeView, what: str) -> str:
        tripped = "breaker tripped" if what == "return" and self.breaker_on(view) else ""
        return tripped or original(self, view, what)

    return {(draft.Draft, "not_allowed"): not_allowed}


def _breaker_stops_nothing() -> Mapping[tuple[Any, str], Any]:
    return {
        (draft.Draft, "breaker_on"): lambda self, view: None,
        # The plan checker would refuse such a plan.
        (invariants, "_check_breaker"): lambda fleet, plan, policy: (),
    }


def _breaker_never_trips() -> Mapping[tuple[Any, str], Any]:
    return {(budget, "new_trip"): lambda *args: None}


def _no_caps() -> Mapping[tuple[Any, str], Any]:
    # The plan checker refuses: it counts for itself.
    return {(ladder, "cap_reached"): lambda *args: ""}


def _no_caps_and_no_checker() -> Mapping[tuple[Any, str], Any]:
    return {**_no_caps(), (invariants, "check_plan"): lambda *args: ()}


def _attempts_without_end() -> Mapping[tuple[Any, str], Any]:
    return {(ladder, "used"): lambda *args: 0}


def _no_fence() -> Mapping[tuple[Any, str], Any]:
    # The plan checker refuses: it looks for the fence itself.
    return {(repair, "fenced"): lambda *args: True}


def _no_fence_and_nobody_looks() -> Mapping[tuple[Any, str], Any]:
    return {
        **_no_fence(),
        (invariants, "check_plan"): lambda *args: (),
        (executor.Executor, "_look_at"): _look_without_fence,
    }


def _look_without_fence(self: executor.Executor, attempt: Attempt, fence: str) -> None:
    del fence
    self._ports.slurm.reservations()
    self._fresh(attempt.node)
    self._ports.slurm.jobs_on(attempt.node)


def _fence_goes_first() -> Mapping[tuple[Any, str], Any]:
    return {(planner, "_FENCED_STEPS"): frozenset({Step.REPAIRING, Step.VERIFYING})}


def _checks_of_the_old_boot() -> Mapping[tuple[Any, str], Any]:
    original = returning._not_yet

    def _not_yet(incident: Incident, *args: Any) -> str:
        return original(replace(incident, boot_before=""), *args)

    return {(returning, "_not_yet"): _not_yet}


def _no_settling() -> Mapping[tuple[Any, str], Any]:
    original = returning.verifying

    def verifying(in_draft: draft.Draft, incident: Incident, view: NodeView) -> None:
        policy = in_draft.policy
        in_draft.policy = replace(policy, verify_settle_s=0.0)
        original(in_draft, incident, view)
        in_draft.policy = policy

    return {(returning, "verifying"): verifying}


def _done_before_it_is_written() -> Mapping[tuple[Any, str], Any]:
    def tick(self: reconciler.Reconciler) -> reconciler.TickResult:
        now = self._clock.now()
        records = self._store.load(now)
        fleet = Fleet(self._observe(records, now), records, self._store.identity())
        plan = self._planner(fleet, self._policy, now)
        problems = invariants.check_plan(fleet, plan, self._policy, now)
        if problems:
            raise InvariantViolation("; ".join(problems[:5]))
        done = self._executor.execute(plan, reconciler._open_after(records, plan))
        self._store.apply(plan, now)
        return reconciler.TickResult(now, plan, records, done, {})

    return {(reconciler.Reconciler, "tick"): tick}


def _no_fresh_look() -> Mapping[tuple[Any, str], Any]:
    seen: dict[str, NodeView] = {}
    observe = reconciler.Reconciler._observe

    def _observe(self: reconciler.Reconciler, *args: Any) -> Any:
        observation = observe(self, *args)
        seen.clear()
        seen.update(observation.nodes)
        return observation

    return {
        (reconciler.Reconciler, "_observe"): _observe,
        (executor.Executor, "_fresh"): lambda self, node: seen[node],
    }


def _sent_twice() -> Mapping[tuple[Any, str], Any]:
    return {(evidence, "IDEMPOTENT_RUNGS"): frozenset(Rung)}


def _closed_unseen() -> Mapping[tuple[Any, str], Any]:
    return {(returning, "SERVICE_TICKS"): 1}


def _fights_persons() -> Mapping[tuple[Any, str], Any]:
    original = steps._person_decided

    def _person_decided(in_draft: draft.Draft, incident: Incident, view: NodeView) -> bool:
        return original(in_draft, replace(incident, drain_confirmed=False), view)

    return {(steps, "_person_decided"): _person_decided}


def _no_deadlines() -> Mapping[tuple[Any, str], Any]:
    return {(steps, "_page_if_overdue"): lambda in_draft, incident: None}


def _attempts_never_expire() -> Mapping[tuple[Any, str], Any]:
    original = evidence._judge

    def _judge(in_draft: draft.Draft, attempt: Attempt, view: NodeView | None) -> Any:
        return original(in_draft, replace(attempt, deadline=1e12), view)

    return {(evidence, "_judge"): _judge}


def _nobody_is_told() -> Mapping[tuple[Any, str], Any]:
    return {(standing, "standing"): lambda in_draft: ()}


def _holds_are_ignored() -> Mapping[tuple[Any, str], Any]:
    original = draft.Draft.not_allowed

    def not_allowed(self: draft.Draft, view: NodeView, what: str) -> str:
        held = self.holds.pop(view.name, None)
        try:
            return original(self, view, what)
        finally:
            if held is not None:
                self.holds[view.name] = held

    return {(draft.Draft, "not_allowed"): not_allowed}


def _comments_are_overwritten() -> Mapping[tuple[Any, str], Any]:
    original = formats.with_mark
    return {(formats, "with_mark"): lambda comment, mark: original("", mark)}


def _a_case_vanishes() -> Mapping[tuple[Any, str], Any]:
    original = draft.Draft.close

    def close(self: draft.Draft, incident: Incident, outcome: str, *args: Any) -> Incident:
        return original(self, incident, "" if outcome == "cleared" else outcome, *args)

    return {(draft.Draft, "close"): close}


def _late_boots_are_checked_for_ever() -> Mapping[tuple[Any, str], Any]:
    def attempts_of(self: draft.Draft, incident: Incident) -> tuple[Attempt, ...]:
        return ()

    original = returning._failed

    def _failed(in_draft: draft.Draft, *args: Any) -> None:
        known = draft.Draft.attempts_of
        draft.Draft.attempts_of = attempts_of  # type: ignore[method-assign]
        try:
            original(in_draft, *args)
        finally:
            draft.Draft.attempts_of = known  # type: ignore[method-assign]

    return {(returning, "_failed"): _failed}


def _stale_reasons_hide_outages() -> Mapping[tuple[Any, str], Any]:
    return {(intake, "_down_under_a_stale_reason"): lambda *args: False}


MUTANTS = (
    Mutant(
        "no idle check", "a node with a job counts as drained", _no_idle_check, 9, "no disruption of a job"
    ),
    Mutant(
        "no count within a tick",
        "a burst of admissions overruns a limit",
        _no_count_within_a_tick,
        0,
        "budgets of nodes in work",
    ),
    Mutant(
        "max_out without a count",
        "optional drains take no place",
        _max_out_without_count,
        0,
        "budgets of nodes out",
    ),
    Mutant(
        "cancelled is success",
        "what was never sent counts as done",
        _cancelled_is_success,
        7,
        "success is proven by a boot",
    ),
    Mutant(
        "ambiguous is success",
        "what has no evidence counts as done",
        _ambiguous_is_success,
        2,
        "success is proven by a boot",
    ),
    Mutant(
        "ownership by equality",
        "a reason with Slurm's suffix is a person's",
        _ownership_by_equality,
        0,
        "Slurm and the record agree",
    ),
    Mutant(
        "a person's drain is ours",
        "every drain may be lifted",
        _a_persons_drain_is_ours,
        0,
        "a person's drain is untouched",
    ),
    Mutant(
        "resume for undrain",
        "RESUME where UNDRAIN is meant",
        _resume_for_undrain,
        0,
        "RESUME only where it is DOWN",
    ),
    Mutant(
        "undrain in a reboot",
        "a reboot under way is not seen",
        _undrain_in_a_reboot,
        15,
        "RESUME only where it is DOWN",
    ),
    Mutant("no memory", "a relapse begins at the first rung", _no_memory, 11, "relapses go up the ladder"),
    Mutant(
        "breaker blocks returns",
        "a tripped breaker keeps checked nodes",
        _breaker_blocks_returns,
        0,
        "the breaker never stops a return",
    ),
    Mutant(
        "breaker stops nothing",
        "repairs start under a tripped breaker",
        _breaker_stops_nothing,
        0,
        "a tripped breaker starts nothing",
    ),
    Mutant(
        "breaker never trips", "many nodes at once are no alarm", _breaker_never_trips, 0, "the breaker trips"
    ),
    Mutant("no caps", "attempts of a node are not counted", _no_caps, 1, "no defect, no refused plan"),
    Mutant(
        "no caps and no checker",
        "the same where the plan checker sleeps",
        _no_caps_and_no_checker,
        1,
        "attempts within their caps",
    ),
    Mutant(
        "attempts without end",
        "a rung is tried for ever",
        _attempts_without_end,
        0,
        "attempts within their caps",
    ),
    Mutant("no fence", "a repair begins without a fence", _no_fence, 0, "no defect, no refused plan"),
    Mutant(
        "no fence and nobody looks",
        "the same where nobody looks again",
        _no_fence_and_nobody_looks,
        0,
        "drained and fenced first",
    ),
    Mutant(
        "fence goes first",
        "the fence is removed before the drain is lifted",
        _fence_goes_first,
        0,
        "the fence goes last",
    ),
    Mutant(
        "checks of the old boot",
        "a verdict of the boot before the repair passes",
        _checks_of_the_old_boot,
        2,
        "never in service unchecked",
    ),
    Mutant("no settling", "the first good verdict passes", _no_settling, 0, "never in service unchecked"),
    Mutant(
        "done before it is written",
        "effects come before the store",
        _done_before_it_is_written,
        0,
        "written before it is done",
    ),
    Mutant(
        "no fresh look",
        "what the tick read is trusted at the write",
        _no_fresh_look,
        0,
        "a fresh look before each write",
    ),
    Mutant(
        "sent twice",
        "a reboot that was not marked as sent is sent again",
        _sent_twice,
        23,
        "written before it is done",
    ),
    Mutant(
        "closed unseen",
        "a case ends when its node was seen in service once",
        _closed_unseen,
        0,
        "closed when seen in service",
    ),
    Mutant(
        "fights persons",
        "a drain that a person lifted is set again",
        _fights_persons,
        1,
        "it does not fight a person",
    ),
    Mutant(
        "no deadlines",
        "what takes too long is no alarm",
        _no_deadlines,
        0,
        "no state past its deadline without an alarm",
    ),
    Mutant(
        "attempts never expire",
        "an attempt without evidence stays open",
        _attempts_never_expire,
        2,
        "no state past its deadline without an alarm",
    ),
    Mutant(
        "nobody is told",
        "what waits for a person is not told",
        _nobody_is_told,
        1,
        "who waits for a person is told",
    ),
    Mutant(
        "holds are ignored",
        "a node that a person holds is worked on",
        _holds_are_ignored,
        8,
        "only what is allowed",
    ),
    Mutant(
        "comments are overwritten",
        "others' words in a Comment are lost",
        _comments_are_overwritten,
        0,
        "it comes to rest",
    ),
    Mutant("a case vanishes", "a case is closed without a word", _a_case_vanishes, 0, "no incident vanishes"),
    Mutant(
        "late boots are checked for ever",
        "as it was before this suite",
        _late_boots_are_checked_for_ever,
        2,
        "it comes to rest",
    ),
    Mutant(
        "stale reasons hide outages",
        "as it was before this suite",
        _stale_reasons_hide_outages,
        0,
        "it comes to rest",
    ),
    *(Mutant(*one) for one in POWER),
)


def main() -> int:
    """Which oracle catches which mutant, and after how many seeds."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("names", nargs="*")
    asked = parser.parse_args()
    quiet()
    missed = 0
    for mutant in MUTANTS:
        if asked.names and mutant.name not in asked.names:
            continue
        found = caught(mutant, range(asked.seeds))
        if found is None:
            missed += 1
            print(f"{mutant.name}: NOT CAUGHT in {asked.seeds} seeds", flush=True)
        else:
            seed, oracle, text = found
            print(f"{mutant.name}: seed {seed}, {seed + 1} seeds, by {oracle!r}: {text[:90]}", flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
