"""Facts about reboots: what becomes of drains and reasons. The values were measured on each release."""

import pytest

from tests.contract.rig import OURS, Rig, Timing, becomes, job_state, look, runs, shows

X = "fan broken"
ISSUED = f"{OURS} : reboot issued"
TIMED_OUT = f"{OURS} : reboot issued : reboot timed out"
# Without accounting storage these keep the reason of a drain that is gone, until a job starts there.
KEEP_STALE_REASON = frozenset({"24.11", "25.11"})
REBOOTING = {"REBOOT_REQUESTED", "REBOOT_ISSUED"}
# As short as slurmctld still keeps to them; the pings, which look at both, go out every second.
SHORT_RESUME = 5
SHORT_SLURMD = 4


def hanging(rig: Rig, node: str, **how: str | bool) -> None:
    """Reboot a node so that it stays in the middle of it."""
    rig.boot_hangs(node)
    asap, nextstate, reason = bool(how.get("asap")), str(how.get("nextstate", "")), str(how.get("reason", ""))
    assert rig.person_reboots(node, asap=asap, nextstate=nextstate, reason=reason) == ""
    shows(rig, node, "DOWN", "REBOOT_ISSUED")


def stale(rig: Rig, reason: str) -> str:
    """What a reason leaves on a node in service."""
    return reason if rig.release in KEEP_STALE_REASON else ""


