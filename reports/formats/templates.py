"""Set up the Jinja environment that renders HTML and Markdown, and explain the terms on a page.

Terms are explained at their first use in each section, and all together at the end.
"""

import base64
import hashlib
import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

_FOLDER = Path(__file__).parents[1] / "templates"


@dataclass(frozen=True, kw_only=True)
class Term:
    """A technical term that pages explain; the explanations are in ``templates/terms.toml``.

    Args:
        name: as the glossary prints it in bold.
        meaning: one sentence, word for word as in the glossary.
        section: anchor of the glossary's section that defines it.
        spellings: as pages print it, if not as ``name``.
    """

    name: str
    meaning: str
    section: str
    spellings: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """The id of the term's entry on a page."""
        return "term-" + re.sub(r"[^a-z0-9]+", "-", self.name.lower()).strip("-")

    @property
    def printed(self) -> tuple[str, ...]:
        return self.spellings or (self.name,)


TERMS = tuple(Term(**term) for term in tomllib.loads((_FOLDER / "terms.toml").read_text(encoding="utf-8"))["term"])
"""In the order in which a page lists them."""
_BY_SPELLING = {spelling: term for term in TERMS for spelling in term.printed}
# The longest first, so that NOT REFUTED is not read as REFUTED.
_WORDS = "|".join(re.escape(one) for one in sorted(_BY_SPELLING, key=len, reverse=True))
_TERM = re.compile(rf"(?<![\w&#/-])(?:{_WORDS})(?![\w-])")
_CLOSED = "svg|pre|summary|a|button|h[1-6]|title"
"""Elements whose text stays as it is: drawings, code, and what a link must not stand in."""
_PIECE = re.compile(rf"<(?P<name>{_CLOSED})\b.*?</(?P=name)>|<[^>]*>|[^<]+", re.DOTALL)
_SECTION = re.compile(r'<(?:header|section|article)\b|<details class="section"')


def explained(page: str) -> tuple[Markup, list[Term]]:
    """Return HTML with a link and an explanation at the first use of each term in each section. Also return the terms
    that were found, in the order of ``TERMS``.

    A section is a header, a section, an article or a folded section. A header of a table gets no link, because the
    page's script makes a button of it. The links lead to the ids ``Term.key``.
    """
    found: set[str] = set()
    marked = Markup("".join(_pieces(page, found)))
    return marked, [term for term in TERMS if term.name in found]


def _pieces(page: str, found: set[str]) -> Iterator[str]:
    seen: set[str] = set()
    linked = True
    for piece in _PIECE.finditer(page):
        text = piece[0]
        if _SECTION.match(text):
            seen = set()
        elif text.startswith(("<thead", "</thead")):
            linked = text.startswith("</")
        if text.startswith("<"):
            yield text
            continue
        yield _TERM.sub(partial(_mark, seen=seen, linked=linked), text)
        found |= seen


def _mark(match: re.Match[str], seen: set[str], linked: bool) -> str:
    word = match[0]
    term = _BY_SPELLING[word]
    if term.name in seen:
        return word
    seen.add(term.name)
    explanation = f'<abbr title="{escape(term.meaning)}">{word}</abbr>'
    return f'<a class="term" href="#{term.key}">{explanation}</a>' if linked else explanation


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
