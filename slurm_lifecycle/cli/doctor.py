"""`doctor`: what this site's Slurm must be, item by item, with the line to change."""

import click

from slurm_lifecycle.cli.context import CliContext
from slurm_lifecycle.cli.output import clean, emit_json, json_option


@click.command()
@json_option
@click.pass_context
def doctor(ctx: click.Context, as_json: bool) -> None:
    """Prove what this site's Slurm must be for us to act safely.

    Each item is ok, warn, fail or unknown (not to be seen from this host), with the line to change.
    Exit 1 when an item fails, 3 when slurmctld cannot be asked.
    """
    from slurm_lifecycle.core.preconditions import worst
    from slurm_lifecycle.core.site_facts import Grade
    from slurm_lifecycle.service.doctor import examine

    context: CliContext = ctx.obj
    items = examine(context.config(), context.slurm(), context.store_for_requests)
    overall = worst(items)
    if as_json:
        emit_json({"result": overall, "items": items})
    else:
        for item in items:
            click.echo(f"{item.grade.value:8}{item.name:22}{clean(item.text)}")
            if item.remedy and item.grade is not Grade.OK:
                click.echo(f"{'':30}-> {clean(item.remedy)}")
        counts = [f"{sum(item.grade is grade for item in items)} {grade.value}" for grade in Grade]
        click.echo(", ".join(counts))
    ctx.exit(1 if overall is Grade.FAIL else 0)
