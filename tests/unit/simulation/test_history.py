"""Failure rates of a site's own incidents."""

import pytest

from slurm_lifecycle.core.fault_catalog import fault_for
from slurm_lifecycle.core.model import Incident, Step
from slurm_lifecycle.errors import ConfigError
from slurm_lifecycle.simulation.lab.history import history_of
from slurm_lifecycle.simulation.lab.site_files import published_rates
from slurm_lifecycle.simulation.machines.faults import KINDS, HostEffect, SeenBy

DAY_S = 86_400.0


def incidents(*codes: str) -> list[Incident]:
    return [
        Incident(f"n{at}.1", f"n{at}", fault_for(code).fault_class, code, "-", Step.CLOSED, at * 3600.0, 0.0)
        for at, code in enumerate(codes)
    ]


def test_incidents_become_rates_by_node_days() -> None:
    found = history_of(incidents(*["XID79"] * 8, *["XID119"] * 12), 100, 0.0, 50 * DAY_S)
    assert found.node_days == 5000
    assert found.rates["gpu_off_bus"] == pytest.approx(8 / 5)
    assert found.rates["gsp_timeout"] == pytest.approx(12 / 5)
    assert found.rates["gpu_hang"] == 0.0
    assert found.counted == 20
    assert found.left_out == {}


def test_what_nobody_sees_keeps_its_published_rate() -> None:
    found = history_of(incidents(*["XID79"] * 20), 100, 0.0, 50 * DAY_S)
    silent = {key for key, kind in KINDS.items() if kind.seen_by is SeenBy.NOBODY and kind.count}
    assert silent
    assert {key: found.rates[key] for key in silent} == {key: published_rates()[key] for key in silent}


def test_a_code_of_several_kinds_is_shared_and_slurms_words_are_understood() -> None:
    codes = (
        ["FS_READONLY"] * 7 + ["NO_RESPONSE"] * 5 + ["SELF_REBOOT"] * 4 + ["LOW_RESOURCE"] * 4 + ["XID46"] * 2
    )
    found = history_of(incidents(*codes), 10, 0.0, 100 * DAY_S)
    assert found.rates["root_read_only"] + found.rates["ssd_dead"] == pytest.approx(7)
    assert found.rates["root_read_only"] > found.rates["ssd_dead"] > 0
    hosts = {HostEffect.DIES, HostEffect.SILENT, HostEffect.REBOOTS}
    assert sum(rate for key, rate in found.rates.items() if KINDS[key].host in hosts) == pytest.approx(9)
    assert found.counted == 22
    rate_seen = sum(
        rate for key, rate in found.rates.items() if KINDS[key].seen_by in (SeenBy.AGENT, SeenBy.SLURM)
    )
    assert rate_seen == pytest.approx(22)


def test_what_no_kind_stands_for_is_left_out_and_named() -> None:
    found = history_of(incidents(*["XID79"] * 12, "KILL_TASK", "KILL_TASK", "MANUAL"), 10, 0.0, 100 * DAY_S)
    assert found.left_out == {"KILL_TASK": 2, "MANUAL": 1}
    assert found.counted == 12


@pytest.mark.parametrize(("count", "days"), [(9, 50), (20, 3)])
def test_too_little_is_refused(count: int, days: float) -> None:
    with pytest.raises(ConfigError, match="at least 10 of 7 days are needed"):
        history_of(incidents(*["XID79"] * count), 100, 0.0, days * DAY_S)
