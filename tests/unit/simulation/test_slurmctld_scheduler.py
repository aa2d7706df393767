"""Which job starts where and when, of the simulated slurmctld."""

import math

import pytest

from slurm_lifecycle.simulation.slurmctld import SlurmRefused
from tests.unit.simulation.slurmctld_bench import Bench

HOUR = 3600.0


def test_a_gang_takes_as_many_nodes_as_it_finds_within_its_bounds() -> None:
    bench = Bench(5)
    bench.ctld.update_node("n2", "DRAIN", "fan")
    job = bench.submit(nodes_min=2, nodes_max=10)
    bench.run(1)
    assert bench.nodes_of(job) == ("n1", "n3", "n4", "n5")


def test_a_gang_waits_until_its_least_number_is_there() -> None:
    bench = Bench(3)
    bench.ctld.update_node("n2", "DRAIN", "fan")
    job = bench.submit(3)
    bench.run(HOUR)
    assert (bench.job(job).state, bench.job(job).reason) == ("PENDING", "ReqNodeNotAvail")
    bench.ctld.update_node("n2", "UNDRAIN")
    bench.run(2)
    assert bench.nodes_of(job) == ("n1", "n2", "n3")


def test_priority_goes_before_age_and_age_before_nothing() -> None:
    bench = Bench(1)
    old, young, urgent = bench.submit(), bench.submit(), bench.submit(priority=5)
    bench.run(1)
    for _ in range(2):
        bench.ctld.job_exits(bench.starts[-1][0], "completed")
        bench.run(2)
    assert [job for job, _ in bench.starts] == [urgent, old, young]


def test_a_short_job_fills_the_gap_before_a_gang_and_a_long_one_does_not() -> None:
    bench = Bench(4)
    bench.submit(3, time_limit_s=HOUR)
    bench.run(1)
    gang = bench.submit(4, time_limit_s=HOUR)
    long, short = bench.submit(time_limit_s=2 * HOUR), bench.submit(time_limit_s=HOUR / 2)
    bench.run(2)
    assert bench.job(gang).reason == "Resources"
    assert bench.job(long).reason == "Priority"
    assert bench.nodes_of(short) == ("n4",)
    bench.run(HOUR)
    assert bench.nodes_of(gang) == ("n1", "n2", "n3", "n4")


def test_a_long_job_may_take_the_nodes_that_the_gang_does_not_need() -> None:
    bench = Bench(6)
    bench.submit(3, time_limit_s=HOUR)
    bench.run(1)
    gang = bench.submit(4)
    first, second, third = (bench.submit(time_limit_s=100 * HOUR) for _ in range(3))
    bench.run(2)
    assert bench.nodes_of(first) == ("n4",)
    assert bench.nodes_of(second) == ("n5",)
    assert bench.job(third).state == "PENDING"
    bench.run(HOUR)
    assert len(bench.nodes_of(gang)) == 4


def test_a_job_that_nothing_can_satisfy_holds_up_nobody() -> None:
    bench = Bench(2)
    bench.ctld.update_node("n1", "DRAIN", "fan")
    bench.submit(nodelist=("n1",))
    job = bench.submit(time_limit_s=math.inf)
    bench.run(1)
    assert bench.nodes_of(job) == ("n2",)


def test_nodes_asked_for_by_name_and_nodes_excluded() -> None:
    bench = Bench(4)
    job = bench.submit(2, nodelist=("n3",), exclude=frozenset({"n1"}))
    bench.run(1)
    assert bench.nodes_of(job) == ("n2", "n3")


def test_held_jobs_and_jobs_with_a_begin_time() -> None:
    bench = Bench(1)
    held = bench.submit(held=True)
    bench.run(10)
    assert bench.job(held).reason == "JobHeldUser"
    bench.ctld.release(held)
    bench.run(1)
    bench.ctld.requeue(held)
    bench.run(60)
    assert (bench.job(held).state, bench.job(held).reason) == ("PENDING", "BeginTime")
    bench.run(65)
    assert bench.job(held).state == "RUNNING"


@pytest.mark.parametrize("flags", [("MAINT", "IGNORE_JOBS"), ()])
def test_before_a_future_reservation_only_what_fits(flags: tuple[str, ...]) -> None:
    bench = Bench(2)
    start_s = bench.timeline.now + HOUR
    bench.ctld.create_reservation("maint", ("n1",), start_s, start_s + HOUR, flags)
    long, short = bench.submit(time_limit_s=2 * HOUR), bench.submit(time_limit_s=HOUR / 2)
    bench.run(1)
    assert bench.nodes_of(long) == ("n2",)
    assert bench.nodes_of(short) == ("n1",)


def test_a_reservation_is_for_its_users_only() -> None:
    bench = Bench(2)
    now = bench.timeline.now
    bench.ctld.create_reservation("theirs", ("n1",), now, math.inf, users=("u7",))
    mine = bench.submit(2)
    theirs = bench.submit(uid=7, reservation="theirs")
    bench.run(1)
    assert bench.nodes_of(theirs) == ("n1",)
    assert bench.job(mine).state == "PENDING"
    with pytest.raises(SlurmRefused):
        bench.submit(uid=8, reservation="theirs")
    bench.ctld.update_reservation("theirs", nodes=("n2",))
    bench.run(1)
    assert bench.job(mine).state == "PENDING"


def test_passes_are_few_whatever_happens_at_once() -> None:
    bench = Bench(50)
    for _ in range(50):
        bench.submit()
    before = bench.timeline.done
    bench.run(1)
    assert len(bench.starts) == 50
    assert bench.timeline.done - before == 1


def test_a_job_without_a_place_to_run_is_refused() -> None:
    bench = Bench(2)
    with pytest.raises(SlurmRefused, match="partition"):
        bench.submit(partition="nowhere")
    with pytest.raises(SlurmRefused, match="not available"):
        bench.submit(3)
    with pytest.raises(SlurmRefused, match="node name"):
        bench.submit(nodelist=("n9",))
    with pytest.raises(SlurmRefused, match="reservation"):
        bench.submit(reservation="none")
