"""What one tick costs: CPU time of planner, checker and store by the size of the fleet, and how it grows.

    python benchmarks/planner.py [--sizes 512,1024,...] [--rounds 15] [--folder /dev/shm] [--json FILE]

Three kinds of fleet: `mixed`, with 20,000 jobs for 16,384 nodes and one node in a hundred in an incident;
`training`, with one job on every node and a handful of incidents; `disaster`, with a quarter of the nodes in
incidents, as after a driver that should not have been rolled out. Everything is measured in turn, one round
over all sizes after the other, so that a busy machine does not fall on one size alone; the median counts.
Views and jobs are made anew for each round, as a daemon reads them anew for each tick.
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path

from slurm_lifecycle.core.draft import Draft
from slurm_lifecycle.core.fault_catalog import FaultClass, Level
from slurm_lifecycle.core.formats import Claim, Mark, make_reason, with_claim, with_mark
from slurm_lifecycle.core.invariants import check_plan
from slurm_lifecycle.core.model import (
    Attempt,
    AttemptOutcome,
    Fence,
    Finding,
    Fleet,
    Identity,
    Incident,
    JobView,
    NodeView,
    Observation,
    Records,
    ReservationView,
    Rung,
    Step,
)
from slurm_lifecycle.core.plan import Event, Plan
from slurm_lifecycle.core.planner import plan
from slurm_lifecycle.core.policy import DAY_S, Mode, Policy
from slurm_lifecycle.store.opening import open_store
from slurm_lifecycle.store.sql_store import SqlStore

NOW = 1_800_000_000.0
INSTANCE = "benchmark001"
ME = Identity(INSTANCE, "bench", 1)
POLICY = Policy(mode=Mode.ACT, partitions=("*",), rungs=frozenset({"drain", "return", "reboot", "rma"}))
SIZES = (512, 1024, 2048, 4096, 8192, 16384)
PARTS = ("draft", "plan", "check", "load", "apply")
# 419 interruptions of 2,048 nodes in 54 days, as published for Llama 3.
CASES_A_NODE_AND_DAY = 419 / 2048 / 54


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of fleet: jobs and incidents for so many nodes."""

    name: str
    one_job: bool
    sick_percent: float

    def jobs(self, nodes: int) -> int:
        """How many jobs there are."""
        return 1 if self.one_job else nodes * 20_000 // 16_384

    def incidents(self, nodes: int) -> int:
        """How many nodes are in an incident."""
        return max(len(PLACES), int(nodes * self.sick_percent / 100))


KINDS = (
    Kind("mixed", one_job=False, sick_percent=1.0),
    Kind("training", one_job=True, sick_percent=0.0),
    Kind("disaster", one_job=False, sick_percent=25.0),
)


class Place(Enum):
    """Where a node with an incident stands; they are shared out in turn."""

    BUSY = Step.DRAINING, "its job still runs"
    DRAINED = Step.DRAINING, "waits for a working place"
    SENT = Step.REPAIRING, "its reboot is under way"
    FENCED = Step.REPAIRING, "its reboot is started in this tick"
    CHECKED = Step.VERIFYING, "no verdict of the new boot yet"
    WAITS = Step.AWAITING_PERSON, "for its technician"
    PARKED = Step.HELD, "its checks could not run"

    @property
    def step(self) -> Step:
        """The step of its incident."""
        return self.value[0]


PLACES = tuple(Place)


def name_of(number: int) -> str:
    """A node's name."""
    return f"node{number:05}"


def boot_of(number: int, boots: int = 1) -> str:
    """A boot id."""
    return f"{boots:08x}-0000-4000-8000-{number:012x}"


def sick_nodes(kind: Kind, size: int) -> dict[str, tuple[int, Place]]:
    """The nodes with an incident, spread over the fleet, and where each stands."""
    count = kind.incidents(size)
    stride = size // count
    return {name_of(n * stride + 1): (n * stride + 1, PLACES[n % len(PLACES)]) for n in range(count)}


def incident_of(name: str, step: Step) -> Incident:
    """An open case that does not move while it is measured."""
    transient = step not in (Step.AWAITING_PERSON, Step.HELD)
    return Incident(
        id=f"{name}.{int(NOW - 3600)}",
        node=name,
        fault_class=FaultClass.REBOOT,
        code="XID79",
        component="gpu3",
        step=step,
        opened_at=NOW - 3600,
        step_since=NOW - 600,
        deadline=NOW + 3600 if transient else None,
        path_index=0 if step in (Step.REPAIRING, Step.VERIFYING) else -1,
        rung=Rung.REBOOT if step in (Step.REPAIRING, Step.VERIFYING) else None,
        drain_confirmed=step is not Step.VERIFYING,
        boot_before=boot_of(0),
        hold="verify" if step is Step.HELD else "",
        note="waits" if step in (Step.AWAITING_PERSON, Step.HELD) else "",
        revision=3,
    )


