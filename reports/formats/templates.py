"""Set up the Jinja environment that renders the HTML and Markdown reports."""

from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

_FOLDER = Path(__file__).parents[1] / "templates"


def environment(*, autoescape: bool) -> Environment:
    """Return the Jinja environment of the report's templates; ``autoescape`` is True for HTML and False for Markdown,
    which is escaped separately.
    """
    return Environment(
        loader=FileSystemLoader(_FOLDER),
        autoescape=autoescape,
        # A misspelt name in a template fails instead of printing nothing.
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
