"""The sequence against machines and BMCs drawn at random, killed at random, judged by the machine itself."""

import random
from dataclasses import dataclass, field, replace

import pytest

from slurm_lifecycle.core.machine import (
    AttemptStep,
    BmcProblem,
    BootOverride,
    MachineCommand,
    PowerState,
    StepOutcome,
)
from slurm_lifecycle.core.model import AttemptOutcome
from slurm_lifecycle.core.policy import MachineLimits
from slurm_lifecycle.core.power_sequence import next_step
from slurm_lifecycle.core.sequence_record import End, Goal, Marker, Note, Send, Situation
from tests.unit.core.machine import Machine

SEEDS = range(400)
TICK_S = 5.0
DEADLINE_S = 3600.0
LIMITS = MachineLimits()
ONE_OF_A_KIND = (
    MachineCommand.GRACEFUL_OFF,
    MachineCommand.FORCE_OFF,
    MachineCommand.AC_CYCLE,
    MachineCommand.BOOT_ONCE,
)
TAKES = (MachineCommand.GRACEFUL_OFF, MachineCommand.FORCE_OFF, MachineCommand.AC_CYCLE)


@dataclass
class Story:
    """One attempt on one machine."""

    seed: int
    rng: random.Random = field(init=False)
    machine: Machine = field(init=False)
    goal: Goal = field(init=False)
    steps: list[AttemptStep] = field(default_factory=list)
    now: float = 1_000_000.0
    may_not: str = ""
    end: End | None = None
    staged: bool = False
    image_at: float | None = None
    taken_while_forbidden: list[MachineCommand] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.rng = rng = random.Random(f"sequence/{self.seed}")
        self.goal = rng.choice(list(Goal))
        off = rng.random() < 0.15
        commands = [
            one for one in MachineCommand if one not in (MachineCommand.STAGE, MachineCommand.OFF_SEEN)
        ]
        some = [one for one in commands if rng.random() < 0.12]
        self.machine = Machine(
            on=not off,
            up=not off,
            boot_s=rng.choice((10.0, 60.0, 300.0)),
            shutdown_s=rng.choice((0.0, 20.0, 170.0, 400.0)),
            deaf_os=rng.random() < 0.3,
            never_boots=rng.random() < 0.05,
            restores_power=rng.random() < 0.5,
            refuse={one: rng.choice((1, 3, 20)) for one in commands if rng.random() < 0.15},
            lost={one for one in commands if rng.random() < 0.07},
            unheard={one for one in commands if rng.random() < 0.15},
            unsupported=frozenset(one for one in some if one is not MachineCommand.ON),
            override_kept=rng.random() < 0.2,
            override_ignored=rng.random() < 0.1,
            override_reads=BootOverride("Continuous", "Pxe") if rng.random() < 0.05 else None,
            dark_s=rng.choice((0.0, 120.0, 400.0)),
            says=rng.choice(list(PowerState)) if rng.random() < 0.05 else None,
        )
        self.deaf = MachineCommand.ON in self.machine.lost
        self.lies = self.machine.says is not None or self.machine.override_reads is not None

    def happen(self) -> None:
        rng, machine = self.rng, self.machine
        if rng.random() < 0.02:
            machine.problem = rng.choice(list(BmcProblem))
        elif rng.random() < 0.1:
            machine.problem = BmcProblem.NONE
        if rng.random() < 0.01:
            self.may_not = "a person's drain"
        if rng.random() < 0.003:
            machine.goes_off()
            machine.goes_on(self.now)
        machine.pass_time(self.now)
        if machine.booted_from == "network" and machine.up and self.staged and self.image_at is None:
            self.image_at = machine.booted_at

    def tick(self) -> None:
        self.now += TICK_S
        self.happen()
        machine = self.machine
        reading = None if self.rng.random() < 0.1 else machine.reading("n1", self.now)
        booted = machine.booted_at if machine.up else None
        situation = Situation(
            self.goal,
            1_000_000.0,
            1_000_000.0 + DEADLINE_S,
            tuple(self.steps),
            reading,
            self.now,
            LIMITS,
            self.may_not,
            booted,
            Marker.PROVEN if self.image_at is not None and machine.up else Marker.OTHER,
        )
        decision = next_step(situation)
        if isinstance(decision, End):
            self.end = decision
        elif isinstance(decision, Note):
            step = AttemptStep("op", len(self.steps) + 1, MachineCommand.OFF_SEEN, self.now)
            self.steps.append(replace(step, outcome=StepOutcome.ACCEPTED, ended_at=self.now))
        elif isinstance(decision, Send):
            self.send(decision.command)

    def send(self, command: MachineCommand) -> None:
        step = AttemptStep("op", len(self.steps) + 1, command, self.now)
        self.steps.append(step)
        if command in TAKES and self.may_not:
            self.taken_while_forbidden.append(command)
        fate = self.rng.random()
        if fate < 0.04:
            return
        if command is MachineCommand.STAGE:
            self.staged = True
            outcome = StepOutcome.ACCEPTED
        else:
            outcome, _ = self.machine.send(command, self.now)
        if fate < 0.08:
            return
        self.steps[-1] = replace(step, outcome=outcome, ended_at=self.now)

    def play(self) -> None:
        while self.end is None and self.now < 1_000_000.0 + 2 * DEADLINE_S:
            self.tick()
        # From here on everything works: what is owed to the machine comes.
        machine = self.machine
        machine.problem, machine.says = BmcProblem.NONE, None
        machine.refuse, machine.lost, machine.override_reads = {}, set(), None
        for _ in range(int(DEADLINE_S / TICK_S)):
            if self.end is not None:
                break
            self.tick()
        for _ in range(200):
            self.now += TICK_S
            machine.pass_time(self.now)


@pytest.mark.parametrize("seed", SEEDS)
def test_whatever_happens_nothing_is_sent_twice_and_no_machine_is_left_off(seed: int) -> None:
    story = Story(seed)
    story.play()
    machine, end = story.machine, story.end
    assert end is not None, "the attempt never ends although everything works"
    for command in ONE_OF_A_KIND:
        assert machine.accepted.count(command) <= 1, machine.accepted
    assert story.taken_while_forbidden == []
    asked_off = any(one in machine.accepted for one in TAKES)
    deaf = story.deaf or story.lies
    late = MachineCommand.GRACEFUL_OFF in machine.accepted and machine.shutdown_s > LIMITS.graceful_off_s
    if asked_off and not (deaf or late or "stays off" in end.detail):
        assert machine.on, (end, story.steps)
    if end.outcome is AttemptOutcome.SUCCEEDED:
        assert machine.up
        began = any(one.command is not MachineCommand.STAGE for one in story.steps)
        if began and story.goal is Goal.POWER_CYCLE:
            assert machine.offs or machine.boots
        if story.goal is Goal.REIMAGE:
            assert story.image_at is not None
            assert not machine.override.stands
        if began and story.goal is Goal.AC_CYCLE:
            assert MachineCommand.AC_CYCLE in machine.accepted
