"""A text of headings, paragraphs, lists and tables, and its form in Markdown."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ..formats.escaped import cell
from ..tables.table import Table

EMPTY = "not measured"
"""What stands in a cell for which a run holds nothing."""


@dataclass(frozen=True, kw_only=True)
class Heading:
    """A heading of level 1 (the title) to 3."""

    text: str
    level: int = 2


@dataclass(frozen=True, kw_only=True)
class Points:
    """A list of sentences."""

    items: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Signature:
    """Lines to be filled in by hand, each after its words."""

    lines: tuple[str, ...]


Block = Heading | str | Points | Table | Signature


def markdown_of(blocks: Sequence[Block]) -> str:
    """Return the text as Markdown; names and reasons from records are escaped."""
    return "\n\n".join(filter(None, map(_markdown, blocks))) + "\n"


def filled(table: Table) -> Table:
    """Return the table with ``EMPTY`` in each cell that is empty."""
    return replace(table, rows=tuple(tuple(text.strip() or EMPTY for text in row) for row in table.rows))


def _escaped(text: str) -> str:
    """Text without active markup; ``>`` is markup only where a text begins with it."""
    return re.sub("(?!^)&gt;", ">", cell(text))


def _markdown(block: Block) -> str:
    match block:
        case str():
            return _escaped(block)
        case Heading():
            return f"{'#' * block.level} {_escaped(block.text)}"
        case Points():
            return "\n".join(f"- {_escaped(item)}" for item in block.items)
        case Signature():
            return "\n".join(f"- {_escaped(line)}: ______________________________" for line in block.lines)
        case Table():
            if not block.rows:
                return ""
            rule = ["---:" if place in block.numeric else "---" for place in range(len(block.headers))]
            lines = [block.headers, tuple(rule), *block.rows]
            body = "\n".join(
                "| " + " | ".join(row if number == 1 else map(_escaped, row)) + " |" for number, row in enumerate(lines)
            )
            title = block.title and f"**{_escaped(block.title)}**"
            return "\n\n".join(filter(None, (title, body, _escaped(block.note))))
