"""RMA tickets: what they say, and what a node that lies cannot do to them."""

import json
import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slurm_lifecycle.errors import PermanentError, TransientError
from slurm_lifecycle.ports import TicketFacts
from slurm_lifecycle.sandbox import fake_nvml
from slurm_lifecycle.service.tickets import FileTickets, ticket_text

_REPORT: Mapping[str, object] = {
    "version": 1,
    "agent": "0.1.0",
    "driver": "570.86.15",
    "boot_id": "6b9c1f5e",
    "gpus": [
        {"index": 2, "uuid": "GPU-22", "serial": "1650022", "pci_bus_id": "0000:3a:00", "name": "H100"},
        {"index": 3, "uuid": "GPU-33", "serial": "1650033", "pci_bus_id": "0000:3b:00", "name": "H100"},
    ],
    "findings": [
        {"code": "FS_FULL", "component": "/tmp", "text": "file system is full", "evidence": "98%"},
        {
            "code": "XID79",
            "component": "gpu3",
            "text": "fell off the bus",
            "evidence": "NVRM: Xid (PCI:0000:3b:00): 79\nGPU has fallen off the bus.",
            "device": "0000:3b:00",
        },
    ],
}

_FACTS = TicketFacts(
    op_id="n1.1800000000.rma.1",
    node="n1",
    code="XID79",
    component="gpu3",
    text="fell off the bus",
    opened_at=1_800_000_000.0,
    now=1_800_003_600.0,
    history=(
        "2027-01-15T08:00:00Z opened: XID79 gpu3 (daemon)",
        "2027-01-15T08:30:00Z attempt: reboot 1: failed",
    ),
    report=_REPORT,
    report_error="",
)


def test_a_ticket_says_what_a_technician_needs(tmp_path: Path) -> None:
    where = FileTickets(tmp_path / "new" / "folder").write(_FACTS)
    assert where == str(tmp_path / "new" / "folder" / "n1.1800000000.rma.1.md")
    text = Path(where).read_text()
    for needed in (
        "# RMA: n1 gpu3",
        "Serial      1650033",
        "UUID        GPU-33",
        "PCI bus id  0000:3b:00",
        "XID79: fell off the bus",
        "\n      NVRM: Xid (PCI:0000:3b:00): 79\n      GPU has fallen off the bus.\n",
        "reboot 1: failed",
        "2027-01-15 08:00:00 UTC",
        "driver 570.86.15",
        "slurm-lifecycle rma close n1",
        "slurm-lifecycle node release n1",
    ):
        assert needed in text
    assert "Check before you pull it" not in text
    # The evidence of the part in question comes first.
    assert text.index("XID79 gpu3:") < text.index("FS_FULL /tmp:")
    assert [path.name for path in (tmp_path / "new" / "folder").glob("*.part")] == []


def test_an_index_of_another_boot_is_not_taken_for_the_part() -> None:
    """After a boot without the dead GPU, `gpu3` is the one that was `gpu4`."""
    healthy = {**_REPORT, "findings": []}
    assert "Check before you pull it" in ticket_text(replace(_FACTS, report=healthy))
    moved = {**_REPORT, "findings": [{"code": "XID79", "component": "gpu3", "device": "0000:9f:00"}]}
    assert "Check before you pull it" in ticket_text(replace(_FACTS, report=moved))


def test_a_node_that_cannot_be_asked_still_gets_a_ticket() -> None:
    text = ticket_text(replace(_FACTS, report=None, report_error="cat on n1: No route\nto host"))
    assert "cat on n1: No route to host" in text
    assert "Serial      " not in text
    assert "slurm-lifecycle rma close n1" in text


def test_a_part_that_is_no_gpu_gets_a_ticket() -> None:
    text = ticket_text(replace(_FACTS, component="-", code="DIMM"))
    assert "names no GPU for this component" in text
    assert "gpu3  serial 1650033" in text


_HOSTILE = "x\n# RMA: other\n\n```\n<script>\x1b[2J\x00\u202e\u2028| a |{{ 7*7 }}{% raw %}"


@pytest.mark.parametrize(
    "report",
    [
        {"gpus": [dict.fromkeys(("index", "serial", "uuid", "pci_bus_id", "name"), _HOSTILE)]},
        {"findings": [{"code": _HOSTILE, "component": _HOSTILE, "text": _HOSTILE, "evidence": _HOSTILE}]},
        {
            "findings": [
                {"evidence": [_HOSTILE, 1, None, {"a": _HOSTILE}]},
                {"evidence": {_HOSTILE: _HOSTILE}},
            ]
        },
        {"driver": _HOSTILE, "agent": [_HOSTILE], "boot_id": {"x": 1}},
        {"gpus": "many", "findings": 7},
        {"gpus": [None, 1, [], "x"], "findings": [None, [[]]]},
    ],
)
def test_what_a_node_says_adds_no_lines_of_its_own(report: dict[str, Any]) -> None:
    text = ticket_text(replace(_FACTS, report=report, text=_HOSTILE, history=(_HOSTILE,)))
    _assert_harmless(text)
    assert "{{ 7*7 }}" in text


def _assert_harmless(text: str) -> None:
    headings = [line for line in text.split("\n") if line.startswith("#")]
    assert [line.split(":")[0] for line in headings] == [
        "# RMA",
        "## The part",
        "## All GPUs of the node",
        "## Evidence",
        "## What happened and what was tried",
        "## When the part is replaced",
    ]
    assert not [line for line in text.split("\n") if line.startswith(("```", "<", "|", "---"))]
    assert all(char.isprintable() or char == "\n" for char in text)


_JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(), inner, max_size=5),
    max_leaves=20,
)
_GPU = st.dictionaries(st.sampled_from(["index", "uuid", "serial", "pci_bus_id", "device", "name"]), _JSON)
_FINDING = st.dictionaries(st.sampled_from(["code", "component", "text", "evidence", "device"]), _JSON)


@settings(max_examples=150, deadline=None)
@given(
    st.fixed_dictionaries(
        {"gpus": st.lists(_GPU | _JSON) | _JSON, "findings": st.lists(_FINDING | _JSON) | _JSON}
    ),
    st.text(),
    st.lists(st.text(), max_size=5),
)
def test_any_report_makes_a_harmless_ticket(report: dict[str, object], text: str, history: list[str]) -> None:
    _assert_harmless(ticket_text(replace(_FACTS, report=report, text=text, history=tuple(history))))


def test_a_huge_report_makes_a_bounded_ticket() -> None:
    report: dict[str, object] = {
        "gpus": [{"index": i, "serial": "9" * 10_000} for i in range(5000)],
        "findings": [{"code": "X", "evidence": ["e" * 10_000] * 5000} for _ in range(500)],
    }
    assert len(ticket_text(replace(_FACTS, report=report, history=("h" * 10_000,) * 5000))) < 200_000


def _command(tmp_path: Path, body: str) -> list[str]:
    path = tmp_path / "command"
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return [str(path)]


def test_the_command_gets_the_file_and_is_asked_once(tmp_path: Path) -> None:
    command = _command(tmp_path, f'echo "$TICKET $NODE $OP_ID" >> {tmp_path}/log; test -s "$TICKET"')
    tickets = FileTickets(tmp_path / "t", command)
    where = tickets.write(_FACTS)
    # A technician wrote into it; a second write of the same operation (after a crash) must not lose that.
    Path(where).write_text("part ordered")
    assert tickets.write(replace(_FACTS, now=_FACTS.now + 5)) == where
    assert Path(where).read_text() == "part ordered"
    assert (tmp_path / "log").read_text() == f"{where} n1 {_FACTS.op_id}\n"


@pytest.mark.parametrize("body", ["echo tracker is down >&2; exit 1", "sleep 30"])
def test_a_failing_command_leaves_the_ticket_and_is_tried_again(tmp_path: Path, body: str) -> None:
    failing = FileTickets(tmp_path / "t", _command(tmp_path, body), timeout_s=0.3)
    with pytest.raises(TransientError, match=r"the ticket is in .*n1\.1800000000\.rma\.1\.md"):
        failing.write(_FACTS)
    assert "1650033" in (tmp_path / "t" / f"{_FACTS.op_id}.md").read_text()
    working = FileTickets(tmp_path / "t", _command(tmp_path, f"echo again > {tmp_path}/log"))
    working.write(_FACTS)
    assert (tmp_path / "log").read_text() == "again\n"


def test_trouble_with_the_folder_is_transient(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(TransientError, match="check the folder"):
        FileTickets(tmp_path / "file" / "t").write(_FACTS)


@pytest.mark.parametrize("op_id", ["../../etc/passwd", "a/b", "", ".hidden", "a\nb", "x" * 300])
def test_an_operation_that_is_no_file_name_is_refused(tmp_path: Path, op_id: str) -> None:
    with pytest.raises(PermanentError, match="name of a file"):
        FileTickets(tmp_path / "t").write(replace(_FACTS, op_id=op_id))
    assert not (tmp_path / "t").exists()


@pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc to build the fake NVML library")
def test_the_report_of_the_real_agent_names_the_part(tmp_path: Path) -> None:
    """The agent itself, over a fake driver: it saw the GPU well, then the GPU asks for a reset."""
    library = fake_nvml.build(tmp_path)
    (tmp_path / "kmsg").write_text("")
    (tmp_path / "agent.conf").write_text(
        f"[agent]\nrun_dir={tmp_path}/run\nkmsg={tmp_path}/kmsg\nscontrol=/bin/false\nnode_name=n1\n"
    )
    environment = {
        **os.environ,
        "LD_LIBRARY_PATH": str(library.parent),
        "SLC_FAKE_NVML_STATE": str(tmp_path / "state"),
    }
    command = [
        sys.executable,
        "-m",
        "slurm_lifecycle.node",
        "--config",
        str(tmp_path / "agent.conf"),
        "--once",
    ]
    for state in ("gpus=4\n", "gpus=4\ngpu.3.reset_required=1\n"):
        (tmp_path / "state").write_text(state)
        subprocess.run(command, env=environment, capture_output=True, timeout=120, check=False)
    report = json.loads((tmp_path / "run" / "report.json").read_text())
    part = next(gpu for gpu in report["gpus"] if gpu["index"] == 3)
    text = ticket_text(replace(_FACTS, report=report, code="GPU_RESET_REQ"))
    assert f"Serial      {part['serial']}\n" in text
    assert f"UUID        {part['uuid']}\n" in text
    assert f"PCI bus id  {part['pci_bus_id']}\n" in text
    assert "GPU_RESET_REQ gpu3: GPU requires a reset" in text
    assert "Check before you pull it" not in text
    assert report["boot_id"] in text
