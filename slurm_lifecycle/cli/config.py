"""`config`: check it, show it."""

from collections.abc import Iterator, Mapping

import click

from slurm_lifecycle.cli.context import CliContext
from slurm_lifecycle.cli.output import clean, emit_json, json_option, plain


@click.group()
def config() -> None:
    """Check the configuration, or show all of it."""


@config.command()
@json_option
@click.pass_context
def check(ctx: click.Context, as_json: bool) -> None:
    """Check the files, then against this host and Slurm: paths, commands, partitions, nodes.

    Exit 1 for a problem, 2 when the files themselves are wrong, 3 when Slurm could not be asked.
    """
    from slurm_lifecycle.errors import BackendError
    from slurm_lifecycle.service.config_check import Weight, check_config

    context: CliContext = ctx.obj
    loaded = context.config()
    nodes, unreachable = None, ""
    try:
        nodes = context.slurm().nodes()
    except BackendError as error:
        unreachable = str(error)
    remarks = check_config(loaded, nodes)
    if as_json:
        emit_json(
            {"file": loaded.path, "policy": loaded.policy_path, "remarks": remarks, "slurm": unreachable}
        )
    else:
        for one in remarks:
            click.echo(f"{one.weight.value:8}{one.key}: {clean(one.text)}")
        if unreachable:
            click.echo(f"{'unknown':8}partitions and nodes: Slurm could not be asked ({clean(unreachable)})")
        if not remarks and not unreachable:
            click.echo(f"{loaded.path}: fine")
    if any(one.weight is Weight.PROBLEM for one in remarks):
        ctx.exit(1)
    ctx.exit(3 if unreachable else 0)


@config.command()
@json_option
@click.pass_obj
def show(context: CliContext, as_json: bool) -> None:
    """Every setting that is in force, defaults included."""
    loaded = context.config()
    if as_json:
        emit_json(loaded)
        return
    for key, value in _flat("", plain(loaded)):
        click.echo(f"{key} = {value}")


def _flat(prefix: str, value: object) -> Iterator[tuple[str, object]]:
    if isinstance(value, Mapping) and value:
        for key, item in value.items():
            yield from _flat(f"{prefix}.{key}" if prefix else str(key), item)
    elif isinstance(value, list) and any(isinstance(item, Mapping) for item in value):
        for number, item in enumerate(value, start=1):
            yield from _flat(f"{prefix}[{number}]", item)
    else:
        yield prefix, value
