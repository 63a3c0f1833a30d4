"""Attack that learns from public people how to invert a bottom model (after Luo et al. 2021, generative regression)."""

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ...audit.evidence import PersonColumns
from ...fl.streams import normal
from ...fl.vertical.network import Layers
from ...fl.vertical.protection import Noise, Noised, VerticalLaw
from ...fl.vertical.view import VerticalView
from .attack import (
    RegressionAttack,
    VerticalKnowledge,
    clipped_rows,
    followed_rows,
    held_features,
    public_features,
)


@dataclass(frozen=True, kw_only=True)
class EmbeddingInversion(RegressionAttack):
    """An attack that predicts a passive party's columns from the embedding, the active party's own columns and the
    label, by a regression learnt from public people.

    The public people's embeddings are computed with the bottom model, which is public where it is frozen and else
    followed from its initial parameters by the rows that were inferred. A published law of the embeddings is applied to
    them: clipped and with noise, or as randomised signs. Columns that were randomised before the training are inferred
    as they were released. Luo et al. search, for a finished model that both parties know, a generator network whose
    rows give the confidence scores that were seen; here the errors on public rows are minimised, in closed form.

    The attack is compared with ``imputed_columns``, which does without embeddings.
    """

    def run(self, view: VerticalView, knowledge: VerticalKnowledge, rng: np.random.Generator) -> PersonColumns:
        """Return rows ``(people, width)``.

        Raises ValueError for a party that the federation does not have, or a view without embeddings.
        """
        self.check_party(view)
        chosen, regression = self.drawn(knowledge, rng)
        public = knowledge.public.columns[self.party][chosen].double()
        held, own = public_features(knowledge)[chosen], held_features(view)
        bottom, law = view.plan.network.bottoms[self.party], knowledge.law

        def infer(layers: Layers, embeddings: Tensor, people: Tensor, times: int) -> Tensor:
            values, _ = bottom.forward(layers, public.unsqueeze(0))
            shown = _protected(values[0], law, times, rng)
            wanted = torch.cat([embeddings, own[people]], dim=1)
            return regression.predicted(torch.cat([shown, held], dim=1), public, wanted)

        return self.evidence(followed_rows(view, knowledge, self.party, infer), view)


def _protected(values: Tensor, law: VerticalLaw | None, times: int, rng: np.random.Generator) -> Tensor:
    """Embeddings as the law releases them, the mean of ``times`` releases."""
    if law is None or law.noised is not Noised.EMBEDDINGS:
        return values
    if law.channel is not None:
        plus = law.channel.double()[(values >= 0).long(), 1].numpy()
        return torch.from_numpy(2 * rng.binomial(times, plus) / times - 1)
    values = clipped_rows(values, law)
    if law.noise is Noise.LAPLACE:
        draws = torch.from_numpy(rng.laplace(scale=law.scale, size=(times, *values.shape)))
        return values + draws.mean(0)
    return values + law.scale / math.sqrt(times) * normal(rng, tuple(values.shape), dtype=torch.float64)