def records_of(kind: Kind, size: int) -> Records:
    """Open cases with findings, attempts and fences, and the history of four weeks."""
    incidents: dict[str, Incident] = {}
    findings: list[Finding] = []
    attempts: list[Attempt] = []
    fences: dict[str, Fence] = {}
    for name, (number, place) in sick_nodes(kind, size).items():
        one = incidents[name] = incident_of(name, place.step)
        findings.append(
            Finding(name, "XID79", "gpu3", Level.DRAIN, "fell off the bus", boot_of(number), NOW - 3600)
        )
        if place in (Place.SENT, Place.FENCED, Place.CHECKED, Place.PARKED):
            fences[f"slc-{one.id}"] = Fence(f"slc-{one.id}", name, one.id, NOW - 600)
        if place in (Place.SENT, Place.CHECKED, Place.PARKED):
            made = Attempt(
                f"{one.id}.reboot.1", one.id, name, Rung.REBOOT, 1, NOW - 500, NOW + 1300, boot_of(number)
            )
            ended = replace(made, sent=True, outcome=AttemptOutcome.SUCCEEDED, ended_at=NOW - 100)
            attempts.append(replace(made, sent=True) if place is Place.SENT else ended)
    closed: list[Incident] = []
    past = int(size * CASES_A_NODE_AND_DAY * 28)
    for n in range(past):
        name, at = name_of(n * 7 % size), NOW - 3600 - (past - n) * 28 * DAY_S / past * 0.99
        one = replace(
            incident_of(name, Step.DRAINING),
            id=f"{name}.{int(at)}.{n}",
            step=Step.CLOSED,
            opened_at=at,
            deadline=None,
            closed_at=at + 1800,
            outcome="returned",
            cured_by="reboot",
        )
        closed.append(one)
        attempts.append(
            Attempt(
                op_id=f"{one.id}.reboot.1",
                incident_id=one.id,
                node=name,
                rung=Rung.REBOOT,
                n=1,
                created_at=at + 60,
                deadline=at + 1860,
                boot_before=boot_of(n),
                sent=True,
                outcome=AttemptOutcome.SUCCEEDED,
                ended_at=at + 600,
            )
        )
    return Records(
        incidents=incidents,
        closed_incidents=tuple(closed),
        attempts=tuple(one for one in attempts if one.created_at > NOW - 7 * DAY_S),
        findings=tuple(findings),
        fences=fences,
    )


def view_of(number: int, sick: Incident | None, busy: bool) -> NodeView:
    """A node as Slurm shows it, with strings of its own."""
    name = name_of(number)
    state, reason, comment = ["ALLOCATED"], "", ""
    extra = f"slc1 {boot_of(number)} 7 ok - -"
    if sick is not None:
        mark = Mark(INSTANCE, sick.id, sick.revision, sick.step.value)
        comment = with_mark("", mark)
        reason = make_reason("XID79", "gpu3")
        state = ["ALLOCATED" if busy else "IDLE", "DRAIN"]
        extra = f"slc1 {boot_of(number)} 7 drain XID79 gpu3"
        if sick.step is Step.VERIFYING:
            extra = f"slc1 {boot_of(0)} 7 drain XID79 gpu3"
    if number == 0:
        comment = with_claim(comment, Claim(INSTANCE, ME.host, 1))
    return NodeView(
        name,
        frozenset(state),
        reason,
        NOW - 3600,
        comment,
        extra,
        NOW - DAY_S,
        NOW - DAY_S,
        ("batch",),
        8,
        "25.11",
    )


def idle_nodes(kind: Kind, size: int) -> set[str]:
    """Nodes that no job may list."""
    return {name for name, (_, place) in sick_nodes(kind, size).items() if place is not Place.BUSY}


def jobs_of(kind: Kind, size: int) -> tuple[JobView, ...]:
    """One job on every node, or many of one to eight nodes that overlap, as shared nodes do."""
    count = kind.jobs(size)
    idle = idle_nodes(kind, size)
    if kind.one_job:
        names = tuple(name for name in map(name_of, range(size)) if name not in idle)
        return (JobView("1", "RUNNING", names, 1000, 0),)
    found = []
    for n in range(count):
        some = (name_of((n * 3 + k) % size) for k in range(1 << n % 4))
        nodes = tuple(name for name in some if name not in idle)
        found.append(JobView(str(1000 + n), "RUNNING", nodes, 1000 + n % 50, 0))
    return tuple(found)


