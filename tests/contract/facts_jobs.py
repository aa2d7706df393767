"""Facts about jobs: prologs that fail, requeues, moves, shrinks. The values were measured on each release."""

from collections.abc import Callable

import pytest

from tests.contract.facts_reboot import X
from tests.contract.rig import OURS, Rig, becomes, gone, job_of, job_state, runs, shows

HELD_BY_PROLOG = "launch failed requeued held"


def settles(rig: Rig, job_id: str) -> None:
    """Wait until a job that was requeued is off its nodes."""
    assert rig.wait(lambda: job_state(rig, job_id) == "PENDING")


def sooner_than_the_delay(rig: Rig, once: Callable[[], None]) -> None:
    """Whether it is done before a requeued job would start by itself; a busy machine gets three tries."""
    for _ in range(3):
        began = rig.now()
        once()
        if rig.now() - began < rig.requeue_delay_s - 2:
            return
    pytest.fail("each time it took as long as the delay of a requeue")


class PrologFacts:
    """What a prolog's exit 1 does. Each test finds both nodes in service and the queue empty."""

    def test_a_failed_prolog_drains_the_node_and_holds_the_job(self, rig: Rig) -> None:
        node = rig.nodes[0]
        rig.prolog_fails(node)
        job = rig.submit(node)
        assert shows(rig, node, "DRAIN").reason == "Prolog error"
        assert rig.wait(lambda: job_of(rig, job).reason == HELD_BY_PROLOG)
        view = job_of(rig, job)
        assert (view.state, view.restarts, view.nodes) == ("PENDING", 1, ())
        becomes(rig, node, "IDLE", "DRAIN")
        rig.slurm.drain(node, OURS)
        assert rig.slurm.node(node).reason == OURS

    def test_a_text_that_is_there_before_stays(self, rig: Rig) -> None:
        node = rig.nodes[0]
        rig.prolog_fails(node, drains_as=OURS)
        job = rig.submit(node)
        assert rig.wait(lambda: job_of(rig, job).reason == HELD_BY_PROLOG)
        assert becomes(rig, node, "IDLE", "DRAIN").reason == OURS

    def test_its_job_starts_after_a_release_and_the_requeue_delay(self, rig: Rig) -> None:
        node, other = rig.nodes
        rig.prolog_fails(node)
        rig.slurm.drain(other, OURS)
        job = rig.submit()
        assert rig.wait(lambda: job_of(rig, job).reason == HELD_BY_PROLOG)
        failed = rig.now()
        rig.slurm.undrain(other)
        rig.slurm.release(job)
        assert rig.wait(lambda: job_of(rig, job).reason == "BeginTime")
        assert runs(rig, job, rig.requeue_delay_s + 60)
        assert rig.now() - failed > rig.requeue_delay_s / 2
        assert (job_of(rig, job).nodes, job_of(rig, job).restarts) == ((other,), 1)

    def test_a_job_that_may_not_requeue_is_lost(self, rig: Rig) -> None:
        node = rig.nodes[0]
        rig.prolog_fails(node)
        job = rig.submit(node, requeue=False)
        assert shows(rig, node, "DRAIN").reason == "Prolog error"
        assert gone(rig, job)

    def test_each_failed_prolog_costs_a_job_and_a_node(self, rig: Rig) -> None:
        for node in rig.nodes:
            rig.prolog_fails(node)
        first = rig.submit()
        assert rig.wait(lambda: job_of(rig, first).reason == HELD_BY_PROLOG)
        assert sum("DRAIN" in node.state for node in rig.slurm.nodes().values()) == 1
        second = rig.submit()
        assert rig.wait(lambda: job_of(rig, second).reason == HELD_BY_PROLOG)
        assert all("DRAIN" in node.state for node in rig.slurm.nodes().values())

    def test_one_failed_prolog_of_a_job_of_two_nodes(self, rig: Rig) -> None:
        first, second = rig.nodes
        rig.prolog_fails(second)
        job = rig.submit(count=2)
        assert shows(rig, second, "DRAIN").reason == "Prolog error"
        assert rig.wait(lambda: job_of(rig, job).reason == HELD_BY_PROLOG)
        assert job_of(rig, job).restarts == 1
        becomes(rig, first, "IDLE")


