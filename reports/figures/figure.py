"""Figure: a drawing with its title, its description and a table of the same data."""

import re
from dataclasses import dataclass, replace

from ..tables.table import Table


@dataclass(frozen=True, kw_only=True)
class Figure:
    """A drawing with its title, description and data table. ``svg``: one <svg> element without outside references.
    ``key``: an HTML id, unique on the page.
    """

    key: str
    title: str
    description: str
    svg: str
    table: Table

    def of_run(self, number: int, label: str) -> "Figure":
        """Return the figure for a page of several runs: its title names the run, its ids differ from other runs'
        ids.
        """
        mark = f"run-{number}-"
        svg = re.sub(r'(?<= id=")|(?<=url\(#)|(?<=href="#)', mark, self.svg)
        return replace(self, key=mark + self.key, title=f"{self.title}: {label}", svg=svg)