def fleet_of(kind: Kind, size: int, records: Records) -> Fleet:
    """What one tick reads."""
    idle = idle_nodes(kind, size)
    names = [name_of(n) for n in range(size)]
    nodes = {name: view_of(n, records.incidents.get(name), name not in idle) for n, name in enumerate(names)}
    reservations = {
        fence.name: ReservationView(
            fence.name, (fence.node,), NOW - 600, NOW + 365 * DAY_S, frozenset({"MAINT", "IGNORE_JOBS"})
        )
        for fence in records.fences.values()
    }
    return Fleet(Observation(NOW, nodes, jobs_of(kind, size), reservations), records, ME)


def cpu_ms(what: Callable[[], object]) -> float:
    """CPU time of one call."""
    began = time.process_time_ns()
    what()
    return (time.process_time_ns() - began) / 1e6


class Subject:
    """One fleet of one size with a store of its own."""

    def __init__(self, kind: Kind, size: int, folder: Path) -> None:
        """Fill the store."""
        self.kind, self.size = kind, size
        self.times: dict[str, list[float]] = {part: [] for part in PARTS}
        self.store: SqlStore = open_store(folder / f"{kind.name}{size}.db", host="bench", acting=True)
        made = records_of(kind, size)
        rows = Plan(
            incidents=(*made.closed_incidents, *made.incidents.values()),
            attempts=made.attempts,
            findings=made.findings,
            fences=tuple(made.fences.values()),
        )
        self.store.apply(rows, NOW)
        self.statuses = plan(fleet_of(kind, size, made), POLICY, NOW).statuses
        self.store.apply(Plan(statuses=self.statuses), NOW)
        self.rounds = 0

    def round(self) -> None:
        """Measure each part once."""
        self.rounds += 1
        fleet = fleet_of(self.kind, self.size, self.store.load(NOW))
        gc.collect()
        made: list[Plan] = []
        parts: dict[str, Callable[[], object]] = {
            "draft": lambda: Draft.of(fleet, POLICY, NOW),
            "plan": lambda: made.append(plan(fleet, POLICY, NOW)),
            "check": lambda: check_plan(fleet, made[0], POLICY, NOW),
            "load": lambda: self.store.load(NOW),
            "apply": lambda: self.store.apply(small, NOW),
        }
        small = self._small_plan(fleet)
        for part, what in parts.items():
            self.times[part].append(cpu_ms(what))

    def _small_plan(self, fleet: Fleet) -> Plan:
        """What a tick usually writes: one case that went on, its line of history, and its node's words."""
        name = min(fleet.records.incidents)
        incident = replace(fleet.records.incidents[name], note=f"round {self.rounds}")
        words = tuple(
            replace(one, why=f"round {self.rounds}") if one.node == name else one for one in self.statuses
        )
        event = Event(NOW, name, "transition", f"round {self.rounds}", incident_id=incident.id)
        attempt = next(one for one in fleet.records.attempts if one.outcome is None)
        return Plan(incidents=(incident,), attempts=(attempt,), events=(event,), statuses=words)

    def medians(self) -> dict[str, float]:
        """By part."""
        return {part: statistics.median(values) for part, values in self.times.items()}


def measure(kind: Kind, sizes: list[int], rounds: int, folder: Path) -> dict[int, dict[str, float]]:
    """Medians by size."""
    subjects = [Subject(kind, size, folder) for size in sizes]
    for number in range(rounds + 1):
        for subject in subjects:
            subject.round()
            if number == 0:
                # The first round fills what is kept from tick to tick.
                subject.times = {part: [] for part in PARTS}
    for subject in subjects:
        subject.store.close()
    return {subject.size: subject.medians() for subject in subjects}


def show(kind: Kind, figures: dict[int, dict[str, float]]) -> None:
    """A table, with the growth from size to size of what counts: plan and check."""
    print(f"{kind.name}: CPU ms a tick")
    print(f"{'nodes':>7}" + "".join(f"{part:>9}" for part in PARTS) + f"{'plan+check':>12}{'growth':>8}")
    before = 0.0
    for size, medians in figures.items():
        both = medians["plan"] + medians["check"]
        growth = f"{both / before:8.2f}" if before else f"{'':8}"
        cells = "".join(f"{medians[part]:9.2f}" for part in PARTS)
        print(f"{size:>7}{cells}{both:12.2f}{growth}")
        before = both


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--sizes", default=",".join(map(str, SIZES)))
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--folder", type=Path, help="where the stores lie; a tmpfs leaves the disk out")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    sizes = [int(word) for word in arguments.sizes.split(",")]
    results: dict[str, dict[int, dict[str, float]]] = {}
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        for kind in KINDS:
            results[kind.name] = measure(kind, sizes, arguments.rounds, Path(folder))
            show(kind, results[kind.name])
    if arguments.json:
        arguments.json.write_text(json.dumps({"python": sys.version.split()[0], **results}, indent=1) + "\n")


if __name__ == "__main__":
    main()
