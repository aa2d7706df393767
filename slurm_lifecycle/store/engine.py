"""Connections to the SQLite file, and its errors in words for an administrator."""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError, IntegrityError
from sqlalchemy.pool import QueuePool

from slurm_lifecycle.errors import InvariantViolation, StoreBusy, StoreError

BUSY_TIMEOUT_S = 5.0
# The write-ahead log is cut back to this after a checkpoint, so that one large write does not keep its size.
_WAL_LIMIT_BYTES = 16 * 1024 * 1024


def make_engine(path: Path, *, mode: str, busy_timeout_s: float = BUSY_TIMEOUT_S) -> sa.Engine:
    """An engine on an existing file.

    Args:
        path: the SQLite file.
        mode: "rw", "ro", or "immutable" (nobody writes: no lock and no side files are needed).
        busy_timeout_s: how long to wait for another writer.
    """
    query = "immutable=1" if mode == "immutable" else f"mode={mode}"
    uri = f"file:{quote(str(path.absolute()))}?{query}"
    engine = sa.create_engine(
        "sqlite://", creator=_creator(uri, mode == "rw", busy_timeout_s), poolclass=QueuePool
    )

    # The driver's own transaction handling starts none before DDL; ours is explicit. Writers take the lock
    # at once, since a reader that turns writer fails at once where another wrote meanwhile.
    @sa.event.listens_for(engine, "begin")
    def _begin(connection: sa.Connection) -> None:
        writing = connection.get_execution_options().get("writing", False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writing else "BEGIN")

    return engine


def _creator(uri: str, writable: bool, busy_timeout_s: float) -> Callable[[], sqlite3.Connection]:
    def create() -> sqlite3.Connection:
        connection = sqlite3.connect(
            uri, uri=True, timeout=busy_timeout_s, isolation_level=None, check_same_thread=False
        )
        connection.execute("PRAGMA foreign_keys = ON")
        if writable:
            # FULL: an attempt must be on the disk before its effect is sent, also after a power failure.
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute(f"PRAGMA journal_size_limit = {_WAL_LIMIT_BYTES}")
        return connection

    return create


@contextmanager
def reading(engine: sa.Engine, path: Path) -> Iterator[sa.Connection]:
    """One consistent view of the store."""
    with translated(path), engine.connect() as connection, connection.begin():
        yield connection


@contextmanager
def writing(engine: sa.Engine, path: Path) -> Iterator[sa.Connection]:
    """One transaction: all of it or nothing."""
    with translated(path), engine.connect() as plain:
        connection = plain.execution_options(writing=True)
        with connection.begin():
            yield connection


@contextmanager
def translated(path: Path) -> Iterator[None]:
    """Turn the errors of SQLite and SQLAlchemy into ours."""
    try:
        yield
    except IntegrityError as error:
        raise InvariantViolation(f"the store refused a row that breaks a rule: {error.orig}") from error
    except DBAPIError as error:
        raise store_error(path, str(error.orig)) from error
    except sqlite3.Error as error:
        raise store_error(path, str(error)) from error


def store_error(path: Path, message: str) -> StoreError:
    """The error for SQLite's message, with what to do next.

    By message, since `sqlite_errorcode` is not there before Python 3.11.
    """
    text = message.lower()
    if "locked" in text or "busy" in text:
        return StoreBusy(f"store {path} is locked by another process: `fuser {path}` shows which; try again")
    if "readonly" in text or "read-only" in text:
        return StoreError(f"store {path} is read-only: check its owner and mode, and whether its disk is too")
    if "full" in text:
        return StoreError(f"store {path}: its disk is full: free some space; nothing was written")
    if "unable to open" in text:
        return StoreError(
            f"store {path} cannot be opened: check that it and its folder may be read and written"
        )
    if "not a database" in text or "malformed" in text or "corrupt" in text:
        return StoreError(f"store {path} is damaged: stop the daemon and put back a copy made by `db backup`")
    if "i/o error" in text:
        return StoreError(f"store {path}: its disk fails ({message}): look at the kernel log of this host")
    return StoreError(f"store {path}: {message}")
