"""Oracles that judge what the daemon sends, at the moment at which it sends it."""

from collections import Counter

from slurm_lifecycle.core.model import Rung
from slurm_lifecycle.core.policy import Mode
from slurm_lifecycle.simulation.safety.facts import DISRUPTIVE, OUR_FENCE, OUR_REASON, Facts
from slurm_lifecycle.simulation.safety.oracles import Call, Oracle, TickFacts

_ON_NODE = frozenset({"drain", "undrain", "resume", "comment"})
_WORD_FOR = {"drain": "drain", "undrain": "return", "resume": "return", "ticket": "rma"}
_NEVER = frozenset({"extra", "requeue", "release"})


class IdleNode(Oracle):
    """Nothing disruptive is done to a node with a job on it; no policy of this release allows that."""

    name = "no disruption of a job"

    def sends(self, call: Call) -> None:
        """At each reboot and reimage, and at each command that takes power away."""
        if call.what not in DISRUPTIVE:
            return
        self.judged += 1
        jobs = self.facts.jobs_of(call.node)
        if jobs:
            self.broken(call.node, f"{call.what} while jobs {','.join(jobs)} are on it")


class DrainedAndFenced(Oracle):
    """Something disruptive is done only inside a fence, on a node with our drain."""

    name = "drained and fenced first"

    def sends(self, call: Call) -> None:
        """At each reboot and reimage, and at each command that takes power away."""
        if call.what not in DISRUPTIVE:
            return
        self.judged += 1
        view = self.facts.view(call.node)
        if view is None or "DRAIN" not in view.state or not view.reason.startswith(OUR_REASON):
            self.broken(call.node, f"{call.what} of a node that is not drained by us: {view}")
        if not self.facts.fences_over(call.node):
            self.broken(call.node, f"{call.what} without a fence")
        if view is not None and call.what == "reboot" and view.state & {"NOT_RESPONDING", "DOWN"}:
            self.broken(call.node, "reboot of a node that does not answer: Slurm would fire it some day")


class ForeignDrain(Oracle):
    """A person's drain is never overwritten, lifted or worked under."""

    name = "a person's drain is untouched"

    def sends(self, call: Call) -> None:
        """At whatever changes the node; a judgement wherever a person had taken the node at some time."""
        if call.what not in DISRUPTIVE and call.what not in {"drain", "undrain", "resume"}:
            return
        self.judged += 1
        if self.facts.persons(call.node):
            self.broken(call.node, f"{call.what} over a person's drain: {self.facts.view(call.node)}")


class JournalFirst(Oracle):
    """An attempt stands in the store before its effect is sent, alone on its node; none is sent twice."""

    name = "written before it is done"

    def __init__(self, facts: Facts) -> None:
        """Nothing was sent yet."""
        super().__init__(facts)
        self._sent: set[str] = set()
        self._done: set[tuple[str, str]] = set()

    def sends(self, call: Call) -> None:
        """At each one-shot effect."""
        if call.what not in DISRUPTIVE and call.what != "ticket":
            return
        self.judged += 1
        tries = self.facts.journal.unresolved().get(call.node, ())
        rungs = {"ticket": ("rma", "reseat")}.get(call.what, (call.what,))
        if call.what == "power":
            self._step_first(call)
            return
        if len(tries) != 1 or tries[0].rung not in rungs:
            self.broken(call.node, f"{call.what} while the store holds {[one.op_id for one in tries]}")
            return
        op_id = tries[0].op_id
        if call.what == "reboot" and op_id in self._sent:
            self.broken(call.node, f"{op_id} is sent twice")
        if call.what != "reboot" and call.text != op_id:
            self.broken(call.node, f"{call.what} {call.text} while {op_id} is on record")
        self._sent.add(op_id)

    def _step_first(self, call: Call) -> None:
        op_ids = [one.op_id for one in self.facts.journal.unresolved().get(call.node, ())]
        steps = self.facts.journal.steps(op_ids[0]) if len(op_ids) == 1 else ()
        if (call.text, None) not in steps:
            self.broken(call.node, f"{call.text} while the store holds {op_ids} with steps {steps}")

    def happened(self, call: Call) -> None:
        """Power is taken from a machine once an attempt, however often a daemon died over it."""
        if call.what != "power":
            return
        if (call.op_id, call.text) in self._done:
            self.broken(call.node, f"{call.text} of {call.op_id} was carried out twice")
        self._done.add((call.op_id, call.text))


