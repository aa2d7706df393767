"""Figures as words, and the answer of a report."""

from collections.abc import Mapping

import pytest

from slurm_lifecycle.simulation.lab.results import RunResult, Study
from slurm_lifecycle.simulation.report import words
from slurm_lifecycle.simulation.report.figures import compare
from tests.unit.simulation.study_values import small, study


def _plain(text: str) -> str:
    return text.replace(words.NBSP, " ")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (0.04, "0.04"),
        (1.26, "1.3"),
        (22, "22"),
        (99.96, "100"),
        (24150.4, "24,150"),
        (99_999.4, "99,999"),
        (99_999.6, "100 k"),
        (745_531, "746 k"),
        (999_499, "999 k"),
        (999_501, "1.00 M"),
        (2_795_740, "2.80 M"),
        (12_239_130, "12.2 M"),
        (412e6, "412 M"),
        (1.5e9, "1.50 G"),
    ],
)
def test_a_number_has_the_digits_it_needs(value: float, text: str) -> None:
    assert _plain(words.number(value)) == text


@pytest.mark.parametrize(
    ("part", "text"),
    [
        (0, "0 %"),
        (0.0012, "0.12 %"),
        (0.0093, "0.93 %"),
        (0.134, "13.4 %"),
        (0.98, "98.0 %"),
        (0.9939, "99.39 %"),
        (1, "100 %"),
    ],
)
def test_a_share(part: float, text: str) -> None:
    assert _plain(words.percent(part)) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (40, "40 s"),
        (90, "2 min"),
        (3000, "50 min"),
        (5400, "1.5 h"),
        (36000, "10 h"),
        (172800, "2.0 d"),
        (1_100_000, "12.7 d"),
    ],
)
def test_a_length_of_time(seconds: float, text: str) -> None:
    assert _plain(words.duration(seconds)) == text


def test_a_span_says_the_unit_once() -> None:
    assert _plain(words.span(words.number(5_520_000), words.number(5_960_000))) == "5.52 to 5.96 M"
    assert _plain(words.span(words.number(950_000), words.number(1_200_000))) == "950 k to 1.20 M"
    assert words.span("3", "5") == "3 to 5"
    assert words.span("3", "3") == ""


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("rma", "RMA"),
        ("gpu_reset", "GPU reset"),
        ("faulty GPU", "faulty GPU"),
        ("person", "with a person"),
        ("", "(no cause)"),
    ],
)
def test_keys_as_words(key: str, text: str) -> None:
    assert words.word(key) == text


def test_jobs_wait_for_nodes_and_nodes_just_wait() -> None:
    assert words.lost_word("waiting") == "waiting for nodes"
    assert words.word("waiting") == "waiting"


def _losing(policy: str, seed: int, hours: float, standby: float = 0.0) -> RunResult:
    return small(policy, seed, lost_gpu_hours={"rollback": hours}, standby_gpu_hours=standby)


def _answer(given: Study) -> tuple[str, str]:
    first, rest = words.answer(compare(given))
    return _plain(first), _plain(" ".join(rest))


def test_the_answer_names_the_policy_that_lost_least_and_by_how_much() -> None:
    first, rest = _answer(study(_losing("a", 1, 96.0), _losing("b", 1, 48.0), _losing("c", 1, 60.0)))
    assert (
        first
        == "b lost the least: 48 GPU-hours (2.5 % of the fleet's), 20 % less than c and 50 % less than a."
    )
    assert rest == "That is as if 0.20 of 8 GPUs had stood idle from the first day to the last."


def test_the_answer_is_of_the_means_and_says_where_a_seed_disagrees() -> None:
    _, always = _answer(
        study(_losing("a", 1, 96.0), _losing("b", 1, 48.0), _losing("a", 2, 50.0), _losing("b", 2, 40.0))
    )
    assert always.endswith("It lost the least with every one of the 2 seeds.")
    first, once = _answer(
        study(_losing("a", 1, 96.0), _losing("b", 1, 48.0), _losing("a", 2, 30.0), _losing("b", 2, 40.0))
    )
    assert first.startswith("b lost the least: 44 GPU-hours")
    assert once.endswith("It is so on average: another policy lost less with seed 2.")


