"""The reimage rung through the BMC: from the network, once, read back, proven by its marker, cleared."""

from dataclasses import replace

import pytest

from slurm_lifecycle.core.machine import BootOverride, MachineCommand, PhoneHome
from slurm_lifecycle.core.model import AttemptOutcome, Rung, Step
from slurm_lifecycle.core.plan import AbortImage
from tests.unit.core.machine import Machine
from tests.unit.core.world import ACT, World

GRACEFUL, ON = MachineCommand.GRACEFUL_OFF, MachineCommand.ON
ONCE, CLEAR = MachineCommand.BOOT_ONCE, MachineCommand.BOOT_CLEAR
POLICY = replace(ACT, bmc=frozenset({"n1"}), reimage_by_pxe=True, image="golden")


def cluster(machine: Machine | None = None, **changes: object) -> World:
    """A node that its reboot does not cure and a fresh image does."""
    world = World(policy=replace(POLICY, **changes) if changes else POLICY)  # type: ignore[arg-type]
    world.machines["n1"] = machine or Machine()
    world.fault("n1", "DRIVER_MISMATCH", cured_by="reimage")
    return world


def first(world: World) -> AttemptOutcome:
    """The end of the first reimage."""

    def tries() -> list[AttemptOutcome]:
        found = [one for one in world.records.attempts if one.rung is Rung.REIMAGE]
        return [one.outcome for one in found if one.outcome is not None]

    world.run_until(lambda one: bool(tries()), 2000)
    return tries()[0]


def detail(world: World) -> str:
    return next(one.detail for one in world.records.attempts if one.rung is Rung.REIMAGE)


def test_staged_switched_off_set_read_back_switched_on_proven_and_back() -> None:
    world = cluster()
    assert first(world) is AttemptOutcome.SUCCEEDED
    machine = world.machines["n1"]
    assert machine.accepted == [GRACEFUL, ONCE, ON]
    assert machine.booted_from == "network"
    assert world.images["n1"][1] == "golden"
    world.run_until(lambda one: one.incident("n1") is None)
    assert world.closed("n1").cured_by == "reimage"


def test_an_override_that_stays_is_taken_away_before_it_counts_as_done() -> None:
    machine = Machine(override_kept=True)
    world = cluster(machine)
    assert first(world) is AttemptOutcome.SUCCEEDED
    assert machine.accepted == [GRACEFUL, ONCE, ON, CLEAR]
    assert not machine.override.stands


def test_an_override_that_cannot_be_taken_away_is_no_success() -> None:
    machine = Machine(override_kept=True, lost={CLEAR})
    world = cluster(machine)
    assert first(world) is AttemptOutcome.FAILED
    assert machine.accepted.count(CLEAR) == 3
    assert "may install again" in detail(world)


def test_a_bmc_that_ignores_the_override_boots_the_old_image_and_that_is_seen() -> None:
    """BMO#1187: PXE ignored, disk booted."""
    machine = Machine(override_ignored=True)
    world = cluster(machine)
    assert first(world) is AttemptOutcome.FAILED
    assert "not what was asked for" in detail(world)
    assert world.sent(AbortImage, "n1")


@pytest.mark.parametrize(
    "reads",
    [
        BootOverride("Continuous", "Pxe", "UEFI"),
        BootOverride("Once", "Hdd", "UEFI"),
        BootOverride("Once", "Bogus", ""),
    ],
)
def test_an_override_that_does_not_read_back_is_not_started_from(reads: BootOverride) -> None:
    machine = Machine(override_reads=reads)
    world = cluster(machine)
    assert first(world) is AttemptOutcome.FAILED
    assert machine.on
    # Told to go three times; then the machine is switched on all the same: it must not stay off.
    assert machine.accepted == [GRACEFUL, ONCE, CLEAR, CLEAR, CLEAR, ON]


def test_an_override_that_was_accepted_and_not_set_boots_the_old_image_and_that_is_seen() -> None:
    machine = Machine(lost={ONCE})
    world = cluster(machine)
    assert first(world) is AttemptOutcome.FAILED
    assert machine.accepted == [GRACEFUL, ONCE, ON]
    assert "not what was asked for" in detail(world)


def test_a_boot_of_the_same_image_by_an_earlier_operation_is_no_proof() -> None:
    machine = Machine(override_ignored=True)
    world = cluster(machine)
    world.images["n1"] = ("n1.77.reimage.1", "golden")
    world.say("n1")
    assert first(world) is AttemptOutcome.FAILED
    assert "operation n1.77.reimage.1" in detail(world)


def test_a_node_that_phoned_home_needs_no_marker() -> None:
    machine = Machine(override_ignored=True)
    world = cluster(machine)
    world.run_until(lambda one: ON in machine.accepted)
    op_id = next(one.op_id for one in world.records.attempts if one.rung is Rung.REIMAGE)
    home = PhoneHome(op_id, "n1", "golden", world.now)
    world.records = replace(world.records, homes={op_id: home})
    world._store = _keeping_homes(world)  # type: ignore[method-assign]
    assert first(world) is AttemptOutcome.SUCCEEDED


def _keeping_homes(world: World):  # type: ignore[no-untyped-def]
    store = World._store.__get__(world)
    homes = world.records.homes

    def keep(made: object) -> None:
        store(made)
        world.records = replace(world.records, homes=homes)

    return keep


@pytest.mark.parametrize("command", [GRACEFUL, ONCE, ON])
def test_a_daemon_killed_at_any_command_goes_on_and_sends_nothing_twice(command: MachineCommand) -> None:
    world = cluster()
    world.killed = lambda step: step.command is command
    assert first(world) is AttemptOutcome.SUCCEEDED
    assert world.machines["n1"].accepted.count(command) == 1


def test_a_persons_drain_in_the_middle_leaves_no_override_behind() -> None:
    machine = Machine()
    world = cluster(machine)
    world.run_until(lambda one: ONCE in machine.accepted)
    world.admin_drains("n1", "mine now")
    world.run_until(lambda one: machine.on)
    assert machine.accepted[-2:] == [CLEAR, ON]
    assert machine.booted_from == "disk"
    assert first(world) is AttemptOutcome.FAILED
    assert world.nodes["n1"].reason == "mine now"


def test_someone_who_switches_it_on_in_the_middle_is_told_of() -> None:
    machine = Machine(refuse={ONCE: 99})
    world = cluster(machine)
    world.run_until(lambda one: not machine.on)
    world.tick(2)
    machine.goes_on(world.now)
    assert first(world) is AttemptOutcome.FAILED
    assert "somebody else" in detail(world)


def test_the_override_is_tried_again_while_it_is_refused() -> None:
    """LP#2136275: UnableToModifyDuringSystemPOST."""
    machine = Machine(refuse={ONCE: 3})
    world = cluster(machine)
    assert first(world) is AttemptOutcome.SUCCEEDED


def test_a_bmc_without_network_boot_leaves_the_node_on() -> None:
    machine = Machine(unsupported=frozenset({ONCE}))
    world = cluster(machine)
    assert first(world) is AttemptOutcome.FAILED
    assert machine.on
    assert "no network boot" in detail(world)


def test_the_second_try_is_an_operation_of_its_own() -> None:
    machine = Machine(override_ignored=True)
    world = cluster(machine, caps={})
    assert first(world) is AttemptOutcome.FAILED
    machine.override_ignored = False
    world.run_until(lambda one: one.step("n1") in (Step.VERIFYING, None), 1000)
    ops = [one.op_id for one in world.records.attempts if one.rung is Rung.REIMAGE]
    assert len(set(ops)) == 2
    assert world.images["n1"][0] == ops[1]
