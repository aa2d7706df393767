"""Nodes of the simulated slurmctld, as far as the measured facts do not speak of them."""

import math

import pytest

from slurm_lifecycle.simulation.slurmctld import NodeSpec, SlurmConf, SlurmRefused
from tests.unit.simulation.slurmctld_bench import Bench


def test_a_list_is_not_atomic() -> None:
    bench = Bench(3)
    with pytest.raises(SlurmRefused, match="Invalid node name"):
        bench.ctld.update_node("n1,n99,n2", "DRAIN", "fan")
    assert bench.state("n1") == bench.state("n2") == {"IDLE", "DRAIN"}
    with pytest.raises(SlurmRefused, match="Invalid node state"):
        bench.ctld.update_node("n1,n3", "RESUME")
    assert "DRAIN" not in bench.state("n1")
    bench.ctld.update_node("ALL", "DRAIN", "all of them")
    assert all("DRAIN" in view.state for view in bench.ctld.views().values())


@pytest.mark.parametrize("verb", ["DRAIN", "DOWN", "FAIL"])
def test_what_takes_a_node_out_needs_a_reason(verb: str) -> None:
    bench = Bench(1)
    with pytest.raises(SlurmRefused, match="reason"):
        bench.ctld.update_node("n1", verb, " ")
    assert bench.state("n1") == {"IDLE"}


def test_fail_and_drain_clear_each_other() -> None:
    bench = Bench(1)
    bench.ctld.update_node("n1", "FAIL", "psu")
    assert bench.state("n1") == {"IDLE", "FAIL"}
    assert not bench.ctld.in_service("n1")
    bench.ctld.update_node("n1", "DRAIN", "psu")
    assert bench.state("n1") == {"IDLE", "DRAIN"}
    with pytest.raises(SlurmRefused):
        bench.ctld.update_node("n1", "NONSENSE")


def test_each_change_is_told_once_and_nothing_else_is() -> None:
    bench = Bench(2)
    bench.changes.clear()
    bench.ctld.update_node("n1", "DRAIN", "fan")
    bench.ctld.update_node("n1", "DRAIN", "fan")
    bench.ctld.set_extra("n2", "x")
    bench.ctld.set_extra("n2", "x")
    bench.ctld.set_comment("n2", "y")
    bench.run(1000)
    assert bench.changes == ["n1", "n2", "n2"]
    bench.ctld.update_node("n1", "UNDRAIN")
    bench.run(1000)
    assert bench.changes == ["n1", "n2", "n2", "n1", "n1"]


def test_a_snapshot_never_changes_and_views_are_kept() -> None:
    bench = Bench(3)
    before = bench.ctld.snapshot()
    assert bench.ctld.snapshot() is before
    bench.ctld.update_node("n2", "DRAIN", "fan")
    after = bench.ctld.snapshot()
    assert before["n2"].state == {"IDLE"}
    assert after["n2"].state == {"IDLE", "DRAIN"}
    assert after["n1"] is before["n1"]
    assert bench.ctld.views()["n2"] is after["n2"]
    assert list(after) == ["n1", "n2", "n3"]


def test_what_is_told_of_sees_the_new_view() -> None:
    bench = Bench(1, SlurmConf(slurmd_timeout_s=60))
    seen: list[tuple[str, frozenset[str]]] = []
    bench.ctld.on_node_change.append(lambda name: seen.append(("node", bench.ctld.view(name).state)))
    bench.ctld.on_job_end.append(lambda job, how: seen.append((how, bench.ctld.view("n1").state)))
    bench.submit()
    bench.run(1)
    bench.ctld.fell_silent("n1")
    bench.run(100)
    down = frozenset({"DOWN", "NOT_RESPONDING"})
    silent = frozenset({"ALLOCATED", "NOT_RESPONDING"})
    assert seen == [("node", frozenset({"ALLOCATED"})), ("node", silent), ("node", down), ("node_fail", down)]


