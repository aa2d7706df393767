"""Machines: boots, power, what a boot mends, and what faults do to hosts and jobs."""

from dataclasses import replace
from itertools import pairwise

import pytest

from slurm_lifecycle.simulation.machines.faults import KINDS, MAX_SHOWS
from slurm_lifecycle.simulation.machines.machine import Machine, Machines
from slurm_lifecycle.simulation.timeline import START_S
from tests.unit.simulation.toy import QUICK, fault_with, toy_fleet


def test_a_reboot_ends_the_boot_and_another_one_registers() -> None:
    timeline, ctld, machines = toy_fleet()
    before = machines.machine("n1").boot_id
    machines.reboot("n1")
    timeline.run_until(START_S + 100)
    machine = machines.machine("n1")
    assert ctld.told == [(START_S + 1, "n1", "silent"), (START_S + 31, "n1", "registered 8")]
    assert machine.boot_id != before
    assert START_S < machine.boot_time_s < START_S + 31
    assert machines.usable("n1")
    assert len(machine.boot_id) == 36


def test_while_it_goes_down_the_machine_still_answers() -> None:
    timeline, _, machines = toy_fleet()
    machines.reboot("n1")
    machines.reboot("n1")
    assert machines.responds("n1")
    timeline.run_until(START_S + 2)
    assert not machines.responds("n1")
    timeline.run_until(START_S + 500)
    assert machines.machine("n1").boots == 1


def test_a_lost_boot_stays_away_until_power_is_cycled_by_somebody_with_luck() -> None:
    timeline, ctld, machines = toy_fleet(settings=replace(QUICK, boot_lost=1.0))
    machines.reboot("n1")
    timeline.run_until(START_S + 10_000)
    assert ctld.words("n1") == ["silent"]
    assert machines.faulty("n1")
    machines.replace_parts("n1")
    timeline.run_until(START_S + 20_000)
    assert machines.usable("n1")


def test_a_late_boot_comes_late() -> None:
    timeline, ctld, machines = toy_fleet(settings=replace(QUICK, boot_late=1.0, late_factor=10.0))
    machines.reboot("n1")
    timeline.run_until(START_S + 1000)
    assert ctld.told[-1] == (START_S + 301, "n1", "registered 8")


def test_what_a_boot_does_is_drawn_per_machine_and_boot() -> None:
    settings = replace(QUICK, boot_spread=0.3)
    alone, ctld_alone, machines_alone = toy_fleet(1, settings=settings)
    among, ctld_among, machines_among = toy_fleet(9, settings=settings)
    machines_among.reboot("n5")
    for machines in (machines_alone, machines_among):
        machines.reboot("n1")
    alone.run_until(START_S + 100)
    among.run_until(START_S + 100)
    assert [one for one in ctld_among.told if one[1] == "n1"] == ctld_alone.told
    assert machines_among.machine("n1").boot_id == machines_alone.machine("n1").boot_id


@pytest.mark.parametrize(
    ("luck", "reboots", "mended"), [(0.3, 1, True), (0.6, 1, False), (0.6, 3, False)], ids=str
)
def test_a_reboot_mends_what_was_drawn_so_and_trying_again_does_not_help(
    luck: float, reboots: int, mended: bool
) -> None:
    timeline, ctld, machines = toy_fleet()
    fault_with(machines, "n1", "gpu_off_bus", luck)
    for number in range(reboots):
        machines.reboot("n1")
        timeline.run_until(START_S + 100 * (number + 1))
    assert machines.faulty("n1") is not mended
    assert ctld.words("n1")[-1] == ("registered 8" if mended else "registered 7")


def test_a_fault_that_a_boot_hides_comes_back_later() -> None:
    timeline, _, machines = toy_fleet()
    fault = fault_with(machines, "n1", "gpu_hang", 0.99)
    fault.hidden_s = 500.0
    machines.reboot("n1")
    timeline.run_until(START_S + 100)
    assert (fault.shown, machines.usable("n1"), machines.faulty("n1")) == (False, True, True)
    timeline.run_until(START_S + 600)
    assert fault.shown
    assert not machines.usable("n1")
    for number in range(2):
        machines.reboot("n1")
        timeline.run_until(START_S + 2000 * (number + 1))
    machines.reboot("n1")
    timeline.run_until(timeline.now + 50)
    assert fault.shown


