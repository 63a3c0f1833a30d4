"""Attack that splits people along the first singular vector of gradients or embeddings (after Sun et al. 2022)."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from ...audit.evidence import PersonLabels
from ...fl.vertical.view import VerticalView
from ..attack import Undefined
from .attack import GradientLabelAttack, VerticalKnowledge, scores_by_share
from .gradient_norm import rarer_class
from .model_completion import own_embeddings


@dataclass(frozen=True, kw_only=True)
class Spectral(GradientLabelAttack):
    """An attack on two classes whose score is the projection of each person's centred row on the first singular vector
    of all people's rows.

    The sign of the vector is chosen by known people, if both classes have some: their mean projections are ordered as
    their labels. Else the rarer class is taken to be on the side with the longer tail (the sign of the third moment),
    which is less certain for embeddings.

    The score of class 1 is the projection in units of its standard deviation, averaged over the epochs, minus the value
    above which the class's share of people lies; class 0 has minus that score. Sun et al. (spectral attack) use the
    embeddings, whose trained model separates the classes.

    Args:
        of: ``"gradients"`` that are received in each epoch, or ``"embeddings"`` that the party's own final bottom model
            computes.
    """

    of: Literal["gradients", "embeddings"] = "gradients"

    def run(self, view: VerticalView, knowledge: VerticalKnowledge, rng: np.random.Generator) -> PersonLabels:
        """Return scores ``(n, 2)``.

        Raises:
            Undefined: for more than two classes, or where neither known people nor the classes' shares choose the sign.
            ValueError: for a view without gradients, or without the party's own model.
        """
        if len(knowledge.prior) != 2:
            raise Undefined(f"one singular vector separates two classes only, but there are {len(knowledge.prior)}")
        if self.of == "gradients":
            epochs = self.by_epoch(view, lambda step, gradients: gradients)
        else:
            epochs = own_embeddings(view).unsqueeze(0)
        score = torch.stack([_oriented(_projected(rows), knowledge) for rows in epochs]).mean(0)
        return self.evidence(scores_by_share(score, float(knowledge.prior[1])), view, knowledge)


def _projected(rows: Tensor) -> Tensor:
    """The rows' projections on their first principal direction, ``(people,)``, with variance 1."""
    centred = rows - rows.mean(0)
    _, _, directions = torch.linalg.svd(centred, full_matrices=False)
    values: Tensor = centred @ directions[0]
    return values / values.std(correction=0).clamp_min(1e-30)


def _oriented(values: Tensor, knowledge: VerticalKnowledge) -> Tensor:
    """The projections with the sign for which larger means class 1."""
    positive = knowledge.known_labels == 1
    if positive.any() and not positive.all():
        ahead = values[knowledge.known[positive]].mean() - values[knowledge.known[~positive]].mean()
        return values if ahead >= 0 else -values
    tail = values.pow(3).mean()
    return values if (tail >= 0) == (rarer_class(knowledge.prior) == 1) else -values
