"""Oracles about limits and memory: budgets, the breaker's trips, relapses, and what persons decided."""

from collections.abc import Mapping

from slurm_lifecycle.core.fault_catalog import DrainedBy, fault_for
from slurm_lifecycle.core.model import Incident, NodeView, Step, Verb
from slurm_lifecycle.core.plan import Drain
from slurm_lifecycle.core.policy import DAY_S, Budget, Policy
from slurm_lifecycle.service.reconciler import TickResult
from slurm_lifecycle.simulation.safety.facts import DISRUPTIVE, OUR_FENCE, OUR_REASON, OUT, Facts, spoken
from slurm_lifecycle.simulation.safety.journal import WORKING, Case
from slurm_lifecycle.simulation.safety.oracles import Call, Oracle, TickFacts


def _scopes(policy: Policy, view: NodeView) -> tuple[str, ...]:
    domain = policy.domains.get(view.name)
    partitions = [f"partition:{one}" for one in view.partitions]
    return ("fleet", *partitions, *((f"domain:{domain}",) if domain else ()))


def _moved(facts: Facts, scope: str) -> bool:
    """Whether nodes that are in work may have been moved into a partition: then its places say nothing."""
    return facts.nodes_were_moved and scope.startswith("partition:")


def _budget(policy: Policy, scope: str, nodes: int) -> Budget:
    if scope == "fleet":
        out = policy.fleet.max_out
        working = policy.fleet.max_working
        wanted = int(nodes * policy.fleet_working_percent / 100)
        return Budget(
            max(2, int(nodes * policy.fleet_out_percent / 100)) if out is None else out,
            min(32, max(2, wanted)) if working is None else working,
        )
    kind, _, name = scope.partition(":")
    return (policy.partition_budgets if kind == "partition" else policy.domain_budgets).get(name, Budget())


class WorkingBudget(Oracle):
    """No more nodes are taken into work than any of their limits allows, within a tick too.

    A person's release puts a node to its checks beside the limits; that itself is not judged, but nothing
    else is taken in while the limit is reached.
    """

    name = "budgets of nodes in work"

    def ticked(self, tick: TickFacts) -> None:
        """Wherever a tick took a node in of its own accord."""
        if tick.result is None:
            return
        facts, before = self.facts, tick.result.records.incidents
        assert facts.slurm is not None
        nodes = facts.slurm.delivered
        asked = {subject for _, subject in facts.answered(tick.result.plan)}
        taken_in = [one for one in tick.result.plan.incidents if _taken_in(one, before.get(one.node), asked)]
        if not taken_in:
            return
        after = {**before, **{one.node: one for one in tick.result.plan.incidents}}
        working = [
            nodes[node] for node, one in sorted(after.items()) if one.step.value in WORKING and node in nodes
        ]
        for incident in taken_in:
            for scope in _scopes(facts.policy, nodes[incident.node]):
                limit = _budget(facts.policy, scope, len(nodes)).max_working
                if limit is None or _moved(facts, scope):
                    continue
                self.judged += 1
                there = sum(1 for view in working if scope in _scopes(facts.policy, view))
                if there > limit:
                    self.broken(incident.node, f"{there} nodes of {scope} are in work, limit {limit}")


def _taken_in(incident: Incident, was: Incident | None, asked: set[str]) -> bool:
    working = incident.step in (Step.REPAIRING, Step.VERIFYING)
    before = was is not None and was.id == incident.id and was.step.value in WORKING
    return working and not before and incident.node not in asked


class WorkNow(Oracle):
    """At each repair, no more nodes are being repaired than a limit allows, releases or not."""

    name = "budgets at each repair"

    def sends(self, call: Call) -> None:
        """A reboot or a reimage begins."""
        if call.what not in DISRUPTIVE:
            return
        facts = self.facts
        assert facts.slurm is not None
        nodes = facts.slurm.delivered
        if call.node not in nodes:
            return
        repairing = [
            nodes[node]
            for node, case in facts.journal.open_cases().items()
            if case.step == "repairing" and node in nodes
        ]
        for scope in _scopes(facts.policy, nodes[call.node]):
            limit = _budget(facts.policy, scope, len(nodes)).max_working
            if limit is None or _moved(facts, scope):
                continue
            self.judged += 1
            there = sum(1 for view in repairing if scope in _scopes(facts.policy, view))
            if there > limit:
                self.broken(call.node, f"{there} nodes of {scope} are being repaired, limit {limit}")


