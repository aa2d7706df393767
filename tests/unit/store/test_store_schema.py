"""Old, new and foreign schemas: upgraded after a copy, or refused in words."""

import sqlite3
from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext

from slurm_lifecycle.errors import SchemaTooNew, StoreError
from slurm_lifecycle.store import schema
from slurm_lifecycle.store.engine import make_engine
from slurm_lifecycle.store.migrate import schema_version, upgrade
from slurm_lifecycle.store.opening import open_store, upgrade_store


def _at_version(path: Path, version: int) -> sa.Engine:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    engine = make_engine(path, mode="rw")
    upgrade(engine, path, version)
    return engine


def _one_line(error: pytest.ExceptionInfo[StoreError]) -> str:
    text = str(error.value)
    assert text
    assert "\n" not in text
    return text


def test_migrations_end_where_the_tables_are(path: Path) -> None:
    engine = _at_version(path, schema.SCHEMA_VERSION)
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, schema.metadata) == []
        made = {(row[0], row[1]) for row in connection.exec_driver_sql(_DEFINITIONS)}
    fresh = sa.create_engine("sqlite://")
    schema.metadata.create_all(fresh)
    with fresh.connect() as connection:
        wanted = {(row[0], row[1]) for row in connection.exec_driver_sql(_DEFINITIONS)}
    # Autogenerate does not look at the conditions of partial indexes.
    assert made == wanted
    assert any("WHERE step != 'closed'" in sql for _, sql in made)


_DEFINITIONS = "SELECT name, sql FROM sqlite_master WHERE type = 'index' AND sql IS NOT NULL"


@pytest.mark.parametrize("start", range(1, schema.SCHEMA_VERSION))
def test_each_older_schema_is_copied_and_upgraded(path: Path, start: int) -> None:
    engine = _at_version(path, start)
    with engine.begin() as connection:
        connection.exec_driver_sql(
            "INSERT INTO event (at, node, kind, text, actor, incident_id) "
            "VALUES (1, 'n1', 'k', 'old', 'a', '')"
        )
    engine.dispose()
    with pytest.raises(StoreError, match="db upgrade") as refused:
        open_store(path, host="admin1", acting=False, read_only=True)
    _one_line(refused)
    with open_store(path, host="admin1", acting=True) as store:
        assert [event.text for event in store.events()] == ["old"]
        assert store.node_statuses() == ()
        copy = store.upgraded_from
    assert copy is not None
    old = make_engine(copy, mode="ro")
    assert schema_version(old, copy) == start
    old.dispose()
    with open_store(path, host="admin1", acting=True) as store:
        assert store.upgraded_from is None


def test_an_upgrade_that_fails_half_way_changes_nothing(path: Path) -> None:
    engine = _at_version(path, 1)
    with engine.begin() as connection:
        # The second table of revision 2 is in the way, so it fails after it made the first.
        connection.exec_driver_sql("CREATE TABLE node_status (x)")
    with pytest.raises(StoreError):
        upgrade(engine, path)
    with engine.connect() as connection:
        tables = {str(row[0]) for row in connection.exec_driver_sql("SELECT name FROM sqlite_master")}
    assert "request" not in tables
    assert schema_version(engine, path) == 1


def test_upgrade_alone_does_not_act(path: Path) -> None:
    _at_version(path, 1).dispose()
    copy = upgrade_store(path, host="admin1")
    assert copy is not None
    assert copy.exists()
    with open_store(path, host="admin1", acting=False) as store:
        assert store.identity().generation == 0


@pytest.mark.parametrize("version", ["9999", "abcdef"])
@pytest.mark.parametrize("acting", [True, False])
def test_a_newer_schema_is_refused(path: Path, version: str, acting: bool) -> None:
    engine = _at_version(path, schema.SCHEMA_VERSION)
    with engine.begin() as connection:
        connection.exec_driver_sql("UPDATE alembic_version SET version_num = ?", (version,))
    engine.dispose()
    with pytest.raises(SchemaTooNew) as refused:
        open_store(path, host="admin1", acting=acting)
    assert version in _one_line(refused)


def test_another_programs_database_is_left_alone(path: Path) -> None:
    path.parent.mkdir()
    with sqlite3.connect(path) as raw:
        raw.execute("CREATE TABLE theirs (x)")
    before = path.read_bytes()
    with pytest.raises(StoreError, match="not a store of slurm-lifecycle"):
        open_store(path, host="admin1", acting=True)
    assert path.read_bytes() == before
