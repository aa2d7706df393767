"""Opening a store: to act on it (the daemon), to put requests into it, or only to read it."""

import os
import uuid
from pathlib import Path

import sqlalchemy as sa

from slurm_lifecycle.core.model import Identity
from slurm_lifecycle.errors import NotTheActor, StoreError
from slurm_lifecycle.store import schema
from slurm_lifecycle.store.engine import BUSY_TIMEOUT_S, make_engine, reading, writing
from slurm_lifecycle.store.locking import ActorLock
from slurm_lifecycle.store.migrate import check_readable, upgrade
from slurm_lifecycle.store.sql_store import SqlStore


def open_store(
    path: Path | str,
    *,
    host: str,
    acting: bool,
    read_only: bool = False,
    busy_timeout_s: float = BUSY_TIMEOUT_S,
    instance: str = "",
) -> SqlStore:
    """Open the store.

    An acting opening takes the lock, makes the store where there is none, upgrades an older one after
    putting a copy beside it (`SqlStore.upgraded_from` names it), and counts the generation up. The others
    never wait for the daemon and never change the schema.

    Args:
        path: the SQLite file, on a local disk.
        host: this host's name, compared with the one that the store belongs to.
        acting: open as the one daemon.
        read_only: without `acting`: for queries alone.
        busy_timeout_s: how long a write waits for another writer.
        instance: the id that a new store gets; a random one where it is "". One that has an id keeps it.

    Raises:
        NotTheActor: another process acts on it, or it belongs to another host.
        SchemaTooNew: written by a newer release.
        StoreError: it cannot be opened; the text says what to do.
    """
    store_path = Path(path)
    if acting:
        return _open_acting(store_path, host, busy_timeout_s, instance)
    if not _exists(store_path):
        raise StoreError(f"no store at {store_path}: start the daemon once, or correct [store] path")
    if read_only:
        engine = _read_only_engine(store_path, busy_timeout_s)
    else:
        engine = make_engine(store_path, mode="rw", busy_timeout_s=busy_timeout_s)
        check_readable(engine, store_path)
    return SqlStore(engine, store_path, read_identity(engine, store_path), lock=None, read_only=read_only)


def upgrade_store(path: Path | str, *, host: str) -> Path | None:
    """Bring a store to this release's schema without acting on it (`db upgrade`).

    Returns:
        The copy made before, None when nothing was to be done or the store is new.
    """
    store_path = Path(path)
    _create(store_path)
    lock = ActorLock(store_path, host)
    engine = make_engine(store_path, mode="rw")
    try:
        return upgrade(engine, store_path)
    finally:
        engine.dispose()
        lock.release()


def read_identity(engine: sa.Engine, path: Path) -> Identity:
    """The identity on record; empty words before the first acting opening."""
    with reading(engine, path) as connection:
        found = {str(key): str(value) for key, value in connection.execute(sa.select(schema.meta))}
    return Identity(
        instance=found.get("instance", ""),
        host=found.get("daemon_host", ""),
        generation=int(found.get("generation", "0")),
        took_over=found.get("took_over", ""),
    )


def _open_acting(path: Path, host: str, busy_timeout_s: float, instance: str) -> SqlStore:
    _create(path)
    lock = ActorLock(path, host)
    engine = make_engine(path, mode="rw", busy_timeout_s=busy_timeout_s)
    try:
        copy = upgrade(engine, path)
        identity = _become_actor(engine, path, host, instance)
    except BaseException:
        engine.dispose()
        lock.release()
        raise
    return SqlStore(engine, path, identity, lock=lock, upgraded_from=copy)


def _become_actor(engine: sa.Engine, path: Path, host: str, instance: str) -> Identity:
    before = read_identity(engine, path)
    if before.host not in ("", host):
        raise NotTheActor(
            f"store {path} belongs to the daemon on {before.host}, this is {host}: when that one is stopped "
            "for good, run `slurm-lifecycle db claim`"
        )
    identity = Identity(
        instance=before.instance or instance or uuid.uuid4().hex[:12],
        host=host,
        generation=before.generation + 1,
        took_over=before.took_over,
    )
    with writing(engine, path) as connection:
        put = sa.insert(schema.meta).prefix_with("OR REPLACE")
        connection.execute(
            put,
            [
                {"key": "instance", "value": identity.instance},
                {"key": "daemon_host", "value": identity.host},
                {"key": "generation", "value": str(identity.generation)},
            ],
        )
    return identity


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError as error:
        raise StoreError(f"store {path} cannot be looked at ({error.strerror}): check its folder") from error


def _create(path: Path) -> None:
    """Make the file where there is none; an empty file is an empty database."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # Readable by all: `status` and `why` are for users too, and nothing secret is in it.
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644))
    except OSError as error:
        raise StoreError(
            f"store {path} cannot be opened for writing ({error.strerror}): check its owner, folder and disk"
        ) from error


def _read_only_engine(path: Path, busy_timeout_s: float) -> sa.Engine:
    engine = make_engine(path, mode="ro", busy_timeout_s=busy_timeout_s)
    try:
        check_readable(engine, path)
        return engine
    except StoreError as error:
        engine.dispose()
        # With no daemon running there are no side files, and who may not write the folder cannot make them.
        # No log means that nobody has the store open to write.
        denied = "cannot be opened" in str(error) or "read-only" in str(error)
        in_use = path.with_name(path.name + "-wal").exists()
        if not denied or in_use or not os.access(path, os.R_OK):
            raise
    engine = make_engine(path, mode="immutable", busy_timeout_s=busy_timeout_s)
    check_readable(engine, path)
    return engine
