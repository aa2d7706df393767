"""The configuration of the daemon and the CLI: TOML in, frozen values out.

Two files: the site's (`slurm-lifecycle.toml`: mode, partitions, rungs, and where things are) and the policy
(`policy.toml`: every limit and deadline; optional, its defaults suit a production site). Everything is
checked here once. An error is one line: file, key, what is wrong, what to put there.
"""

import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet, NodeSetException

from slurm_lifecycle.core.fault_catalog import FAULTS, FaultClass
from slurm_lifecycle.core.model import Rung
from slurm_lifecycle.core.policy import Budget, Cap, Mode, Policy, RungRule
from slurm_lifecycle.errors import ConfigError
from slurm_lifecycle.service.bmc_config import BmcConfig, load_bmcs, times_fit
from slurm_lifecycle.service.config_schema import PolicyFileTables, SiteFile, checked, meant

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

DEFAULT_POLICY_NAME = "policy.toml"
RUNG_WORDS = ("drain", "return", *(rung.value for rung in Rung))
_MAX_FILE_BYTES = 1 << 20
# A hostlist such as n[1-9999999] would fill the memory; Slurm's own MAX_SLURM_NODES is 65,536.
_MAX_DOMAIN_NODES = 65_536


# ---------------------------------------------------------------- what the rest of the suite sees


@dataclass(frozen=True, slots=True)
class SlurmSettings:
    """How Slurm is reached; `user` owns our reservations."""

    scontrol: str
    squeue: str
    user: str
    timeout_s: float


@dataclass(frozen=True, slots=True)
class DaemonSettings:
    """The daemon itself; `metrics_port` 0 is off, `log_format` is `json` or `text`."""

    interval_s: float
    metrics_port: int
    log_format: str


@dataclass(frozen=True, slots=True)
class ReimageSettings:
    """The site's reimage commands; `start` empty means that this site has none."""

    start: tuple[str, ...]
    poll: tuple[str, ...]
    abort: tuple[str, ...]
    image: str
    timeout_s: float


@dataclass(frozen=True, slots=True)
class Config:
    """The whole configuration, checked.

    Attributes:
        path: the site's file.
        policy_path: the policy's file, None where its defaults are in force.
        policy: what decisions follow, with the site's mode, partitions, rungs and domains in it.
        node_command: argument list with `{node}` in it; empty means that nodes are not reached.
    """

    path: Path
    policy_path: Path | None
    policy: Policy
    store_path: Path
    slurm: SlurmSettings
    daemon: DaemonSettings
    reimage: ReimageSettings
    bmc: BmcConfig | None
    rma_folder: Path
    rma_command: tuple[str, ...]
    notify_command: tuple[str, ...]
    node_command: tuple[str, ...]


def load_config(path: Path) -> Config:
    """Read and check the site's configuration and the policy beside it.

    Args:
        path: the site's file; `policy.toml` beside it is read where `[policy] file` names no other.

    Raises:
        ConfigError: one line; with more than one mistake the first, and how many more there are.
    """
    data = read_toml(path, "copy etc/slurm-lifecycle.toml there, or name another by --config")
    site = checked(SiteFile, data, path)
    policy_path = _policy_path(site, path)
    tables = PolicyFileTables()
    if policy_path is not None:
        tables = checked(PolicyFileTables, read_toml(policy_path, "or remove [policy] file"), policy_path)
    policy = policy_of(tables, policy_path or path)
    bmc = _bmcs(site, path)
    policy = _with_site(policy, site, bmc, path)
    times_fit(policy, policy_path or path)
    return Config(
        path=path,
        policy_path=policy_path,
        policy=policy,
        store_path=_absolute(site.store.path, path, "store.path"),
        slurm=SlurmSettings(**site.slurm.model_dump()),
        daemon=_daemon(site, policy, path),
        reimage=ReimageSettings(
            start=tuple(site.reimage.start),
            poll=tuple(site.reimage.poll),
            abort=tuple(site.reimage.abort),
            image=site.reimage.image,
            timeout_s=site.reimage.timeout_s,
        ),
        bmc=bmc,
        rma_folder=_absolute(site.rma.folder, path, "rma.folder"),
        rma_command=tuple(site.rma.command),
        notify_command=tuple(site.notify.command),
        node_command=_node_command(site.node_command.argv, path),
    )


