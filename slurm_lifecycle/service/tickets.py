"""Writes RMA tickets as files and hands each to a site's own command.

What a node says of itself is not trusted: it is taken apart piece by piece, bounded, and stripped of all that
is no printable character. The values stand in indented blocks, in which Markdown means nothing.
"""

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

from slurm_lifecycle.errors import PermanentError, TransientError
from slurm_lifecycle.plain_text import plain_line
from slurm_lifecycle.ports import TicketFacts
from slurm_lifecycle.service.render import render
from slurm_lifecycle.site_command import run_site_command

# It becomes a file name.
_OP_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,199}")
_MAX_GPUS = 64
_MAX_EVIDENCE = 60
_MAX_HISTORY = 300
_LINE_LIMIT = 300
# The names that a field goes by; the first that is there counts.
_BUS_ID = ("bus_id", "pci_bus_id", "device", "bus")


@dataclass(frozen=True, slots=True)
class _Gpu:
    """One GPU as the node names it; every field is a plain line."""

    index: str
    serial: str
    uuid: str
    bus_id: str
    name: str


class FileTickets:
    """Implements `ports.Tickets`."""

    def __init__(self, folder: Path | str, command: Sequence[str] = (), *, timeout_s: float = 60.0) -> None:
        """Set where tickets go.

        Args:
            folder: made when the first ticket is written.
            command: gets TICKET (the file), NODE and OP_ID; empty: the file is all.
            timeout_s: until the command is killed.
        """
        self._folder = Path(folder)
        self._command = tuple(command)
        self._timeout_s = timeout_s

    def write(self, facts: TicketFacts) -> str:
        """Write the ticket and hand it over; returns the file.

        A ticket that was handed over is not touched again: a person may have written in it by then.

        Raises:
            TransientError: the file could not be written, or the command failed (the file stays).
            PermanentError: the operation's id cannot be a file's name.
        """
        operation = f"write ticket for {facts.node}"
        if not _OP_ID.fullmatch(facts.op_id):
            raise PermanentError(operation, f"{facts.op_id!r} cannot be the name of a file")
        ticket = self._folder / f"{facts.op_id}.md"
        handed_over = self._folder / f".{facts.op_id}.handed-over"
        try:
            if ticket.exists() and handed_over.exists():
                return str(ticket)
            self._folder.mkdir(parents=True, exist_ok=True)
            _write_by_rename(ticket, ticket_text(facts))
            self._hand_over(facts, ticket, operation)
            handed_over.touch()
        except OSError as error:
            raise TransientError(
                operation, f"{self._folder}: {error.strerror}: check the folder's owner and disk"
            ) from error
        return str(ticket)

    def _hand_over(self, facts: TicketFacts, ticket: Path, operation: str) -> None:
        if not self._command:
            return
        environment = {"TICKET": str(ticket), "NODE": facts.node, "OP_ID": facts.op_id}
        ended = run_site_command(self._command, environment, timeout_s=self._timeout_s)
        if ended.code != 0:
            why = ended.failure or f"{self._command[0]} ended with {ended.code}: {ended.first_words}"
            raise TransientError(operation, f"{plain_line(why)}; the ticket is in {ticket}")


def ticket_text(facts: TicketFacts) -> str:
    """The ticket as Markdown."""
    report = facts.report if facts.report is not None else {}
    gpus = _gpus(report)
    gpu = next((gpu for gpu in gpus if _is_component(gpu, facts.component)), None)
    return render(
        "rma_ticket.md.j2",
        op_id=plain_line(facts.op_id),
        node=plain_line(facts.node, 100),
        component=_word(facts.component),
        code=_word(facts.code),
        text=plain_line(facts.text, _LINE_LIMIT),
        opened_at=_time(facts.opened_at),
        now=_time(facts.now),
        gpu=gpu,
        certain=gpu is not None and _is_certain(gpu, report, facts),
        gpus=gpus,
        evidence=_evidence(report, facts),
        facts=_software(report),
        history=[plain_line(line, _LINE_LIMIT) for line in facts.history[-_MAX_HISTORY:]],
        report_error=plain_line(facts.report_error, _LINE_LIMIT) if facts.report is None else "",
    )


