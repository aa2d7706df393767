"""Power cycles by the real daemon through the sandbox's BMCs, with everything going wrong in the middle.

What was sent is counted at the BMC, what became of the machine is read from the machine.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from slurm_lifecycle.sandbox import bmcs
from slurm_lifecycle.sandbox.cluster import Sandbox
from tests.live.harness import acting, clean, returned
from tests.live.outside import Slurm, stays, wait_until

pytestmark = pytest.mark.live

NODE = "n2"
# Straight to the power rung: what comes before it is other tests' matter.
_POLICY: dict[str, Any] = {
    "machine": {
        "graceful_off": "3s",
        "force_off": "10s",
        "off_dwell": "3s",
        "on": "20s",
        "retry": "1s",
        "silent": "20s",
    },
    "paths": {"reboot": [{"rung": "power", "deadline": "200s"}, {"rung": "rma", "deadline": "60s"}]},
    "caps": {"power": [{"count": 50, "within": "24h"}]},
}


@pytest.fixture(scope="module")
def machines(_can_run: None) -> Iterator[Sandbox]:
    made = Sandbox.create(name=f"m{os.getpid()}", nodes=2, boot_s=0.5, bmc=True, bmc_profile="dell")
    try:
        made.up()
        yield made
    finally:
        made.down()


@pytest.fixture
def slurm(machines: Sandbox) -> Iterator[Slurm]:
    slurm = Slurm(machines.root)

    def well() -> None:
        for name in machines.settings.node_names():
            machines.bmc(name).clear()
            # Each daemon that is killed here leaves one, and a BMC has few.
            machines.bmc(name).end_sessions()
        clean(machines, slurm)

    well()
    yield slurm
    well()


class Bench:
    """A daemon that may power-cycle the node, and counts from here on."""

    def __init__(self, sandbox: Sandbox, slurm: Slurm, folder: Path) -> None:
        self.sandbox = sandbox
        self.slurm = slurm
        self.bmc = sandbox.bmc(NODE)
        self.node = sandbox.node(NODE)
        self._before = len(self.bmc.resets())
        self._asked_before = 0
        self._asked_before = len(self.asked())
        self._boots = slurm.boots(NODE)
        folder.mkdir(exist_ok=True)
        (folder / "bmc.toml").write_text(bmcs.bmc_toml(sandbox.layout))
        serials = (sandbox.layout.bmc / "serials.toml").read_text()
        (folder / "serials.toml").write_text(serials)
        self.settings: dict[str, Any] = {
            "site": {
                "rungs": ["drain", "return", "power", "rma"],
                "bmc": {"file": str(folder / "bmc.toml"), "serials": str(folder / "serials.toml")},
            },
            "policy": _POLICY,
        }
        self.folder = folder

    def resets(self) -> list[str]:
        """What the BMC did since."""
        return self.bmc.resets()[self._before :]

    def asked(self) -> list[str]:
        """What the BMC was asked for, also where it refused."""
        sent = [one["body"] for one in self.bmc.requests() if one["path"].endswith("/ComputerSystem.Reset")]
        return [str(body["ResetType"]) for body in sent[self._asked_before :]]

    def boots(self) -> int:
        """How often the machine booted since."""
        return self.slurm.boots(NODE) - self._boots

    def fail(self) -> None:
        """A fault that only power clears, under an operating system that does not shut down."""
        self.sandbox.inject(NODE, "os-deaf")
        self.sandbox.inject(NODE, "xid", code=79, gpu=3, clears="power")

    def power(self) -> str:
        return str(self.slurm.machine(NODE)["power"])


@pytest.fixture
def bench(machines: Sandbox, slurm: Slurm, tmp_path: Path) -> Bench:
    return Bench(machines, slurm, tmp_path)


def _reached(bench: Bench, moment: str) -> bool:
    if moment == "off":
        return bench.power() == "off"
    return moment in bench.resets()


@pytest.mark.parametrize("moment", ["GracefulShutdown", "ForceOff", "off", "On"])
def test_a_daemon_killed_in_a_power_cycle_is_followed_by_one_that_ends_it(bench: Bench, moment: str) -> None:
    with acting(bench.slurm, bench.folder, **bench.settings) as daemon:
        bench.fail()
        before = {"ForceOff": "GracefulShutdown", "On": "ForceOff"}.get(moment)
        if before is not None:
            wait_until(lambda: before in bench.resets(), f"{before}: {daemon.log}")
        if moment != "off":
            # It dies over the very request: whether that was sent stands nowhere.
            bench.bmc.inject("timeout-after-accept", path="ComputerSystem.Reset")
        wait_until(lambda: _reached(bench, moment), f"{moment}: {daemon.log}")
        daemon.kill()
        bench.bmc.clear()
        daemon.start()
        returned(bench.slurm, daemon, NODE)
    assert bench.resets() == ["GracefulShutdown", "ForceOff", "On"]
    assert bench.boots() == 1
    assert bench.slurm.fences() == {}


def test_a_persons_drain_in_the_middle_leaves_the_machine_on_and_theirs(bench: Bench) -> None:
    reason = "mine: do not touch"
    with acting(bench.slurm, bench.folder, **bench.settings) as daemon:
        bench.bmc.inject("conflict-409", seconds=8)
        bench.fail()
        wait_until(lambda: bench.power() == "off", f"off: {daemon.log}")
        bench.slurm.drain(NODE, reason)
        wait_until(lambda: bench.power() == "on", f"on again: {daemon.log}")
        wait_until(lambda: bench.boots() == 1, "it boots")
        stays(lambda: bench.slurm.node(NODE).reason == reason, "the person's reason", 6.0)
    assert bench.resets() == ["GracefulShutdown", "ForceOff", "On"]
    assert "DRAIN" in bench.slurm.node(NODE).state


def test_a_bmc_that_says_off_of_a_machine_that_is_on_is_not_believed(bench: Bench) -> None:
    boot = bench.slurm.machine(NODE)["boot_id"]
    with acting(bench.slurm, bench.folder, **bench.settings) as daemon:
        bench.bmc.inject("power-says", state="Off")
        bench.fail()
        # Its BMC refuses that, since the machine is on.
        wait_until(lambda: "On" in bench.asked(), f"On: {daemon.log}")
        stays(lambda: "DRAIN" in bench.slurm.node(NODE).state, "never returned without a boot", 12.0)
    assert bench.slurm.machine(NODE)["boot_id"] == boot
    assert "ForceOff" not in bench.resets()


@pytest.mark.parametrize("fault", ["wrong-serial", "no-serial"])
def test_another_machines_bmc_is_sent_nothing(bench: Bench, fault: str) -> None:
    with acting(bench.slurm, bench.folder, **bench.settings) as daemon:
        bench.bmc.inject(fault)
        bench.fail()
        wait_until(lambda: "DRAIN" in bench.slurm.node(NODE).state, "the drain")
        stays(lambda: bench.resets() == [], f"nothing is sent: {daemon.log}", 15.0)
    assert bench.boots() == 0


def test_a_node_with_a_job_is_not_switched_off(bench: Bench) -> None:
    job = bench.slurm.start_job(NODE, "--no-requeue")
    with acting(bench.slurm, bench.folder, **bench.settings) as daemon:
        bench.fail()
        wait_until(lambda: "DRAIN" in bench.slurm.node(NODE).state, "the drain")
        stays(lambda: bench.slurm.job(job)["state"] == "RUNNING", "its job runs on", 12.0)
        assert bench.resets() == []
        bench.slurm.run("scancel", job)
        returned(bench.slurm, daemon, NODE)
    assert bench.resets() == ["GracefulShutdown", "ForceOff", "On"]


def test_a_boot_that_hangs_is_cured_by_the_power_cycle(bench: Bench) -> None:
    policy = {**_POLICY, "paths": {"reboot": [{"rung": "power", "deadline": "200s"}]}}
    settings = {**bench.settings, "policy": policy}
    with acting(bench.slurm, bench.folder, **settings) as daemon:
        bench.sandbox.inject(NODE, "boot-hang")
        bench.sandbox.inject(NODE, "xid", code=79, gpu=3, clears="power")
        bench.node.reboot()
        wait_until(lambda: bench.power() == "hung", "the boot hangs")
        returned(bench.slurm, daemon, NODE)
    assert bench.resets() == ["GracefulShutdown", "ForceOff", "On"]
