"""A person's requests: left in the store, answered by the daemon, told with an exit code."""

import threading
import time

import pytest

from slurm_lifecycle.core.model import Verb
from slurm_lifecycle.core.plan import Plan
from slurm_lifecycle.store.sql_store import SqlStore
from tests.unit.cli.conftest import Site


def _answering(store: SqlStore, answer: str, seen: list[tuple[Verb, str, str]]) -> threading.Thread:
    """Answers the next request, as a tick of the daemon does."""

    def work() -> None:
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            pending = store.pending_requests()
            if pending:
                seen.extend((one.verb, one.subject, one.text) for one in pending)
                store.apply(Plan(requests_done=tuple((one.id, answer) for one in pending)), time.time())
                return
            time.sleep(0.05)

    thread = threading.Thread(target=work)
    thread.start()
    return thread


@pytest.mark.parametrize(
    ("arguments", "verb", "subject", "text"),
    [
        (("node", "hold", "n1", "--reason", "fan \x1b change"), Verb.HOLD, "n1", "fan ? change"),
        (("node", "release", "n1"), Verb.RELEASE, "n1", ""),
        (("node", "return", "n1"), Verb.RETURN, "n1", ""),
        (("node", "remediate", "n1", "--reason", "odd"), Verb.REMEDIATE, "n1", "odd"),
        (("rma", "close", "n1"), Verb.RMA_CLOSE, "n1", ""),
        (("breaker", "reset"), Verb.BREAKER_RESET, "all", ""),
        (("breaker", "reset", "domain:rack1"), Verb.BREAKER_RESET, "domain:rack1", ""),
        (("breaker", "lift", "xid79", "--yes"), Verb.BREAKER_LIFT, "XID79", ""),
    ],
)
def test_a_request_is_answered_while_the_daemon_holds_the_store(
    site: Site, arguments: tuple[str, ...], verb: Verb, subject: str, text: str
) -> None:
    seen: list[tuple[Verb, str, str]] = []
    with site.acting() as store:
        thread = _answering(store, "done: it will be so", seen)
        result = site.run(*arguments)
        thread.join()
    assert seen == [(verb, subject, text)]
    assert result.exit_code == 0
    assert result.output.endswith("done: it will be so\n")


def test_a_refusal_is_exit_1(site: Site) -> None:
    with site.acting() as store:
        thread = _answering(store, "refused: the drain is a person's", [])
        result = site.run("node", "release", "n2")
        thread.join()
    assert result.exit_code == 1
    assert "the drain is a person's" in result.output


def test_without_a_daemon_the_request_stays_and_the_exit_is_3(site: Site) -> None:
    with site.acting():
        pass
    result = site.run("node", "hold", "n1", "--reason", "x", "--wait", "0.3")
    assert result.exit_code == 3
    assert "request 1 stays" in result.output
    with site.acting() as store:
        assert [one.verb for one in store.pending_requests()] == [Verb.HOLD]


def test_waiting_can_be_left_out(site: Site) -> None:
    with site.acting():
        pass
    result = site.run("node", "release", "n1", "--wait", "0")
    assert result.exit_code == 0
    assert result.output == "request 1 is left for the daemon\n"


def test_lifting_asks_first(site: Site) -> None:
    with site.acting() as store:
        result = site.run("breaker", "lift", "XID79", stdin="n\n")
        assert store.pending_requests() == ()
    assert result.exit_code == 1
    assert "unchecked" in result.output


def test_a_hold_needs_a_reason(site: Site) -> None:
    with site.acting() as store:
        assert site.run("node", "hold", "n1").exit_code == 2
        assert store.pending_requests() == ()
