"""Attack that reads off the embedding's gradient which tokens an upload's texts hold (Melis et al. 2019)."""

from dataclasses import dataclass

import numpy as np
import torch
from scipy.stats import chi2
from torch import Tensor, nn

from ...audit.arrays import BoolArray, FloatArray
from ...audit.evidence import TokenGuesses
from ...fl.fields import OpenShare
from ...fl.models.network import Network
from ...fl.recorder import View
from ..attack import Knowledge, Undefined
from ..labels.label_attack import LabelLots, noise_units, read_label_lots, whole_counts
from .text_attack import TextAttack, counts_of, guesses_of_round

# Rows this much shorter than the longest are zero: a secure sum rounds zeros to a grid.
_ZERO = 1e-6


@dataclass(frozen=True, kw_only=True)
class EmbeddingTokens(TextAttack):
    """An attack that recovers the multiset of tokens of the texts behind each upload of one round.

    Which tokens occur is exact without noise: a row of the embedding's gradient is not zero if and only if its token
    occurs in an input. How often is estimated from the gradient of the output layer's bias, which is the mean over all
    places of (softmax - one-hot of the next token), as labels are from that of a classifier. The mean softmax is
    measured on public texts at the broadcast model, and a factor, such as that of a clip, from the tokens that do not
    occur. Next tokens are the inputs one place on, so that one token of each
    text is counted in place of another.

    Under a published noise a token counts as found if its row is longer than noise alone makes it, with probability
    ``error_rate`` for all tokens together, and frequencies are weighted with those of the public texts by their
    variances.

    Args:
        error_rate: chance that any token is called found because of the noise.
    """

    error_rate: OpenShare = 0.05

    def run(self, view: View, knowledge: Knowledge, rng: np.random.Generator) -> TokenGuesses:
        """Return token counts ``(n, tokens)``, one row per upload, whose sum is the public number of tokens.

        Raises:
            Undefined: for a model without a trained embedding of the tokens that is not tied to another layer.
            ValueError: like `read_label_lots`, or if the last layer has no bias.
        """
        network = knowledge.network
        place, length, tokens = embedding_slice(network), network.shape[2], network.classes
        lots = read_label_lots(view, knowledge, self.round)
        bias = lots.last.needed_bias("embedding_tokens")
        public = counts_of(knowledge.public_images, tokens) + 1.0
        prior, predicted = public / public.sum(), _mean_softmax(lots, knowledge)
        counts = np.zeros((len(lots.clients), tokens))
        for row, client in enumerate(lots.clients):
            units, noise = noise_units(knowledge.law(view.observer, client), knowledge.plan, rng)
            stds = (units * noise).expand(network.layout.dim)
            rows = lots.gradients[row, place].double().view(tokens, -1)
            found = self._found(rows, stds[place].view(tokens, -1))
            total = int(lots.sizes[row]) * length
            std = float(stds[_output_bias(network)].square().mean().sqrt())
            scale = _scale(bias[row], predicted, found, std)
            shares = _posterior(predicted - bias[row] / scale, prior, total, (std / scale) ** 2)
            if noise == 0 and found.any():
                shares = np.where(found, shares, 0.0)
            shares = np.where(found, np.maximum(shares, 1 / total), shares)
            counts[row] = whole_counts(shares[None], [total])[0]
        return guesses_of_round(counts, view, self.round)

    def _found(self, rows: Tensor, stds: Tensor) -> BoolArray:
        """Which tokens' rows ``(tokens, width)`` of the gradient are not zero, or longer than noise makes them."""
        if not bool(stds.any()):
            lengths = torch.linalg.vector_norm(rows, dim=1)
            return np.asarray((lengths > _ZERO * lengths.max()).numpy())
        squares = (rows / stds).square().sum(1).numpy()
        return np.asarray(squares > chi2.isf(self.error_rate / len(rows), rows.shape[1]))


def embedding_slice(network: Network) -> slice:
    """Return the coordinates of the token embedding in a flat parameter vector. Raise Undefined if the model has no
    embedding, if the embedding is frozen, or if it is tied to another layer, whose gradient hides which rows are zero.
    """
    named = dict(network.module.named_modules())
    found = [name for name, layer in named.items() if isinstance(layer, nn.Embedding)]
    fitting = [name for name in found if getattr(named[name], "num_embeddings", 0) == network.classes]
    if not fitting:
        raise Undefined(f"model {network.model} has no embedding (torch.nn.Embedding) of its {network.classes} tokens")
    weight = named[fitting[0]].weight
    if any(getattr(layer, "weight", None) is weight for name, layer in named.items() if name != fitting[0]):
        raise Undefined(f"model {network.model} ties its embedding to another layer, so all rows have a gradient")
    if f"{fitting[0]}.weight" not in network.layout.names:
        raise Undefined(f"model {network.model} has a frozen embedding, which has no gradient")
    return network.layout.slices[f"{fitting[0]}.weight"]


def _output_bias(network: Network) -> slice:
    """The coordinates of the last layer's bias, which is the model's last parameter."""
    return network.layout.slices[network.layout.names[-1]]


def _mean_softmax(lots: LabelLots, knowledge: Knowledge) -> FloatArray:
    """The mean softmax over all places of the public texts, ``(tokens,)``."""
    with torch.no_grad():
        logits = knowledge.network.logits_in_parts(lots.model, knowledge.public_images)
    return np.asarray(logits.double().softmax(-1).mean((0, 1)).numpy(), dtype=np.float64)


def _scale(bias: FloatArray, predicted: FloatArray, found: BoolArray, std: float) -> float:
    """The factor between the upload and a mean gradient, such as that of a clip; 1 where the noise hides it.

    The gradient of a token that does not occur is its mean softmax alone.
    """
    expected, absent = float(predicted[~found].sum()), ~found
    if not found.any() or expected == 0:
        return 1.0
    ratio = float(bias[absent].sum()) / expected
    return ratio if ratio > 3 * std * float(absent.sum()) ** 0.5 / expected else 1.0


def _posterior(shares: FloatArray, prior: FloatArray, total: int, noise: float) -> FloatArray:
    """Noisy shares ``(tokens,)``, of variance ``noise``, weighted with the prior of that many tokens."""
    spread = prior * (1 - prior) / total
    return np.asarray(np.maximum((spread * shares + noise * prior) / (spread + noise), 0), dtype=np.float64)
