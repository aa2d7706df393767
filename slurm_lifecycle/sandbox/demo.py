"""The demonstration: its scenarios on a real Slurm, played by the real daemon, judged by the observer."""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any, Protocol

from slurm_lifecycle.sandbox.cluster import Sandbox
from slurm_lifecycle.sandbox.demo_cluster import BREAKER_WINDOW_S, NODES, STOP_SIGNALS, DemoCluster
from slurm_lifecycle.sandbox.scenarios import SCENARIOS
from slurm_lifecycle.sandbox.scenarios_case import Facts, Judgement, job_harm
from slurm_lifecycle.sandbox.scenarios_record import Record
from slurm_lifecycle.sandbox.scenarios_world import Play, Run, Scenario, Wait
from slurm_lifecycle.sandbox.settings import SandboxError

_ROUND_S = 0.2
DEFAULT_NAME = "demo"


@dataclass(slots=True)
class Row:
    """One scenario in the table; `ok` is None until it is judged."""

    name: str
    nodes: str
    state: str = ""
    reason: str = ""
    seconds: float = 0.0
    word: str = ""
    ok: bool | None = None


class View(Protocol):
    """Shows what goes on."""

    def __enter__(self) -> View:
        """Begins to show rows."""

    def __exit__(self, *exception: object) -> None:
        """Leaves the terminal in order."""

    def say(self, text: str) -> None:
        """One line."""

    def show(self, rows: Sequence[Row]) -> None:
        """The present state of all scenarios."""


class Interrupted(Exception):
    """Asked to stop by a signal; everything is cleaned up on the way out."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number


@dataclass(slots=True)
class _Playing:
    """One scenario being played."""

    run: Run
    play: Play
    wait: Wait | None = None
    until: float = 0.0
    judgement: Judgement | None = None
    gave_up: str = ""
    seconds: float = 0.0
    done: bool = False

    def step(self, now: float) -> None:
        """Goes on when what it waits for is there; ends when it waited in vain."""
        if self.done:
            return
        if self.wait is not None and not self.wait.until():
            if now >= self.until:
                self.gave_up = f"waited {self.wait.timeout_s:.0f} s in vain for {self.wait.what}"
                self.play.close()
                self._end(now)
            return
        try:
            self.wait = next(self.play)
        except StopIteration:
            self._end(now)
            return
        self.until = now + self.wait.timeout_s
        self.run.waits_for = self.wait.what

    def _end(self, now: float) -> None:
        self.done, self.run.ended, self.seconds = True, now, now - self.run.began
        self.run.waits_for = ""


@dataclass(slots=True)
class Outcome:
    """What the demonstration came to.

    Attributes:
        scenarios: one JSON-ready object a scenario.
        jobs: of users, how many were seen, and what was done to any of them.
    """

    scenarios: list[dict[str, Any]] = field(default_factory=list)
    jobs: int = 0
    jobs_hurt: list[str] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def ok(self) -> bool:
        """Whether every scenario ended as it must and no job was hurt."""
        return bool(self.scenarios) and all(one["ok"] for one in self.scenarios) and not self.jobs_hurt


def choose(only: Sequence[str]) -> list[Scenario]:
    """The scenarios of these names, all when none is named.

    Raises:
        SandboxError: for a name that there is not.
    """
    known = {scenario.name: scenario for scenario in SCENARIOS}
    for name in only:
        if name not in known:
            raise SandboxError(f"no scenario {name!r}: choose from {' '.join(known)}")
    return [scenario for scenario in SCENARIOS if not only or scenario.name in only]


def run_demo(
    view: View,
    *,
    only: Sequence[str] = (),
    keep: bool = False,
    name: str = DEFAULT_NAME,
    root: Path | None = None,
) -> Outcome:
    """Plays the scenarios and removes everything again, whatever happens.

    Args:
        view: shows what goes on.
        only: names of scenarios; all when empty.
        keep: leave the sandbox running.
        name: which sandbox to make.
        root: its folder.

    Raises:
        SandboxError: when the sandbox, the daemon or the observer does not run.
        Interrupted: by a signal, after the cleaning up.
    """
    chosen = choose(only)
    began = time.monotonic()
    sandbox = Sandbox.create(
        root,
        name=name,
        nodes=NODES,
        agent_interval_s=4,
        boot_s=3.0,
        install_s=2.0,
        slurmd_timeout_s=10,
        bmc=True,
        bmc_profile="dell,dgx_h100",
    )
    with _signals(), DemoCluster(sandbox, view.say, keep=keep) as cluster, view:
        cluster.wait_watched()
        played = _play_all(cluster, chosen, view)
        outcome = _outcome(cluster, played)
        outcome.seconds = time.monotonic() - began
    return outcome


@contextlib.contextmanager
def _signals() -> Iterator[None]:
    """TERM, HUP and INT end the demonstration; while it cleans up they are not heard."""

    def stop(number: int, _frame: FrameType | None) -> None:
        raise Interrupted(number)

    before = {number: signal.signal(number, stop) for number in STOP_SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _play_all(cluster: DemoCluster, chosen: Sequence[Scenario], view: View) -> list[_Playing]:
    played: list[_Playing] = []
    rows = {scenario.name: Row(scenario.name, " ".join(scenario.nodes)) for scenario in chosen}
    for phase in sorted({scenario.phase for scenario in chosen}):
        if played:
            _let_the_breaker_forget(cluster, view, played, rows)
        now = cluster.now()
        runs = [Run(scenario, cluster, now) for scenario in chosen if scenario.phase == phase]
        playing = [_Playing(run, run.scenario.play(run)) for run in runs]
        played += playing
        while not all(one.done for one in playing):
            _round(cluster, view, played, rows)
        for one in playing:
            if not one.run.scenario.to_the_end:
                _judge(cluster, one)
    for one in played:
        if one.run.scenario.to_the_end:
            one.run.ended = cluster.now()
            _judge(cluster, one)
    _show(cluster, view, played, rows)
    return played


def _round(cluster: DemoCluster, view: View, played: Sequence[_Playing], rows: dict[str, Row]) -> None:
    cluster.look()
    cluster.keep_users_busy()
    for one in played:
        one.step(cluster.now())
    _show(cluster, view, played, rows)
    time.sleep(_ROUND_S)


def _let_the_breaker_forget(
    cluster: DemoCluster, view: View, played: Sequence[_Playing], rows: dict[str, Row]
) -> None:
    """Faults of one phase must not count with those of the next: only the breaker's own may trip it."""
    last = max(_last_hit(cluster.record, one.run) for one in played)
    while cluster.now() < last + BREAKER_WINDOW_S + 1.0:
        _round(cluster, view, played, rows)


