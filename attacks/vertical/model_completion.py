"""Attack that completes a party's own bottom model with a head learnt from few known labels (Fu et al. 2022)."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ...audit.evidence import PersonLabels
from ...fl.vertical.view import VerticalView
from ..attack import Undefined
from .attack import PersonLabelAttack, VerticalKnowledge

# Log probability of a class of which no person is known.
_UNSEEN = -30.0


@dataclass(frozen=True, kw_only=True)
class ModelCompletion(PersonLabelAttack):
    """An attack whose score of a class is its log probability by a logistic regression on the embeddings of the party's
    own final bottom model, learnt from the known people.

    Fu et al. train the head and the bottom model with unlabelled people as well (semi-supervised). Here the bottom
    model stays as the federation trained it, and the head is learnt from the known people alone. The attack is compared
    with ``imputed_labels``, which learns from the same people without the federation.
    """

    def run(self, view: VerticalView, knowledge: VerticalKnowledge, rng: np.random.Generator) -> PersonLabels:
        """Return scores ``(n, classes)``; classes without known people are the least likely.

        Raises:
            Undefined: unless people of at least two classes are known.
            ValueError: for a view without the party's own model.
        """
        return self.evidence(learnt_scores(own_embeddings(view), knowledge), view, knowledge)


def own_embeddings(view: VerticalView) -> Tensor:
    """Return the embeddings ``(people, embedding)`` of all people by the passive party's own final bottom model, in
    double precision.

    Raises ValueError for a view of another observer.
    """
    if view.own is None or view.columns is None or view.party is None:
        raise ValueError("view must hold the own columns and the own model of a passive party, got none")
    layers = tuple(layer[:1].double() for layer in view.own)
    values, _ = view.plan.network.bottoms[view.party].forward(layers, view.columns.double().unsqueeze(0))
    return values[0]


def learnt_scores(features: Tensor, knowledge: VerticalKnowledge) -> Tensor:
    """Return log probabilities ``(people, classes)`` by a logistic regression from ``features (people, k)``, learnt
    from the known people.

    Features are standardised over all people; the penalty is that of a standard normal prior on the weights.

    Raises:
        Undefined: unless people of at least two classes are known.
    """
    from sklearn.linear_model import LogisticRegression  # Imported late: half a second.

    seen = torch.unique(knowledge.known_labels)
    if len(seen) < 2:
        raise Undefined(f"a classifier needs known people of at least two classes, got {len(seen)}")
    spread = features.std(0, correction=0)
    rows = ((features - features.mean(0)) / torch.where(spread > 0, spread, 1.0)).numpy()
    head = LogisticRegression(C=1.0, max_iter=1000).fit(rows[knowledge.known.numpy()], knowledge.known_labels.numpy())
    scores = torch.full((len(rows), len(knowledge.prior)), _UNSEEN, dtype=torch.float64)
    scores[:, seen] = torch.from_numpy(head.predict_log_proba(rows)).clamp_min(_UNSEEN)
    return scores
