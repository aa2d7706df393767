"""The log: one line an event, JSON for a collector or key=value for a terminal, on stderr.

Text from nodes and people is escaped, so that one event is always one line and nothing in it moves a cursor.
Modules log by `logging.getLogger("slurm_lifecycle...")`; what they give as `extra` becomes fields.
"""

import json
import logging
import sys
from datetime import datetime, timezone
from typing import TextIO

from slurm_lifecycle.errors import ConfigError
from slurm_lifecycle.plain_text import plain_line

_LOGGER = "slurm_lifecycle"
_FIELDS = "slc_fields"
_TEXT_LIMIT = 2000
_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName", _FIELDS, "event"}

Value = str | int | float | bool | None


def configure_logging(log_format: str, *, level: int = logging.INFO, stream: TextIO | None = None) -> None:
    """Set up the log of this process; calling it again replaces what was set.

    Args:
        log_format: `json` for a collector or the journal, `text` for a terminal.
        level: the least severe level that is written.
        stream: where to, stderr by default.

    Raises:
        ConfigError: no such format.
    """
    formatters = {"json": _JsonFormatter, "text": _TextFormatter}
    if log_format not in formatters:
        raise ConfigError(f"daemon.log_format: {log_format!r} is no format: write json or text")
    logger = logging.getLogger(_LOGGER)
    for old in list(logger.handlers):
        logger.removeHandler(old)
    handler = logging.StreamHandler(stream if stream is not None else sys.stderr)
    handler.setFormatter(formatters[log_format]())
    logger.addHandler(handler)
    logger.setLevel(level)
    logger.propagate = False


def log_event(kind: str, text: str = "", *, level: int = logging.INFO, **values: Value) -> None:
    """Log one event.

    Args:
        kind: a stable word, e.g. `notice`.
        text: words for people.
        level: of the standard library.
        values: what belongs to it; `None` and "" are left out.
    """
    _write(kind, text, level, values)


def _write(kind: str, text: str, level: int, values: dict[str, Value]) -> None:
    # The text is an argument: a `%` in it is no format.
    logging.getLogger(_LOGGER).log(level, "%s", text, extra={"event": kind, _FIELDS: values})


def _fields(record: logging.LogRecord) -> dict[str, Value]:
    at = datetime.fromtimestamp(record.created, timezone.utc)
    found: dict[str, Value] = {
        "at": at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "level": record.levelname.lower(),
        "event": plain_line(getattr(record, "event", record.name.rpartition(".")[2])),
        "text": plain_line(_message(record), _TEXT_LIMIT),
    }
    extra = {key: value for key, value in vars(record).items() if key not in _STANDARD}
    for key, value in {**extra, **getattr(record, _FIELDS, {})}.items():
        if key not in found:
            kept = value if isinstance(value, int | float | None) else plain_line(value, _TEXT_LIMIT)
            found[plain_line(key, 100)] = kept
    if record.exc_info and record.exc_info[1] is not None:
        error = record.exc_info[1]
        found["error"] = plain_line(f"{type(error).__name__}: {error}", _TEXT_LIMIT)
        found["where"] = _where(record)
    return {key: value for key, value in found.items() if value is not None and value != ""}


def _message(record: logging.LogRecord) -> str:
    try:
        return record.getMessage()
    except (TypeError, ValueError):
        # A line about something that went wrong must not be lost by a `%` in a node's text.
        return str(record.msg)


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
        head = [str(fields.pop("at")), str(fields.pop("level")), str(fields.pop("event"))]
        return " ".join([*head, *(f"{key}={_quoted(value)}" for key, value in fields.items())])


def _quoted(value: Value) -> str:
    text = str(value)
    if text and not any(char in text for char in ' "=\\'):
        return text
    return json.dumps(text, ensure_ascii=False)
