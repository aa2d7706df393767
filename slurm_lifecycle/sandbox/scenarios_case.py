"""One case to judge: the observer's record, facts, and the questions asked of every case.

`Facts` holds when the demonstration itself did something, a ticket on disk, and what the suite *claims* of
itself, which is only ever compared with what was seen.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from slurm_lifecycle.sandbox.observer import JobChange, NodeChange
from slurm_lifecycle.sandbox.scenarios_record import Record

OURS = "slc:"
FENCE = "slc-"
# An action that was sent just before a moment shows itself a little after it.
IN_FLIGHT_S = 2.5
_MAX_GAP_S = 8.0
# The observer sees a thing up to one round after it happened, and asks for nodes, jobs, reservations in turn.
_LOOK_S = 0.6
# A node drains itself within a second or two of what its checks see, and they look every few seconds here.
_AT_ONCE_S = 12.0


@dataclass(slots=True)
class Facts:
    """What a judgement may know beside the record.

    Attributes:
        began, ended: the stretch of time that is judged.
        at: when the demonstration did what (`injected`, `killed`, `reset` and so on).
        text: names and texts, such as `job`, `ticket`, `serial`, `reason`.
        claims: the suite's own incidents for the node, as `incidents --json` shows them.
    """

    began: float
    ended: float
    at: dict[str, float] = field(default_factory=dict)
    text: dict[str, str] = field(default_factory=dict)
    claims: Sequence[Mapping[str, Any]] = ()
    findings: Sequence[Mapping[str, Any]] = ()


@dataclass(slots=True)
class Judgement:
    """What was seen, in words; `problems` empty means that it is as it must be."""

    seen: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def expect(self, good: bool, seen: str, problem: str) -> bool:
        """Notes one thing that must hold, as seen or as a problem."""
        (self.seen if good else self.problems).append(seen if good else problem)
        return good

    @property
    def ok(self) -> bool:
        """Whether everything that had to be seen was seen."""
        return bool(self.seen) and not self.problems

    @property
    def observed(self) -> str:
        """In one line, problems first."""
        return "; ".join([f"NOT AS IT MUST BE: {one}" for one in self.problems] + self.seen)


def verdict_of(change: NodeChange) -> tuple[str, str, str, str]:
    """Boot id, level, code and component of the verdict in the node's Extra; empty where there is none."""
    words = change.extra.rpartition("slc1 ")[2].split()
    # The sixth is the marker of the node's image.
    if "slc1 " not in change.extra or len(words) not in (5, 6):
        return "", "", "", ""
    return words[0], words[2], words[3], words[4]


def verdicts_by_boot(story: Sequence[NodeChange]) -> dict[str, set[str]]:
    """Levels that the node said of itself in each boot, in order of the boots."""
    boots: dict[str, set[str]] = {}
    for change in story:
        boot, level, _, _ = verdict_of(change)
        if boot:
            boots.setdefault(boot, set()).add(level)
    return boots


def job_harm(changes: Sequence[JobChange]) -> str:
    """What was done to a job, "" when it was left alone (it may still wait or run)."""
    for change in changes:
        if change.restarts:
            return f"requeued ({change.restarts} restarts)"
        if change.state not in ("PENDING", "RUNNING", "COMPLETING", "COMPLETED", "CONFIGURING"):
            return change.state
        if change.state == "COMPLETED" and change.exit_code not in ("0", "0:0"):
            return f"exit {change.exit_code}"
    return ""


