"""Base class of attacks that infer one column of a record of which they know everything else (Yeom et al. 2018).

Each record is completed with each value of the column in turn, and the values are compared by how well the completed
record fits what the observer receives, together with what the public records say about the column.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import one_hot

from ...audit.arrays import FloatArray
from ...audit.claim import Adjacency, Unit
from ...audit.evidence import AttributeScores
from ...fl.candidates import Column, PlantedRecords, Records
from ...fl.fields import ColumnName, Count, IndexOrAll
from ...fl.recorder import View
from ...fl.task import Task
from ..attack import Attack, Knowledge, clustered_setting
from ..membership.candidates import plant_samples

# More public records hardly improve the regression, and would take longer than the attack.
_PUBLIC = 5000

Prior = Literal["imputed", "columns", "uniform"]


@dataclass(frozen=True, kw_only=True)
class AttributeAttack(Attack, ABC):
    """A base class of attacks that score each possible value of one column of known records by a log-probability.

    Args:
        column: the column's name in a table or, of a single feature, the feature's number. Of a number it is inferred
            whether it is in the lower or the upper half of the public records' range.
        count: records of each client in question, and as many that no client trained on.
        client: the client whose records are in question, or ``"all"``.
        prior: what is added to the scores: the logarithm of the imputed probabilities (see ``imputed``) from the other
            columns and the label (``"imputed"``), or from the other ``"columns"`` alone, or nothing (``"uniform"``).
    """

    handles_reduced_views: ClassVar[bool] = True
    column: ColumnName = 0
    count: Count = 40
    client: IndexOrAll = 0
    prior: Prior = "imputed"

    def plant(self, task: Task, rng: np.random.Generator) -> PlantedRecords:
        return PlantedRecords.of(
            plant_samples(task, self.count, self.client, rng), Column.of(task.test_images, task.columns, self.column)
        )

    def run(self, view: View, knowledge: Knowledge, rng: np.random.Generator) -> AttributeScores:
        shown = self.shown(knowledge)
        scores = self.scores(view, knowledge, rng).reshape(-1, len(shown.column))
        if self.prior != "uniform":
            public = knowledge.public_images, knowledge.public_labels
            prior = imputed(shown, *public, classes=knowledge.network.classes * (self.prior == "imputed"))
            scores = scores + np.tile(prior, (len(scores) // len(prior), 1))
        return AttributeScores(scores, clustered_setting(view, Unit.SAMPLE, Adjacency.REPLACE_ONE))

    def shown(self, knowledge: Knowledge) -> Records:
        """Return the completed records (each known record with each value of the column); raise ValueError if no
        records were chosen before training.
        """
        if not isinstance(knowledge.candidates, Records):
            raise ValueError(
                f"{type(self).__name__} needs records as candidates, which must be planted before training"
            )
        return knowledge.candidates

    @abstractmethod
    def scores(self, view: View, knowledge: Knowledge, rng: np.random.Generator) -> FloatArray:
        """Compute log-likelihoods of the n * k completed records (n records with k values each), up to a constant for
        each record. The result has shape ``(n * k,)`` or, client by client, ``(clients * n * k,)``.
        """


def imputed(shown: Records, images: Tensor, labels: Tensor, *, classes: int) -> FloatArray:
    """Return the log-probabilities ``(n, k)`` that a logistic regression on public records gives to the k values of
    each record's column. The regression uses no model, update or other message of a federation.

    It is the imputation with which Jayaraman and Evans (2022) compare attribute inference. The regression uses the
    other columns and, if ``classes`` is their number and not 0, the label. A value that no public record has keeps a
    small probability.
    """
    from sklearn.linear_model import LogisticRegression  # Imported late: half a second.

    def features(images: Tensor, labels: Tensor) -> FloatArray:
        label = [one_hot(labels, classes).double()] if classes else []
        return np.asarray(torch.cat([column.others(images).double(), *label], dim=1).numpy(), dtype=np.float64)

    column, k = shown.column, len(shown.column)
    value = column.of_records(images[:_PUBLIC]).numpy()
    found = np.full((len(shown.labels) // k, k), 1 / (k * len(value)))
    there = np.unique(value)
    if len(there) > 1:
        model = LogisticRegression(max_iter=1000).fit(features(images[:_PUBLIC], labels[:_PUBLIC]), value)
        found[:, there] += model.predict_proba(features(shown.images[::k], shown.labels[::k]))
    else:  # A regression needs two values.
        found[:, there] += 1
    return np.asarray(np.log(found / found.sum(1, keepdims=True)), dtype=np.float64)
