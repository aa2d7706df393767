"""Facts about updates of nodes and about their texts. The values were measured on each release."""

import pytest

from tests.contract.facts_reboot import X, stale
from tests.contract.rig import OURS, Rig, becomes, gone, job_state, look, runs, shows


class NodeFacts:
    """Each test finds both nodes in service and the queue empty."""

    def test_undrain_of_a_node_in_service_and_resume(self, rig: Rig) -> None:
        busy, idle = rig.nodes
        job = rig.submit(busy)
        assert runs(rig, job)
        for node, base in ((busy, "ALLOCATED"), (idle, "IDLE")):
            assert rig.person_resumes(node) != ""
            assert rig.slurm.node(node).state == {base}
            assert rig.person_undrains(node) == ""
            view = rig.slurm.node(node)
            # Not known until it has registered anew.
            assert (view.state == {base, "NOT_RESPONDING"}, view.boot_time_s) == (True, None)
            assert becomes(rig, node, base).boot_time_s is not None
        assert job_state(rig, job) == "RUNNING"

    def test_a_drain_of_a_node_that_is_down_replaces_the_reason(self, rig: Rig) -> None:
        node = rig.nodes[0]
        rig.person_downs(node, X)
        rig.slurm.drain(node, OURS)
        assert look(rig, node) == ({"DOWN", "DRAIN"}, OURS)

    def test_the_same_reason_again_keeps_its_time_and_another_one_renews_it(self, rig: Rig) -> None:
        node = rig.nodes[0]
        rig.slurm.drain(node, OURS)
        first = rig.slurm.node(node).reason_at_s
        rig.pass_time(2.0)
        rig.slurm.drain(node, OURS)
        assert rig.slurm.node(node).reason_at_s == first
        rig.person_drains(node, X)
        view = rig.slurm.node(node)
        assert view.reason == X
        assert (view.reason_at_s or 0.0) > (first or 0.0)

    def test_a_drain_needs_a_reason(self, rig: Rig) -> None:
        node = rig.nodes[0]
        assert rig.person_drains(node, "") != ""
        assert rig.slurm.node(node).state == {"IDLE"}

    def test_a_reason_alone(self, rig: Rig) -> None:
        drained, idle = rig.nodes
        rig.slurm.drain(drained, OURS)
        for node in rig.nodes:
            assert rig.person_writes_reason(node, X) == ""
        assert look(rig, drained) == ({"IDLE", "DRAIN"}, X)
        assert look(rig, idle) == ({"IDLE"}, stale(rig, X))

    def test_a_stale_reason_lasts_until_a_job_starts(self, rig: Rig) -> None:
        node = rig.nodes[0]
        rig.slurm.drain(node, OURS)
        rig.slurm.undrain(node)
        assert becomes(rig, node, "IDLE").reason == stale(rig, OURS)
        job = rig.submit(node)
        assert runs(rig, job)
        assert becomes(rig, node, "ALLOCATED").reason == ""

    def test_a_drain_with_the_text_that_is_stale_renews_its_time(self, rig: Rig) -> None:
        node = rig.nodes[0]
        rig.slurm.drain(node, OURS)
        first = rig.slurm.node(node).reason_at_s
        rig.pass_time(2.0)
        rig.slurm.undrain(node)
        becomes(rig, node, "IDLE")
        rig.slurm.drain(node, OURS)
        view = rig.slurm.node(node)
        assert view.reason == OURS
        assert (view.reason_at_s or 0.0) > (first or 0.0)

    @pytest.mark.parametrize("how", ["boot", "controller"])
    def test_texts_outlive_a_boot_and_slurmctld(self, rig: Rig, how: str) -> None:
        node, other = rig.nodes
        rig.slurm.drain(node, OURS)
        rig.person_drains(other, X)
        rig.slurm.set_comment(node, "a comment")
        rig.slurm.set_extra(node, "an extra")
        rig.slurm.create_fence("slc-x", node)
        job = rig.submit(other, held=True)
        if how == "boot":
            rig.slurm.reboot(node)
            rig.wait(lambda: rig.slurm.node(node).reason != OURS)
        else:
            rig.restart_controller()
        view = shows(rig, node, "IDLE", "DRAIN")
        assert view.reason.startswith(OURS)
        assert (view.comment, view.extra) == ("a comment", "an extra")
        assert shows(rig, other, "IDLE", "DRAIN").reason == X
        assert rig.slurm.reservations()["slc-x"].nodes == (node,)
        assert job_state(rig, job) == "PENDING"

    def test_a_drain_stops_no_job_and_lets_none_in(self, rig: Rig) -> None:
        node = rig.nodes[0]
        inside = rig.submit(node)
        assert runs(rig, inside)
        rig.slurm.drain(node, OURS)
        assert rig.slurm.node(node).state == {"ALLOCATED", "DRAIN"}
        waiting = rig.submit(node)
        rig.cancel(inside)
        assert gone(rig, inside)
        assert becomes(rig, node, "IDLE", "DRAIN").reason == OURS
        rig.pass_time(2.0)
        assert job_state(rig, waiting) == "PENDING"
        rig.slurm.undrain(node)
        assert runs(rig, waiting)