@dataclass(slots=True)
class Case:
    """One node in one stretch of time; what is asked is noted in `say`."""

    record: Record
    node: str
    facts: Facts
    say: Judgement = field(default_factory=Judgement)

    def __post_init__(self) -> None:
        gap_s = self.record.longest_gap_s(self.facts.began, self.facts.ended)
        if gap_s > _MAX_GAP_S:
            self.say.problems.append(f"nobody watched for {gap_s:.0f} s: what happened then is unknown")

    @property
    def injected(self) -> float:
        """When the fault was injected."""
        return self.facts.at.get("injected", self.facts.began)

    def story(self, since: float) -> list[NodeChange]:
        """What the node showed from then on, what held at that moment first."""
        return self.record.story(self.node, since, self.facts.ended)

    def drained_by_us(self, prefix: str, within_s: float = _AT_ONCE_S) -> NodeChange | None:
        """The first moment at which the node was drained with the reason; a problem where there is none."""
        for change in self.story(self.injected):
            if change.at >= self.injected and change.drained_flag and change.reason.startswith(prefix):
                after_s = change.at - self.injected
                words = f"drained {after_s:.1f} s after the fault, reason `{change.reason}`"
                self.say.expect(after_s <= within_s, words, f"{words}; must be within {within_s:g} s")
                return change
        self.say.problems.append(f"never drained with a reason `{prefix}...`")
        return None

    def stays_drained(self, since: float) -> None:
        """Drained with a reason of ours until the end."""
        later = [change for change in self.story(since) if change.at >= since]
        stays = bool(later) and all(c.drained_flag and c.reason.startswith(OURS) for c in later)
        self.say.expect(stays, "stays drained", "did not stay drained")

    def returned(self, drained: NodeChange) -> float | None:
        """When the node was back in service: with a good verdict of a new boot, and for good."""
        before = verdict_of(drained)[0]
        found = self._free_again(drained.at)
        if found is None:
            self.say.problems.append("never came back into service")
            return None
        at, back = found
        boot, level, _, _ = verdict_of(back)
        after_s = at - drained.at
        self.say.expect(
            level == "ok" and bool(boot) and boot != before,
            f"back in service after {after_s:.0f} s, checks of the new boot passed",
            f"in service unchecked after {after_s:.0f} s: verdict `{back.extra}`, boot before {before}",
        )
        started = self._started_between(drained.at + _LOOK_S, at - _LOOK_S)
        self.say.expect(not started, "no job started there meanwhile", f"jobs started there: {started}")
        left = [one.state for one in self.story(at) if one.at > at and not one.in_service]
        self.say.expect(not left, "stays in service", f"left service again: {left}")
        return at

    def _started_between(self, since: float, until: float) -> list[str]:
        """Jobs that began to run on the node in a stretch of time."""
        return [
            f"{job} at {change.at - since:.1f} s"
            for job, changes in self.record.jobs.items()
            for change in [next((one for one in changes if one.state == "RUNNING"), None)]
            if change is not None and self.node in change.nodes and since < change.at < until
        ]

    def _free_again(self, since: float) -> tuple[float, NodeChange] | None:
        """When users' jobs may start there again: in service by its state, and no fence over it."""
        fences = [change.at for one in self.record.reservations.values() for change in one]
        times = sorted({change.at for change in self.story(since)} | set(fences))
        for at in times:
            if since < at <= self.facts.ended:
                change = self.record.story(self.node, at, at)[-1]
                if change.in_service and not self.record.fenced_at(self.node, at, FENCE):
                    return at, change
        return None

    def rebooted(self, times: int, boots: int) -> list[float]:
        """Reboots by slurmctld's log and boots by the node's boot time: exactly so many, and fenced."""
        requests = self.record.reboot_requests(self.node, self.facts.began, self.facts.ended)
        seen = self.record.boots(self.node, self.facts.began, self.facts.ended)
        words = f"{len(requests)} reboots asked of Slurm, {len(seen)} boots"
        right = len(requests) == times and len(seen) == boots
        self.say.expect(right, words, f"{words}; must be {times} and {boots}")
        for at in requests:
            fenced = self.record.fenced_at(self.node, at + _LOOK_S, FENCE)
            self.say.expect(fenced, "fenced by a MAINT reservation", "rebooted without a fence")
        return requests

    def job_completed(self, job: str) -> float | None:
        """When the scenario's own job ended by itself: COMPLETED, never requeued."""
        changes = self.record.jobs.get(job, [])
        harm = job_harm(changes)
        done = next((change.at for change in changes if change.state == "COMPLETED"), None)
        self.say.expect(
            not harm and done is not None,
            "its job ran to its end: COMPLETED, 0 restarts",
            f"its job: {harm or 'did not complete'}",
        )
        return done

    def jobs_left_alone(self, spare: str = "") -> None:
        """No job that was on the node was killed, requeued or failed."""
        jobs = self.record.jobs_on(self.node, self.facts.began, self.facts.ended)
        hurt = [f"job {job}: {why}" for job, one in jobs.items() if job != spare and (why := job_harm(one))]
        self.say.problems += hurt
        others = len(jobs.keys() - {spare})
        if others and not hurt:
            self.say.seen.append(f"{others} other jobs there, all left alone")

    def claimed(self, **wanted: str) -> Mapping[str, Any]:
        """The suite's own incident for the node agrees with what was seen."""
        words = " ".join(f"{key}={value}" for key, value in wanted.items())
        for claim in self.facts.claims:
            if all(claim.get(key) == value for key, value in wanted.items()):
                self.say.seen.append(f"the suite says the same ({words})")
                return claim
        said = [{key: claim.get(key) for key in wanted} for claim in self.facts.claims]
        self.say.problems.append(f"the suite claims {said}, not {words}")
        return {}