def test_a_boot_time_is_unknown_while_the_node_does_not_answer() -> None:
    bench = Bench(1)
    assert bench.ctld.view("n1").boot_time_s == bench.began - 100
    bench.ctld.update_node("n1", "UNDRAIN")
    view = bench.ctld.view("n1")
    assert view.state == {"IDLE", "NOT_RESPONDING"}
    assert (view.boot_time_s, view.slurmd_start_s) == (None, None)
    bench.run(2)
    assert bench.ctld.view("n1").boot_time_s == bench.began - 100


def test_a_resumed_node_that_does_not_answer_goes_down_again() -> None:
    bench = Bench(1, SlurmConf(slurmd_timeout_s=60))
    bench.ctld.fell_silent("n1")
    bench.run(200)
    assert bench.ctld.view("n1").reason == "Not responding"
    bench.ctld.update_node("n1", "RESUME")
    assert bench.state("n1") == {"IDLE", "NOT_RESPONDING"}
    assert not bench.ctld.in_service("n1")
    bench.run(200)
    assert bench.state("n1") == {"DOWN", "NOT_RESPONDING"}


def test_a_stale_reason_of_ours_becomes_the_reason_of_an_outage() -> None:
    bench = Bench(1, SlurmConf(release="24.11", slurmd_timeout_s=60))
    bench.ctld.update_node("n1", "DRAIN", "slc:XID79 gpu3")
    bench.ctld.update_node("n1", "UNDRAIN")
    bench.run(2)
    assert (bench.state("n1"), bench.ctld.view("n1").reason) == ({"IDLE"}, "slc:XID79 gpu3")
    bench.ctld.fell_silent("n1")
    bench.run(100)
    assert bench.ctld.view("n1").reason == "slc:XID79 gpu3 : Not responding"


def test_nodes_come_and_go() -> None:
    bench = Bench(2)
    job = bench.submit(2)
    now = bench.timeline.now
    bench.ctld.create_reservation("r", ("n2",), now + 1e6, math.inf)
    bench.ctld.create_reservation("s", ("n1", "n2"), now + 1e6, math.inf, ("MAINT",))
    bench.run(1)
    bench.ctld.remove_node("n2")
    assert bench.changes[-2:] == ["n2", "n1"]
    assert set(bench.ctld.views()) == {"n1"}
    assert bench.ends == [(job, "node_fail")]
    assert bench.ctld.reservations()["s"].nodes == ("n1",)
    assert "r" not in bench.ctld.reservations()
    with pytest.raises(SlurmRefused):
        bench.ctld.view("n2")
    bench.run(10)
    bench.ctld.add_node(NodeSpec("n2"))
    bench.ctld.registered("n2", bench.timeline.now - 5, 8)
    assert bench.state("n2") == {"IDLE"}
    bench.run(200)
    assert bench.nodes_of(job) == ("n1", "n2")
    with pytest.raises(SlurmRefused):
        bench.ctld.add_node(NodeSpec("n2"))


def test_a_lost_gpu_takes_the_node_out_until_it_registers_whole() -> None:
    bench = Bench(1)
    job = bench.submit()
    bench.run(1)
    bench.ctld.registered("n1", bench.began - 100, 7)
    assert bench.state("n1") == {"ALLOCATED", "DRAIN", "INVALID_REG"}
    assert bench.job(job).state == "RUNNING"
    for verb in ("RESUME", "UNDRAIN", "IDLE"):
        with pytest.raises(SlurmRefused):
            bench.ctld.update_node("n1", verb)
    bench.ctld.registered("n1", bench.began - 100, 8)
    bench.ctld.update_node("n1", "UNDRAIN")
    bench.run(2)
    assert bench.state("n1") == {"ALLOCATED"}