class Caps(Oracle):
    """What really happened never exceeds the caps of a node, nor the attempts of a rung in one incident."""

    name = "attempts within their caps"

    def happened(self, call: Call) -> None:
        """At each disruptive effect, counted from the truth."""
        if call.what not in DISRUPTIVE:
            return
        self.judged += 1
        rung = Rung(call.what)
        policy, facts = self.facts.policy, self.facts
        mine = [one for one in facts.effects if one.node == call.node and one.rung == call.what]
        # A reimage that is handed over again does nothing: it is one effect.
        times = {one.op_id or str(one.at): one.sent_at for one in mine}
        for cap in policy.caps.get(rung, ()):
            window_s = cap.window_s - 2 * facts.slack_s - 1.0
            recent = sum(1 for at in times.values() if call.sent_at - at < window_s)
            if recent > cap.count:
                self.broken(call.node, f"{recent} times {call.what} in {cap.window_s:g} s, cap {cap.count}")
        of_incident = Counter(op_id.rsplit(".", 2)[0] for op_id in times if "." in op_id)
        incident_id = call.op_id.rsplit(".", 2)[0]
        allowed = max(
            (rule.attempts for path in policy.paths.values() for rule in path if rule.rung is rung), default=0
        )
        if of_incident[incident_id] > allowed:
            self.broken(call.node, f"{of_incident[incident_id]} times {call.what} for {incident_id}")


class FreshLook(Oracle):
    """Slurm has no compare-and-set: a node is read right before each write, and after what was unclear."""

    name = "a fresh look before each write"

    def sends(self, call: Call) -> None:
        """What was read since the write before."""
        if call.what in _ON_NODE:
            needed: tuple[tuple[str, str], ...] = (("node", call.node),)
        elif call.what in DISRUPTIVE:
            needed = (("reservations", ""), ("node", call.node), ("jobs_on", call.node))
        else:
            return
        self.judged += 1
        missing = [what for what in needed if what not in call.looks]
        if missing:
            self.broken(call.node, f"{call.what} without reading {missing} since the last write")


class RightWord(Oracle):
    """UNDRAIN where the node is up, RESUME only where it is DOWN: else it would lift a DOWN unseen."""

    name = "RESUME only where it is DOWN"

    def sends(self, call: Call) -> None:
        """At each return."""
        if call.what not in ("undrain", "resume"):
            return
        self.judged += 1
        view = self.facts.view(call.node)
        down = view is not None and "DOWN" in view.state
        if down != (call.what == "resume"):
            self.broken(
                call.node, f"{call.what} of a node in state {'+'.join(sorted(view.state if view else ()))}"
            )
        # Of an invalid registration REBOOT_ISSUED is left over; Slurm refuses to let such a node go.
        left_over = view is not None and "INVALID_REG" in view.state
        if view is not None and not left_over and view.state & {"REBOOT_ISSUED", "REBOOT_REQUESTED"}:
            self.broken(call.node, f"{call.what} in the middle of a reboot would put it into service")


class OnlyItsOwn(Oracle):
    """The daemon never writes what is not its to write: Extra, jobs, foreign text, foreign reservations."""

    name = "only its own fields"

    def sends(self, call: Call) -> None:
        """At each write of a text."""
        self.judged += 1
        if call.what in _NEVER:
            self.broken(call.node, f"{call.what} {call.text}")
        if call.what in ("fence", "renew", "unfence") and not call.text.startswith(OUR_FENCE):
            self.broken(call.node, f"{call.what} of {call.text}")
        if call.what == "drain" and not call.text.startswith(OUR_REASON):
            self.broken(call.node, f"drain with the text {call.text!r}")
        if call.what == "comment":
            view = self.facts.view(call.node)
            words = {
                one
                for one in (view.comment.split() if view else ())
                if not one.startswith(("slc1[", "slcd["))
            }
            lost = words - set(call.text.split())
            if lost:
                self.broken(call.node, f"somebody's {sorted(lost)} in the Comment is lost")


