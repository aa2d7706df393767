"""Facts about what comes after a first reboot, and about boots that do not end well.

Those of 22.05 were measured; those of 24.11 were read in its sources, and the later two taken to be like it.
"""

import pytest

from tests.contract.facts_reboot import ISSUED, REBOOTING, X, hanging
from tests.contract.rig import OURS, Rig, becomes, gone, look, runs, shows

LESS = "gres/gpu count reported lower than configured (1 < 2)"


def reboot(rig: Rig, node: str) -> None:
    """A plain reboot from its begin to its end."""
    before = rig.slurm.node(node).boot_time_s or 0.0
    # Boot times are full seconds.
    rig.pass_time(1.2)
    rig.slurm.reboot(node)
    assert rig.wait(lambda: (rig.slurm.node(node).boot_time_s or 0.0) > before)
    becomes(rig, node, "IDLE", "DRAIN")


class AgainFacts:
    """Each test finds both nodes in service and the queue empty."""

    def test_the_reason_after_a_second_reboot(self, rig: Rig) -> None:
        node = rig.nodes[0]
        rig.slurm.drain(node, OURS)
        reboot(rig, node)
        assert rig.slurm.node(node).reason == ISSUED
        reboot(rig, node)
        # 22.05 writes what it wants to add over a text that holds it already: ours is lost.
        assert rig.slurm.node(node).reason == ("reboot issued" if rig.release == "22.05" else ISSUED)

    def test_a_reboot_after_which_a_gpu_is_lost_is_never_over(self, rig: Rig) -> None:
        node = rig.nodes[0]
        rig.slurm.drain(node, OURS)
        rig.gpu_lost(node)
        rig.pass_time(1.2)
        rig.slurm.reboot(node)
        view = shows(rig, node, "DOWN", "DRAIN", "REBOOT_ISSUED", "INVALID_REG")
        assert view.reason == (ISSUED if rig.release == "22.05" else LESS)
        assert rig.person_undrains(node) != ""
        assert rig.person_resumes(node) != ""
        rig.gpu_back(node)
        rig.slurmd_stops(node)
        rig.slurmd_starts(node, boot=False)
        becomes(rig, node, "IDLE", "DRAIN")

    def test_a_boot_after_idle_was_set_in_the_middle(self, rig: Rig) -> None:
        node = rig.nodes[0]
        rig.slurm.drain(node, OURS)
        hanging(rig, node)
        if rig.person_sets_idle(node):
            assert rig.release in {"25.11", "26.05"}
            return
        rig.pass_time(1.2)
        rig.slurmd_starts(node, boot=True)
        view = becomes(rig, node, "DOWN", "REBOOT_ISSUED")
        # Where the drain's Reason is kept, it is the one of this as well.
        assert view.reason == ("Node unexpectedly rebooted" if rig.release == "22.05" else ISSUED)
        rig.slurmd_stops(node)
        rig.slurmd_starts(node, boot=False)
        becomes(rig, node, "IDLE")

    def test_idle_gives_a_drained_node_back_and_is_refused_under_a_job(self, rig: Rig) -> None:
        drained, busy = rig.nodes
        rig.person_drains(drained, X)
        assert rig.person_sets_idle(drained) == ""
        assert rig.slurm.node(drained).state == {"IDLE"}
        job = rig.submit(busy)
        assert runs(rig, job)
        assert rig.person_sets_idle(busy) != ""

    @pytest.mark.parametrize("asap", [False, True])
    def test_a_drain_from_before_and_a_reboot_that_is_cancelled(self, rig: Rig, asap: bool) -> None:
        node = rig.nodes[0]
        job = rig.submit(node)
        assert runs(rig, job)
        rig.person_drains(node, X)
        assert rig.person_reboots(node, asap=asap) == ""
        assert look(rig, node) == ({"ALLOCATED", "DRAIN", "REBOOT_REQUESTED"}, X)
        assert rig.person_cancels_reboot(node) == ""
        kept = asap and rig.release == "22.05"
        assert look(rig, node) == (({"ALLOCATED", "DRAIN"}, X) if kept else ({"ALLOCATED"}, ""))

    def test_a_plain_reboot_without_a_reason_writes_its_own(self, rig: Rig) -> None:
        node = rig.nodes[0]
        job = rig.submit(node)
        assert runs(rig, job)
        assert rig.person_reboots(node) == ""
        assert rig.slurm.node(node).reason == "reboot requested"
        assert rig.person_cancels_reboot(node) == ""
        rig.cancel(job)
        assert gone(rig, job)
        rig.person_drains(node, X)
        hanging(rig, node)
        assert rig.person_undrains(node) == ""
        assert rig.slurm.node(node).state == {"DOWN", "NOT_RESPONDING", "REBOOT_ISSUED"}
        rig.slurmd_starts(node, boot=True)
        assert rig.wait(lambda: not rig.slurm.node(node).state & REBOOTING)
        becomes(rig, node, "IDLE")
