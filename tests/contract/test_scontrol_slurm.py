"""The contract of the Slurm port, held against real daemons, and what only real daemons can show."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from slurm_lifecycle.errors import AmbiguousOutcome, PermanentError, TransientError
from slurm_lifecycle.slurm.scontrol import ScontrolSettings, ScontrolSlurm
from tests.contract.real_rig import RealRig
from tests.contract.rig import OURS, Rig
from tests.contract.slurm_contract import SlurmContract
from tests.contract.slurm_facts import SlurmFacts
from tests.contract.tiny_cluster import TinyCluster

pytestmark = pytest.mark.live


@pytest.fixture
def rig(tiny_cluster: TinyCluster) -> Iterator[RealRig]:
    slurm = ScontrolSlurm(ScontrolSettings(slurm_conf=str(tiny_cluster.conf)))
    real = RealRig(slurm, tiny_cluster, ".".join(slurm.node("n1").version.split(".")[:2]))
    whole: Rig = real
    assert whole is real
    real.restore()
    yield real
    real.restore()


class TestScontrolSlurm(SlurmContract):
    """Every promise of the port."""


class TestSlurmFacts(SlurmFacts):
    """What the installed release does is what was measured on it."""


# ---------------------------------------------------------------- texts that others write


@pytest.mark.parametrize(
    "reason",
    [
        "maintenance by ops",
        "Not responding",
        "Kill task failed",
        "a=b State=IDLE Reason=foo",
        "quotes ' \" and \\ $(reboot) `x` #;",
        "tab\there, ESC \x1b[31m",
        "CR\rin it",
        "ends in a stamp [root@2026-01-01T00:00:00]",
        "line one\nNodeName=n2 State=DOWN CfgTRES=x\nline three",
        "blé",
        "x" * 5_000,
    ],
)
def test_foreign_reasons_come_back_exactly(rig: RealRig, reason: str) -> None:
    rig.person_drains("n1", reason)
    nodes = rig.slurm.nodes()
    assert nodes["n1"].state == {"IDLE", "DRAIN"}
    assert nodes["n1"].reason == reason
    assert abs((nodes["n1"].reason_at_s or 0.0) - time.time()) < 60
    assert nodes["n2"].state == {"IDLE"}
    assert nodes["n2"].reason == ""


def test_a_forged_record_never_moves_a_value_to_another_node(rig: RealRig) -> None:
    record = rig.cluster.scontrol("show", "node", "n2").replace("State=IDLE", "State=DOWN+DRAIN")
    rig.cluster.scontrol("update", "NodeName=n1", f"Extra=x\n\n{record}")
    nodes = rig.slurm.nodes()
    assert set(nodes) == {"n1", "n2"}
    assert nodes["n2"].state == {"UNREADABLE"}
    assert nodes["n1"].state == {"IDLE"}


def test_a_comment_with_lines_of_scontrols_own_is_unreadable_or_true(rig: RealRig) -> None:
    rig.cluster.scontrol("update", "NodeName=n1", "Comment=a\n   Extra=b", "Extra=c")
    nodes = rig.slurm.nodes()
    assert nodes["n1"].state == {"UNREADABLE"}
    assert nodes["n2"].state == {"IDLE"}
    with pytest.raises(PermanentError):
        rig.slurm.set_comment("n1", "a\n   Extra=b")


@pytest.mark.parametrize(
    "option",
    [
        "--job-name=a b=c|RUNNING|n2",
        "--job-name=x\n7|RUNNING|0|0|n2|None|;\ny",
        "--comment=x|;\n8|RUNNING|0|0|n2|None|;\n",
        "--job-name=JobId=9 JobState=FAILED NodeList=n2",
    ],
)
def test_job_names_and_comments_change_nothing(rig: RealRig, option: str) -> None:
    job = rig.sbatch("-n1", "-wn1", option, "--wrap=sleep 600")
    assert rig.wait(lambda: [view.state for view in rig.slurm.jobs_on("n1")] == ["RUNNING"])
    assert [(view.job_id, view.nodes, view.uid) for view in rig.slurm.jobs()] == [(job, ("n1",), 0)]


def test_array_and_het_jobs(rig: RealRig) -> None:
    rig.sbatch("-n1", "-wn1", "--array=1-4%1", "--wrap=sleep 600")
    argv = ["sbatch", "--parsable", "-n1", "--output=/dev/null", "--wrap=sleep 600", ":", "-n1"]
    run = rig.cluster.run(*argv)
    assert run.returncode == 0
    het = run.stdout.strip()
    assert rig.wait(lambda: sum(job.state == "RUNNING" for job in rig.slurm.jobs()) == 3)
    ids = {job.job_id for job in rig.slurm.jobs()}
    assert {f"{het}+0", f"{het}+1"} <= ids
    running_task = next(job for job in ids if job.endswith("_1"))
    assert any(job.endswith("_[2-4%1]") for job in ids)
    rig.slurm.requeue(running_task)
    # A pending task is folded into its array's line, and its restart count with it.
    assert rig.wait(lambda: running_task not in {job.job_id for job in rig.slurm.jobs()})
    assert f"{het}+0" in {job.job_id for job in rig.slurm.jobs() if job.state == "RUNNING"}


def test_a_reservation_of_another_kind_is_no_fence(rig: RealRig) -> None:
    argv = ["create", "reservation", "ReservationName=slc-x", "StartTime=now", "Duration=60", "Nodes=n1"]
    rig.cluster.scontrol(*argv, "Users=nobody", "Flags=MAINT,IGNORE_JOBS")
    with pytest.raises(PermanentError):
        rig.slurm.create_fence("slc-x", "n1")
    rig.cluster.scontrol("delete", "ReservationName=slc-x")
    rig.cluster.scontrol(*argv, "Users=root")
    with pytest.raises(PermanentError):
        rig.slurm.create_fence("slc-x", "n1")


def test_a_reservation_name_with_blanks_is_read(rig: RealRig) -> None:
    name = "odd StartTime=2020-01-01T00:00:00 Nodes=n2"
    argv = ["create", "reservation", f"ReservationName={name}", "StartTime=now", "Duration=60", "Nodes=n1"]
    rig.cluster.scontrol(*argv, "Users=root", "Flags=MAINT")
    assert rig.slurm.reservations()[name].nodes == ("n1",)


# ---------------------------------------------------------------- who may, and when nobody answers


def test_a_user_may_not(rig: RealRig) -> None:
    wrapper = rig.cluster.dir / "as-nobody"
    wrapper.write_text('#!/bin/sh\nexec setpriv --reuid=65534 --regid=65534 --clear-groups scontrol "$@"\n')
    wrapper.chmod(0o755)
    settings = ScontrolSettings(scontrol=str(wrapper), slurm_conf=str(rig.cluster.conf))
    slurm = ScontrolSlurm(settings)
    calls: list[Callable[[], None]] = [
        lambda: slurm.drain("n1", OURS),
        lambda: slurm.set_comment("n1", "x"),
        lambda: slurm.create_fence("slc-x", "n1"),
    ]
    for call in calls:
        with pytest.raises(PermanentError):
            call()
    assert rig.slurm.node("n1").state == {"IDLE"}
    assert rig.slurm.reservations() == {}


def test_slurmctld_stopped_and_started_again(rig: RealRig) -> None:
    rig.slurm.drain("n1", OURS)
    rig.slurm.create_fence("slc-x", "n1")
    settings = ScontrolSettings(slurm_conf=str(rig.cluster.conf), attempts=1)
    slurm = ScontrolSlurm(settings)
    rig.cluster.stop_controller()
    try:
        for read in (slurm.nodes, slurm.jobs):
            with pytest.raises(TransientError):
                read()
        with pytest.raises(TransientError):
            slurm.set_comment("n1", "never sent")
    finally:
        rig.cluster.start_controller()
    view = rig.slurm.node("n1")
    assert "DRAIN" in view.state
    assert (view.reason, view.comment) == (OURS, "")
    assert rig.slurm.reservations()["slc-x"].nodes == ("n1",)


def test_a_write_to_a_frozen_slurmctld_is_ambiguous_and_happens_later(rig: RealRig) -> None:
    settings = ScontrolSettings(slurm_conf=str(rig.cluster.conf), attempts=1, timeout_s=1.5)
    slurm = ScontrolSlurm(settings)
    rig.cluster.freeze_controller(True)
    try:
        with pytest.raises(AmbiguousOutcome):
            slurm.set_comment("n1", "late")
        with pytest.raises(TransientError):
            slurm.nodes()
    finally:
        rig.cluster.freeze_controller(False)
    assert rig.wait(lambda: rig.slurm.node("n1").comment == "late")


def test_without_munge_nothing_is_sent(rig: RealRig, tmp_path: Path) -> None:
    conf = tmp_path / "slurm.conf"
    conf.write_text(rig.cluster.conf.read_text().replace("munge/socket", "munge/absent"))
    slurm = ScontrolSlurm(ScontrolSettings(slurm_conf=str(conf), attempts=1))
    with pytest.raises(TransientError):
        slurm.set_comment("n1", "x")
    with pytest.raises(TransientError):
        slurm.nodes()
    assert rig.slurm.node("n1").comment == ""
