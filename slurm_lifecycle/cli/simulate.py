"""`simulate`: what a policy would have cost, on a simulated fleet."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from errno import EPIPE
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from slurm_lifecycle.cli.context import CliContext
from slurm_lifecycle.cli.output import clean, emit_json, json_option, plain, table
from slurm_lifecycle.errors import ConfigError

if TYPE_CHECKING:
    from slurm_lifecycle.simulation.lab.history import History
    from slurm_lifecycle.simulation.lab.results import Study
    from slurm_lifecycle.simulation.lab.site import SimPolicy, Site
    from slurm_lifecycle.simulation.lab.study import Stop

MAX_DAYS, MAX_SEEDS, MAX_JOBS = 400.0, 1000, 256
# The largest scenario is 110,592 node-days a run; this is some hundreds of those.
MAX_NODE_DAYS = 50_000_000.0
# Above these a run takes hours, and no node is ever in service.
MAX_FAULTS = 5_000_000.0
DEFAULT_SCENARIO = "llama3-54d"
_KEPT_S = 180 * 86400.0


@click.command()
@click.option("--scenario", metavar="NAME", help=f"A shipped site (default: {DEFAULT_SCENARIO}).")
@click.option("--site", "site_file", metavar="FILE", help="Your own site's description.")
@click.option(
    "--policy",
    "policies",
    multiple=True,
    metavar="NAME|FILE",
    help="A shipped policy or a policy.toml; may be repeated (default: the four shipped ones).",
)
@click.option("--days", type=float, help="How long (default: what the site says).")
@click.option(
    "--seeds", default=1, show_default=True, type=click.IntRange(1, MAX_SEEDS), help="Runs a policy."
)
@click.option("--first-seed", default=1, show_default=True, type=click.IntRange(0, 1_000_000_000))
@click.option("--jobs", default=1, show_default=True, type=click.IntRange(1, MAX_JOBS), help="Processes.")
@json_option
@click.option("--html", "html_file", type=click.Path(path_type=Path), help="Write the report there.")
@click.option(
    "--rates-from-store", is_flag=True, help="Failure rates of your own store in place of published ones."
)
@click.option("--list", "listing", is_flag=True, help="Show the shipped sites and policies.")
@click.pass_context
def simulate(ctx: click.Context, /, **options: Any) -> None:
    """What would a policy have cost? Several policies side by side, on a simulated fleet.

    The real planner, reconciler, executor and store run over simulated nodes, jobs, faults and people; no
    real cluster is touched. The same seed brings the same faults to every policy. Ctrl-C shows what has
    ended so far, marked as partial (exit 130).
    """
    if options["listing"]:
        _list(options["as_json"])
        return
    context: CliContext = ctx.obj
    history = _history(context) if options["rates_from_store"] else None
    site, policies = _load(options, history)
    days = _days(options["days"], site)
    seeds = range(options["first_seed"], options["first_seed"] + options["seeds"])
    _check_size(site, policies, len(seeds), days)
    html_file: Path | None = options["html_file"]
    _check_folder()
    if html_file is not None:
        _check_writable(html_file, [options["site_file"], *options["policies"]])
    study, signalled = _run(site, policies, seeds, days, options["jobs"])
    # What the run came to is shown whatever becomes of the file.
    unwritten = "" if html_file is None else _write_html(study, html_file)
    try:
        _print(study, options["as_json"], None if unwritten else html_file)
    except OSError as error:
        if error.errno == EPIPE:
            raise
        raise ConfigError(f"the results cannot be printed: {error.strerror}") from None
    if unwritten:
        raise ConfigError(unwritten)
    if study.partial:
        _tell("simulate: stopped before the end: these figures are partial")
        ctx.exit(128 + (signalled or signal.SIGINT))


def _print(study: Study, as_json: bool, html_file: Path | None) -> None:
    if as_json:
        emit_json(_as_json(study))
        return
    _show(study)
    if html_file is not None:
        click.echo(f"\nreport: {clean(str(html_file))}")


def _tell(line: str) -> None:
    """On stderr; a run does not end because nobody can read how far it is."""
    with suppress(OSError):
        click.echo(line, err=True)


# ---------------------------------------------------------------- what is asked for


def _list(as_json: bool) -> None:
    from slurm_lifecycle.simulation.lab.policy_files import DEFAULT_POLICIES, POLICIES, load_policy
    from slurm_lifecycle.simulation.lab.site_files import SCENARIOS, load_site, shipped
    from slurm_lifecycle.simulation.lab.study import described

    sites = {name: load_site(name) for name in shipped(SCENARIOS)}
    policies = {name: load_policy(name) for name in DEFAULT_POLICIES}
    if as_json:
        emit_json(
            {
                "scenarios": {
                    name: {"days": one.days, "summary": one.summary} for name, one in sites.items()
                },
                "policies": {name: described(one) for name, one in policies.items()},
            }
        )
        return
    table(("SCENARIO", "DAYS", "WHAT"), [(name, f"{one.days:g}", one.summary) for name, one in sites.items()])
    click.echo()
    table(("POLICY", "WHAT"), [(name, described(one)) for name, one in policies.items()])
    click.echo(f"\nTo make your own, copy one: {SCENARIOS} and {POLICIES}")


def _load(options: dict[str, Any], history: History | None) -> tuple[Site, tuple[SimPolicy, ...]]:
    from slurm_lifecycle.simulation.lab.policy_files import DEFAULT_POLICIES, load_policies
    from slurm_lifecycle.simulation.lab.site_files import load_site, load_site_file

    if options["scenario"] is not None and options["site_file"] is not None:
        raise ConfigError("--scenario and --site: give one of them")
    rates = None if history is None else history.rates
    site_file: str | None = options["site_file"]
    if site_file is not None:
        site = load_site_file(Path(site_file), rates)
    else:
        scenario: str | None = options["scenario"]
        site = load_site(DEFAULT_SCENARIO if scenario is None else scenario, rates)
    return site, load_policies(options["policies"] or DEFAULT_POLICIES)


def _days(wanted: float | None, site: Site) -> float:
    days = site.days if wanted is None else wanted
    if not isfinite(days) or not 0 < days <= MAX_DAYS:
        raise ConfigError(f"--days: {days:.10g} is not between 0 and {MAX_DAYS:g}")
    return days


def _check_size(site: Site, policies: Sequence[SimPolicy], seeds: int, days: float) -> None:
    total = site.nodes * days * seeds * len(policies)
    if total > MAX_NODE_DAYS:
        raise ConfigError(
            f"{site.nodes} nodes x {days:g} days x {seeds * len(policies)} runs are {total:.2g} node-days; "
            f"at most {MAX_NODE_DAYS:.2g} are simulated at once, ask for fewer seeds or days"
        )
    _check_faults(site, total)


def _check_faults(site: Site, node_days: float) -> None:
    failures = site.failures
    faults = node_days / 1000 * (failures.per_1000_node_days + failures.false_alarms)
    if faults > MAX_FAULTS:
        raise ConfigError(
            f"{site.name}: failures: {faults:.2g} faults would come; at most {MAX_FAULTS:.2g} are simulated "
            "at once, lower the rates or ask for fewer seeds or days"
        )


def _history(context: CliContext) -> History:
    """The site's own rates, read from its store, which is opened to read only."""
    from slurm_lifecycle.simulation.lab.history import history_of

    with context.store() as store:
        incidents = store.incidents(limit=1_000_000)
        nodes, since, tick = len(store.node_statuses()), store.watched_since(), store.last_tick()
    opened = [one.opened_at for one in incidents]
    ended = max(opened, default=0.0) if tick is None else tick.at
    began = min(opened if since is None else [*opened, since], default=ended)
    history = history_of(incidents, nodes, max(began, ended - _KEPT_S), ended)
    rest = ", ".join(f"{code} {count}" for code, count in history.left_out.items())
    click.echo(
        f"rates from {history.counted} incidents in {history.node_days:,.0f} node-days"
        + (f"; no kind of fault stands for: {clean(rest)}" if rest else ""),
        err=True,
    )
    return history