class Permission(Oracle):
    """Nothing is done in observe mode, outside the allow-lists, or on a node that a person holds."""

    name = "only what is allowed"

    def sends(self, call: Call) -> None:
        """At every write; a fence is part of a repair that was allowed when it began."""
        self.judged += 1
        facts, policy = self.facts, self.facts.policy
        if policy.mode is not Mode.ACT:
            self.broken(call.node, f"{call.what} in observe mode")
        rung = _WORD_FOR.get(call.what, call.what if call.what in DISRUPTIVE else "")
        if not rung:
            return
        if rung not in policy.rungs:
            self.broken(call.node, f"{call.what} although rungs do not list {rung}")
        if call.node in facts.journal.holds():
            self.broken(call.node, f"{call.what} of a node that a person holds")
        assert facts.slurm is not None
        view = facts.slurm.delivered.get(call.node)
        outside = [] if view is None else [one for one in view.partitions if one not in policy.partitions]
        if view is not None and "*" not in policy.partitions and (outside or not view.partitions):
            self.broken(call.node, f"{call.what} of a node in partitions {view.partitions}")


class FenceLast(Oracle):
    """A fence goes last: not while its node is being worked on or still carries our drain."""

    name = "the fence goes last"

    def sends(self, call: Call) -> None:
        """At each removal."""
        if call.what != "unfence":
            return
        self.judged += 1
        incident_id = call.text.removeprefix(OUR_FENCE)
        case = self.facts.journal.case(incident_id)
        if case is None:
            self.broken("", f"removes {call.text}, of which the store knows nothing")
            return
        if any(one.incident_id == incident_id for one in self.facts.journal.unresolved().get(case.node, ())):
            self.broken(case.node, f"removes {call.text} while an attempt is under way")
        if case.step in ("repairing", "verifying"):
            self.broken(case.node, f"removes {call.text} while the node is {case.step}")
        view = self.facts.view(case.node)
        # Seen undrained by this tick's read; a person may have drained it since.
        drained = view is not None and "DRAIN" in view.state and not self.facts.persons(case.node)
        if case.step == "returning" and drained:
            self.broken(case.node, f"removes {call.text} before the drain is lifted")


class BreakerStops(Oracle):
    """Under a tripped breaker nothing new is started."""

    name = "a tripped breaker starts nothing"

    def __init__(self, facts: Facts) -> None:
        """Nothing was under way."""
        super().__init__(facts)
        self._begun: set[str] = set()

    def _tripped(self, node: str) -> bool:
        trips = self.facts.journal.trips()
        return "fleet" in trips or f"domain:{self.facts.domain(node)}" in trips

    def wrote(self) -> None:
        """Attempts that were written down while nothing was tripped may be carried out."""
        for node, tries in self.facts.journal.unresolved().items():
            if not self._tripped(node):
                self._begun |= {one.op_id for one in tries}

    def sends(self, call: Call) -> None:
        """At each one-shot effect while something is tripped."""
        if call.what not in DISRUPTIVE and call.what != "ticket":
            return
        self.judged += bool(self.facts.journal.trips())
        if call.op_id not in self._begun and self._tripped(call.node):
            self.broken(call.node, f"{call.what} {call.op_id} although the breaker is tripped")

    def ticked(self, tick: TickFacts) -> None:
        """Every case that would go on but for the breaker."""
        if tick.result is None or not self.facts.journal.trips():
            return
        for node, case in self.facts.journal.open_cases().items():
            view = self.facts.view(node)
            waits = case.step in ("draining", "repairing") and view is not None and "DRAIN" in view.state
            self.judged += waits and self._tripped(node) and not self.facts.jobs_of(node)
