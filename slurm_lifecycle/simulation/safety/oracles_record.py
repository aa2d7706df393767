"""Oracles that judge the record after each tick: incidents, deadlines, and whether it agrees with Slurm."""

from collections.abc import Collection

from slurm_lifecycle.core.plan import Notice
from slurm_lifecycle.core.policy import Mode
from slurm_lifecycle.simulation.safety.facts import OUR_FENCE, OUR_REASON, Facts
from slurm_lifecycle.simulation.safety.journal import TRANSIENT, Case
from slurm_lifecycle.simulation.safety.oracles import Oracle, Patience, TickFacts

# A page must have arrived so long after there was a way to tell it.
TOLD_WITHIN_S = 600.0


class PlanAccepted(Oracle):
    """No plan is refused by the plan checker, no action fails by a defect, no tick ends by one."""

    name = "no defect, no refused plan"

    def ticked(self, tick: TickFacts) -> None:
        """Every tick."""
        self.judged += 1
        if tick.error:
            self.broken("", tick.error)
        for done in tick.result.done if tick.result is not None else ():
            if done.detail.startswith("by a defect"):
                self.broken(getattr(done.action, "node", ""), f"{done.action}: {done.detail}")


class IncidentsLast(Oracle):
    """An incident is open until it is closed with a word; a closed one stays closed; one a node."""

    name = "no incident vanishes"

    def __init__(self, facts: Facts) -> None:
        """None is open."""
        super().__init__(facts)
        self._open: dict[str, str] = {}
        self._closed: set[str] = set()

    def wrote(self) -> None:
        """Every write to the store."""
        journal = self.facts.journal
        cases = journal.open_cases()
        now_open = {case.id: node for node, case in cases.items()}
        if len(now_open) != journal.open_case_count():
            self.broken("", "two open incidents of one node")
        for incident_id in sorted(set(self._open) - set(now_open)):
            self.judged += 1
            case = journal.case(incident_id)
            if case is None or case.step != "closed" or not case.outcome or case.closed_at is None:
                self.broken(self._open[incident_id], f"{incident_id} is not open any more: {case}")
            self._closed.add(incident_id)
        for incident_id in sorted(set(now_open) & self._closed):
            self.broken(now_open[incident_id], f"{incident_id} is open again")
        self._open = now_open


class Deadlines(Oracle):
    """No transient state and no attempt lasts past its deadline without an alarm."""

    name = "no state past its deadline without an alarm"

    def ticked(self, tick: TickFacts) -> None:
        """After a tick that ended well nothing is overdue, and what was prolonged was told."""
        if tick.result is None:
            return
        at = tick.result.at
        told = {one.key.rpartition(":")[0] for one in tick.result.plan.actions if isinstance(one, Notice)}
        before = tick.result.records.incidents
        for node, case in self.facts.journal.open_cases().items():
            if case.step not in TRANSIENT:
                continue
            self.judged += 1
            if case.deadline is None or case.deadline <= at:
                self.broken(node, f"{case.id} is {case.step}, due {case.deadline} at {at}")
            was = before.get(node)
            overdue = was is not None and was.deadline is not None and was.deadline <= at
            same = was is not None and (was.id, was.step.value) == (case.id, case.step)
            # Checks that could not run are tried once more before somebody is called.
            again = case.step == "verifying" and same and was is not None and was.verify_runs == 0
            prolonged = overdue and same and was is not None and was.step_since == case.step_since
            moved_on = was is not None and (was.rung.value if was.rung else None) != case.rung
            if prolonged and not again and not moved_on and f"overdue:{case.id}" not in told:
                self.broken(node, f"{case.id} stays {case.step} past its deadline and nobody is told")
        for node, tries in self.facts.journal.unresolved().items():
            for one in tries:
                self.judged += 1
                # A machine that may be off is switched on first, which takes as long as its BMC wants.
                paged = any(one.op_id in notice.key for notice in tick.result.plan.standing)
                if one.deadline <= at and not (one.rung == "power" and paged):
                    self.broken(node, f"{one.op_id} is unresolved, due {one.deadline} at {at}")


