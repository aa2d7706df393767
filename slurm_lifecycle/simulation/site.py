"""What is simulated: a site and a policy, read from TOML, checked once, as frozen values.

A policy file of the laboratory is a production `policy.toml` with one more table, `[simulate]`; without that
table it is the full ladder in act mode.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil
from pathlib import Path

from slurm_lifecycle.core.model import Rung
from slurm_lifecycle.core.policy import DAY_S, Mode, Policy
from slurm_lifecycle.errors import ConfigError
from slurm_lifecycle.service.config import RUNG_WORDS, policy_of, read_toml
from slurm_lifecycle.service.config_schema import checked, meant
from slurm_lifecycle.simulation.faults import KINDS
from slurm_lifecycle.simulation.site_schema import JobTable, SimulatedPolicy, SiteDescription
from slurm_lifecycle.simulation.slurmctld.release import RELEASES

SCENARIOS = Path(__file__).parent / "scenarios"
POLICIES = Path(__file__).parent / "policies"
# Rungs of the ladder that this release passes over: they are in the paths and have no effect yet.
WITHOUT_EFFECT = tuple(sorted(rung.value for rung in set(Rung) - Policy().effects))


@dataclass(frozen=True, slots=True)
class JobClass:
    """Jobs of one kind.

    Attributes:
        count: so many at any time; 0 where they arrive by `every_s`.
        every_s: mean time between two arrivals.
        nodes_min, nodes_max: it runs with what is free at its start, between these.
        run_time_s: mean, at full width; None runs as long as the simulation.
        checkpoint_s: work is safe at multiples of it.
        restart_s: from the start of an interrupted job to its first new step.
        resubmit_s: until its owner (or their script) submits it again where Slurm does not requeue it.
    """

    name: str
    count: int
    every_s: float
    nodes_min: int
    nodes_max: int
    run_time_s: float | None
    checkpoint_s: float
    restart_s: float
    resubmit_s: float
    requeue: bool
    time_limit_s: float
    priority: int
    partition: str


@dataclass(frozen=True, slots=True)
class CommonCause:
    """Something that strikes many nodes: `driver_rollout`, `power` or `switch` of a domain."""

    kind: str
    at_s: float
    share: float
    within_s: float
    domain: str
    lasts_s: float


@dataclass(frozen=True, slots=True)
class Failures:
    """How often nodes fail, per 1,000 node-days; by cause, after `scale` and overrides."""

    by_cause: Mapping[str, float]
    lemon_share: float
    lemon_factor: float
    false_alarms: float

    @property
    def per_1000_node_days(self) -> float:
        """All causes together, lemons not counted in."""
        return sum(self.by_cause.values())


@dataclass(frozen=True, slots=True)
class Site:
    """A whole site; all times in seconds but `days`."""

    name: str
    summary: str
    days: float
    nodes: int
    gpus_per_node: int
    nodes_per_domain: int
    partitions: Mapping[str, float]
    release: str
    resume_timeout_s: float
    slurmd_timeout_s: float
    return_to_service: int
    requeue_delay_s: float
    interval_s: float
    failures: Failures
    boot_s: float
    reimage_s: float
    rma_s: tuple[float, float]
    response_s: float
    work_s: float
    events: tuple[CommonCause, ...] = ()
    jobs: tuple[JobClass, ...] = ()

    def partition_sizes(self) -> Mapping[str, int]:
        """Nodes of each partition; every node is in one."""
        names, sizes, left = list(self.partitions), {}, self.nodes
        for name in names[:-1]:
            sizes[name] = min(left, max(1, round(self.nodes * self.partitions[name])))
            left -= sizes[name]
        sizes[names[-1]] = left
        return sizes


@dataclass(frozen=True, slots=True)
class SimPolicy:
    """A policy to try.

    Attributes:
        operator: a person takes every drained node in hand, and the daemon only watches.
        response_s: how long people take, where the policy says other than the site.
        standby_percent: nodes kept idle beside the fleet to take the place of one that is out.
    """

    name: str
    summary: str
    policy: Policy
    operator: bool = False
    response_s: float | None = None
    standby_percent: float = 0.0

    def standby_nodes(self, site: Site) -> int:
        """How many that is."""
        return ceil(site.nodes * self.standby_percent / 100)

    @property
    def passed_over(self) -> tuple[str, ...]:
        """Rungs that stand in its paths and have no effect in this release."""
        rungs = {rule.rung for path in self.policy.paths.values() for rule in path}
        return tuple(sorted(rung.value for rung in rungs - self.policy.effects))


# ---------------------------------------------------------------- what is shipped


def shipped(folder: Path) -> tuple[str, ...]:
    """Names of the scenarios or policies that come with the suite."""
    return tuple(sorted(path.stem for path in folder.glob("*.toml")))


def _find(word: str, folder: Path, what: str) -> Path:
    """The file meant: a shipped name, else a path."""
    if "/" not in word and not word.endswith(".toml"):
        known = shipped(folder)
        if word in known:
            return folder / f"{word}.toml"
        raise ConfigError(f"{what} {word!r}: no such name{meant(word, known)}, or give a path that holds a /")
    return Path(word)


# ---------------------------------------------------------------- a site


def load_site(word: str, history: Mapping[str, float] | None = None) -> Site:
    """A shipped scenario by name, or a site's own description by path.

    Args:
        word: a name of `shipped(SCENARIOS)`, or a path.
        history: failures per 1,000 node-days by cause, in place of the published ones.

    Raises:
        ConfigError: one line that names the file and the field.
    """
    path = _find(word, SCENARIOS, "scenario")
    tables: SiteDescription = checked(SiteDescription, read_toml(path, "name another"), path)
    partitions = dict(tables.partitions)
    _check_partitions(partitions, path)
    site = Site(
        name=path.stem,
        summary=tables.summary or f"{tables.nodes} nodes x {tables.gpus_per_node} GPUs",
        days=tables.days,
        nodes=tables.nodes,
        gpus_per_node=tables.gpus_per_node,
        nodes_per_domain=tables.nodes_per_domain,
        partitions=partitions,
        release=_release(tables.slurm.release, path),
        resume_timeout_s=tables.slurm.resume_timeout,
        slurmd_timeout_s=tables.slurm.slurmd_timeout,
        return_to_service=tables.slurm.return_to_service,
        requeue_delay_s=tables.slurm.requeue_delay,
        interval_s=tables.slurm.interval,
        failures=_failures(tables, path, history),
        boot_s=tables.repair.boot,
        reimage_s=tables.repair.reimage,
        rma_s=_rma(tables, path),
        response_s=tables.people.response,
        work_s=tables.people.work,
    )
    sizes = site.partition_sizes()
    if len(partitions) > site.nodes or min(sizes.values()) < 1:
        raise ConfigError(f"{path}: partitions: more of them than nodes; remove some")
    jobs = tuple(_job(one, index, tables, sizes, path) for index, one in enumerate(tables.jobs))
    _check_jobs(tables, path)
    return replace(site, jobs=jobs, events=tuple(_events(tables, site, path)))


def _check_partitions(partitions: Mapping[str, float], path: Path) -> None:
    total = sum(partitions.values())
    if not partitions or abs(total - 1.0) > 0.001:
        raise ConfigError(f"{path}: partitions: their shares add up to {total:g}; make that 1")


def _release(word: str, path: Path) -> str:
    if word not in RELEASES:
        raise ConfigError(f"{path}: slurm.release: unknown {word!r}{meant(word, sorted(RELEASES))}")
    return word


def _rma(tables: SiteDescription, path: Path) -> tuple[float, float]:
    least, most = tables.repair.rma_least, tables.repair.rma_most
    if least > most:
        raise ConfigError(
            f"{path}: repair.rma_least: {least / DAY_S:g} d is above rma_most = {most / DAY_S:g} d; "
            "lower it or raise rma_most"
        )
    return least, most


def published_rates() -> Mapping[str, float]:
    """Failures per 1,000 node-days by cause, as published for 2,048 nodes over 54 days."""
    return {kind.key: kind.per_1000_node_days for kind in KINDS.values()}


def _failures(tables: SiteDescription, path: Path, history: Mapping[str, float] | None) -> Failures:
    table = tables.failures
    rates = dict(published_rates() if history is None else history)
    if table.per_1000_node_days is not None:
        if history is not None:
            raise ConfigError(
                f"{path}: failures.per_1000_node_days: the rates come from the store; remove it"
            )
        total = sum(rates.values())
        rates = {key: rate * table.per_1000_node_days / total for key, rate in rates.items()}
    for key, rate in table.causes.items():
        if key not in KINDS:
            raise ConfigError(f"{path}: failures.causes.{key}: unknown cause{meant(key, sorted(KINDS))}")
        rates[key] = rate
    return Failures(
        by_cause={key: rate * table.scale for key, rate in rates.items()},
        lemon_share=table.lemon_percent / 100,
        lemon_factor=table.lemon_factor,
        false_alarms=table.false_alarms_per_1000_node_days,
    )


def domain_name(index: int) -> str:
    """The name of a failure domain, from 0."""
    return f"rack{index + 1:03d}"


def _events(tables: SiteDescription, site: Site, path: Path) -> Iterator[CommonCause]:
    domains = ceil(site.nodes / site.nodes_per_domain)
    known = {domain_name(index) for index in range(domains)}
    for index, one in enumerate(tables.events):
        key = f"{path}: events.{index}.domain"
        if one.kind == "driver_rollout":
            if one.domain:
                raise ConfigError(f"{key}: a driver rollout strikes the whole fleet; remove it")
        elif one.domain not in known:
            raise ConfigError(
                f"{key}: unknown {one.domain!r}; {domain_name(0)} to {domain_name(domains - 1)} are there"
            )
        yield CommonCause(one.kind, one.at, one.share, one.within, one.domain, one.lasts)


def _job(table: JobTable, index: int, site: SiteDescription, sizes: Mapping[str, int], path: Path) -> JobClass:
    key = f"{path}: jobs.{index}"
    least = table.nodes if table.nodes is not None else table.nodes_min
    most = table.nodes if table.nodes is not None else table.nodes_max
    assert least is not None
    assert most is not None
    partition = next(iter(sizes)) if table.partition is None else table.partition
    if partition not in sizes:
        raise ConfigError(f"{key}.partition: unknown {partition!r}{meant(partition, sorted(sizes))}")
    if least > sizes[partition]:
        word = "nodes" if table.nodes is not None else "nodes_min"
        raise ConfigError(
            f"{key}.{word}: {least} nodes, and partition {partition} has {sizes[partition]}; make it less"
        )
    limit = table.time_limit
    if limit is None:
        limit = 400 * DAY_S if table.run_time is None else max(3600.0, 3 * table.run_time)
    if table.run_time is not None and limit < table.run_time + table.restart:
        raise ConfigError(
            f"{key}.time_limit: shorter than run_time and restart together; lengthen it or shorten those"
        )
    return JobClass(
        name=table.name,
        count=table.count or 0,
        every_s=_arrivals(table, most, site.nodes),
        nodes_min=least,
        nodes_max=most,
        run_time_s=table.run_time,
        checkpoint_s=table.checkpoint_every,
        restart_s=table.restart,
        resubmit_s=table.resubmit_after,
        requeue=table.requeue,
        time_limit_s=limit,
        priority=table.priority,
        partition=partition,
    )


def _arrivals(table: JobTable, nodes: int, fleet: int) -> float:
    """Mean seconds between two arrivals; 0 where a number of them is always there."""
    if table.per_day is not None:
        return DAY_S / table.per_day
    if table.share is None:
        return 0.0
    assert table.run_time is not None
    return nodes * table.run_time / (table.share * fleet)


def _check_jobs(tables: SiteDescription, path: Path) -> None:
    names: Sequence[str] = [one.name for one in tables.jobs]
    for index, name in enumerate(names):
        if name in names[:index]:
            raise ConfigError(f"{path}: jobs.{index}.name: {name!r} is there twice; name it otherwise")
    share = sum(one.share or 0.0 for one in tables.jobs)
    if share > 1.0:
        raise ConfigError(f"{path}: jobs: their shares of the capacity add up to {share:g}; at most 1")
    starts = sum(
        tables.days * DAY_S / every for one in tables.jobs if (every := _arrivals(one, _most(one), tables.nodes))
    )
    if starts > 500_000:
        raise ConfigError(f"{path}: jobs: {starts:.0f} jobs would be started; make them fewer or longer")


def _most(table: JobTable) -> int:
    return table.nodes or table.nodes_max or 1


# ---------------------------------------------------------------- a policy


def load_policy(word: str) -> SimPolicy:
    """A shipped policy by name, or a `policy.toml` by path.

    Raises:
        ConfigError: one line that names the file and the field.
    """
    path = _find(word, POLICIES, "policy")
    tables: SimulatedPolicy = checked(SimulatedPolicy, read_toml(path, "name another"), path)
    simulate = tables.simulate
    rungs = RUNG_WORDS if simulate.rungs is None else tuple(simulate.rungs)
    for rung in rungs:
        if rung not in RUNG_WORDS:
            raise ConfigError(f"{path}: simulate.rungs: unknown {rung!r}{meant(rung, RUNG_WORDS)}")
    if simulate.operator and simulate.mode == "act":
        raise ConfigError(f'{path}: simulate.operator: a person and the daemon would both act; set mode = "observe"')
    policy = policy_of(tables, path)
    effects = policy.effects if simulate.reimage else policy.effects - {Rung.REIMAGE}
    return SimPolicy(
        name=path.stem,
        summary=simulate.summary or str(path),
        policy=replace(
            policy, mode=Mode(simulate.mode), partitions=("*",), rungs=frozenset(rungs), effects=effects
        ),
        operator=simulate.operator,
        response_s=simulate.response,
        standby_percent=simulate.standby_percent,
    )


def load_policies(words: Sequence[str]) -> tuple[SimPolicy, ...]:
    """Several, in the order asked for.

    Raises:
        ConfigError: one of them is wrong, or two have one name.
    """
    found = tuple(load_policy(word) for word in words)
    names = [one.name for one in found]
    for index, name in enumerate(names):
        if name in names[:index]:
            raise ConfigError(f"policy {name!r} is there twice; rename one of the files")
    return found


