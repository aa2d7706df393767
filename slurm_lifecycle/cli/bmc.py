"""`bmc`: what the BMCs say, and which machine is which. Switching power is the daemon's alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from slurm_lifecycle.cli.context import CliContext
from slurm_lifecycle.cli.node import name_argument
from slurm_lifecycle.cli.output import clean, emit_json, json_option, table

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from slurm_lifecycle.core.machine import BootOverride, MachineReading
    from slurm_lifecycle.core.model import Finding
    from slurm_lifecycle.service.bmc_config import BmcConfig, BmcEntry
    from slurm_lifecycle.service.bmc_record import Row

_OUT_OF_BAND = ("OOB_", "BMC_")


@click.group()
def bmc() -> None:
    """The nodes' BMCs: list, show, check, record. None of these switches power."""


def _bmcs(context: CliContext) -> BmcConfig:
    from slurm_lifecycle.errors import ConfigError

    found = context.config().bmc
    if found is None:
        raise ConfigError(f"{context.config_path}: no BMC is configured: set [bmc] file (see etc/bmc.toml)")
    return found


def _chosen(bmcs: BmcConfig, hostlists: Sequence[str]) -> list[str]:
    """The nodes that a person named, or all.

    Raises:
        ConfigError: not a hostlist, or a node without a BMC.
    """
    from slurm_lifecycle.errors import ConfigError
    from slurm_lifecycle.service.config import hostlist_nodes

    if not hostlists:
        return list(bmcs.entries)
    nodes = list(dict.fromkeys(node for one in hostlists for node in hostlist_nodes(one, "NODE")))
    strange = [node for node in nodes if node not in bmcs.entries]
    if strange:
        raise ConfigError(f"{bmcs.path}: no BMC of {' '.join(strange[:5])}: name it in a group")
    return nodes


def _read(bmcs: BmcConfig, nodes: Collection[str], **how: bool) -> dict[str, MachineReading]:
    from slurm_lifecycle.cli.bmc_asking import longest_s, read_bmcs

    return read_bmcs(bmcs, nodes, longest_s(len(nodes), bmcs.threads), **how)


def _exit_code(readings: Collection[MachineReading], problems: bool) -> int:
    from slurm_lifecycle.cli.bmc_asking import UNREACHED

    if readings and all(one.problem in UNREACHED for one in readings):
        return 3
    return 1 if problems else 0


def _problem(reading: MachineReading, entry: BmcEntry) -> str:
    """What a person has to mend, "" for nothing."""
    from slurm_lifecycle.core.machine import BmcProblem, PowerState

    if reading.problem is not BmcProblem.NONE:
        return reading.detail
    if reading.power is PowerState.UNKNOWN:
        return f"BMC {entry.address} of {reading.node}: tells a power state that is none of Redfish's"
    if not entry.serial:
        return f"no serial number of {reading.node} is on record: `slurm-lifecycle bmc record {reading.node}`"
    return ""


# ---------------------------------------------------------------- list, check


@bmc.command(name="list")
@click.argument("hostlists", nargs=-1, metavar="[NODE]...")
@click.option("--problems", is_flag=True, help="Only those with a problem.")
@json_option
@click.pass_context
def list_(ctx: click.Context, hostlists: tuple[str, ...], problems: bool, as_json: bool) -> None:
    """Ask every BMC now: power, serial number, what is wrong.

    Exit 1 when one has a problem, 3 when none could be reached.
    """
    bmcs = _bmcs(ctx.obj)
    nodes = _chosen(bmcs, hostlists)
    readings = _read(bmcs, nodes)
    wrong = {node: _problem(readings[node], bmcs.entries[node]) for node in nodes}
    shown = [node for node in nodes if wrong[node] or not problems]
    if as_json:
        emit_json([_as_json(readings[node], bmcs.entries[node], wrong[node]) for node in shown])
    elif not shown:
        click.echo("none")
    else:
        rows = [
            (
                node,
                bmcs.entries[node].address,
                bmcs.entries[node].profile,
                readings[node].power.value,
                readings[node].serial or "-",
                wrong[node],
            )
            for node in shown
        ]
        table(("NODE", "BMC", "PROFILE", "POWER", "SERIAL", "PROBLEM"), rows)
    ctx.exit(_exit_code(readings.values(), any(wrong.values())))