# ---------------------------------------------------------------- the run


def _run(
    site: Site, policies: Sequence[SimPolicy], seeds: Sequence[int], days: float, jobs: int
) -> tuple[Study, int]:
    """The study, and the signal that ended it early, 0 for none."""
    from slurm_lifecycle.simulation.lab.study import Stop, run_study

    stop = Stop()
    with _stopping(stop) as signalled, _progress(policies, seeds) as tell:
        study = run_study(site, policies, seeds, days, jobs=jobs, on_progress=tell, stop=stop)
    return study, signalled[0] if signalled else 0


@contextmanager
def _stopping(stop: Stop) -> Iterator[list[int]]:
    """The first Ctrl-C asks the runs to end with what they have, the second ends at once."""
    signalled: list[int] = []

    def asked(number: int, _frame: object) -> None:
        signalled.append(number)
        if len(signalled) > 1:
            raise KeyboardInterrupt
        stop.now()

    kinds = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        # The terminal is gone; under nohup it may be.
        kinds.append(signal.SIGHUP)
    before = {kind: signal.signal(kind, asked) for kind in kinds}
    try:
        yield signalled
    finally:
        for kind, handler in before.items():
            signal.signal(kind, handler)


@contextmanager
def _progress(policies: Sequence[SimPolicy], seeds: Sequence[int]) -> Iterator[Callable[[int, float], None]]:
    """A bar on a terminal, a line for each run that ended elsewhere; both on stderr."""
    names = [f"{policy.name}, seed {seed}" for seed in seeds for policy in policies]
    shares = [0.0] * len(names)
    if sys.stderr is None or not sys.stderr.isatty():
        began = time.monotonic()

        def line(index: int, share: float) -> None:
            if share >= 1.0 > shares[index]:
                _tell(f"{time.monotonic() - began:6.1f} s  {clean(names[index])}: done")
            shares[index] = max(shares[index], share)

        yield line
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TaskProgressColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("simulating", total=float(len(names)))

        def drawn(index: int, share: float) -> None:
            shares[index] = max(shares[index], share)
            words = f"{clean(names[index])} ({sum(1 for one in shares if one >= 1.0)}/{len(names)} runs)"
            bar.update(task, completed=sum(shares), description=words)

        yield drawn


