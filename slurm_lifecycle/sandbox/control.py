"""Talking to a machine supervisor: one JSON line to its Unix socket, one JSON line back."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

from slurm_lifecycle.sandbox.settings import SandboxError

MAX_MESSAGE_BYTES = 65536


def ask(
    control: Path, command: str, *, timeout_s: float = 10.0, what: str = "", **arguments: Any
) -> dict[str, Any]:
    """Sends one command and returns the answer.

    Args:
        control: the socket.
        command: one that the process behind it knows.
        timeout_s: for the whole of it.
        what: who that is, for people; the machine of the folder's name when left out.
        arguments: of the command.

    Raises:
        SandboxError: when the supervisor is not there, does not answer, or refuses.
    """
    who = what or f"machine of {control.parent.name}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.settimeout(timeout_s)
        try:
            client.connect(str(control))
            client.sendall((json.dumps({"command": command, **arguments}) + "\n").encode())
            answer = read_line(client)
        except OSError as problem:
            raise SandboxError(
                f"{who} does not answer ({problem}): run `slurm-lifecycle sandbox up` again"
            ) from problem
    if not answer:
        raise SandboxError(f"the {who} ended in the middle of `{command}`: see its log")
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
