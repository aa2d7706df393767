"""The serial numbers on record: which machine a node's BMC must belong to. Written whole, or not at all."""

import contextlib
import fcntl
import json
import os
import re
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from slurm_lifecycle.errors import ConfigError
from slurm_lifecycle.service.config import read_toml
from slurm_lifecycle.service.config_schema import SerialsFile, checked

_HEAD = (
    "# Which machine each node is. Written by `slurm-lifecycle bmc record`; nothing is sent to another one.\n"
)
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_MODE = 0o644


def read_serials(path: Path) -> dict[str, str]:
    """Serial number by node; none where there is no such file yet.

    Raises:
        ConfigError: one line that names file, key and remedy.
    """
    if not path.exists():
        return {}
    found: SerialsFile = checked(SerialsFile, read_toml(path, ""), path)
    return dict(found.serial)


def write_serials(path: Path, new: Mapping[str, str], seen: Mapping[str, str]) -> None:
    """Put serial numbers on record beside those of other nodes.

    Args:
        path: the file; a link is followed, its target replaced in one step.
        new: serial number by node.
        seen: what was on record when it was decided; written only if that still stands for these nodes.

    Raises:
        ConfigError: somebody else changed it meanwhile, or it cannot be written.
    """
    try:
        target = path.resolve()
        with _alone(target.parent):
            table = read_serials(target)
            for node in new:
                if table.get(node, "") != seen.get(node, ""):
                    raise ConfigError(
                        f"{path}: {node} was changed meanwhile; nothing was written, run it again"
                    )
            _replace(target, _text({**table, **new}))
    except BlockingIOError:
        raise ConfigError(f"{path}: another `bmc record` writes it just now; run it again") from None
    except OSError as error:
        raise ConfigError(
            f"{path}: cannot be written: {error.strerror}; run this as the owner of its folder"
        ) from None


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """One writer at a time; the folder is the lock, since the file itself is replaced."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(handle)


def _text(table: Mapping[str, str]) -> str:
    lines = (f"{_key(node)} = {_string(serial)}\n" for node, serial in sorted(table.items()))
    return f"{_HEAD}[serial]\n{''.join(lines)}"


def _key(node: str) -> str:
    return node if _BARE_KEY.fullmatch(node) else _string(node)


def _string(text: str) -> str:
    # A JSON string without escapes of halves of characters is a TOML string as well.
    return json.dumps(text, ensure_ascii=False)


def _replace(target: Path, text: str) -> None:
    before = target.stat() if target.exists() else None
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            os.fchmod(file.fileno(), _MODE if before is None else before.st_mode & 0o777)
            if before is not None:
                # Whoever may read it has to read it afterwards, the daemon's user above all.
                os.fchown(file.fileno(), before.st_uid, before.st_gid)
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(target)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
