"""The table of faults, and how they arrive."""

from collections import Counter
from dataclasses import replace

import pytest

from slurm_lifecycle.core.fault_catalog import FAULTS
from slurm_lifecycle.core.formats import parse_verdict
from slurm_lifecycle.simulation.machines.arrivals import (
    PUBLISHED_RATE,
    Arrivals,
    FaultRates,
    driver_rollout,
    power_loss,
    switch_loss,
)
from slurm_lifecycle.simulation.machines.faults import (
    DAY_S,
    INTERRUPTIONS,
    KINDS,
    RUNGS,
    Fault,
    FaultKind,
    HostEffect,
    SeenBy,
    draw_fault,
    kinds_of_code,
)
from slurm_lifecycle.simulation.streams import stream
from slurm_lifecycle.simulation.timeline import START_S
from tests.unit.simulation.toy import toy_fleet

PUBLISHED = {
    "faulty GPU": 148,
    "HBM": 72,
    "software": 54,
    "network switch/cable": 35,
    "host maintenance": 32,
    "SRAM": 19,
    "GSP": 17,
    "NIC": 7,
    "NCCL watchdog": 7,
    "SDC": 6,
    "thermal/sensor": 6,
    "PSU": 3,
    "SSD": 3,
    "chassis": 2,
    "IO board": 2,
    "dependency": 2,
    "CPU": 2,
    "memory": 2,
}


def test_the_kinds_add_up_to_the_published_counts_by_cause() -> None:
    counts: Counter[str] = Counter()
    for kind in KINDS.values():
        counts[kind.cause] += int(kind.count)
    assert {cause: count for cause, count in counts.items() if count} == PUBLISHED
    assert sum(PUBLISHED.values()) == INTERRUPTIONS


@pytest.mark.parametrize("kind", KINDS.values(), ids=lambda kind: kind.key)
def test_every_kind_makes_sense(kind: FaultKind) -> None:
    assert kind.ground
    assert {*kind.cures} <= {*RUNGS, "time"}
    chances = [kind.chance(rung) for rung in RUNGS[:-1]]
    assert chances == sorted(chances)
    assert (kind.seen_by is SeenBy.AGENT) == bool(kind.code)
    assert (kind.seen_by is SeenBy.SLURM) == (kind.host is not HostEffect.NONE)
    for code in filter(None, (kind.code, kind.again)):
        assert code in FAULTS
        component = kind.component.format(7)
        assert parse_verdict(f"slc1 00000000-0000 1 drain {code} {component}") is not None
    if kind.seen_by is SeenBy.NOBODY:
        assert (kind.lasts_s, kind.chance("time")) == (0.0, 1.0)


def test_a_greater_rung_mends_what_a_lesser_one_does() -> None:
    kind = KINDS["gsp_timeout"]
    assert [kind.chance(rung) for rung in RUNGS] == [0.3, 0.95, 0.95, 0.95, 0.95, 1.0]
    assert kind.chance("time") == 0.0


def test_codes_lead_back_to_kinds() -> None:
    assert [kind.key for kind in kinds_of_code("GPU_COUNT")] == ["gpu_off_bus", "gpu_dead"]
    assert kinds_of_code("") == ()


def test_a_fault_is_drawn_by_the_same_number_of_draws_whatever_its_kind() -> None:
    after = set()
    for kind in KINDS.values():
        rng = stream(1, "n1", "x")
        draw_fault(kind, "n1", 8, rng, at=0.0)
        after.add(rng.random())
    assert len(after) == 1


# ---------------------------------------------------------------- arrivals


def history(count: int, days: float, rates: FaultRates, seed: int = 1) -> list[tuple[float, str, str, float]]:
    timeline, _, machines = toy_fleet(count, seed)
    seen: list[tuple[float, str, str, float]] = []
    machines.on_fault.append(lambda fault: seen.append((timeline.now, fault.node, fault.key, fault.luck)))
    machines.on_maintenance.append(lambda name: seen.append((timeline.now, name, "maintenance", 0.0)))
    Arrivals(machines, rates).start()
    timeline.run_until(START_S + days * DAY_S)
    return seen


