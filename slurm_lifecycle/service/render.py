"""The one home of jinja2: renders the package's own templates."""

from functools import cache
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined, TemplateNotFound

from slurm_lifecycle.errors import ConfigError

_TEMPLATES = Path(__file__).parent.parent / "templates"


def render(template_name: str, **values: object) -> str:
    """Render a template of the package.

    Nothing is escaped, since the results are configuration files and plain text: a caller strips what comes
    from outside before. A value that a template names and the caller forgot is an error, never an empty word.

    Args:
        template_name: file name under `slurm_lifecycle/templates`.
        values: what the template names.

    Raises:
        ConfigError: no such template in this installation.
    """
    try:
        template = _environment().get_template(template_name)
    except TemplateNotFound as error:
        raise ConfigError(
            f"template {template_name} is missing in {_TEMPLATES}: install the package again"
        ) from error
    return template.render(**values)


@cache
def _environment() -> Environment:
    return Environment(
        loader=FileSystemLoader(_TEMPLATES),
        undefined=StrictUndefined,
        autoescape=False,
        keep_trailing_newline=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
