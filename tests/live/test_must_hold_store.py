"""The store locked, read-only, full or of a newer release: said in one line, nothing done, nothing lost."""

from __future__ import annotations

import contextlib
import sqlite3
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from slurm_lifecycle.sandbox.cluster import Sandbox
from tests.live.harness import Daemon, acting, clean, killed_at_end, returned
from tests.live.outside import Slurm, stays, wait_until

pytestmark = pytest.mark.live


@pytest.fixture
def slurm(sandbox: Sandbox) -> Iterator[Slurm]:
    slurm = Slurm(sandbox.root)
    clean(sandbox, slurm)
    yield slurm
    clean(sandbox, slurm)


@contextlib.contextmanager
def _tmpfs(folder: Path, options: str) -> Iterator[None]:
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def _refuses(daemon: Daemon, *words: str) -> None:
    """The daemon ends with one line that holds the words, and asked Slurm nothing."""
    size = len(daemon.text())
    calls = len(daemon.wrapper.calls())
    daemon.start()
    assert daemon.process is not None
    assert daemon.process.wait(60) != 0
    lines = daemon.text()[size:].strip().splitlines()
    assert len(lines) == 1, lines
    assert all(word in lines[0] for word in words), lines
    assert len(daemon.wrapper.calls()) == calls


def _nothing_done_then_mended(
    sandbox: Sandbox,
    slurm: Slurm,
    daemon: Daemon,
    node: str,
    trouble: contextlib.AbstractContextManager[None],
    *words: str,
) -> None:
    """A node that needs a reboot gets none while the store is in trouble, and gets it afterwards."""
    boots = slurm.boots(node)
    with trouble:
        writes = len(daemon.wrapper.writes())
        sandbox.inject(node, "xid", code=79, gpu=3)
        wait_until(lambda: "DRAIN" in slurm.node(node).state, "the agent drains")
        wait_until(lambda: daemon.says('"problem"', *words), f"said: {daemon.text()[-2000:]}")
        stays(lambda: daemon.alive and slurm.boots(node) == boots, "nothing is done", 8)
        assert len(daemon.wrapper.writes()) == writes
        assert slurm.fences() == {}
        assert not daemon.says("defect"), daemon.text()[-3000:]
    returned(slurm, daemon, node)
    assert slurm.boots(node) == boots + 1


def test_store_locked_by_another_writer(sandbox: Sandbox, slurm: Slurm, tmp_path: Path) -> None:
    @contextlib.contextmanager
    def locked(path: Path) -> Iterator[None]:
        with contextlib.closing(sqlite3.connect(path, isolation_level=None, timeout=30)) as other:
            other.execute("BEGIN IMMEDIATE")
            yield
            other.execute("ROLLBACK")

    with acting(slurm, tmp_path) as daemon:
        _nothing_done_then_mended(sandbox, slurm, daemon, "n2", locked(daemon.store), "is locked by another")


