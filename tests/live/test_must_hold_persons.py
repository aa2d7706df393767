"""What a person does to a node stands, byte for byte, at whatever step of the ladder it comes."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from slurm_lifecycle.sandbox.cluster import Sandbox
from tests.live.harness import acting, clean, returned, verdict_ok
from tests.live.outside import Observer, Slurm, stays, wait_until

pytestmark = pytest.mark.live

# Looks like ours, like Slurm's and like a record, and is none of it.
REASON = 'RMA 4711: "fan" = dead; slc:XID79 [root@2020-01-01T00:00:00] State=IDLE'
# Ten ticks of the daemon.
QUIET_S = 5.0
# An agent that could not drain looks again after 30 s.
AGENT_LOOKS_AGAIN_S = 33.0


@pytest.fixture
def slurm(sandbox: Sandbox) -> Iterator[Slurm]:
    slurm = Slurm(sandbox.root)
    clean(sandbox, slurm)
    yield slurm
    clean(sandbox, slurm)


def _untouched(slurm: Slurm, node: str, reason: str = REASON) -> None:
    """The person's drain stands and stays, and nothing more is done to the node."""
    boots = slurm.boots(node)
    stays(
        lambda: slurm.node(node).reason == reason and "DRAIN" in slurm.node(node).state,
        f"the drain and reason of {node} stay",
        QUIET_S,
    )
    assert slurm.boots(node) == boots


def _in_service_and_left_alone(slurm: Slurm, node: str, for_s: float = QUIET_S) -> None:
    boots = slurm.boots(node)
    stays(lambda: "DRAIN" not in slurm.node(node).state, f"{node} is not drained a second time", for_s)
    assert slurm.boots(node) == boots
    assert slurm.node(node).in_service


def test_a_persons_drain_survives_healthcheck_agent_daemon_and_its_restart(
    sandbox: Sandbox, slurm: Slurm, tmp_path: Path
) -> None:
    comment = "asset 4711 rack=3 State=DOWN"
    slurm.scontrol("update", "NodeName=n2", f"Comment={comment}")
    slurm.drain("n2", REASON)
    slurm.drain("n3", REASON)
    boots = slurm.boots("n2")
    with Observer(slurm) as seen, acting(slurm, tmp_path) as daemon:
        sandbox.inject("n2", "xid", code=79, gpu=3)
        wait_until(lambda: " drain XID79 " in slurm.node("n2").extra, "the agent says what it found")
        wait_until(lambda: "drained by a person" in daemon.run_cli("node", "why", "n2").stdout, "held")
        daemon.kill()
        # No agent, so that the health check runs the checks in its place.
        node = sandbox.node("n2")
        node.run(["sh", "-c", 'for p in $(pgrep -f "slurm_lifecycle[.]node$"); do kill $p; done'])
        node.run(["rm", "-f", "/run/slurm-lifecycle/verdict"])
        node.run(["/bin/sh", "/etc/slurm/hooks/healthcheck-wrapper.sh"], timeout_s=60)
        daemon.start()
        _untouched(slurm, "n2")
    assert seen.reasons("n2") == [REASON]
    assert seen.reasons("n3") == [REASON]
    assert slurm.boots("n2") == boots
    assert slurm.node("n2").comment == comment
    # The person is done with it, the fault is not: only now the ladder begins; the comment stays.
    with acting(slurm, tmp_path) as daemon:
        slurm.undrain("n2")
        returned(slurm, daemon, "n2")
    assert slurm.boots("n2") == boots + 1
    assert slurm.node("n2").comment == comment


def test_a_person_drains_while_the_node_drains(sandbox: Sandbox, slurm: Slurm, tmp_path: Path) -> None:
    slurm.scontrol("update", "NodeName=n2", "Comment=asset 4711")
    with acting(slurm, tmp_path) as daemon:
        job = slurm.start_job("n2")
        sandbox.inject("n2", "xid", code=79, gpu=3)
        wait_until(lambda: slurm.node("n2").reason.startswith("slc:XID79"), "ours")
        wait_until(lambda: "waits for job" in daemon.run_cli("node", "why", "n2").stdout, "draining")
        slurm.drain("n2", REASON)
        slurm.run("scancel", job)
        wait_until(lambda: slurm.job(job)["state"] == "CANCELLED", "the job ended")
        _untouched(slurm, "n2")
        # And the undrain of a node that we had drained first is a person's word on its fault.
        slurm.undrain("n2")
        wait_until(lambda: daemon.says("-> closed", "drain was taken away", '"n2"'), "cancelled")
        _in_service_and_left_alone(slurm, "n2")
        assert slurm.node("n2").comment == "asset 4711"


def test_a_person_drains_while_the_node_reboots(sandbox: Sandbox, slurm: Slurm, tmp_path: Path) -> None:
    with acting(slurm, tmp_path) as daemon:
        boots = slurm.boots("n3")
        update = f"NodeName=n3 State=DRAIN Reason={shlex.quote(REASON)}"
        daemon.wrapper.on(" reboot n3 ", after=f"/usr/bin/scontrol update {update}")
        sandbox.inject("n3", "xid", code=79, gpu=3)
        wait_until(lambda: daemon.wrapper.hit, "the reboot was sent")
        wait_until(lambda: slurm.boots("n3") == boots + 1 and verdict_ok(slurm, "n3"), "n3 booted")
        # Slurm itself appends to whatever reason stands when it issues the reboot.
        reason = slurm.node("n3").reason
        assert reason in (REASON, f"{REASON} : reboot issued")
        _untouched(slurm, "n3", reason)