class OutBudget(Oracle):
    """Nodes in service are drained for a cause that may be common only while few enough nodes are out."""

    name = "budgets of nodes out"

    def ticked(self, tick: TickFacts) -> None:
        """Drains that wait for a place, against what was read."""
        if tick.result is None:
            return
        facts = self.facts
        assert facts.slurm is not None
        nodes = facts.slurm.delivered
        fenced = {
            node
            for name, one in facts.slurm.delivered_reservations.items()
            if name.startswith(OUR_FENCE)
            for node in one.nodes
        }
        # A node under a fence is out of service already.
        wanting = [nodes[node] for node in _drained_for_common(tick.result, nodes) if node not in fenced]
        for scope in sorted({scope for view in wanting for scope in _scopes(facts.policy, view)}):
            limit = _budget(facts.policy, scope, len(nodes)).max_out
            if limit is None:
                continue
            self.judged += 1
            out = sum(1 for v in nodes.values() if v.state & OUT and scope in _scopes(facts.policy, v))
            new = [view.name for view in wanting if scope in _scopes(facts.policy, view)]
            if out + len(new) > limit:
                self.broken(new[0], f"{out} nodes of {scope} are out, {new} are drained, limit {limit}")


def _drained_for_common(result: TickResult, nodes: Mapping[str, NodeView]) -> list[str]:
    changed = {one.node: one for one in result.plan.incidents}
    found = []
    for action in result.plan.actions:
        if not isinstance(action, Drain):
            continue
        incident = changed.get(action.node) or result.records.incidents.get(action.node)
        view = nodes.get(action.node)
        if incident is None or view is None or incident.step is not Step.DRAINING:
            continue
        common = fault_for(incident.code).drained_by is not DrainedBy.NODE
        if common and not view.state & {"DRAIN", "DOWN", "FAIL"} and not view.state & OUT:
            found.append(action.node)
    return found


class BreakerTrips(Oracle):
    """When too many distinct nodes needed a repair within the window, a breaker stands."""

    name = "the breaker trips"

    def __init__(self, facts: Facts) -> None:
        """No case is known."""
        super().__init__(facts)
        self._asked_for: set[str] = set()

    def wrote(self) -> None:
        """Cases that a person asked for; they may be of another code later."""
        for case in self.facts.journal.open_cases().values():
            if case.code == "MANUAL":
                self._asked_for.add(case.id)

    def ticked(self, tick: TickFacts) -> None:
        """Counted from the cases that were opened since any breaker was last reset."""
        if tick.result is None:
            return
        facts = self.facts
        since = max(
            tick.result.at - facts.policy.breaker.window_s + 2 * facts.slack_s,
            facts.journal.last_reset() + 0.001,
        )
        nodes = {
            case.node
            for case in facts.journal.opened_since(since)
            if case.id not in self._asked_for and case.hold != "adopt"
        }
        gpu_nodes = sum(1 for view in facts.ctld.views().values() if view.gpus) or len(facts.ctld.views())
        limit = facts.policy.breaker.threshold(gpu_nodes)
        if len(nodes) < limit:
            return
        self.judged += 1
        if not facts.journal.trips():
            self.broken("", f"{len(nodes)} nodes within the window, limit {limit}, and nothing is tripped")


