"""What must have happened in the scenarios that reach a node's machine.

Judged by the machine itself (power, its first process, what is on its disk) and by what its BMC was asked.
"""

from __future__ import annotations

from collections.abc import Sequence

from slurm_lifecycle.sandbox.observer import BmcRequest, NodeChange
from slurm_lifecycle.sandbox.scenarios_case import FENCE, Case, Facts, Judgement, verdicts_by_boot
from slurm_lifecycle.sandbox.scenarios_record import Record

_RESET = "/Actions/ComputerSystem.Reset"
# The record has what was seen up to a round later.
_LOOK_S = 0.6


def resets_done(asked: Sequence[BmcRequest]) -> list[str]:
    """ResetTypes that took effect, in order."""
    return [str(one.body["ResetType"]) for one in asked if one.path.endswith(_RESET) and one.done]


def power_cycle(record: Record, node: str, facts: Facts) -> Judgement:
    """A reboot that does not cure, then off and on through the BMC."""
    case = Case(record, node, facts)
    drained = case.drained_by_us("slc:XID79 gpu2")
    asked = record.asked(node, facts.began, facts.ended)
    done = resets_done(asked)
    case.say.expect(
        done == ["GracefulShutdown", "ForceOff", "On"],
        "its BMC did: asked to shut down, one cut, one On",
        f"its BMC did {done}",
    )
    late = [one.status for one in asked if one.path.endswith(_RESET) and not one.done]
    case.say.expect(
        bool(late) and set(late) == {409},
        f"`On` was refused {len(late)} times right after off and sent again",
        f"refused requests: {late}",
    )
    if drained is not None:
        _cycled(case, drained, asked, "reboot did not cure, the power cycle did")
    case.rebooted(1, 2)
    case.claimed(code="XID79", outcome="returned", cured_by="power")
    _others_untouched(case)
    return case.say


def reimage_pxe(record: Record, node: str, facts: Facts) -> Judgement:
    """A reboot that does not cure, then one boot from the network that installs."""
    case = Case(record, node, facts)
    say = case.say
    drained = case.drained_by_us("slc:DRIVER_MISMATCH", within_s=30.0)
    asked = record.asked(node, facts.began, facts.ended)
    done = resets_done(asked)
    say.expect(
        done.count("On") == 1 and set(done) <= {"GracefulShutdown", "ForceOff", "On"},
        f"its BMC did {' '.join(done)}",
        f"its BMC did {done}: must be off and one On",
    )
    enabled = [
        str(one.body["Boot"].get("BootSourceOverrideEnabled")) for one in asked if "Boot" in (one.body or {})
    ]
    say.expect(
        enabled.count("Once") == 1 and set(enabled) <= {"Once", "Disabled"},
        "a boot from the network was asked for once",
        f"boot overrides asked for: {enabled}",
    )
    override = facts.text.get("override", "")
    say.expect(override == "Disabled", "no boot override is left", f"boot override is {override!r}")
    _installed(case)
    if drained is not None:
        _cycled(case, drained, asked, "reboot did not cure, the reimage did")
    case.rebooted(1, 2)
    case.claimed(code="DRIVER_MISMATCH", outcome="returned", cured_by="reimage")
    _others_untouched(case)
    return say


