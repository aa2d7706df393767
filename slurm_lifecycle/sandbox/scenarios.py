"""The scenarios of the demonstration: what is done to which node, and what must follow.

A scenario only does things and waits; `scenarios_judge` decides from the observer's record what happened. One
that waits in vain is ended there, and fails.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from slurm_lifecycle.sandbox import scenarios_judge as judge
from slurm_lifecycle.sandbox.faults import base_nvml
from slurm_lifecycle.sandbox.scenarios_case import FENCE, Facts, Judgement
from slurm_lifecycle.sandbox.scenarios_machine import MACHINE_SCENARIOS
from slurm_lifecycle.sandbox.scenarios_record import Record
from slurm_lifecycle.sandbox.scenarios_world import Play, Run, Scenario, Wait, World

ADMIN_REASON = "maintenance: fan swap, ticket 4711 [ask Kim] = do NOT touch"
MISMATCH_NODES = ("n6", "n1", "n3", "n11", "n5", "n7")
# A return counts when it lasts; a node to be left alone is watched for as long as others need to drain.
_STAYS_S = 3.0
_WATCH_S = 12.0
_BREAKER_WATCH_S = 8.0


# ---------------------------------------------------------------- plays


def _xid79_busy(run: Run) -> Play:
    world = run.world
    # Long enough that the drain comes while it runs, whatever the machine's load.
    run.text["job"] = job = world.submit(14, "--nodelist", run.node, "--exclusive", "--gres=gpu:8")
    yield Wait(lambda: _job(world, job) == "RUNNING", 30, "its job")
    run.mark("injected")
    world.inject(run.node, "xid", code=79, gpu=3)
    yield Wait(lambda: run.seen("DRAIN"), 15, "the drain")
    yield Wait(lambda: _job(world, job) not in ("RUNNING", "COMPLETING"), 40, "the job's own end")
    yield Wait(run.rebooting, 20, "the reboot")
    yield Wait(run.free, 60, "checks and return")
    yield run.stays(_STAYS_S, "that it stays in service")


def _job(world: World, job: str) -> str:
    changes = world.record.jobs.get(job)
    return changes[-1].state if changes else ""


def _remap_failure(run: Run) -> Play:
    world = run.world
    gpu = 5
    run.text["serial"] = base_nvml(run.node, 8)[f"gpu.{gpu}.serial"]
    run.mark("injected")
    world.inject(run.node, "remap-failure", gpu=gpu)
    yield Wait(lambda: run.seen("DRAIN", reason="slc:"), 20, "the drain")
    yield Wait(lambda: run.ticket() != "", 30, "the ticket")
    yield Wait(lambda: run.step() == "awaiting_person", 15, "the hand-over to a person")
    yield run.stays(_STAYS_S, "that it stays drained")
    run.text["ticket"] = run.ticket()


def _driver_mismatch(run: Run) -> Play:
    world = run.world
    run.text["image_before"] = world.image(run.node)
    run.mark("injected")
    world.inject(run.node, "driver-mismatch")
    yield Wait(lambda: run.seen("DRAIN", reason="slc:"), 25, "the drain")
    yield Wait(run.rebooting, 40, "the reboot")
    yield Wait(lambda: world.image(run.node) != run.text["image_before"], 60, "checks fail, then the reimage")
    yield Wait(run.free, 60, "checks and return")
    yield run.stays(_STAYS_S, "that it stays in service")
    run.text["image_after"] = world.image(run.node)


def _admin_drain(run: Run) -> Play:
    world = run.world
    run.text["reason"] = ADMIN_REASON
    world.slurm("scontrol", "update", f"nodename={run.node}", "state=drain", f"reason={ADMIN_REASON}")
    yield Wait(lambda: run.seen("DRAIN", reason=ADMIN_REASON), 10, "the administrator's drain")
    run.at["drained"] = world.record.now(run.node).at - 0.001
    run.mark("injected")
    world.inject(run.node, "xid", code=79, gpu=1)
    yield Wait(lambda: " drain XID79 " in world.record.now(run.node).extra, 20, "the node's own verdict")
    yield run.stays(_WATCH_S, "that nobody touches it")


def _app_xid13(run: Run) -> Play:
    world = run.world
    # The application at fault: it may run on, or end by itself.
    run.text["job"] = job = world.submit(8, "--nodelist", run.node, "--gres=gpu:4", "--cpus-per-task=4")
    yield Wait(lambda: _job(world, job) == "RUNNING", 30, "its job")
    run.mark("injected")
    world.inject(run.node, "xid", code=13, gpu=2)
    yield Wait(lambda: " warn XID13 " in world.record.now(run.node).extra, 20, "the node's own verdict")
    yield Wait(lambda: _job(world, job) == "COMPLETED", 30, "the job's own end")
    yield run.stays(_STAYS_S, "that nothing is drained")


def _daemon_killed(run: Run) -> Play:
    world = run.world
    run.mark("injected")
    world.inject(run.node, "xid", code=79, gpu=5)
    yield Wait(run.rebooting, 40, "drain and reboot")
    yield Wait(lambda: run.seen("REBOOT_ISSUED"), 20, "the node goes down")
    world.kill_daemon()
    run.mark("killed")
    yield Wait(lambda: not run.seen("REBOOT_ISSUED"), 40, "the node boots, nobody looks")
    world.start_daemon()
    run.mark("restarted")
    yield Wait(run.free, 60, "the next daemon goes on")
    yield run.stays(_STAYS_S, "that it stays in service")


def _dead_node(run: Run) -> Play:
    run.text["adopt_after_s"] = f"{run.world.adopt_after_s:g}"
    run.mark("injected")
    run.world.inject(run.node, "power-off")
    yield Wait(lambda: run.seen("DOWN"), 60, "Slurm to give it up")
    yield Wait(lambda: run.seen("DRAIN", reason="slc:"), 40, "the adoption")
    yield Wait(lambda: run.step() == "awaiting_person", 20, "the hand-over to a person")
    yield run.stays(_STAYS_S, "that it is left alone")


def _breaker(run: Run) -> Play:
    world = run.world
    first, *others = run.scenario.nodes
    run.mark("injected")
    # The first one is cured by its reboot. While it is under repair the bad package reaches five more; their
    # agents need about as long to be sure of it as the reboot takes.
    world.inject(first, "driver-mismatch", clears="reboot")
    yield Wait(lambda: world.record.fenced_at(first, world.now(), FENCE), 40, f"{first} under repair")
    for node in others:
        world.inject(node, "driver-mismatch")
    yield Wait(lambda: _trips(world) != [], 25, "the breaker")
    trips = _trips(world)
    if not trips:
        return
    run.at["tripped"] = float(trips[0]["tripped_at"])
    yield Wait(run.free, 60, f"{first} finished and returned")
    yield run.stays(_BREAKER_WATCH_S, "that nothing new is started")
    run.mark("lifted")
    run.text["lift"] = world.suite("breaker", "lift", "DRIVER_MISMATCH", "--yes")
    run.mark("reset")
    run.text["reset"] = world.suite("breaker", "reset")
    for node in others:
        # The administrator brings the right package; one that was under repair may be down just now.
        world.inject(node, "clear")
    yield Wait(lambda: all(run.free(node) for node in run.scenario.nodes), 90, "all back in service")
    yield run.stays(_STAYS_S, "that they stay in service")


def _trips(world: World) -> list[Mapping[str, Any]]:
    found = world.read("breaker", "status", "--json")
    return found if isinstance(found, list) else []


def _judge_breaker(record: Record, _node: str, facts: Facts) -> Judgement:
    return judge.breaker(record, MISMATCH_NODES, facts)


SCENARIOS = (
    Scenario(
        "xid79-busy",
        ("n1",),
        1,
        "DRAIN `slc:XID79 gpu3 ...` at once, the running job ends by itself, one reboot, checks, back",
        _xid79_busy,
        judge.xid79_busy,
    ),
    Scenario(
        "remap-failure-rma",
        ("n2",),
        1,
        "drained, straight to RMA without a reboot, ticket with serial and evidence, stays drained",
        _remap_failure,
        judge.remap_failure_rma,
        to_the_end=True,
    ),
    Scenario(
        "driver-mismatch-reimage",
        ("n3",),
        1,
        "drained by the daemon, reboot, checks fail, reimage, checks pass, back",
        _driver_mismatch,
        judge.driver_mismatch_reimage,
    ),
    Scenario(
        "admin-drain-untouched",
        ("n4",),
        2,
        "a person's drain stays byte for byte though the node is faulty; the finding is recorded, held",
        _admin_drain,
        judge.admin_drain_untouched,
        to_the_end=True,
    ),
    Scenario(
        "app-xid13",
        ("n5",),
        1,
        "an application's fault is recorded, nothing is drained",
        _app_xid13,
        judge.app_xid13,
    ),
    Scenario(
        "daemon-killed",
        ("n6",),
        2,
        "SIGKILL during a reboot: the next daemon goes on, one reboot in all, checks, back",
        _daemon_killed,
        judge.daemon_killed,
    ),
    Scenario(
        "breaker",
        MISMATCH_NODES,
        3,
        "six at once: trips, starts nothing new, finishes and returns the first; a person lifts and resets",
        _breaker,
        _judge_breaker,
    ),
    Scenario(
        "dead-node",
        ("n8",),
        1,
        "Slurm's `Not responding` is adopted after its time, then waits for a person with a clear word",
        _dead_node,
        judge.dead_node,
        to_the_end=True,
    ),
    *MACHINE_SCENARIOS,
)