def test_store_on_a_full_disk(sandbox: Sandbox, slurm: Slurm, tmp_path: Path) -> None:
    @contextlib.contextmanager
    def full(folder: Path) -> Iterator[None]:
        filler = folder / "filler"
        with filler.open("wb", buffering=0) as out, contextlib.suppress(OSError):
            while True:
                out.write(b"x" * 4096)
        yield
        filler.unlink()

    with _tmpfs(tmp_path / "disk", "size=2m"):
        with acting(slurm, tmp_path, store=tmp_path / "disk" / "store.db") as daemon:
            _nothing_done_then_mended(sandbox, slurm, daemon, "n3", full(tmp_path / "disk"), "disk is full")
            assert daemon.stop() == 0
        with contextlib.closing(sqlite3.connect(tmp_path / "disk" / "store.db")) as store:
            assert store.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_store_on_a_read_only_disk(slurm: Slurm, tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    daemon = Daemon(slurm, tmp_path / "d", store=disk / "store.db")
    with _tmpfs(disk, "size=8m"), killed_at_end(daemon):
        daemon.start()
        wait_until(lambda: "slcd[" in slurm.node("n1").comment, "the claim")
        assert daemon.stop() == 0
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        _refuses(daemon, str(disk), "Read-only file system")
        subprocess.run(["mount", "-o", "remount,rw", str(disk)], check=True)
        claim = slurm.node("n1").comment
        daemon.start()
        wait_until(lambda: slurm.node("n1").comment not in ("", claim), "it acts again, one generation later")
        daemon.stop()


def test_store_of_a_newer_release(slurm: Slurm, tmp_path: Path) -> None:
    daemon = Daemon(slurm, tmp_path)
    with killed_at_end(daemon):
        daemon.start()
        wait_until(lambda: "slcd[" in slurm.node("n1").comment, "the claim")
        assert daemon.stop() == 0
        with contextlib.closing(sqlite3.connect(daemon.store, isolation_level=None)) as store:
            present = store.execute("SELECT version_num FROM alembic_version").fetchone()[0]
            store.execute("UPDATE alembic_version SET version_num = '9999'")
        before = daemon.store.read_bytes()
        _refuses(daemon, "newer release")
        assert daemon.store.read_bytes() == before
        assert daemon.run_cli("status").returncode != 0
        with contextlib.closing(sqlite3.connect(daemon.store, isolation_level=None)) as store:
            store.execute("UPDATE alembic_version SET version_num = ?", (present,))
        claim = slurm.node("n1").comment
        daemon.start()
        wait_until(lambda: slurm.node("n1").comment not in ("", claim), "it acts again")


# ---------------------------------------------------------------- configuration


@pytest.mark.parametrize(
    ("site", "policy", "words"),
    [
        ({"partitons": ["*"]}, {}, ("partitons", "unknown key", "partitions")),
        ({"daemon": {"interval_s": "10s"}}, {}, ("daemon.interval_s", "number", "interval_s = 10")),
        ({}, {"deadlines": {"drain": 600}}, ("deadlines.drain", "needs a unit")),
        ({"store": {"path": "store.db"}}, {}, ("store.path", "absolute")),
        ({"rungs": ["drain", "rebot"]}, {}, ("rungs", "rebot", "reboot")),
        ({}, {"breaker": {"least": 60, "most": 5}}, ("breaker.least", "most")),
    ],
)
def test_mistake_in_a_file_is_one_line(
    slurm: Slurm, tmp_path: Path, site: dict[str, object], policy: dict[str, object], words: tuple[str, ...]
) -> None:
    daemon = Daemon(slurm, tmp_path, site=site, policy=policy)
    checked = daemon.run_cli("config", "check")
    assert checked.returncode == 2
    assert len(checked.stderr.strip().splitlines()) == 1
    assert all(word in checked.stderr for word in words), checked.stderr
    with killed_at_end(daemon):
        _refuses(daemon, *words)


@pytest.mark.parametrize(
    ("site", "words"),
    [
        ({"partitions": ["gpu"]}, ("partitions", "no partition gpu", "batch")),
        ({"slurm": {"scontrol": "/nowhere/scontrol"}}, ("slurm.scontrol", "/nowhere/scontrol", "install")),
        ({"rma": {"folder": "/dev/null/tickets"}}, ("rma.folder", "not a folder")),
    ],
)
def test_mistake_about_the_site_is_found_before_the_daemon_runs(
    slurm: Slurm, tmp_path: Path, site: dict[str, object], words: tuple[str, ...]
) -> None:
    daemon = Daemon(slurm, tmp_path, site=site)
    checked = daemon.run_cli("config", "check")
    assert checked.returncode == 1, (checked.stdout, checked.stderr)
    lines = [line for line in checked.stdout.splitlines() if line.startswith("problem")]
    assert len(lines) == 1, checked.stdout
    assert all(word in lines[0] for word in words), lines