def rma_return(record: Record, node: str, facts: Facts) -> Judgement:
    """A ticket for a broken GPU, a person who replaces it and says so, and a node that is checked first."""
    case = Case(record, node, facts)
    say, slot = case.say, int(facts.text.get("gpu", "0"))
    drained = case.drained_by_us("slc:REMAP_FAILURE gpu")
    story = record.machine(node, facts.began, facts.ended)
    before, after = (story[0].gpus, story[-1].gpus) if story else ((), ())
    changed = [i for i, (old, new) in enumerate(zip(before, after, strict=False)) if old != new]
    say.expect(
        changed == [slot] and len(before) == len(after),
        f"GPU {slot} is another one than before, the others are the same",
        f"GPUs that changed: {changed}",
    )
    old = before[slot] if slot < len(before) else "?"
    missing = [word for word in (node, old, "REMAP_FAILURE") if word not in facts.text.get("ticket", "")]
    say.expect(
        not missing, f"the ticket names the broken one, {old}", f"the ticket lacks {' '.join(missing)}"
    )
    case.rebooted(0, 1)
    replaced, closed = facts.at.get("replaced", 0.0), facts.at.get("closed", 0.0)
    if drained is not None:
        say.expect(replaced > drained.at, "replaced while it was drained", "replaced before it was drained")
        back = case.returned(drained)
        waited = [one for one in case.story(drained.at) if drained.at < one.at < closed and one.in_service]
        say.expect(
            back is not None and back > closed > replaced and not waited,
            "stayed out until a person said that the part is replaced",
            "in service before a person said that the part is replaced",
        )
    asked = record.asked(node, facts.began, facts.ended)
    say.expect(not asked, "its BMC was asked to change nothing", f"its BMC was asked {len(asked)} times")
    case.claimed(code="REMAP_FAILURE", outcome="returned")
    return say


def _installed(case: Case) -> None:
    """The disk bears the marker of the very operation that was staged, and the node tells so."""
    story = case.record.machine(case.node, case.facts.began, case.facts.ended)
    staged = {one.staged_op for one in story} - {""}
    last = story[-1] if story else None
    op = last.marker_op if last is not None else ""
    case.say.expect(
        bool(op) and staged == {op},
        f"the new root bears the marker of operation {op}",
        f"marker of operation {op!r}, staged were {sorted(staged)}",
    )
    told = case.record.now(case.node).extra
    case.say.expect(bool(op) and f" img={op}," in told, "the node tells the same", f"the node tells `{told}`")
    installing = [one for one in story if one.power == "installing"]
    case.say.expect(bool(installing), "it was seen installing", "it was never seen installing")


def _cycled(case: Case, drained: NodeChange, asked: Sequence[BmcRequest], cured: str) -> None:
    """Off in truth, within the fence, and back with good checks in a boot of its own."""
    say, record, node = case.say, case.record, case.node
    on = [one.at for one in asked if one.done and one.path.endswith(_RESET) and one.body["ResetType"] == "On"]
    first = [one.at for one in asked if one.done]
    if not (on and first):
        say.problems.append("its BMC was never asked to switch it off and on")
        return
    story = record.machine(node, drained.at, case.facts.ended)
    off = [one for one in story if first[0] <= one.at <= on[0] + _LOOK_S and one.power == "off"]
    say.expect(
        bool(off) and not any(one.alive for one in off),
        "the machine was off, with no process left",
        "the machine was never seen off" if not off else "processes lived while it was off",
    )
    boots = {one.boot_id for one in story if one.at <= first[0]} - {""}
    after = story[-1].boot_id
    say.expect(
        bool(after) and after not in boots,
        "another boot id than before",
        f"boot id {after!r} is one of before",
    )
    back = case.returned(drained)
    edges = [one.at for changes in record.reservations.values() for one in changes]
    times = [first[0], on[0], *(at for at in edges if first[0] <= at <= (back or on[0]) - _LOOK_S)]
    open_at = [at for at in times if not record.fenced_at(node, at, FENCE)]
    say.expect(not open_at, "fenced all the while", f"no fence at {[round(at, 1) for at in open_at]}")
    order = list(verdicts_by_boot(case.story(drained.at)).values())
    say.expect(
        len(order) == 3 and "drain" in order[1] and "ok" not in order[1] and "ok" in order[2],
        cured,
        f"verdicts by boot were {order}",
    )
    case.jobs_left_alone()


def _others_untouched(case: Case) -> None:
    """No BMC was asked anything for a node that nothing was wrong with; no such machine was ever off."""
    began, ended = case.facts.began, case.facts.ended
    spared = case.facts.text.get("bystanders", "").split()
    hurt = [node for node in spared if case.record.asked(node, began, ended)]
    hurt += [
        node for node in spared if len({one.boot_id for one in case.record.machine(node, began, ended)}) > 1
    ]
    case.say.expect(not hurt, f"{len(spared)} other machines untouched", f"touched as well: {hurt}")
