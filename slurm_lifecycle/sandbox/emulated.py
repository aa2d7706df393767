"""One emulated machine: power, boot, crash, installation, GPU reset, faults; `machine.py` drives it."""

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

from slurm_lifecycle.sandbox.disk import Disk
from slurm_lifecycle.sandbox.faults import (
    BOOT_HANG,
    OS_DEAF,
    Fault,
    base_nvml,
    machine_serial,
    nvml_text,
    pci_bus,
    survivors,
)
from slurm_lifecycle.sandbox.procs import ProcessRef, is_alive, ref_of
from slurm_lifecycle.sandbox.settings import Layout, Settings

_KMSG_ERR, _KMSG_INFO = 3, 6
# A RebootProgram returns before the machine goes down; slurmd then still tells slurmctld that it ran.
_REBOOT_DELAY_S = 0.3
_DEATH_S = 4.0
# What acts on a machine's power from outside: a BMC, or a hand.
PRESSED = ("power_on", "power_off", "shutdown", "mains")
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
        self.disk = Disk(self.node)
        self.faults: list[Fault] = []
        self.replaced: dict[int, int] = {}
        self.pressed = dict.fromkeys(PRESSED, 0)
        self._boot_from = "disk"
        self._booted = False
        self._halted = False
        self._was_off = False
        self._started = 0.0
        self._kmsg_seq = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._init: ProcessRef | None = None
        self._due: tuple[float, Callable[[], None]] | None = None
        self._restore()

    def _restore(self) -> None:
        # Faults, parts and disk are the machine's own: they outlive its supervisor.
        with contextlib.suppress(OSError, ValueError, KeyError):
            raw = json.loads(self.node.machine.read_text(encoding="utf-8"))
            self.faults = [Fault.from_dict(f) for f in raw["faults"]]
            self.boots = int(raw["boots"])
            self.replaced = {int(slot): int(count) for slot, count in raw["replaced"].items()}
            self.pressed |= {key: int(raw["pressed"][key]) for key in PRESSED}
            self.disk.restore(raw)

    # ---- what others see

    def describe(self) -> dict[str, Any]:
        """State for `status`, and for the state file."""
        return {
            "node": self.node.name,
            "power": self.power,
            "booted": self._booted,
            "boot_id": self.boot_id,
            "boots": self.boots,
            "serial": machine_serial(self.node.name),
            "image": self.disk.image,
            "staged": self.disk.staged,
            "pressed": self.pressed,
            "replaced": {str(slot): count for slot, count in self.replaced.items()},
            "init": self._init.to_dict() if self._init else None,
            "faults": [fault.to_dict() for fault in self.faults],
            "operations": self.disk.operations,
        }

    def save(self) -> None:
        """Writes the state file, by rename."""
        draft = self.node.machine.with_suffix(".tmp")
        draft.write_text(json.dumps(self.describe(), indent=1), encoding="utf-8")
        draft.rename(self.node.machine)

    # ---- power

    def start(self, after_s: float = 0.0, boot_from: str = "disk") -> None:
        """Boots after the firmware's time: from the disk, or from the network."""
        self.power, self._boot_from = "starting", boot_from
        self._later(after_s, self._boot)
        self.save()

    def stop(self, power: str) -> None:
        """Ends everything on the node at once; power is what the machine is afterwards."""
        self._due = None
        self._kill_node()
        self.power, self._booted, self._halted = power, False, False
        self._was_off = self._was_off or power in ("off", "installing")
        self.disk.cut_off()
        self.save()

    def ask_shutdown(self) -> None:
        """Presses the power button for a moment: an operating system that runs and listens shuts down."""
        listens = self.power == "on" and self._booted and all(f.key != OS_DEAF for f in self.faults)
        if listens and self._init is not None and is_alive(self._init):
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._init.pid, signal.SIGPWR)

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
            self._hang()
            return
        staged = self.disk.staged if self._boot_from == "network" else {}
        if staged:
            self._install(staged["image"], staged["op_id"])
        elif self.disk.image:
            self._boot_disk()
        else:
            self._hang()

    def _hang(self) -> None:
        self.power = "hung"
        self.save()

    def _boot_disk(self) -> None:
        self.boots += 1
        self.boot_id, self._started, self._booted = str(uuid.uuid4()), time.monotonic(), False
        self._write_fresh(self.node.boot_id, f"{self.boot_id}\n")
        self._write_fresh(self.node.kmsg, "")
        self._kmsg_seq = 0
        self.kernel_log(_KMSG_INFO, f"Linux version 6.1.0 ({self.node.name}) image {self.disk.image}")
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
        base = base_nvml(self.node.name, self.settings.gpus, self.replaced)
        self._write_fresh(self.node.nvml_state, nvml_text(base, self.faults))

    # ---- commands

    def command(self, message: dict[str, Any]) -> dict[str, Any]:
        """Carries out one command; a word about why not is under `error`."""
        name = str(message.get("command"))
        commands: dict[str, Callable[[dict[str, Any]], str | None]] = {
            "status": lambda _: None,
            "crash": self._crash,
            "power_off": self._press,
            "power_on": self._press,
            "shutdown": self._press,
            "mains": self._press,
            "reboot": lambda _: self.reboot(),
            "inject": lambda told: self._inject(Fault.from_dict(told["fault"])),
            "clear": lambda told: self._clear(str(told.get("key", ""))),
            "reimage": lambda told: self._reimage(str(told["image"]), str(told["op_id"])),
            "stage": lambda told: self.disk.stage(str(told["image"]), str(told["op_id"])),
            "abort": lambda told: self.disk.abort(str(told["op_id"])),
            "replace_gpu": lambda told: self._replace_gpu(int(told["gpu"])),
        }
        if name not in commands:
            return {"error": f"unknown command {name!r}"}
        problem = commands[name](message)
        if problem:
            return {"error": f"{self.node.name} {problem}"}
        if name != "status":
            self.save()
        return self.describe()

    def _crash(self, _: dict[str, Any]) -> str:
        if self.power != "on":
            return f"is {self.power}: nothing to crash"
        self.stop("crashed")
        return ""

    def _press(self, message: dict[str, Any]) -> str:
        """Whatever acts on the machine's power; counted, so that a witness sees how often."""
        name = str(message["command"])
        self.pressed[name] += 1
        if name == "shutdown":
            self.ask_shutdown()
        elif name != "power_on":
            self.stop("off")
        elif self.power in ("off", "crashed"):
            self.start(self.settings.boot_s, str(message.get("boot_from", "disk")))
        return ""

    def reboot(self) -> None:
        """Goes down now and boots after the firmware's time."""
        self.stop("starting")
        self.start(self.settings.boot_s)

    def _inject(self, fault: Fault) -> str:
        next_step = "power" if self._was_off else "reboot"
        if self.power != "on" and not survivors([fault], next_step):
            return f"is {self.power}: a fault that a boot clears would never show"
        self.faults = [f for f in self.faults if f.key != fault.key] + [fault]
        if self.power == "on":
            # NVML first: whoever is woken by the kernel log finds the GPU in the state that the log tells of.
            self.write_nvml()
            for text in fault.kmsg:
                self.kernel_log(_KMSG_ERR, text)
        return ""

    def _clear(self, key: str) -> str:
        if key and all(f.key != key for f in self.faults):
            return f"has no fault {key!r}"
        self.faults = [f for f in self.faults if key and f.key != key]
        self.write_nvml()
        return ""

    def _replace_gpu(self, gpu: int) -> str:
        """A technician switches the machine off, puts a new GPU in, and switches it on again."""
        if not 0 <= gpu < self.settings.gpus:
            return f"has GPUs 0 to {self.settings.gpus - 1}"
        was_on = self.power != "off"
        self.stop("off")
        self.replaced[gpu] = self.replaced.get(gpu, 0) + 1
        self.faults = [fault for fault in self.faults if not fault.key.endswith(f" gpu{gpu}")]
        if was_on:
            self.start(self.settings.boot_s)
        return ""

    # ---- installation

    def _reimage(self, image: str, op_id: str) -> str:
        if op_id in self.disk.operations:
            return ""
        if self.disk.installing:
            return f"is being reimaged already (operation {self.disk.installing})"
        self.stop("off")
        self._install(image, op_id)
        return ""

    def _install(self, image: str, op_id: str) -> None:
        self.power, self._was_off = "installing", True
        self.disk.wipe(image, op_id)
        self._later(self.settings.install_s, lambda: self._installed(image))
        self.save()

    def _installed(self, image: str) -> None:
        self.faults = survivors(self.faults, "reimage")
        self.disk.write(image)
        self.start(self.settings.boot_s)

    # ---- the loop

    def node_said(self, line: bytes) -> None:
        """One line from PID 1 of the node."""
        event = json.loads(line)
        print(json.dumps({"uptime_s": round(time.monotonic() - self._started, 2), **event}), flush=True)
        if event["event"] == "init":
            self._init = ref_of(event["pid"])
        elif event["event"] == "booted":
            self._booted = True
            self.disk.end("done", self.disk.image)
        elif event["event"] == "halted":
            self._halted = True
        elif event["event"] == "failed":
            self.disk.end("failed", event["text"])
        self.save()

    def node_ended(self) -> None:
        """PID 1 of the node ended: switched off by its own operating system, or a crash."""
        if not self._halted:
            self.disk.end("failed", "the node died while it booted")
        self.stop("off" if self._halted else "crashed")

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
