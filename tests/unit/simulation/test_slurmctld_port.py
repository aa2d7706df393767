"""The Slurm port over the simulated slurmctld, beyond the contract."""

from collections.abc import Callable

import pytest

from slurm_lifecycle.errors import PermanentError, TransientError
from slurm_lifecycle.simulation.port import SimSlurm
from slurm_lifecycle.simulation.slurmctld import SlurmConf, SlurmRefused
from slurm_lifecycle.slurm.refusals import REFUSED, REFUSED_NOW
from tests.unit.simulation.slurmctld_bench import Bench


def test_reads_are_the_same_objects_until_something_changes() -> None:
    bench = Bench(2)
    slurm = SimSlurm(bench.ctld)
    nodes, jobs, reservations = slurm.nodes(), slurm.jobs(), slurm.reservations()
    bench.run(1000)
    assert (slurm.nodes() is nodes, slurm.jobs() is jobs) == (True, True)
    assert slurm.reservations() is reservations
    slurm.drain("n1", "slc:X gpu0")
    slurm.create_fence("slc-x", "n1")
    assert nodes["n1"].state == {"IDLE"}
    assert "slc-x" not in reservations
    assert slurm.nodes()["n1"].state == {"IDLE", "DRAIN"}
    assert "slc-x" in slurm.reservations()


@pytest.mark.parametrize(
    "refused",
    [
        lambda bench: bench.ctld.update_node("n9", "DRAIN", "x"),
        lambda bench: bench.ctld.update_node("n1", "RESUME"),
        lambda bench: bench.ctld.update_node("n1", "DRAIN", ""),
        lambda bench: bench.ctld.requeue("7"),
        lambda bench: bench.ctld.requeue(bench.submit(held=True)),
        lambda bench: bench.ctld.requeue(running(bench, requeue=False)),
        lambda bench: bench.ctld.requeue(completing(bench)),
        lambda bench: bench.ctld.delete_reservation("none"),
        lambda bench: bench.ctld.create_reservation("r", ("n9",), 0, 1),
        lambda bench: bench.ctld.create_reservation("r", ("n1",), 0, 1, users=()),
        lambda bench: [bench.ctld.create_reservation("r", ("n1",), 2e9, 3e9) for _ in range(2)],
        lambda bench: [bench.ctld.create_reservation(name, ("n1",), 2e9, 3e9) for name in "rs"],
    ],
)
def test_every_refusal_is_worded_so_that_the_runner_of_commands_knows_it(
    refused: Callable[[Bench], object],
) -> None:
    bench = Bench(1)
    with pytest.raises(SlurmRefused) as caught:
        refused(bench)
    assert any(text in str(caught.value) for text in REFUSED + REFUSED_NOW)


def running(bench: Bench, *, requeue: bool) -> str:
    job = bench.submit(requeue=requeue)
    bench.run(1)
    return job


def completing(bench: Bench) -> str:
    job = running(bench, requeue=True)
    bench.ctld.requeue(job)
    return job


def test_what_may_succeed_later_is_transient() -> None:
    bench = Bench(1)
    slurm = SimSlurm(bench.ctld)
    job = completing(bench)
    with pytest.raises(TransientError, match="transitional"):
        slurm.requeue(job)
    bench.run(5)
    with pytest.raises(PermanentError, match="pending"):
        slurm.requeue(job)
    slurm.drain("n1", "slc:X gpu0")
    slurm.reboot("n1")
    with pytest.raises(TransientError, match="under way"):
        slurm.reboot("n1")


def test_a_fence_of_another_kind_is_refused() -> None:
    bench = Bench(2)
    slurm = SimSlurm(bench.ctld, fence_users="root,u7")
    now = bench.timeline.now
    bench.ctld.create_reservation("slc-x", ("n1",), now, now + 100, ("MAINT",))
    with pytest.raises(PermanentError, match="another kind"):
        slurm.create_fence("slc-x", "n1")
    slurm.create_fence("slc-y", "n2")
    assert slurm.reservations()["slc-y"].users == ("root", "u7")
    slurm.renew_fence("slc-y", now + 1000.7)
    assert slurm.reservations()["slc-y"].end_s == int(now + 1000.7)


def test_the_configuration_is_that_of_slurmctld() -> None:
    slurm = SimSlurm(Bench(1, SlurmConf(release="25.11", resume_timeout_s=77, return_to_service=2)).ctld)
    config = slurm.config()
    assert (config["ResumeTimeout"], config["ReturnToService"]) == ("77 sec", "2")
    assert config["SLURM_VERSION"].startswith("25.11")
    assert slurm.node("n1").version.startswith("25.11")
