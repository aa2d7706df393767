"""Oracles about the way back: checks after a repair, what was seen before a case is closed, no stalling."""

from slurm_lifecycle.core.model import Step
from slurm_lifecycle.core.policy import Mode
from slurm_lifecycle.simulation.safety.facts import DISRUPTIVE, OUR_FENCE, OUR_REASON, OUT, Facts, spoken
from slurm_lifecycle.simulation.safety.journal import Case
from slurm_lifecycle.simulation.safety.oracles import Call, Oracle, Patience, TickFacts

# Longer than the longest pace of a run.
BLIND_AFTER_S = 45.0
# A return of a node that is ready is a matter of so many ticks, whatever the breaker says.
RETURN_TICKS = 6


class Checked(Oracle):
    """A node that was repaired is not in service before its checks have passed after that repair."""

    name = "never in service unchecked"

    def __init__(self, facts: Facts) -> None:
        """All nodes are checked."""
        super().__init__(facts)
        self._repaired: set[str] = set()
        self._told: set[str] = set()
        self._verified_from: dict[str, float] = {}
        self._reads, self._read_at, self._blind_until = 0, facts.now, 0.0

    def wrote(self) -> None:
        """Since when each case is being verified."""
        for case in self.facts.journal.open_cases().values():
            if case.step == "verifying":
                self._verified_from[case.id] = case.step_since

    def ticked(self, tick: TickFacts) -> None:
        """Whether the daemon saw the fleet; a break in what a node says while it did not is nothing to it."""
        del tick
        assert self.facts.slurm is not None
        if self.facts.slurm.whole_reads != self._reads:
            if self.facts.now - self._read_at > BLIND_AFTER_S:
                self._blind_until = self.facts.now
            self._reads, self._read_at = self.facts.slurm.whole_reads, self.facts.now

    def sends(self, call: Call) -> None:
        """The drain is lifted: only after checks of the present boot, unless a person waived them."""
        case = self.facts.journal.open_cases().get(call.node)
        if call.what not in ("undrain", "resume") or case is None:
            return
        if case.lifted:
            self._waived(call, case)
            return
        since = self._verified_from.get(case.id)
        repaired = any(one.rung in DISRUPTIVE for one in self.facts.journal.tries_of(case.id))
        if not repaired and not case.boot_before:
            # Nothing was done to it: an agent that did not start cannot be told from one without news.
            return
        silent = self.facts.agent_is_silent(call.node, unless=case.boot_before)
        blind = self.facts.now - self._blind_until < self.facts.policy.verify_settle_s + self.facts.slack_s
        if silent or blind:
            # Nor can one that did not start in a later boot than that of the repair.
            self.facts.repairs.pop(call.node, None)
            return
        if call.node not in self.facts.machines or not self.facts.machines.responds(call.node):
            # It died a moment ago, and Slurm has not noticed.
            return
        self.judged += 1
        if since is None or not self.facts.passed_since(call.node, since - self.facts.slack_s):
            self.broken(call.node, f"{call.what}, and no checks of its present boot have stood since {since}")

    def _waived(self, call: Call, case: Case) -> None:
        """A person lifted one code: nothing that the daemon read may speak of another one."""
        assert self.facts.slurm is not None
        view = self.facts.slurm.delivered.get(call.node)
        said = spoken(view) if view is not None else None
        self.judged += 1
        if said is not None and said.level == "drain" and said.code != case.code:
            self.broken(call.node, f"{call.what}: {case.code} was lifted, and the node says {said.code}")

    def happened(self, call: Call) -> None:
        """A repair."""
        if call.node in self.facts.repairs:
            self._repaired.add(call.node)
            self._told.discard(call.node)

    def node_changed(self, node: str) -> None:
        """Whether a job could start on it now."""
        if node not in self._repaired or self.facts.view(node) is None:
            return
        if not self.facts.ctld.in_service(node):
            return
        repair = self.facts.unchecked(node)
        if repair is None:
            self._repaired.discard(node)
            self.judged += 1
        elif node not in self._told:
            self._told.add(node)
            self.broken(
                node, f"in service, unchecked after its {repair.rung} {self.facts.now - repair.at:.0f} s ago"
            )


class SeenInService(Oracle):
    """A case is closed as returned once its node was read in service, without a fence, twice in a row."""

    name = "closed when seen in service"

    def __init__(self, facts: Facts) -> None:
        """Nothing was read yet."""
        super().__init__(facts)
        self._seen: dict[str, int] = {}
        self._reads = 0

    def ticked(self, tick: TickFacts) -> None:
        """What this tick read, then what it closed."""
        slurm = self.facts.slurm
        assert slurm is not None
        if slurm.whole_reads == self._reads:
            # It ended before it had read everything.
            return
        self._reads = slurm.whole_reads
        fenced = {
            node
            for name, one in slurm.delivered_reservations.items()
            if name.startswith(OUR_FENCE)
            for node in one.nodes
        }
        well = {name for name, view in slurm.delivered.items() if not view.state & OUT and name not in fenced}
        self._seen = {name: self._seen.get(name, 0) + 1 for name in sorted(well)}
        for incident in tick.result.plan.incidents if tick.result is not None else ():
            if incident.step is not Step.CLOSED or incident.outcome not in ("returned", "lifted"):
                continue
            self.judged += 1
            assert tick.result is not None
            was = tick.result.records.incidents.get(incident.node)
            if incident.outcome == "lifted" and (was is None or was.step is not Step.RETURNING):
                # Let go before anything was done to it.
                continue
            if self._seen.get(incident.node, 0) < 2:
                self.broken(
                    incident.node,
                    f"{incident.id} is closed, read in service {self._seen.get(incident.node, 0)} times",
                )


