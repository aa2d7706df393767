"""Who may act, and what becomes of a store that is old, new, locked, full, read-only or damaged."""

import os
import sqlite3
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from slurm_lifecycle.core.model import Phase, Verb
from slurm_lifecycle.core.plan import Event, NodeStatus, Plan
from slurm_lifecycle.errors import NotTheActor, StoreBusy, StoreError
from slurm_lifecycle.store.opening import open_store
from slurm_lifecycle.store.sql_store import SqlStore
from tests.unit.store import store_values as make
from tests.unit.store.store_values import NOW

_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to mount a file system")


def _one_line(error: pytest.ExceptionInfo[StoreError]) -> str:
    text = str(error.value)
    assert text
    assert "\n" not in text
    return text


# ---------------------------------------------------------------- who acts


def test_generation_counts_acting_openings_and_the_instance_stays(path: Path) -> None:
    seen = []
    for _ in range(3):
        with open_store(path, host="admin1", acting=True) as store:
            seen.append(store.identity())
        with open_store(path, host="elsewhere", acting=False) as reader:
            assert reader.identity() == seen[-1]
    assert [item.generation for item in seen] == [1, 2, 3]
    assert len({item.instance for item in seen}) == 1
    assert seen[0].instance


def test_a_given_instance_is_for_a_store_that_has_none_yet(path: Path) -> None:
    with open_store(path, host="admin1", acting=True, instance="simulated1") as store:
        assert store.identity().instance == "simulated1"
    with open_store(path, host="admin1", acting=True, instance="another") as store:
        assert store.identity().instance == "simulated1"


def test_a_second_daemon_is_refused_with_the_first_ones_pid(store: SqlStore, path: Path) -> None:
    with pytest.raises(NotTheActor) as refused:
        open_store(path, host="admin1", acting=True)
    assert f"pid {os.getpid()} on admin1" in _one_line(refused)
    store.apply(Plan(events=(Event(NOW, "n1", "k", "still works"),)), NOW)


def test_a_second_daemon_in_another_process_is_refused(store: SqlStore, path: Path) -> None:
    code = """
    import sys
    from slurm_lifecycle.store.opening import open_store
    from slurm_lifecycle.errors import NotTheActor
    try:
        open_store(sys.argv[1], host="admin1", acting=True)
    except NotTheActor as error:
        print(error)
        sys.exit(42)
    """
    ended = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), str(path)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode == 42, ended.stderr
    assert f"pid {os.getpid()} on admin1" in ended.stdout


def test_another_host_must_claim_first(path: Path) -> None:
    with open_store(path, host="admin1", acting=True) as store:
        instance = store.identity().instance
        with (
            open_store(path, host="admin2", acting=False) as other,
            pytest.raises(NotTheActor, match="stop that one first"),
        ):
            other.claim("admin2", actor="alice", now=NOW)
    with pytest.raises(NotTheActor, match="db claim") as refused:
        open_store(path, host="admin2", acting=True)
    assert "admin1" in _one_line(refused)
    with open_store(path, host="admin2", acting=False) as other:
        claimed = other.claim("admin2", actor="alice", now=NOW, took_over="0123456789ab")
    assert (claimed.host, claimed.took_over) == ("admin2", "0123456789ab")
    with open_store(path, host="admin2", acting=True) as store:
        assert store.identity().instance == instance
        assert store.identity().took_over == "0123456789ab"
        assert [event.actor for event in store.events()] == ["alice"]
    with pytest.raises(NotTheActor):
        open_store(path, host="admin1", acting=True)


def test_a_daemon_whose_lock_was_removed_stops_writing(store: SqlStore, path: Path) -> None:
    path.with_name(path.name + ".lock").unlink()
    with open_store(path, host="admin1", acting=True):
        with pytest.raises(NotTheActor, match="must stop"):
            store.apply(Plan(events=(Event(NOW, "n1", "k", "from the old one"),)), NOW)
        assert store.events() == ()


