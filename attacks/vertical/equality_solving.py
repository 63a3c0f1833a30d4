"""Attack that solves linear equations for a passive party's columns (equality solving attack, Luo et al. 2021)."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from ...audit.evidence import PersonColumns
from ...fl.vertical.network import Layers
from ...fl.vertical.view import VerticalView
from ..attack import Level, Undefined
from .attack import PersonColumnAttack, VerticalKnowledge, followed_rows


@dataclass(frozen=True, kw_only=True)
class EqualitySolving(PersonColumnAttack):
    """An attack on linear bottom models: a person's columns are the shortest solution of the linear equations that give
    the embedding, by the pseudo-inverse of the model's weights.

    It is exact where the weights have at least as many independent outputs as the party has columns. Luo et al. solve
    from the confidence scores of a finished model, whose parameters both parties know. Here the embedding itself is
    seen, which gives one equation more than the scores of as many classes.

    Args:
        model: ``"initial"``: the bottom model is known before training only, where it is public, and is followed from
            there by the gradients that the active party sent, exactly so if the equations have one solution.
            ``"final"``: the final models are published, as Luo et al. assume, and are solved for the embeddings of the
            last epoch, exactly so for frozen models.
    """

    model: Literal["initial", "final"] = "initial"

    @property
    def level(self) -> Level:
        return Level.WORST_CASE if self.model == "final" else Level.REALISTIC

    def run(self, view: VerticalView, knowledge: VerticalKnowledge, rng: np.random.Generator) -> PersonColumns:
        """Return rows ``(people, width)``.

        Raises:
            Undefined: for bottom models with hidden layers, or final models that are not published.
            ValueError: for a party that the federation does not have, or a view without embeddings.
        """
        self.check_party(view)
        if view.plan.network.hidden:
            raise Undefined("bottom models with hidden layers give no linear equations; use embedding_inversion")
        if self.model == "initial":
            rows = followed_rows(view, knowledge, self.party, lambda layers, values, *_: _solved(layers, values))
            return self.evidence(rows, view)
        if knowledge.final is None:
            raise Undefined("the final models are not published")
        layers = tuple(layer[:1].double() for layer in knowledge.final.bottoms[self.party])
        return self.evidence(_solved(layers, _last_embeddings(view, self.party)), view)


def _solved(layers: Layers, embeddings: Tensor) -> Tensor:
    """The shortest rows with these embeddings under one linear layer."""
    weights, bias = layers[0][0, :-1], layers[0][0, -1]
    inverse: Tensor = torch.linalg.pinv(weights)
    return (embeddings - bias) @ inverse


def _last_embeddings(view: VerticalView, party: int) -> Tensor:
    """Each person's last embedding, ``(people, embedding)``."""
    seen = [step for step in view.steps if step.embeddings]
    if not seen:
        raise ValueError("view must hold the embeddings that the active party receives, got none")
    values = torch.zeros(view.plan.people, view.plan.network.embedding, dtype=torch.float64)
    for step in seen:
        values[step.people] = step.embeddings[party][0].double()
    return values