@pytest.mark.parametrize(
    ("standby", "end"),
    [(10.0, "With them b is still the cheapest, at 58."), (100.0, "With them a is the cheapest, at 96.")],
)
def test_hot_standby_is_not_free(standby: float, end: str) -> None:
    _, rest = _answer(study(_losing("a", 1, 96.0), _losing("b", 1, 48.0, standby)))
    assert f"b kept {standby:.0f} GPU-hours idle as hot standby" in rest
    assert rest.endswith(end)


def test_among_many_policies_the_next_and_the_worst_are_named() -> None:
    first, _ = _answer(study(*(_losing(f"p{number}", 1, 50.0 + 10 * number) for number in range(6))))
    assert first == (
        "p0 lost the least: 50 GPU-hours (2.6 % of the fleet's), 17 % less than p1, the next best, "
        "and 50 % less than p5, the worst."
    )


def test_policies_that_lose_the_same_are_not_told_apart() -> None:
    first, _ = _answer(study(_losing("a", 1, 96.0), _losing("b", 1, 96.0)))
    assert first == "a and b lost the same: 96 GPU-hours (5.0 % of the fleet's) each."
    first, _ = _answer(study(_losing("a", 1, 96.0), _losing("b", 1, 48.0), _losing("c", 1, 48.0)))
    assert first == "b and c lost the least: 48 GPU-hours (2.5 % of the fleet's) each, 50 % less than a."


def test_one_policy_alone_is_compared_with_none() -> None:
    first, _ = _answer(study(_losing("a", 1, 96.0)))
    assert first == "a lost 96 GPU-hours (5.0 % of the fleet's)."


def test_who_lost_nothing_is_named() -> None:
    first, _ = _answer(study(_losing("a", 1, 0.0), _losing("b", 1, 0.0), _losing("c", 1, 5.0)))
    assert first == "a and b lost no GPU-hours at all."


_POLICIES: Mapping[str, str] = {"a": "", "b": ""}


@pytest.mark.parametrize(
    ("given", "begin"),
    [
        (study(policies=_POLICIES, seeds=(1,)), "No run has ended yet"),
        (study(small("a", 1, days=3.0), small("b", 1, days=3.0)), "No run came to its end"),
        (study(small("a", 1), small("b", 2)), "The policies have no seed in common"),
    ],
)
def test_what_cannot_be_compared_is_not(given: Study, begin: str) -> None:
    first, rest = _answer(given)
    assert first.startswith(begin)
    assert rest == ""


def test_what_is_missing_or_cut_short_is_said() -> None:
    given = study(small("a", 1), small("b", 1), small("a", 2, days=2.5), policies=_POLICIES, seeds=(1, 2))
    assert words.shortcomings(compare(given), 4) == [
        "1 of 4 runs are missing: b seed 2.",
        "a seed 2 was cut short at 2.5 of 10 days.",
        "All figures are of the runs that ended with seed 1, which every policy shown has.",
    ]


def test_many_missing_runs_are_counted() -> None:
    given = study(small("a", 1), policies={"a": ""}, seeds=tuple(range(1, 13)))
    assert words.shortcomings(compare(given), 12)[0] == (
        "11 of 12 runs are missing: a seed 2, a seed 3, a seed 4, a seed 5, a seed 6, a seed 7, a seed 8, "
        "a seed 9 and 3 more."
    )


def test_seeds_of_which_nothing_ran_are_named_once() -> None:
    given = study(small("a", 1), policies=_POLICIES, seeds=(1, 2, 3))
    assert words.shortcomings(compare(given), 6)[0] == (
        "5 of 6 runs are missing: b seed 1 and all of seed 2 and 3."
    )


def test_nothing_is_said_of_a_whole_study() -> None:
    assert words.shortcomings(compare(study(small("a", 1), small("b", 1))), 2) == []
