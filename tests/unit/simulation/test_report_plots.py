"""The drawings of a report: what they show is where it should be."""

from collections.abc import Iterator
from xml.etree import ElementTree

import pytest

from slurm_lifecycle.simulation.lab.results import Repair, Sample
from slurm_lifecycle.simulation.report.curves import repair_plot, states_shown, thinned, timeline_plot
from slurm_lifecycle.simulation.report.figures import compare
from slurm_lifecycle.simulation.report.plots import (
    MAX_CAUSES,
    cause_plot,
    in_order,
    lost_by_cause,
    lost_plot,
    rung_plot,
    short_number,
)
from slurm_lifecycle.simulation.report.svg import clipped, fixed, short, stairs, ticks
from tests.unit.simulation.study_values import small, study


def _both(markup: str) -> tuple[ElementTree.Element, ElementTree.Element]:
    wide, narrow = ElementTree.fromstring(f"<both>{markup}</both>")
    return wide, narrow


def _bars(svg: ElementTree.Element) -> dict[str, float]:
    """Widths of bars by what they say of themselves."""
    return {str(rect.findtext("title")): float(rect.get("width", "")) for rect in svg.iter("rect")}


def _texts(svg: ElementTree.Element) -> list[str]:
    return [str(text.text) for text in svg.iter("text")]


@pytest.mark.parametrize(
    ("highest", "wanted", "marks"),
    [
        (0.0, 4, [0.0, 1.0]),
        (3.0, 4, [0.0, 1.0, 2.0, 3.0]),
        (38.0, 4, [0.0, 10.0, 20.0, 30.0, 40.0]),
        (12.2e6, 6, [0.0, 5e6, 10e6, 15e6]),
        (0.7, 4, [0.0, 0.2, 0.4, 0.6, 0.8]),
    ],
)
def test_the_marks_of_an_axis_are_round(highest: float, wanted: int, marks: list[float]) -> None:
    assert ticks(highest, wanted) == pytest.approx(marks)


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0, "0"), (0.5, "0.5"), (1500.0, "1,500"), (20_000.0, "20 k"), (1.5e6, "1.5 M"), (2e9, "2 G")],
)
def test_numbers_on_an_axis_are_short(value: float, text: str) -> None:
    assert short(value) == text


def test_numbers_beside_bars_are_short() -> None:
    assert [short_number(value).replace("\u00a0", " ") for value in (7.0, 12_345.0, 2_780_000.0)] == [
        "7",
        "12.3 k",
        "2.78 M",
    ]


def test_small_helpers_of_drawing() -> None:
    assert fixed(3.0) == "3"
    assert fixed(3.14159) == "3.1"
    assert clipped("short", 200.0, 13.0) == "short"
    assert clipped("a name that is far too long", 70.0, 13.0) == "a name t…"
    assert stairs([(1.0, 5.0), (2.0, 5.0), (3.0, 7.0)], 9.0) == "V5H3V7H9"


def test_bars_are_as_long_as_what_was_lost() -> None:
    given = study(small("a", 1), small("b", 1, lost_gpu_hours={"rollback": 40.0}, standby_gpu_hours=20.0))
    for svg in _both(lost_plot(compare(given))):
        bars = _bars(svg)
        assert bars["a: waiting for nodes 66"] == pytest.approx(bars["a: rolled back 20"] * 3.3, rel=0.02)
        assert bars["b: rolled back 40"] == pytest.approx(2 * bars["a: rolled back 20"], rel=0.02)
        assert bars["b: idle as hot standby 20"] == pytest.approx(bars["a: rolled back 20"], rel=0.02)
        assert "96 GPU-hours" in _texts(svg)


def test_the_range_over_the_seeds_is_drawn_where_there_is_one() -> None:
    one = study(small("a", 1))
    two = study(small("a", 1), small("a", 2, lost_gpu_hours={"rollback": 40.0}))
    assert "over the seeds" not in lost_plot(compare(one))
    assert "a: 40 to 96 over the seeds" in lost_plot(compare(two))


