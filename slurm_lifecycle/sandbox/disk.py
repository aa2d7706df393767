"""What an emulated machine boots from: its disk, and what the sandbox's install server has for it.

An installer begins by wiping the disk. A machine that is switched off in the middle has nothing to boot from
until it is installed again, as a real one.
"""

from __future__ import annotations

import contextlib
import json
import re
import time
from pathlib import Path
from typing import Any

from slurm_lifecycle.sandbox.settings import NodeLayout

FIRST_IMAGE = "base"
MARKER = "image.json"
# As strict as what the node agent takes out of the marker again.
_WORD = re.compile(r"[A-Za-z0-9._:/+-]{1,200}")


class Disk:
    """A disk, its image and the operations that changed it.

    Attributes:
        image: what it holds; "" while it is being installed, and where that was cut off.
        operations: state (`running`, `done`, `failed`) and text of each reimage by its id.
        installing: id of the one that is under way, from the wiping to the first boot.
    """

    def __init__(self, node: NodeLayout) -> None:
        """As it came from the factory."""
        self._marker = node.config / MARKER
        self._netboot = node.netboot
        self.image = FIRST_IMAGE
        self.operations: dict[str, dict[str, str]] = {}
        self.installing = ""

    def restore(self, raw: dict[str, Any]) -> None:
        """As an earlier supervisor wrote it down."""
        self.image = str(raw["image"])
        self.operations = {str(key): dict(value) for key, value in raw["operations"].items()}

    # ---- the install server

    @property
    def staged(self) -> dict[str, str]:
        """What the next network boot installs: `image` and `op_id`; empty where nothing is staged."""
        with contextlib.suppress(OSError, ValueError):
            raw = json.loads(self._netboot.read_text(encoding="utf-8"))
            if isinstance(raw, dict) and all(_is_word(raw.get(key)) for key in ("image", "op_id")):
                return {"image": raw["image"], "op_id": raw["op_id"]}
        return {}

    def stage(self, image: str, op_id: str) -> str:
        """Notes what the next network boot is to install; why not, or ""."""
        if not (_is_word(image) and _is_word(op_id)):
            return "image and operation: at most 200 of [A-Za-z0-9._:/+-]"
        if op_id in self.operations:
            return ""
        if self.installing:
            return f"is being reimaged already (operation {self.installing})"
        self._take_back("another operation was staged")
        self.operations[op_id] = {"state": "running", "text": image}
        _write(self._netboot, {"image": image, "op_id": op_id})
        return ""

    def abort(self, op_id: str) -> None:
        """Takes back what is staged for an operation; one that is being installed is not stopped."""
        if self.staged.get("op_id") == op_id:
            self._take_back("taken back")

    def _take_back(self, why: str) -> None:
        before = self.staged.get("op_id", "")
        self._netboot.unlink(missing_ok=True)
        if before in self.operations:
            self.operations[before] = {"state": "failed", "text": why}

    # ---- installing

    def wipe(self, image: str, op_id: str) -> None:
        """An installer begins: the old image and its marker are gone."""
        self.operations[op_id] = {"state": "running", "text": image}
        self.installing, self.image = op_id, ""
        self._marker.unlink(missing_ok=True)

    def write(self, image: str) -> None:
        """It ends: the new root bears the marker of its own operation, and the next boot is from it."""
        self.image = image
        built = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        _write(self._marker, {"image": image, "op_id": self.installing, "built": built})
        if self.staged.get("op_id") == self.installing:
            self._netboot.unlink(missing_ok=True)

    def end(self, state: str, text: str) -> None:
        """The operation under way came to its end; nothing where there is none."""
        if self.installing:
            self.operations[self.installing] = {"state": state, "text": text}
            self.installing = ""

    def cut_off(self) -> None:
        """The machine goes down: an installation that has not written its image is over."""
        if self.installing and not self.image:
            self.end("failed", "the machine went down while it was installed")


def _is_word(value: object) -> bool:
    return isinstance(value, str) and _WORD.fullmatch(value) is not None


def _write(path: Path, content: dict[str, str]) -> None:
    draft = path.with_suffix(".new")
    draft.write_text(json.dumps(content) + "\n", encoding="ascii")
    draft.chmod(0o644)
    draft.rename(path)