def _as_json(reading: MachineReading, entry: BmcEntry, problem: str) -> dict[str, Any]:
    return {
        "node": reading.node,
        "address": entry.address,
        "profile": entry.profile,
        "power": reading.power,
        "serial": reading.serial,
        "recorded_serial": entry.serial,
        "boot": reading.boot,
        "progress": reading.progress,
        "problem": reading.problem,
        "text": problem,
    }


@bmc.command()
@click.argument("hostlists", nargs=-1, metavar="[NODE]...")
@json_option
@click.pass_context
def check(ctx: click.Context, hostlists: tuple[str, ...], as_json: bool) -> None:
    """Ask every BMC once: network, certificate, login, profile, and whether it is the machine on record.

    One line for each problem. Exit 1 when there is one, 3 when no BMC could be reached.
    """
    bmcs = _bmcs(ctx.obj)
    nodes = _chosen(bmcs, hostlists)
    readings = _read(bmcs, nodes)
    by_network = ctx.obj.config().policy.reimage_by_pxe
    wrong = {}
    for node in nodes:
        text = _problem(readings[node], bmcs.entries[node])
        if not text and by_network and readings[node].boot is None:
            text = f"BMC {bmcs.entries[node].address} of {node}: its boot override cannot be read: no reimage"
        if text:
            wrong[node] = text
    if as_json:
        emit_json([_as_json(readings[node], bmcs.entries[node], wrong.get(node, "")) for node in nodes])
    else:
        for node, text in wrong.items():
            click.echo(f"{node}: {clean(text)}")
        for line in _unchecked(bmcs, nodes):
            click.echo(line)
        click.echo(f"{len(nodes) - len(wrong)} of {len(nodes)} BMCs are fine")
    ctx.exit(_exit_code(readings.values(), bool(wrong)))


def _unchecked(bmcs: BmcConfig, nodes: Collection[str]) -> list[str]:
    without = [node for node in nodes if bmcs.entries[node].insecure]
    if not without:
        return []
    more = f" and {len(without) - 3} more" if len(without) > 3 else ""
    return [f"note: no certificate is checked (insecure = true) of {' '.join(without[:3])}{more}"]


# ---------------------------------------------------------------- show


@bmc.command()
@name_argument
@json_option
@click.pass_context
def show(ctx: click.Context, name: str, as_json: bool) -> None:
    """Ask one BMC now: power, serial number against the record, boot override, what it found wrong.

    Exit 1 when it has a problem, 3 when it cannot be reached.
    """
    bmcs = _bmcs(ctx.obj)
    _chosen(bmcs, [name])
    entry, reading = bmcs.entries[name], _read(bmcs, [name])[name]
    problem, findings = _problem(reading, entry), _findings(ctx.obj, name)
    if as_json:
        emit_json({**_as_json(reading, entry, problem), "findings": findings})
    else:
        trust = "no certificate is checked" if entry.insecure else entry.ca_file or "pinned certificate"
        click.echo(
            f"BMC       {entry.address} ({entry.profile}; {trust}; credentials: {clean(entry.source)})"
        )
        click.echo(f"power     {reading.power.value}")
        click.echo(f"serial    {clean(_serial_words(reading.serial, entry.serial))}")
        click.echo(f"boot      {clean(_boot_words(reading.boot))}")
        if reading.progress:
            click.echo(f"progress  {clean(reading.progress)}")
        for one in findings:
            click.echo(f"finding   {one.code} {clean(one.component)}: {clean(one.text)}")
        if problem:
            click.echo(f"problem   {clean(problem)}")
    ctx.exit(_exit_code([reading], bool(problem)))


def _serial_words(serial: str, recorded: str) -> str:
    if not serial:
        return f"not read; on record is {recorded or 'none'}"
    if not recorded:
        return f"{serial} (none is on record)"
    return f"{serial} (as on record)" if serial == recorded else f"{serial}, but on record is {recorded}"


