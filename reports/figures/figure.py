"""A figure of a report: the drawing, what it is called, what it says, and the table behind it."""

import re
from dataclasses import dataclass, replace

from ..tables.table import Table


@dataclass(frozen=True, kw_only=True)
class Figure:
    """``svg``: one <svg> element that refers to nothing outside itself. ``key``: unique on the page, an HTML id."""

    key: str
    title: str
    description: str
    svg: str
    table: Table

    def of_run(self, number: int, label: str) -> "Figure":
        """The same on a page of several runs: titled by its run, all its identifiers apart from other runs'."""
        mark = f"run-{number}-"
        svg = re.sub(r'(?<= id=")|(?<=url\(#)|(?<=href="#)', mark, self.svg)
        return replace(self, key=mark + self.key, title=f"{self.title}: {label}", svg=svg)
