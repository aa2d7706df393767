"""The process that serves the BMCs of a sandbox, and what others tell it through its control socket.

Every request that is to change something is written to a log as well, one JSON object a line with the time of
day: what a witness counts.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TextIO

from slurm_lifecycle.sandbox import control
from slurm_lifecycle.sandbox.bmc.certificates import make_certificate
from slurm_lifecycle.sandbox.bmc.emulated_chassis import EmulatedChassis
from slurm_lifecycle.sandbox.bmc.host import BmcHost
from slurm_lifecycle.sandbox.bmc.http import Reply, Request
from slurm_lifecycle.sandbox.bmc.sessions import SESSIONS
from slurm_lifecycle.sandbox.bmc.simulator import BmcSimulator, Seen
from slurm_lifecycle.sandbox.settings import Layout

_CLIENT_TIMEOUT_S = 5.0
_CHANGES = ("POST", "PATCH", "DELETE")


@dataclass(frozen=True, slots=True)
class BmcSpec:
    """One BMC to serve, as it stands in the file; `port` is on loopback."""

    node: str
    profile: str
    port: int
    serial: str
    username: str
    password: str
    gpus: int


class NodeBmc(BmcSimulator):
    """The BMC of one emulated node."""

    def __init__(self, spec: BmcSpec, chassis: EmulatedChassis, log: TextIO) -> None:
        """Its GPUs have the serial numbers that NVML tells on the node."""
        super().__init__(
            spec.profile,
            chassis,
            serial=spec.serial,
            username=spec.username,
            password=spec.password,
            gpus=spec.gpus,
        )
        self._node = spec.node
        self._chassis = chassis
        self._log = log
        self._shown: list[str] = []

    async def answer(self, request: Request) -> Reply:
        """The answer to one request; those that are to change something are written down."""
        self._look_at_gpus()
        reply = await super().answer(request)
        seen = self.requests[-1]
        if _changes(seen):
            self._log.write(json.dumps({"node": self._node, **_event(seen), "at": time.time()}) + "\n")
            self._log.flush()
        return reply

    def _look_at_gpus(self) -> None:
        serials = self._chassis.gpu_serials()
        if serials != self._shown:
            self._shown = serials
            for slot, serial in enumerate(serials):
                self.set_part(f"gpu{slot}", serial)


def _changes(seen: Seen) -> bool:
    return seen.method in _CHANGES and not seen.path.startswith(SESSIONS)


def _event(seen: Seen) -> dict[str, Any]:
    found = asdict(seen)
    del found["headers"], found["at"]
    return found


class Commands:
    """What can be told through the control socket: `status`, `inject`, `clear` and so on."""

    def __init__(self, host: BmcHost, bmcs: dict[str, NodeBmc]) -> None:
        """Of all BMCs."""
        self._host = host
        self._bmcs = bmcs

    def answer(self, message: dict[str, Any]) -> dict[str, Any]:
        """Carries out one command; a word about why not is under `error`."""
        bmc = self._bmcs.get(str(message.get("node")))
        commands: dict[str, Callable[[NodeBmc, dict[str, Any]], dict[str, Any] | None]] = {
            "status": lambda one, _: _status(one),
            "inject": lambda one, told: one.inject(str(told["fault"]), **dict(told["parameters"])),
            "clear": lambda one, told: one.clear(str(told.get("fault", ""))),
            "set_health": lambda one, told: one.set_health(str(told["part"]), str(told["health"])),
            "end_sessions": lambda one, _: one.sessions.open.clear(),
            "log_event": lambda one, told: one.log_event(str(told["severity"]), str(told["message"])),
        }
        command = commands.get(str(message.get("command")))
        if command is None:
            return {"error": f"unknown command {message.get('command')!r}: one of {' '.join(commands)}"}
        if bmc is None:
            return {"error": f"no BMC of {message.get('node')!r}: there are {' '.join(self._bmcs)}"}
        try:
            return self._host.call(lambda: command(bmc, message)) or {}
        except (ValueError, TypeError, KeyError) as problem:
            return {"error": str(problem)}


def _status(bmc: NodeBmc) -> dict[str, Any]:
    return {"power": bmc.power.state(), "boot": bmc.power.shown(), "faults": bmc.faults.names()}


def serve(file: Path) -> int:
    """Serves every BMC that the file names until TERM.

    Args:
        file: `bmcs.json` in a sandbox's folder of BMCs.
    """
    layout = Layout(file.parent.parent)
    specs = [BmcSpec(**raw) for raw in json.loads(file.read_text(encoding="utf-8"))]
    stopped, wake = os.pipe()
    os.set_blocking(wake, False)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: None)
    signal.set_wakeup_fd(wake)
    with layout.bmc_log.open("a", encoding="utf-8") as log, BmcHost(make_certificate(layout.bmc)) as host:
        bmcs = {}
        for spec in specs:
            bmcs[spec.node] = NodeBmc(spec, EmulatedChassis(layout.node(spec.node), spec.gpus), log)
            print(f"{spec.node}: {host.add(bmcs[spec.node], spec.port)}", flush=True)
        layout.bmc_control.unlink(missing_ok=True)
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
            os.umask(0o177)
            listener.bind(str(layout.bmc_control))
            listener.listen(8)
            commands = Commands(host, bmcs)
            sources: list[Any] = [listener, stopped]
            while stopped not in (ready := select.select(sources, [], [])[0]):
                if listener in ready:
                    _answer(commands, listener)
    layout.bmc_control.unlink(missing_ok=True)
    return 0


def _answer(commands: Commands, listener: socket.socket) -> None:
    client, _ = listener.accept()
    with client:
        client.settimeout(_CLIENT_TIMEOUT_S)
        try:
            line = control.read_line(client)
            if line:
                client.sendall((json.dumps(commands.answer(json.loads(line))) + "\n").encode())
        except (OSError, ValueError, AttributeError) as problem:
            print(f"bad command: {problem!r}", flush=True)
