"""Cell: one unit of work that leaves rows."""

from dataclasses import dataclass
from typing import Any

from ..results.record import Record


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One unit of work that leaves rows.

    Args:
        cell_id: hash of everything that determines its rows.
        facts: the record fields that all its rows share.
    """

    cell_id: str
    facts: dict[str, Any]

    def record(self, **measured: Any) -> Record:
        """A row of this cell; ``measured`` takes precedence over the shared fields."""
        # Measured fields win: rows of one seed in a pooled cell, for example, replace its seed.
        return Record(cell_id=self.cell_id, **{**self.facts, **measured})

    @property
    def title(self) -> str:
        """Name the cell in progress lines and failures, by federation, defense, attack and seed."""
        words = (self.facts["federation"], self.facts["defense"], self.facts["attack"])
        return " ".join([*words, f"seed {self.facts['seed']}" if self.facts["seed"] is not None else "pooled"])
