"""The laboratory: the same seed gives the same books, ticks that are left out change none of them."""

import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from slurm_lifecycle.core.policy import DAY_S
from slurm_lifecycle.simulation.lab.policy_files import DEFAULT_POLICIES, load_policy
from slurm_lifecycle.simulation.lab.results import RunResult
from slurm_lifecycle.simulation.lab.run import Lab, run_one
from slurm_lifecycle.simulation.lab.site import Site
from slurm_lifecycle.simulation.lab.site_files import load_site_file
from tests.architecture.source import ROOT

SITE = """
nodes = 48
days = 3
nodes_per_domain = 8
[failures]
scale = 25.0
[[jobs]]
name = "gang"
count = 1
nodes_min = 24
nodes_max = 32
checkpoint_every = "20min"
[[jobs]]
name = "small"
share = 0.15
nodes = 2
run_time = "3h"
requeue = false
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    path = tmp_path_factory.mktemp("site") / "small.toml"
    path.write_text(SITE, encoding="utf-8")
    return load_site_file(path)


def books(run: RunResult) -> RunResult:
    """Without what measures the run itself."""
    return replace(run, wall_s=0.0, ticks=0, events=0)


@pytest.fixture(scope="module")
def runs(site: Site) -> Mapping[str, RunResult]:
    return {name: run_one(site, load_policy(name), 7, 3.0) for name in DEFAULT_POLICIES}


def test_the_same_seed_gives_the_same_books(site: Site, runs: Mapping[str, RunResult]) -> None:
    assert books(run_one(site, load_policy("full"), 7, 3.0)) == books(runs["full"])
    assert books(run_one(site, load_policy("full"), 8, 3.0)) != books(runs["full"])


def test_books_do_not_hang_on_the_hash_seed(tmp_path: Path) -> None:
    (tmp_path / "small.toml").write_text(SITE, encoding="utf-8")
    code = (
        "from pathlib import Path; from dataclasses import replace\n"
        "from slurm_lifecycle.simulation.lab.run import run_one\n"
        "from slurm_lifecycle.simulation.lab.policy_files import load_policy\n"
        "from slurm_lifecycle.simulation.lab.site_files import load_site_file\n"
        f"site = load_site_file(Path({str(tmp_path / 'small.toml')!r}))\n"
        "print(replace(run_one(site, load_policy('full-standby'), 3, 1.0), wall_s=0.0))"
    )
    said = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed},
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=120,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(said) == 1


@pytest.mark.parametrize("name", DEFAULT_POLICIES)
def test_books_add_up(name: str, runs: Mapping[str, RunResult]) -> None:
    run = runs[name]
    assert run.complete
    assert sum(run.interruptions.values()) > 3
    assert sum(run.out_hours_by_cause.values()) == pytest.approx(sum(run.out_hours_by_rung.values()))
    assert sum(run.lost_gpu_hours.values()) == pytest.approx(sum(run.lost_gpu_hours_by_cause.values()))
    fleet = run.nodes * run.gpus_per_node * run.days * 24
    assert 0.3 * fleet < run.useful_gpu_hours < 0.9 * fleet
    assert all(sum(sample.nodes.values()) == run.nodes for sample in run.samples)
    assert len(run.samples) == 73
    assert run.peak_out >= max(
        sum(count for state, count in sample.nodes.items() if state != "in_service") for sample in run.samples
    )
    # Nothing is out that nobody can explain.
    assert "unknown" not in run.out_hours_by_cause


def test_the_policies_do_what_they_say(runs: Mapping[str, RunResult]) -> None:
    by_hand = {name: [key for key in run.actions if key.endswith("by hand")] for name, run in runs.items()}
    assert by_hand["manual"]
    assert set(runs["manual"].actions) == set(by_hand["manual"])
    assert not any(by_hand[name] for name in DEFAULT_POLICIES[1:])
    assert set(runs["reboot-only"].actions) <= {"drain", "reboot", "return"}
    assert runs["full"].actions["rma"] > 0
    # Without tickets a person sends parts in as well, and that is no hands-on time.
    assert runs["reboot-only"].out_hours_by_rung["rma"] > 0
    assert runs["full-standby"].standby_gpu_hours > 0
    assert runs["full"].standby_gpu_hours == 0.0
    assert runs["full-standby"].nodes == 49
    # A person takes two hours; a daemon minutes.
    assert runs["manual"].out_hours_by_rung["waiting"] > 5 * runs["full"].out_hours_by_rung["waiting"]


def test_the_same_faults_strike_whatever_the_policy(site: Site, tmp_path: Path) -> None:
    """What happens to a node does not hang on what is done to others, nor on nodes beside the fleet."""

    def arrived(name: str) -> list[tuple[str, str, float]]:
        (tmp_path / name).mkdir()
        lab, lines = Lab(site, load_policy(name), 5, tmp_path / name), []
        lab.fleet.machines.on_fault.append(
            lambda fault: lines.append((fault.node, fault.key, round(fault.began_at)))
        )
        lab.advance(1.5 * DAY_S)
        lab.close()
        return sorted(lines)

    manual, standby = arrived("manual"), arrived("full-standby")
    here = [line for line in standby if line[0] <= "n0048"]
    assert len(manual) > 5
    # One that stands already when it comes again begins only once.
    assert len(set(manual) ^ set(here)) <= 0.2 * len(manual)


@pytest.mark.parametrize("name", ["full", "manual"])
def test_ticks_that_are_left_out_change_no_figure(site: Site, tmp_path: Path, name: str) -> None:
    found = []
    for leave_out in (True, False):
        folder = tmp_path / str(leave_out)
        folder.mkdir()
        lab = Lab(replace(site, interval_s=30.0), load_policy(name), 11, folder, leave_out=leave_out)
        lab.advance(DAY_S)
        found.append(lab.result(1.0, 0.0))
        lab.close()
    assert found[0].ticks < found[1].ticks / 2
    assert books(found[0]) == books(found[1])


def test_a_run_that_is_stopped_says_how_far_it_came(site: Site) -> None:
    told: list[float] = []
    run = run_one(site, load_policy("full"), 1, 3.0, on_progress=told.append, stopped=lambda: len(told) >= 3)
    assert not run.complete
    assert run.days == pytest.approx(0.75)
    assert told == pytest.approx([0.25 / 3, 0.5 / 3, 0.75 / 3])
    assert run.samples[-1].at_s <= 0.75 * DAY_S
    assert run.useful_gpu_hours > 0


def test_nothing_is_left_behind(site: Site, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("slurm_lifecycle.simulation.lab.run._TMPFS", tmp_path)
    run_one(site, load_policy("full"), 1, 0.5)
    assert list(tmp_path.iterdir()) == []


def test_common_causes_strike(site: Site, tmp_path: Path) -> None:
    path = tmp_path / "bad.toml"
    path.write_text(
        SITE.replace("scale = 25.0", "scale = 0.0")
        + '[[events]]\nkind = "power"\nat = "6h"\ndomain = "rack002"\n'
        + '[[events]]\nkind = "driver_rollout"\nat = "12h"\nshare = 0.5\n'
        + '[[events]]\nkind = "switch"\nat = "1d"\ndomain = "rack001"\n',
        encoding="utf-8",
    )
    run = run_one(load_site_file(path), load_policy("full"), 1, 2.0)
    assert set(run.out_hours_by_cause) == {"rack power", "driver rollout", "leaf switch"}
    assert {repair.node for repair in run.repairs if repair.cause == "rack power"} == {
        f"n{number:04d}" for number in range(9, 17)
    }
    assert run.pages > 0