class ReturnsGoOn(Oracle):
    """A node whose repair is proven goes back within some ticks; a tripped breaker does not keep it."""

    name = "the breaker never stops a return"

    def __init__(self, facts: Facts) -> None:
        """Nobody waits."""
        super().__init__(facts)
        self._patience = Patience(RETURN_TICKS)

    def ticked(self, tick: TickFacts) -> None:
        """Nodes that are ready in every respect but for a breaker."""
        facts = self.facts
        result = tick.result
        able = (
            result is not None and tick.fresh and not result.plan.not_acting and facts.policy.mode is Mode.ACT
        )
        done = result is not None and all(one.result == "done" for one in result.done)
        ready = set()
        for node, case in facts.journal.open_cases().items():
            if self._ready(node, case):
                ready.add((case.step, node, case.id))
        tripped = bool(facts.journal.trips())
        if able and tripped:
            self.judged += len(ready)
        for step, node, incident_id in self._patience.lasted(ready, counts=able and done):
            word = "under a tripped breaker" if tripped else "with no breaker tripped"
            self.broken(node, f"{incident_id} is ready to go back and stays {step} {word}")

    def _ready(self, node: str, case: Case) -> bool:
        facts = self.facts
        view = facts.view(node)
        if view is None or not facts.shown_plainly(node) or facts.persons(node) or facts.jobs_of(node):
            return False
        if facts.journal.unresolved().get(node) or node in facts.journal.holds():
            return False
        if not {"return", "drain"} <= facts.policy.rungs or "*" not in facts.policy.partitions:
            return False
        if "DRAIN" in view.state and not view.reason.startswith(OUR_REASON):
            # Slurm itself has drained it: checked again twice at most, then a person is asked.
            return False
        if view.state & (OUT - {"DRAIN"}) or facts.maintained(node):
            return False
        said = spoken(view)
        good = facts.checked_for_s(node) >= facts.policy.verify_settle_s + 2 * facts.slack_s
        new_boot = said is not None and (not case.boot_before or said.boot_id != case.boot_before)
        if case.step == "verifying":
            stood = facts.now - case.step_since > facts.policy.verify_settle_s + 2 * facts.slack_s
            drained_for_s = facts.now - (view.reason_at_s or facts.now)
            settled = drained_for_s > facts.policy.verify_settle_s + 2 * facts.slack_s
            return good and new_boot and stood and settled and "DRAIN" in view.state
        return case.step == "returning" and good


class ProvenSuccess(Oracle):
    """A repair counts as done only where the machine really booted after it; nothing else is checked."""

    name = "success is proven by a boot"

    def __init__(self, facts: Facts) -> None:
        """Nothing was tried yet."""
        super().__init__(facts)
        self._proven: set[str] = set()

    def ticked(self, tick: TickFacts) -> None:
        """Attempts that ended as succeeded, at the edge too, and cases that were sent to their checks."""
        for op_id, node, created_at in self.facts.journal.succeeded():
            if op_id not in self._proven:
                self._proven.add(op_id)
                self.judged += 1
                self._booted(node, created_at, f"{op_id} counts as succeeded")
        if tick.result is None:
            return
        before = tick.result.records.incidents
        asked = {subject for _, subject in self.facts.answered(tick.result.plan)}
        for incident in tick.result.plan.incidents:
            was = before.get(incident.node)
            on = was is not None and was.id == incident.id and was.step is Step.REPAIRING
            repaired = incident.rung is not None and incident.rung.value in DISRUPTIVE
            if not on or incident.step is not Step.VERIFYING or not repaired or incident.node in asked:
                continue
            self.judged += 1
            tries = [one for one in self.facts.journal.tries_of(incident.id) if one.rung in DISRUPTIVE]
            if not tries:
                self.broken(incident.node, f"{incident.id} is verified after a repair that nobody tried")
                continue
            self._booted(incident.node, tries[-1].created_at, f"{incident.id} goes on to its checks")

    def _booted(self, node: str, since: float, text: str) -> None:
        came_up_at = self.facts.came_up_at.get(node, 0.0)
        if node in self.facts.machines and came_up_at < since - self.facts.slack_s:
            self.broken(node, f"{text}, and the machine has not booted since it was tried")