OFTEN = FaultRates(scale=100.0)


def test_the_same_seed_brings_the_same_faults_and_another_one_others() -> None:
    assert history(5, 30, OFTEN) == history(5, 30, OFTEN)
    assert history(5, 30, OFTEN) != history(5, 30, OFTEN, seed=2)


def test_a_node_more_moves_no_fault_of_the_others() -> None:
    few, many = history(5, 30, OFTEN), history(8, 30, OFTEN)
    assert len(few) > 20
    assert [one for one in many if one[1] <= "n5"] == few


def test_what_is_done_to_a_node_moves_no_fault_of_its_own_or_others() -> None:
    plain = history(4, 30, OFTEN)
    timeline, _, machines = toy_fleet(4, 1)
    seen: list[tuple[float, str, str, float]] = []
    machines.on_fault.append(lambda fault: seen.append((timeline.now, fault.node, fault.key, fault.luck)))
    Arrivals(machines, OFTEN).start()
    for day in range(30):
        timeline.run_until(START_S + day * DAY_S)
        machines.replace_parts("n2")
        machines.fault("n2", KINDS["nvlink"], f"nvlink{day}")
    timeline.run_until(START_S + 30 * DAY_S)
    drawn = {one for one in plain if one[2] != "maintenance"}
    # A fault that stood already is not told again, so those of an unrepaired node are fewer.
    others = {one for one in seen if "nvlink.nvlink" not in one[2]}
    assert {one for one in drawn if one[1] != "n2"} == {one for one in others if one[1] != "n2"}
    assert {one for one in drawn if one[1] == "n2"} <= others


def test_as_many_come_as_were_published() -> None:
    timeline, _, machines = toy_fleet(512, 3)
    arrivals = Arrivals(machines, FaultRates(scale=4.0))
    arrivals.start()
    timeline.run_until(START_S + 54 * DAY_S)
    came = sum(arrivals.arrived.values())
    assert came == pytest.approx(INTERRUPTIONS, rel=0.12)
    by_cause: Counter[str] = Counter()
    for key, count in arrivals.arrived.items():
        by_cause[KINDS[key].cause] += count
    assert by_cause["faulty GPU"] == pytest.approx(148, rel=0.25)
    assert 3.75 < PUBLISHED_RATE < 3.85


def test_a_lemon_fails_ten_times_as_often_in_the_same_place_until_it_is_replaced() -> None:
    timeline, _, machines = toy_fleet(300, 1)
    rates = FaultRates(lemon_share=0.05, scale=20.0)
    struck: Counter[str] = Counter()
    places: dict[str, Counter[str]] = {}

    def strike(fault: Fault) -> None:
        struck[fault.node] += 1
        places.setdefault(fault.node, Counter())[fault.component] += 1

    machines.on_show.append(strike)
    Arrivals(machines, rates).start()
    timeline.run_until(START_S + 54 * DAY_S)
    lemons = [name for name in machines.names() if machines.machine(name).lemon]
    others = [name for name in machines.names() if not machines.machine(name).lemon]
    assert 5 <= len(lemons) <= 30
    mean = {
        kind: sum(struck[name] for name in names) / len(names)
        for kind, names in (("lemon", lemons), ("other", others))
    }
    assert 6 < mean["lemon"] / mean["other"] < 14
    worst = places[lemons[0]].most_common(1)[0][1]
    assert worst > struck[lemons[0]] / 2
    machines.replace_parts(lemons[0])
    before = struck[lemons[0]]
    timeline.run_until(START_S + 108 * DAY_S)
    assert struck[lemons[0]] - before < before / 3


def test_rates_can_be_set_by_cause_by_kind_and_from_own_history() -> None:
    table = dict(FaultRates(by_cause={"HBM": 0.0, "gpu_hang": 3.0}).table())
    plain = dict(FaultRates().table())
    assert not [kind for kind in table if kind.cause == "HBM"]
    assert table[KINDS["gpu_hang"]] == pytest.approx(3 * plain[KINDS["gpu_hang"]])
    own = FaultRates(by_kind={"nvlink": 2.0}, lemon_share=0.0).table()
    assert [kind.key for kind, _ in own] == ["nvlink"]
    assert own[0][1] == pytest.approx(2.0 / 1000 / DAY_S)


