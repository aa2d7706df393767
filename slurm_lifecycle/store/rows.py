"""Rows to values of `core.model` and back. Columns are in the order of the fields."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields
from enum import Enum
from typing import Any, Generic, TypeVar

import sqlalchemy as sa

from slurm_lifecycle.core.fault_catalog import FaultClass, Level
from slurm_lifecycle.core.machine import AttemptStep, MachineCommand, PhoneHome, StepOutcome
from slurm_lifecycle.core.model import (
    Attempt,
    AttemptOutcome,
    BreakerHit,
    Fence,
    Finding,
    Hold,
    Incident,
    Phase,
    Request,
    Rung,
    Step,
    Trip,
    Verb,
)
from slurm_lifecycle.core.plan import Event, NodeStatus
from slurm_lifecycle.errors import StoreError
from slurm_lifecycle.store import schema

T = TypeVar("T")
Row = dict[str, object]


class Codec(Generic[T]):
    """Turns the rows of one table into values of one class and back."""

    def __init__(self, cls: Callable[..., T], table: sa.Table, enums: Mapping[str, type[Enum]]) -> None:
        """Bind a class to its table.

        Args:
            cls: a dataclass of `core.model`.
            table: holds at least one column for each field.
            enums: the fields that are enums.
        """
        names = [item.name for item in fields(cls)]  # type: ignore[arg-type]
        self._cls = cls
        self._names = names
        self.table = table
        self.columns = [table.c[name] for name in names]
        self.select = sa.select(*self.columns)
        # A dict of the values is several times faster than calling the enum, and a load decodes thousands.
        self._enums: tuple[tuple[int, dict[object, object]], ...] = tuple(
            (names.index(name), {None: None, **{member.value: member for member in enum}})
            for name, enum in enums.items()
        )

    def encode(self, value: T) -> Row:
        """The row of a value."""
        return {name: _plain(getattr(value, name)) for name in self._names}

    def encode_all(self, values: Iterable[T]) -> list[Row]:
        """The rows of many values."""
        return [self.encode(value) for value in values]

    def decode(self, row: Sequence[Any]) -> T:
        """The value of a row."""
        items = list(row)
        try:
            for index, members in self._enums:
                items[index] = members[items[index]]
        except KeyError as error:
            raise StoreError(
                f"the store's table {self.table.name} holds the word {error}, unknown to this release: "
                "install the release that wrote it"
            ) from error
        return self._cls(*items)

    def read(self, connection: sa.Connection, *where: Any) -> tuple[T, ...]:
        """All values whose rows meet the conditions."""
        return self.fetch(connection, self.select.where(*where))

    def fetch(
        self, connection: sa.Connection, statement: sa.Select[Any], values: Mapping[str, object] | None = None
    ) -> tuple[T, ...]:
        """All values that a statement on `select` finds."""
        return tuple(map(self.decode, connection.execute(statement, values).all()))


def _plain(value: object) -> object:
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, str) and not value.isascii():
        # What came from a node may hold half of a character, which SQLite cannot store.
        return value.encode("utf-8", "backslashreplace").decode("utf-8")
    return value


INCIDENT = Codec(Incident, schema.incident, {"fault_class": FaultClass, "step": Step, "rung": Rung})
ATTEMPT = Codec(Attempt, schema.attempt, {"rung": Rung, "outcome": AttemptOutcome})
STEP = Codec(AttemptStep, schema.attempt_step, {"command": MachineCommand, "outcome": StepOutcome})
HOME = Codec(PhoneHome, schema.phone_home, {})
FENCE = Codec(Fence, schema.fence, {})
FINDING = Codec(Finding, schema.finding, {"level": Level})
TRIP = Codec(Trip, schema.trip, {})
HIT = Codec(BreakerHit, schema.breaker_hit, {})
HOLD = Codec(Hold, schema.hold, {})
EVENT = Codec(Event, schema.event, {})
REQUEST = Codec(Request, schema.request, {"verb": Verb})
STATUS = Codec(NodeStatus, schema.node_status, {"phase": Phase})
