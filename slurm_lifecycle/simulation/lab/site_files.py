"""A site's description in TOML, checked once; every mistake is one line that names the file and the field."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from math import ceil
from pathlib import Path

from slurm_lifecycle.core.policy import DAY_S
from slurm_lifecycle.errors import ConfigError
from slurm_lifecycle.service.config import read_toml
from slurm_lifecycle.service.config_schema import checked, meant
from slurm_lifecycle.simulation.lab.site import CommonCause, Failures, JobClass, Site
from slurm_lifecycle.simulation.lab.site_schema import JobTable, SiteDescription
from slurm_lifecycle.simulation.machines.faults import INTERRUPTIONS_DAYS, INTERRUPTIONS_NODES, KINDS
from slurm_lifecycle.simulation.slurmctld.release import RELEASES

SCENARIOS = Path(__file__).parent / "scenarios"


def shipped(folder: Path) -> tuple[str, ...]:
    """Names of the scenarios or policies that come with the suite."""
    return tuple(sorted(path.stem for path in folder.glob("*.toml")))


def find(word: str, folder: Path, what: str) -> Path:
    """The file meant: a shipped name, else a path."""
    if "/" not in word and not word.endswith(".toml"):
        known = shipped(folder)
        if word in known:
            return folder / f"{word}.toml"
        raise ConfigError(f"{what} {word!r}: no such name{meant(word, known)}, or give a path that holds a /")
    return Path(word)


def load_site(word: str, history: Mapping[str, float] | None = None) -> Site:
    """A shipped scenario by name, or a site's own description by path.

    Args:
        word: a name of `shipped(SCENARIOS)`, or a path.
        history: failures per 1,000 node-days by kind of fault, in place of the published ones.

    Raises:
        ConfigError: one line that names the file and the field.
    """
    return load_site_file(find(word, SCENARIOS, "scenario"), history)


def load_site_file(path: Path, history: Mapping[str, float] | None = None) -> Site:
    """The site that a file describes (see `load_site`)."""
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
    jobs = tuple(
        _job(one, f"{path}: jobs.{index}", site.nodes, sizes) for index, one in enumerate(tables.jobs)
    )
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
    """Failures per 1,000 node-days by kind of fault, as published for 2,048 nodes over 54 days."""
    node_days = INTERRUPTIONS_NODES * INTERRUPTIONS_DAYS
    return {kind.key: 1000 * kind.count / node_days for kind in KINDS.values() if kind.count}


def _kinds_of(word: str) -> tuple[str, ...]:
    """The kinds of fault that a word of `failures.causes` means: one by its key, or all of a cause."""
    return (word,) if word in KINDS else tuple(key for key, kind in KINDS.items() if kind.cause == word)


def _override(rates: dict[str, float], word: str, wanted: float, path: Path) -> None:
    """Set the rate of one kind, or of a cause, which its kinds share as before."""
    kinds = _kinds_of(word)
    if not kinds:
        known = sorted({*KINDS, *(kind.cause for kind in KINDS.values())})
        raise ConfigError(f"{path}: failures.causes.{word}: unknown cause{meant(word, known)}")
    now = sum(rates.get(key, 0.0) for key in kinds)
    for key in kinds:
        rates[key] = wanted * rates.get(key, 0.0) / now if now else wanted / len(kinds)


def _failures(tables: SiteDescription, path: Path, history: Mapping[str, float] | None) -> Failures:
    table = tables.failures
    rates = dict(published_rates() if history is None else history)
    if table.per_1000_node_days is not None:
        if history is not None:
            raise ConfigError(
                f"{path}: failures.per_1000_node_days: the rates come from the store; remove it"
            )
        total = sum(rates.values()) or 1.0
        rates = {key: rate * table.per_1000_node_days / total for key, rate in rates.items()}
    for word, wanted in table.causes.items():
        _override(rates, word, wanted, path)
    return Failures(
        by_kind={key: rate * table.scale for key, rate in rates.items()},
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
        if one.at >= tables.days * DAY_S:
            raise ConfigError(
                f"{path}: events.{index}.at: {one.at / DAY_S:g} d is not within days = {tables.days:g}; "
                "lengthen that or let it come earlier"
            )
        without = ("lasts",) if one.kind == "driver_rollout" else ("share", "within")
        for word in without:
            if word in one.model_fields_set:
                raise ConfigError(f"{path}: events.{index}.{word}: not for {one.kind}; remove it")
        key = f"{path}: events.{index}.domain"
        if one.kind == "driver_rollout":
            if one.domain:
                raise ConfigError(f"{key}: a driver rollout strikes the whole fleet; remove it")
        elif one.domain not in known:
            raise ConfigError(
                f"{key}: unknown {one.domain!r}; {domain_name(0)} to {domain_name(domains - 1)} are there"
            )
        yield CommonCause(one.kind, one.at, one.share, one.within, one.domain, one.lasts)


def _job(table: JobTable, key: str, fleet: int, sizes: Mapping[str, int]) -> JobClass:
    least = table.nodes if table.nodes is not None else table.nodes_min
    most = table.nodes if table.nodes is not None else table.nodes_max
    assert least is not None
    assert most is not None
    partition = next(iter(sizes)) if table.partition is None else table.partition
    if partition not in sizes:
        raise ConfigError(f"{key}.partition: unknown {partition!r}{meant(partition, sorted(sizes))}")
    # Nodes that are not there would count as waited for after every interruption.
    if most > sizes[partition]:
        word = "nodes" if table.nodes is not None else "nodes_max"
        raise ConfigError(
            f"{key}.{word}: {most} nodes, and partition {partition} has {sizes[partition]}; make it less"
        )
    limit = table.time_limit
    if limit is None:
        limit = 400 * DAY_S if table.run_time is None else max(3600.0, 3 * table.run_time)
    # Slurm's shortest limit is a minute; a job that never gets past its start would be tried for ever.
    if limit < (60.0 if table.run_time is None else table.run_time) + table.restart:
        least_s = "a minute" if table.run_time is None else "run_time"
        raise ConfigError(
            f"{key}.time_limit: shorter than {least_s} and restart together; lengthen it or shorten those"
        )
    return JobClass(
        name=table.name,
        count=table.count or 0,
        every_s=_arrivals(table, most, fleet),
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
    starts = sum(_starts(one, tables) for one in tables.jobs)
    if starts > 500_000:
        raise ConfigError(f"{path}: jobs: {starts:.0f} jobs would be started; make them fewer or longer")


def _starts(table: JobTable, tables: SiteDescription) -> float:
    """How many jobs of a kind are started: by arrivals, or one after another in what has room at once."""
    every = _arrivals(table, _most(table), tables.nodes)
    if every:
        return tables.days * DAY_S / every
    if table.count is None or table.run_time is None:
        return 0.0
    at_once = min(table.count, tables.nodes // (table.nodes or table.nodes_min or 1))
    return at_once * tables.days * DAY_S / (table.run_time + table.restart)


def _most(table: JobTable) -> int:
    return table.nodes or table.nodes_max or 1
