"""A job that the prolog gate refused and that a person holds since is not released by the agent."""

import pytest

from slurm_lifecycle.sandbox.cluster import Sandbox
from tests.live.harness import clean, signal_agent, write_verdict
from tests.live.outside import Slurm, stays, wait_until

pytestmark = pytest.mark.live


def pending_reason(slurm: Slurm, job_id: str) -> str:
    """Slurm's word for why the job waits, blanks as underscores as newer releases print them."""
    return slurm.job(job_id)["reason"].replace(" ", "_")


def test_job_that_a_person_holds_after_the_refusal_stays_held(sandbox: Sandbox) -> None:
    slurm = Slurm(sandbox.root)
    node = sandbox.node("n6")
    try:
        signal_agent(node, "STOP")
        node.inject("xid", code=79, gpu=1)
        write_verdict(node, 'printf "v1 drain $u $b XID79 gpu1 fell off the bus\\ngate yes\\n" >verdict')
        job = slurm.submit("--nodelist=n6")
        wait_until(lambda: pending_reason(slurm, job) == "launch_failed_requeued_held", "Slurm holds the job")
        slurm.scontrol("release", job)
        slurm.scontrol("uhold", job)
        wait_until(lambda: pending_reason(slurm, job) == "JobHeldUser", "a person holds it")
        signal_agent(node, "CONT")
        wait_until(lambda: slurm.node("n6").reason.startswith("slc:XID79 gpu1"), "the true reason")
        # The agent looks from its next heartbeat on, 30 s at the latest.
        stays(lambda: pending_reason(slurm, job) == "JobHeldUser", "held by a person", 40.0)
    finally:
        signal_agent(node, "CONT")
        clean(sandbox, slurm)
