"""A figure of a report: the drawing, what it is called, what it says, and the table behind it."""

from dataclasses import dataclass

from ..table import Table


@dataclass(frozen=True, kw_only=True)
class Figure:
    """``svg``: one <svg> element that refers to nothing outside itself. ``key``: unique on the page, an HTML id."""

    key: str
    title: str
    description: str
    svg: str
    table: Table