def test_no_rate_no_fault_and_stop_ends_them() -> None:
    assert history(5, 100, replace(OFTEN, scale=0.0)) == []
    timeline, _, machines = toy_fleet(5)
    seen: list[Fault] = []
    machines.on_fault.append(seen.append)
    arrivals = Arrivals(machines, OFTEN)
    arrivals.start()
    timeline.run_until(START_S + 10 * DAY_S)
    arrivals.stop()
    before = len(seen)
    assert before > 0
    timeline.run_until(START_S + 50 * DAY_S)
    assert len(seen) == before


def test_false_alarms_come_by_their_own_stream() -> None:
    timeline, _, machines = toy_fleet(20)
    told: list[tuple[str, str]] = []
    arrivals = Arrivals(machines, FaultRates(per_1000_node_days=0.0, false_alarms_per_1000_node_days=50.0))
    arrivals.on_alarm.append(lambda node, code, component, lasts_s: told.append((code, component)))
    arrivals.start()
    timeline.run_until(START_S + 50 * DAY_S)
    assert len(told) == pytest.approx(50, rel=0.4)
    assert {code for code, _ in told} <= {*FAULTS}
    assert not [name for name in machines.names() if machines.faulty(name)]


# ---------------------------------------------------------------- many at once


def test_a_rack_without_power_goes_and_comes_back() -> None:
    timeline, ctld, machines = toy_fleet(4)
    power_loss(machines, ["n1", "n2"], START_S + 100, 600)
    timeline.run_until(START_S + 150)
    assert [machines.machine(name).powered for name in machines.names()] == [False, False, True, True]
    assert machines.trouble_until == START_S + 700
    timeline.run_until(START_S + 2000)
    assert all(machines.usable(name) for name in machines.names())
    assert ctld.words("n1") == ["silent", "registered 8"]
    assert ctld.words("n3") == []


def test_power_that_a_person_gives_in_between_does_not_bring_a_dark_rack_back() -> None:
    timeline, _, machines = toy_fleet(4)
    power_loss(machines, ["n1"], START_S + 100, 6000)
    timeline.run_until(START_S + 150)
    machines.replace_parts("n1")
    timeline.run_until(START_S + 3000)
    assert not machines.usable("n1")
    timeline.run_until(START_S + 7000)
    assert machines.usable("n1")


def test_a_leaf_switch_takes_the_network_and_gives_it_back() -> None:
    timeline, _, machines = toy_fleet(4)
    boots = [machines.machine(name).boot_id for name in machines.names()]
    switch_loss(machines, ["n2", "n3"], START_S + 100, 600)
    timeline.run_until(START_S + 150)
    assert [machines.responds(name) for name in machines.names()] == [True, False, False, True]
    timeline.run_until(START_S + 800)
    assert all(machines.usable(name) for name in machines.names())
    assert [machines.machine(name).boot_id for name in machines.names()] == boots


def test_a_rollout_breaks_a_share_within_its_time_and_a_second_one_mends_it() -> None:
    timeline, _, machines = toy_fleet(200)
    names = machines.names()
    broken = driver_rollout(machines, names, 0.2, at=START_S + 100, within_s=3600, mended_at=START_S + 9000)
    assert 25 < len(broken) < 55
    timeline.run_until(START_S + 1900)
    part = [name for name in names if machines.faulty(name)]
    assert 0.3 * len(broken) < len(part) < 0.7 * len(broken)
    timeline.run_until(START_S + 3800)
    assert tuple(name for name in names if machines.faulty(name)) == broken
    timeline.run_until(START_S + 9100)
    assert not [name for name in names if machines.faulty(name)]
    _, _, more = toy_fleet(300)
    assert set(broken) == set(driver_rollout(more, more.names(), 0.2, at=START_S + 100)) & set(names)
