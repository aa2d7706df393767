"""Studies: all runs on one core or several, and what is left when somebody stops them."""

import threading
from dataclasses import replace
from pathlib import Path

import pytest

from slurm_lifecycle.simulation.lab.policy_files import load_policies
from slurm_lifecycle.simulation.lab.results import RunResult, Study
from slurm_lifecycle.simulation.lab.site import SimPolicy, Site
from slurm_lifecycle.simulation.lab.site_files import load_site_file
from slurm_lifecycle.simulation.lab.study import Stop, described, run_study, tasks_of

SITE = """
summary = "tiny"
nodes = 12
nodes_per_domain = 4
[failures]
scale = 20.0
[[jobs]]
name = "gang"
count = 1
nodes_min = 6
nodes_max = 8
"""


@pytest.fixture
def site(tmp_path: Path) -> Site:
    path = tmp_path / "tiny.toml"
    path.write_text(SITE, encoding="utf-8")
    return load_site_file(path)


@pytest.fixture
def policies() -> tuple[SimPolicy, ...]:
    return load_policies(["manual", "full"])


def books(study: Study) -> list[RunResult]:
    return [replace(run, wall_s=0.0) for run in study.runs]


def test_runs_go_seed_by_seed_so_that_a_stopped_study_has_whole_seeds(
    site: Site, policies: tuple[SimPolicy, ...]
) -> None:
    order = [(task.seed, task.policy.name) for task in tasks_of(site, policies, [3, 4], 1.0)]
    assert order == [(3, "manual"), (3, "full"), (4, "manual"), (4, "full")]


def test_several_processes_give_the_books_of_one(site: Site, policies: tuple[SimPolicy, ...]) -> None:
    told: dict[int, list[float]] = {}
    alone = run_study(site, policies, [1, 2], 1.0)
    together = run_study(
        site,
        policies,
        [1, 2],
        1.0,
        jobs=2,
        on_progress=lambda index, share: told.setdefault(index, []).append(share),
    )
    assert books(alone) == books(together)
    assert not together.partial
    assert (together.site, together.summary, together.seeds) == ("tiny", "tiny", (1, 2))
    assert list(together.policies) == ["manual", "full"]
    assert set(told) <= {0, 1, 2, 3}
    assert all(shares == sorted(shares) for shares in told.values())


def test_a_study_that_is_stopped_keeps_what_ended_and_what_ran(
    site: Site, policies: tuple[SimPolicy, ...]
) -> None:
    stop, told = Stop(), []

    def tell(index: int, share: float) -> None:
        told.append((index, share))
        if index == 1 and share >= 0.5:
            stop.now()

    study = run_study(site, policies, [1, 2], 1.0, on_progress=tell, stop=stop)
    assert study.partial
    assert [(run.policy, run.seed, run.complete) for run in study.runs] == [
        ("manual", 1, True),
        ("full", 1, False),
    ]
    assert study.runs[1].days == pytest.approx(0.5)


def test_processes_stop_too(site: Site, policies: tuple[SimPolicy, ...]) -> None:
    stop = Stop()
    long = replace(site, failures=replace(site.failures, by_kind={"gpu_hang": 2000.0}))
    threading.Timer(2.5, stop.now).start()
    study = run_study(long, policies, range(1, 5), 400.0, jobs=2, stop=stop)
    assert study.partial
    assert len(study.runs) <= 4
    assert all(not run.complete and 0 <= run.days < 400 for run in study.runs)


def test_a_study_that_is_stopped_before_it_begins_is_empty(
    site: Site, policies: tuple[SimPolicy, ...]
) -> None:
    stop = Stop()
    stop.now()
    for jobs in (1, 2):
        study = run_study(site, policies, [1], 1.0, jobs=jobs, stop=stop)
        assert study.partial
        assert study.runs == ()


def test_what_has_no_effect_in_this_release_is_said(policies: tuple[SimPolicy, ...]) -> None:
    manual, full = policies
    assert "no effect" not in described(manual)
    assert described(full).endswith("(no effect in this release: diagnose, gpu_reset, power)")
