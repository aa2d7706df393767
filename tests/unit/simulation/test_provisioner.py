"""Reimages and the management controllers that they go through."""

from dataclasses import replace

import pytest

from slurm_lifecycle.core.model import ProvisionState
from slurm_lifecycle.errors import PermanentError, TransientError
from slurm_lifecycle.simulation.machines.bmc import Answer, Bmcs, BmcSettings, Power
from slurm_lifecycle.simulation.machines.machine import Machines
from slurm_lifecycle.simulation.machines.provisioner import ProvisionerSettings, SimProvisioner
from slurm_lifecycle.simulation.timeline import START_S, Timeline
from tests.unit.simulation.toy import QUICK, fault_with, toy_fleet

TEN_MIN = ProvisionerSettings(takes_s=600.0, spread=0.0, gives_up_s=3600.0)


def site(
    settings: ProvisionerSettings = TEN_MIN, bmc: BmcSettings | None = None
) -> tuple[Timeline, Machines, SimProvisioner]:
    timeline, _, machines = toy_fleet()
    return timeline, machines, SimProvisioner(machines, Bmcs(machines, bmc or BmcSettings()), settings)


def test_a_reimage_takes_its_time_boots_anew_and_mends_software() -> None:
    timeline, machines, provisioner = site()
    told: list[str] = []
    provisioner.on_start.append(lambda node, op_id: told.append(f"start {node} {op_id}"))
    provisioner.on_end.append(lambda node, op_id: told.append(f"end {node} {op_id}"))
    old = machines.machine("n1").boot_id
    fault_with(machines, "n1", "driver_down", 0.9)
    provisioner.start("n1", "default", "op")
    timeline.run_until(START_S + 300)
    assert provisioner.poll("op", "n1").state is ProvisionState.RUNNING
    assert not machines.machine("n1").up
    timeline.run_until(START_S + 700)
    assert provisioner.poll("op", "n1").state is ProvisionState.DONE
    assert machines.machine("n1").boot_id != old
    assert not machines.faulty("n1")
    assert told == ["start n1 op", "end n1 op"]


def test_one_operation_is_begun_once() -> None:
    timeline, machines, provisioner = site()
    for _ in range(3):
        provisioner.start("n1", "default", "op")
        timeline.run_until(timeline.now + 1000)
    assert machines.machine("n1").boots == 1
    provisioner.start("n1", "default", "another")
    timeline.run_until(timeline.now + 1000)
    assert machines.machine("n1").boots == 2


def test_of_an_operation_that_was_never_begun_nothing_is_known() -> None:
    assert site()[2].poll("op", "n1").state is ProvisionState.UNKNOWN


@pytest.mark.parametrize(
    ("kind", "said", "boots"),
    [
        ("fails", ProvisionState.FAILED, None),
        ("never_ends", ProvisionState.RUNNING, 1),
        ("without_boot", ProvisionState.DONE, 0),
        ("unknown", ProvisionState.UNKNOWN, 1),
    ],
)
def test_reimages_go_wrong_in_their_ways(kind: str, said: ProvisionState, boots: int | None) -> None:
    timeline, machines, provisioner = site(replace(TEN_MIN, **{kind: 1.0}))
    provisioner.start("n1", "default", "op")
    timeline.run_until(START_S + 10_000)
    assert provisioner.poll("op", "n1").state is said
    assert boots is None or machines.machine("n1").boots == boots


def test_a_failed_installer_leaves_the_old_image_or_a_machine_that_is_off() -> None:
    timeline, machines, provisioner = site(replace(TEN_MIN, fails=1.0))
    left = set()
    for number in range(12):
        provisioner.start("n1", "default", f"op{number}")
        timeline.run_until(timeline.now + 2000)
        left.add(machines.machine("n1").up)
        machines.power_on("n1")
        timeline.run_until(timeline.now + 100)
    assert left == {True, False}


@pytest.mark.parametrize(("kind", "error"), [("refuses", PermanentError), ("not_now", TransientError)])
def test_what_is_refused_is_not_begun(kind: str, error: type[Exception]) -> None:
    timeline, machines, provisioner = site(replace(TEN_MIN, **{kind: 1.0}))
    with pytest.raises(error):
        provisioner.start("n1", "default", "op")
    timeline.run_until(START_S + 10_000)
    assert machines.machine("n1").boots == 0
    assert provisioner.poll("op", "n1").state is ProvisionState.UNKNOWN


def test_what_was_not_begun_may_be_begun_later() -> None:
    timeline, machines, provisioner = site(replace(TEN_MIN, not_now=0.6))
    refused = 0
    for number in range(10):
        for _ in range(50):
            try:
                provisioner.start("n1", "default", f"op{number}")
                break
            except TransientError:
                refused += 1
        timeline.run_until(timeline.now + 10_000)
    assert 5 < refused < 50
    assert machines.machine("n1").boots == 10


