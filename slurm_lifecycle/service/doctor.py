"""Gathers what `doctor` judges: slurmctld's configuration and clock, our rights, hooks, store, BMCs."""

import os
import pwd
import re
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path

from slurm_lifecycle.core.model import NodeView
from slurm_lifecycle.core.preconditions import judge
from slurm_lifecycle.core.site_facts import (
    BmcFacts,
    Precondition,
    Program,
    SiteFacts,
    programs_named,
    value,
    words,
)
from slurm_lifecycle.errors import BackendError, ConfigError, LifecycleError
from slurm_lifecycle.ports import Slurm
from slurm_lifecycle.service.bmc_config import BmcConfig
from slurm_lifecycle.service.config import Config, hostlist_nodes

_MAX_SCRIPT_BYTES = 1 << 16
# What every one of our hooks has in its text (its run folder), and what a site's own has that calls one.
_OURS = b"slurm-lifecycle"
_HOOK_CALL = re.compile(rb"/[^\s'\";|&]+/(?:prolog|epilog|healthcheck)\.sh")
_MAX_CALLS = 10
# A site has a handful; each may be a command that is waited for.
_MAX_SOURCES = 20
# What commas part outside of brackets.
_HOSTLIST_PART = re.compile(r"(?:[^,\[]|\[[^\]]*\])+")


def examine(config: Config, slurm: Slurm, open_store: Callable[[], object]) -> tuple[Precondition, ...]:
    """Gather and judge.

    Args:
        config: the site's configuration.
        slurm: the cluster.
        open_store: opens the store to write, or raises.

    Raises:
        TransientError: slurmctld's configuration could not be read, without which nothing can be said.
    """
    settings = slurm.config()
    user, nodes = _user(), _nodes(slurm)
    facts = SiteFacts(
        config=settings,
        nodes=nodes,
        user=user,
        admin_level=_admin_level(user, settings, config.slurm.timeout_s),
        clock_skew_s=_clock_skew_s(config),
        federation=_federation(config),
        programs={path: _program(path) for path in programs_named(settings)},
        store_problem=_store_problem(config.store_path, open_store),
        bmcs=_bmcs(config.bmc, settings, nodes),
    )
    return judge(facts, config.policy)


def _user() -> str:
    """Who we are to Slurm: by the effective uid, since USER and LOGNAME say anything."""
    uid = os.geteuid()
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _nodes(slurm: Slurm) -> Mapping[str, NodeView] | None:
    try:
        return slurm.nodes()
    except BackendError:
        return None


def _bmcs(
    bmcs: BmcConfig | None, settings: Mapping[str, str], nodes: Mapping[str, NodeView] | None
) -> BmcFacts | None:
    if bmcs is None:
        return None
    return BmcFacts(
        nodes=frozenset(bmcs.entries),
        secret_problems=tuple(_secret_problems(bmcs)),
        suspendable=_suspendable(frozenset(bmcs.entries), settings, nodes),
    )


def _secret_problems(bmcs: BmcConfig) -> Iterator[str]:
    """One line for each source of names and passwords that gives none; a vault is asked for one node only."""
    one_of_each = {one.source: one for one in bmcs.entries.values()}
    for entry in list(one_of_each.values())[:_MAX_SOURCES]:
        try:
            entry.secret()
        except ConfigError as error:
            yield str(error)


def _suspendable(
    ours: frozenset[str], settings: Mapping[str, str], nodes: Mapping[str, NodeView] | None
) -> frozenset[str] | None:
    """Those that Slurm's power saving is not told to leave alone; None where that cannot be read."""
    excepted: set[str] = set()
    text = value(settings, "SuspendExcNodes")
    if text.count("[") != text.count("]"):
        return None
    for part in _HOSTLIST_PART.findall(text):
        # `n[1-8]:2` keeps any two of them up.
        if ":" not in part:
            try:
                excepted.update(hostlist_nodes(part.strip(), "SuspendExcNodes"))
            except ConfigError:
                return None
    partitions = words(settings, "SuspendExcParts")
    if partitions and nodes is None:
        return None
    for name, view in (nodes or {}).items():
        if any(one.lower() in partitions for one in view.partitions):
            excepted.add(name)
    return ours - excepted


