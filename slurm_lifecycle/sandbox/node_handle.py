"""A handle on one emulated node, for tests, demos and the command line."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from slurm_lifecycle.sandbox import control
from slurm_lifecycle.sandbox.disk import MARKER
from slurm_lifecycle.sandbox.faults import make_fault
from slurm_lifecycle.sandbox.procs import ProcessRef, is_alive
from slurm_lifecycle.sandbox.settings import Layout, SandboxError, Settings
from slurm_lifecycle.sandbox.state import node_init

_SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class Node:
    """One emulated node."""

    def __init__(self, layout: Layout, settings: Settings, name: str) -> None:
        self.name = name
        self.files = layout.node(name)
        self._layout = layout
        self._settings = settings

    def describe(self) -> dict[str, Any]:
        """Power, boot id, image, faults, operations."""
        return control.ask(self.files.control, "status")

    def power(self) -> str:
        """`on`, `off`, `starting`, `hung` (in its boot), `crashed` or `installing`."""
        return str(self.describe()["power"])

    def boot_id(self) -> str:
        """Boot id of the present boot."""
        return str(self.describe()["boot_id"])

    def init(self) -> ProcessRef:
        """PID 1 of the node, as seen from this machine.

        Raises:
            SandboxError: when the node does not run.
        """
        ref = node_init(self.files.machine)
        if ref is None or not is_alive(ref):
            raise SandboxError(
                f"{self.name} does not run: `slurm-lifecycle sandbox inject {self.name} power-on`"
            )
        return ref

    def environment(self) -> dict[str, str]:
        """Environment of a login shell on the node."""
        return {
            "PATH": _SYSTEM_PATH,
            "LANG": "C.UTF-8",
            "HOME": "/root",
            "SLURM_CONF": str(self._layout.slurm_conf),
            "LD_LIBRARY_PATH": str(self._layout.lib),
            "SLC_FAKE_NVML_STATE": "/run/slc-machine/nvml.state",
        }

    def enter_command(self, argv: Sequence[str]) -> list[str]:
        """The command that runs argv inside the node's namespaces."""
        namespaces = ["--mount", "--uts", "--pid"]
        if Path("/proc/self/timens_offsets").exists():
            namespaces.append("--time")
        return ["nsenter", "--target", str(self.init().pid), *namespaces, "--wd=/", "--", *argv]

    def run(self, argv: Sequence[str], timeout_s: float = 30.0) -> subprocess.CompletedProcess[str]:
        """Runs a command on the node; never raises for its exit status."""
        command = self.enter_command(argv)
        with subprocess.Popen(
            command,
            env=self.environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        ) as child:
            try:
                out, err = child.communicate(timeout=timeout_s)
            except subprocess.TimeoutExpired:
                # The group: nsenter's own death would leave the command running on the node.
                os.killpg(child.pid, signal.SIGKILL)
                raise
        return subprocess.CompletedProcess(command, child.returncode, out, err)

    # ---- power and faults

    def crash(self) -> None:
        """Kills everything on the node at once; it stays dead until `power_on`."""
        control.ask(self.files.control, "crash")

    def power_off(self) -> None:
        """Cuts the power; the node stays dark until `power_on`."""
        control.ask(self.files.control, "power_off")

    def power_on(self, boot_from: str = "disk") -> None:
        """Boots a node that is off or crashed, from `disk` or `network`; does nothing to a running one."""
        control.ask(self.files.control, "power_on", boot_from=boot_from)

    def shutdown(self) -> None:
        """Presses the power button: the operating system shuts down, unless it hangs or does not listen."""
        control.ask(self.files.control, "shutdown")

    def cut_mains(self) -> None:
        """Takes the mains away and gives them back; the node stays off until `power_on`."""
        control.ask(self.files.control, "mains")

    def replace_gpu(self, gpu: int) -> None:
        """A technician's visit: another GPU, with another serial number and none of the old one's faults."""
        control.ask(self.files.control, "replace_gpu", gpu=gpu)

    def reboot(self) -> None:
        """Resets the machine behind Slurm's back."""
        control.ask(self.files.control, "reboot")

    def reimage(self, image: str, op_id: str) -> None:
        """Powers off, installs the image, boots. Returns at once; `operation` tells how it goes."""
        control.ask(self.files.control, "reimage", image=image, op_id=op_id)

    def stage(self, image: str, op_id: str) -> None:
        """Tells the install server what the next boot from the network is to install."""
        control.ask(self.files.control, "stage", image=image, op_id=op_id)

    def abort(self, op_id: str) -> None:
        """Takes back what is staged for an operation; one that is being installed goes on."""
        control.ask(self.files.control, "abort", op_id=op_id)

    def marker(self) -> dict[str, str]:
        """What the node's image says of itself (/etc/slurm-lifecycle/image.json); empty where it has none."""
        try:
            found: dict[str, str] = json.loads((self.files.config / MARKER).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return found

    def operation(self, op_id: str) -> dict[str, str] | None:
        """State (`running`, `done`, `failed`) and text of a reimage; None where it is unknown."""
        found = self.describe()["operations"].get(op_id)
        return None if found is None else dict(found)

    def inject(
        self,
        fault: str,
        *,
        gpu: int | None = None,
        code: int | None = None,
        clears: str | None = None,
        text: str | None = None,
    ) -> None:
        """Injects a fault (see `faults.KINDS`), or does `crash`, `shutdown`, `power-off`, `power-on` or such.

        Args:
            fault: what happens.
            gpu: to which GPU.
            code: number of an XID.
            clears: what makes it go away: one of `faults.CLEARS`; by default as on real hardware.
            text: kernel-log text in place of the usual one.
        """
        actions = {
            "crash": self.crash,
            "shutdown": self.shutdown,
            "power-off": self.power_off,
            "power-on": self.power_on,
            "clear": self.clear,
        }
        if fault in actions:
            actions[fault]()
            return
        made = make_fault(fault, gpus=self._settings.gpus, gpu=gpu, code=code, clears=clears, text=text)
        control.ask(self.files.control, "inject", fault=made.to_dict())

    def clear(self, key: str = "") -> None:
        """Takes away one fault by its key, or all; kernel-log lines stay, as they would."""
        control.ask(self.files.control, "clear", key=key)

    def wait_booted(self, timeout_s: float = 60.0, *, after: str = "") -> str:
        """Waits until the node has booted, into another boot than `after`; returns the boot id.

        Raises:
            SandboxError: when it takes longer.
        """
        deadline = time.monotonic() + timeout_s
        while True:
            seen = self.describe()
            if seen["booted"] and seen["power"] == "on" and seen["boot_id"] != after:
                return str(seen["boot_id"])
            if time.monotonic() > deadline:
                raise SandboxError(f"{self.name} did not boot in {timeout_s:g} s: see {self.files.logs}")
            time.sleep(0.05)
