"""The real reconciler, executor and store against a hostile cluster: safe at every call, at rest in the end.

Set `HOSTILE_SEEDS=from:to` to try others than those of every day.
"""

import os
import random
import sqlite3
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from slurm_lifecycle.core.fault_catalog import Level, fault_for
from slurm_lifecycle.core.formats import make_reason
from slurm_lifecycle.core.model import Owner, Step, Verb
from slurm_lifecycle.core.ownership import owner_of
from slurm_lifecycle.core.policy import BreakerPolicy, Budget, Mode, Policy
from slurm_lifecycle.errors import LifecycleError
from slurm_lifecycle.service.daemon import SystemClock
from slurm_lifecycle.service.executor import Executor, Ports
from slurm_lifecycle.service.reconciler import Reconciler, TickResult
from slurm_lifecycle.store.opening import open_store
from tests.simulation.hostile_cluster import NEVER, Cluster, Killed, Site, Violation

RUNGS = frozenset({"drain", "return", "reboot", "reimage", "rma"})
CODES = ("XID79", "GPU_LOST", "REMAP_FAILURE", "DRIVER_MISMATCH", "XID13", "XID95", "XID74", "FS_READONLY")
SLURM_SAYS = ("Kill task failed", "Prolog error", "Duplicate jobid")
TABLES = ("event", "incident", "finding", "attempt", "fence", "trip", "breaker_hit", "node_status")
FROM, TO = (int(one) for one in os.environ.get("HOSTILE_SEEDS", "0:16").split(":"))
STEPS = 250
SETTLE_S = 10.0
# Larger steps of the wall clock are not believed by `SystemClock`.
SLEW_S = 3.0