def test_a_restart_of_slurmctld_shows_nodes_unknown_for_a_moment() -> None:
    bench = Bench(2)
    bench.ctld.update_node("n1", "DRAIN", "fan")
    bench.ctld.restart()
    assert bench.state("n1") == {"UNKNOWN", "DRAIN"}
    assert bench.state("n2") == {"UNKNOWN"}
    bench.run(2)
    assert bench.state("n1") == {"IDLE", "DRAIN"}
    assert bench.state("n2") == {"IDLE"}


def test_a_reboot_runs_once_and_only_where_something_answers() -> None:
    bench = Bench(2)
    bench.ctld.update_node("n1,n2", "DRAIN", "fan")
    bench.ctld.fell_silent("n2")
    for _ in range(3):
        bench.ctld.reboot("n1")
        bench.ctld.reboot("n2")
    bench.run(60)
    assert bench.side.rebooted == ["n1"]
    assert bench.state("n1") == {"IDLE", "DRAIN"}
    assert "REBOOT_REQUESTED" in bench.state("n2")
    with pytest.raises(SlurmRefused):
        bench.ctld.reboot("n1", nextstate="SIDEWAYS")


def test_in_service_means_that_a_users_job_may_start_there() -> None:
    bench = Bench(2)
    now = bench.timeline.now
    assert bench.ctld.in_service("n1")
    bench.ctld.create_reservation("slc-x", ("n1",), now, math.inf, ("MAINT", "IGNORE_JOBS"))
    # The fence works at once, its token comes later.
    assert "MAINTENANCE" not in bench.state("n1")
    assert not bench.ctld.in_service("n1")
    bench.run(6)
    assert bench.state("n1") == {"IDLE", "MAINTENANCE", "RESERVED"}
    bench.ctld.delete_reservation("slc-x")
    assert bench.ctld.in_service("n1")
    bench.submit(2)
    bench.run(1)
    assert bench.state("n1") == {"ALLOCATED"}
    assert bench.ctld.in_service("n1")


def test_slurms_own_drain_writes_no_reason_over_one_that_is_stale() -> None:
    bench = Bench(1, SlurmConf(release="24.11"))
    bench.ctld.update_node("n1", "DRAIN", "slc:XID79 gpu3")
    bench.ctld.update_node("n1", "UNDRAIN")
    bench.run(2)
    bench.ctld.registered("n1", bench.began - 100, 7)
    assert bench.state("n1") == {"IDLE", "DRAIN", "INVALID_REG"}
    assert bench.ctld.view("n1").reason == "slc:XID79 gpu3"


def test_a_node_that_registered_with_less_is_not_pinged() -> None:
    bench = Bench(2, SlurmConf(slurmd_timeout_s=60))
    bench.ctld.registered("n1", bench.began - 100, 7)
    bench.ctld.fell_silent("n1")
    bench.ctld.fell_silent("n2")
    bench.run(1000)
    assert bench.state("n1") == {"IDLE", "DRAIN", "INVALID_REG"}
    assert bench.state("n2") == {"DOWN", "NOT_RESPONDING"}


def test_resume_of_a_node_that_only_failed_asks_it_nothing() -> None:
    bench = Bench(1)
    bench.ctld.update_node("n1", "FAIL", "psu")
    bench.ctld.update_node("n1", "RESUME")
    assert bench.state("n1") == {"IDLE"}


def test_an_update_after_a_reboot_that_timed_out_ends_what_was_promised_for_it() -> None:
    conf = SlurmConf(release="25.11", return_to_service=2, resume_timeout_s=20)
    bench = Bench(2, conf)
    bench.side.reboot = bench.ctld.fell_silent  # type: ignore[method-assign]
    for name in ("n1", "n2"):
        bench.ctld.reboot(name, asap=True)
    bench.run(60)
    assert bench.state("n1") >= {"DOWN", "DRAIN"}
    bench.ctld.update_node("n2", "DRAIN", "slc:BOOT_TIMEOUT")
    for name in ("n1", "n2"):
        bench.ctld.registered(name, bench.timeline.now - 1, 8)
    assert bench.state("n1") == {"IDLE"}
    assert bench.state("n2") == {"IDLE", "DRAIN"}