def _last_hit(record: Record, run: Run) -> float:
    """When the scenario's fault was counted at the latest: its drain, its adoption, its showing."""
    times = [run.at.get("injected", run.began)]
    for node in run.scenario.nodes:
        times += [at for at, _ in record.reasons_set(node, run.began)][:2]
        times += [c.at for c in record.story(node, run.began) if " drain " in c.extra][:1]
    return max(times)


def _judge(cluster: DemoCluster, one: _Playing) -> None:
    cluster.look()
    run = one.run
    incidents, findings = cluster.claims(run.node)
    facts = Facts(run.began, run.ended, run.at, run.text, incidents, findings)
    cluster.note(run.scenario.name, asdict(facts))
    one.judgement = run.scenario.judge(cluster.record, run.node, facts)
    if one.gave_up:
        one.judgement.problems.insert(0, one.gave_up)


def _show(cluster: DemoCluster, view: View, played: Sequence[_Playing], rows: dict[str, Row]) -> None:
    for one in played:
        row = rows[one.run.scenario.name]
        if one.judgement is None:
            # Once judged, the node may already be another scenario's.
            now = cluster.record.now(one.run.node)
            row.state, row.reason = now.state, now.reason
        row.seconds = one.seconds or cluster.now() - one.run.began
        row.word = one.run.waits_for or "done"
        if one.judgement is not None:
            row.ok, row.word = one.judgement.ok, one.judgement.observed
        elif one.gave_up:
            row.word = one.gave_up
        elif one.done and one.run.scenario.to_the_end:
            row.word = "as it must be; watched until the end"
    view.show(list(rows.values()))


def _outcome(cluster: DemoCluster, played: Sequence[_Playing]) -> Outcome:
    outcome = Outcome()
    for one in sorted(played, key=lambda item: SCENARIOS.index(item.run.scenario)):
        assert one.judgement is not None
        run = one.run
        outcome.scenarios.append(
            {
                "name": run.scenario.name,
                "node": ",".join(run.scenario.nodes),
                "expected": run.scenario.expected,
                "observed": one.judgement.observed,
                "ok": one.judgement.ok,
                "seconds": round(one.seconds, 1),
                "timeline": timeline(cluster.record, run.scenario.nodes, run.began, run.ended),
            }
        )
    outcome.jobs = len(cluster.record.jobs)
    outcome.jobs_hurt = [
        f"job {job}: {why}" for job, changes in cluster.record.jobs.items() if (why := job_harm(changes))
    ]
    return outcome


def timeline(record: Record, nodes: Sequence[str], began: float, ended: float) -> list[dict[str, Any]]:
    """States and reasons as Slurm reported them, with times."""
    found: list[dict[str, Any]] = []
    for node in nodes:
        last = None
        for change in record.story(node, began, ended):
            if (change.state, change.reason) != last:
                last = (change.state, change.reason)
                at = max(0.0, change.at - began)
                found.append(
                    {"t": round(at, 2), "node": node, "state": change.state, "reason": change.reason}
                )
    return sorted(found, key=lambda one: one["t"])