class RebootFacts:
    """`scontrol reboot` in all its kinds. Each test finds both nodes in service and the queue empty."""

    # ------------------------------------------------------------ plain

    def test_plain_reboot_keeps_the_drain_and_appends_to_the_reason(self, rig: Rig) -> None:
        node = rig.nodes[0]
        rig.slurm.drain(node, OURS)
        before = rig.slurm.node(node)
        hanging(rig, node)
        view = rig.slurm.node(node)
        assert view.state >= {"DOWN", "DRAIN", "REBOOT_ISSUED"}
        assert view.reason == ISSUED
        rig.slurmd_starts(node, boot=True)
        view = becomes(rig, node, "IDLE", "DRAIN")
        assert view.reason == ISSUED
        assert (view.boot_time_s or 0.0) > (before.boot_time_s or 0.0)

    @pytest.mark.parametrize("verb", ["UNDRAIN", "RESUME"])
    def test_after_it_undrain_and_resume_give_the_node_back(self, rig: Rig, verb: str) -> None:
        node = rig.nodes[0]
        rig.slurm.drain(node, OURS)
        rig.slurm.reboot(node)
        rig.wait(lambda: not rig.slurm.node(node).state & REBOOTING)
        becomes(rig, node, "IDLE", "DRAIN")
        undo = rig.person_undrains if verb == "UNDRAIN" else rig.person_resumes
        assert undo(node) == ""
        assert rig.slurm.node(node).state == {"IDLE", "NOT_RESPONDING"}
        assert becomes(rig, node, "IDLE").reason == stale(rig, ISSUED)

    def test_a_reason_given_with_the_reboot_replaces_ours(self, rig: Rig) -> None:
        node = rig.nodes[0]
        rig.slurm.drain(node, OURS)
        hanging(rig, node, reason="kernel")
        rig.slurmd_starts(node, boot=True)
        assert becomes(rig, node, "IDLE", "DRAIN").reason == "kernel : reboot issued"

    def test_a_start_of_slurmd_that_is_no_boot_does_not_end_the_reboot(self, rig: Rig) -> None:
        node = rig.nodes[0]
        rig.slurm.drain(node, OURS)
        hanging(rig, node)
        rig.slurmd_starts(node, boot=False)
        rig.pass_time(3.0)
        assert rig.slurm.node(node).state >= {"DOWN", "DRAIN", "REBOOT_ISSUED"}

    def test_undrain_in_the_middle_brings_the_node_back_in_service(self, rig: Rig) -> None:
        node = rig.nodes[0]
        rig.slurm.drain(node, OURS)
        hanging(rig, node)
        assert rig.person_undrains(node) == ""
        assert "DRAIN" not in rig.slurm.node(node).state
        rig.slurmd_starts(node, boot=True)
        becomes(rig, node, "IDLE")

    def test_idle_in_the_middle(self, rig: Rig) -> None:
        node = rig.nodes[0]
        rig.slurm.drain(node, OURS)
        hanging(rig, node)
        refused = rig.person_sets_idle(node)
        if rig.release in {"22.05", "24.11"}:
            assert refused == ""
            assert rig.slurm.node(node).state >= {"IDLE", "REBOOT_ISSUED"}
            assert rig.person_resumes(node) != ""
            assert rig.slurm.node(node).state >= {"IDLE", "REBOOT_ISSUED"}
        else:
            assert refused != ""
            assert rig.person_resumes(node) == ""
            assert not rig.slurm.node(node).state & {"REBOOT_ISSUED", "DOWN", "DRAIN"}

    def test_in_the_middle_another_reboot_does_nothing_and_no_cancel_helps(self, rig: Rig) -> None:
        node = rig.nodes[0]
        rig.slurm.drain(node, OURS)
        hanging(rig, node)
        before = look(rig, node)
        assert rig.person_reboots(node) == ""
        assert rig.person_cancels_reboot(node) != ""
        assert look(rig, node) == before

    def test_a_node_that_waits_for_a_plain_reboot_still_gets_jobs(self, rig: Rig) -> None:
        node = rig.nodes[0]
        first, second = rig.submit(node), rig.submit(node)
        assert runs(rig, first)
        assert rig.person_reboots(node, reason=X) == ""
        assert look(rig, node) == ({"ALLOCATED", "REBOOT_REQUESTED"}, X)
        rig.cancel(first)
        assert runs(rig, second)
        assert look(rig, node) == ({"ALLOCATED", "REBOOT_REQUESTED"}, "")

    # ------------------------------------------------------------ who loses a drain

    @pytest.mark.parametrize(
        ("asap", "nextstate"), [(True, ""), (False, "RESUME"), (True, "RESUME"), (True, "DOWN")]
    )
    def test_another_kind_of_reboot_and_a_drain_before_it(self, rig: Rig, asap: bool, nextstate: str) -> None:
        node = rig.nodes[0]
        rig.person_drains(node, X)
        hanging(rig, node, asap=asap, nextstate=nextstate)
        rig.slurmd_starts(node, boot=True)
        rig.wait(lambda: not rig.slurm.node(node).state & REBOOTING)
        if nextstate == "DOWN":
            assert becomes(rig, node, "DOWN").reason == f"{X} : reboot issued : reboot complete"
        elif nextstate == "RESUME" or rig.release == "22.05":
            becomes(rig, node, "IDLE")
        else:
            assert becomes(rig, node, "IDLE", "DRAIN").reason == f"{X} : reboot issued"

    def test_nextstate_down_does_not_last_with_return_to_service_2(self, rig: Rig) -> None:
        node = rig.nodes[0]
        rig.configure(Timing(return_to_service=2, slurmd_timeout_s=SHORT_SLURMD))
        rig.person_drains(node, X)
        hanging(rig, node, asap=True, nextstate="DOWN")
        rig.slurmd_starts(node, boot=True)
        becomes(rig, node, "IDLE")

    @pytest.mark.parametrize("when", ["REBOOT_REQUESTED", "REBOOT_ISSUED"])
    @pytest.mark.parametrize(("asap", "nextstate"), [(False, ""), (True, ""), (False, "RESUME")])
    def test_a_drain_set_during_it_lasts_only_in_a_plain_one(
        self, rig: Rig, when: str, asap: bool, nextstate: str
    ) -> None:
        node = rig.nodes[0]
        rig.boot_hangs(node)
        job = rig.submit(node)
        assert runs(rig, job)
        assert rig.person_reboots(node, asap=asap, nextstate=nextstate) == ""
        shows(rig, node, "ALLOCATED", "REBOOT_REQUESTED")
        if when == "REBOOT_REQUESTED":
            rig.slurm.drain(node, OURS)
        rig.cancel(job)
        shows(rig, node, "DOWN", "REBOOT_ISSUED")
        if when == "REBOOT_ISSUED":
            rig.slurm.drain(node, OURS)
        assert rig.slurm.node(node).state >= {"DOWN", "DRAIN", "REBOOT_ISSUED"}
        rig.slurmd_starts(node, boot=True)
        if asap or nextstate:
            becomes(rig, node, "IDLE")
        else:
            assert becomes(rig, node, "IDLE", "DRAIN").reason.startswith(OURS)

    @pytest.mark.parametrize("asap", [False, True])
    def test_a_cancelled_reboot_takes_anybodys_drain_with_it(self, rig: Rig, asap: bool) -> None:
        node = rig.nodes[0]
        job = rig.submit(node)
        assert runs(rig, job)
        assert rig.person_reboots(node, asap=asap) == ""
        rig.person_drains(node, X)
        shows(rig, node, "ALLOCATED", "DRAIN", "REBOOT_REQUESTED")
        assert rig.person_cancels_reboot(node) == ""
        assert look(rig, node) == ({"ALLOCATED"}, "")
        assert job_state(rig, job) == "RUNNING"

    # ------------------------------------------------------------ nodes that do not answer, jobs that wait

    def test_a_drained_node_that_does_not_answer_reboots_when_it_is_back(self, rig: Rig) -> None:
        node = rig.nodes[0]
        rig.configure(Timing(slurmd_timeout_s=15))
        rig.slurm.drain(node, OURS)
        rig.slurmd_stops(node)
        becomes(rig, node, "IDLE", "DRAIN", "NOT_RESPONDING")
        assert rig.person_reboots(node) == ""
        assert "REBOOT_REQUESTED" in rig.slurm.node(node).state
        rig.boot_hangs(node)
        rig.slurmd_starts(node, boot=False)
        shows(rig, node, "DOWN", "DRAIN", "REBOOT_ISSUED")
        rig.slurmd_starts(node, boot=True)
        becomes(rig, node, "IDLE", "DRAIN")

    def test_a_node_that_is_down_already_is_stuck_in_a_reboot_that_nobody_runs(self, rig: Rig) -> None:
        node = rig.nodes[0]
        rig.slurmd_stops(node)
        rig.person_downs(node, X)
        rig.slurm.drain(node, OURS)
        assert rig.person_reboots(node) == ""
        shows(rig, node, "DOWN", "DRAIN", "REBOOT_ISSUED")
        rig.slurmd_starts(node, boot=False)
        rig.pass_time(3.0)
        assert rig.slurm.node(node).state >= {"DOWN", "DRAIN", "REBOOT_ISSUED"}

    def test_a_suspended_job_hides_behind_idle_and_holds_the_reboot(self, rig: Rig) -> None:
        node, other = rig.nodes
        job = rig.submit(node)
        assert runs(rig, job)
        rig.suspend(job)
        for name in rig.nodes:
            rig.slurm.drain(name, OURS)
        becomes(rig, node, "IDLE", "DRAIN")
        rig.boot_hangs(node)
        rig.boot_hangs(other)
        assert rig.person_reboots(node) == ""
        assert rig.person_reboots(other) == ""
        shows(rig, other, "REBOOT_ISSUED")
        assert rig.slurm.node(node).state == {"IDLE", "DRAIN", "REBOOT_REQUESTED"}
        assert job_state(rig, job) == "SUSPENDED"
        rig.cancel(job)
        shows(rig, node, "DOWN", "DRAIN", "REBOOT_ISSUED")


