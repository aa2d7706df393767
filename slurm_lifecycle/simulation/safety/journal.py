"""The daemon's store as an outsider reads it: by SQL of its own, through a connection that cannot write."""

import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

WORKING = frozenset({"repairing", "verifying", "returning"})
TRANSIENT = WORKING | {"draining"}


@dataclass(frozen=True, slots=True)
class Case:
    """A row of the table `incident`."""

    id: str
    node: str
    fault_class: str
    code: str
    component: str
    step: str
    opened_at: float
    step_since: float
    deadline: float | None
    path_index: int
    rung: str | None
    drain_confirmed: bool
    boot_before: str
    hold: str
    lifted: bool
    outcome: str
    cured_by: str
    closed_at: float | None


@dataclass(frozen=True, slots=True)
class Try:
    """A row of the table `attempt`."""

    op_id: str
    incident_id: str
    node: str
    rung: str
    created_at: float
    deadline: float
    sent: bool
    outcome: str | None


_CASE = "SELECT " + ", ".join(Case.__dataclass_fields__) + " FROM incident"
_TRY = "SELECT " + ", ".join(Try.__dataclass_fields__) + " FROM attempt"


class Journal:
    """Reads the store; what was read is kept until `changed` is called."""

    def __init__(self, path: Path) -> None:
        """Open an existing store for reading."""
        uri = f"file:{quote(str(path.absolute()))}?mode=ro"
        self._connection = sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False)
        self._kept: dict[str, object] = {}

    def close(self) -> None:
        """Let it go."""
        self._connection.close()

    def changed(self) -> None:
        """Somebody wrote to the store."""
        self._kept.clear()

    def open_cases(self) -> Mapping[str, Case]:
        """Open incidents by node; of two for one node, which must not be, the later."""
        kept = self._kept.get("cases")
        if kept is None:
            rows = self._connection.execute(f"{_CASE} WHERE step != 'closed' ORDER BY node, opened_at")
            kept = self._kept["cases"] = {row[1]: Case(*row) for row in rows}
        assert isinstance(kept, dict)
        return kept

    def open_case_count(self) -> int:
        """How many incidents are open."""
        (count,) = self._connection.execute("SELECT count(*) FROM incident WHERE step != 'closed'").fetchone()
        return int(count)

    def case(self, incident_id: str) -> Case | None:
        """One incident, open or closed."""
        row = self._connection.execute(f"{_CASE} WHERE id = ?", (incident_id,)).fetchone()
        return None if row is None else Case(*row)

    def cases_of(self, node: str) -> tuple[Case, ...]:
        """All incidents of a node, oldest first."""
        rows = self._connection.execute(f"{_CASE} WHERE node = ? ORDER BY opened_at, id", (node,))
        return tuple(Case(*row) for row in rows)

    def opened_since(self, since: float) -> tuple[Case, ...]:
        """Incidents opened at or after a time."""
        rows = self._connection.execute(f"{_CASE} WHERE opened_at >= ? ORDER BY id", (since,))
        return tuple(Case(*row) for row in rows)

    def unresolved(self) -> Mapping[str, tuple[Try, ...]]:
        """Attempts without an outcome, by node."""
        kept = self._kept.get("unresolved")
        if kept is None:
            found: dict[str, tuple[Try, ...]] = {}
            for row in self._connection.execute(f"{_TRY} WHERE outcome IS NULL ORDER BY op_id"):
                one = Try(*row)
                found[one.node] = (*found.get(one.node, ()), one)
            kept = self._kept["unresolved"] = found
        assert isinstance(kept, dict)
        return kept

    def tries_of(self, incident_id: str) -> tuple[Try, ...]:
        """An incident's attempts, oldest first."""
        where = f"{_TRY} WHERE incident_id = ? ORDER BY created_at, op_id"
        return tuple(Try(*row) for row in self._connection.execute(where, (incident_id,)))

    def steps(self, op_id: str) -> tuple[tuple[str, str | None], ...]:
        """The commands of an attempt and what came of each, in order."""
        where = "SELECT command, outcome FROM attempt_step WHERE op_id = ? ORDER BY n"
        return tuple((str(row[0]), row[1]) for row in self._connection.execute(where, (op_id,)))

    def succeeded(self) -> tuple[tuple[str, str, float], ...]:
        """Repairs by a boot that count as done: operation, node, when they were written down."""
        kept = self._kept.get("succeeded")
        if kept is None:
            rows = self._connection.execute(
                "SELECT op_id, node, created_at FROM attempt"
                " WHERE outcome = 'succeeded' AND rung IN ('reboot', 'power', 'reimage') ORDER BY op_id"
            )
            kept = self._kept["succeeded"] = tuple((str(row[0]), str(row[1]), float(row[2])) for row in rows)
        assert isinstance(kept, tuple)
        return kept

    def returned(self) -> tuple[Case, ...]:
        """Cases that were closed as returned, oldest first."""
        return tuple(
            Case(*row)
            for row in self._connection.execute(f"{_CASE} WHERE outcome = 'returned' ORDER BY closed_at, id")
        )

    def trips(self) -> tuple[str, ...]:
        """Scopes for which the breaker is tripped."""
        kept = self._kept.get("trips")
        if kept is None:
            rows = self._connection.execute("SELECT scope FROM trip WHERE reset_at IS NULL ORDER BY scope")
            kept = self._kept["trips"] = tuple(str(row[0]) for row in rows)
        assert isinstance(kept, tuple)
        return kept

    def last_reset(self) -> float:
        """When a breaker was last reset, 0 where never."""
        (at,) = self._connection.execute("SELECT max(reset_at) FROM trip").fetchone()
        return float(at or 0.0)

    def holds(self) -> frozenset[str]:
        """Nodes that a person holds."""
        kept = self._kept.get("holds")
        if kept is None:
            rows = self._connection.execute("SELECT node FROM hold WHERE released_at IS NULL")
            kept = self._kept["holds"] = frozenset(str(row[0]) for row in rows)
        assert isinstance(kept, frozenset)
        return kept

    def fences(self) -> Mapping[str, str]:
        """Fences on record: incident id by name."""
        rows = self._connection.execute("SELECT name, incident_id FROM fence WHERE closed_at IS NULL")
        return {str(name): str(incident_id) for name, incident_id in rows}

    def acknowledged(self, node: str) -> bool:
        """Whether a person's word stands that a finding of the node needs nothing."""
        where = "SELECT count(*) FROM finding WHERE node = ? AND cleared_at IS NULL AND acknowledged"
        (count,) = self._connection.execute(where, (node,)).fetchone()
        return bool(count)

    def answers(self, ids: Sequence[int]) -> tuple[tuple[int, str], ...]:
        """Those of the requests that were answered, and how."""
        marks = ",".join("?" * len(ids))
        where = f"SELECT id, answer FROM request WHERE done_at IS NOT NULL AND id IN ({marks}) ORDER BY id"
        return tuple((int(key), str(answer)) for key, answer in self._connection.execute(where, ids))

    def rows(self) -> Mapping[str, int]:
        """How many rows each table holds that a fleet at rest must not add to."""
        tables = ("event", "incident", "finding", "attempt", "fence", "trip", "breaker_hit", "node_status")
        return {
            name: self._connection.execute(f"SELECT count(*) FROM {name}").fetchone()[0] for name in tables
        }