def test_a_flap_goes_and_comes_and_in_the_end_stays_away() -> None:
    timeline, _, machines = toy_fleet()
    fault = fault_with(machines, "n1", "nvlink", 0.99)
    fault.lasts_s, fault.away_s = 50.0, 100.0
    # The first time was drawn when it began.
    seen = []
    for _ in range(4000):
        timeline.run_until(timeline.now + 10)
        seen.append(fault.shown)
    assert fault.shows == MAX_SHOWS
    assert fault.cleared_by == "time"
    assert sum(before and not after for before, after in pairwise(seen)) == MAX_SHOWS


def test_parts_that_are_replaced_mend_everything() -> None:
    timeline, ctld, machines = toy_fleet()
    machines.machine("n1").lemon = True
    fault_with(machines, "n1", "psu_dead", 0.999)
    fault_with(machines, "n1", "hbm_remap_failed", 0.999)
    machines.power_cycle("n1")
    timeline.run_until(START_S + 1000)
    assert machines.machine("n1").stuck
    machines.replace_parts("n1")
    timeline.run_until(START_S + 2000)
    assert machines.usable("n1")
    assert not machines.machine("n1").lemon
    assert ctld.words("n1") == ["silent", "registered 8"]


def test_a_cable_that_is_down_makes_the_node_silent_and_its_return_registers_the_same_boot() -> None:
    timeline, ctld, machines = toy_fleet()
    before = machines.machine("n1").boot_id
    fault = fault_with(machines, "n1", "cable_down", 0.0)
    assert not machines.responds("n1")
    assert machines.machine("n1").up
    machines.clear("n1", fault.key)
    assert ctld.words("n1") == ["silent", "registered 8"]
    assert machines.machine("n1").boot_id == before
    timeline.run_until(START_S + 1e6)
    assert ctld.words("n1") == ["silent", "registered 8"]


def test_a_machine_that_boots_behind_a_dead_cable_registers_when_it_is_back() -> None:
    timeline, ctld, machines = toy_fleet()
    fault = machines.fault("n1", KINDS["leaf_switch"])
    machines.power_cycle("n1")
    timeline.run_until(START_S + 1000)
    assert ctld.words("n1") == ["silent", "silent"]
    machines.clear("n1", fault.key)
    assert ctld.words("n1")[-1] == "registered 8"


def test_a_boot_that_brings_the_network_back_registers_once_and_after_its_own_hooks() -> None:
    timeline, ctld, machines = toy_fleet()
    fault_with(machines, "n1", "nic_dead", 0.99)
    before: list[list[str]] = []
    machines.on_boot.append(lambda machine: before.append(ctld.words(machine.name)))
    machines.replace_parts("n1")
    timeline.run_until(START_S + 1000)
    assert before == [["silent", "silent"]]
    assert ctld.words("n1") == ["silent", "silent", "registered 8"]


def test_a_host_that_reboots_by_itself_registers_a_new_boot() -> None:
    timeline, ctld, machines = toy_fleet()
    fault_with(machines, "n1", "cpu_machine_check", 0.0)
    timeline.run_until(START_S + 100)
    assert ctld.words("n1") == ["silent", "registered 8"]
    assert not machines.faulty("n1")


def test_a_fault_that_kills_the_host_in_a_boot_ends_that_boot() -> None:
    timeline, ctld, machines = toy_fleet()
    machines.reboot("n1")
    timeline.run_until(START_S + 10)
    fault_with(machines, "n1", "io_board", 0.999)
    timeline.run_until(START_S + 1000)
    assert ctld.words("n1") == ["silent"]
    assert machines.machine("n1").stuck


def test_slurmd_alone_may_die_and_come_back() -> None:
    _, ctld, machines = toy_fleet()
    machines.stop_slurmd("n1")
    assert machines.machine("n1").up
    assert not machines.responds("n1")
    machines.start_slurmd("n1")
    assert ctld.words("n1") == ["silent", "registered 8"]


def test_a_machine_that_is_taken_out_does_nothing_any_more() -> None:
    timeline, ctld, machines = toy_fleet()
    machines.reboot("n1")
    fault_with(machines, "n2", "nvlink", 0.9)
    timeline.run_until(START_S + 10)
    machines.remove("n1")
    machines.remove("n2")
    told = list(ctld.told)
    timeline.run_until(START_S + 1e6)
    assert ctld.told == told
    assert machines.names() == ["n3"]


