"""The simulated slurmctld under random hands: its tables stay true to each other, its jobs all end.

The same seed gives the same trace in every process.
"""

import contextlib
import hashlib
import math
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from slurm_lifecycle.core.model import NodeView
from slurm_lifecycle.simulation.slurmctld import RELEASES, Job, SlurmConf, SlurmRefused
from slurm_lifecycle.simulation.slurmctld.records import UNUSABLE, tokens
from slurm_lifecycle.simulation.streams import stream
from tests.unit.simulation.slurmctld_bench import Bench

_OUT = {"DRAIN", "DOWN", "FAIL", "NOT_RESPONDING", "REBOOT_ISSUED", "INVALID_REG", "UNKNOWN"}
STEPS = 400


class RandomWorld:
    """A bench, and hands that do anything to it."""

    def __init__(self, seed: int) -> None:
        self.rng: random.Random = stream(seed, "hands", "test")
        rng = self.rng
        conf = SlurmConf(
            release=rng.choice(list(RELEASES)),
            resume_timeout_s=rng.choice((12.0, 60.0)),
            slurmd_timeout_s=rng.choice((12.0, 60.0)),
            return_to_service=rng.choice((0, 1, 2)),
        )
        self.bench = Bench(6, conf, seed)
        self.ctld = self.bench.ctld
        self.names = list(self.ctld.views())
        self.silent: set[str] = set()
        self.told: set[str] = set()
        self.known = dict(self.ctld.snapshot())
        self.ctld.on_node_change.append(self.told.add)
        self.ctld.on_job_start.append(self._starts)
        self.trace = hashlib.sha256()
        self.refused = 0

    def _starts(self, job: Job) -> None:
        own = self.ctld.reservations().get(job.spec.reservation)
        for name in job.nodes:
            view = self.ctld.view(name)
            assert not view.state & _OUT, (job.id, view)
            assert view.reason == ""
            for other in self.ctld.reservations().values():
                active = other.start_s <= self.bench.timeline.now < other.end_s
                assert not active or name not in other.nodes or (own is not None and name in own.nodes)

    def act(self) -> None:
        """One hand does one thing."""
        rng, ctld = self.rng, self.ctld
        node = rng.choice(self.names)
        jobs = list(ctld.jobs())
        job = rng.choice(jobs) if jobs else "0"
        reservation = rng.choice(("slc-a", "slc-b", "other"))
        now = self.bench.timeline.now
        deeds = (
            lambda: ctld.update_node(
                node, rng.choice(("DRAIN", "DOWN", "FAIL")), rng.choice(("fan", "slc:X gpu0"))
            ),
            lambda: ctld.update_node(node, rng.choice(("UNDRAIN", "RESUME", "IDLE"))),
            lambda: ctld.update_node(node, "RESUME"),
            lambda: ctld.reboot(
                node,
                asap=rng.random() < 0.5,
                nextstate=rng.choice(("", "", "RESUME", "DOWN")),
                reason=rng.choice(("", "why")),
            ),
            lambda: ctld.cancel_reboot(node),
            lambda: self._falls_silent(node),
            lambda: self._answers(node, boot=rng.random() < 0.5),
            lambda: self._answers(node, boot=rng.random() < 0.5),
            lambda: self._submits(reservation),
            lambda: self._submits(""),
            lambda: self._submits(""),
            lambda: ctld.cancel(job),
            lambda: ctld.suspend(job),
            lambda: ctld.resume_job(job),
            lambda: ctld.requeue(job, hold=rng.random() < 0.2),
            lambda: ctld.release(job),
            lambda: ctld.hold(job),
            lambda: ctld.job_exits(job, rng.choice(("completed", "failed"))),
            lambda: ctld.update_job(job, start_now=True, exclude=rng.sample(self.names, 2)),
            lambda: ctld.update_job(job, nodes=ctld.jobs()[job].nodes[:1] if jobs else ()),
            lambda: ctld.create_reservation(
                reservation,
                rng.sample(self.names, 2),
                now + rng.choice((0, 0, 50)),
                rng.choice((math.inf, now + 100)),
                rng.choice((("MAINT", "IGNORE_JOBS"), (), ("MAINT",))),
                ("root", "u1000"),
            ),
            lambda: ctld.delete_reservation(reservation),
            lambda: ctld.update_reservation(reservation, end_s=now + rng.choice((0, 30))),
            lambda: ctld.set_reason(node, "said"),
            lambda: ctld.set_extra(node, str(now)),
            ctld.restart,
        )
        with contextlib.suppress(SlurmRefused):
            self.refused += 1
            rng.choice(deeds)()
            self.refused -= 1

    def _submits(self, reservation: str) -> None:
        count = self.rng.randint(1, 4)
        self.bench.submit(
            nodes_min=self.rng.randint(1, count),
            nodes_max=count,
            time_limit_s=self.rng.choice((20.0, 200.0, math.inf)),
            requeue=self.rng.random() < 0.7,
            priority=self.rng.randrange(2),
            reservation=reservation,
            ignores_term=self.rng.random() < 0.2,
        )

    def _falls_silent(self, node: str) -> None:
        self.silent.add(node)
        self.ctld.fell_silent(node)

    def _answers(self, node: str, *, boot: bool) -> None:
        self.silent.discard(node)
        now = self.bench.timeline.now
        self.ctld.registered(node, now - 0.5 if boot else self.bench.began - 100, self.rng.choice((8, 8, 7)))

    def check(self) -> None:
        """Whatever the tables say twice, they say the same."""
        state = self.ctld._state
        changed = {name for name, view in self.ctld.views().items() if view is not self.known[name]}
        assert changed <= self.told
        self.told.clear()
        self.known = dict(self.ctld.snapshot())
        free = usable = 0
        for node in state.nodes.values():
            view: NodeView = self.ctld.view(node.name)
            assert (view.state, view.reason, view.extra) == (tokens(node.flags), node.reason, node.extra)
            assert (view.reason == "") == (view.reason_at_s is None)
            usable |= 0 if node.flags & UNUSABLE else node.bit
            free |= node.bit if not node.flags & UNUSABLE and node.job is None else 0
            busy = bool(view.state & {"ALLOCATED", "COMPLETING"})
            held = node.job is not None and node.name in node.job.nodes
            suspended = held and node.job is not None and node.job.state == "SUSPENDED"
            assert busy == (node.job is not None and not suspended)
            assert node.job is None or node.job.id in state.jobs
        assert (state.free, state.usable) == (free, usable)
        for view_of_job in self.ctld.job_views():
            job = state.jobs[view_of_job.job_id]
            assert (view_of_job.state, view_of_job.restarts) == (job.state, job.restarts)
            assert all(state.nodes[name].job is job for name in view_of_job.nodes)
            assert (job.state in ("PENDING", "RESV_DEL_HOLD")) == (job.id in self.ctld._jobs.pending)
            assert job.mask == state.mask_of(job.nodes)
            assert (
                bool(view_of_job.nodes) == (job.state in ("RUNNING", "SUSPENDED"))
                or job.state == "COMPLETING"
            )

    def note(self) -> None:
        """What is seen goes into the trace."""
        views = self.ctld.snapshot().values()
        line = [(view.name, sorted(view.state), view.reason, view.boot_time_s) for view in views]
        self.trace.update(repr((self.bench.timeline.now, line, self.ctld.job_views())).encode())

    def quiet(self) -> None:
        """Hands off, all nodes whole, all jobs ended."""
        for job in list(self.ctld.jobs()):
            self.ctld.cancel(job)
        self.bench.run(120)
        for name in self.names:
            self._whole(name)
        self.bench.run(200)
        for name in self.names:
            with contextlib.suppress(SlurmRefused):
                self.ctld.update_node(name, "RESUME")
        self.bench.run(60)

    def _whole(self, name: str) -> None:
        self.ctld.registered(name, self.bench.timeline.now - 0.5, 8)


def run(seed: int) -> RandomWorld:
    """One random world from its begin to the quiet."""
    world = RandomWorld(seed)
    for _ in range(STEPS):
        world.act()
        world.check()
        for _ in range(world.rng.randint(0, 3)):
            world.bench.timeline.step()
            world.check()
        world.note()
    world.quiet()
    world.check()
    world.note()
    return world


@pytest.mark.parametrize("seed", range(40))
def test_random_hands(seed: int) -> None:
    world = run(seed)
    assert world.ctld.job_views() == ()
    for view in world.ctld.views().values():
        assert view.state - {"MAINTENANCE", "RESERVED"} == {"IDLE"}, view
    assert world.bench.starts
    assert world.refused < STEPS / 2


def test_the_same_seed_gives_the_same_trace_under_every_hash_seed() -> None:
    code = "from tests.unit.simulation.test_slurmctld_random import run; print(run(7).trace.hexdigest())"
    root = Path(__file__).parents[3]
    traces = set()
    for hash_seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        argv = [sys.executable, "-c", code]
        done = subprocess.run(argv, cwd=root, env=environment, capture_output=True, text=True, check=True)
        traces.add(done.stdout.strip())
    traces.add(run(7).trace.hexdigest())
    assert len(traces) == 1
