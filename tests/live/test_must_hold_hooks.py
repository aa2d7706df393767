"""The hooks on the real slurmd: they fail open on every doubt, gate on a fresh verdict, and never pile up."""

from __future__ import annotations

import signal
import subprocess
import threading
import time
from collections.abc import Iterator

import pytest

from slurm_lifecycle.sandbox.cluster import Sandbox
from slurm_lifecycle.sandbox.node_handle import Node
from tests.live.harness import RUN, clean, frozen_agent, lets_a_job_run, signal_agent, write_verdict
from tests.live.outside import Slurm, wait_until

pytestmark = pytest.mark.live

# Each would refuse the job if it were believed; `$u` is the uptime in seconds, `$b` the boot id.
DOUBTFUL = {
    "missing": "rm -f verdict",
    "a folder": "rm -f verdict; mkdir verdict",
    "unreadable": "ln -sf /proc/self/mem verdict",
    "dangling": "ln -sf /nowhere verdict",
    "empty": ": >verdict",
    "truncated in its first line": 'printf "v1 drain $u $b XID79 gpu3 fe" >verdict',
    "without its second line": 'printf "v1 drain $u $b XID79 gpu3 fell\\n" >verdict',
    "truncated in its second line": 'printf "v1 drain $u $b XID79 gpu3 fell\\ngate y" >verdict',
    "from the future": 'printf "v1 drain $((u + 500)) $b XID79 gpu3 fell\\ngate yes\\n" >verdict',
    "of another boot": 'printf "v1 drain $u 11111111-2222-3333-4444-555555555555 X f\\ngate yes\\n" >verdict',
    "of another version": 'printf "v2 drain $u $b XID79 gpu3 fell\\ngate yes\\n" >verdict',
    "binary": "head -c 4096 /dev/urandom >verdict",
}


@pytest.fixture
def slurm(sandbox: Sandbox) -> Iterator[Slurm]:
    slurm = Slurm(sandbox.root)
    clean(sandbox, slurm)
    yield slurm
    clean(sandbox, slurm)


@pytest.fixture
def frozen(sandbox: Sandbox, slurm: Slurm) -> Iterator[Node]:
    with frozen_agent(sandbox.node("n1")) as node:
        yield node


def test_prolog_fails_open_on_every_doubtful_verdict(slurm: Slurm, frozen: Node) -> None:
    for name, shell in DOUBTFUL.items():
        write_verdict(frozen, shell)
        lets_a_job_run(slurm, frozen, name)


def test_fresh_gate_refuses_and_the_true_reason_stands_in_the_end(sandbox: Sandbox, slurm: Slurm) -> None:
    node = sandbox.node("n2")
    signal_agent(node, "STOP")
    try:
        # Nobody has drained it yet: the moment in which the gate is all that there is.
        node.inject("xid", code=79, gpu=3)
        write_verdict(node, 'printf "v1 drain $u $b XID79 gpu3 fell off the bus\\ngate yes\\n" >verdict')
        job = slurm.submit("-x", "n1,n[4-8]", script="sleep 300")
        wait_until(lambda: "DRAIN" in slurm.node("n2").state, "Slurm drains a node whose prolog fails")
        assert slurm.node("n2").reason == "Prolog error"
        assert node.run(["cat", f"{RUN}/refused.{job}"]).stdout.startswith("XID79 gpu3")
    finally:
        signal_agent(node, "CONT")
    wait_until(lambda: slurm.node("n2").reason.startswith("slc:XID79 gpu3"), "the true reason")
    # Slurm held the job; the agent, whose refusal it was, releases it. Slurm's own two minutes are cut short.
    wait_until(lambda: "held" not in slurm.job(job)["reason"].lower(), "the job is released")
    slurm.scontrol("update", f"JobId={job}", "StartTime=now")
    wait_until(lambda: slurm.job(job)["state"] == "RUNNING", "the job runs elsewhere")
    assert slurm.job(job)["nodes"] == "n3"
    assert slurm.node("n2").reason.startswith("slc:XID79 gpu3")


# ---------------------------------------------------------------- HealthCheckProgram

HUNG = """\
#!/bin/sh
trap '' TERM
echo "start $$" >>/run/slc-machine/chain.log
while :; do /bin/sleep 0.5; done
"""


@pytest.fixture
def hung_chain(sandbox: Sandbox, slurm: Slurm) -> Iterator[Node]:
    """n4 with a site's own health check that never ends and ignores TERM."""
    node = sandbox.node("n4")
    config = node.files.config / "agent.conf"
    before = config.read_text()
    script = node.files.config / "hung.sh"
    script.write_text(HUNG)
    script.chmod(0o755)
    config.write_text(before + "chain = /etc/slurm-lifecycle/hung.sh\nchain_timeout_s = 6\n")
    yield node
    config.write_text(before)
    (node.files.link / "chain.log").unlink(missing_ok=True)


def _run_hook(node: Node) -> float:
    began = time.monotonic()
    done = node.run(["/bin/sh", "/etc/slurm/hooks/healthcheck-wrapper.sh"], timeout_s=58)
    assert done.returncode == 0
    return time.monotonic() - began


def test_hung_health_check_runs_once_and_ends_itself(hung_chain: Node) -> None:
    log = hung_chain.files.link / "chain.log"
    most = 0
    took: list[float] = []
    threads = [threading.Thread(target=lambda: took.append(_run_hook(hung_chain))) for _ in range(4)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        # A command that it starts bears its name for a moment: what two looks see counts.
        looks = [hung_chain.run(["pgrep", "-c", "-f", "[h]ung.sh"]).stdout.strip() for _ in range(2)]
        most = max(most, min(int(alive or 0) for alive in looks))
        time.sleep(0.2)
    for thread in threads:
        thread.join()
    assert most == 1
    assert len(took) == 4
    # slurmd would kill it at 60 s; its own limits are 6 s for the chain and 5 s for the checks.
    assert max(took) < 40
    assert sorted(took)[0] < max(took)
    starts = log.read_text().split()
    assert len(starts) // 2 <= 2
    assert hung_chain.run(["pgrep", "-c", "-f", "[h]ung.sh"]).stdout.strip() == "0"


def test_stopped_health_check_keeps_its_place(hung_chain: Node) -> None:
    """One that hangs itself still holds the lock: the next one looks and goes."""
    argv = hung_chain.enter_command(["/bin/sh", "/etc/slurm/hooks/healthcheck-wrapper.sh"])
    first = subprocess.Popen(argv, env=hung_chain.environment(), stdin=subprocess.DEVNULL)
    try:
        wait_until(
            lambda: hung_chain.run(["pgrep", "-f", "[h]ung.sh"]).returncode == 0, "the first one works"
        )
        owner = hung_chain.run(["cat", f"{RUN}/healthcheck.lock/owner"]).stdout.split()[0]
        assert hung_chain.run(["kill", "-STOP", owner]).returncode == 0
        starts = (hung_chain.files.link / "chain.log").read_text()
        assert _run_hook(hung_chain) < 30
        assert (hung_chain.files.link / "chain.log").read_text() == starts
        assert hung_chain.run(["kill", "-CONT", owner]).returncode == 0
        # nsenter stops itself along with its child.
        first.send_signal(signal.SIGCONT)
        assert first.wait(40) == 0
    finally:
        first.kill()
        first.wait()
