"""A GPU driver library for machines without a GPU: build it, and change what its GPUs say.

Point `LD_LIBRARY_PATH` at the directory that `build` filled and `SLC_FAKE_NVML_STATE` at the file of a
`FakeNvmlState`; then any program that loads `libnvidia-ml.so.1` sees the GPUs that the file describes.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

LIBRARY_NAME = "libnvidia-ml.so.1"
STATE_VARIABLE = "SLC_FAKE_NVML_STATE"
SOURCE = Path(__file__).with_name("nvml.c")
_BUILD_TIMEOUT_S = 120


class FakeNvmlError(Exception):
    """The stand-in library could not be built or its state file not be used."""


def build(out_dir: Path) -> Path:
    """Compile the library into `out_dir`.

    Args:
        out_dir: directory for the library; made when missing. An up-to-date library there is kept.

    Returns:
        Path of the shared library.

    Raises:
        FakeNvmlError: no C compiler, or it failed.
    """
    library = out_dir / LIBRARY_NAME
    if library.exists() and library.stat().st_mtime >= SOURCE.stat().st_mtime:
        return library
    out_dir.mkdir(parents=True, exist_ok=True)
    partial = out_dir / f".{LIBRARY_NAME}.{os.getpid()}"
    command = ["gcc", "-shared", "-fPIC", "-O2", "-D_GNU_SOURCE", "-fvisibility=hidden", "-Wall", "-Wextra"]
    command += [f"-Wl,-soname,{LIBRARY_NAME}", "-o", str(partial), str(SOURCE)]
    # Also where the caller's PATH lacks it: gcc in its turn looks for its assembler and linker there.
    env = {**os.environ, "PATH": f"{os.environ.get('PATH', '')}:/usr/local/bin:/usr/bin:/bin"}
    try:
        done = subprocess.run(
            command, env=env, capture_output=True, text=True, timeout=_BUILD_TIMEOUT_S, check=False
        )
    except FileNotFoundError as error:
        raise FakeNvmlError("gcc not found: install a C compiler (apt install gcc libc6-dev)") from error
    except subprocess.TimeoutExpired as error:
        raise FakeNvmlError(f"gcc did not end within {_BUILD_TIMEOUT_S} s: try again") from error
    if done.returncode != 0:
        raise FakeNvmlError(f"gcc failed on {SOURCE}: {done.stderr.strip()[:400]}")
    partial.replace(library)
    return library


class FakeNvmlState:
    """The state file of one emulated node: `key=value` lines, replaced as a whole on each change.

    Args:
        path: the file; need not exist (no file = healthy default of eight GPUs).
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def environment(self, library_dir: Path) -> dict[str, str]:
        """Variables that make a child process see this node's GPUs."""
        return {"LD_LIBRARY_PATH": str(library_dir), STATE_VARIABLE: str(self.path)}

    def read(self) -> dict[str, str]:
        """All keys that are set; empty when the file does not exist."""
        try:
            text = self.path.read_text(encoding="utf-8")
        except FileNotFoundError:
            return {}
        pairs = (line.partition("=") for line in text.splitlines() if "=" in line and line[:1] != "#")
        return {key.strip(): value for key, _, value in pairs}

    def write(self, values: Mapping[str, object]) -> None:
        """Replace the whole state.

        Args:
            values: key to value; written in the given order.
        """
        for key, value in values.items():
            if "\n" in f"{key}{value}" or "=" in key:
                raise FakeNvmlError(
                    f"state key {key!r}: neither key nor value may hold a newline, the key no '='"
                )
        partial = self.path.with_name(f".{self.path.name}.{os.getpid()}")
        partial.write_text("".join(f"{key}={value}\n" for key, value in values.items()), encoding="utf-8")
        partial.replace(self.path)

    def update(self, changes: Mapping[str, object | None]) -> dict[str, str]:
        """Change some keys; safe against another process that changes others at the same time.

        Args:
            changes: key to new value; None removes the key (back to the healthy default).

        Returns:
            The state after the change.
        """
        lock = self.path.with_name(f".{self.path.name}.lock")
        with lock.open("a", encoding="utf-8") as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            values: dict[str, str] = self.read()
            for key, value in changes.items():
                if value is None:
                    values.pop(key, None)
                else:
                    values[key] = str(value)
            self.write(values)
        return values

    def set_gpu(self, index: int, **fields: object | None) -> dict[str, str]:
        """Change fields of one GPU, e.g. `set_gpu(3, lost=1)`; None sets a field back to healthy.

        Args:
            index: the GPU's index.
            fields: field name to value; a per-call code is set as `ret_<call>`.
        """
        changes: dict[str, object | None] = {}
        for field, value in fields.items():
            name = f"ret.{field[4:]}" if field.startswith("ret_") else field
            changes[f"gpu.{index}.{name}"] = value
        return self.update(changes)

    def reset(self) -> None:
        """Back to healthy: keeps what describes the machine (`gpus`, `name`, `driver`, identities)."""
        kept_fields = ("uuid", "serial", "bus", "name")
        kept = {
            key: value
            for key, value in self.read().items()
            if key in ("gpus", "name", "driver")
            or (key.startswith("gpu.") and key.split(".")[-1] in kept_fields)
        }
        self.write({key: value for key, value in kept.items() if ".ret." not in key})
