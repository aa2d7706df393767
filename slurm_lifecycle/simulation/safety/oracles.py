"""What an oracle is, and the judges: all oracles of a run, told of everything that happens.

An oracle judges from the truth (machines, slurmctld, the store read by SQL) and shares no decision with the
code that it judges. It counts how often it had something to judge: a run in which nothing happened proves
nothing.
"""

from collections.abc import Callable
from dataclasses import dataclass

from slurm_lifecycle.service.reconciler import TickResult
from slurm_lifecycle.simulation.safety.facts import DISRUPTIVE, Effect, Facts, Violation

# Slurm and the record must agree again within so many ticks that could have mended it.
PATIENCE_TICKS = 12
# What lasts: which kind, of which node, and which thing exactly.
Lasting = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class Call:
    """A write of the daemon.

    Attributes:
        text: reason, Comment, fence or operation id, by `what`.
        looks: reads answered since the daemon's last write, in order: (what, node).
        op_id: the unresolved attempt on record that it belongs to, "" where there is not exactly one.
        sent_at: when it was sent; it may take effect later than that.
    """

    what: str
    node: str
    text: str
    looks: tuple[tuple[str, str], ...]
    op_id: str
    sent_at: float


@dataclass(frozen=True, slots=True)
class TickFacts:
    """One tick of the daemon.

    Attributes:
        result: None where the tick failed or the daemon was killed in it.
        error: what ended it, "" where nothing did.
        fresh: what it read was true when it read it.
    """

    result: TickResult | None
    error: str
    fresh: bool


class Oracle:
    """Judges one rule. Subclasses say what they look at.

    Attributes:
        name: a few words, as printed.
        judged: how often there was something to judge.
    """

    name = ""

    def __init__(self, facts: Facts) -> None:
        """An oracle of one run."""
        self.facts = facts
        self.judged = 0

    def broken(self, node: str, text: str) -> None:
        """The rule is broken."""
        found = Violation(self.name, self.facts.now, node, text)
        self.facts.violations.append(found)
        self.facts.trace.add(found.at, node, f"VIOLATION of {self.name!r}: {text}")

    def sends(self, call: Call) -> None:
        """The daemon is sending something, right now."""

    def happened(self, call: Call) -> None:
        """Something took effect."""

    def wrote(self) -> None:
        """The daemon wrote to its store."""

    def ticked(self, tick: TickFacts) -> None:
        """A tick is over, well or not."""

    def node_changed(self, node: str) -> None:
        """A node's record in Slurm changed."""


class Patience:
    """Counts ticks for which something that must not last has lasted, by key."""

    def __init__(self, ticks: int = PATIENCE_TICKS) -> None:
        """Allow so many."""
        self._ticks = ticks
        self._lasted: dict[Lasting, int] = {}

    def lasted(self, now_there: set[Lasting], *, counts: bool) -> list[Lasting]:
        """Those that have just lasted too long; what is not there any more is forgotten.

        Args:
            now_there: what is there now.
            counts: this tick could have mended it.
        """
        kept = {key: self._lasted.get(key, 0) + counts for key in sorted(now_there)}
        self._lasted = kept
        return [key for key, ticks in kept.items() if counts and ticks == self._ticks + 1]


class Judges:
    """Implements `trouble.Watcher`: passes on what happens to the facts and to every oracle."""

    def __init__(self, facts: Facts, makers: tuple[Callable[[Facts], Oracle], ...]) -> None:
        """One oracle of each kind."""
        self.facts = facts
        self.oracles = tuple(make(facts) for make in makers)
        # Most oracles look at one thing only, and nodes change often.
        self._on_node_change = self._those_with("node_changed")
        self._on_write = self._those_with("wrote")
        self.sent = 0
        self.effects = 0
        self._looks: list[tuple[str, str]] = []
        self._under_way: dict[tuple[str, str, str], Call] = {}

    def _those_with(self, method: str) -> tuple[Oracle, ...]:
        return tuple(one for one in self.oracles if getattr(type(one), method) is not getattr(Oracle, method))

    def looked(self, what: str, node: str) -> None:
        """A read was answered."""
        self._looks.append((what, node))

    def note(self, node: str, text: str) -> None:
        """A line for the trace."""
        self.facts.trace.add(self.facts.now, node, text)

    def sends(self, what: str, node: str, text: str) -> None:
        """A write is being sent."""
        self.sent += 1
        tries = self.facts.journal.unresolved().get(node, ())
        op_id = tries[0].op_id if len(tries) == 1 else ""
        call = Call(what, node, text, tuple(self._looks), op_id, self.facts.now)
        # Commands to BMCs go out at once, after a look at every node.
        if what not in ("power", "restore"):
            self._looks.clear()
        self._under_way[what, node, text] = call
        self.facts.trace.add(self.facts.now, node, f"sends {what} {text}")
        for oracle in self.oracles:
            oracle.sends(call)

    def happened(self, what: str, node: str, text: str) -> None:
        """A write took effect, as it was sent last."""
        call = self._under_way[what, node, text]
        self.effects += 1
        # A reimage that is handed over again does nothing.
        again = what == "reimage" and any(one.op_id == text for one in self.facts.effects)
        if what in DISRUPTIVE and not again:
            effect = Effect(self.facts.now, call.sent_at, node, what, call.op_id)
            self.facts.effect_happened(effect)
        for oracle in self.oracles:
            oracle.happened(call)

    def wrote(self) -> None:
        """The daemon wrote to its store."""
        self.facts.journal.changed()
        self.facts.answers_came()
        for oracle in self._on_write:
            oracle.wrote()

    def node_changed(self, node: str) -> None:
        """A node's record in Slurm, or its boot, changed."""
        self.facts.node_changed(node)
        for oracle in self._on_node_change:
            oracle.node_changed(node)

    def started(self) -> None:
        """A daemon starts: whatever an earlier one read is forgotten."""
        self._looks.clear()
        self.facts.journal.changed()

    def ticked(self, tick: TickFacts) -> None:
        """A tick is over."""
        self.facts.journal.changed()
        for oracle in self.oracles:
            oracle.ticked(tick)
