"""Configuration files from templates; a name a template needs and does not get is an error."""

from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape

_ENVIRONMENT = Environment(
    loader=FileSystemLoader(Path(__file__).parent / "databases" / "templates"),
    undefined=StrictUndefined,
    autoescape=select_autoescape(["xml.j2"]),
    keep_trailing_newline=True,
    trim_blocks=True,
    lstrip_blocks=True,
)


def render(template: str, **values: object) -> str:
    """The text of a file in databases/templates. Raises jinja2.UndefinedError for a missing value."""
    return _ENVIRONMENT.get_template(template).render(values)
