"""Where the name and password of BMCs come from: a private file, variables, or a site's command (a vault).

Never from the configuration itself, and never to a log, an argument list or the store.
"""

import os
import stat
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from slurm_lifecycle.errors import ConfigError
from slurm_lifecycle.site_command import run_site_command

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_MAX_BYTES = 64 * 1024
_COMMAND_TIMEOUT_S = 15.0
# A vault is asked for each BMC, not for each request.
_KEPT_S = 600.0
Secret = tuple[str, str]


def from_file(path: Path) -> Callable[[], Secret]:
    """From a TOML file with `username` and `password`, read anew each time, so that a change is seen.

    Args:
        path: mode 0600, of the user who runs this or of root.
    """

    def read() -> Secret:
        return _read(path)

    return read


def _read(path: Path) -> Secret:
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}; write username and password") from None
    with os.fdopen(handle, "rb") as file:
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode):
            raise ConfigError(f"{path}: not a plain file")
        if found.st_mode & 0o077:
            raise ConfigError(f"{path}: others may read it: chmod 600 {path}")
        if found.st_uid not in (0, os.geteuid()):
            raise ConfigError(f"{path}: belongs to somebody else: chown {os.geteuid()} {path}")
        content = file.read(_MAX_BYTES)
    try:
        table = tomllib.loads(content.decode("utf-8"))
    except (ValueError, RecursionError):
        # Not what the parser says: it may quote the line, and the line the password.
        raise ConfigError(f'{path}: not valid TOML: write username = "..." and password = "..."') from None
    return _pair(str(path), table.get("username"), table.get("password"))


def from_environment(prefix: str) -> Callable[[], Secret]:
    """From the variables `<prefix>_USERNAME` and `<prefix>_PASSWORD`."""

    def read() -> Secret:
        names = f"{prefix}_USERNAME", f"{prefix}_PASSWORD"
        return _pair(f"variables {names[0]} and {names[1]}", *(os.environ.get(one) for one in names))

    return read


def from_command(
    argv: Sequence[str], node: str, address: str, *, clock: Callable[[], float] = time.monotonic
) -> Callable[[], Secret]:
    """From a site's command: it gets NODE and ADDRESS and prints the name and the password, a line each."""
    kept: list[tuple[float, Secret]] = []

    def read() -> Secret:
        if kept and clock() - kept[0][0] < _KEPT_S:
            return kept[0][1]
        environment = {"NODE": node, "ADDRESS": address}
        ended = run_site_command(argv, environment, timeout_s=_COMMAND_TIMEOUT_S)
        if ended.code != 0:
            # Its output may hold what must not be shown.
            why = ended.failure or f"ended with {ended.code}"
            raise ConfigError(f"credentials command {argv[0]} for {node}: {why}")
        lines = ended.stdout.splitlines()
        pair = _pair(f"credentials command {argv[0]} for {node}", *[*lines, "", ""][:2])
        kept[:] = [(clock(), pair)]
        return pair

    return read


def _pair(where: str, username: object, password: object) -> Secret:
    if not (isinstance(username, str) and isinstance(password, str) and username and password):
        raise ConfigError(f"{where}: a username and a password are needed, both as text")
    if not username.isprintable() or ":" in username or not password.isprintable():
        raise ConfigError(f"{where}: the username or the password holds a character that no BMC takes")
    return username, password
