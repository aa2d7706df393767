"""One emulated machine: power, boot, crash, reimage, GPU reset, faults; `machine.py` drives it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

from slurm_lifecycle.sandbox.faults import BOOT_HANG, Fault, base_nvml, nvml_text, pci_bus, survivors
from slurm_lifecycle.sandbox.procs import ProcessRef, is_alive, ref_of
from slurm_lifecycle.sandbox.settings import Layout, Settings

_KMSG_ERR, _KMSG_INFO = 3, 6
# A RebootProgram returns before the machine goes down; slurmd then still tells slurmctld that it ran.
_REBOOT_DELAY_S = 0.3
_DEATH_S = 4.0
_DRIVER = "NVRM: loading NVIDIA UNIX x86_64 Kernel Module  570.124.06"


class Machine:
    """State and effects of one machine; every change is written to `machine.json` at once."""

    def __init__(self, layout: Layout, name: str) -> None:
        self.layout = layout
        self.node = layout.node(name)
        self.settings = Settings.from_json(layout.settings.read_text(encoding="utf-8"))
        self.power = "off"
        self.boot_id = ""
        self.boots = 0
        self.image = "base"
        self.faults: list[Fault] = []
        self.operations: dict[str, dict[str, str]] = {}
        self._operation = ""
        self._booted = False
        self._was_off = False
        self._started = 0.0
        self._kmsg_seq = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._init: ProcessRef | None = None
        self._due: tuple[float, Callable[[], None]] | None = None
        self._restore()

    def _restore(self) -> None:
        # Faults, image and past operations are the machine's hardware and disk: they outlive its supervisor.
        with contextlib.suppress(OSError, ValueError, KeyError):
            raw = json.loads(self.node.machine.read_text(encoding="utf-8"))
            self.faults = [Fault.from_dict(f) for f in raw["faults"]]
            self.image, self.boots = str(raw["image"]), int(raw["boots"])
            self.operations = dict(raw["operations"])

    # ---- what others see

    def describe(self) -> dict[str, Any]:
        """State for `status`, and for the state file."""
        return {
            "node": self.node.name,
            "power": self.power,
            "booted": self._booted,
            "boot_id": self.boot_id,
            "boots": self.boots,
            "image": self.image,
            "init": self._init.to_dict() if self._init else None,
            "faults": [fault.to_dict() for fault in self.faults],
            "operations": self.operations,
        }

    def save(self) -> None:
        """Writes the state file, by rename."""
        draft = self.node.machine.with_suffix(".tmp")
        draft.write_text(json.dumps(self.describe(), indent=1), encoding="utf-8")
        draft.rename(self.node.machine)

    # ---- power

    def start(self, after_s: float = 0.0) -> None:
        """Boots after the firmware's time."""
        self.power = "starting"
        self._later(after_s, self._boot)
        self.save()

    def stop(self, power: str) -> None:
        """Ends everything on the node at once; power is what the machine is afterwards."""
        self._due = None
        self._kill_node()
        self.power, self._booted = power, False
        self._was_off = self._was_off or power in ("off", "installing")
        self.save()

    def _kill_node(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        if self._init is not None and is_alive(self._init):
            # The end of PID 1 takes the whole PID namespace with it.
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._init.pid, signal.SIGKILL)
        else:
            # The child has not said its pid yet: unshare --kill-child passes the death on.
            process.kill()
        try:
            process.wait(_DEATH_S)
        except subprocess.TimeoutExpired:
            # A process in D state holds the PID namespace; a machine's reset would not wait for it either.
            print("a process of the old boot is stuck in the kernel and stays behind", flush=True)
        if process.stdout is not None:
            process.stdout.close()
        self._init = None

    def _boot(self) -> None:
        step, self._was_off = "power" if self._was_off else "reboot", False
        self.faults = survivors(self.faults, step)
        if any(fault.key == BOOT_HANG for fault in self.faults):
            self.power = "hung"
            self.save()
            return
        self.boots += 1
        self.boot_id, self._started, self._booted = str(uuid.uuid4()), time.monotonic(), False
        self._write_fresh(self.node.boot_id, f"{self.boot_id}\n")
        self._write_fresh(self.node.kmsg, "")
        self._kmsg_seq = 0
        self.kernel_log(_KMSG_INFO, f"Linux version 6.1.0 ({self.node.name}) image {self.image}")
        self.kernel_log(_KMSG_INFO, _DRIVER)
        for fault in self.faults:
            for text in fault.kmsg:
                self.kernel_log(_KMSG_ERR, text)
        self.write_nvml()
        argv = [
            sys.executable,
            "-m",
            "slurm_lifecycle.sandbox.node_init",
            str(self.layout.root),
            self.node.name,
        ]
        with (self.node.logs / "init.log").open("ab") as log:
            self._process = subprocess.Popen(
                [*unshare_command(), *argv],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                cwd="/",
                start_new_session=True,
            )
        self.power = "on"
        self.save()

    def _later(self, delay_s: float, action: Callable[[], None]) -> None:
        self._due = (time.monotonic() + delay_s, action)

    # ---- what the node sees of its hardware

    @staticmethod
    def _write_fresh(path: Path, text: str) -> None:
        # A new inode: the old one is still mounted in the namespace that is going away.
        draft = path.with_suffix(".new")
        draft.write_text(text, encoding="utf-8")
        draft.chmod(0o644)
        draft.rename(path)

    def kernel_log(self, priority: int, text: str) -> None:
        """Appends one record in the format of /dev/kmsg (facility 0, the kernel)."""
        uptime_us = int((time.monotonic() - self._started) * 1e6)
        with self.node.kmsg.open("ab") as log:
            log.write(f"{priority},{self._kmsg_seq},{uptime_us},-;{text}\n".encode())
        self._kmsg_seq += 1

    def write_nvml(self) -> None:
        """Writes the state of the fake NVML from the faults that are there now."""
        base = base_nvml(self.node.name, self.settings.gpus)
        self._write_fresh(self.node.nvml_state, nvml_text(base, self.faults))

    # ---- commands

    def command(self, message: dict[str, Any]) -> dict[str, Any]:
        """Carries out one command; a word about why not is under `error`."""
        name = message.get("command")
        if name == "status":
            return self.describe()
        if name in ("crash", "power_off"):
            if name == "crash" and self.power != "on":
                return {"error": f"{self.node.name} is {self.power}: nothing to crash"}
            self.stop("crashed" if name == "crash" else "off")
        elif name == "power_on":
            if self.power in ("off", "crashed"):
                self.start(self.settings.boot_s)
        elif name == "reboot":
            self.reboot()
        elif name == "inject":
            return self._inject(Fault.from_dict(message["fault"]))
        elif name == "clear":
            return self._clear(str(message.get("key", "")))
        elif name == "reimage":
            return self._reimage(str(message["image"]), str(message["op_id"]))
        else:
            return {"error": f"unknown command {name!r}"}
        return self.describe()

    def reboot(self) -> None:
        """Goes down now and boots after the firmware's time."""
        self.stop("starting")
        self.start(self.settings.boot_s)

    def _inject(self, fault: Fault) -> dict[str, Any]:
        next_step = "power" if self._was_off else "reboot"
        if self.power != "on" and not survivors([fault], next_step):
            return {"error": f"{self.node.name} is {self.power}: a fault that a boot clears would never show"}
        self.faults = [f for f in self.faults if f.key != fault.key] + [fault]
        if self.power == "on":
            # NVML first: whoever is woken by the kernel log finds the GPU in the state that the log tells of.
            self.write_nvml()
            for text in fault.kmsg:
                self.kernel_log(_KMSG_ERR, text)
        self.save()
        return self.describe()

    def _clear(self, key: str) -> dict[str, Any]:
        if key and all(f.key != key for f in self.faults):
            return {"error": f"{self.node.name} has no fault {key!r}"}
        self.faults = [f for f in self.faults if key and f.key != key]
        self.write_nvml()
        self.save()
        return self.describe()

    # ---- reimage

    def _reimage(self, image: str, op_id: str) -> dict[str, Any]:
        if op_id in self.operations:
            return self.describe()
        if self._operation:
            return {"error": f"{self.node.name} is being reimaged already (operation {self._operation})"}
        self.operations[op_id] = {"state": "running", "text": image}
        self._operation = op_id
        self.stop("installing")
        self._later(self.settings.install_s, lambda: self._installed(image))
        self.save()
        return self.describe()

    def _installed(self, image: str) -> None:
        self.faults = survivors(self.faults, "reimage")
        self.image = image
        self.start(self.settings.boot_s)

    def _end_operation(self, state: str, text: str) -> None:
        if self._operation:
            self.operations[self._operation] = {"state": state, "text": text}
            self._operation = ""

    # ---- the loop

    def node_said(self, line: bytes) -> None:
        """One line from PID 1 of the node."""
        event = json.loads(line)
        print(json.dumps({"uptime_s": round(time.monotonic() - self._started, 2), **event}), flush=True)
        if event["event"] == "init":
            self._init = ref_of(event["pid"])
        elif event["event"] == "booted":
            self._booted = True
            self._end_operation("done", self.image)
        elif event["event"] == "failed":
            self._end_operation("failed", event["text"])
        self.save()

    def node_ended(self) -> None:
        """PID 1 of the node ended without our doing: a crash."""
        self._end_operation("failed", "the node died while it booted")
        self.stop("crashed")

    def wait_s(self) -> float | None:
        """Time until the next thing that is due."""
        return None if self._due is None else max(0.0, self._due[0] - time.monotonic())

    def do_due(self) -> None:
        """Does what is due."""
        if self._due is not None and time.monotonic() >= self._due[0]:
            action, self._due = self._due[1], None
            action()

    def node_output(self) -> int | None:
        """File descriptor of the node's messages, while there is a node."""
        return self._process.stdout.fileno() if self._process and self._process.stdout else None

    def requested(self, words: list[str]) -> None:
        """The node asked for something: a reboot, or the reset of a GPU."""
        if self.power != "on":
            return
        if words == ["reboot"]:
            # Leaves the RebootProgram the time to return.
            self._later(_REBOOT_DELAY_S, self.reboot)
        elif len(words) == 2 and words[0] == "gpu-reset" and words[1].isdigit():
            result = self._reset_gpu(int(words[1]))
            self._write_fresh(self.node.link / f"reset.{words[1]}", f"{result}\n")

    def _reset_gpu(self, gpu: int) -> str:
        prefix = f"gpu.{gpu}."
        if not 0 <= gpu < self.settings.gpus:
            return "No devices were found"
        if any(f.nvml.get(f"{prefix}lost") == "1" for f in self.faults):
            return f"Unable to determine the device handle for GPU {pci_bus(gpu)}.0: GPU is lost"
        # A fault of one GPU carries its name; one of the whole node is not healed by a reset.
        self.faults = [f for f in self.faults if f.clears != "gpu-reset" or not f.key.endswith(f" gpu{gpu}")]
        self.write_nvml()
        self.save()
        return "ok"


def unshare_command() -> list[str]:
    """The command that gives a child its own namespaces."""
    command = ["unshare", "--pid", "--fork", "--kill-child", "--mount", "--propagation", "private", "--uts"]
    if Path("/proc/self/timens_offsets").exists():
        # Uptime of the node starts at zero at each boot, and so does the boot time that slurmd reports.
        uptime_s = int(float(Path("/proc/uptime").read_text(encoding="ascii").split()[0]))
        command += ["--time", f"--boottime=-{uptime_s}"]
    return command
