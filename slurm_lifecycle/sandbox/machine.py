"""Supervisor of one emulated machine: serves commands, and looks after the node's processes.

Runs outside the node's namespaces, as a BMC and a hypervisor would. One process a node, started by `up` as
`python -m slurm_lifecycle.sandbox.machine ROOT NODE`; commands come over a Unix socket (`control.py`),
requests of the node itself (reboot, GPU reset) through a FIFO.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import sys
from pathlib import Path
from typing import Any

from slurm_lifecycle.sandbox import control
from slurm_lifecycle.sandbox.emulated import Machine
from slurm_lifecycle.sandbox.procs import ROOT_VARIABLE
from slurm_lifecycle.sandbox.settings import Layout

_CLIENT_TIMEOUT_S = 5.0


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
            buffer = lines.pop()
            for line in lines:
                machine.node_said(line)
            if not data:
                buffer = b""
                machine.node_ended()
        if fifo in ready:
            # Writes of a line are atomic on a FIFO, so each read ends with a whole one.
            for request in os.read(fifo, 4096).decode("ascii", errors="replace").splitlines():
                machine.requested(request.split())
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
