"""The safety suite over its seeds of every day and those that once found something; it repeats itself.

`make simulate-safety SEEDS=n FIRST_SEED=k` runs any others.
"""

import os
import subprocess
import sys
from functools import cache

import pytest

from slurm_lifecycle.simulation.safety.suite import SeedReport, Totals, main, printed, run_seed
from tests.simulation.seeds import FOUND

SEEDS = range(200)
BATCH = 20
_DIGESTS = """
from slurm_lifecycle.simulation.safety.suite import run_seed
print([run_seed(seed).digest for seed in (3, 11)])
"""


@cache
def report_of(seed: int) -> SeedReport:
    """A seed is played once for all tests that look at it."""
    return run_seed(seed)


@pytest.mark.parametrize("first", SEEDS[::BATCH])
def test_safe_at_every_step_and_at_rest_in_the_end(first: int) -> None:
    failed = [one for one in map(report_of, range(first, first + BATCH)) if one.violations]
    assert not failed, "\n".join(line for report in failed for line in printed(report))


@pytest.mark.parametrize(("seed", "found"), FOUND)
def test_seeds_that_once_found_something(seed: int, found: str) -> None:
    report = run_seed(seed)
    assert not report.violations, (found, *printed(report))


def test_every_oracle_has_something_to_judge() -> None:
    totals = Totals()
    for seed in range(0, 60, 2):
        totals.add(report_of(seed))
    idle = [name for name, times in totals.judged.items() if not times]
    assert not idle
    assert totals.counts["kills"] > 50
    assert all(totals.struck.values()), totals.struck
    assert totals.counts["disruptions"] > 60


def test_the_same_seed_gives_the_same_trace_under_every_hash_seed() -> None:
    digests = set()
    for hash_seed in ("0", "4711"):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        found = subprocess.run(
            [sys.executable, "-c", _DIGESTS], capture_output=True, text=True, check=True, env=environment
        )
        digests.add(found.stdout.strip())
    assert len(digests) == 1, digests
    assert run_seed(3).digest in digests.pop()


def test_other_seeds_give_other_traces() -> None:
    assert len({run_seed(seed, steps=20).digest for seed in range(3)}) == 3


def test_the_command_ends_with_one_line_of_counts(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seeds", "2", "--first-seed", "5"]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith("seeds=2 ")
    assert " violations=0 judged: " in line


@pytest.mark.parametrize("arguments", [["--seeds", "0"], ["--seeds", "3", "--jobs", "0"], ["--seeds", "x"]])
def test_a_run_of_nothing_is_wrong_use(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