def read_toml(path: Path, remedy: str) -> dict[str, Any]:
    """What a TOML file holds.

    Raises:
        ConfigError: one line; `remedy` says what to do where there is no such file.
    """
    try:
        # A pipe would be waited for, a device read for ever.
        if not path.is_file() and path.exists():
            raise ConfigError(f"{path}: not a plain file; {remedy}")
        with path.open("rb") as handle:
            content = handle.read(_MAX_FILE_BYTES + 1)
        if len(content) > _MAX_FILE_BYTES:
            raise ConfigError(f"{path}: larger than {_MAX_FILE_BYTES} bytes, which no configuration is")
        data: dict[str, Any] = tomllib.loads(content.decode("utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such file; {remedy}") from None
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}; {remedy}") from None
    except RecursionError:
        raise ConfigError(f"{path}: not valid TOML: brackets nested too deep") from None
    except ValueError as error:
        # Not TOML, not UTF-8, or a number with more digits than Python reads.
        raise ConfigError(f"{path}: not valid TOML: {' '.join(str(error).split())}") from None
    return data


def _policy_path(site: SiteFile, path: Path) -> Path | None:
    if site.policy.file:
        return _absolute(site.policy.file, path, "policy.file")
    beside = path.parent / DEFAULT_POLICY_NAME
    return beside if beside.exists() else None


def _absolute(text: str, path: Path, key: str) -> Path:
    if not text.startswith("/"):
        raise ConfigError(f"{path}: {key}: {text!r} is not an absolute path; begin it with /")
    return Path(text)


def _daemon(site: SiteFile, policy: Policy, path: Path) -> DaemonSettings:
    # Undrained, unfenced, seen twice, and one tick to spare.
    ticks, interval_s = 5, site.daemon.interval_s
    if policy.return_deadline_s < ticks * interval_s:
        raise ConfigError(
            f"{path}: daemon.interval_s: {interval_s:g} is too long: a return takes {ticks} ticks and has "
            f"deadlines.return = {policy.return_deadline_s:g} s; shorten it or lengthen that"
        )
    return DaemonSettings(**site.daemon.model_dump())


def _node_command(argv: Sequence[str], path: Path) -> tuple[str, ...]:
    if argv and not any("{node}" in word for word in argv):
        raise ConfigError(
            f"{path}: node_command.argv: no word holds {{node}}; put {{node}} where its name goes"
        )
    return tuple(argv)


def _bmcs(site: SiteFile, path: Path) -> BmcConfig | None:
    if not site.bmc.file:
        return None
    return load_bmcs(
        _absolute(site.bmc.file, path, "bmc.file"),
        _absolute(site.bmc.serials, path, "bmc.serials"),
        read=read_toml,
        expand=hostlist_nodes,
        threads=site.bmc.threads,
    )


def _with_site(policy: Policy, site: SiteFile, bmc: BmcConfig | None, path: Path) -> Policy:
    for word in site.rungs:
        if word not in RUNG_WORDS:
            raise ConfigError(f"{path}: rungs: unknown {word!r}{meant(word, RUNG_WORDS)}")
    effects = policy.effects - {Rung.REIMAGE}
    by_pxe = site.reimage.method == "pxe"
    if bmc is not None:
        effects |= {Rung.POWER}
    else:
        for named, wanted in (
            ("rungs: power", Rung.POWER.value in site.rungs),
            ("reimage.method: pxe", by_pxe),
        ):
            if wanted:
                raise ConfigError(f"{path}: {named} needs the nodes' BMCs; set [bmc] file, or take it out")
    if by_pxe:
        effects |= {Rung.REIMAGE}
    elif site.reimage.start:
        if not site.reimage.poll:
            raise ConfigError(
                f"{path}: reimage.poll: missing; name the command that prints running, done or failed"
            )
        effects |= {Rung.REIMAGE}
    elif Rung.REIMAGE.value in site.rungs:
        raise ConfigError(
            f"{path}: rungs: reimage needs [reimage] start and poll; set them or remove the rung"
        )
    return replace(
        policy,
        mode=Mode(site.mode),
        partitions=tuple(site.partitions),
        rungs=frozenset(site.rungs),
        effects=effects,
        domains=_domains(site.domains, path),
        image=site.reimage.image,
        bmc=frozenset() if bmc is None else bmc.recorded,
        reimage_by_pxe=by_pxe,
        image_marker=site.reimage.marker,
    )


def hostlist_nodes(hostlist: str, key: str) -> list[str]:
    """The nodes of a hostlist.

    Raises:
        ConfigError: it is none, or too large.
    """
    if _size_hint(hostlist) > _MAX_DOMAIN_NODES:
        raise ConfigError(f"{key}: {hostlist!r} is too large; name at most {_MAX_DOMAIN_NODES} nodes")
    try:
        nodes = NodeSet(hostlist, resolver=RESOLVER_NOGROUP)
    except NodeSetException as error:
        raise ConfigError(f'{key}: {hostlist!r} is no hostlist ({error}); write as "n[01-16]"') from None
    if not nodes:
        raise ConfigError(f'{key}: empty; name its nodes, as "n[01-16]", or remove the key')
    return list(nodes)