class Memory(Oracle):
    """A fault that came back is met above what cured it; a node that fails all the time goes to a person."""

    name = "relapses go up the ladder"

    def __init__(self, facts: Facts) -> None:
        """No case is known."""
        super().__init__(facts)
        self._began: dict[str, tuple[str, str]] = {}

    def wrote(self) -> None:
        """The fault with which each case began; another one may take its place in it."""
        for case in self.facts.journal.open_cases().values():
            self._began.setdefault(case.id, (case.fault_class, case.component))

    def sends(self, call: Call) -> None:
        """At each repair: what the node's history demands."""
        case = self.facts.journal.open_cases().get(call.node)
        one_shot = call.what in DISRUPTIVE or call.what == "ticket"
        if not one_shot or case is None or self._began.get(case.id) != (case.fault_class, case.component):
            return
        path = [
            rule.rung.value
            for key, rules in self.facts.policy.paths.items()
            if key.value == case.fault_class
            for rule in rules
        ]
        rung = case.rung if call.what == "ticket" else call.what
        if rung not in path:
            return
        least, why = self._least(case, path)
        if why:
            self.judged += 1
        if path.index(rung) < least:
            self.broken(call.node, f"{rung} for {case.id}, but {why}: nothing below {path[least]}")

    def _least(self, case: Case, path: list[str]) -> tuple[int, str]:
        policy = self.facts.policy
        past = [
            one
            for one in self.facts.journal.cases_of(case.node)
            if one.outcome == "returned" and one.closed_at is not None and one.closed_at <= case.opened_at
        ]
        in_7d = 1 + sum(1 for one in past if case.opened_at - one.opened_at < 7 * DAY_S)
        in_28d = 1 + sum(1 for one in past if case.opened_at - one.opened_at < 28 * DAY_S)
        if case.fault_class == "transient":
            return 0, ""
        if in_7d >= policy.lemon_7d or in_28d >= policy.lemon_28d:
            return len(path) - 1, f"{in_7d} cases in 7 days"
        same = [one for one in past if (one.fault_class, one.component) == (case.fault_class, case.component)]
        cures = [path.index(one.cured_by) for one in same if one.cured_by in path]
        if not cures:
            return 0, ""
        return min(max(cures) + 1, len(path) - 1), f"{path[max(cures)]} had cured it"


class PersonsWord(Oracle):
    """Where a person lifted a drain of ours, the daemon does not set it again for the same fault."""

    name = "it does not fight a person"

    def __init__(self, facts: Facts) -> None:
        """No person has said anything."""
        super().__init__(facts)
        self._lifted: dict[str, tuple[str, str]] = {}

    def person_lifts(self, node: str) -> None:
        """A person is about to lift the drain of a node, whoever set it: remembered where it was settled."""
        facts = self.facts
        view, case = facts.view(node), facts.journal.open_cases().get(node)
        if (
            view is None
            or case is None
            or facts.journal.unresolved().get(node)
            or not facts.shown_plainly(node)
            or facts.asked_about(node)
        ):
            # Where a request waits for its answer, two persons' words are about the node.
            return
        settled = case.drain_confirmed and case.hold not in ("adopt", "foreign") and case.step != "returning"
        tries = facts.journal.tries_of(case.id)
        unclear = case.step == "repairing" and bool(tries) and tries[-1].outcome == "ambiguous"
        plain = view.state <= {"IDLE", "DRAIN", "MAINTENANCE", "RESERVED"}
        ours = view.reason.startswith(OUR_REASON)
        if settled and not unclear and plain and ours:
            self._lifted[node] = (case.code, case.component)

    def person_asks(self, verb: Verb, node: str) -> None:
        """A person who asks for a repair, or for checks before a return, wants it drained again."""
        if verb in (Verb.REMEDIATE, Verb.RELEASE, Verb.RETURN, Verb.RMA_CLOSE):
            self.forget(node)

    def forget(self, node: str) -> None:
        """Something new is known about the node: what was said counts no more."""
        self._lifted.pop(node, None)

    def node_changed(self, node: str) -> None:
        """Another fault, none, a DOWN node, or a drain that somebody set."""
        if node not in self._lifted:
            return
        view = self.facts.view(node)
        said = spoken(view) if view is not None else None
        same = said is not None and (said.code, said.component) == self._lifted[node]
        if view is None or not same or view.state & {"DOWN", "DRAIN"}:
            self.forget(node)

    def sends(self, call: Call) -> None:
        """At each drain of such a node."""
        if call.what == "drain" and call.node in self._lifted:
            self.broken(call.node, f"drains again with {call.text!r} what a person has put back")
            self.forget(call.node)

    def ticked(self, tick: TickFacts) -> None:
        """Every node to which that applies."""
        self.judged += len(self._lifted) if tick.result is not None else 0
