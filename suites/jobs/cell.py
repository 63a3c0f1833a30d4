"""Define a cell: the smallest unit of work that is stored and resumed, such as one attack on one trained federation."""

from dataclasses import dataclass
from typing import Any

from ..results.record import Record, printed_label


@dataclass(frozen=True, kw_only=True)
class Cell:
    """The smallest unit of work that a run stores and resumes, such as one attack on one trained federation.

    Args:
        cell_id: hash of everything that determines its rows.
        facts: the record fields that all its rows share.
    """

    cell_id: str
    facts: dict[str, Any]

    def record(self, **measured: Any) -> Record:
        """Build a result row of this unit of work (cell); the values in ``measured`` override the fields that all its
        rows share.
        """
        # Measured fields win: rows of one seed in a pooled cell, for example, replace its seed.
        return Record(cell_id=self.cell_id, **{**self.facts, **measured})

    @property
    def title(self) -> str:
        """A title of this unit of work for progress lines and failures: federation, defense, attack and seed."""
        words = (self.facts["federation"], printed_label(self.facts["defense"]), self.facts["attack"])
        return " ".join([*words, f"seed {self.facts['seed']}" if self.facts["seed"] is not None else "pooled"])
