"""Facts about fences and about reservations of others. The values were measured on each release."""

from slurm_lifecycle.errors import TransientError
from tests.contract.facts_reboot import X
from tests.contract.rig import OURS, Rig, becomes, gone, job_of, job_state, runs, shows

MAINT = ("MAINT", "IGNORE_JOBS")
BUSY = "Requested nodes are busy"


def refused_while_in_use(rig: Rig, name: str) -> bool:
    """Whether slurmctld keeps a fence because a job belongs to it."""
    try:
        rig.slurm.remove_fence(name)
    except TransientError:
        return True
    return False


class FenceFacts:
    """A check inside a fence. Each test finds both nodes in service and the queue empty."""

    def test_no_user_gets_in_between_the_drain_and_the_end_of_the_check(self, rig: Rig) -> None:
        node = rig.nodes[0]
        rig.slurm.drain(node, OURS)
        users = [rig.submit(node) for _ in range(3)]
        rig.slurm.create_fence("slc-x", node)
        check = rig.submit(node, reservation="slc-x")
        rig.pass_time(3.0)
        # The reservation does not override the drain.
        assert job_state(rig, check) == "PENDING"
        assert refused_while_in_use(rig, "slc-x")
        shows(rig, node, "IDLE", "DRAIN", "MAINTENANCE")
        rig.slurm.undrain(node)
        assert runs(rig, check)
        assert refused_while_in_use(rig, "slc-x")
        rig.cancel(check)
        assert gone(rig, check)
        rig.pass_time(3.0)
        assert {job_state(rig, job) for job in users} == {"PENDING"}
        # A job that is over is no hindrance.
        rig.slurm.remove_fence("slc-x")
        assert rig.wait(lambda: sorted(job_state(rig, job) for job in users).count("RUNNING") == 1)

    def test_a_failed_check_drains_before_the_fence_goes(self, rig: Rig) -> None:
        node = rig.nodes[0]
        rig.slurm.drain(node, OURS)
        user = rig.submit(node)
        rig.slurm.create_fence("slc-x", node)
        rig.slurm.undrain(node)
        check = rig.submit(node, reservation="slc-x")
        assert runs(rig, check)
        rig.slurm.drain(node, OURS)
        rig.cancel(check)
        assert gone(rig, check)
        rig.slurm.remove_fence("slc-x")
        rig.pass_time(3.0)
        assert job_state(rig, user) == "PENDING"
        becomes(rig, node, "IDLE", "DRAIN")

    def test_the_end_of_a_reservation_kills_holds_and_opens_the_node(self, rig: Rig) -> None:
        node = rig.nodes[0]
        assert rig.person_reserves("slc-x", [node], flags=MAINT) == ""
        check = rig.submit(node, reservation="slc-x")
        assert runs(rig, check)
        waiting = rig.submit(node, reservation="slc-x")
        user = rig.submit(node)
        assert rig.person_moves_reservation("slc-x", end_in_s=0) == ""
        assert gone(rig, check)
        assert rig.wait(lambda: "slc-x" not in rig.slurm.reservations())
        assert rig.wait(lambda: job_state(rig, waiting) == "RESV_DEL_HOLD")
        assert runs(rig, user)
        assert job_of(rig, user).nodes == (node,)

    def test_a_fence_over_a_reservation_of_others_and_the_other_way_round(self, rig: Rig) -> None:
        node, other = rig.nodes
        assert rig.person_reserves("theirs", [node]) == ""
        rig.slurm.create_fence("slc-x", node)
        rig.slurm.create_fence("slc-y", other)
        assert rig.person_reserves("late", [other]) == ""
        first, second = rig.submit(reservation="theirs"), rig.submit(reservation="late")
        rig.pass_time(3.0)
        assert job_state(rig, first) == "PENDING"
        assert job_state(rig, second) == "PENDING"
        rig.slurm.remove_fence("slc-x")
        rig.slurm.remove_fence("slc-y")
        assert runs(rig, first)
        assert runs(rig, second)

    def test_refusals_of_a_create(self, rig: Rig) -> None:
        node, other = rig.nodes
        rig.slurm.create_fence("slc-x", node)
        assert "uplicate" in rig.person_reserves("slc-x", [other], flags=MAINT)
        refused = rig.person_reserves("slc-y", [other], flags=MAINT, users=["nobody"])
        assert (refused != "") == (rig.release in {"25.11", "26.05"})


