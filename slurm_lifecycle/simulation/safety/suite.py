"""The safety suite: seeded worlds in which everything goes wrong, judged at every step, at rest in the end.

    python -m slurm_lifecycle.simulation.safety.suite --seeds 200 --first-seed 0 [--jobs 2]

The real reconciler, executor, planner and store run over a simulated cluster. First everything happens; then
faults stop, people finish their work, and the fleet must come to rest. A seed that fails prints the command
that replays it and the last lines about the nodes concerned.
"""

import argparse
import logging
import signal
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from slurm_lifecycle.simulation.safety.facts import Violation
from slurm_lifecycle.simulation.safety.happenings import happen
from slurm_lifecycle.simulation.safety.rest import Liveness, comes_to_rest, stop_trouble
from slurm_lifecycle.simulation.safety.world import World
from slurm_lifecycle.simulation.timeline import START_S

STEPS = 250
PACES_S = (0.3, 1.0, 5.0, 10.0, 10.0, 10.0, 30.0)
TRACE_LINES = 60
MEMORY_FOLDER = Path("/dev/shm")


@dataclass(frozen=True, slots=True)
class SeedReport:
    """What came of one seed.

    Attributes:
        steps: of the safety phase.
        judged: how often each oracle had something to judge.
        happened: how often each kind of happening took place; struck: each kind of trouble.
        effects: writes that took effect; disruptions: reboots and reimages among them.
        trace: the last lines about the nodes concerned, where something was violated.
    """

    seed: int
    digest: str
    nodes: int
    steps: int
    ticks: int
    effects: int
    disruptions: int
    kills: int
    days: float
    judged: dict[str, int]
    happened: dict[str, int]
    struck: dict[str, int]
    violations: tuple[Violation, ...] = ()
    trace: tuple[str, ...] = field(default=(), repr=False)

    @property
    def replay(self) -> str:
        """The command that runs this seed again."""
        return f"make simulate-safety SEEDS=1 FIRST_SEED={self.seed}"


def run_seed(seed: int, *, steps: int = STEPS) -> SeedReport:
    """Run one seed through both phases; it ends with the first step that violates something."""
    memory = MEMORY_FOLDER if MEMORY_FOLDER.is_dir() else None
    with TemporaryDirectory(prefix="slurm-lifecycle-safety-", dir=memory) as folder:
        world = World(seed, Path(folder))
        try:
            done = _safety(world, steps)
            rest = Liveness(world.facts)
            if not world.facts.violations:
                stop_trouble(world)
                comes_to_rest(world, rest)
            return _report(world, done, rest)
        finally:
            world.close()


def _safety(world: World, steps: int) -> int:
    for step in range(steps):
        happen(world)
        world.step(world.rng.choice(PACES_S))
        if world.facts.violations:
            return step + 1
    return steps


def _report(world: World, steps: int, rest: Liveness) -> SeedReport:
    violations = tuple(world.facts.violations)
    concerned = sorted({one.node for one in violations if one.node})
    oracles = (*world.judges.oracles, rest)
    return SeedReport(
        seed=world.seed,
        digest=world.trace.digest(),
        nodes=len(world.draws.fleet.nodes),
        steps=steps,
        ticks=world.ticks,
        effects=world.judges.effects,
        disruptions=len(world.facts.effects),
        kills=world.troubles.kills,
        days=(world.timeline.now - START_S) / 86400.0,
        judged={one.name: one.judged for one in oracles},
        happened=dict(sorted(world.happened.items())),
        struck=dict(world.troubles.counts),
        violations=violations,
        trace=world.trace.about(concerned, TRACE_LINES) if violations else (),
    )


# ---------------------------------------------------------------- many seeds


@dataclass(slots=True)
class Totals:
    """Counts over many seeds."""

    seeds: int = 0
    nodes: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    judged: Counter[str] = field(default_factory=Counter)
    happened: Counter[str] = field(default_factory=Counter)
    struck: Counter[str] = field(default_factory=Counter)
    violated: Counter[str] = field(default_factory=Counter)
    failed: list[int] = field(default_factory=list)

    def add(self, report: SeedReport) -> None:
        """One more seed."""
        self.seeds += 1
        for name in ("steps", "ticks", "effects", "disruptions", "kills"):
            self.counts[name] += getattr(report, name)
        self.judged.update(report.judged)
        self.happened.update(report.happened)
        self.struck.update(report.struck)
        self.violated.update(one.oracle for one in report.violations)
        if report.violations:
            self.failed.append(report.seed)

    def line(self) -> str:
        """Everything that counts, in one line."""
        counts = " ".join(f"{name}={self.counts[name]}" for name in sorted(self.counts))
        judged = " ".join(f"{name.replace(' ', '-')}={count}" for name, count in sorted(self.judged.items()))
        failed = f" failed-seeds={','.join(map(str, self.failed))}" if self.failed else ""
        return f"seeds={self.seeds} {counts} violations={self.violated.total()}{failed} judged: {judged}"


def run_seeds(seeds: Sequence[int], jobs: int) -> Iterator[SeedReport]:
    """Run seeds, in order, on so many processes."""
    if jobs <= 1:
        yield from map(run_seed, seeds)
        return
    with ProcessPoolExecutor(jobs, initializer=_begin_worker) as pool:
        yield from pool.map(run_seed, seeds, chunksize=1)


def quiet() -> None:
    """The daemon logs of stepped clocks and the like, which are meant here; of defects violations tell."""
    logging.getLogger("slurm_lifecycle").setLevel(logging.CRITICAL)


def _begin_worker() -> None:
    """Ctrl-C reaches every process of the terminal: workers finish their seed, and the counts are printed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    quiet()


def printed(report: SeedReport) -> Iterable[str]:
    """A failed seed for people."""
    yield f"seed {report.seed}: {len(report.violations)} violations after {report.steps} steps"
    for one in report.violations[:5]:
        yield f"  {one.oracle}: {one.node} {one.text}"
    yield f"  replay: {report.replay}"
    yield from (f"  | {line}" for line in report.trace)


def main(argv: Sequence[str] | None = None) -> int:
    """Run a range of seeds; the last line counts what was done. 1 when something was violated."""
    parser = argparse.ArgumentParser(prog="safety", description=main.__doc__)
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--happenings", action="store_true", help="also count what happened and went wrong")
    asked = parser.parse_args(argv)
    if asked.seeds < 1 or asked.jobs < 1:
        parser.error("--seeds and --jobs must be at least 1: a run of nothing shows nothing")
    quiet()
    totals, stopped = Totals(), False
    try:
        for report in run_seeds(range(asked.first_seed, asked.first_seed + asked.seeds), asked.jobs):
            totals.add(report)
            if report.violations:
                print("\n".join(printed(report)), flush=True)
    except KeyboardInterrupt:
        stopped = True
    if asked.happenings:
        print("happened: " + ", ".join(f"{name} {count}" for name, count in totals.happened.most_common()))
        print("went wrong: " + ", ".join(f"{name} {count}" for name, count in totals.struck.most_common()))
    print(("stopped early: " if stopped else "") + totals.line())
    if stopped:
        return 130
    return 1 if totals.failed else 0


if __name__ == "__main__":
    sys.exit(main())
