"""The marker of a node's image: read strictly, told with the verdict, read back by the daemon."""

import json
from pathlib import Path

import pytest

from slurm_lifecycle.core.formats import parse_verdict
from slurm_lifecycle.node.image_marker import ImageMarker, read_marker
from slurm_lifecycle.node.slurm_session import _numbered
from slurm_lifecycle.node.verdict import Segment, join_extra, split_extra

OP_ID = "gpu001.1764550000.reimage.1"
BOOT = "6f0c2a3e-0000-4000-8000-00000000009f"
SEGMENT = Segment(BOOT, 3, "ok", "-", "-")


def write(folder: Path, content: object) -> str:
    path = folder / "image.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return str(path)


def test_marker_is_read(tmp_path: Path) -> None:
    path = write(tmp_path, {"image": "ubuntu-24.04", "op_id": OP_ID, "built": "2026-11-01"})
    assert read_marker(path) == ImageMarker(OP_ID, "ubuntu-24.04")


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        "{",
        "[" * 100_000,
        '{"image": "a"}',
        {"image": 7, "op_id": OP_ID},
        {"image": "a b", "op_id": OP_ID},
        {"image": "a", "op_id": "x; slc1 other"},
        {"image": "a", "op_id": "x\n"},
        {"image": "a" * 201, "op_id": OP_ID},
        {"image": "a", "op_id": ",a"},
        {"image": "a" * 5000, "op_id": OP_ID},
    ],
)
def test_whatever_is_odd_is_no_marker(tmp_path: Path, content: object) -> None:
    assert read_marker(write(tmp_path, content)) is None


def test_a_missing_one_and_a_folder_are_no_marker(tmp_path: Path) -> None:
    assert read_marker(str(tmp_path / "none")) is None
    assert read_marker(str(tmp_path)) is None


@pytest.mark.parametrize("foreign", ["", "rack=12", "img=mine,theirs"])
@pytest.mark.parametrize("marker", ["", ImageMarker(OP_ID, "registry/ubuntu@24.04").format()])
def test_told_with_the_verdict_and_read_by_the_daemon(foreign: str, marker: str) -> None:
    segment = Segment(BOOT, 3, "drain", "XID79", "gpu3", marker)
    extra = join_extra(foreign, segment)
    assert split_extra(extra) == (foreign, segment)
    verdict = parse_verdict(extra)
    assert verdict is not None
    assert (verdict.code, verdict.component) == ("XID79", "gpu3")
    assert (verdict.image_op, verdict.image) == ((OP_ID, "registry/ubuntu@24.04") if marker else ("", ""))


def test_a_new_marker_is_written_again_under_the_next_number() -> None:
    later = Segment(BOOT, 3, "ok", "-", "-", f"img={OP_ID},a")
    assert _numbered(later, SEGMENT).seq == 4
    assert _numbered(SEGMENT, SEGMENT) is SEGMENT
