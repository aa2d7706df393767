"""The file of a store in use is deleted, replaced, cut: the actor ends, it does not act on."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from slurm_lifecycle.core.plan import Event, Plan
from slurm_lifecycle.errors import NotTheActor
from slurm_lifecycle.store.opening import open_store
from slurm_lifecycle.store.sql_store import SqlStore

EVENT = Plan(events=(Event(1.0, "n1", "x", "y"),))


def _delete(store: SqlStore) -> None:
    store.path.unlink()


def _replace(store: SqlStore) -> None:
    copy = store.path.with_name("copy.db")
    store.backup(copy)
    copy.replace(store.path)


def _cut(store: SqlStore) -> None:
    os.truncate(store.path, 0)


def _half(store: SqlStore) -> None:
    os.truncate(store.path, store.path.stat().st_size // 2)


def _overwrite(store: SqlStore) -> None:
    with store.path.open("r+b") as handle:
        handle.write(b"x" * 200)


def _move_folder(store: SqlStore) -> None:
    store.path.parent.rename(store.path.parent.with_name("away"))


@pytest.mark.parametrize("spoil", [_delete, _replace, _cut, _half, _overwrite, _move_folder])
def test_nothing_is_read_or_written_as_the_actor_any_more(
    tmp_path: Path, spoil: Callable[[SqlStore], None]
) -> None:
    (tmp_path / "folder").mkdir()
    store = open_store(tmp_path / "folder" / "store.db", host="h", acting=True)
    store.load(1.0)
    store.apply(EVENT, 1.0)
    spoil(store)
    for use in (
        lambda: store.load(2.0),
        lambda: store.apply(EVENT, 2.0),
        lambda: store.note_tick(2.0, "act"),
    ):
        with pytest.raises(NotTheActor, match="while the daemon worked on it"):
            use()
    store.close()


def test_watching_takes_no_lock_from_sqlite(tmp_path: Path) -> None:
    with open_store(tmp_path / "store.db", host="h", acting=True) as store:
        store.load(1.0)
        held = _locks(tmp_path / "store.db")
        assert held
        for _ in range(3):
            store.load(2.0)
            store.note_tick(2.0, "act")
        assert _locks(tmp_path / "store.db") == held


def _locks(path: Path) -> list[str]:
    """The POSIX locks that stand on a file, as the kernel lists them."""
    inode = str(path.stat().st_ino)
    lines = Path("/proc/locks").read_text().splitlines()
    return [line.split(": ", 1)[1] for line in lines if f":{inode} " in line and "POSIX" in line]


def test_a_store_that_grows_and_is_pruned_is_the_same(tmp_path: Path) -> None:
    with open_store(tmp_path / "store.db", host="h", acting=True) as store:
        for number in range(300):
            text = "y" * 2000
            store.apply(Plan(events=(Event(float(number), f"n{number}", "x", text),)), float(number))
        store.prune(1e9)
        store.backup(tmp_path / "copy.db")
        store.load(1e9)
        store.note_tick(1e9, "act")
