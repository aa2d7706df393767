"""No reboot under a job or an epilog, none for ever, and what happens during one is handled after it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from slurm_lifecycle.sandbox.cluster import Sandbox
from tests.live.harness import acting, clean, returned
from tests.live.outside import Slurm, stays, wait_until

pytestmark = pytest.mark.live

# Long enough for several ticks, in each of which a reboot could have been sent.
SEVERAL_TICKS_S = 8.0
# What a user may write, and what a parser of `scontrol show job` would fall for.
FORGED_NAME = "x JobState=COMPLETED NodeList=(null)\nJobId=7 JobState=FAILED\nNodeName=n1 State=IDLE\n|7|n1|"
FORGED_COMMENT = "\nNodeName=n4 State=IDLE CfgTRES=cpu=1 Reason=slc:XID79 gpu0 x [root@2026-01-01T00:00:00]\n"


@pytest.fixture
def slurm(sandbox: Sandbox) -> Iterator[Slurm]:
    slurm = Slurm(sandbox.root)
    clean(sandbox, slurm)
    yield slurm
    clean(sandbox, slurm)


@pytest.fixture
def slow_epilog(sandbox: Sandbox) -> Iterator[Path]:
    """A site's own epilog that takes as long as a file is there, before ours."""
    epilog = sandbox.root / "etc" / "hooks" / "epilog.sh"
    ours = epilog.with_name("epilog-ours.sh")
    flag = sandbox.root / "etc" / "hooks" / "slow-epilog"
    shutil.copy2(epilog, ours)
    draft = epilog.with_name("epilog.new")
    draft.write_text(f"#!/bin/sh\nwhile [ -e {flag} ]; do /bin/sleep 0.2; done\nexec /bin/sh {ours}\n")
    draft.chmod(0o755)
    draft.rename(epilog)
    yield flag
    flag.unlink(missing_ok=True)
    ours.rename(epilog)


def _drained_by_us(slurm: Slurm, node: str) -> bool:
    return slurm.node(node).reason.startswith("slc:XID79")


def _not_rebooted(slurm: Slurm, boots: dict[str, int]) -> None:
    def quiet() -> bool:
        seen = slurm.nodes()
        return all(
            slurm.boots(node) == count and not any("REBOOT" in word for word in seen[node].state)
            for node, count in boots.items()
        )

    stays(quiet, f"none of {list(boots)} is rebooted", SEVERAL_TICKS_S)


def test_no_reboot_in_a_slow_epilog_nor_under_suspended_or_forged_jobs(
    sandbox: Sandbox, slurm: Slurm, slow_epilog: Path, tmp_path: Path
) -> None:
    slow_epilog.touch()
    with acting(slurm, tmp_path) as daemon:
        ending, suspended = slurm.start_job("n2"), slurm.start_job("n3")
        forged = slurm.start_job("n4", "-J", FORGED_NAME, f"--comment={FORGED_COMMENT}")
        slurm.scontrol("suspend", suspended)
        boots = {node: slurm.boots(node) for node in ("n2", "n3", "n4")}
        for node in boots:
            sandbox.inject(node, "xid", code=79, gpu=1)
        for node in boots:
            wait_until(partial(_drained_by_us, slurm, node), f"{node} drained")
        slurm.run("scancel", ending)
        wait_until(lambda: "COMPLETING" in slurm.node("n2").state, "n2 is in its epilog")
        # Slurm shows a node with a suspended job as if nothing ran there.
        wait_until(lambda: slurm.node("n3").state >= {"IDLE", "DRAIN"}, "n3 looks drained")
        _not_rebooted(slurm, boots)
        for node in boots:
            assert "waits for job" in daemon.run_cli("node", "why", node).stdout
        # The forged records made nothing of any other node: neither an incident, nor a word.
        assert slurm.node("n1").in_service
        assert "incident" not in daemon.run_cli("node", "why", "n1").stdout

        slow_epilog.unlink()
        slurm.scontrol("resume", suspended)
        slurm.run("scancel", suspended, forged)
        for node, count in boots.items():
            returned(slurm, daemon, node)
            assert slurm.boots(node) == count + 1


def test_fault_that_comes_during_a_reboot_is_handled_after_it(
    sandbox: Sandbox, slurm: Slurm, tmp_path: Path
) -> None:
    with acting(slurm, tmp_path) as daemon:
        boots = slurm.boots("n5")
        sandbox.inject("n5", "xid", code=79, gpu=3)
        wait_until(lambda: "REBOOT_ISSUED" in slurm.node("n5").state, f"rebooting: {daemon.text()[-2000:]}")
        # Hardware that fails while the node boots: no boot cures it.
        sandbox.inject("n5", "remap-failure", gpu=6)
        wait_until(lambda: "REMAP_FAILURE gpu6" in slurm.node("n5").extra, "the new boot shows it")
        wait_until(lambda: daemon.says("-> awaiting_person", '"n5"'), f"a person: {daemon.text()[-3000:]}")
        assert slurm.boots("n5") == boots + 1
        stays(lambda: "DRAIN" in slurm.node("n5").state, "n5 stays out", 4)
        tickets = [one.read_text() for one in (tmp_path / "tickets").rglob("*") if one.is_file()]
        assert any("REMAP_FAILURE" in text for text in tickets), tickets


def test_fault_that_no_reboot_cures_gets_one_reboot(sandbox: Sandbox, slurm: Slurm, tmp_path: Path) -> None:
    with acting(slurm, tmp_path) as daemon:
        boots = slurm.boots("n6")
        sandbox.inject("n6", "gpu-lost", gpu=3, clears="never")
        wait_until(lambda: daemon.says("-> awaiting_person", '"n6"'), f"a person: {daemon.text()[-3000:]}")
        assert slurm.boots("n6") == boots + 1
        # A person says again and again that it is repaired, which it is not.
        for _ in range(3):
            seen = daemon.text().count("-> awaiting_person")
            assert daemon.run_cli("node", "release", "n6").returncode == 0
            wait_until(lambda: daemon.text().count("-> awaiting_person") > seen, "back at a person")  # noqa: B023
        assert slurm.boots("n6") <= boots + 2
        stays(lambda: "DRAIN" in slurm.node("n6").state, "n6 stays out", 4)


def test_fault_that_comes_back_after_each_reboot_gets_two(
    sandbox: Sandbox, slurm: Slurm, tmp_path: Path
) -> None:
    # Relapses are counted by nothing but the cap here: `relapse` of these tests looks back one second.
    with acting(slurm, tmp_path) as daemon:
        boots = slurm.boots("n7")
        for round_number in range(1, 4):
            sandbox.inject("n7", "xid", code=79, gpu=round_number)
            if round_number < 3:
                wait_until(
                    lambda: daemon.text().count("-> closed: in service") == round_number,  # noqa: B023
                    f"returned: {daemon.text()[-3000:]}",
                )
                wait_until(lambda: slurm.node("n7").in_service, "n7 in service")
        wait_until(lambda: daemon.says("-> awaiting_person", '"n7"'), f"a person: {daemon.text()[-3000:]}")
        assert slurm.boots("n7") == boots + 2
        assert "cap" in daemon.run_cli("node", "why", "n7").stdout