def test_a_node_that_is_not_there_is_refused() -> None:
    with pytest.raises(PermanentError):
        site()[2].start("n99", "default", "op")


@pytest.mark.parametrize(
    ("bmc", "text"),
    [
        (BmcSettings(hangs=1.0), "the BMC: no answer in time"),
        (BmcSettings(deaf=1.0), "the installer never reported"),
    ],
)
def test_a_controller_that_does_nothing_fails_the_reimage(bmc: BmcSettings, text: str) -> None:
    timeline, machines, provisioner = site(bmc=bmc)
    provisioner.start("n1", "default", "op")
    timeline.run_until(START_S + 10_000)
    status = provisioner.poll("op", "n1")
    assert (status.state, status.text) == (ProvisionState.FAILED, text)
    assert machines.usable("n1")


def test_a_broken_host_does_not_boot_the_new_image() -> None:
    timeline, machines, provisioner = site()
    fault_with(machines, "n1", "io_board", 0.9)
    provisioner.start("n1", "default", "op")
    timeline.run_until(START_S + 10_000)
    assert provisioner.poll("op", "n1").state is ProvisionState.FAILED
    assert machines.machine("n1").stuck


def test_a_boot_that_is_lost_is_given_up() -> None:
    timeline, _, machines = toy_fleet(settings=replace(QUICK, boot_late=1.0, late_factor=1000.0))
    provisioner = SimProvisioner(machines, Bmcs(machines, BmcSettings()), TEN_MIN)
    provisioner.start("n1", "default", "op")
    timeline.run_until(START_S + 3599)
    assert provisioner.poll("op", "n1").state is ProvisionState.RUNNING
    timeline.run_until(START_S + 3601)
    assert provisioner.poll("op", "n1").state is ProvisionState.FAILED


def test_power_that_somebody_uses_in_between_ends_the_reimage() -> None:
    timeline, machines, provisioner = site()
    provisioner.start("n1", "default", "op")
    timeline.run_until(START_S + 100)
    machines.replace_parts("n1")
    timeline.run_until(START_S + 1000)
    assert provisioner.poll("op", "n1").state is ProvisionState.FAILED
    assert machines.usable("n1")


def test_a_node_that_leaves_the_fleet_ends_the_reimage() -> None:
    timeline, machines, provisioner = site()
    provisioner.start("n1", "default", "op")
    timeline.run_until(START_S + 100)
    machines.remove("n1")
    timeline.run_until(START_S + 1000)
    assert provisioner.poll("op", "n1").state is ProvisionState.FAILED


# ---------------------------------------------------------------- controllers


def asked(timeline: Timeline, bmcs: Bmcs, what: Power) -> tuple[float, Answer]:
    answers: list[tuple[float, Answer]] = []
    began = timeline.now
    bmcs.ask("n1", what, "power", lambda answer: answers.append((timeline.now - began, answer)))
    timeline.run_until(timeline.now + 100)
    assert len(answers) == 1
    return answers[0]


def test_a_controller_tells_and_sets_the_power() -> None:
    timeline, _, machines = toy_fleet()
    bmcs = Bmcs(machines, BmcSettings())
    assert asked(timeline, bmcs, Power.STATE) == (1.0, Answer(True, True))
    assert asked(timeline, bmcs, Power.ON)[1] == Answer(False, True, "409: the power is on")
    assert asked(timeline, bmcs, Power.OFF)[1].ok
    assert not machines.machine("n1").up
    assert asked(timeline, bmcs, Power.STATE)[1].powered is False
    assert asked(timeline, bmcs, Power.ON)[1].ok
    assert machines.usable("n1")
    assert asked(timeline, bmcs, Power.CYCLE)[1].ok
    assert machines.machine("n1").boots == 2


def test_a_controller_has_its_vices() -> None:
    timeline, _, machines = toy_fleet()
    machines.power_off("n1")
    assert asked(timeline, Bmcs(machines, BmcSettings(lies=1.0)), Power.STATE)[1].powered is True
    assert asked(timeline, Bmcs(machines, BmcSettings(deaf=1.0)), Power.ON)[1].ok
    assert not machines.machine("n1").powered
    assert asked(timeline, Bmcs(machines, BmcSettings(hangs=1.0)), Power.ON) == (
        60.0,
        Answer(False, text="no answer in time"),
    )
    assert asked(timeline, Bmcs(machines, BmcSettings(slow=1.0)), Power.STATE)[0] == 20.0
