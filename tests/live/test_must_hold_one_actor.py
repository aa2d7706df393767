"""One daemon acts on a cluster, whatever was started twice, moved or restored; the others say why not."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from slurm_lifecycle.sandbox.cluster import Sandbox
from tests.live.harness import Daemon, clean, killed_at_end
from tests.live.outside import Slurm, stays, wait_until

pytestmark = pytest.mark.live

# Another host as far as the daemon can see: a UTS namespace of its own.
OTHER_HOST = ("unshare", "--uts", "sh", "-c", 'hostname elsewhere && exec "$@"', "sh")
# Nothing is repaired here: a drain is all that it takes to see who acts.
SITE = {"rungs": ["drain", "return"]}


@pytest.fixture
def slurm(sandbox: Sandbox) -> Iterator[Slurm]:
    slurm = Slurm(sandbox.root)
    clean(sandbox, slurm)
    yield slurm
    clean(sandbox, slurm)


def _acts(slurm: Slurm, daemon: Daemon, node: str) -> None:
    """The daemon does what a person asks of it."""
    asked = daemon.run_cli("node", "remediate", node)
    assert asked.returncode == 0, asked.stderr
    wait_until(lambda: "DRAIN" in slurm.node(node).state, f"{node} drained: {daemon.text()[-2000:]}")
    assert slurm.node(node).reason.startswith("slc:MANUAL")


def _only_watches(slurm: Slurm, daemon: Daemon, node: str, *words: str) -> None:
    """The daemon runs, changes nothing, and gives the reason to whoever asks."""
    asked = daemon.run_cli("node", "remediate", node)
    assert asked.returncode == 0, asked.stderr
    wait_until(
        lambda: daemon.run_cli("node", "why", node).stdout.find(words[0]) >= 0, f"`node why` says {words}"
    )
    told = daemon.run_cli("node", "why", node).stdout
    assert all(word in told for word in words), told
    stays(lambda: slurm.node(node).in_service, f"{node} stays in service", 3)
    assert daemon.wrapper.writes() == []
    assert daemon.alive
    assert daemon.says(*words), daemon.text()[-3000:]


def test_second_daemon_on_the_same_store_ends_with_a_word(slurm: Slurm, tmp_path: Path) -> None:
    first = Daemon(slurm, tmp_path / "a", site=SITE)
    second = Daemon(slurm, tmp_path / "b", store=first.store, site=SITE)
    with killed_at_end(first, second):
        first.start()
        wait_until(first.store.exists, "the store is made")
        second.start()
        assert second.process is not None
        assert second.process.wait(60) != 0
        lines = second.text().strip().splitlines()
        assert len(lines) == 1, lines
        assert f"pid {first.process.pid if first.process else 0} on " in lines[0]
        assert "stop that one first" in lines[0]
        _acts(slurm, first, "n2")
        assert second.wrapper.calls() == []


def test_second_daemon_with_a_store_of_its_own_does_nothing(slurm: Slurm, tmp_path: Path) -> None:
    first, second = Daemon(slurm, tmp_path / "a", site=SITE), Daemon(slurm, tmp_path / "b", site=SITE)
    with killed_at_end(first, second):
        first.start()
        wait_until(lambda: "slcd[" in slurm.node("n1").comment, "the first one claims the cluster")
        claim = slurm.node("n1").comment
        second.start()
        _only_watches(slurm, second, "n3", "claimed by instance", "db claim")
        _acts(slurm, first, "n2")
        assert slurm.node("n1").comment == claim

        # The way out: the other one is stopped for good, and a person says so.
        first.stop()
        second.stop()
        instance = claim.partition("slcd[")[2].partition("@")[0]
        taken = second.run_cli("db", "claim")
        assert taken.returncode == 0, taken.stderr
        second.start()
        wait_until(
            lambda: "slcd[" in slurm.node("n1").comment and instance not in slurm.node("n1").comment,
            "the claim is the second one's",
        )


def test_daemon_of_another_host_does_not_take_the_store(slurm: Slurm, tmp_path: Path) -> None:
    here = Daemon(slurm, tmp_path / "a", site=SITE)
    there = Daemon(slurm, tmp_path / "b", store=here.store, prefix=OTHER_HOST, site=SITE)
    with killed_at_end(here, there):
        here.start()
        wait_until(lambda: "slcd[" in slurm.node("n1").comment, "the first one claims the cluster")
        refused = there.run_cli("db", "claim")
        assert refused.returncode != 0
        assert "in use by pid" in refused.stderr
        assert here.stop() == 0

        there.start()
        assert there.process is not None
        assert there.process.wait(60) != 0
        assert there.says("belongs to the daemon on", "elsewhere", "db claim"), there.text()
        assert all(call.startswith("scontrol show ") for call in there.wrapper.calls())

        assert there.run_cli("db", "claim").returncode == 0
        there.start()
        _acts(slurm, there, "n2")
        # And now the old host is the one that is turned away.
        there.stop()
        here.start()
        assert here.process is not None
        assert here.process.wait(60) != 0
        assert here.says("belongs to the daemon on elsewhere"), here.text()


def test_restored_store_watches_until_a_person_claims_it(slurm: Slurm, tmp_path: Path) -> None:
    daemon = Daemon(slurm, tmp_path / "a", site=SITE)
    copy = tmp_path / "backup.db"
    with killed_at_end(daemon):
        daemon.start()
        wait_until(lambda: "slcd[" in slurm.node("n1").comment, "the daemon claims the cluster")
        assert daemon.run_cli("db", "backup", str(copy)).returncode == 0
        _acts(slurm, daemon, "n2")
        for _ in range(2):
            daemon.stop()
            before = slurm.node("n1").comment
            daemon.start()
            wait_until(lambda: slurm.node("n1").comment != before, "the claim counts up")  # noqa: B023
        daemon.stop()

        for side in daemon.store.parent.glob(f"{daemon.store.name}*"):
            if not side.name.endswith(".lock"):
                side.unlink()
        daemon.store.write_bytes(copy.read_bytes())
        for name in ("calls",):
            (daemon.wrapper.folder / name).unlink()
        daemon.start()
        _only_watches(slurm, daemon, "n3", "older than the cluster's claim", "db claim")
        assert slurm.node("n2").reason.startswith("slc:MANUAL")
        daemon.stop()

        assert daemon.run_cli("db", "claim").returncode == 0
        daemon.start()
        # n2 bears a mark of work that this store does not know: a person lets it go on, and the breaker too.
        wait_until(lambda: "adopt" in daemon.run_cli("node", "why", "n2").stdout, "n2 held(adopt)")
        assert "DRAIN" in slurm.node("n2").state
        _acts(slurm, daemon, "n4")
        boots = json.loads((slurm.root / "nodes" / "n2" / "machine.json").read_text())["boots"]
        assert boots == slurm.boots("n2")
