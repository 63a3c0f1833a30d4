"""Define a figure: a drawing with its title, its description and a table of the same data."""

import re
from dataclasses import dataclass, replace

from ..tables.table import Table


@dataclass(frozen=True, kw_only=True)
class Figure:
    """A drawing with its title, description and data table. ``svg`` holds one <svg> element without outside references,
    and ``key`` an HTML id that is unique on the page.
    """

    key: str
    title: str
    description: str
    svg: str
    table: Table

    def of_run(self, number: int, label: str) -> "Figure":
        """Return the figure for a page about several runs: its title names the run, and its ids differ from other runs'
        ids.
        """
        mark = f"run-{number}-"
        svg = re.sub(r'(?<= id=")|(?<=url\(#)|(?<=href="#)', mark, self.svg)
        return replace(self, key=mark + self.key, title=f"{self.title}: {label}", svg=svg)