class PersonsAreTold(Oracle):
    """Whatever waits for a person was told, once there was a way and some time to tell it."""

    name = "who waits for a person is told"

    def __init__(self, facts: Facts) -> None:
        """There is a way."""
        super().__init__(facts)
        self.told: Collection[str] = ()
        self._way_since = facts.now

    def no_way(self) -> None:
        """At this moment nothing could be told."""
        self._way_since = self.facts.now

    def ticked(self, tick: TickFacts) -> None:
        """Every incident that waits, after every tick."""
        del tick
        since = self.facts.now - TOLD_WITHIN_S
        if self._way_since > since:
            return
        for node, case in self.facts.journal.open_cases().items():
            waits = case.step == "awaiting_person" or (case.step == "held" and case.hold != "foreign")
            if not waits or case.step_since > since:
                continue
            self.judged += 1
            if not any(case.id in key for key in self.told):
                self.broken(node, f"{case.id} waits for a person ({case.step} {case.hold}), who was not told")


class Agreement(Oracle):
    """Slurm and the record agree again within some ticks that could have mended it."""

    name = "Slurm and the record agree"

    def __init__(self, facts: Facts) -> None:
        """They agree."""
        super().__init__(facts)
        self._patience = Patience()

    def ticked(self, tick: TickFacts) -> None:
        """What they disagree about; a tick counts that had true reads and got all of its actions done."""
        facts = self.facts
        able = tick.result is not None and tick.fresh and not tick.result.plan.not_acting
        able = able and facts.policy.mode is Mode.ACT
        for node, case in facts.journal.open_cases().items():
            # The store of a run is never lost, so nothing that is found in Slurm can be a stranger's.
            if case.hold == "adopt":
                self.broken(node, f"{case.id} is held as if another daemon had worked on the node")
        done = tick.result is not None and all(one.result in ("done", "skipped") for one in tick.result.done)
        found = self._found()
        self.judged += 1
        for what, node, text in self._patience.lasted(found, counts=able and done):
            self.broken(node, f"{what}: {text}")

    def _found(self) -> set[tuple[str, str, str]]:
        facts, found = self.facts, set()
        cases = facts.journal.open_cases()
        for node in sorted(facts.ctld.views()):
            if not facts.shown_plainly(node):
                continue
            what = self._of_node(node, cases.get(node))
            if what:
                found.add((*what[:1], node, what[1]))
        known = facts.journal.fences()
        for name, reservation in facts.ctld.reservations().items():
            if not name.startswith(OUR_FENCE):
                continue
            for node in reservation.nodes:
                case = cases.get(node)
                if (
                    case is None or case.id != name.removeprefix(OUR_FENCE)
                ) and node not in facts.journal.unresolved():
                    adopted = case is not None and known.get(name) == case.id
                    if not adopted:
                        found.add(("a fence without a case", node, name))
        return found

    def _of_node(self, node: str, case: Case | None) -> tuple[str, str] | None:
        facts = self.facts
        view = facts.view(node)
        assert view is not None
        ours = "DRAIN" in view.state and view.reason.startswith(OUR_REASON)
        if case is None:
            if ours and "slc1[" not in view.comment:
                return "drained by us without a case", view.reason
            if "slc1[" in view.comment and node not in facts.journal.holds():
                return "a mark without a case", view.comment
            return None
        under_way = bool(facts.journal.unresolved().get(node))
        foreign = case.hold == "foreign" and case.step == "held"
        # What is under way is waited for before the case goes on.
        if foreign and not facts.persons(node) and not under_way:
            return "held for a person who is not there", case.id
        rebooting = view.state & {"REBOOT_ISSUED", "REBOOT_REQUESTED"}
        in_repair = case.step in ("repairing", "verifying") and not under_way and not rebooting
        if in_repair and "DRAIN" not in view.state and self._may_drain(node):
            return f"{case.step} without a drain", case.id
        return None

    def _may_drain(self, node: str) -> bool:
        facts = self.facts
        view = facts.view(node)
        assert view is not None
        everywhere = "*" in facts.policy.partitions
        return (
            "drain" in facts.policy.rungs
            and everywhere
            and node not in facts.journal.holds()
            and not facts.maintained(node)
        )
