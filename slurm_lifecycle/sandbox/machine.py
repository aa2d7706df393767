"""Supervisor of one emulated machine: power, boot, crash, reimage, faults.

Runs outside the node's namespaces, as a BMC and a hypervisor would. One process a node, started by `sandbox up` with
`python -m slurm_lifecycle.sandbox.machine ROOT NODE`; commands come over a Unix socket (`control.py`), a reboot from
the node itself through a FIFO that its RebootProgram writes to.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

from slurm_lifecycle.sandbox import control
from slurm_lifecycle.sandbox.faults import Fault, base_nvml, nvml_text
from slurm_lifecycle.sandbox.procs import ROOT_VARIABLE, ProcessRef, is_alive, ref_of
from slurm_lifecycle.sandbox.settings import Layout, Settings

_KMSG_ERR, _KMSG_INFO = 3, 6
# A RebootProgram returns before the machine goes down; slurmd then still tells slurmctld that it ran.
_REBOOT_DELAY_S = 0.3
_CLIENT_TIMEOUT_S = 5.0
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
        process.wait()
        if process.stdout is not None:
            process.stdout.close()
        self._init = None

    def _boot(self) -> None:
        self.faults = [f for f in self.faults if f.clears != "reboot"]
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
        if self.power != "on" and fault.clears == "reboot":
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
        self.faults = [f for f in self.faults if f.clears not in ("reboot", "reimage")]
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

    def request_reboot(self) -> None:
        """The node asked for a reboot; leaves its RebootProgram the time to return."""
        if self.power == "on":
            self._later(_REBOOT_DELAY_S, self.reboot)


def unshare_command() -> list[str]:
    """The command that gives a child its own namespaces."""
    command = ["unshare", "--pid", "--fork", "--kill-child", "--mount", "--propagation", "private", "--uts"]
    if Path("/proc/self/timens_offsets").exists():
        # Uptime of the node starts at zero at each boot, and so does the boot time that slurmd reports.
        uptime_s = int(float(Path("/proc/uptime").read_text(encoding="ascii").split()[0]))
        command += ["--time", f"--boottime=-{uptime_s}"]
    return command


def serve(machine: Machine, listener: socket.socket, fifo: int, stopped: int) -> None:
    """Serves commands until TERM."""
    buffer = b""
    while True:
        output = machine.node_output()
        sources: list[Any] = [listener, fifo, stopped]
        if output is not None:
            sources.append(output)
        ready, _, _ = select.select(sources, [], [], machine.wait_s())
        if stopped in ready:
            machine.stop("off")
            return
        if output is not None and output in ready:
            data = os.read(output, 4096)
            lines = (buffer + data).split(b"\n")
            buffer = lines.pop() if data else b""
            for line in lines:
                machine.node_said(line)
            if not data:
                machine.node_ended()
        if fifo in ready and b"reboot" in os.read(fifo, 4096):
            machine.request_reboot()
        if listener in ready:
            _answer(machine, listener)
        machine.do_due()


def _answer(machine: Machine, listener: socket.socket) -> None:
    client, _ = listener.accept()
    with client:
        client.settimeout(_CLIENT_TIMEOUT_S)
        try:
            line = control.read_line(client)
            if line:
                client.sendall((json.dumps(machine.command(json.loads(line))) + "\n").encode())
        except (OSError, ValueError, KeyError) as problem:
            print(f"bad command: {problem!r}", flush=True)


def main(argv: list[str]) -> int:
    """Entry point: `machine ROOT NODE`."""
    layout = Layout(Path(argv[0]))
    os.environ[ROOT_VARIABLE] = str(layout.root)
    machine = Machine(layout, argv[1])
    node = machine.node
    node.control.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(str(node.control))
    node.control.chmod(0o600)
    listener.listen(8)
    # Opened for writing too, so that it never reads as closed between two requests.
    fifo = os.open(node.request_fifo, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    stopped, wake = os.pipe()
    os.set_blocking(wake, False)
    for signum in (signal.SIGTERM, signal.SIGINT):
        signal.signal(signum, lambda *_: None)
    signal.set_wakeup_fd(wake)
    machine.start()
    serve(machine, listener, fifo, stopped)
    node.control.unlink(missing_ok=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
