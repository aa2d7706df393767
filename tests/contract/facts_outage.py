"""Facts about nodes that fall silent, that Slurm takes down, or that register with less than they had.

The values were measured on each release. `ReturnToService` is in each of them.
"""

import pytest

from tests.contract.facts_reboot import SHORT_SLURMD, X
from tests.contract.rig import OURS, Rig, Timing, becomes, gone, job_of, job_state, look, runs, shows

UNEXPECTED = "Node unexpectedly rebooted"
SILENT = "Not responding"


def fence(rig: Rig, node: str) -> None:
    """A MAINT reservation that shows in the node's state."""
    rig.slurm.create_fence(f"slc-{node}", node)
    shows(rig, node, "MAINTENANCE")


class OutageFacts:
    """Each test finds both nodes in service and the queue empty."""

    @pytest.mark.parametrize("boot", [False, True])
    @pytest.mark.parametrize("return_to_service", [0, 1, 2])
    def test_an_outage_longer_than_slurmd_timeout(self, rig: Rig, return_to_service: int, boot: bool) -> None:
        drained, plain = rig.nodes
        rig.configure(Timing(return_to_service, slurmd_timeout_s=SHORT_SLURMD))
        rig.slurm.drain(drained, OURS)
        for node in rig.nodes:
            rig.slurmd_stops(node)
        # Up to 22.05 the reason of a drained node stays as it is.
        appended = OURS if rig.release == "22.05" else f"{OURS} : {SILENT}"
        assert becomes(rig, drained, "DOWN", "DRAIN", "NOT_RESPONDING").reason == appended
        assert becomes(rig, plain, "DOWN", "NOT_RESPONDING").reason == SILENT
        for node in rig.nodes:
            rig.slurmd_starts(node, boot=boot)
        base = "IDLE" if return_to_service == 2 else "DOWN"
        assert becomes(rig, drained, base, "DRAIN").reason == appended
        if return_to_service == 2 or (return_to_service == 1 and not boot):
            becomes(rig, plain, "IDLE")
        else:
            assert becomes(rig, plain, "DOWN").reason == (UNEXPECTED if boot else SILENT)

    def test_back_from_it_down_and_drained_resume_is_needed(self, rig: Rig) -> None:
        node, other = rig.nodes
        for name in rig.nodes:
            rig.person_downs(name, X)
            rig.slurm.drain(name, OURS)
        rig.slurm.undrain(node)
        state, reason = look(rig, node)
        assert (state & {"DOWN", "DRAIN"}, reason) == ({"DOWN"}, OURS)
        rig.slurm.resume(other)
        becomes(rig, other, "IDLE")
        assert "DOWN" in rig.slurm.node(node).state

    def test_an_outage_in_maintenance(self, rig: Rig) -> None:
        first, second = rig.nodes
        rig.configure(Timing(return_to_service=1, slurmd_timeout_s=SHORT_SLURMD))
        for node in rig.nodes:
            rig.slurm.create_fence(f"slc-{node}", node)
        for node in rig.nodes:
            shows(rig, node, "MAINTENANCE")
            rig.slurmd_stops(node)
        for node in rig.nodes:
            view = shows(rig, node, "DOWN", "MAINTENANCE")
            assert view.reason == SILENT
        rig.slurmd_starts(first, boot=True)
        rig.slurmd_starts(second, boot=False)
        rig.wait(lambda: "NOT_RESPONDING" not in rig.slurm.node(first).state)
        if rig.release == "22.05":
            assert shows(rig, first, "DOWN", "MAINTENANCE").reason == UNEXPECTED
        else:
            shows(rig, first, "IDLE", "MAINTENANCE")
        shows(rig, second, "IDLE", "MAINTENANCE")

    @pytest.mark.parametrize("return_to_service", [0, 1, 2])
    def test_a_short_outage_with_a_boot_that_slurm_did_not_ask_for(
        self, rig: Rig, return_to_service: int
    ) -> None:
        drained, fenced = rig.nodes
        rig.configure(Timing(return_to_service))
        rig.slurm.drain(drained, OURS)
        fence(rig, fenced)
        boots = {node: rig.slurm.node(node).boot_time_s or 0.0 for node in rig.nodes}
        # Boot times are kept in full seconds, and one counts when it is later than the last answer.
        rig.pass_time(2.0)
        for node in rig.nodes:
            rig.slurmd_stops(node)
            rig.slurmd_starts(node, boot=True)
        assert rig.wait(
            lambda: all((rig.slurm.node(node).boot_time_s or 0.0) > boots[node] for node in rig.nodes)
        )
        down = rig.release == "22.05" and return_to_service != 2
        base = "DOWN" if down else "IDLE"
        assert becomes(rig, drained, base, "DRAIN").reason == OURS
        view = shows(rig, fenced, base, "MAINTENANCE")
        assert view.reason == (UNEXPECTED if down else "")

    @pytest.mark.parametrize("return_to_service", [0, 1, 2])
    def test_a_boot_that_slurm_did_not_ask_for_costs_the_job(self, rig: Rig, return_to_service: int) -> None:
        node = rig.nodes[0]
        rig.configure(Timing(return_to_service))
        job = rig.submit(node)
        assert runs(rig, job)
        # A batch job that a node does not know counts as lost when it is older than its start may take.
        rig.pass_time(8.0 if return_to_service == 2 else 2.0)
        for name in rig.nodes:
            rig.slurmd_stops(name)
            rig.slurmd_starts(name, boot=True)
        assert rig.wait(lambda: job_state(rig, job) == "PENDING")
        assert job_of(rig, job).restarts == 1
        for name in rig.nodes:
            if return_to_service == 2:
                assert becomes(rig, name, "IDLE").reason == ""
            else:
                assert becomes(rig, name, "DOWN").reason == UNEXPECTED

    def test_a_short_outage_without_a_boot_changes_nothing(self, rig: Rig) -> None:
        drained, plain = rig.nodes
        rig.slurm.drain(drained, OURS)
        starts = {node: rig.slurm.node(node).slurmd_start_s or 0.0 for node in rig.nodes}
        rig.pass_time(2.0)
        for node in rig.nodes:
            rig.slurmd_stops(node)
            rig.slurmd_starts(node, boot=False)
        assert rig.wait(
            lambda: all((rig.slurm.node(node).slurmd_start_s or 0.0) > starts[node] for node in rig.nodes)
        )
        assert becomes(rig, drained, "IDLE", "DRAIN").reason == OURS
        assert becomes(rig, plain, "IDLE").reason == ""

    def test_return_to_service_2_ends_every_down(self, rig: Rig) -> None:
        downed, drained = rig.nodes
        rig.configure(Timing(return_to_service=2, slurmd_timeout_s=SHORT_SLURMD))
        rig.person_downs(downed, X)
        rig.person_downs(drained, X)
        rig.slurm.drain(drained, OURS)
        becomes(rig, downed, "IDLE")
        assert becomes(rig, drained, "IDLE", "DRAIN").reason == OURS

    @pytest.mark.parametrize("return_to_service", [0, 1])
    def test_otherwise_an_administrators_down_stays(self, rig: Rig, return_to_service: int) -> None:
        node = rig.nodes[0]
        rig.configure(Timing(return_to_service, slurmd_timeout_s=SHORT_SLURMD))
        rig.person_downs(node, X)
        rig.slurmd_stops(node)
        rig.slurmd_starts(node, boot=False)
        rig.pass_time(SHORT_SLURMD)
        assert look(rig, node) == ({"DOWN"}, X)

    # ------------------------------------------------------------ jobs of nodes that go

    def test_jobs_of_a_node_that_went_silent(self, rig: Rig) -> None:
        node, other = rig.nodes
        rig.configure(Timing(slurmd_timeout_s=SHORT_SLURMD))
        kept, lost = rig.submit(node), rig.submit(other, requeue=False)
        assert runs(rig, kept)
        assert runs(rig, lost)
        rig.slurmd_stops(node)
        rig.slurmd_stops(other)
        assert job_state(rig, kept) == "RUNNING"
        for name in rig.nodes:
            shows(rig, name, "DOWN", "NOT_RESPONDING")
        assert rig.wait(lambda: job_state(rig, kept) == "PENDING")
        assert job_of(rig, kept).restarts == 1
        assert gone(rig, lost)

    def test_a_suspended_job_of_a_node_that_goes_down_is_held(self, rig: Rig) -> None:
        node = rig.nodes[0]
        job = rig.submit(node)
        assert runs(rig, job)
        rig.suspend(job)
        rig.person_downs(node, X)
        assert rig.wait(lambda: job_state(rig, job) == "PENDING")
        assert rig.wait(lambda: job_of(rig, job).reason == "JobHeldAdmin")
        assert job_of(rig, job).restarts == 1

    def test_jobs_of_a_node_that_a_person_takes_down(self, rig: Rig) -> None:
        node, other = rig.nodes
        kept, lost = rig.submit(node), rig.submit(other, requeue=False)
        assert runs(rig, kept)
        assert runs(rig, lost)
        for name in rig.nodes:
            rig.person_downs(name, X)
        assert rig.wait(lambda: job_state(rig, kept) == "PENDING")
        assert (job_of(rig, kept).restarts, job_of(rig, kept).nodes) == (1, ())
        assert gone(rig, lost)

    # ------------------------------------------------------------ what a node registers with

    def test_a_node_that_registers_with_a_gpu_less(self, rig: Rig) -> None:
        node = rig.nodes[0]
        rig.gpu_lost(node)
        rig.slurmd_stops(node)
        rig.slurmd_starts(node, boot=False)
        view = shows(rig, node, "DRAIN", "INVALID_REG")
        assert view.reason == "gres/gpu count reported lower than configured (1 < 2)"
        assert view.gpus == 2
        assert rig.person_resumes(node) != ""
        assert "DRAIN" in rig.slurm.node(node).state
        rig.gpu_back(node)
        rig.slurmd_stops(node)
        rig.slurmd_starts(node, boot=False)
        assert rig.wait(lambda: "INVALID_REG" not in rig.slurm.node(node).state)

    def test_the_reason_of_a_drained_node_that_registers_with_a_gpu_less(self, rig: Rig) -> None:
        node = rig.nodes[0]
        rig.slurm.drain(node, OURS)
        rig.gpu_lost(node)
        rig.slurmd_stops(node)
        rig.slurmd_starts(node, boot=False)
        view = shows(rig, node, "DRAIN", "INVALID_REG")
        # Newer releases write theirs over it, as read in the sources of 24.11.
        less = "gres/gpu count reported lower than configured (1 < 2)"
        assert view.reason == (OURS if rig.release == "22.05" else less)
