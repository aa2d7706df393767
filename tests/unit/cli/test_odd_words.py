"""Words of the command line that nobody means well by: one line back, nothing that drives a terminal."""

import time

import pytest

from tests.unit.cli.conftest import Site

ODD = ("\udc80", "\x1b[31mred", "\u202e", "a\nb", "x" * 10_000, "'; drop table event; --", " ")


@pytest.mark.parametrize("word", ODD, ids=ascii)
@pytest.mark.parametrize(
    "command",
    [
        ("incident", "show"),
        ("incidents", "--node"),
        ("breaker", "reset", "--wait", "0"),
        ("breaker", "lift", "--yes", "--wait", "0"),
        ("node", "why"),
        ("node", "hold", "--reason", "r", "--wait", "0"),
        ("rma", "close", "--wait", "0"),
    ],
    ids=" ".join,
)
def test_an_odd_word_is_looked_up_or_refused(site: Site, command: tuple[str, ...], word: str) -> None:
    with site.acting() as store:
        store.note_tick(time.time(), "observe")
    result = site.run(*command, word)
    assert result.exit_code in (0, 2), (result.output, result.exception)
    assert result.exception is None or isinstance(result.exception, SystemExit)
    shown = result.output.replace("\n", "")
    assert shown.isprintable()
    with site.acting() as store:
        assert all(len(one.subject) <= 200 and one.subject.isprintable() for one in store.pending_requests())
