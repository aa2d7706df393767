"""Which runs a report compares, and what they come to."""

import pytest

from slurm_lifecycle.simulation.lab.results import Repair
from slurm_lifecycle.simulation.report.figures import (
    compare,
    keys_of,
    lost,
    lost_and_standby,
    out_hours,
    repair_times,
    still_out,
    useful_share,
)
from tests.unit.simulation.study_values import small, study


def test_the_seeds_compared_are_those_that_every_policy_ended() -> None:
    found = compare(
        study(
            small("a", 1), small("b", 1), small("a", 2), small("b", 2, days=4.0), small("a", 3), small("b", 3)
        )
    )
    assert found.seeds == (1, 3)
    assert [[run.seed for run in one.runs] for one in found.contenders] == [[1, 3], [1, 3]]
    assert [(run.policy, run.seed) for run in found.stopped] == [("b", 2)]
    assert found.missing == ()
    assert found.fair


def test_a_policy_of_which_nothing_ended_takes_no_seed_from_the_others() -> None:
    found = compare(study(small("a", 1), small("b", 1), policies={"a": "", "b": "", "c": ""}))
    assert found.seeds == (1,)
    assert [one.name for one in found.with_runs] == ["a", "b"]
    assert found.missing == (("c", 1),)
    assert found.fair


def test_policies_without_a_seed_in_common_keep_their_own_and_are_not_compared() -> None:
    found = compare(study(small("a", 1), small("b", 2)))
    assert [[run.seed for run in one.runs] for one in found.contenders] == [[1], [2]]
    assert not found.fair
    assert found.missing == (("a", 2), ("b", 1))


def test_where_no_run_ended_those_cut_short_are_shown_and_not_compared() -> None:
    found = compare(study(small("a", 1, days=4.0), small("b", 1, days=2.0)))
    assert [len(one.runs) for one in found.contenders] == [1, 1]
    assert found.cut_short
    assert not found.fair


def test_nothing_at_all_is_not_cut_short() -> None:
    found = compare(study(policies={"a": ""}, seeds=(1,)))
    assert found.with_runs == ()
    assert not found.cut_short
    assert not found.fair
    assert found.missing == (("a", 1),)


def test_a_run_of_a_policy_that_the_study_does_not_name_is_shown_last() -> None:
    found = compare(study(small("b", 1), small("a", 1), policies={"a": "first"}))
    assert [(one.name, one.index, one.description) for one in found.contenders] == [
        ("a", 0, "first"),
        ("b", 1, ""),
    ]


def test_the_figures_of_a_run() -> None:
    run = small("a", 1, standby_gpu_hours=4.0)
    assert lost(run) == 96.0
    assert lost_and_standby(run) == 100.0
    assert out_hours(run) == 48.0
    assert useful_share(run) == 960.0 / (10 * 24 * 4 * 2)
    assert still_out(run) == 0.0


def test_the_spread_over_the_seeds() -> None:
    found = compare(study(*(small("a", seed, pages=pages) for seed, pages in ((1, 2), (2, 9), (3, 4)))))
    spread = found.contenders[0].spread(lambda run: float(run.pages))
    assert spread is not None
    assert (spread.mean, spread.low, spread.high) == (5.0, 2.0, 9.0)


def test_keys_come_with_the_largest_first() -> None:
    runs = [small("a", 1, actions={"reboot": 1, "drain": 4}), small("a", 2, actions={"reboot": 4, "rma": 4})]
    assert keys_of(runs, lambda run: run.actions) == ["reboot", "drain", "rma"]


HOUR = 3600.0


def _repairs(*spans: tuple[float, bool], days: float = 10.0) -> tuple[Repair, ...]:
    """Repairs by their hours; those still out began so long before the end."""
    return tuple(
        Repair("n", "c", days * 24 * HOUR - hours * HOUR, None, "")
        if is_open
        else Repair("n", "c", 0.0, hours * HOUR, "reboot")
        for hours, is_open in spans
    )


def test_repair_times_without_anything_open_are_the_plain_shares() -> None:
    times = repair_times([small("a", 1, repairs=_repairs((1, False), (2, False), (2, False), (8, False)))])
    assert times is not None
    assert [at for at, _ in times.steps] == [HOUR, 2 * HOUR, 8 * HOUR]
    assert [back for _, back in times.steps] == pytest.approx([0.25, 0.75, 1.0])
    assert times.within(0.5) == 2 * HOUR
    assert times.within(0.75) == 2 * HOUR
    assert times.within(0.95) == 8 * HOUR
    assert (times.longest_s, times.longest_open) == (8 * HOUR, False)


def test_a_node_still_out_counts_for_as_long_as_it_was_seen() -> None:
    # By hand: 1/4 back after 1 h; one leaves the count after 3 h; of the two left one is back after 4 h.
    spans = ((1, False), (3, True), (4, False), (9, True))
    times = repair_times([small("a", 1, repairs=_repairs(*spans))])
    assert times is not None
    assert [at for at, _ in times.steps] == [HOUR, 4 * HOUR]
    assert [back for _, back in times.steps] == pytest.approx([0.25, 1 - 0.75 * 0.5])
    assert times.within(0.5) == 4 * HOUR
    assert times.within(0.95) is None
    assert (times.longest_s, times.longest_open) == (9 * HOUR, True)


def test_a_node_that_is_back_when_another_leaves_the_count_is_counted_first() -> None:
    times = repair_times([small("a", 1, repairs=_repairs((2, False), (2, True)))])
    assert times is not None
    assert times.steps == ((2 * HOUR, 0.5),)


def test_the_repairs_of_all_seeds_count_together() -> None:
    runs = [small("a", 1, repairs=_repairs((1, False))), small("a", 2, repairs=_repairs((3, False)))]
    times = repair_times(runs)
    assert times is not None
    assert times.within(0.5) == HOUR
    assert times.within(0.95) == 3 * HOUR


def test_where_nothing_was_repaired_there_are_no_times() -> None:
    assert repair_times([small("a", 1, repairs=())]) is None
    assert repair_times([]) is None
