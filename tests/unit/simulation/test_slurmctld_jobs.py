"""Ends of jobs in the simulated slurmctld: who completes, who goes back to the queue, who is told."""

import pytest

from slurm_lifecycle.simulation.slurmctld import Job, JobSpec, SlurmConf, SlurmRefused
from tests.unit.simulation.slurmctld_bench import KILL_WAIT_S, Bench


def test_a_job_that_ends_completes_for_a_moment_and_is_gone() -> None:
    bench = Bench(2)
    job = bench.submit(2)
    bench.run(1)
    bench.ctld.job_exits(job, "completed")
    assert bench.ends == [(job, "completed")]
    assert bench.state("n1") == {"IDLE", "COMPLETING"}
    assert [view.job_id for view in bench.ctld.jobs_on("n1")] == [job]
    assert bench.ctld.job_views()[0].state == "COMPLETING"
    bench.run(1)
    assert bench.state("n1") == {"IDLE"}
    assert bench.ctld.job_views() == ()
    assert bench.ctld.jobs_on("n1") == ()


def test_one_that_ignores_term_is_killed_later_but_may_exit_by_itself() -> None:
    bench = Bench(2)
    stubborn, quick = bench.submit(ignores_term=True), bench.submit(ignores_term=True)
    bench.run(1)
    bench.ctld.cancel(stubborn)
    bench.ctld.job_exits(quick, "failed")
    bench.run(KILL_WAIT_S - 1)
    assert bench.state("n1") == {"IDLE", "COMPLETING"}
    assert bench.state("n2") == {"IDLE"}
    bench.run(2)
    assert bench.state("n1") == {"IDLE"}


def test_a_node_that_does_not_answer_goes_on_completing_until_it_does() -> None:
    bench = Bench(2)
    job = bench.submit(2)
    bench.run(1)
    bench.ctld.fell_silent("n2")
    bench.ctld.job_exits(job, "failed")
    bench.run(5)
    assert bench.state("n1") == {"IDLE"}
    assert bench.state("n2") >= {"IDLE", "COMPLETING"}
    assert bench.ctld.job_views()[0].nodes == ("n2",)
    bench.ctld.registered("n2", bench.began - 100, 8)
    assert bench.state("n2") == {"IDLE"}
    assert bench.ctld.job_views() == ()


def test_or_until_it_is_down() -> None:
    bench = Bench(2, SlurmConf(slurmd_timeout_s=60))
    job = bench.submit(2)
    bench.run(1)
    bench.ctld.fell_silent("n2")
    bench.ctld.requeue(job)
    bench.run(100)
    assert bench.state("n2") == {"DOWN", "NOT_RESPONDING"}
    assert (bench.job(job).state, bench.job(job).restarts) == ("PENDING", 1)
    assert bench.ends == [(job, "requeued")]


@pytest.mark.parametrize("requeue", [True, False])
def test_jobs_of_a_node_that_goes_down(requeue: bool) -> None:
    bench = Bench(3, SlurmConf(slurmd_timeout_s=60))
    job = bench.submit(3, requeue=requeue)
    bench.run(1)
    bench.ctld.fell_silent("n1")
    bench.run(50)
    assert bench.job(job).state == "RUNNING"
    bench.run(50)
    assert bench.ends == [(job, "node_fail")]
    assert (job in bench.ctld.jobs()) is requeue
    if requeue:
        assert bench.job(job).again
        assert (bench.job(job).state, bench.job(job).restarts) == ("PENDING", 1)


def test_jobs_of_a_node_that_boots_by_itself_within_the_timeout() -> None:
    bench = Bench(2)
    job = bench.submit(2)
    bench.run(100)
    bench.ctld.fell_silent("n1")
    bench.run(30)
    bench.ctld.registered("n1", bench.timeline.now - 5, 8)
    assert bench.ends == [(job, "node_fail")]
    assert bench.state("n1") == {"DOWN"}
    assert bench.ctld.view("n1").reason == "Node unexpectedly rebooted"
    assert bench.state("n2") == {"IDLE", "COMPLETING"}


