"""The log: one line an event, JSON for a collector or key=value for a terminal, on stderr.

Text from nodes and people is escaped, so that one event is always one line and nothing in it moves a cursor.
"""

import json
import logging
import sys
from collections.abc import Mapping
from datetime import datetime, timezone
from typing import Literal, TextIO

from slurm_lifecycle.plain_text import plain_line

_LOGGER = "slurm_lifecycle"
_FIELDS = "slc_fields"
_TEXT_LIMIT = 2000

Value = str | int | float | bool | None


def configure_log(
    log_format: Literal["json", "text"], *, level: int = logging.INFO, stream: TextIO | None = None
) -> None:
    """Set up the log of this process; calling it again replaces what was set.

    Args:
        log_format: `json` for a collector or the journal, `text` for a terminal.
        level: the least severe level that is written.
        stream: where to, stderr by default.
    """
    logger = logging.getLogger(_LOGGER)
    for handler in list(logger.handlers):
        logger.removeHandler(handler)
    handler = logging.StreamHandler(stream if stream is not None else sys.stderr)
    handler.setFormatter(_JsonFormatter() if log_format == "json" else _TextFormatter())
    logger.addHandler(handler)
    logger.setLevel(level)
    logger.propagate = False


def log_event(kind: str, *, level: int = logging.INFO, **values: Value) -> None:
    """Log one event.

    Args:
        kind: a stable word, e.g. `transition`.
        level: of the standard library.
        values: what belongs to it; `None` and "" are left out.
    """
    _write(kind, level, values)


def log_transition(
    node: str, before: str, after: str, reason: str, *, incident: str = "", attempt: str = ""
) -> None:
    """Log that an incident moved from one step to another."""
    values: dict[str, Value] = {"node": node, "from": before or "none", "to": after, "reason": reason}
    _write("transition", logging.INFO, {**values, "incident": incident, "attempt": attempt})


def _write(kind: str, level: int, values: Mapping[str, Value]) -> None:
    fields = {key: value for key, value in values.items() if value is not None and value != ""}
    logging.getLogger(_LOGGER).log(level, kind, extra={_FIELDS: fields})


def _fields(record: logging.LogRecord) -> dict[str, Value]:
    at = datetime.fromtimestamp(record.created, timezone.utc)
    found: dict[str, Value] = {
        "at": at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "level": record.levelname.lower(),
        "event": plain_line(record.getMessage(), _TEXT_LIMIT),
    }
    extra: dict[str, Value] = getattr(record, _FIELDS, {})
    for key, value in extra.items():
        found[key] = plain_line(value, _TEXT_LIMIT) if isinstance(value, str) else value
    if record.exc_info and record.exc_info[1] is not None:
        error = record.exc_info[1]
        found["error"] = plain_line(f"{type(error).__name__}: {error}", _TEXT_LIMIT)
        found["where"] = _where(record)
    return found


def _where(record: logging.LogRecord) -> str:
    """The call chain in one line, innermost last: a traceback of many lines would be many records."""
    trace = record.exc_info[2] if record.exc_info else None
    frames = []
    while trace is not None:
        code = trace.tb_frame.f_code
        frames.append(f"{code.co_filename.rsplit('/', 1)[-1]}:{trace.tb_lineno}:{code.co_name}")
        trace = trace.tb_next
    return " > ".join(frames[-12:])


class _JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return json.dumps(_fields(record), ensure_ascii=True, separators=(",", ":"))


class _TextFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        fields = _fields(record)
        head = f"{fields.pop('at')} {fields.pop('level')} {fields.pop('event')}"
        return " ".join([head, *(f"{key}={_quoted(value)}" for key, value in fields.items())])


def _quoted(value: Value) -> str:
    text = str(value)
    if text and not any(char in text for char in ' "=\\'):
        return text
    return json.dumps(text, ensure_ascii=False)
