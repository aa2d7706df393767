"""The log: one event, one line, whatever is in it."""

import json
import logging
from collections.abc import Iterator
from io import StringIO

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_lifecycle.errors import ConfigError
from slurm_lifecycle.service.log import configure_logging, log_event


@pytest.fixture(autouse=True)
def _clean() -> Iterator[None]:
    yield
    logging.getLogger("slurm_lifecycle").handlers.clear()


def _json_lines(stream: StringIO) -> list[dict[str, object]]:
    return [json.loads(line) for line in stream.getvalue().split("\n")[:-1]]


def test_an_event_is_one_json_line() -> None:
    stream = StringIO()
    configure_logging("json", stream=stream)
    log_event("transition", "drained", node="n1", incident="n1.5", attempt="")
    (line,) = _json_lines(stream)
    at = str(line.pop("at"))
    assert at.endswith("Z")
    assert line == {
        "level": "info",
        "event": "transition",
        "text": "drained",
        "node": "n1",
        "incident": "n1.5",
    }


def test_records_of_the_standard_library_keep_their_extra() -> None:
    stream = StringIO()
    configure_logging("json", stream=stream)
    log = logging.getLogger("slurm_lifecycle.daemon")
    log.info("stopped after %d ticks", 7, extra={"event": "stopped", "ticks": 7, "node": ""})
    log.warning("100% broken")
    log.debug("not written")
    first, second = _json_lines(stream)
    assert (first["event"], first["text"], first["ticks"]) == ("stopped", "stopped after 7 ticks", 7)
    assert "node" not in first
    assert (second["event"], second["level"], second["text"]) == ("daemon", "warning", "100% broken")


def test_a_defect_is_one_line_with_the_call_chain() -> None:
    stream = StringIO()
    configure_logging("json", stream=stream)
    try:
        raise RuntimeError("two\nlines")
    except RuntimeError:
        logging.getLogger("slurm_lifecycle.daemon").exception("this tick failed")
    (line,) = _json_lines(stream)
    assert line["error"] == "RuntimeError: two lines"
    assert str(line["where"]).startswith("test_log.py:")
    assert str(line["where"]).endswith(":test_a_defect_is_one_line_with_the_call_chain")


def test_text_for_a_terminal() -> None:
    stream = StringIO()
    configure_logging("text", stream=stream)
    log_event("notice", "node n1: held", node="n1", count=3, empty="", reason='say "no"=\x1b[2J')
    line = stream.getvalue()
    assert line.endswith(' info notice text="node n1: held" node=n1 count=3 reason="say \\"no\\"= [2J"\n')


def test_configuring_again_replaces_and_a_wrong_format_is_said() -> None:
    first, second = StringIO(), StringIO()
    configure_logging("json", stream=first)
    configure_logging("json", stream=second)
    log_event("x")
    assert first.getvalue() == ""
    assert len(_json_lines(second)) == 1
    with pytest.raises(ConfigError, match="write json or text"):
        configure_logging("xml")


@given(st.text(), st.dictionaries(st.sampled_from(["node", "reason", "event", "at", "level"]), st.text()))
def test_any_text_is_one_printable_line(text: str, values: dict[str, str]) -> None:
    for log_format in ("json", "text"):
        stream = StringIO()
        configure_logging(log_format, stream=stream)
        logging.getLogger("slurm_lifecycle").info(text, extra={"slc_fields": values})
        written = stream.getvalue()
        assert written.endswith("\n")
        assert written[:-1].isprintable()
        if log_format == "json":
            # What an event carries never hides when it was or how bad.
            assert json.loads(written)["level"] == "info"