class FutureReservationFacts:
    """Maintenance that is announced. Each test finds both nodes in service and the queue empty."""

    def test_a_job_that_crosses_the_start(self, rig: Rig) -> None:
        node, other = rig.nodes
        job = rig.submit(node, limit_s=7200)
        short = rig.submit(other, limit_s=300)
        assert runs(rig, job)
        assert runs(rig, short)
        assert BUSY in rig.person_reserves("maint", [node], start_in_s=3600, flags=["MAINT"])
        assert BUSY in rig.person_reserves("now", [node], flags=["MAINT"])
        assert rig.person_reserves("maint", [node], start_in_s=3600, flags=MAINT) == ""
        # A start after the job's limit hurts nobody.
        assert rig.person_reserves("later", [other], start_in_s=3600, flags=["MAINT"]) == ""
        assert rig.person_reserves("inside", [node], flags=MAINT) == ""
        shows(rig, node, "ALLOCATED", "MAINTENANCE")
        assert job_state(rig, job) == "RUNNING"

    def test_what_still_fits_before_it(self, rig: Rig) -> None:
        node = rig.nodes[0]
        assert rig.person_reserves("maint", [node], start_in_s=1800, flags=MAINT) == ""
        long, short = rig.submit(node, limit_s=3600), rig.submit(node, limit_s=300)
        assert runs(rig, short)
        assert job_state(rig, long) == "PENDING"
        assert rig.slurm.node(node).state == {"ALLOCATED"}

    def test_moves_of_it(self, rig: Rig) -> None:
        node, other = rig.nodes
        assert rig.person_reserves("maint", [node], start_in_s=3600, flags=MAINT) == ""
        began = rig.slurm.reservations()["maint"]
        assert rig.person_moves_reservation("maint", start_in_s=7200) == ""
        moved = rig.slurm.reservations()["maint"]
        assert 3500 < moved.start_s - began.start_s < 3700
        assert rig.person_moves_reservation("maint", end_in_s=9000) == ""
        assert 1700 < rig.slurm.reservations()["maint"].end_s - moved.start_s < 1900
        assert rig.person_moves_reservation("maint", duration_s=600) == ""
        assert rig.slurm.reservations()["maint"].end_s - moved.start_s == 600
        assert rig.person_moves_reservation("maint", nodes=[node, other]) == ""
        assert rig.slurm.reservations()["maint"].nodes == (node, other)
        assert rig.person_deletes_reservation("maint") == ""

    def test_a_node_added_or_taken_away(self, rig: Rig) -> None:
        node, other = rig.nodes
        assert rig.person_reserves("maint", [node], flags=MAINT) == ""
        added = rig.person_moves_reservation("maint", add=other)
        if rig.release == "22.05":
            # There the whole set is given.
            assert added != ""
            assert rig.slurm.reservations()["maint"].nodes == (node,)
        else:
            assert added == ""
            assert rig.slurm.reservations()["maint"].nodes == (node, other)
            assert rig.person_moves_reservation("maint", remove=node) == ""
            assert rig.slurm.reservations()["maint"].nodes == (other,)

    def test_an_active_one_cannot_begin_later(self, rig: Rig) -> None:
        node, other = rig.nodes
        assert rig.person_reserves("maint", [node], flags=MAINT) == ""
        shows(rig, node, "MAINTENANCE")
        assert rig.person_moves_reservation("maint", start_in_s=1800) != ""
        assert rig.person_moves_reservation("maint", duration_s=1800) == ""
        assert rig.person_moves_reservation("maint", nodes=[node, other]) == ""
        assert rig.person_deletes_reservation("maint") == ""
        assert rig.person_deletes_reservation("maint") != ""
        rig.person_drains(node, X)
        becomes(rig, node, "IDLE", "DRAIN")
