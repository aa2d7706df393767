"""A plan's rows as statements, each built once: building one costs more than running it."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import TypeVar

import sqlalchemy as sa
from sqlalchemy.dialects.sqlite import insert

from slurm_lifecycle.core.model import Step
from slurm_lifecycle.core.plan import NodeStatus, Plan
from slurm_lifecycle.store import rows, schema

T = TypeVar("T")


@cache
def _put(table: sa.Table) -> sa.Insert:
    """Insert, or replace by primary key."""
    statement = insert(table)
    key = [column.name for column in table.primary_key.columns]
    update = {column.name: statement.excluded[column.name] for column in table.c if column.name not in key}
    return statement.on_conflict_do_update(index_elements=key, set_=update)


@cache
def _add(table: sa.Table) -> sa.Insert:
    return sa.insert(table)


@cache
def _remove_open(table: sa.Table, key: tuple[str, ...], began: str, ended: str) -> sa.Delete:
    """Delete the open row of a key, and the very same row where it had ended."""
    same = [table.c[name] == sa.bindparam(f"key_{name}") for name in key]
    this = sa.or_(table.c[ended].is_(None), table.c[began] == sa.bindparam(f"key_{began}"))
    return sa.delete(table).where(*same, this)


_ADD_HIT = insert(schema.breaker_hit).on_conflict_do_nothing()
_ANSWER = (
    sa.update(schema.request)
    .where(schema.request.c.id == sa.bindparam("request_id"))
    .values(done_at=sa.bindparam("done_at"), answer=sa.bindparam("answer"))
)
_FORGET_STATUS = sa.delete(schema.node_status).where(schema.node_status.c.node == sa.bindparam("gone_node"))


def write_rows(connection: sa.Connection, plan: Plan, now: float) -> None:
    """Write everything of a plan but the statuses.

    What ends is written before what begins: a plan that closes a node's incident and opens the next one
    must not meet the rule of one open incident a node half way.
    """
    _upsert(connection, rows.INCIDENT, _ended_first(plan.incidents, lambda item: item.step is Step.CLOSED))
    _upsert(connection, rows.ATTEMPT, _ended_first(plan.attempts, lambda item: item.outcome is not None))
    _upsert(connection, rows.STEP, plan.steps)
    _upsert(connection, rows.FENCE, plan.fences)
    _replace_open(
        connection,
        rows.FINDING,
        plan.findings,
        key=("node", "code", "component"),
        began="raised_at",
        ended="cleared_at",
    )
    _replace_open(
        connection,
        rows.TRIP,
        plan.trips,
        key=("scope",),
        began="tripped_at",
        ended="reset_at",
    )
    _replace_open(
        connection,
        rows.HOLD,
        plan.holds,
        key=("node",),
        began="at",
        ended="released_at",
    )
    if plan.hits:
        connection.execute(_ADD_HIT, rows.HIT.encode_all(plan.hits))
    if plan.events:
        connection.execute(_add(schema.event), rows.EVENT.encode_all(plan.events))
    if plan.requests_done:
        done = [
            {"request_id": request_id, "done_at": now, "answer": answer}
            for request_id, answer in plan.requests_done
        ]
        connection.execute(_ANSWER, done)


def write_statuses(
    connection: sa.Connection, changed: Sequence[NodeStatus], gone: Sequence[str], now: float
) -> None:
    """Write the nodes' words that changed and forget the nodes that are gone."""
    if changed:
        values = [{**row, "since": now} for row in rows.STATUS.encode_all(changed)]
        connection.execute(_put(schema.node_status), values)
    if gone:
        connection.execute(_FORGET_STATUS, [{"gone_node": node} for node in gone])


def put_meta(connection: sa.Connection, values: Mapping[str, str]) -> None:
    """Set words of the store about itself."""
    connection.execute(_put(schema.meta), [{"key": key, "value": value} for key, value in values.items()])


def _ended_first(items: Iterable[T], ended: Callable[[T], bool]) -> list[T]:
    return sorted(items, key=lambda item: not ended(item))


def _upsert(connection: sa.Connection, codec: rows.Codec[T], items: Sequence[T]) -> None:
    """Insert, or replace by primary key; another row's uniqueness that would be broken is an error."""
    if items:
        connection.execute(_put(codec.table), codec.encode_all(items))


def _replace_open(
    connection: sa.Connection,
    codec: rows.Codec[T],
    items: Sequence[T],
    *,
    key: Sequence[str],
    began: str,
    ended: str,
) -> None:
    """Replace the open row of a key, or the very same row where it had ended; ended rows stay as history."""
    if not items:
        return
    values = codec.encode_all(items)
    remove, add = _remove_open(codec.table, tuple(key), began, ended), _add(codec.table)
    # Ended ones first, then the open ones: a plan may end a row and begin the next one of the same key.
    for batch in (
        [row for row in values if row[ended] is not None],
        [row for row in values if row[ended] is None],
    ):
        if batch:
            places = [{f"key_{name}": row[name] for name in (*key, began)} for row in batch]
            connection.execute(remove, places)
            connection.execute(add, batch)
