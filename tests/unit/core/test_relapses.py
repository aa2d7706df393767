"""A fault that came back more than once is met above the most that was done for it."""

from dataclasses import replace

import pytest

from slurm_lifecycle.core.fault_catalog import FaultClass
from slurm_lifecycle.core.ladder import entry_index
from slurm_lifecycle.core.model import Incident, Step

from .world import ACT

PATIENT = replace(ACT, lemon_7d=99, lemon_28d=99)
NOW = 1_000_000.0


def case(number: int, cured_by: str = "", component: str = "gpu3") -> Incident:
    closed = NOW - 1000.0 + number
    return Incident(
        id=f"n3.{number}",
        node="n3",
        fault_class=FaultClass.SOFTWARE,
        code="DRIVER_DOWN",
        component=component,
        step=Step.CLOSED,
        opened_at=closed - 10.0,
        step_since=closed,
        outcome="returned",
        cured_by=cured_by,
        closed_at=closed,
    )


@pytest.mark.parametrize("cures", [("reboot", "reimage"), ("reimage", "reboot"), ("reimage",)])
def test_the_most_that_was_done_counts_in_whatever_order(cures: tuple[str, ...]) -> None:
    history = [case(number, cure) for number, cure in enumerate(cures)]
    assert entry_index(PATIENT, case(9), history, NOW) == (2, "came back after reimage")


def test_cures_that_are_not_on_the_path_and_other_components_do_not_count() -> None:
    history = [case(1, "power"), case(2, "reimage", component="gpu4"), case(3, "reboot")]
    assert entry_index(PATIENT, case(9), history, NOW) == (1, "came back after reboot")
    assert entry_index(PATIENT, case(9), history[:2], NOW) == (0, "")
