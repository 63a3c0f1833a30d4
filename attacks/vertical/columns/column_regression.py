"""Ridge regression of columns on features, with random rectified features, learnt from public people."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import one_hot

from ....fl.streams import normal
from ....fl.vertical.view import VerticalView
from ..attack import VerticalKnowledge

# Penalties of which the best is chosen by leave-one-out errors on the public people.
_PENALTIES = tuple(10.0**power for power in range(-3, 6))


@dataclass(frozen=True, kw_only=True)
class ColumnRegression:
    """A regression with ``random`` rectified random combinations of the features in addition to these.

    Args:
        seed: of the random combinations.
    """

    random: int
    seed: int

    def predicted(self, features: Tensor, rows: Tensor, asked: Tensor) -> Tensor:
        """Return the rows ``(m, width)`` of people with features ``asked (m, k)``, learnt from public people with
        ``features (n, k)`` and ``rows (n, width)``.
        """
        from sklearn.linear_model import RidgeCV  # Imported late: half a second.

        spread = features.std(0, correction=0)
        centre, scale = features.mean(0), torch.where(spread > 0, spread, 1.0)
        known, wanted = (self._expanded((values - centre) / scale) for values in (features, asked))
        model = RidgeCV(alphas=_PENALTIES).fit(known.numpy(), rows.numpy())
        return torch.from_numpy(np.asarray(model.predict(wanted.numpy()))).view(len(asked), -1)

    def _expanded(self, rows: Tensor) -> Tensor:
        rng = np.random.default_rng(self.seed)
        weights = normal(rng, (rows.shape[1], self.random), dtype=torch.float64) / rows.shape[1] ** 0.5
        bias = normal(rng, (self.random,), dtype=torch.float64)
        return torch.cat([rows, torch.relu(rows @ weights + bias)], dim=1)


def held_features(view: VerticalView) -> Tensor:
    """Return the own columns and labels of the active party, ``(people, k)``; raise ValueError for a view of another
    observer.
    """
    if view.columns is None or view.labels is None:
        raise ValueError("view must hold the columns and labels of the active party, got none")
    return _joined(view.columns, view.labels, view.plan.network.classes)


def public_features(knowledge: VerticalKnowledge) -> Tensor:
    """Return the same features of the public people, ``(n, k)``."""
    return _joined(knowledge.public.columns[-1], knowledge.public.labels, knowledge.plan.network.classes)


def _joined(columns: Tensor, labels: Tensor, classes: int) -> Tensor:
    return torch.cat([columns.double(), one_hot(labels, classes).double()], dim=1)
