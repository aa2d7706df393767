"""Broken daemons are caught, each by the seed and the oracle that are on record for it."""

import pytest

from slurm_lifecycle.core import ownership, repair
from tests.simulation.mutants import MUTANTS, SEEDS, Mutant, broken, caught


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda one: one.name)
def test_mutant_is_caught(mutant: Mutant) -> None:
    # Where the simulation draws otherwise by now, another seed does it.
    found = caught(mutant, [mutant.seed, *range(SEEDS)])
    assert found is not None, mutant.says
    assert found[0] < SEEDS
    if found[0] == mutant.seed:
        assert found[1] == mutant.by


def test_there_are_enough_of_them() -> None:
    assert len(MUTANTS) >= 14
    assert len({one.name for one in MUTANTS}) == len(MUTANTS)


def test_a_mutant_is_put_wherever_the_function_was_imported_and_taken_back() -> None:
    mutant = next(one for one in MUTANTS if one.name == "no idle check")
    real = ownership.is_drained
    with broken(mutant):
        assert ownership.is_drained is not real
        assert vars(repair)["is_drained"] is ownership.is_drained
    assert ownership.is_drained is real
    assert vars(repair)["is_drained"] is real
