"""The real daemon with people around it: after weeks of trouble everything is back in service by itself."""

from collections import Counter
from pathlib import Path

import pytest

from slurm_lifecycle.core.model import Verb
from slurm_lifecycle.core.plan import Notice
from slurm_lifecycle.core.policy import Mode, Policy
from slurm_lifecycle.service.reconciler import TickResult
from slurm_lifecycle.service.without_bmc import WithoutBmc
from slurm_lifecycle.simulation.daemon import Outside, SimDaemon
from slurm_lifecycle.simulation.fleet import Fleet, FleetSettings
from slurm_lifecycle.simulation.machines.arrivals import (
    Arrivals,
    FaultRates,
    driver_rollout,
    power_loss,
    switch_loss,
)
from slurm_lifecycle.simulation.machines.faults import DAY_S, HOUR_S
from slurm_lifecycle.simulation.machines.hardware import MachineSettings
from slurm_lifecycle.simulation.people.admin import Admin, AdminSettings
from slurm_lifecycle.simulation.people.on_call import OnCall, OnCallSettings
from slurm_lifecycle.simulation.people.technician import Technician, TechnicianSettings
from slurm_lifecycle.simulation.people.toolbox import Toolbox
from slurm_lifecycle.simulation.slurmctld.settings import NodeSpec, SlurmConf
from slurm_lifecycle.simulation.ticking import Ticker
from slurm_lifecycle.simulation.timeline import Timeline

NODES = tuple(NodeSpec(f"n{number:02d}", domain=f"rack{number // 8}") for number in range(32))
DEEDS = (
    "drain",
    "undrain",
    "down",
    "take_over",
    "reserve",
    "hold",
    "remediate",
    "return",
    "reboot",
    "comment",
)


class Clock:
    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline

    def now(self) -> float:
        return self._timeline.now

    def sleep(self, seconds: float) -> None:
        raise AssertionError("nothing sleeps in virtual time")


class City:
    """A fleet, the daemon that acts on it, and all its people."""

    def __init__(self, release: str, folder: Path) -> None:
        machines = MachineSettings(boot_lost=0.03, boot_late=0.03)
        self.fleet = fleet = Fleet(FleetSettings(NODES, SlurmConf(release=release), machines), 3)
        self.timeline = fleet.timeline
        self.began = self.timeline.now
        policy = Policy(
            mode=Mode.ACT,
            partitions=("*",),
            rungs=frozenset({"drain", "return", "reboot", "reimage", "rma"}),
            domains={one.name: one.domain for one in NODES},
        )
        desk = fleet.desk
        outside = Outside(
            fleet.slurm, fleet.provisioner, WithoutBmc(), desk, desk, desk, Clock(self.timeline)
        )
        self.daemon = SimDaemon(outside, policy, folder)
        self.standing: tuple[Notice, ...] = ()
        self.ticker = Ticker(self.timeline, fleet.ctld, policy, self._tick)
        self.asked: Counter[str] = Counter()
        tools = Toolbox(fleet.machines, fleet.ctld, fleet.bmcs, self._ask)
        self.technician = Technician(tools, TechnicianSettings())
        on_call = OnCall(tools, self.technician, fleet.agents, OnCallSettings(), lambda: self.standing)
        desk.on_ticket.append(self.technician.on_ticket)
        desk.on_page.append(on_call.on_page)
        deeds = AdminSettings(per_1000_node_days=dict.fromkeys(DEEDS, 30.0))
        self.admin = Admin(tools, deeds, self.technician)
        self.arrivals = Arrivals(fleet.machines, FaultRates(scale=8.0, false_alarms_per_1000_node_days=2.0))
        self.arrivals.on_alarm.append(fleet.agents.false_alarm)

    def _tick(self) -> TickResult:
        result = self.daemon.tick()
        self.standing = result.plan.standing
        return result

    def _ask(self, verb: Verb, subject: str, actor: str, text: str) -> None:
        self.asked[f"{actor} {verb.value}"] += 1
        self.daemon.ask(verb, subject, actor, text, self.timeline.now)
        self.ticker.poke()

    def run_to_day(self, day: float) -> None:
        self.ticker.run_until(self.began + day * DAY_S)


@pytest.mark.parametrize("release", ["22.05", "25.11"])
def test_a_fleet_with_daemon_and_people_comes_to_rest(release: str, tmp_path: Path) -> None:
    city = City(release, tmp_path)
    machines, ctld = city.fleet.machines, city.fleet.ctld
    city.arrivals.start()
    city.admin.start()
    names = machines.names()
    power_loss(machines, names[:8], city.began + 3 * DAY_S, 2 * HOUR_S)
    switch_loss(machines, names[8:16], city.began + 5 * DAY_S, 2 * HOUR_S)
    driver_rollout(machines, names, 0.3, at=city.began + 8 * DAY_S)
    city.run_to_day(15)
    assert sum(city.arrivals.arrived.values()) > 5
    city.arrivals.stop()
    city.admin.stop()
    for day in range(20, 80, 5):
        city.run_to_day(day)
        if not city.technician.at_work and all(view.state == {"IDLE"} for view in ctld.views().values()):
            break
    assert {name: view for name, view in ctld.views().items() if view.state != {"IDLE"}} == {}
    assert [name for name in names if not machines.usable(name)] == []
    records = city.daemon.store.load(city.timeline.now)
    assert (dict(records.incidents), dict(records.fences), dict(records.holds)) == ({}, {}, {})
    assert city.standing == ()
    for who in ("oncall release", "oncall breaker_reset", "technician rma_close", "admin hold"):
        assert city.asked[who] > 0, city.asked
    city.daemon.close()