class Clock(SystemClock):
    """The daemon's clock, which may be off."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__()
        self.cluster = cluster
        self.off_s = 0.0

    def now(self) -> float:
        return self.cluster.now + self.off_s


class World:
    """A cluster, a daemon on it that is killed and started again, and people."""

    def __init__(self, seed: int, folder: Path) -> None:
        self.rng = rng = random.Random(f"hostile/{seed}")
        self.path = folder / "store.db"
        self.cluster = Cluster(rng, rng.choice((3, 6, 9)))
        self.cluster.on_disruption = self.check_disruption
        self.site = Site(self.cluster)
        self.clock = Clock(self.cluster)
        lemons = rng.choice((3, 99))
        self.policy = Policy(
            mode=Mode.ACT,
            partitions=("*",),
            rungs=RUNGS,
            verify_settle_s=SETTLE_S,
            adopt_after_s=120.0,
            fleet=Budget(rng.choice((2, 4, 8)), rng.choice((1, 2, 4))),
            domains={name: f"rack{number % 3}" for number, name in enumerate(self.cluster.all)},
            domain_budgets={"rack0": Budget(None, 1)},
            lemon_7d=lemons,
            lemon_28d=lemons,
            drain_deadline_s=rng.choice((2000.0, 86400.0)),
            breaker=BreakerPolicy(least=rng.choice((2, 3, 50)), most=50),
        )
        self.reboots: set[str] = set()
        self.told_at = self.cluster.now
        self.store = open_store(self.path, host="h", acting=True)
        self.restart()

    def restart(self) -> None:
        self.store.close()
        self.store = open_store(self.path, host="h", acting=True)
        site, store = self.site, self.store
        ports = Ports(self.cluster, store, self.clock, site, site, site, site, store.history)
        self.reconciler = Reconciler(
            slurm=self.cluster,
            store=store,
            provisioner=site,
            executor=Executor(ports, self.policy),
            clock=self.clock,
            policy=self.policy,
            stopwatch=lambda: 0.0,
        )

    def check_disruption(self, node: str, rung: str) -> None:
        """Written down before it is sent, alone on its node, and a reboot never sent twice."""
        records = self.store.load(self.cluster.now)
        found = [one for one in records.attempts if one.node == node and one.outcome is None]
        if [one.rung.value for one in found] != [rung]:
            raise Violation(f"{rung} of {node} while the store holds {found}")
        if rung == "reboot" and found[0].op_id in self.reboots:
            raise Violation(f"{found[0].op_id} is sent twice")
        self.reboots |= {found[0].op_id} if rung == "reboot" else set()

    def tick(self, seconds: float) -> TickResult | None:
        self.cluster.pass_time(seconds)
        for node in self.cluster.all.values():
            if self.rng.random() < 0.7:
                self.cluster.say(node)
        self.cluster.note_checked(SETTLE_S - 2 * SLEW_S)
        try:
            return self.reconciler.tick()
        except Killed:
            self.restart()
        except LifecycleError:
            pass
        return None

    def ask(self, verb: Verb, subject: str) -> None:
        if verb is Verb.BREAKER_LIFT:
            # A person's word that the nodes go back unchecked.
            concerned = self.store.load(self.cluster.now).incidents.values()
            self.cluster.lifted |= {one.node for one in concerned if one.code == subject}
            for one in concerned:
                if one.code == subject and one.node in self.cluster.all:
                    self.cluster.all[one.node].unchecked = ""
        self.store.add_request(verb, subject, "alice", "because", self.cluster.now)

    def check_told(self) -> None:
        """Whatever waits for a person was told, once there was a way and some time to tell it."""
        if self.site.nobody_is_told or self.cluster.away:
            self.told_at = self.cluster.now
        if self.cluster.now - self.told_at < 600:
            return
        for one in self.store.load(self.cluster.now).incidents.values():
            waits = one.step in (Step.HELD, Step.AWAITING_PERSON) and one.hold != "foreign"
            if waits and self.cluster.now - one.step_since > 600:
                assert any(one.id in key for key in self.site.paged), one


def happenings(world: World, name: str) -> list[tuple[float, Callable[[], object]]]:
    """What may happen next to a node or around it, with its weight."""
    rng, cluster = world.rng, world.cluster
    node = cluster.all[name]

    def fault() -> None:
        node.fault = (rng.choice(CODES), f"gpu{rng.randrange(3)}", rng.choice(("reboot", "never")))
        cluster.say(node)
        certain = fault_for(node.fault[0]).level is Level.DRAIN
        if certain and rng.random() < 0.5 and node.agent and not node.person and not node.drain:
            cluster.drain_by(name, make_reason(*node.fault[:2]), person=False)

    def suspend() -> None:
        for job in cluster.jobs_of(name):
            state = rng.choice(("SUSPENDED", "COMPLETING", "RUNNING"))
            cluster.queue[job.job_id] = replace(job, state=state)

    def join() -> None:
        new = f"{rng.choice('amz')}{rng.randrange(9)}"
        if new not in cluster.all:
            cluster.add(new)

    def configure() -> None:
        without = rng.choice(("", "", "drain", "return", "reboot"))
        mode = rng.choice((Mode.ACT, Mode.ACT, Mode.OBSERVE))
        world.policy = replace(world.policy, mode=mode, rungs=RUNGS - {without})
        world.restart()

    def many_fail() -> None:
        for one in cluster.all.values():
            one.fault = ("DRIVER_MISMATCH", "-", "reboot")
            cluster.say(one)

    def request() -> None:
        world.ask(rng.choice(list(Verb)), rng.choice((name, name, "XID79", "fleet", "", "DRIVER_MISMATCH")))

    def put(what: object, key: str, value: object) -> Callable[[], None]:
        return lambda: setattr(what, key, value)

    in_service = not node.drain and node.base == "IDLE"
    dead = node.silent_since is not None
    return [
        (6, fault),
        (4, put(node, "fault", None)),
        (12, lambda: cluster.start_job(name)),
        (10, lambda: cluster.end_jobs(name)),
        (2, suspend),
        (0 if dead else 2, put(node, "silent_since", cluster.now)),
        (4 if dead and node.boots_at == NEVER else 0, put(node, "boots_at", cluster.now + 1)),
        (2, lambda: cluster.drain_by(name, "fan noise", person=True)),
        (4 if node.drain else 0, lambda: cluster.undrain_by_person(name)),
        (2 if in_service else 0, lambda: cluster.drain_by(name, rng.choice(SLURM_SAYS), person=False)),
        (2, put(node, "agent", not node.agent)),
        (5, request),
        (1, put(node, "odd_state", rng.choice(("POWERED_DOWN", "UNKNOWN", "")))),
        (1, put(node, "readable", not node.readable)),
        (1, put(cluster, "away", not cluster.away)),
        (2, world.restart),
        (0.5, put(node, "partitions", rng.choice((("batch",), ("batch", "x"), ())))),
        (0 if node.comment else 1, put(node, "comment", "rack=12")),
        (0.3 if len(cluster.all) > 2 else 0, lambda: cluster.all.pop(name)),
        (0.8, join),
        (2, put(world.site, "nobody_is_told", rng.random() < 0.5)),
        (2, put(world.clock, "off_s", rng.choice((0.0, SLEW_S, -SLEW_S)))),
        (1, configure),
        (0.7, many_fail),
        (25, lambda: None),
    ]


def stop_trouble(world: World) -> None:
    cluster = world.cluster
    cluster.kill = cluster.lost_reply = cluster.lost_request = cluster.old_read = cluster.lost_boot = 0.0
    cluster.away, world.site.nobody_is_told, world.site.tickets_fail, world.clock.off_s = (
        False,
        False,
        0.0,
        0.0,
    )
    world.policy = replace(world.policy, caps={}, mode=Mode.ACT, rungs=RUNGS)
    world.restart()


def people_mend(world: World, *, undrain: bool, release: bool) -> None:
    cluster = world.cluster
    for node in cluster.all.values():
        node.readable, node.odd_state, node.agent, node.fault, node.partitions = (
            True,
            "",
            True,
            None,
            ("batch",),
        )
        if node.silent_since is not None and node.gives_up_at is None and node.boots_at > cluster.now + 500:
            node.boots_at = cluster.now + 1
        node.boots_at = min(node.boots_at, cluster.now + 100) if node.boots_at != NEVER else NEVER
        cluster.end_jobs(node.name)
        theirs = owner_of(cluster._view(node), world.policy) is Owner.PERSON
        if undrain and theirs:
            cluster.undrain_by_person(node.name)
    if release:
        records = world.store.load(cluster.now)
        waiting = [one.node for one in records.incidents.values() if one.deadline is None]
        gone = [name for name in records.incidents if name not in cluster.all]
        for name in {*waiting, *gone, *records.holds}:
            world.ask(Verb.RELEASE, name)
        world.ask(Verb.BREAKER_RESET, "")


def comes_to_rest(world: World) -> bool:
    for number in range(600):
        people_mend(world, undrain=number % 10 == 0, release=number % 10 == 5)
        for _ in range(4):
            result = world.tick(world.rng.choice((5.0, 10.0, 30.0)))
        calm = result is not None and result.plan.settled and not world.cluster.fences
        states = {world.cluster.tokens(node) for node in world.cluster.all.values()}
        if calm and states == {frozenset({"IDLE"})} and not world.store.load(world.cluster.now).incidents:
            return True
    return False


def rows(path: Path) -> dict[str, int]:
    connection = sqlite3.connect(path)
    try:
        return {name: connection.execute(f"SELECT count(*) FROM {name}").fetchone()[0] for name in TABLES}
    finally:
        connection.close()


@pytest.mark.parametrize("seed", range(FROM, TO))
def test_safe_at_every_call_and_at_rest_in_the_end(seed: int, tmp_path: Path) -> None:
    world = World(seed, tmp_path)
    rng, cluster = world.rng, world.cluster
    cluster.kill = rng.choice((0.0, 0.005, 0.02))
    cluster.lost_reply, cluster.lost_request = rng.choice((0.0, 0.05, 0.2)), rng.choice((0.0, 0.05, 0.2))
    cluster.old_read, cluster.lost_boot = rng.choice((0.0, 0.1)), rng.choice((0.0, 0.1, 0.5))
    world.site.tickets_fail = rng.choice((0.0, 0.3, 1.0))
    for _ in range(STEPS):
        weights, choices = zip(*happenings(world, rng.choice(sorted(cluster.all))), strict=True)
        rng.choices(choices, weights)[0]()
        world.tick(rng.choice((0.3, 1.0, 5.0, 10.0, 10.0, 30.0)))
        world.check_told()
    stop_trouble(world)
    assert comes_to_rest(world), world.store.load(cluster.now)
    before = rows(world.path)
    for _ in range(20):
        result = world.tick(10.0)
        assert result is not None
        assert result.plan.settled
    assert rows(world.path) == before
    world.store.close()