class JobFacts:
    """Requeues, moves and shrinks. Each test finds both nodes in service and the queue empty."""

    def test_a_requeued_job_starts_again_after_the_delay(self, rig: Rig) -> None:
        node = rig.nodes[0]
        job = rig.submit(node)
        assert runs(rig, job)
        began = rig.now()
        rig.slurm.requeue(job)
        becomes(rig, node, "IDLE")
        view = job_of(rig, job)
        assert (view.state, view.reason, view.restarts, view.nodes) == ("PENDING", "BeginTime", 1, ())
        assert runs(rig, job, rig.requeue_delay_s + 60)
        # It may start on the same node: nothing kept it off.
        assert job_of(rig, job).nodes == (node,)
        assert rig.requeue_delay_s - 2 <= rig.now() - began

    def test_a_start_time_counts_once_the_job_is_pending(self, rig: Rig) -> None:
        job = rig.submit(rig.nodes[0])
        assert runs(rig, job)

        def start_again() -> None:
            rig.slurm.requeue(job)
            settles(rig, job)
            assert rig.update_job(job, start_now=True) == ""
            assert runs(rig, job)

        sooner_than_the_delay(rig, start_again)

    def test_a_start_time_given_while_completing_is_overwritten(self, rig: Rig) -> None:
        job = rig.submit(rig.nodes[0], ignores_term=True)
        assert runs(rig, job)
        # Its shell has set its trap by then.
        rig.pass_time(1.0)
        rig.slurm.requeue(job)
        assert job_state(rig, job) == "COMPLETING"
        assert rig.update_job(job, start_now=True) == ""
        settles(rig, job)
        assert rig.wait(lambda: job_of(rig, job).reason == "BeginTime")
        rig.pass_time(3.0)
        assert job_state(rig, job) == "PENDING"

    def test_a_job_that_ignores_term_holds_its_node_for_kill_wait(self, rig: Rig) -> None:
        node = rig.nodes[0]
        job = rig.submit(node, ignores_term=True)
        assert runs(rig, job)
        # Its shell has set its trap by then.
        rig.pass_time(1.0)
        began = rig.now()
        rig.cancel(job)
        assert "COMPLETING" in rig.slurm.node(node).state
        assert [view.job_id for view in rig.slurm.jobs_on(node)] == [job]
        becomes(rig, node, "IDLE", limit_s=rig.kill_wait_s + 60)
        assert rig.now() - began >= rig.kill_wait_s - 1
        assert gone(rig, job)

    def test_nodes_are_excluded_while_pending_only(self, rig: Rig) -> None:
        node, other = rig.nodes
        job = rig.submit()
        assert runs(rig, job)
        at = job_of(rig, job).nodes[0]
        assert rig.update_job(job, exclude=at) != ""
        rig.slurm.requeue(job)
        settles(rig, job)
        assert rig.update_job(job, exclude=at) == ""
        assert rig.update_job(job, start_now=True) == ""
        assert runs(rig, job)
        assert job_of(rig, job).nodes == (other if at == node else node,)

    def test_a_move_to_a_standby_node(self, rig: Rig) -> None:
        node, standby = rig.nodes
        assert rig.person_reserves("standby", [standby]) == ""
        job = rig.submit(node)
        assert runs(rig, job)

        def move() -> None:
            assert rig.requeue_held(job) == ""
            settles(rig, job)
            assert job_of(rig, job).reason == "job requeued in held state"
            assert rig.update_job(job, reservation="standby", nodelist="") == ""
            assert rig.update_job(job, start_now=True) == ""
            rig.slurm.release(job)
            assert runs(rig, job)
            assert job_of(rig, job).nodes == (standby,)

        sooner_than_the_delay(rig, move)

    def test_a_requeue_that_the_job_forbids(self, rig: Rig) -> None:
        job = rig.submit(rig.nodes[0], requeue=False)
        assert runs(rig, job)
        assert rig.requeue_held(job) != ""
        assert job_state(rig, job) == "RUNNING"
        assert rig.update_job(job, requeue=True) == ""
        rig.slurm.requeue(job)
        settles(rig, job)
        assert job_of(rig, job).restarts == 1

    def test_a_shrink_keeps_the_first_node_and_cannot_drop_it(self, rig: Rig) -> None:
        node, other = rig.nodes
        job = rig.submit(count=2)
        assert runs(rig, job)
        assert job_of(rig, job).nodes == (node, other)
        assert rig.update_job(job, keep=other) != ""
        assert rig.wait(lambda: rig.update_job(job, count=1) == "")
        assert rig.wait(lambda: job_of(rig, job).nodes == (node,))
        becomes(rig, other, "IDLE")
        assert job_state(rig, job) == "RUNNING"

    def test_a_shrink_to_a_named_node(self, rig: Rig) -> None:
        node, other = rig.nodes
        job = rig.submit(count=2)
        assert runs(rig, job)
        assert rig.wait(lambda: rig.update_job(job, keep=node) == "")
        assert rig.wait(lambda: job_of(rig, job).nodes == (node,))
        becomes(rig, other, "IDLE")

    def test_a_requeued_job_keeps_no_claim_on_its_nodes(self, rig: Rig) -> None:
        first = rig.submit(rig.nodes[0])
        assert runs(rig, first)
        second = rig.submit(count=2)
        rig.slurm.requeue(first)
        assert runs(rig, second)
        assert job_state(rig, first) == "PENDING"
        rig.cancel(second)
        assert gone(rig, second)
        assert runs(rig, first, rig.requeue_delay_s + 60)

    def test_a_job_that_insists_on_a_drained_node_waits_until_it_no_longer_does(self, rig: Rig) -> None:
        node, other = rig.nodes
        rig.person_drains(node, X)
        job = rig.submit(node)
        rig.pass_time(3.0)
        assert job_state(rig, job) == "PENDING"
        assert rig.update_job(job, nodelist="") == ""
        assert runs(rig, job)
        assert job_of(rig, job).nodes == (other,)

    @pytest.mark.parametrize("end", ["cancel", "resume"])
    def test_a_suspended_job(self, rig: Rig, end: str) -> None:
        node = rig.nodes[0]
        job = rig.submit(node)
        assert runs(rig, job)
        rig.suspend(job)
        assert job_of(rig, job).nodes == (node,)
        assert becomes(rig, node, "IDLE").name == node
        if end == "resume":
            rig.resume_job(job)
            assert runs(rig, job)
            becomes(rig, node, "ALLOCATED")
        else:
            rig.cancel(job)
            assert gone(rig, job)
            becomes(rig, node, "IDLE")
