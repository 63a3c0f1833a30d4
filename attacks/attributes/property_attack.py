"""Base class of attacks that infer the share of a group in each client's data."""

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np

from ...audit.arrays import FloatArray
from ...audit.claim import Adjacency, Unit
from ...audit.evidence import PropertyEstimates
from ...fl.candidates import Column
from ...fl.fields import ColumnName, Index
from ...fl.recorder import View
from ...fl.task import Task
from ..attack import Attack, Knowledge, clustered_setting


@dataclass(frozen=True, kw_only=True)
class PropertyAttack(Attack, ABC):
    """A base class of attacks that estimate, for each client, the share of its records with one value of a column.

    A claim about one sample does not cover such a share: it changes with many records at once. A claim about one client
    does.

    Args:
        column: as of attribute inference, see ``AttributeAttack``.
        value: the number of the value, in the order of the column's indicators; of a number, 0 is the lower and 1 the
            upper half of the public records' range.
    """

    column: ColumnName = 0
    value: Index = 0

    def plant(self, task: Task, rng: np.random.Generator) -> None:
        # Nothing is planted: a column or value that does not exist is refused before training.
        self._column(Column.of(task.test_images, task.columns, self.column))

    def run(self, view: View, knowledge: Knowledge, rng: np.random.Generator) -> PropertyEstimates:
        column = self._column(Column.of(knowledge.public_images, knowledge.columns, self.column))
        shares = self.shares(view, knowledge, column, rng)
        setting = clustered_setting(view, Unit.CLIENT, Adjacency.REPLACE_ONE)
        return PropertyEstimates(shares, setting, column=self.column, value=self.value)

    def _column(self, column: Column) -> Column:
        if self.value >= len(column):
            raise ValueError(f"value (of column {self.column!r}) must be in 0..{len(column) - 1}, got {self.value}")
        return column

    @abstractmethod
    def shares(self, view: View, knowledge: Knowledge, column: Column, rng: np.random.Generator) -> FloatArray:
        """Estimate the share in each client's data, ``(clients,)`` in [0, 1]."""