def _gpus(report: Mapping[str, object]) -> list[_Gpu]:
    return [
        _Gpu(
            index=_field(entry, ("index",)),
            serial=_field(entry, ("serial",)),
            uuid=_field(entry, ("uuid",)),
            bus_id=_field(entry, _BUS_ID),
            name=_field(entry, ("name",)),
        )
        for entry in _entries(report, "gpus")[:_MAX_GPUS]
    ]


def _is_component(gpu: _Gpu, component: str) -> bool:
    return component in (f"gpu{gpu.index}", gpu.bus_id, gpu.uuid)


def _is_certain(gpu: _Gpu, report: Mapping[str, object], facts: TicketFacts) -> bool:
    """Whether the node itself ties the fault to this very GPU now.

    An index alone does not: in a boot in which a GPU is missing, those behind it move up.
    """
    return any(
        (_field(entry, ("code",)), _field(entry, ("component",))) == (facts.code, facts.component)
        and _field(entry, _BUS_ID) in (gpu.bus_id, "unknown")
        for entry in _entries(report, "findings")
    )


def _evidence(report: Mapping[str, object], facts: TicketFacts) -> list[str]:
    """The node's findings, those of this component first."""
    found: list[tuple[int, str]] = []
    for entry in _entries(report, "findings"):
        component, code = _field(entry, ("component",)), _field(entry, ("code",))
        rank = (component != facts.component) + (code != facts.code)
        found.append((rank, f"{code} {component}: {_field(entry, ('text',))}"))
        found += [(rank, f"  {line}") for line in _lines(entry.get("evidence"))]
    # Stable, so that a finding's evidence stays under it.
    return [line for _, line in sorted(found, key=lambda item: item[0])][:_MAX_EVIDENCE]


def _lines(value: object) -> list[str]:
    """Evidence as the node gives it: one text, a list of texts, or names with values."""
    if isinstance(value, str):
        items: list[object] = list(value[:20_000].splitlines())
    elif isinstance(value, list):
        items = list(value)
    elif isinstance(value, dict):
        items = [f"{key} = {item}" for key, item in list(value.items())[:_MAX_EVIDENCE]]
    else:
        items = []
    lines = (plain_line(item, _LINE_LIMIT) for item in items[:_MAX_EVIDENCE])
    return [line for line in lines if line]


def _software(report: Mapping[str, object]) -> str:
    """What the node runs, in one line; empty where it does not say."""
    names = ("driver", "agent", "boot_id", "mode")
    known = {name: _field(report, (name,)) for name in names if isinstance(report.get(name), str | int)}
    return "  ".join(f"{name} {value}" for name, value in known.items())


def _entries(report: Mapping[str, object], key: str) -> list[dict[str, object]]:
    value = report.get(key)
    if not isinstance(value, list):
        return []
    return [entry for entry in value[:1000] if isinstance(entry, dict)]


def _field(entry: Mapping[str, object], names: Sequence[str]) -> str:
    for name in names:
        value = entry.get(name)
        if isinstance(value, str | int | float) and not isinstance(value, bool) and value != "":
            return _word(value)
    return "unknown"


def _word(value: object) -> str:
    return plain_line(value, 200) or "unknown"


def _time(at: float) -> str:
    try:
        return datetime.fromtimestamp(at, timezone.utc).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (ValueError, OverflowError, OSError):
        return "unknown"


def _write_by_rename(path: Path, text: str) -> None:
    """A reader sees the whole ticket or none; a power failure leaves the old one or the new one."""
    part = path.with_name(f".{path.name}.part")
    with part.open("w", encoding="utf-8") as handle:
        handle.write(text)
        handle.flush()
        os.fsync(handle.fileno())
    part.replace(path)