def _boot_words(boot: BootOverride | None) -> str:
    if boot is None:
        return "not read"
    return f"{boot.enabled} {boot.target} {boot.mode}".strip() if boot.stands else "as its firmware says"


def _findings(context: CliContext, name: str) -> list[Finding]:
    """What the daemon last heard from this BMC; none where no daemon ever ran here."""
    from slurm_lifecycle.errors import StoreError

    try:
        with context.store() as store:
            found = store.findings(name)
    except StoreError:
        return []
    return [one for one in found if one.code.startswith(_OUT_OF_BAND) and one.cleared_at is None]


# ---------------------------------------------------------------- record


@bmc.command()
@click.argument("hostlists", nargs=-1, metavar="[NODE]...")
@click.option("--all", "everything", is_flag=True, help="Every node with a BMC.")
@click.option("--replace", "replaced", is_flag=True, help="The machines of these nodes were exchanged.")
@click.option("--unverified", is_flag=True, help="Also where the node itself cannot be asked.")
@click.option("--yes", is_flag=True, help="Do not ask before writing.")
@json_option
@click.pass_context
def record(
    ctx: click.Context,
    hostlists: tuple[str, ...],
    *,
    everything: bool,
    replaced: bool,
    unverified: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Put machines' serial numbers on record; only recorded machines are ever switched off and on.

    Each is read from the BMC and compared with what the node itself says (by [node_command]). A serial number
    that changed is taken only with --replace and its node by name. Exit 1 when one was refused or not read, 3
    when no BMC could be reached.
    """
    from slurm_lifecycle.service.bmc_record import WRITTEN
    from slurm_lifecycle.service.serials import read_serials, write_serials

    if bool(hostlists) == everything:
        raise click.UsageError("name nodes, or --all for every node with a BMC")
    if replaced and (everything or any(set(one) & set("[],") for one in hostlists)):
        raise click.UsageError("--replace needs each node by its own name: no --all, no list in brackets")
    if as_json and not yes:
        raise click.UsageError("--json cannot ask you: add --yes, which writes what may be written")
    bmcs = _bmcs(ctx.obj)
    seen = read_serials(bmcs.serials_path)
    rows, readings = _judged(
        ctx.obj, bmcs, _chosen(bmcs, hostlists), seen, replaced=replaced, unverified=unverified
    )
    new = {row.node: row.bmc_serial for row in rows if row.outcome in WRITTEN}
    if not as_json:
        _show_rows(rows)
    written = bool(new) and (yes or click.confirm(f"Write {len(new)} of them to {bmcs.serials_path}?"))
    if written:
        write_serials(bmcs.serials_path, new, seen)
    if as_json:
        emit_json({"rows": rows, "written": sorted(new), "file": bmcs.serials_path})
    elif written:
        click.echo(f"{len(new)} written; the daemon takes them when it is restarted")
    else:
        click.echo("nothing was written")
    ctx.exit(_exit_code(readings.values(), any(row.why for row in rows)))


def _judged(
    context: CliContext,
    bmcs: BmcConfig,
    nodes: Sequence[str],
    seen: Mapping[str, str],
    *,
    replaced: bool,
    unverified: bool,
) -> tuple[tuple[Row, ...], dict[str, MachineReading]]:
    from slurm_lifecycle.cli.bmc_asking import ask_hosts
    from slurm_lifecycle.service.bmc_record import decide

    readings = _read(bmcs, nodes, compare=False)
    hosts = ask_hosts(context.config().node_command, [node for node in nodes if readings[node].serial])
    rows = decide(readings, hosts, seen, replace_changed=replaced, unverified=unverified)
    return rows, readings


def _show_rows(rows: Sequence[Row]) -> None:
    agrees = {True: "yes", False: "NO", None: "not asked"}
    table(
        ("NODE", "BMC SERIAL", "HOST SERIAL", "AGREE", "RECORD"),
        [
            (
                row.node,
                row.bmc_serial or "-",
                " ".join(row.host_serials) or "-",
                agrees[row.agrees],
                row.outcome.value,
            )
            for row in rows
        ],
    )
    for row in rows:
        if row.why:
            click.echo(f"{row.node}: {clean(row.why)}")