# ---------------------------------------------------------------- what came of it


def _show(study: Study) -> None:
    from slurm_lifecycle.simulation.report import words
    from slurm_lifecycle.simulation.report.figures import compare
    from slurm_lifecycle.simulation.report.table import comparison_table

    comparison = compare(study)
    click.echo(f"{clean(study.site)}: {clean(study.summary)}")
    missing = words.shortcomings(comparison, len(study.policies) * len(study.seeds))
    for said in missing:
        click.echo(f"PARTIAL: {said}")
    if not study.runs:
        click.echo("no run has ended")
        return
    rows: list[tuple[str, ...]] = []
    for section in comparison_table(comparison):
        rows.append((section.title.upper(), *("" for _ in comparison.contenders)))
        for line in section.lines:
            label = f"- {line.label}" if line.part else line.label
            rows.append((label, *(_with_range(one.text, one.range) for one in line.cells)))
    click.echo()
    table(("", *(one.name for one in comparison.contenders)), rows)
    headline, asides = words.answer(comparison)
    click.echo(f"\n{clean(' '.join((headline, *asides)))}")
    for name, what in study.policies.items():
        if "no effect in this release" in what:
            click.echo(f"{clean(name)}: {clean(what)}")


def _with_range(text: str, spread: str) -> str:
    return f"{text} ({spread})" if spread else text


def _as_json(study: Study) -> dict[str, object]:
    runs = [{**_object(plain(one)), "complete": one.complete} for one in study.runs]
    return {**_object(plain(study)), "runs": runs}


def _object(value: object) -> dict[str, object]:
    assert isinstance(value, dict)
    return value


def _check_folder() -> None:
    """The present folder may have been removed; processes cannot be started in it."""
    try:
        Path.cwd()
    except OSError:
        raise ConfigError("the present folder is not there any more; change to another") from None


def _check_writable(path: Path, inputs: Sequence[str | None]) -> None:
    """Before the run, not after an hour of it."""
    if str(path) == "-":
        raise ConfigError("--html -: the report is not printed; name a file")
    try:
        # Where a link leads is what is written.
        target = path.resolve()
        folder = target.parent
        if target.is_dir():
            raise ConfigError(f"--html {path}: that is a folder; name a file in it")
        if not folder.is_dir():
            raise ConfigError(f"--html {path}: no folder {folder}; make it first")
        if target.exists() and not target.is_file():
            raise ConfigError(f"--html {path}: not a plain file; name another")
        if any(one and target == Path(one).resolve() for one in inputs):
            raise ConfigError(f"--html {path}: that is read by this run; name another file")
        len_ok = len(os.fsencode(target.name)) <= os.pathconf(folder, "PC_NAME_MAX")
        writable = os.access(target if target.exists() else folder, os.W_OK)
    except (OSError, RuntimeError, ValueError) as error:
        raise ConfigError(f"--html {path}: cannot be written: {error}") from None
    if not (writable and len_ok):
        raise ConfigError(f"--html {path}: cannot be written; name another file")


def _write_html(study: Study, path: Path) -> str:
    """What went wrong, "" where it is written."""
    from slurm_lifecycle.simulation.report.page import render_report

    made_at = time.strftime("%Y-%m-%d %H:%M")
    try:
        path.write_text(render_report(study, made_at), encoding="utf-8")
    except OSError as error:
        return f"--html {path}: cannot be written: {error.strerror}"
    return ""
