"""Scenarios that reach a node's machine: through its BMC, or by a technician's hands."""

from __future__ import annotations

from slurm_lifecycle.sandbox import scenarios_machine_judge as judge
from slurm_lifecycle.sandbox.scenarios_world import Play, Run, Scenario, Wait

# Nodes with a BMC that the daemon knows; the first eight have none.
BMC_NODES = ("n9", "n10", "n11")
# Nothing is wrong with these while the scenarios here play.
_BYSTANDERS = "n1 n2 n3 n5 n7 n11"
_STAYS_S = 3.0
# `On` is refused for so long after off, as iDRAC10 does (LP#2162995).
_REFUSES_ON_S = 4


def _power_cycle(run: Run) -> Play:
    world, bmc = run.world, run.world.bmc(run.node)
    run.text["bystanders"] = _BYSTANDERS
    bmc.inject("conflict-409", seconds=_REFUSES_ON_S)
    world.inject(run.node, "os-deaf")
    run.mark("injected")
    world.inject(run.node, "xid", code=79, gpu=2, clears="power")
    yield Wait(lambda: run.seen("DRAIN", reason="slc:"), 20, "the drain")
    yield Wait(run.rebooting, 30, "the reboot")
    yield Wait(lambda: _resets(run) != [], 60, "checks fail, then the BMC is asked")
    yield Wait(lambda: "On" in _resets(run), 60, "off, and on again")
    yield Wait(run.free, 60, "checks and return")
    yield run.stays(_STAYS_S, "that it stays in service")
    bmc.clear()
    world.inject(run.node, "clear")


def _resets(run: Run) -> list[str]:
    return judge.resets_done(run.world.record.asked(run.node, run.began))


def _reimage_pxe(run: Run) -> Play:
    world = run.world
    run.text["bystanders"] = _BYSTANDERS
    world.reimage_by("pxe")
    run.mark("injected")
    world.inject(run.node, "driver-mismatch")
    yield Wait(lambda: run.seen("DRAIN", reason="slc:"), 30, "the drain")
    yield Wait(run.rebooting, 40, "the reboot")
    yield Wait(lambda: _resets(run) != [], 60, "checks fail, then the BMC is asked")
    yield Wait(lambda: "On" in _resets(run), 60, "off, one boot from the network, and on again")
    yield Wait(run.free, 90, "it is installed, checks and return")
    yield run.stays(_STAYS_S, "that it stays in service")
    run.text["override"] = str(world.bmc(run.node).describe()["boot"]["BootSourceOverrideEnabled"])


def _rma_return(run: Run) -> Play:
    world, gpu = run.world, 6
    run.text["gpu"] = str(gpu)
    run.mark("injected")
    world.inject(run.node, "remap-failure", gpu=gpu)
    yield Wait(lambda: run.seen("DRAIN", reason="slc:"), 20, "the drain")
    yield Wait(lambda: run.ticket() != "", 30, "the ticket")
    run.text["ticket"] = run.ticket()
    yield Wait(lambda: run.step() == "awaiting_person", 15, "the hand-over to a person")
    run.mark("replaced")
    world.replace_gpu(run.node, gpu)
    yield Wait(lambda: " ok " in world.record.now(run.node).extra, 40, "the node with its new GPU")
    run.mark("closed")
    run.text["close"] = world.suite("rma", "close", run.node)
    yield Wait(run.free, 60, "checks and return")
    yield run.stays(_STAYS_S, "that it stays in service")


MACHINE_SCENARIOS = (
    Scenario(
        "power-cycle",
        ("n9",),
        2,
        "reboot does not cure, so off and on through its BMC within the fence: one cut, one On, checks, back",
        _power_cycle,
        judge.power_cycle,
    ),
    Scenario(
        "reimage-pxe",
        ("n10",),
        2,
        "reboot does not cure, so one boot from the network through its BMC: marker of that operation, back",
        _reimage_pxe,
        judge.reimage_pxe,
    ),
    Scenario(
        "rma-return",
        ("n11",),
        1,
        "ticket names the broken GPU; a person replaces it and says so; checks, back, another serial number",
        _rma_return,
        judge.rma_return,
    ),
)
