"""Jobs that checkpoint, are interrupted and start again: every GPU-second is accounted for once."""

import random
from dataclasses import replace
from math import isclose

import pytest

from slurm_lifecycle.simulation.lab.site import JobClass
from slurm_lifecycle.simulation.lab.workload import LONGEST_PATIENCE_S, Workload
from slurm_lifecycle.simulation.slurmctld import Job, NodeSpec, SlurmConf, Slurmctld
from slurm_lifecycle.simulation.streams import stream
from slurm_lifecycle.simulation.timeline import Timeline

GPUS = 8
ENDLESS = JobClass(
    name="train",
    count=1,
    every_s=0.0,
    nodes_min=2,
    nodes_max=4,
    run_time_s=None,
    checkpoint_s=600.0,
    restart_s=100.0,
    resubmit_s=60.0,
    requeue=False,
    time_limit_s=400 * 86_400.0,
    priority=0,
    partition="batch",
)


class Stage:
    """A cluster of nodes that never fail by themselves, and the workload on it."""

    def __init__(self, *kinds: JobClass, nodes: int = 4, seed: int = 1) -> None:
        self.timeline = Timeline()
        self.began = self.timeline.now
        specs = [NodeSpec(f"n{number}") for number in range(1, nodes + 1)]
        self.ctld = Slurmctld(self.timeline, specs, SlurmConf("24.11"), stream(seed, "ctld", "timing"))
        for spec in specs:
            self.ctld.registered(spec.name, self.began - 1000.0, 8)
        self.starts: list[tuple[float, tuple[str, ...]]] = []
        self.ctld.on_job_start.append(lambda job: self.starts.append((self.timeline.now, job.nodes)))
        self.work = Workload(self.timeline, self.ctld, kinds, GPUS, seed)
        self.work.begin()

    def to(self, seconds: float) -> None:
        self.timeline.run_until(self.began + seconds)

    def the_job(self) -> str:
        (job,) = self.ctld.jobs().values()
        return job.id


def test_an_interruption_costs_the_work_since_the_checkpoint_the_wait_and_the_start() -> None:
    stage = Stage(ENDLESS)
    stage.to(10)
    ((started, nodes),) = stage.starts
    assert len(nodes) == 4
    # 100 s to begin, two checkpoints at 700 and 1300, a fault at 1500, noticed at 1800.
    stage.timeline.run_until(started + 1500)
    stage.work.struck(stage.the_job(), "faulty GPU")
    stage.timeline.run_until(started + 1800)
    stage.ctld.job_exits(stage.the_job(), "failed")
    books = stage.work.books
    assert books.interruptions == {"faulty GPU": 1}
    assert isclose(books.useful, 1200 * 4 * GPUS)
    assert isclose(books.lost["rollback"], (1800 - 1300) * 4 * GPUS)
    assert books.lost["restart"] == 0.0
    stage.to(4000)
    again, _ = stage.starts[1]
    assert again - (started + 1800) >= ENDLESS.resubmit_s
    stage.work.close()
    assert isclose(books.lost["waiting"], (again - started - 1800) * 4 * GPUS)
    assert isclose(books.lost["restart"], 100 * 4 * GPUS)
    assert isclose(books.useful, (1200 + stage.timeline.now - again - 100) * 4 * GPUS)
    assert isclose(books.lost_by_cause["faulty GPU"], sum(books.lost.values()))


def test_a_job_that_starts_short_waits_for_the_rest_until_its_next_start() -> None:
    stage = Stage(ENDLESS)
    stage.to(2000)
    stage.ctld.job_exits(stage.the_job(), "failed")
    stage.ctld.update_node("n4", "DRAIN", "broken")
    stage.to(3000)
    assert len(stage.starts[1][1]) == 3
    before = stage.work.books.lost["waiting"]
    stage.ctld.update_node("n4", "UNDRAIN")
    stage.to(5000)
    # The node is back and idle: the job takes it at its next start, not before.
    assert len(stage.starts) == 2
    stage.ctld.job_exits(stage.the_job(), "failed")
    assert isclose(
        stage.work.books.lost["waiting"] - before, (5000 - (stage.starts[1][0] - stage.began)) * GPUS
    )
    stage.to(6000)
    assert len(stage.starts[2][1]) == 4


def test_less_than_it_needs_and_it_waits_with_all_its_gpus() -> None:
    stage = Stage(ENDLESS)
    stage.to(2000)
    stage.ctld.job_exits(stage.the_job(), "failed")
    for name in ("n2", "n3", "n4"):
        stage.ctld.update_node(name, "DRAIN", "broken")
    stage.to(12_000)
    stage.work.close()
    assert len(stage.starts) == 1
    assert isclose(stage.work.books.lost["waiting"], 10_000 * 4 * GPUS)