def test_a_node_back_without_a_boot_keeps_its_job() -> None:
    bench = Bench(1)
    job = bench.submit()
    bench.run(1)
    bench.ctld.fell_silent("n1")
    bench.run(150)
    assert bench.state("n1") == {"ALLOCATED", "NOT_RESPONDING"}
    bench.ctld.registered("n1", bench.began - 100, 8)
    assert bench.state("n1") == {"ALLOCATED"}
    assert bench.job(job).state == "RUNNING"
    assert bench.ends == []


def test_a_time_limit_and_a_pause_in_it() -> None:
    bench = Bench(1)
    job = bench.submit(time_limit_s=100.0)
    bench.run(50)
    bench.ctld.suspend(job)
    assert bench.state("n1") == {"IDLE"}
    other = bench.submit()
    bench.run(500)
    assert bench.job(other).state == "PENDING"
    bench.ctld.resume_job(job)
    assert bench.state("n1") == {"ALLOCATED"}
    bench.run(49)
    assert bench.ends == []
    bench.run(2)
    assert bench.ends == [(job, "timeout")]


def test_a_failed_epilog_drains_before_the_node_is_free() -> None:
    bench = Bench(1)
    bench.side.bad_epilogs.add("n1")
    job, waiting = bench.submit(), bench.submit()
    bench.run(1)
    bench.ctld.job_exits(job, "completed")
    bench.run(60)
    assert bench.state("n1") == {"IDLE", "DRAIN"}
    assert bench.ctld.view("n1").reason == "Epilog error"
    assert bench.job(waiting).state == "PENDING"


def test_a_failed_prolog_starts_nothing_and_tells_of_an_end() -> None:
    bench = Bench(2)
    bench.side.bad_prologs.add("n2")
    job = bench.submit(2)
    bench.run(2)
    assert bench.starts == []
    assert bench.ends == [(job, "requeued")]
    assert bench.job(job).held
    assert bench.state("n1") == {"IDLE"}
    assert bench.state("n2") == {"IDLE", "DRAIN"}


def test_many_exclusive_jobs_and_prologs_that_all_fail_drain_the_fleet_in_seconds() -> None:
    bench = Bench(6)
    bench.side.bad_prologs.update(bench.ctld.views())
    for _ in range(12):
        bench.submit()
    bench.run(3)
    assert all(view.reason == "Prolog error" for view in bench.ctld.views().values())


def test_a_job_cancelled_while_it_completes_does_not_come_back() -> None:
    bench = Bench(1)
    job = bench.submit()
    bench.run(1)
    bench.ctld.requeue(job)
    bench.ctld.cancel(job)
    bench.run(5)
    assert job not in bench.ctld.jobs()


def test_a_job_cancelled_in_the_queue_is_told_of() -> None:
    bench = Bench(1)
    job = bench.submit(held=True)
    bench.ctld.cancel(job)
    assert bench.ends == [(job, "cancelled")]
    with pytest.raises(SlurmRefused, match="Invalid job id"):
        bench.ctld.cancel(job)


def test_a_shrink_frees_a_node_at_once_and_the_rest_runs_on() -> None:
    bench = Bench(3)
    job = bench.submit(3)
    bench.run(1)
    bench.ctld.update_job(job, nodes=("n1", "n3"))
    assert bench.state("n2") == {"IDLE", "COMPLETING"}
    bench.run(1)
    assert bench.state("n2") == {"IDLE"}
    assert bench.ctld.job_views()[0].nodes == ("n1", "n3")
    with pytest.raises(SlurmRefused, match="Invalid node name"):
        bench.ctld.update_job(job, nodes=("n3",))
    bench.ctld.job_exits(job, "completed")
    bench.run(1)
    assert bench.ctld.job_views() == ()


def test_what_an_end_calls_back_may_submit_again() -> None:
    bench = Bench(2)

    def submit_again(job: Job, how: str) -> None:
        assert how == "failed"
        bench.ctld.submit(job.spec)

    bench.ctld.on_job_end.append(submit_again)
    bench.ctld.submit(JobSpec("train", nodes_min=2, nodes_max=2))
    for _ in range(5):
        bench.run(5)
        bench.ctld.job_exits(bench.starts[-1][0], "failed")
    assert [nodes for _, nodes in bench.starts] == [("n1", "n2")] * 5
    assert len({job for job, _ in bench.starts}) == 5
