"""Schema versions: which one a file has, and the way to the present one.

A store of an older release is upgraded when the daemon starts (or by `db upgrade`), after a copy was put
beside it; a newer one is refused. Readers never upgrade.
"""

import sqlite3
from pathlib import Path

import sqlalchemy as sa

from slurm_lifecycle.errors import SchemaTooNew, StoreError
from slurm_lifecycle.store.copying import copy_to
from slurm_lifecycle.store.engine import reading, translated, writing
from slurm_lifecycle.store.schema import SCHEMA_VERSION

_MIGRATIONS = Path(__file__).parent / "migrations"


def schema_version(engine: sa.Engine, path: Path) -> int:
    """The version of the schema in the file, 0 for an empty file.

    Raises:
        StoreError: the file is a database of something else.
    """
    with reading(engine, path) as connection:
        tables = {
            str(row[0])
            for row in connection.exec_driver_sql("SELECT name FROM sqlite_master WHERE type='table'")
        }
        if not tables:
            return 0
        if "alembic_version" not in tables or "meta" not in tables:
            raise StoreError(
                f"{path} is a database, but not a store of slurm-lifecycle: check the store's path"
            )
        found = connection.exec_driver_sql("SELECT version_num FROM alembic_version").scalar()
    try:
        return int(str(found))
    except ValueError:
        raise SchemaTooNew(f"store {path} has schema {found}, which this release does not know") from None


def check_readable(engine: sa.Engine, path: Path) -> None:
    """Refuse a store that this release cannot read as it is.

    Raises:
        SchemaTooNew: written by a newer release.
        StoreError: written by an older one, or empty.
    """
    version = schema_version(engine, path)
    _refuse_newer(version, path)
    if version == 0:
        raise StoreError(f"store {path} is empty: start the daemon once, or run `slurm-lifecycle db upgrade`")
    if version < SCHEMA_VERSION:
        raise StoreError(
            f"store {path} has schema {version}, this release needs {SCHEMA_VERSION}: "
            "restart the daemon, or run `slurm-lifecycle db upgrade`"
        )


def upgrade(engine: sa.Engine, path: Path, target: int = SCHEMA_VERSION) -> Path | None:
    """Bring a store to the target version; the caller holds the store's lock.

    Returns:
        The copy of the store as it was before, None where nothing was there to copy or to do.
    """
    version = schema_version(engine, path)
    _refuse_newer(version, path)
    if version >= target:
        return None
    copy = None
    if version > 0:
        copy = _free_name(path, version)
        with translated(path):
            copy_to(engine, copy)
    else:
        # Kept in the file's header; set outside a transaction, before anything is there to lose.
        with translated(path), engine.connect() as connection:
            driver = connection.connection.driver_connection
            assert isinstance(driver, sqlite3.Connection)
            driver.execute("PRAGMA journal_mode = WAL")
    _run_alembic(engine, path, target)
    return copy


def _refuse_newer(version: int, path: Path) -> None:
    if version > SCHEMA_VERSION:
        raise SchemaTooNew(
            f"store {path} has schema {version}, this release knows up to {SCHEMA_VERSION}: "
            "install the newer release again, or put back a copy from before the upgrade"
        )


def _free_name(path: Path, version: int) -> Path:
    number = 1
    while True:
        copy = path.with_name(f"{path.name}.schema{version}.{number}.bak")
        if not copy.exists():
            return copy
        number += 1


def _run_alembic(engine: sa.Engine, path: Path, target: int) -> None:
    # Imported here: alembic costs as much as the rest of the store, and most starts need none of it.
    from alembic import command
    from alembic.config import Config

    config = Config()
    # Alembic's configuration interpolates `%`, which a folder's name may hold.
    config.set_main_option("script_location", str(_MIGRATIONS).replace("%", "%%"))
    with writing(engine, path) as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, f"{target:04d}")
