"""What every implementation of the Slurm port must do.

A back end takes part by a subclass of `SlurmContract` with a `rig` fixture (`tests.contract.rig`).
"""

from collections.abc import Callable

import pytest

from slurm_lifecycle.errors import PermanentError, TransientError
from tests.contract.rig import OURS, Rig, job_of, job_state

BUSY = {"ALLOCATED", "MIXED", "COMPLETING"}


class SlurmContract:
    """The suite. Each test finds both nodes in service and the queue empty."""

    # ------------------------------------------------------------ nodes

    def test_reads_nodes(self, rig: Rig) -> None:
        nodes = rig.slurm.nodes()
        assert set(nodes) == set(rig.nodes)
        for name in rig.nodes:
            assert nodes[name].name == name
            assert nodes[name].state == {"IDLE"}
            assert nodes[name].gpus == 2
            assert "main" in nodes[name].partitions
            assert nodes[name].version
            assert (nodes[name].boot_time_s or 0) > 0
            assert (nodes[name].slurmd_start_s or 0) > 0
            assert rig.slurm.node(name).name == name

    def test_a_node_that_does_not_exist(self, rig: Rig) -> None:
        with pytest.raises(PermanentError):
            rig.slurm.node("n99")
        with pytest.raises(PermanentError):
            rig.slurm.drain("n99", OURS)
        with pytest.raises(PermanentError):
            rig.slurm.reboot("n99")

    def test_drain_round_trip(self, rig: Rig) -> None:
        node, other = rig.nodes
        longest = "slc:XID79 gpu3 " + "x" * 185
        for reason in (OURS, OURS, longest, "slc:A_B nvlink0/1 a.b:c+d-e"):
            rig.slurm.drain(node, reason)
            view = rig.slurm.node(node)
            assert view.state >= {"IDLE", "DRAIN"}
            assert view.reason == reason
            assert view.reason_at_s is not None
        assert rig.slurm.node(other).state == {"IDLE"}

    @pytest.mark.parametrize(
        "reason", ["", " ", "a\nb", "a;b", "a [root@x]", "é", "x" * 201, " slc:X y", "slc:X y ", "$(x)"]
    )
    def test_a_reason_of_another_shape_is_refused(self, rig: Rig, reason: str) -> None:
        with pytest.raises(PermanentError):
            rig.slurm.drain(rig.nodes[0], reason)
        assert rig.slurm.node(rig.nodes[0]).state == {"IDLE"}

    def test_undrain_gives_the_node_back(self, rig: Rig) -> None:
        node = rig.nodes[0]
        rig.slurm.drain(node, OURS)
        rig.slurm.undrain(node)
        assert "DRAIN" not in rig.slurm.node(node).state
        assert rig.wait(lambda: rig.slurm.node(node).state == {"IDLE"})

    def test_resume_and_undrain_of_a_node_that_is_down(self, rig: Rig) -> None:
        for node in rig.nodes:
            rig.person_downs(node, "somebody")
            rig.slurm.drain(node, OURS)
            assert rig.slurm.node(node).state >= {"DOWN", "DRAIN"}
        rig.slurm.undrain(rig.nodes[0])
        assert "DOWN" in rig.slurm.node(rig.nodes[0]).state
        rig.slurm.resume(rig.nodes[1])
        assert "DOWN" not in rig.slurm.node(rig.nodes[1]).state
        assert rig.wait(lambda: rig.slurm.node(rig.nodes[1]).state == {"IDLE"})
        rig.slurm.resume(rig.nodes[1])

    def test_comment_and_extra_leave_all_else(self, rig: Rig) -> None:
        node = rig.nodes[0]
        rig.person_drains(node, "fan [root@2026-01-01T00:00:00] Comment=x broken")
        before = rig.slurm.node(node)
        assert before.reason == "fan [root@2026-01-01T00:00:00] Comment=x broken"
        texts = ["a b Reason=fake State=DOWN", "x Extra=y Comment=z", "'\"\\ $(x) é #;", "two\nlines", ""]
        for text in texts:
            rig.slurm.set_comment(node, text)
            rig.slurm.set_extra(node, text[::-1])
            view = rig.slurm.node(node)
            assert (view.comment, view.extra) == (text, text[::-1])
            assert (view.state, view.reason) == (before.state, before.reason)
            assert view.reason_at_s == before.reason_at_s

    @pytest.mark.parametrize(
        "name", ["", "ALL", "all", "n[1-2]", "n1,n2", "-x", "n1 n2", "n1\n", "a=b", "ASAP"]
    )
    def test_only_one_plain_name(self, rig: Rig, name: str) -> None:
        calls: list[Callable[[], object]] = [
            lambda: rig.slurm.drain(name, OURS),
            lambda: rig.slurm.undrain(name),
            lambda: rig.slurm.resume(name),
            lambda: rig.slurm.reboot(name),
            lambda: rig.slurm.set_comment(name, "x"),
            lambda: rig.slurm.create_fence("slc-x", name),
            lambda: rig.slurm.create_fence(name, rig.nodes[0]),
            lambda: rig.slurm.remove_fence(name),
        ]
        for call in calls:
            with pytest.raises(PermanentError):
                call()
        assert rig.slurm.reservations() == {}
        assert {node.state for node in rig.slurm.nodes().values()} == {frozenset({"IDLE"})}

    def test_reboot_keeps_our_drain(self, rig: Rig) -> None:
        node = rig.nodes[0]
        rig.slurm.drain(node, OURS)
        before = rig.slurm.node(node).boot_time_s or 0.0
        rig.slurm.reboot(node)
        with pytest.raises(TransientError):
            rig.slurm.reboot(node)
        assert rig.wait(lambda: (rig.slurm.node(node).boot_time_s or 0.0) > before)
        assert rig.wait(lambda: rig.slurm.node(node).state == {"IDLE", "DRAIN"})
        assert rig.slurm.node(node).reason.startswith(OURS)

    # ------------------------------------------------------------ jobs

    def test_reads_jobs(self, rig: Rig) -> None:
        node, other = rig.nodes
        assert rig.slurm.jobs() == ()
        running, held = rig.submit(node), rig.submit(node, held=True)
        assert rig.wait(lambda: job_state(rig, running) == "RUNNING")
        assert [job.job_id for job in rig.slurm.jobs_on(node)] == [running]
        assert rig.slurm.jobs_on(other) == ()
        waiting = job_of(rig, held)
        assert (waiting.state, waiting.nodes, waiting.restarts) == ("PENDING", (), 0)
        assert waiting.reason == "JobHeldUser"
        rig.cancel(held)
        rig.cancel(running)
        assert rig.wait(lambda: rig.slurm.jobs() == ())

    def test_a_suspended_job_holds_its_node(self, rig: Rig) -> None:
        node = rig.nodes[0]
        job = rig.submit(node)
        assert rig.wait(lambda: job_state(rig, job) == "RUNNING")
        rig.suspend(job)
        rig.slurm.drain(node, OURS)
        assert rig.wait(lambda: rig.slurm.node(node).state == {"IDLE", "DRAIN"})
        assert not rig.slurm.node(node).state & BUSY
        assert [job.state for job in rig.slurm.jobs_on(node)] == ["SUSPENDED"]

    def test_requeue_counts(self, rig: Rig) -> None:
        job = rig.submit(rig.nodes[0])
        assert rig.wait(lambda: job_state(rig, job) == "RUNNING")
        rig.slurm.requeue(job)
        assert rig.wait(lambda: job_of(rig, job).restarts == 1)

    def test_release(self, rig: Rig) -> None:
        job = rig.submit(rig.nodes[0], held=True)
        rig.slurm.release(job)
        assert rig.wait(lambda: job_state(rig, job) == "RUNNING")
        rig.slurm.release(job)

    @pytest.mark.parametrize("job_id", ["", "999999", "1,2", "1 2", "-1", "2_[1-4]", "x"])
    def test_only_one_job_that_exists(self, rig: Rig, job_id: str) -> None:
        with pytest.raises(PermanentError):
            rig.slurm.requeue(job_id)
        with pytest.raises(PermanentError):
            rig.slurm.release(job_id)

    # ------------------------------------------------------------ fences

    def test_a_fence_from_begin_to_end(self, rig: Rig) -> None:
        node, other = rig.nodes
        name = "slc-n1.1790000000"
        rig.slurm.create_fence(name, node)
        rig.slurm.create_fence(name, node)
        fence = rig.slurm.reservations()[name]
        assert (fence.name, fence.nodes, fence.users) == (name, (node,), ("root",))
        assert fence.flags >= {"MAINT", "IGNORE_JOBS"}
        assert fence.end_s - fence.start_s > 300 * 86_400
        with pytest.raises(PermanentError):
            rig.slurm.create_fence(name, other)
        assert rig.slurm.reservations()[name].nodes == (node,)
        end_s = fence.start_s + 30 * 86_400
        rig.slurm.renew_fence(name, end_s)
        assert abs(rig.slurm.reservations()[name].end_s - end_s) < 60
        rig.slurm.remove_fence(name)
        rig.slurm.remove_fence(name)
        assert rig.slurm.reservations() == {}
        with pytest.raises(PermanentError):
            rig.slurm.renew_fence(name, end_s)

    def test_a_fence_over_a_running_job(self, rig: Rig) -> None:
        node = rig.nodes[0]
        job = rig.submit(node)
        assert rig.wait(lambda: job_state(rig, job) == "RUNNING")
        rig.slurm.create_fence("slc-x", node)
        assert job_state(rig, job) == "RUNNING"

    def test_a_fence_keeps_others_off_and_stays_while_in_use(self, rig: Rig) -> None:
        node = rig.nodes[0]
        rig.slurm.create_fence("slc-x", node)
        inside = rig.submit(node, reservation="slc-x")
        assert rig.wait(lambda: job_state(rig, inside) == "RUNNING")
        with pytest.raises(TransientError):
            rig.slurm.remove_fence("slc-x")
        outside = rig.submit(node)
        rig.pass_time(2.0)
        assert job_state(rig, outside) == "PENDING"
        rig.cancel(inside)
        assert rig.wait(lambda: all(job.job_id != inside for job in rig.slurm.jobs()))
        rig.slurm.remove_fence("slc-x")
        assert rig.wait(lambda: job_state(rig, outside) == "RUNNING")

    # ------------------------------------------------------------ configuration

    def test_reads_the_configuration(self, rig: Rig) -> None:
        config = rig.slurm.config()
        assert config["ResumeTimeout"].split()[0].isdigit()
        assert config["RebootProgram"]