def test_only_an_acting_opening_writes_the_journal(store: SqlStore, path: Path) -> None:
    with open_store(path, host="admin1", acting=False) as other:
        with pytest.raises(NotTheActor):
            other.apply(Plan(events=(Event(NOW, "n1", "k", "x"),)), NOW)
        with pytest.raises(NotTheActor):
            other.mark_sent("x")
        with pytest.raises(NotTheActor):
            other.prune(NOW)


# ------------------------------------------------- side by side with the daemon


def test_requests_and_reads_pass_while_the_daemon_runs(store: SqlStore, path: Path) -> None:
    with open_store(path, host="laptop", acting=False) as desk:
        number = desk.add_request(Verb.RELEASE, "n1", "alice", "", NOW)
    assert [request.id for request in store.load(NOW).requests] == [number]
    store.apply(Plan(requests_done=((number, "released"),)), NOW)
    with open_store(path, host="laptop", acting=False, read_only=True) as reader:
        answer = reader.answer(number)
        assert answer is not None
        assert answer.text == "released"
        with pytest.raises(StoreError, match="read only"):
            reader.add_request(Verb.RELEASE, "n1", "alice", "", NOW)


def test_a_reader_in_the_middle_of_reading_does_not_stop_the_daemon(store: SqlStore, path: Path) -> None:
    with sqlite3.connect(path, isolation_level=None) as raw:
        raw.execute("BEGIN")
        assert raw.execute("SELECT count(*) FROM event").fetchone() == (0,)
        store.apply(Plan(events=(Event(NOW, "n1", "k", "x"),)), NOW)
        assert raw.execute("SELECT count(*) FROM event").fetchone() == (0,)
        raw.execute("COMMIT")


def test_a_store_locked_for_longer_than_the_timeout_is_busy(path: Path) -> None:
    with open_store(path, host="admin1", acting=True, busy_timeout_s=0.2) as store:
        with sqlite3.connect(path, isolation_level=None) as raw:
            raw.execute("BEGIN IMMEDIATE")
            with pytest.raises(StoreBusy) as busy:
                store.apply(Plan(events=(Event(NOW, "n1", "k", "x"),)), NOW)
            _one_line(busy)
            assert store.events() == ()
            raw.execute("ROLLBACK")
        store.apply(Plan(events=(Event(NOW, "n1", "k", "x"),)), NOW)
        assert len(store.events()) == 1


def test_the_last_tick_is_known(store: SqlStore) -> None:
    assert store.last_tick() is None
    store.note_tick(NOW, "observe")
    tick = store.last_tick()
    assert tick is not None
    assert (tick.at, tick.mode) == (NOW, "observe")


# ---------------------------------------------------------------- trouble


def test_no_store_is_said_and_not_made(path: Path) -> None:
    with pytest.raises(StoreError, match="start the daemon") as missing:
        open_store(path, host="admin1", acting=False)
    _one_line(missing)
    assert not path.exists()


def test_a_damaged_store_is_said(path: Path) -> None:
    with open_store(path, host="admin1", acting=True) as store:
        store.apply(Plan(incidents=tuple(make.incident(f"n{i}") for i in range(500))), NOW)
    content = bytearray(path.read_bytes())
    content[4096:] = b"\xa5" * (len(content) - 4096)
    path.write_bytes(bytes(content))
    with pytest.raises(StoreError, match=r"damaged.*db backup") as damaged:
        open_store(path, host="admin1", acting=True)
    _one_line(damaged)
    path.write_bytes(b"this was never a database " * 100)
    with pytest.raises(StoreError, match="damaged"):
        open_store(path, host="admin1", acting=True)


