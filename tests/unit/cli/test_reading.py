"""Read commands over a real store: what people see, what programs get, exit codes."""

import json
import time
from dataclasses import replace

import pytest

from slurm_lifecycle.core.model import AttemptOutcome, Rung, Step
from slurm_lifecycle.core.plan import Plan
from tests.unit.cli.conftest import BOOT, Site, plan_of_a_fault, record


@pytest.fixture
def faulty(site: Site) -> Site:
    """The site with one fault on record and a tick just now."""
    now = time.time()
    with site.acting() as store:
        store.apply(plan_of_a_fault(now), now)
        store.note_tick(now, "act")
    return site


def test_status_tells_phases_and_exits_1_for_a_tripped_breaker(faulty: Site) -> None:
    result = faulty.run("status")
    assert result.exit_code == 1
    assert "TRIPPED domain:rack1" in result.output
    assert "in_service 2" in result.output
    assert "held      n4" in result.output
    assert "LATE" not in result.output


def test_status_as_json(faulty: Site) -> None:
    told = json.loads(faulty.run("status", "--json").output)
    assert told["mode"] == "act"
    assert told["phases"] == {"in_service": 2, "foreign": 1, "working": 1}
    assert told["incidents"] == {"repairing": 1}
    assert told["trips"][0]["scope"] == "domain:rack1"
    assert not told["late"]


def test_status_of_a_calm_fleet_is_0_and_of_a_daemon_that_stands_still_is_1(site: Site) -> None:
    now = time.time()
    with site.acting() as store:
        store.note_tick(now, "observe")
    assert site.run("status").exit_code == 0
    with site.acting() as store:
        store.note_tick(now - 3600, "observe")
    result = site.run("status")
    assert result.exit_code == 1
    assert "60 min ago (LATE" in result.output


def test_nodes_shows_what_is_not_simply_in_service(faulty: Site) -> None:
    lines = faulty.run("nodes").output.splitlines()
    assert lines[0].split() == ["NODE", "PHASE", "FAULT", "SINCE", "WHY"]
    assert [line.split()[0] for line in lines[1:]] == ["n1", "n2", "n4"]
    assert "XID79 gpu3" in lines[1]
    assert len(faulty.run("nodes", "--all").output.splitlines()) == 5
    told = json.loads(faulty.run("nodes", "--json").output)
    assert told[0]["status"] == {"node": "n1", "phase": "working", "why": "reboot attempt 1 begins"}
    assert told[0]["incident"]["id"] == "n1.100"


def test_nodes_of_a_calm_fleet_is_one_line(site: Site) -> None:
    with site.acting() as store:
        store.note_tick(time.time(), "act")
    assert site.run("nodes").output == "all 0 nodes are in service\n"


def test_node_show(faulty: Site) -> None:
    output = faulty.run("node", "show", "n1").output
    assert "n1: working" in output
    assert "fell off the bus" in output
    assert "n1.100" in output
    told = json.loads(faulty.run("node", "show", "n4", "--json").output)
    assert told["holds"][0]["text"] == "fan is being changed"


def test_node_why_puts_slurm_node_and_store_together(faulty: Site) -> None:
    reason = "Reason=slc:XID79 gpu3 fell off the bus [root@2026-01-02T03:04:05]"
    faulty.slurm_says(record("n1", "IDLE+DRAIN", reason, f"Extra=slc1 {BOOT} 4 drain XID79 gpu3"))
    result = faulty.run("node", "why", "n1")
    assert result.exit_code == 0
    assert "drained by this suite" in result.output
    assert "XID79 gpu3 (fell off the bus): drain, boot 0f8fad5b" in result.output
    assert "reboot 1, 60 s ago: written down, not sent yet" in result.output
    assert "why        reboot attempt 1 begins" in result.output
    told = json.loads(faulty.run("node", "why", "n1", "--json").output)
    assert {line["label"] for line in told["told"]} >= {"slurm", "node says", "incident", "attempt", "next"}


def test_node_why_without_slurm_still_tells_what_is_on_record(faulty: Site) -> None:
    (faulty.folder / "nodes.txt").unlink()
    result = faulty.run("node", "why", "n1")
    assert result.exit_code == 0
    assert "could not be asked" in result.output
    assert "n1.100" in result.output


@pytest.mark.parametrize(
    "arguments", [("node", "show", "n9"), ("incident", "show", "x.1"), ("rma", "show", "n1")]
)
def test_what_is_not_there_is_wrong_use(faulty: Site, arguments: tuple[str, ...]) -> None:
    result = faulty.run(*arguments)
    assert result.exit_code == 2
    assert result.output.startswith("slurm-lifecycle: ")
    assert result.output.count("\n") == 1


@pytest.mark.parametrize("name", ["n[1-3]", "n1,n2", "-x", "../etc", "n1 n2", "ALL;rm"])
def test_a_node_is_one_plain_name(faulty: Site, name: str) -> None:
    assert faulty.run("node", "show", "--", name).exit_code == 2


def test_incidents_and_one_with_its_history(faulty: Site) -> None:
    assert "n1.100" in faulty.run("incidents").output
    assert faulty.run("incidents", "--node", "n3").output == "none open\n"
    output = faulty.run("incident", "show", "n1.100").output
    assert "XID79 gpu3 on n1, class reboot" in output
    assert "reboot 1" in output
    assert "opened" in output
    told = json.loads(faulty.run("incident", "show", "n1.100", "--json").output)
    assert told["attempts"][0]["op_id"] == "n1.100.reboot.1"
    assert told["events"][0]["kind"] == "opened"


def test_breaker_status(faulty: Site, site: Site) -> None:
    result = faulty.run("breaker", "status")
    assert result.exit_code == 1
    assert "domain:rack1" in result.output
    assert json.loads(faulty.run("breaker", "status", "--json").output)[0]["reset_at"] is None


def test_rma_lists_and_shows_the_ticket(faulty: Site) -> None:
    now = time.time()
    before = plan_of_a_fault(now)
    done = replace(before.attempts[0], outcome=AttemptOutcome.FAILED, ended_at=now, detail="same boot")
    ticket = replace(
        done,
        op_id="n1.100.rma.1",
        rung=Rung.RMA,
        created_at=now,
        outcome=AttemptOutcome.SUCCEEDED,
        detail="written",
    )
    waiting = replace(before.incidents[0], step=Step.AWAITING_PERSON, deadline=None, note="replace gpu3")
    with faulty.acting() as store:
        store.apply(Plan(incidents=(waiting,), attempts=(done, ticket)), now)
    (faulty.folder / "tickets").mkdir()
    (faulty.folder / "tickets" / "n1.100.rma.1.md").write_text(
        "# GPU 3\nserial \x1b[31m123\n", encoding="utf-8"
    )
    assert "n1.100.rma.1.md" in faulty.run("rma", "list").output
    shown = faulty.run("rma", "show", "n1")
    assert shown.output == "# GPU 3\nserial ?[31m123\n\n"
    assert json.loads(faulty.run("rma", "list", "--json").output)[0]["incident"]["node"] == "n1"
    assert "waiting for a person: n1" in faulty.run("status").output


def test_text_of_a_node_cannot_drive_the_terminal(site: Site) -> None:
    now = time.time()
    evil = plan_of_a_fault(now)
    finding = replace(evil.findings[0], text="\x1b]0;owned\x07 [bold]x[/] \n second line")
    with site.acting() as store:
        store.apply(replace(evil, findings=(finding,)), now)
    output = site.run("node", "show", "n1").output
    assert "\x1b" not in output
    assert "\x07" not in output
    assert "?]0;owned? [bold]x[/] second line" in output
