"""A plan's rows as statements."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

import sqlalchemy as sa
from sqlalchemy.dialects.sqlite import insert

from slurm_lifecycle.core.model import Step
from slurm_lifecycle.core.plan import NodeStatus, Plan
from slurm_lifecycle.store import rows, schema

T = TypeVar("T")


def write_rows(connection: sa.Connection, plan: Plan, now: float) -> None:
    """Write everything of a plan but the statuses.

    What ends is written before what begins: a plan that closes a node's incident and opens the next one
    must not meet the rule of one open incident a node half way.
    """
    _upsert(connection, rows.INCIDENT, _ended_first(plan.incidents, lambda item: item.step is Step.CLOSED))
    _upsert(connection, rows.ATTEMPT, _ended_first(plan.attempts, lambda item: item.outcome is not None))
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
        connection.execute(
            insert(schema.breaker_hit).on_conflict_do_nothing(), rows.HIT.encode_all(plan.hits)
        )
    if plan.events:
        connection.execute(sa.insert(schema.event), rows.EVENT.encode_all(plan.events))
    for request_id, answer in plan.requests_done:
        done = sa.update(schema.request).where(schema.request.c.id == request_id)
        connection.execute(done.values(done_at=now, answer=answer))


def write_statuses(
    connection: sa.Connection, changed: Sequence[NodeStatus], gone: Sequence[str], now: float
) -> None:
    """Write the nodes' words that changed and forget the nodes that are gone."""
    table = schema.node_status
    if changed:
        values = [{**row, "since": now} for row in rows.STATUS.encode_all(changed)]
        statement = insert(table)
        update = {name: statement.excluded[name] for name in ("phase", "why", "since")}
        connection.execute(statement.on_conflict_do_update(index_elements=["node"], set_=update), values)
    if gone:
        name: sa.BindParameter[str] = sa.bindparam("gone_node")
        connection.execute(
            sa.delete(table).where(table.c.node == name), [{"gone_node": node} for node in gone]
        )


def put_meta(connection: sa.Connection, values: Mapping[str, str]) -> None:
    """Set words of the store about itself."""
    statement = insert(schema.meta)
    update = statement.on_conflict_do_update(
        index_elements=["key"], set_={"value": statement.excluded["value"]}
    )
    connection.execute(update, [{"key": key, "value": value} for key, value in values.items()])


def _ended_first(items: Iterable[T], ended: Callable[[T], bool]) -> list[T]:
    return sorted(items, key=lambda item: not ended(item))


def _upsert(connection: sa.Connection, codec: rows.Codec[T], items: Sequence[T]) -> None:
    """Insert, or replace by primary key; another row's uniqueness that would be broken is an error."""
    if not items:
        return
    statement = insert(codec.table)
    key = [column.name for column in codec.table.primary_key.columns]
    update = {
        column.name: statement.excluded[column.name] for column in codec.columns if column.name not in key
    }
    connection.execute(
        statement.on_conflict_do_update(index_elements=key, set_=update), codec.encode_all(items)
    )


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
    table = codec.table
    values = codec.encode_all(items)
    same = [table.c[name] == sa.bindparam(f"key_{name}") for name in key]
    this = sa.or_(table.c[ended].is_(None), table.c[began] == sa.bindparam(f"key_{began}"))
    remove = sa.delete(table).where(*same, this)
    add = sa.insert(table)
    # Ended ones first, then the open ones: a plan may end a row and begin the next one of the same key.
    for batch in (
        [row for row in values if row[ended] is not None],
        [row for row in values if row[ended] is None],
    ):
        if batch:
            places = [{f"key_{name}": row[name] for name in (*key, began)} for row in batch]
            connection.execute(remove, places)
            connection.execute(add, batch)