def test_a_backup_is_complete_and_taken_in_use(store: SqlStore, path: Path, tmp_path: Path) -> None:
    opened = make.incident("n1")
    store.apply(Plan(incidents=(opened,)), NOW)
    copy = tmp_path / "copy.db"
    with open_store(path, host="admin1", acting=False, read_only=True) as reader:
        reader.backup(copy)
    store.apply(Plan(incidents=(make.incident("n2"),)), NOW)
    with open_store(copy, host="admin1", acting=False, read_only=True) as restored:
        assert restored.load(NOW).incidents == {"n1": opened}
        assert restored.identity() == store.identity()
    assert sorted(item.name for item in tmp_path.glob("copy*")) == ["copy.db"]
    with pytest.raises(StoreError, match="check"):
        store.backup(tmp_path / "no" / "folder" / "copy.db")


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that everybody may enter and only its owner may write."""
    with tempfile.TemporaryDirectory(prefix="slc-store-") as name:
        Path(name).chmod(0o755)
        yield Path(name)


@_ROOT
def test_a_reader_without_rights_reads_with_and_without_the_daemon(open_folder: Path) -> None:
    path = open_folder / "store.db"
    code = """
    import os, sys
    from slurm_lifecycle.errors import LifecycleError
    from slurm_lifecycle.core.model import Verb
    from slurm_lifecycle.store.opening import open_store
    # Loads what is loaded lazily, since nobody need not be able to read this Python's library.
    with open_store(sys.argv[2], host="x", acting=True) as store:
        store.node_statuses(), store.add_request(Verb.HOLD, "n1", "root", "", 1.0)
    os.setgroups([]); os.setgid(65534); os.setuid(65534)
    with open_store(sys.argv[1], host="x", acting=False, read_only=True) as store:
        print([status.node for status in store.node_statuses()])
    try:
        with open_store(sys.argv[1], host="x", acting=False) as store:
            store.add_request(Verb.HOLD, "n1", "mallory", "", 1.0)
    except LifecycleError as error:
        print(type(error).__name__, error)
    """

    warm = open_folder / "warm.db"

    def read() -> str:
        command = [sys.executable, "-c", textwrap.dedent(code), str(path), str(warm)]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert ended.returncode == 0, ended.stderr
        return ended.stdout

    with open_store(path, host="admin1", acting=True) as store:
        store.apply(Plan(statuses=(NodeStatus("n1", Phase.IN_SERVICE, "fine"),)), NOW)
        beside = read()
    alone = read()
    for answer in (beside, alone):
        lines = answer.splitlines()
        assert lines[0] == "['n1']"
        assert lines[1].startswith("StoreError")
    with open_store(path, host="admin1", acting=False) as store:
        assert store.pending_requests() == ()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of one MiB."""
    mount = tmp_path / "small"
    mount.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(mount)], check=True, timeout=20)
    try:
        yield mount
    finally:
        subprocess.run(["umount", str(mount)], check=True, timeout=20)


@_ROOT
def test_a_full_disk_is_said_and_nothing_is_half_written(small_disk: Path) -> None:
    path = small_disk / "store.db"
    with open_store(path, host="admin1", acting=True) as store:
        store.apply(Plan(incidents=(make.incident("n1"),)), NOW)
        big = Plan(
            incidents=(make.incident("n2"),),
            events=tuple(Event(NOW, "n2", "k", "x" * 900) for _ in range(2000)),
        )
        with pytest.raises(StoreError, match="full") as full:
            store.apply(big, NOW)
        _one_line(full)
        assert set(store.load(NOW).incidents) == {"n1"}
        assert store.events() == ()
    with open_store(path, host="admin1", acting=True) as store:
        assert set(store.load(NOW).incidents) == {"n1"}


@_ROOT
def test_a_read_only_file_system_is_said(small_disk: Path) -> None:
    path = small_disk / "store.db"
    with open_store(path, host="admin1", acting=True) as store:
        store.apply(Plan(incidents=(make.incident("n1"),)), NOW)
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True, timeout=20)
    with pytest.raises(StoreError, match="Read-only file system") as refused:
        open_store(path, host="admin1", acting=True)
    _one_line(refused)
    with open_store(path, host="admin1", acting=False, read_only=True) as reader:
        assert set(reader.load(NOW).incidents) == {"n1"}


@_ROOT
def test_a_store_on_a_full_disk_cannot_be_made(small_disk: Path) -> None:
    with pytest.raises(OSError, match="No space"):
        (small_disk / "filler").write_bytes(b"x" * 2**21)
    with pytest.raises(StoreError) as refused:
        open_store(small_disk / "store.db", host="admin1", acting=True)
    _one_line(refused)