class RebootTimeoutFacts:
    """A reboot that is not over within ResumeTimeout."""

    def test_a_boot_that_comes_too_late(self, rig: Rig) -> None:
        drained, asap = rig.nodes
        rig.configure(Timing(resume_timeout_s=SHORT_RESUME, slurmd_timeout_s=SHORT_SLURMD))
        rig.slurm.drain(drained, OURS)
        began = rig.now()
        for node in rig.nodes:
            rig.boot_hangs(node)
            assert rig.person_reboots(node, asap=node == asap) == ""
        for node in rig.nodes:
            shows(rig, node, "DOWN", "REBOOT_ISSUED")
        assert rig.wait(lambda: all("REBOOT_ISSUED" not in rig.slurm.node(node).state for node in rig.nodes))
        assert rig.now() - began >= SHORT_RESUME
        # Up to 23.11 the drain goes with the reboot that timed out.
        kept = set() if rig.release == "22.05" else {"DRAIN"}
        state, reason = look(rig, drained)
        assert (state - {"NOT_RESPONDING"}, reason) == ({"DOWN", *kept}, TIMED_OUT)
        for return_to_service in (0, 1, 2):
            rig.configure(Timing(return_to_service))
            for node in rig.nodes:
                rig.slurmd_starts(node, boot=True)
            if return_to_service == 2:
                becomes(rig, drained, "IDLE", *kept)
                becomes(rig, asap, "IDLE")
                continue
            assert becomes(rig, drained, "DOWN", *kept).reason == TIMED_OUT
            assert shows(rig, asap, "DOWN").name == asap
            rig.pass_time(2.0)
            assert rig.slurm.node(drained).state == {"DOWN", *kept}
            assert "DOWN" in rig.slurm.node(asap).state
            for node in rig.nodes:
                rig.slurmd_stops(node)