# ---------------------------------------------------------------- jobs


def test_a_crash_ends_the_job_at_once_and_the_fault_is_to_blame() -> None:
    _, ctld, machines = toy_fleet()
    struck: list[tuple[str, str]] = []
    machines.strikes.on_strike.append(lambda job, fault: struck.append((job, fault.kind.key)))
    ctld.run("7", ["n1", "n2"])
    ctld.run("8", ["n3"])
    fault = fault_with(machines, "n2", "gpu_off_bus", 0.0)
    assert ctld.ended == [("7", "failed")]
    assert machines.strikes.blame("7") is fault
    assert machines.strikes.blame("8") is None
    assert struck == [("7", "gpu_off_bus")]


def test_a_hang_ends_the_job_when_it_is_noticed() -> None:
    timeline, ctld, machines = toy_fleet()
    ctld.run("7", ["n1", "n2"])
    fault = fault_with(machines, "n2", "gsp_timeout", 0.0)
    timeline.run_until(START_S + fault.hang_s - 1)
    assert ctld.ended == []
    timeline.run_until(START_S + fault.hang_s + 1)
    assert ctld.ended == [("7", "failed")]


def test_a_hang_does_not_end_a_later_run_of_the_job() -> None:
    timeline, ctld, machines = toy_fleet()
    job = ctld.run("7", ["n1", "n2"])
    fault = fault_with(machines, "n2", "gsp_timeout", 0.0)
    timeline.run_until(START_S + 10)
    job.restarts += 1
    timeline.run_until(START_S + fault.hang_s + 1)
    assert ctld.ended == []


def test_a_job_that_starts_on_a_broken_node_fails_soon() -> None:
    timeline, ctld, machines = toy_fleet()
    fault = fault_with(machines, "n2", "driver_mismatch", 0.9)
    machines.strikes.job_started(ctld.run("7", ["n1", "n2"]))
    machines.strikes.job_started(ctld.run("8", ["n3"]))
    timeline.run_until(START_S + 1000)
    assert ctld.ended == [("7", "failed")]
    assert machines.strikes.blame("7") is fault


def test_a_mismatch_leaves_a_running_job_alone() -> None:
    timeline, ctld, machines = toy_fleet()
    ctld.run("7", ["n2"])
    fault_with(machines, "n2", "driver_mismatch", 0.9)
    timeline.run_until(START_S + 1000)
    assert ctld.ended == []


def test_a_silent_kind_ends_the_job_and_leaves_nothing_behind() -> None:
    _, ctld, machines = toy_fleet()
    ctld.run("7", ["n2"])
    fault = machines.fault("n2", KINDS["switch_fault"])
    assert ctld.ended == [("7", "failed")]
    assert machines.strikes.blame("7") is fault
    assert not machines.faulty("n2")
    assert machines.usable("n2")


def test_the_same_fault_once_more_strikes_again_and_is_one() -> None:
    _, ctld, machines = toy_fleet()
    began: list[str] = []
    machines.on_fault.append(lambda fault: began.append(fault.key))
    for number in range(2):
        ctld.run(str(number), ["n2"])
        machines.fault("n2", KINDS["hbm_remap_failed"], "gpu3")
    assert [job for job, _ in ctld.ended] == ["0", "1"]
    assert began == ["hbm_remap_failed.gpu3"]


def test_hooks_tell_the_whole_story_in_order() -> None:
    timeline, _, machines = toy_fleet()
    story: list[str] = []

    def watch(machines: Machines) -> None:
        machines.on_fault.append(lambda fault: story.append("fault"))
        machines.on_show.append(lambda fault: story.append("show"))
        machines.on_hide.append(lambda fault: story.append("hide"))
        machines.on_cleared.append(lambda fault: story.append(f"cleared by {fault.cleared_by}"))
        machines.on_down.append(lambda machine: story.append("down"))
        machines.on_boot.append(boot)

    def boot(machine: Machine) -> None:
        story.append(f"boot after {machine.rung}")

    watch(machines)
    fault_with(machines, "n1", "gpu_hang", 0.5)
    machines.reboot("n1")
    timeline.run_until(START_S + 100)
    assert story == ["fault", "show", "down", "hide", "cleared by reboot", "boot after reboot"]
