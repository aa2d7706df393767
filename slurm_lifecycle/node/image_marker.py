"""The marker that an installer leaves on a new root: which image it is, and which operation put it there.

It proves a reimage: a new boot alone proves a reboot, and the image's name alone stands there from before.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Optional

_MAX_BYTES = 4096
# As the daemon reads them at the end of a node's Extra field; what is longer or odd counts as no marker.
_OP_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,199}")
_IMAGE = re.compile(r"[A-Za-z0-9._:/@+-]{1,200}")


@dataclass(frozen=True)
class ImageMarker:
    """What a marker says."""

    op_id: str
    image: str

    def format(self) -> str:
        """As it stands at the end of our part of the node's Extra field."""
        return f"img={self.op_id},{self.image}"


def read_marker(path: str) -> Optional[ImageMarker]:
    """The marker in a file such as `{"image": "ubuntu-24.04", "op_id": "gpu001.1764550000.reimage.1"}`.

    Args:
        path: the file; a missing, unreadable or odd one is no marker.
    """
    try:
        with open(path, "rb") as file:
            content = file.read(_MAX_BYTES + 1)
        if len(content) > _MAX_BYTES:
            return None
        found = json.loads(content.decode("utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    if not isinstance(found, dict):
        return None
    op_id, image = found.get("op_id"), found.get("image")
    if not (isinstance(op_id, str) and isinstance(image, str)):
        return None
    if not (_OP_ID.fullmatch(op_id) and _IMAGE.fullmatch(image)):
        return None
    return ImageMarker(op_id, image)