def test_the_end_of_its_work_is_no_interruption_and_the_next_one_begins() -> None:
    stage = Stage(replace(ENDLESS, run_time_s=5000.0, time_limit_s=50_000.0))
    stage.to(100_000)
    assert stage.work.books.interruptions == {}
    assert sum(stage.work.books.lost.values()) == 0.0
    lengths = [
        later - earlier for (earlier, _), (later, _) in zip(stage.starts, stage.starts[1:], strict=False)
    ]
    assert len(lengths) > 5
    assert all(2500 + 100 <= length <= 7500 + 200 for length in lengths)


def test_what_is_kept_is_not_done_again() -> None:
    stage = Stage(replace(ENDLESS, run_time_s=5000.0, time_limit_s=50_000.0))
    stage.to(2000)
    stage.ctld.job_exits(stage.the_job(), "failed")
    (training,) = stage.work.trainings().values() or (None,)
    assert training is None
    stage.to(2100)
    (training,) = stage.work.trainings().values()
    left = training.work - training.kept
    again = stage.starts[1][0]
    stage.timeline.run_until(again + 100 + left / 4 - 1)
    assert training.running
    stage.timeline.run_until(again + 100 + left / 4 + 1)
    assert not training.running


def test_slurm_requeues_where_the_job_allows_it_and_the_time_limit_ends_it() -> None:
    stage = Stage(replace(ENDLESS, requeue=True, time_limit_s=3600.0))
    stage.to(1000)
    job = stage.the_job()
    stage.ctld.requeue(job)
    stage.to(1500)
    assert stage.the_job() == job
    assert stage.work.books.interruptions == {"requeue": 1}
    stage.to(10_000)
    assert stage.work.books.interruptions["time limit"] >= 1


def test_who_fails_at_every_start_is_tried_less_and_less_often() -> None:
    stage = Stage(ENDLESS)

    def fails_soon(job: Job) -> None:
        stage.timeline.after(60.0, lambda: stage.ctld.job_exits(job.id, "failed"))

    stage.ctld.on_job_start.append(fails_soon)
    stage.to(86_400)
    gaps = [later - earlier for (earlier, _), (later, _) in zip(stage.starts, stage.starts[1:], strict=False)]
    assert gaps == sorted(gaps)
    assert gaps[-1] == pytest.approx(LONGEST_PATIENCE_S + 60, abs=5)


def test_the_cause_of_a_job_that_was_taken_off_is_asked_for() -> None:
    timeline = Timeline()
    ctld = Slurmctld(timeline, [NodeSpec("n1"), NodeSpec("n2")], SlurmConf(), stream(1, "c", "t"))
    work = Workload(
        timeline, ctld, (replace(ENDLESS, requeue=True),), GPUS, 1, blame=lambda nodes: f"why {nodes[0]}"
    )
    work.begin()
    timeline.run_until(timeline.now + 500)
    ctld.requeue(next(iter(ctld.jobs())))
    assert work.books.interruptions == {"why n1": 1}


def test_arrivals_and_lengths_depend_on_the_seed_alone() -> None:
    kind = replace(ENDLESS, count=0, every_s=2000.0, run_time_s=3000.0, time_limit_s=50_000.0)

    def story(seed: int, broken: bool) -> list[float]:
        stage = Stage(kind, nodes=64, seed=seed)
        if broken:
            stage.ctld.update_node("n1", "DRAIN", "broken")
        stage.to(100_000)
        return [round(at) for at, _ in stage.starts]

    assert story(1, False) == story(1, True)
    assert len(story(1, False)) == pytest.approx(50, abs=25)
    assert story(1, False) != story(2, False)


@pytest.mark.parametrize("seed", range(8))
def test_every_gpu_second_is_accounted_for_once(seed: int) -> None:
    """From its first start on, what a training asked for is kept, lost, or its very first start."""
    rng = random.Random(seed)
    stage = Stage(replace(ENDLESS, requeue=bool(seed % 2)), seed=seed)
    stage.to(10)
    first = stage.starts[0][0]
    for _ in range(60):
        stage.timeline.run_until(stage.timeline.now + rng.expovariate(1 / 900))
        name = f"n{rng.randint(1, 4)}"
        deed = rng.random()
        jobs = [job for job in stage.ctld.jobs().values() if job.state == "RUNNING"]
        if deed < 0.4 and jobs:
            stage.work.struck(jobs[0].id, "fault")
            stage.timeline.run_until(stage.timeline.now + rng.uniform(0, 400))
            if jobs[0].state == "RUNNING":
                stage.ctld.job_exits(jobs[0].id, "failed")
        elif deed < 0.7:
            stage.ctld.update_node(name, "DRAIN", "broken")
        elif "DRAIN" in stage.ctld.view(name).state:
            stage.ctld.update_node(name, "UNDRAIN")
    stage.work.close()
    books, elapsed = stage.work.books, stage.timeline.now - first
    assert sum(books.interruptions.values()) > 5
    assert isclose(books.useful + sum(books.lost.values()) + 100 * 4 * GPUS, elapsed * 4 * GPUS, rel_tol=1e-9)
