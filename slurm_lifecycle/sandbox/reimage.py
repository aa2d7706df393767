"""Reimage command hook: what a provisioner calls to reimage an emulated node.

`start` returns at once, and is safe to repeat with the same operation id; `poll` prints `running`, `done` or
`failed <text>`. `stage` only tells the install server what the next boot from the network is to install, and
somebody else sees to that boot. `abort` takes back what was staged; an installation under way goes on.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from slurm_lifecycle.sandbox.cluster import Sandbox
from slurm_lifecycle.sandbox.settings import SandboxError

STEPS = ("start", "poll", "stage", "abort")
_WORD = re.compile(r"[A-Za-z0-9._:/+-]{1,200}")


def _variable(environment: Mapping[str, str], name: str) -> str:
    value = environment.get(name, "")
    if not _WORD.fullmatch(value):
        raise SandboxError(f"set {name} in the environment (at most 200 of [A-Za-z0-9._:/+-])")
    return value


def hook(sandbox: Sandbox, step: str, environment: Mapping[str, str]) -> str:
    """Does one step of the hook and returns the line to print.

    Args:
        sandbox: which sandbox.
        step: one of `STEPS`.
        environment: holds NODE, OP_ID and, for `start` and `stage`, IMAGE.

    Raises:
        SandboxError: when a variable is missing, or `start` or `stage` is refused.
    """
    node = sandbox.node(_variable(environment, "NODE"))
    op_id = _variable(environment, "OP_ID")
    if step == "start":
        node.reimage(_variable(environment, "IMAGE"), op_id)
        return "started"
    if step == "stage":
        node.stage(_variable(environment, "IMAGE"), op_id)
        return "staged"
    if step == "abort":
        node.abort(op_id)
        return "aborted"
    try:
        found = node.operation(op_id)
    except SandboxError as problem:
        return f"failed {problem}"
    if found is None:
        return f"failed unknown operation {op_id}"
    return found["state"] if found["state"] != "failed" else f"failed {found['text']}"
