"""A job that the prolog gate refuses: the true reason in the end, the job let go, a person's hold kept."""

import time

import pytest

from slurm_lifecycle.sandbox.cluster import Sandbox
from tests.live.harness import clean
from tests.live.outside import Slurm, stays, wait_until

pytestmark = pytest.mark.live
REFUSED = "launch_failed_requeued_held"


def pending_reason(slurm: Slurm, job_id: str) -> str:
    """Slurm's word for why the job waits, blanks as underscores as newer releases print them."""
    return slurm.job(job_id)["reason"].replace(" ", "_")


def test_refused_job_is_released_and_the_reason_is_the_true_one(sandbox: Sandbox) -> None:
    slurm = Slurm(sandbox.root)
    node = "n5"
    try:
        # A `hold` mark keeps the agent from draining, so that the job meets the gate and nothing else.
        slurm.scontrol("update", f"NodeName={node}", "Comment=rack 4 slc1[x;-;0;hold;hold]")
        sandbox.inject(node, "xid", code=79, gpu=2)
        wait_until(lambda: " drain XID79 " in slurm.node(node).extra, "the agent saw the fault")
        job = slurm.submit(f"--nodelist={node}")
        held = slurm.submit(f"--nodelist={node}", "--hold")
        wait_until(lambda: slurm.node(node).reason == "Prolog error", "the prolog refused the job")
        wait_until(lambda: pending_reason(slurm, job) == REFUSED, "Slurm holds the refused job")
        slurm.scontrol("update", f"NodeName={node}", "Comment=rack 4")
        wait_until(lambda: slurm.node(node).reason.startswith("slc:XID79 gpu2"), "the true reason")
        wait_until(lambda: pending_reason(slurm, job) not in ("", REFUSED), "the job is let go")
        assert slurm.job(job)["state"] == "PENDING"
        assert pending_reason(slurm, held) == "JobHeldUser"
        assert slurm.node(node).comment == "rack 4"
    finally:
        slurm.scontrol("update", f"NodeName={node}", "Comment=")
        clean(sandbox, slurm)


def test_job_that_a_person_holds_after_the_refusal_stays_held(sandbox: Sandbox) -> None:
    slurm = Slurm(sandbox.root)
    node = "n6"
    try:
        slurm.scontrol("update", f"NodeName={node}", "Comment=slc1[x;-;0;hold;hold]")
        sandbox.inject(node, "xid", code=79, gpu=1)
        wait_until(lambda: " drain XID79 " in slurm.node(node).extra, "the agent saw the fault")
        job = slurm.submit(f"--nodelist={node}")
        wait_until(lambda: pending_reason(slurm, job) == REFUSED, "Slurm holds the refused job")
        slurm.scontrol("release", job)
        slurm.scontrol("uhold", job)
        wait_until(lambda: pending_reason(slurm, job) == "JobHeldUser", "a person holds it")
        slurm.scontrol("update", f"NodeName={node}", "Comment=")
        wait_until(lambda: slurm.node(node).reason.startswith("slc:XID79 gpu1"), "the true reason")
        until = time.monotonic() + 45
        stays(
            lambda: pending_reason(slurm, job) == "JobHeldUser", "held by a person", until - time.monotonic()
        )
    finally:
        slurm.scontrol("update", f"NodeName={node}", "Comment=")
        clean(sandbox, slurm)
