"""Set up the Jinja environment that renders the HTML and Markdown reports."""

import base64
import hashlib
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from .explained import explained

_FOLDER = Path(__file__).parents[1] / "templates"


def environment(*, autoescape: bool) -> Environment:
    """Return the Jinja environment of the report's templates; ``autoescape`` is True for HTML and False for Markdown,
    which is escaped separately.
    """
    own = Environment(
        loader=FileSystemLoader(_FOLDER),
        autoescape=autoescape,
        # A misspelt name in a template fails instead of printing nothing.
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    script = (_FOLDER / "tables.js").read_text(encoding="utf-8")
    # Browsers run the one script of a page whose text has this hash, and no other.
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    own.globals |= {"script": Markup(script), "script_hash": f"sha256-{digest}", "explained": explained}
    return own
