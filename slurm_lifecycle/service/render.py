"""The one home of jinja2: renders the package's own templates."""

from functools import cache
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined, TemplateNotFound

from slurm_lifecycle.errors import ConfigError

_TEMPLATES = Path(__file__).parent.parent / "templates"


def render(template_name: str, **values: object) -> str:
    """Render a template of the package.

    Pages (`.html.j2`) are escaped, all but values that say by `__html__` that they are markup already. In the
    others nothing is, since they are configuration files and plain text: a caller strips what comes from
    outside before. A value that a template names and the caller forgot is an error, never an empty word.

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
        autoescape=_is_page,
        keep_trailing_newline=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def _is_page(template_name: str | None) -> bool:
    return template_name is not None and template_name.endswith(".html.j2")
