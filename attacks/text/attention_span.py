"""Attack that recovers whole texts from the span of attention gradients (DAGER, Petrov et al. 2024)."""

from dataclasses import dataclass

import numpy as np
from torch import Tensor, nn

from ...audit.arrays import IntArray
from ...audit.evidence import TokenGuesses
from ...fl.models.network import Network
from ...fl.recorder import View
from ..attack import Knowledge, Undefined
from ..labels.label_attack import read_label_lots
from .text_attack import TextAttack, counts_of, guesses_of_round, span_of, texts_in_spans


@dataclass(frozen=True, kw_only=True)
class AttentionSpan(TextAttack):
    """An attack that recovers the texts behind each upload of one round, token by token.

    The gradient of an attention layer's weights is a sum over places of (gradient of the outputs) times (input), so its
    rows span no more than the inputs of all places. While there are fewer places than the layer has inputs, the span is
    a proper subspace. In the first layer an input depends on one token and its place alone: of a single text the token
    whose input lies nearest to the span is the one at that place. Of lots of several texts more tokens lie in it,
    because inputs are sums of a token and a place and the span holds their differences. There all tokens in the span
    are joined to the texts found so far, and those texts kept whose inputs of the second layer lie nearest to that
    layer's span, as in DAGER's search for decoders. The nearest are taken in place of those within a threshold, so that
    noise yields a guess too. The gradients of queries, keys and values are used together: under causal attention the
    query of the first place has none. The model must be causal, so that an input depends on no later token.
    """

    def run(self, view: View, knowledge: Knowledge, rng: np.random.Generator) -> TokenGuesses:
        """Return the texts of each upload, with their token counts ``(n, tokens)``.

        Raises:
            Undefined: for a model without layers called ``attention``, or lots of so many places that the gradient's
                span is everything, whatever the tokens are.
            ValueError: like `read_label_lots`.
        """
        lots, network = read_label_lots(view, knowledge, self.round), knowledge.network
        names = _attention_layers(network)
        texts = [
            _recovered(network, lots.model, gradient, names, int(size))
            for gradient, size in zip(lots.gradients, lots.sizes, strict=True)
        ]
        counts = np.stack([counts_of(own, network.classes) for own in texts])
        return guesses_of_round(counts, view, self.round, texts)


def _attention_layers(network: Network) -> list[str]:
    """The names of the first two attention layers."""
    named = network.module.named_modules()
    found = [name for name, one in named if name.rpartition(".")[2] == "attention" and isinstance(one, nn.Linear)]
    found = [name for name in found if f"{name}.weight" in network.layout.names]
    if not found:
        raise Undefined(
            f"model {network.model} has no trained linear layer called attention, as text_transformer has, whose "
            "gradient spans the inputs of attention"
        )
    return found[:2]


def _recovered(network: Network, model: Tensor, gradient: Tensor, names: list[str], size: int) -> IntArray:
    """The texts ``(size, length)`` whose inputs lie nearest to the spans of one upload's gradients."""
    length, layers = network.shape[2], network.layout.unflatten(gradient)
    width = layers[f"{names[0]}.weight"].shape[-1]
    # A layer norm takes one direction away.
    if size * length >= width - 1:
        raise Undefined(
            f"{size} texts of {length} tokens have {size * length} positions, and the attack needs fewer than "
            f"{width - 1} (the width {width} less one, which a layer norm fixes); attack smaller lots or a wider model"
        )
    spans = {name: span_of(layers[f"{name}.weight"], size * length) for name in names}
    return texts_in_spans(network, model, spans, size)
