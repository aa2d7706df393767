"""Seeded worlds: faults, people, jobs, lost calls at random; safety at every step, then liveness.

First everything happens; then it stops, people finish what waits for them, and the fleet must come to rest
with every node back in service.
"""

import random
from dataclasses import replace

import pytest

from slurm_lifecycle.core.model import Rung, Step, Verb
from slurm_lifecycle.core.ownership import BUSY_TOKENS
from slurm_lifecycle.core.plan import Drain, RemoveFence, SetComment, StartAttempt, Undrain
from slurm_lifecycle.core.policy import Budget
from tests.unit.core.world import ACT, World

CODES = ("XID79", "GPU_LOST", "REMAP_FAILURE", "DRIVER_MISMATCH", "XID13", "XID95", "XID74", "FS_READONLY")
CURES = ("reboot", "reimage", "never", "time")
ADMIN_TEXT = "owned by a person: #"
SEEDS = range(200)
STEPS = 250


class Chaos:
    """One seeded world and what happens in it."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(f"world/{seed}")
        budget = Budget(max_out=self.rng.choice((2, 4, 8)), max_working=self.rng.choice((1, 2, 4)))
        # Caps and relapses lead to a person, who is slow: half of the worlds keep them out of the way.
        relaxed = self.rng.random() < 0.5
        policy = replace(ACT, fleet=budget, lemon_7d=99 if relaxed else 3, lemon_28d=99 if relaxed else 5)
        self.world = World(policy=policy, reboot_ticks=self.rng.randint(1, 6))
        self.world.lose = self.loses
        self.loss = self.rng.choice((0.0, 0.1, 0.4))
        self.foreign: dict[str, str] = {}
        self.job_id = 100
        self.quiet = False

    def loses(self, action: object) -> bool:
        # Notices and one-shot effects that the executor answers for are not lost silently here.
        lossy = not self.quiet and not (
            isinstance(action, StartAttempt) and action.attempt.rung in (Rung.RMA, Rung.RESEAT)
        )
        return lossy and self.rng.random() < self.loss

    def happen(self) -> None:
        world, rng = self.world, self.rng
        name = rng.choice(sorted(world.nodes))
        event = rng.random()
        if event < 0.10:
            world.fault(name, rng.choice(CODES), f"gpu{rng.randrange(8)}", rng.choice(CURES))
            if rng.random() < 0.5 and self.foreign.get(name) is None and name not in world.rebooting:
                world.agent_drains(name)
        elif event < 0.14:
            world.faults.pop(name, None)
            world.say(name)
        elif event < 0.20 and not world.nodes[name].state & {"DRAIN", "DOWN"} and not self.fenced(name):
            self.job_id += 1
            world.run_job(name, str(self.job_id))
        elif event < 0.32:
            world.end_jobs(name) if "DOWN" not in world.nodes[name].state else None
        elif event < 0.34:
            self.foreign[name] = f"{ADMIN_TEXT}{rng.randrange(1000)}"
            world.admin_drains(name, self.foreign[name])
        elif event < 0.38:
            self.admin_undrains(name)
        elif event < 0.42:
            world.ask(rng.choice(list(Verb)), rng.choice((name, "XID79", "fleet", "")))

    def fenced(self, name: str) -> bool:
        return any(name in one.nodes for one in self.world.reservations.values())

    def admin_undrains(self, name: str) -> None:
        if "DRAIN" in self.world.nodes[name].state and name not in self.world.rebooting:
            self.foreign.pop(name, None)
            self.world.admin_undrains(name)

    def check(self, before: dict[str, frozenset[str]]) -> None:
        world = self.world
        for name, reason in self.foreign.items():
            shown = world.nodes[name].reason
            assert shown in (reason, f"{reason} : reboot issued"), (name, shown)
            assert "DRAIN" in world.nodes[name].state, name
        for action in world.last.actions:
            node = action.attempt.node if isinstance(action, StartAttempt) else getattr(action, "node", "")
            if isinstance(action, StartAttempt) and action.attempt.rung in (Rung.REBOOT, Rung.REIMAGE):
                assert not before[node] & BUSY_TOKENS
                assert not any(node in job.nodes for job in world.jobs)
                assert self.fenced(node)
            if isinstance(action, Drain | Undrain | SetComment | RemoveFence):
                assert not (isinstance(action, Drain | Undrain) and node in self.foreign), action
        limit = world.policy.fleet.max_working
        working = [
            one
            for one in world.records.incidents.values()
            if one.step in (Step.REPAIRING, Step.VERIFYING) and one.rung is not None
        ]
        # A person's release and a return that failed put a node back to work beside the limit.
        assert limit is None or len(working) <= limit + len(world.nodes) // 2
        unresolved = [one.node for one in world.records.attempts if one.outcome is None]
        assert len(unresolved) == len(set(unresolved))

    def settle(self) -> None:
        """Faults stop; people undrain what is theirs, repair and release what waits for them."""
        world = self.world
        self.quiet = True
        world.policy = replace(world.policy, caps={})
        for round_number in range(400):
            for name in sorted(world.nodes):
                world.end_jobs(name) if "DOWN" not in world.nodes[name].state else None
                if round_number % 10 == 0:
                    world.faults.pop(name, None)
                    world.say(name)
                    if name in self.foreign:
                        self.admin_undrains(name)
            if round_number % 10 == 5:
                self.people_finish()
            world.tick(5)
            if not world.records.incidents and not world.reservations and world.last.settled:
                return
        raise AssertionError(f"not at rest: {world.last.held} {list(world.records.incidents.values())}")

    def people_finish(self) -> None:
        world = self.world
        world.ask(Verb.BREAKER_RESET, "")
        for name in sorted(world.holds_now()):
            world.ask(Verb.RELEASE, name)
        for name, incident in sorted(world.records.incidents.items()):
            if incident.step in (Step.HELD, Step.AWAITING_PERSON):
                world.ask(Verb.RELEASE, name)


@pytest.mark.parametrize("seed", SEEDS)
def test_safe_while_it_happens_and_at_rest_afterwards(seed: int) -> None:
    chaos = Chaos(seed)
    for _ in range(STEPS):
        chaos.happen()
        before = {name: view.state for name, view in chaos.world.nodes.items()}
        chaos.world.tick()
        chaos.check(before)
    chaos.settle()
    for name, view in chaos.world.nodes.items():
        assert view.state == {"IDLE"}, (name, view)


def test_the_same_seed_gives_the_same_history() -> None:
    def history(seed: int) -> list[str]:
        chaos = Chaos(seed)
        for _ in range(STEPS):
            chaos.happen()
            chaos.world.tick()
        return [repr(one) for one in chaos.world.log]

    assert history(7) == history(7)
    assert history(7) != history(8)
