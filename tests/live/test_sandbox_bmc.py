"""The sandbox's BMCs with the real Redfish client: what they tell and do is their machine's own."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from slurm_lifecycle.core.machine import BmcProblem, MachineCommand, MachineReading, PowerState, StepOutcome
from slurm_lifecycle.ports import Sent
from slurm_lifecycle.redfish.connection import Deadline
from slurm_lifecycle.redfish.pool import BmcPool
from slurm_lifecycle.redfish.settings import BmcSettings, Credentials
from slurm_lifecycle.sandbox import procs, reimage
from slurm_lifecycle.sandbox.cluster import Sandbox
from slurm_lifecycle.sandbox.settings import SandboxError
from slurm_lifecycle.sandbox.state import State
from tests.live.helpers import wait_for

pytestmark = pytest.mark.live

MakeSandbox = Callable[..., Sandbox]
_PROFILES = ("dgx_h100", "dell", "supermicro_hgx")


class Desk:
    """The sandbox, and the client for its BMCs."""

    def __init__(self, sandbox: Sandbox) -> None:
        self.sandbox = sandbox
        specs = json.loads(sandbox.layout.bmc_specs.read_text())
        self.pool = BmcPool(
            {
                one["node"]: BmcSettings(
                    one["node"],
                    f"https://127.0.0.1:{one['port']}",
                    one["profile"],
                    partial(Credentials, one["username"], one["password"]),
                    serial=one["serial"],
                    ca_file=str(sandbox.layout.bmc / "ca.pem"),
                )
                for one in specs
            }
        )

    def read(self, node: str) -> MachineReading:
        return self.pool.read([node], 20.0)[node]

    def send(self, node: str, command: MachineCommand) -> Sent:
        return self.pool.send({node: command}, 20.0)[node]


@pytest.fixture(scope="module")
def desk(_can_run: None) -> Iterator[Desk]:
    made = Sandbox.create(
        name=f"b{os.getpid()}",
        nodes=3,
        agent=False,
        boot_s=0.5,
        install_s=1.0,
        health_interval_s=0,
        bmc=True,
        bmc_profile=",".join(_PROFILES),
    )
    try:
        made.up()
        found = Desk(made)
        yield found
        found.pool.close()
    finally:
        made.down()


@pytest.mark.parametrize("node", ["n1", "n2", "n3"])
def test_power_is_the_machines_own(desk: Desk, node: str) -> None:
    machine, bmc = desk.sandbox.node(node), desk.sandbox.bmc(node)
    seen = desk.read(node)
    assert (seen.problem, seen.power, seen.serial) == (BmcProblem.NONE, PowerState.ON, f"SLC00000{node[1:]}")
    old, init = machine.boot_id(), machine.init()
    assert desk.send(node, MachineCommand.GRACEFUL_OFF).outcome is StepOutcome.ACCEPTED
    wait_for(lambda: desk.read(node).power is PowerState.OFF, 20, "it shuts down")
    assert not procs.is_alive(init)
    assert desk.send(node, MachineCommand.ON).outcome is StepOutcome.ACCEPTED
    old = machine.wait_booted(30, after=old)
    machine.inject("os-deaf")
    assert desk.send(node, MachineCommand.GRACEFUL_OFF).outcome is StepOutcome.ACCEPTED
    init = machine.init()
    assert desk.send(node, MachineCommand.FORCE_OFF).outcome is StepOutcome.ACCEPTED
    wait_for(lambda: desk.read(node).power is PowerState.OFF, 20, "its power is cut")
    assert not procs.is_alive(init)
    machine.clear()
    desk.send(node, MachineCommand.ON)
    machine.wait_booted(30, after=old)
    assert bmc.resets() == ["GracefulShutdown", "On", "GracefulShutdown", "ForceOff", "On"]
    pressed = machine.describe()["pressed"]
    assert (pressed["shutdown"], pressed["power_off"], pressed["power_on"]) == (2, 1, 2)


@pytest.mark.parametrize("node", ["n1", "n2", "n3"])
def test_a_boot_from_the_network_installs_what_is_staged(desk: Desk, node: str) -> None:
    machine = desk.sandbox.node(node)
    words = {"NODE": node, "IMAGE": "golden-3", "OP_ID": f"op-{node}"}
    reimage.hook(desk.sandbox, "stage", words)
    old = machine.boot_id()
    desk.send(node, MachineCommand.FORCE_OFF)
    wait_for(lambda: desk.read(node).power is PowerState.OFF, 20, "off")
    assert desk.send(node, MachineCommand.BOOT_ONCE).outcome is StepOutcome.ACCEPTED
    boot = desk.read(node).boot
    assert boot is not None
    assert boot.from_network_once
    desk.send(node, MachineCommand.ON)
    machine.wait_booted(30, after=old)
    assert machine.marker()["op_id"] == f"op-{node}"
    boot = desk.read(node).boot
    assert boot is not None
    assert not boot.stands
    log = [json.loads(line) for line in desk.sandbox.layout.bmc_log.read_text().splitlines()]
    asked = [one for one in log if one["node"] == node and one["method"] == "PATCH" and one["done"]]
    assert [one["body"]["Boot"]["BootSourceOverrideEnabled"] for one in asked] == ["Once"]


def test_faults_by_command_and_the_gpus_serial_numbers(desk: Desk) -> None:
    bmc, machine = desk.sandbox.bmc("n2"), desk.sandbox.node("n2")
    desk.sandbox.inject("n2", "bmc-power-says", details={"state": "Off"})
    assert (bmc.describe()["faults"], desk.read("n2").power) == (["power-says"], PowerState.OFF)
    desk.sandbox.inject("n2", "bmc-clear")
    assert desk.read("n2").power is PowerState.ON
    for wrong, words in (
        ("bmc-melting", "choose one of"),
        ("bmc-health", "--with part="),
    ):
        with pytest.raises(SandboxError, match=words):
            desk.sandbox.inject("n2", wrong)
    with pytest.raises(SandboxError, match="--with KEY=VALUE"):
        desk.sandbox.inject("n2", "bmc-slow", gpu=3)

    old = machine.boot_id()
    machine.replace_gpu(3)
    machine.wait_booted(30, after=old)
    state = dict(line.split("=", 1) for line in machine.files.nvml_state.read_text().splitlines())
    client = desk.pool.bmc("n2")
    assert client is not None
    with client.connected(Deadline(time.monotonic() + 20.0)) as redfish:
        listed = redfish.get("/redfish/v1/Systems/System.Embedded.1/Processors")["Members"]
        parts = [redfish.get(one["@odata.id"]) for one in listed]
    told = [one["SerialNumber"] for one in parts if one.get("ProcessorType") == "GPU"]
    assert told == [state[f"gpu.{i}.serial"] for i in range(8)]
    assert told[3].endswith("00103")


def test_status_tells_addresses_and_nothing_secret_is_open(desk: Desk) -> None:
    shown = desk.sandbox.status()
    assert shown["processes"]["bmc"]["alive"]
    assert all(node["bmc"].startswith("https://127.0.0.1:") for node in shown["nodes"])
    listing = subprocess.run(["ss", "-Hltnp"], capture_output=True, text=True, check=True).stdout
    mine = [line for line in listing.splitlines() if f"pid={shown['processes']['bmc']['pid']}," in line]
    assert len(mine) == 3
    assert all(line.split()[3].startswith("127.0.0.1:") for line in mine)
    folder = desk.sandbox.layout.bmc
    for path in (folder, folder / "credentials.toml", folder / "bmcs.json", folder / "server.key"):
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0, path
    assert "password" not in (folder / "bmc.toml").read_text()


def test_a_sandbox_without_bmcs_says_how_to_get_them(bare_sandbox: Sandbox) -> None:
    with pytest.raises(SandboxError, match="up --bmc"):
        bare_sandbox.inject("n1", "bmc-slow")


def test_by_command_and_after_kill_9_nothing_is_left() -> None:
    name, entry = f"bc{os.getpid()}", "from slurm_lifecycle.cli.main import main; main()"

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        argv = [sys.executable, "-c", entry, "sandbox", *arguments, "--name", name]
        return subprocess.run(argv, capture_output=True, text=True, check=False, timeout=120)

    root = Path(f"/tmp/slc-sandbox-{name}")
    try:
        up = run("up", "--nodes", "1", "--no-agent", "--boot-s", "0.5", "--bmc", "--bmc-profile", "gb200")
        assert up.returncode == 0, up.stderr
        done = run("inject", "n1", "bmc-conflict-409", "--with", "seconds=5")
        assert done.returncode == 0, done.stderr
        assert "bmc https://127.0.0.1:" in run("status").stdout
        sandbox = Sandbox.open(name)
        assert sandbox.bmc("n1").describe()["faults"] == ["conflict-409"]
        procs.send(State.load(sandbox.layout).processes["bmc"], signal.SIGKILL)
        wait_for(lambda: not sandbox.is_up(), 10, "the kill shows")
        assert run("status").returncode == 1
        assert "does not answer" in run("inject", "n1", "bmc-clear").stderr
    finally:
        down = run("down")
    assert down.returncode == 0, down.stderr
    assert (root.exists(), procs.started_under(root)) == (False, [])


def test_an_unknown_profile_is_one_line(new_sandbox: MakeSandbox) -> None:
    with pytest.raises(SandboxError, match="choose one of generic"):
        new_sandbox(nodes=1, bmc=True, bmc_profile="toaster").up()