def test_a_person_drains_or_undrains_while_the_node_is_down_in_its_reboot(
    sandbox: Sandbox, slurm: Slurm, tmp_path: Path
) -> None:
    with Observer(slurm) as seen, acting(slurm, tmp_path) as daemon:
        boots = {node: slurm.boots(node) for node in ("n4", "n5")}
        for node in boots:
            sandbox.inject(node, "xid", code=79, gpu=3)
        wait_until(lambda: "REBOOT_ISSUED" in slurm.node("n4").state, f"rebooting: {daemon.text()[-2000:]}")
        slurm.drain("n4", REASON)
        wait_until(lambda: "REBOOT_ISSUED" in slurm.node("n5").state or slurm.boots("n5") > boots["n5"], "n5")
        slurm.undrain("n5")
        # Slurm loses drains of its own in a reboot, so this one looks like one of those: the node is checked
        # behind its fence as if nothing were, and ends where the person wanted it, after that one boot.
        returned(slurm, daemon, "n5")
        wait_until(lambda: slurm.boots("n4") == boots["n4"] + 1 and verdict_ok(slurm, "n4"), "n4 booted")
        _untouched(slurm, "n4")
        assert slurm.boots("n5") == boots["n5"] + 1
    states = [one.state for one in seen.history["n5"]]
    first = next(i for i, state in enumerate(states) if "REBOOT_ISSUED" in state)
    last = max(i for i, state in enumerate(states) if state & {"DRAIN", "DOWN", "MAINTENANCE"})
    assert all(state & {"DRAIN", "DOWN", "MAINTENANCE"} for state in states[first:last])


def test_a_person_drains_or_undrains_while_the_node_is_verified(
    sandbox: Sandbox, slurm: Slurm, tmp_path: Path
) -> None:
    policy = {"deadlines": {"verify_settle": "30s"}}
    with acting(slurm, tmp_path, policy=policy) as daemon:
        for node in ("n5", "n6"):
            sandbox.inject(node, "xid", code=79, gpu=3)
        for node in ("n5", "n6"):
            words = ("-> verifying", f'"{node}"')
            wait_until(partial(daemon.says, *words), f"{node}: {daemon.text()[-2000:]}")
            assert "reboot issued" in slurm.node(node).reason
        slurm.drain("n5", REASON)
        slurm.undrain("n6")
        _untouched(slurm, "n5")
        _in_service_and_left_alone(slurm, "n6")
        assert daemon.says("-> closed", "drain was taken away", '"n6"')
        wait_until(lambda: "n6" not in slurm.fences().values(), "the fence of n6 is gone")
        # The one that the person drained is free of our fence too: it is the person's now.
        wait_until(lambda: "n5" not in slurm.fences().values(), "the fence of n5 is gone")


def test_a_person_undrains_while_the_node_drains(sandbox: Sandbox, slurm: Slurm, tmp_path: Path) -> None:
    with acting(slurm, tmp_path) as daemon:
        job = slurm.start_job("n7")
        sandbox.inject("n7", "xid", code=79, gpu=3)
        wait_until(lambda: "waits for job" in daemon.run_cli("node", "why", "n7").stdout, "draining")
        slurm.undrain("n7")
        wait_until(lambda: daemon.says("-> closed", "drain was taken away", '"n7"'), "cancelled")
        _in_service_and_left_alone(slurm, "n7", AGENT_LOOKS_AGAIN_S)
        assert slurm.job(job)["state"] == "RUNNING"
        # The fault still stands: it is the occurrence that a person has decided about.
        assert " drain XID79 " in slurm.node("n7").extra


def test_a_person_drains_in_the_moment_before_the_return(
    sandbox: Sandbox, slurm: Slurm, tmp_path: Path
) -> None:
    """Between the reads of the tick and the last look before the UNDRAIN a person's drain is seen.

    What Slurm cannot close: it has no compare-and-set, so a drain that reaches slurmctld after that last look
    and before the UNDRAIN itself is lifted. That window is the start of one scontrol, nothing else is in it.
    """
    with acting(slurm, tmp_path) as daemon:
        drain = f"/usr/bin/scontrol update NodeName=n8 State=DRAIN Reason={shlex.quote(REASON)}"
        arm = f'printf %s "show reservation" >"$d/pattern"; printf %s {shlex.quote(drain)} >"$d/after2"'
        chain = f'{arm}; mv "$d/after2" "$d/after"'
        daemon.wrapper.on(";returning]", after=chain)
        sandbox.inject("n8", "xid", code=79, gpu=3)
        wait_until(lambda: slurm.node("n8").reason == REASON, f"the drain came: {daemon.text()[-3000:]}")
        _untouched(slurm, "n8")
        assert daemon.says("skipped", "not ours any more"), daemon.text()[-3000:]
        assert not [line for line in daemon.wrapper.writes() if "NodeName=n8 State=UNDRAIN" in line]


def test_nothing_comes_between_the_last_look_and_the_return(
    sandbox: Sandbox, slurm: Slurm, tmp_path: Path
) -> None:
    with acting(slurm, tmp_path) as daemon:
        sandbox.inject("n8", "xid", code=79, gpu=3)
        returned(slurm, daemon, "n8")
        calls = daemon.wrapper.calls()
        at = [i for i, line in enumerate(calls) if "NodeName=n8 State=UNDRAIN" in line]
        assert len(at) == 1
        assert calls[at[0] - 1].endswith(" -o show node n8 ") or "show node n8" in calls[at[0] - 1]
