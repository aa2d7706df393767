"""Talking to a machine supervisor: one JSON line to its Unix socket, one JSON line back."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

from slurm_lifecycle.sandbox.settings import SandboxError

MAX_MESSAGE_BYTES = 65536


def ask(control: Path, command: str, *, timeout_s: float = 10.0, **arguments: Any) -> dict[str, Any]:
    """Sends one command and returns the answer.

    Raises:
        SandboxError: when the supervisor is not there, does not answer, or refuses.
    """
    name = control.parent.name
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.settimeout(timeout_s)
        try:
            client.connect(str(control))
            client.sendall((json.dumps({"command": command, **arguments}) + "\n").encode())
            answer = read_line(client)
        except OSError as problem:
            raise SandboxError(
                f"machine of {name} does not answer ({problem}): run `slurm-lifecycle sandbox up` again"
            ) from problem
    if not answer:
        raise SandboxError(f"the machine of {name} ended in the middle of `{command}`: see its log")
    reply: dict[str, Any] = json.loads(answer)
    if "error" in reply:
        raise SandboxError(str(reply["error"]))
    return reply


def read_line(connection: socket.socket) -> bytes:
    """Reads up to the first newline; empty when the other end closes first."""
    data = b""
    while not data.endswith(b"\n"):
        part = connection.recv(4096)
        if not part or len(data) > MAX_MESSAGE_BYTES:
            return b""
        data += part
    return data
