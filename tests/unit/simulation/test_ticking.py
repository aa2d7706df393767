"""Ticks that are left out change nothing: the same fleet, ticked at every interval, has the same history."""

from functools import partial
from pathlib import Path

import pytest

from slurm_lifecycle.core.model import Verb
from slurm_lifecycle.core.policy import Mode, Policy
from slurm_lifecycle.service.daemon import SystemClock
from slurm_lifecycle.service.reconciler import TickResult
from slurm_lifecycle.service.without_bmc import WithoutBmc
from slurm_lifecycle.simulation.daemon import Outside, SimDaemon
from slurm_lifecycle.simulation.fleet import Fleet, FleetSettings
from slurm_lifecycle.simulation.machines.arrivals import Arrivals, FaultRates
from slurm_lifecycle.simulation.slurmctld.settings import JobSpec, NodeSpec
from slurm_lifecycle.simulation.streams import stream
from slurm_lifecycle.simulation.ticking import Ticker

NODES = tuple(NodeSpec(f"n{number:02}", domain=f"rack{number % 3}") for number in range(12))
POLICY = Policy(
    mode=Mode.ACT,
    partitions=("*",),
    rungs=frozenset({"drain", "return", "reboot", "reimage", "rma"}),
    domains={spec.name: spec.domain for spec in NODES},
)
DAYS = 1.0


class Story:
    """A fleet with faults, jobs of all lengths and a person, and all that its daemon did."""

    def __init__(self, seed: int, folder: Path, *, leave_out: bool) -> None:
        fleet = Fleet(FleetSettings(nodes=NODES), seed)
        self.fleet = fleet
        self.lines: list[str] = []
        clock = SystemClock(wall=lambda: fleet.timeline.now, monotonic=lambda: fleet.timeline.now)
        outside = Outside(
            fleet.slurm, fleet.provisioner, WithoutBmc(), fleet.desk, fleet.desk, fleet.desk, clock
        )
        self.daemon = SimDaemon(outside, POLICY, folder)
        self.ticker = Ticker(fleet.timeline, fleet.ctld, POLICY, self.tick, leave_out=leave_out)
        fleet.machines.start()
        fleet.agents.start()
        arrivals = Arrivals(fleet.machines, FaultRates(per_1000_node_days=1500.0))
        arrivals.on_alarm.append(fleet.agents.false_alarm)
        arrivals.start()
        self.rng = stream(seed, "users", "jobs")
        for number in range(40):
            fleet.timeline.after(self.rng.uniform(0, DAYS * 86_400), partial(self.submit, number))
        for _ in range(4):
            fleet.timeline.after(self.rng.uniform(0, DAYS * 86_400), self.person)

    def submit(self, number: int) -> None:
        width = self.rng.choice((1, 2, 4, 8))
        job_id = self.fleet.ctld.submit(JobSpec(f"j{number}", nodes_min=width, nodes_max=width))
        length = self.rng.choice((60.0, 3_000.0, 30_000.0))
        self.fleet.timeline.after(length, lambda: self.end(job_id))

    def end(self, job_id: str) -> None:
        job = self.fleet.ctld.jobs().get(job_id)
        if job is not None and job.state == "RUNNING":
            self.fleet.ctld.job_exits(job_id, "completed")

    def person(self) -> None:
        """Somebody releases whatever waits for a person."""
        incidents = self.daemon.store.load(self.fleet.timeline.now).incidents.values()
        for one in incidents:
            if one.deadline is None:
                self.daemon.ask(Verb.RELEASE, one.node, "alice", "go on", self.fleet.timeline.now)
        self.daemon.ask(Verb.BREAKER_RESET, "", "alice", "go on", self.fleet.timeline.now)
        self.ticker.poke()

    def tick(self) -> TickResult:
        result = self.daemon.tick()
        if not result.plan.settled:
            plan = result.plan
            self.lines.append(
                repr((result.at, plan.incidents, plan.attempts, plan.actions, plan.requests_done))
            )
            self.lines.append(repr([(done.result, done.detail) for done in result.done]))
        return result


@pytest.mark.parametrize("seed", range(4))
def test_leaving_ticks_out_changes_nothing(seed: int, tmp_path: Path) -> None:
    stories = []
    for leave_out in (False, True):
        folder = tmp_path / str(leave_out)
        folder.mkdir()
        story = Story(seed, folder, leave_out=leave_out)
        story.ticker.run_until(story.fleet.timeline.now + DAYS * 86_400)
        story.daemon.close()
        stories.append(story)
    plain, sparing = stories
    assert sparing.lines == plain.lines
    assert len(plain.lines) > 40
    assert plain.ticker.ticks == DAYS * 8640 + 1
    assert sparing.ticker.ticks < plain.ticker.ticks / 3