def _ask(argv: Sequence[str], timeout_s: float) -> str | None:
    """What a client command of Slurm prints; None when it could not be asked."""
    env = {**os.environ, "TZ": "UTC", "LC_ALL": "C", "SLURM_TIME_FORMAT": "standard"}
    try:
        done = subprocess.run(
            argv, capture_output=True, timeout=timeout_s, env=env, stdin=subprocess.DEVNULL, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.decode("utf-8", "replace") if done.returncode == 0 else None


def _admin_level(user: str, settings: Mapping[str, str], timeout_s: float) -> str | None:
    if "slurmdbd" not in value(settings, "AccountingStorageType"):
        return ""
    argv = ("sacctmgr", "-n", "-P", "show", "user", user, "format=AdminLevel")
    told = _ask(argv, timeout_s)
    return told.strip() if told is not None else None


def _federation(config: Config) -> str | None:
    told = _ask((config.slurm.scontrol, "show", "federation"), config.slurm.timeout_s)
    if told is None:
        return None
    head = told.partition("\n")[0]
    return head.removeprefix("Federation:").strip() if head.startswith("Federation:") else ""


def _clock_skew_s(config: Config) -> float | None:
    """slurmctld's clock minus ours: it stamps each answer about its configuration with its own time."""
    before = time.time()
    told = _ask((config.slurm.scontrol, "show", "config"), config.slurm.timeout_s)
    after = time.time()
    return None if told is None else skew_s(told, before, after)


def skew_s(config_text: str, before: float, after: float) -> float | None:
    """How far the time in the answer's first line lies outside the time of asking; None where it has none."""
    stamp = config_text.partition("\n")[0].removeprefix("Configuration data as of ").strip()
    try:
        told = datetime.strptime(stamp, "%Y-%m-%dT%H:%M:%S").replace(tzinfo=timezone.utc).timestamp()
    except ValueError:
        return None
    # The stamp is cut to whole seconds.
    return told - after if told > after else min(told + 1.0 - before, 0.0)


def _program(path: str) -> Program:
    """What is seen here of a program; a pattern stands for all files that match it."""
    folder, _, pattern = path.rpartition("/")
    try:
        found = sorted(Path(folder or "/").glob(pattern)) if set("*?[") & set(pattern) else [Path(path)]
        files = [file for file in found if file.is_file()]
        if not files:
            return Program()
        executable = all(os.access(file, os.X_OK) for file in files)
        return Program(executable, any(_is_ours(file) for file in files))
    except OSError:
        return Program()


def _is_ours(file: Path) -> bool:
    """Whether a program is our hook, or is a script that calls one."""
    text = _head(file)
    called = (Path(word.decode("utf-8", "replace")) for word in _HOOK_CALL.findall(text)[:_MAX_CALLS])
    return _OURS in text or any(other.is_file() and _OURS in _head(other) for other in called)


def _head(file: Path) -> bytes:
    with file.open("rb") as stream:
        return stream.read(_MAX_SCRIPT_BYTES)


def _store_problem(path: Path, open_store: Callable[[], object]) -> str:
    if not path.exists():
        # The daemon makes the store, and its folder, when it starts.
        nearest = next(parent for parent in path.parents if parent.is_dir())
        return "" if os.access(nearest, os.W_OK) else f"{path} is missing and {nearest} cannot be written"
    try:
        close = getattr(open_store(), "close", None)
    except LifecycleError as error:
        return str(error)
    if callable(close):
        close()
    return "" if os.access(path, os.W_OK) else f"{path} cannot be written by this user"
