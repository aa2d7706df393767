"""The policy laboratory: one site, one policy, one seed, and what it came to.

The real planner, reconciler, executor and store run over a simulated fleet with its jobs and its people. Only
a temporary folder is written, and nothing outside the process is asked.
"""

import os
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from math import ceil
from pathlib import Path

from slurm_lifecycle.core.model import Verb
from slurm_lifecycle.core.plan import Notice
from slurm_lifecycle.core.policy import DAY_S, Mode, Policy
from slurm_lifecycle.service.daemon import SystemClock
from slurm_lifecycle.service.reconciler import TickResult
from slurm_lifecycle.simulation.daemon import Outside, SimDaemon
from slurm_lifecycle.simulation.fleet import Fleet, FleetSettings
from slurm_lifecycle.simulation.lab.accounts import Accounts
from slurm_lifecycle.simulation.lab.results import RunResult
from slurm_lifecycle.simulation.lab.site import CommonCause, SimPolicy, Site
from slurm_lifecycle.simulation.lab.site_files import domain_name
from slurm_lifecycle.simulation.lab.standby import Standby
from slurm_lifecycle.simulation.lab.workload import Workload
from slurm_lifecycle.simulation.machines.arrivals import (
    Arrivals,
    FaultRates,
    driver_rollout,
    power_loss,
    switch_loss,
)
from slurm_lifecycle.simulation.machines.hardware import MachineSettings
from slurm_lifecycle.simulation.machines.provisioner import ProvisionerSettings
from slurm_lifecycle.simulation.people.admin import Admin, AdminSettings
from slurm_lifecycle.simulation.people.manual import Operator, OperatorSettings
from slurm_lifecycle.simulation.people.on_call import OnCall, OnCallSettings
from slurm_lifecycle.simulation.people.technician import Technician, TechnicianSettings
from slurm_lifecycle.simulation.people.toolbox import Toolbox
from slurm_lifecycle.simulation.slurmctld.settings import NodeSpec, SlurmConf
from slurm_lifecycle.simulation.ticking import Ticker

HOUR_S = 3600.0
# Between two looks at whether to go on: some tenths of a second of real time.
_SLICE_S = 6 * HOUR_S
# The store is written thousands of times; on a tmpfs that costs no disk.
_TMPFS = Path("/dev/shm")


def node_specs(site: Site, standby: int) -> tuple[NodeSpec, ...]:
    """The nodes of a site, those of the standby after them in racks of their own."""
    partitions = [name for name, size in site.partition_sizes().items() for _ in range(size)]
    extra = _standby_by_partition(site, standby)
    partitions += [name for name, count in extra.items() for _ in range(count)]
    width = max(4, len(str(len(partitions))))
    racks = ceil(site.nodes / site.nodes_per_domain)
    specs = []
    for index, partition in enumerate(partitions):
        beside = index - site.nodes
        rack = index // site.nodes_per_domain if beside < 0 else racks + beside // site.nodes_per_domain
        name = f"n{index + 1:0{width}d}"
        specs.append(NodeSpec(name, (partition,), site.gpus_per_node, domain_name(rack)))
    return tuple(specs)


