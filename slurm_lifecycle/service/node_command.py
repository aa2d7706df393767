"""Runs a command on a node by a site's own way, usually ssh. For reading details, never for repair."""

import os
import re
import shlex
from collections.abc import Sequence

from slurm_lifecycle.errors import PermanentError, TransientError
from slurm_lifecycle.plain_text import plain_line
from slurm_lifecycle.ports import CommandResult
from slurm_lifecycle.site_command import run_site_command

MAX_OUTPUT_BYTES = 1024 * 1024
_NODE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}")
# What ssh itself reports when it did not get through; the command's own status is another.
_SSH_FAILED = 255
_INHERITED = ("HOME", "USER", "SSH_AUTH_SOCK", "KRB5CCNAME")


class TemplateNodeCommand:
    """Implements `ports.NodeCommand` by an argument list in which `{node}` stands for the node's name."""

    def __init__(self, argv_template: Sequence[str]) -> None:
        """Set the way.

        Args:
            argv_template: e.g. `ssh -o BatchMode=yes -o ConnectTimeout=5 {node} --`; the command follows as
                one quoted argument, since a shell on the node reads it. Empty: this site has no way.
        """
        self._template = tuple(argv_template)

    def run(self, node: str, argv: Sequence[str], timeout_s: float) -> CommandResult:
        """Run and wait.

        Raises:
            TransientError: no way is configured, or the node could not be reached.
            PermanentError: the name cannot be a node's.
        """
        operation = f"run {argv[0] if argv else '(nothing)'} on {node}"
        if not self._template:
            raise TransientError(operation, "no way is set: set [node_command] argv in the configuration")
        # A name such as `-oProxyCommand=...` would be an option to ssh.
        if not _NODE_NAME.fullmatch(node):
            raise PermanentError(operation, "this is no name of a node")
        command = [item.replace("{node}", node) for item in self._template] + [shlex.join(argv)]
        environment = {key: os.environ[key] for key in _INHERITED if key in os.environ}
        ended = run_site_command(command, environment, timeout_s=timeout_s, max_output_bytes=MAX_OUTPUT_BYTES)
        if not ended.started:
            raise TransientError(operation, f"{ended.failure}: correct [node_command] argv")
        if ended.code == _SSH_FAILED:
            raise TransientError(operation, plain_line(ended.first_words) or "not reached")
        return CommandResult(ended.code, ended.stdout, ended.stderr or ended.failure)