def _domains(hostlists: Mapping[str, str], path: Path) -> Mapping[str, str]:
    domains: dict[str, str] = {}
    for domain, hostlist in hostlists.items():
        key = f"{path}: domains.{domain}"
        for node in hostlist_nodes(hostlist, key):
            if domains.setdefault(node, domain) != domain:
                raise ConfigError(f"{key}: {node} is in {domains[node]!r} as well; a node has one domain")
    return domains


def _size_hint(hostlist: str) -> int:
    """How many nodes a hostlist may hold, at most, without expanding it."""
    total = 1
    for inside in re.findall(r"\[([^\]]*)\]", hostlist):
        total *= 1 + inside.count(",") + sum(int(b[:9]) for b in re.findall(r"-(\d+)", inside))
    return total


def _given(**values: Any) -> dict[str, Any]:
    """Only what the file sets, so that `core.policy` alone knows the defaults."""
    return {name: value for name, value in values.items() if value is not None}


def policy_of(tables: PolicyFileTables, path: Path) -> Policy:
    """The policy that a checked policy file makes, without what the site's file adds to it.

    Raises:
        ConfigError: one line that names the file and the key.
    """
    defaults = Policy()
    breaker = replace(
        defaults.breaker,
        **_given(
            window_s=tables.breaker.window,
            percent=tables.breaker.percent,
            least=tables.breaker.least,
            most=tables.breaker.most,
        ),
    )
    if breaker.least > breaker.most:
        raise ConfigError(
            f"{path}: breaker.least: {breaker.least} is above most = {breaker.most}; lower it or raise most"
        )
    machine = replace(defaults.machine, **_given(**_machine(tables)))
    given = _given(
        power_at_once=tables.power.at_once,
        fleet_out_percent=tables.budget.out_percent,
        fleet_working_percent=tables.budget.working_percent,
        adopt_slurm=tables.adopt.slurm,
        adopt_after_s=tables.adopt.after,
        drain_deadline_s=tables.deadlines.drain,
        verify_deadline_s=tables.deadlines.verify,
        verify_settle_s=tables.deadlines.verify_settle,
        return_deadline_s=tables.deadlines.return_,
        retry_after_s=tables.deadlines.retry_after,
        page_busy_after_s=tables.deadlines.page_busy_after,
        relapse_window_s=tables.relapse.window,
        lemon_7d=tables.relapse.lemon_7d,
        lemon_28d=tables.relapse.lemon_28d,
        fence_days=tables.fence.days,
    )
    return replace(
        defaults,
        paths={**defaults.paths, **dict(_paths(tables, path))},
        caps={**defaults.caps, **dict(_caps(tables, path))},
        fleet=Budget(tables.budget.max_out, tables.budget.max_working),
        partition_budgets={n: Budget(b.max_out, b.max_working) for n, b in tables.budget.partition.items()},
        domain_budgets={n: Budget(b.max_out, b.max_working) for n, b in tables.budget.domain.items()},
        breaker=breaker,
        machine=machine,
        ac_cycle_codes=_codes(tables.power.ac_cycle, f"{path}: power.ac_cycle"),
        adopt_tools=tuple(tables.adopt.tools),
        **given,
    )


def _machine(tables: PolicyFileTables) -> dict[str, float | None]:
    return {f"{name}_s": value for name, value in tables.machine.model_dump().items()}


def _codes(codes: Sequence[str], key: str) -> frozenset[str]:
    for code in codes:
        if code not in FAULTS:
            raise ConfigError(f"{key}: unknown code{meant(code, tuple(FAULTS))}")
    return frozenset(codes)


def _paths(tables: PolicyFileTables, path: Path) -> Iterator[tuple[FaultClass, tuple[RungRule, ...]]]:
    classes = tuple(known.value for known in FaultClass)
    for name, places in tables.paths.items():
        if name not in classes:
            raise ConfigError(f"{path}: paths.{name}: unknown fault class{meant(name, classes)}")
        if not places:
            raise ConfigError(f"{path}: paths.{name}: empty; name at least one rung, or remove the key")
        yield (
            FaultClass(name),
            tuple(
                RungRule(_rung(place.rung, path, f"paths.{name}"), place.attempts, place.deadline)
                for place in places
            ),
        )


def _caps(tables: PolicyFileTables, path: Path) -> Iterator[tuple[Rung, tuple[Cap, ...]]]:
    for name, caps in tables.caps.items():
        yield _rung(name, path, f"caps.{name}"), tuple(Cap(cap.count, cap.within) for cap in caps)


def _rung(word: str, path: Path, key: str) -> Rung:
    rungs = tuple(rung.value for rung in Rung)
    if word not in rungs:
        raise ConfigError(f"{path}: {key}: unknown rung {word!r}{meant(word, rungs)}")
    return Rung(word)