def _standby_by_partition(site: Site, standby: int) -> dict[str, int]:
    """As many for each partition as its share of the nodes; what is left over goes to the largest."""
    sizes = site.partition_sizes()
    counts = {name: standby * size // site.nodes for name, size in sizes.items()}
    counts[max(sizes, key=lambda name: sizes[name])] += standby - sum(counts.values())
    return counts


class Lab:
    """One run in the making. `advance` lets time pass, `result` closes the books.

    Args:
        folder: where the daemon's store lies.
        leave_out: False ticks at every interval, as a daemon on a cluster does.
    """

    def __init__(
        self, site: Site, policy: SimPolicy, seed: int, folder: Path, *, leave_out: bool = True
    ) -> None:
        """Puts everything together and lets it begin."""
        self.site = site
        self.policy = policy
        self.seed = seed
        standby = policy.standby_nodes(site)
        specs = node_specs(site, standby)
        self.nodes = len(specs)
        self.fleet = Fleet(_fleet_settings(site, specs), seed)
        self.timeline = self.fleet.timeline
        self.began = self.timeline.now
        self._people(site, policy)
        self.accounts = Accounts(
            self.timeline,
            self.fleet.ctld,
            self.fleet.machines,
            acting=policy.policy.mode is Mode.ACT,
            in_persons_hands=self._in_hands,
        )
        self.workload = Workload(
            self.timeline,
            self.fleet.ctld,
            site.jobs,
            site.gpus_per_node,
            seed,
            blame=self.accounts.cause_among,
        )
        self.fleet.machines.strikes.on_strike.append(
            lambda job_id, fault: self.workload.struck(job_id, fault.kind.cause)
        )
        rules = _with_domains(policy.policy, specs)
        self.daemon = SimDaemon(self._outside(), rules, folder)
        self.ticker = Ticker(
            self.timeline,
            self.fleet.ctld,
            rules,
            self._tick,
            interval_s=site.interval_s,
            leave_out=leave_out,
        )
        self._standing: tuple[Notice, ...] = ()
        self._begin(specs, standby)

    # ------------------------------------------------------------ putting together

    def _people(self, site: Site, policy: SimPolicy) -> None:
        fleet, response_s = self.fleet, policy.response_s or site.response_s
        tools = Toolbox(fleet.machines, fleet.ctld, fleet.bmcs, self._ask)
        self.technician = Technician(tools, TechnicianSettings(rma_s=site.rma_s))
        self.technician.on_take.append(self._looked)
        self.admin = Admin(tools, AdminSettings(), self.technician)
        self.operator: Operator | None = None
        if policy.operator:
            settings = OperatorSettings(response_s, site.work_s, reinstall_s=site.reimage_s)
            self.operator = Operator(tools, self.technician, settings)
            self.operator.on_phase.append(self._looked)
            self.operator.on_action.append(self._by_hand)
            return
        calls = OnCallSettings(response_s=response_s, work_s=site.work_s, reinstall_s=site.reimage_s)
        on_call = OnCall(tools, self.technician, fleet.agents, calls, lambda: self._standing)
        fleet.desk.on_ticket.append(self.technician.on_ticket)
        fleet.desk.on_page.append(on_call.on_page)
        fleet.desk.on_page.append(lambda notice: self.accounts.paged())  # noqa: ARG005

    def _outside(self) -> Outside:
        fleet = self.fleet
        return Outside(
            slurm=fleet.slurm,
            provisioner=fleet.provisioner,
            bmc=fleet.bmc,
            tickets=fleet.desk,
            notifier=fleet.desk,
            node_command=fleet.desk,
            clock=SystemClock(wall=self._now, monotonic=self._now),
        )

    def _begin(self, specs: Sequence[NodeSpec], standby: int) -> None:
        fleet, site = self.fleet, self.site
        arrivals = Arrivals(fleet.machines, _rates(site))
        arrivals.on_alarm.append(fleet.agents.false_alarm)
        arrivals.start()
        for event in site.events:
            _common_cause(fleet, event, self.began)
        self.standby = [
            Standby(
                self.timeline,
                fleet.ctld,
                partition,
                [one.name for one in specs if partition in one.partitions],
                count,
            )
            for partition, count in _standby_by_partition(site, standby).items()
            if count
        ]
        self.workload.begin()

    # ------------------------------------------------------------ while it runs

    def _now(self) -> float:
        return self.timeline.now

    def _tick(self) -> TickResult:
        result = self.daemon.tick()
        self._standing = result.plan.standing
        self.accounts.ticked(result)
        return result

    def _ask(self, verb: Verb, subject: str, actor: str, text: str) -> None:
        if self.operator is None:
            self.daemon.ask(verb, subject, actor, text, self.timeline.now)
            self.ticker.poke()

    def _by_hand(self, action: str, node: str) -> None:
        del node
        self.accounts.acted(f"{action} by hand")

    def _looked(self, node: str) -> None:
        self.accounts.look(node)

    def _in_hands(self, node: str) -> str:
        """What a person does about a node, "" for nothing."""
        if self.operator is not None and (phase := self.operator.phase(node)):
            return phase
        if node in self.technician.at_work:
            return "rma"
        return "person" if node in self.admin.in_hands else ""

    def advance(self, until_s: float) -> None:
        """Let time pass until so many seconds after the begin."""
        self.ticker.run_until(self.began + until_s)

    def result(self, days_wanted: float, wall_s: float) -> RunResult:
        """What it came to by now; the run is over with that."""
        days = (self.timeline.now - self.began) / DAY_S
        self.workload.close()
        books = self.workload.books
        if self.operator is not None:
            self.accounts.pages += self.operator.cases
        idle_s = sum(one.idle_node_s() for one in self.standby)
        return self.accounts.result(
            RunResult(
                policy=self.policy.name,
                seed=self.seed,
                days=days_wanted if days > days_wanted - 1e-6 else days,
                days_wanted=days_wanted,
                nodes=self.nodes,
                gpus_per_node=self.site.gpus_per_node,
                interruptions=dict(sorted(books.interruptions.items())),
                lost_gpu_hours={key: value / HOUR_S for key, value in books.lost.items()},
                lost_gpu_hours_by_cause={
                    key: value / HOUR_S for key, value in sorted(books.lost_by_cause.items())
                },
                useful_gpu_hours=books.useful / HOUR_S,
                standby_gpu_hours=idle_s * self.site.gpus_per_node / HOUR_S,
                ticks=self.ticker.ticks,
                events=self.timeline.done,
                wall_s=wall_s,
            )
        )

    def close(self) -> None:
        """Let the store go."""
        self.daemon.close()


def _fleet_settings(site: Site, specs: tuple[NodeSpec, ...]) -> FleetSettings:
    return FleetSettings(
        nodes=specs,
        slurm=SlurmConf(
            release=site.release,
            resume_timeout_s=site.resume_timeout_s,
            slurmd_timeout_s=site.slurmd_timeout_s,
            return_to_service=site.return_to_service,
            requeue_delay_s=site.requeue_delay_s,
        ),
        machines=MachineSettings(boot_s=site.boot_s),
        provisioner=ProvisionerSettings(takes_s=site.reimage_s),
    )


def _with_domains(policy: Policy, specs: Sequence[NodeSpec]) -> Policy:
    return replace(policy, domains={one.name: one.domain for one in specs})


def _rates(site: Site) -> FaultRates:
    failures = site.failures
    return FaultRates(
        by_kind=failures.by_kind,
        lemon_share=failures.lemon_share,
        lemon_factor=failures.lemon_factor,
        false_alarms_per_1000_node_days=failures.false_alarms,
    )


def _common_cause(fleet: Fleet, event: CommonCause, began: float) -> None:
    machines, at = fleet.machines, began + event.at_s
    if event.kind == "driver_rollout":
        driver_rollout(machines, machines.names(), event.share, at=at, within_s=event.within_s)
        return
    nodes = [name for name in machines.names() if machines.machine(name).domain == event.domain]
    strike = power_loss if event.kind == "power" else switch_loss
    strike(machines, nodes, at, event.lasts_s)


def run_one(
    site: Site,
    policy: SimPolicy,
    seed: int,
    days: float,
    *,
    on_progress: Callable[[float], None] | None = None,
    stopped: Callable[[], bool] | None = None,
) -> RunResult:
    """One run.

    Args:
        site: what is simulated.
        policy: how it is run.
        seed: the same seed brings the same faults and the same jobs to every policy.
        days: how long.
        on_progress: told now and then how much is done, 0 to 1.
        stopped: asked now and then; True ends the run with what it has.

    Returns:
        Its books; `complete` says whether it ran to its end.
    """
    began = time.monotonic()
    place = _TMPFS if os.access(_TMPFS, os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="slurm-lifecycle-simulate-", dir=place) as folder:
        lab = Lab(site, policy, seed, Path(folder))
        try:
            done_s, end_s = 0.0, days * DAY_S
            while done_s < end_s and not (stopped is not None and stopped()):
                done_s = min(end_s, done_s + _SLICE_S)
                lab.advance(done_s)
                if on_progress is not None:
                    on_progress(done_s / end_s)
            return lab.result(days, time.monotonic() - began)
        finally:
            lab.close()
