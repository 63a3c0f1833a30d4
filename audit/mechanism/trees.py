"""A score from gradient-boosted trees (scikit-learn), which find structure that no table of single columns shows."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arrays import FloatArray
from .columns import summaries
from .numbers import numbers

_SETTINGS: dict[str, Any] = {
    "max_iter": 60,
    "learning_rate": 0.15,
    "max_leaf_nodes": 12,
    "l2_regularization": 1.0,
    "early_stopping": True,
    "validation_fraction": 0.2,
    "n_iter_no_change": 8,
}
_LEAVES = 400
"""The least number of trials in a leaf is a 400th of them, and 20 at least: smaller leaves fit the noise."""


@dataclass(frozen=True, eq=False)
class Trees:
    """A score that is the log-odds of gradient-boosted trees on the coordinates and the summaries of an output."""

    model: Any

    def __str__(self) -> str:
        return "gradient-boosted trees"

    def score(self, outputs: NDArray[Any]) -> FloatArray:
        return np.asarray(self.model.decision_function(_features(numbers(outputs))), dtype=np.float64)


def learn_trees(member: FloatArray, nonmember: FloatArray, seed: int = 0) -> Trees:
    """Fit trees to pilot outputs (n, d) of the second and of the first input."""
    # Imported here, because it takes half a second and most audits need no trees.
    from sklearn.ensemble import HistGradientBoostingClassifier

    rows = np.concatenate([_features(member), _features(nonmember)])
    truth = np.r_[np.ones(len(member)), np.zeros(len(nonmember))]
    model = HistGradientBoostingClassifier(
        **_SETTINGS, min_samples_leaf=max(20, len(rows) // _LEAVES), random_state=seed
    )
    return Trees(model.fit(rows, truth))


def _features(rows: FloatArray) -> FloatArray:
    return np.concatenate([rows, summaries(rows)], axis=1) if rows.shape[1] > 1 else rows
