"""A consistent copy of a store that is in use."""

import os
import sqlite3
from pathlib import Path

import sqlalchemy as sa


def copy_to(engine: sa.Engine, destination: Path) -> None:
    """Copy by SQLite's online backup: neither stops writers nor misses what is still in the log.

    The copy appears under its name complete or not at all. Raises the driver's errors.
    """
    part = destination.with_name(destination.name + ".part")
    part.unlink(missing_ok=True)
    try:
        target = sqlite3.connect(part)
        try:
            with engine.connect() as connection:
                source = connection.connection.driver_connection
                assert isinstance(source, sqlite3.Connection)
                source.backup(target)
            # One plain file: a copy is carried away without its side files.
            target.execute("PRAGMA journal_mode = DELETE")
        finally:
            target.close()
        part.chmod(0o640)
        with part.open("rb") as handle:
            os.fsync(handle.fileno())
        part.replace(destination)
    finally:
        part.unlink(missing_ok=True)