def test_bars_of_causes_have_the_colour_of_their_policy() -> None:
    given = study(small("a", 1), small("b", 1, lost_gpu_hours_by_cause={"HBM": 45.0}))
    wide, _ = _both(cause_plot(compare(given)))
    bars = _bars(wide)
    assert bars["HBM, a: 90 GPU-hours"] == pytest.approx(2 * bars["HBM, b: 45 GPU-hours"], rel=0.01)
    colours = {str(rect.findtext("title")): rect.get("class") for rect in wide.iter("rect")}
    assert colours["HBM, a: 90 GPU-hours"] == "fill p0"
    assert colours["HBM, b: 45 GPU-hours"] == "fill p1"
    assert colours["CPU, a: 6 GPU-hours"] == "fill p0"


def test_causes_beyond_the_limit_are_one_line() -> None:
    many = {f"cause {number:02d}": float(100 - number) for number in range(20)}
    shown = lost_by_cause(compare(study(small("a", 1, lost_gpu_hours_by_cause=many))))
    assert len(shown) == MAX_CAUSES
    assert shown[0].label == "cause 00"
    assert shown[-1].label == "9 other causes"
    assert sum(cause.values[0] for cause in shown) == sum(many.values())


def test_the_rungs_are_in_the_order_of_the_way_out_and_back() -> None:
    assert in_order(["rma", "unheard of", "verify", "draining", "reboot"]) == [
        "draining",
        "reboot",
        "verify",
        "rma",
        "unheard of",
    ]
    wide, _ = _both(rung_plot(compare(study(small("a", 1)))))
    assert list(_bars(wide)) == ["a: reboot 8", "a: RMA 40"]


def _panels(svg: ElementTree.Element) -> Iterator[tuple[str, str]]:
    for path in svg.iter("path"):
        if path.get("class", "").startswith("fill"):
            yield str(path.findtext("title")), path.get("d", "")


def test_the_timeline_stacks_what_is_out_on_the_same_axis() -> None:
    down = (Sample(0.0, {"in_service": 4}), Sample(5 * 86400.0, {"rma": 1, "reboot": 2, "in_service": 1}))
    given = study(small("a", 1, samples=down), small("b", 1))
    wide, _ = _both(timeline_plot(compare(given)))
    panels = dict(_panels(wide))
    assert list(panels) == ["a: reboot", "a: RMA", "b: reboot", "b: RMA"]
    # The panel is 110 high for 3 nodes, from y = 34 to y = 144; half of ten days is half of 44 to 952.
    assert panels["a: reboot"] == "M44 144V144H498V34H952V144Z"
    assert panels["a: RMA"] == "M44 144V144H498V107.3H952V144Z"
    assert "most at once 3 (75.0\u00a0%)" in _texts(wide)
    assert states_shown(compare(given)) == ["reboot", "rma"]


def test_a_run_cut_short_ends_where_it_was_cut() -> None:
    samples = (Sample(0.0, {"rma": 1}),)
    wide, _ = _both(timeline_plot(compare(study(small("a", 1, days=5.0, samples=samples)))))
    assert dict(_panels(wide))["a: RMA"] == "M44 144V34H498V144Z"
    assert "cut short at day 5.0" in _texts(wide)


def test_thinning_keeps_the_worst_of_each_stretch() -> None:
    samples = [Sample(float(at), {"in_service": 9, "rma": at % 5}) for at in range(10)]
    kept = thinned(samples, 4)
    assert [(sample.at_s, sample.nodes["rma"]) for sample in kept] == [(0.0, 2), (3.0, 4), (6.0, 3), (9.0, 4)]
    assert thinned(samples, 10) == samples


def test_repair_curves_mark_half_and_95_per_cent() -> None:
    wide, _ = _both(repair_plot(compare(study(small("a", 1)))))
    marks = [path.findtext("title") for path in wide.iter("path") if "mark" in str(path.get("class")).split()]
    assert marks == ["a: half back within 60\u00a0min", "a: 95 % back within 2.0\u00a0h"]
    (curve,) = [path for path in wide.iter("path") if str(path.get("class")).startswith("curve")]
    # From 0 % at y = 312 over half at 162 to all at 12; one hour lies on the left edge.
    assert curve.get("d") == "M48 312H48V162H396.2V12H396.2"


def test_nodes_that_never_came_back_have_a_curve_along_the_bottom() -> None:
    gone = small("a", 1, repairs=(Repair("n1", "HBM", 0.0, None, ""),))
    wide, _ = _both(repair_plot(compare(study(gone))))
    (curve,) = [path for path in wide.iter("path") if str(path.get("class")).startswith("curve")]
    assert str(curve.get("d")).startswith("M48 312H")
    assert "V" not in str(curve.get("d"))
