"""The scenarios that reach a node's machine, judged on a real recording and on spoilt copies of it."""

from __future__ import annotations

import pytest

from tests.unit.sandbox.recording import BY_NAME, Event, events_seen, facts_of, judge, spoilt, with_more

_BOTH = ["power-cycle", "reimage-pxe"]


def _asked(name: str, what: str) -> Event:
    """The request to the node's BMC whose body holds the text, as it was recorded."""
    node = BY_NAME[name].nodes[0]
    found = [
        one
        for one in events_seen()
        if (one["kind"], one.get("name")) == ("bmc", node) and one["done"] and what in str(one["body"])
    ]
    assert found, what
    return found[0]


@pytest.mark.parametrize("name", _BOTH)
@pytest.mark.parametrize("what", ["'On'", "'GracefulShutdown'"])
def test_a_request_that_took_effect_twice_is_seen(name: str, what: str) -> None:
    once = _asked(name, what)
    judgement = with_more(name, {**once, "at": once["at"] + 0.1})
    if (name, what) == ("reimage-pxe", "'GracefulShutdown'"):
        # Asking twice takes nothing: only what switches it off or on must be counted.
        assert judgement.ok
    else:
        assert any("its BMC did" in problem for problem in judgement.problems)


@pytest.mark.parametrize("name", _BOTH)
def test_a_restart_in_one_request_is_seen(name: str) -> None:
    once = _asked(name, "'On'")
    restart = {**once, "at": once["at"] + 0.1, "body": {"ResetType": "ForceRestart"}}
    assert any("ForceRestart" in problem for problem in with_more(name, restart).problems)


@pytest.mark.parametrize("name", _BOTH)
def test_a_machine_that_was_never_off_is_seen(name: str) -> None:
    def spoil(event: Event) -> None:
        if event["kind"] == "machine" and event["power"] == "off":
            event["power"] = "on"

    assert "the machine was never seen off" in spoilt(name, spoil).problems


@pytest.mark.parametrize("name", _BOTH)
def test_processes_that_lived_on_are_seen(name: str) -> None:
    def spoil(event: Event) -> None:
        if event["kind"] == "machine":
            event["alive"] = True

    assert "processes lived while it was off" in spoilt(name, spoil).problems


@pytest.mark.parametrize("name", _BOTH)
def test_a_fence_that_was_open_for_a_moment_is_seen(name: str) -> None:
    at, node = _asked(name, "'On'")["at"], BY_NAME[name].nodes[0]
    fences = [one for one in events_seen() if one["kind"] == "reservation" and node in one.get("nodes", ())]
    fence = [one for one in fences if one["at"] < at][-1]
    gone = {"kind": "reservation", "name": fence["name"], "at": at + 0.2, "gone": True}
    judgement = with_more(name, gone, {**fence, "at": at + 0.4})
    assert any("no fence at" in problem for problem in judgement.problems)


@pytest.mark.parametrize("name", _BOTH)
def test_another_machine_that_was_touched_is_seen(name: str) -> None:
    asked = {**_asked(name, "'On'"), "name": "n7"}
    assert "touched as well: ['n7']" in with_more(name, asked).problems
    boot = {"kind": "machine", "name": "n2", "at": asked["at"], "power": "on", "boot_id": "another"}
    assert "touched as well: ['n2']" in with_more(name, boot).problems


def test_a_marker_of_another_operation_is_seen() -> None:
    def spoil(event: Event) -> None:
        if event["kind"] == "machine" and event["marker_op"]:
            event["marker_op"] = "n10.1.reimage.9"

    assert any("n10.1.reimage.9" in problem for problem in spoilt("reimage-pxe", spoil).problems)


def test_a_boot_override_that_is_left_is_seen() -> None:
    facts = facts_of("reimage-pxe")
    facts.text["override"] = "Once"
    assert "boot override is 'Once'" in judge("reimage-pxe", events_seen(), facts).problems


def test_a_boot_from_the_network_that_was_asked_for_twice_is_seen() -> None:
    once = _asked("reimage-pxe", "'Once'")
    judgement = with_more("reimage-pxe", {**once, "at": once["at"] + 0.1})
    assert any("boot overrides asked for" in problem for problem in judgement.problems)


def test_refusals_of_another_kind_are_seen() -> None:
    def spoil(event: Event) -> None:
        if event["kind"] == "bmc" and not event["done"]:
            event["status"] = 400

    assert "refused requests: [400]" in spoilt("power-cycle", spoil).problems


# ---------------------------------------------------------------- the replaced GPU


def test_a_gpu_that_is_still_the_old_one_is_seen() -> None:
    before = next(e for e in events_seen() if (e["kind"], e.get("name")) == ("machine", "n11"))["gpus"]

    def spoil(event: Event) -> None:
        if event["kind"] == "machine" and event["name"] == "n11":
            event["gpus"] = before

    assert "GPUs that changed: []" in spoilt("rma-return", spoil).problems


def test_a_gpu_of_another_slot_that_changed_is_seen() -> None:
    def spoil(event: Event) -> None:
        if event["kind"] == "machine" and event["name"] == "n11" and event["at"] > replaced:
            event["gpus"] = ["another", *event["gpus"][1:]]

    replaced = facts_of("rma-return").at["replaced"]
    assert "GPUs that changed: [0, 6]" in spoilt("rma-return", spoil).problems


def test_a_return_before_a_person_said_so_is_seen() -> None:
    facts = facts_of("rma-return")
    facts.at["closed"] = facts.ended - 1.0
    judgement = judge("rma-return", events_seen(), facts)
    assert "in service before a person said that the part is replaced" in judgement.problems


def test_a_ticket_that_names_another_gpu_is_seen() -> None:
    facts = facts_of("rma-return")
    facts.text["ticket"] = facts.text["ticket"].replace("1650001100006", "1650001100007")
    assert any("the ticket lacks" in one for one in judge("rma-return", events_seen(), facts).problems)


def test_a_machine_that_was_switched_off_behind_the_technicians_back_is_seen() -> None:
    asked = {**_asked("power-cycle", "'On'"), "name": "n11", "at": facts_of("rma-return").ended - 1.0}
    assert "its BMC was asked 1 times" in with_more("rma-return", asked).problems
