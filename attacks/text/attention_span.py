"""Attack that recovers whole texts from the span of attention gradients (DAGER, Petrov et al. 2024)."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from ...audit.arrays import IntArray
from ...audit.evidence import TokenGuesses
from ...fl.models.network import Network
from ...fl.view import View
from ..attack import Knowledge, Undefined
from ..labels.label_lots import read_label_lots
from .text_attack import TextAttack, counts_of, guesses_of_round

# Singular values this much below the largest are rounding errors of single precision.
_ROUNDING = 1e-6
# An input this near to a span, as the sine of an angle, lies in it up to rounding.
_INSIDE = 1e-3


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
    if not found:
        raise Undefined(
            f"model {network.model} has no linear layer called attention, as text_transformer has, whose gradient "
            "spans the inputs of attention"
        )
    return found[:2]


def _recovered(network: Network, model: Tensor, gradient: Tensor, names: list[str], size: int) -> IntArray:
    """The texts ``(size, length)`` whose inputs lie nearest to the spans of one upload's gradients."""
    length, tokens, layers = network.shape[2], network.classes, network.layout.unflatten(gradient)
    alone = torch.arange(tokens).view(-1, 1).expand(-1, length)
    inputs = _inputs(network, model, names[:1], alone)[0]
    spans = [_span(layers[f"{name}.weight"], size * length) for name in names]
    width = inputs.shape[-1]
    # A layer norm takes one direction away.
    if size * length >= width - 1:
        raise Undefined(
            f"{size} texts of {length} tokens have as many places as attention has inputs ({width}, of which a layer "
            "norm fixes one), so their gradient spans everything; attack smaller lots or a wider model"
        )
    distances = _distances(inputs, spans[0])
    if size == 1:
        return np.asarray(distances.argmin(0, keepdim=True).numpy(), dtype=np.int64)
    return _joined(network, model, dict(zip(names, spans, strict=True)), distances, size)


def _joined(network: Network, model: Tensor, spans: dict[str, Tensor], distances: Tensor, size: int) -> IntArray:
    """Texts built from left to right; ``distances (tokens, length)`` are those of the first layer's inputs."""
    texts, costs = torch.zeros(1, 0, dtype=torch.int64), torch.zeros(1, dtype=torch.float64)
    for own in distances.T:
        # Of several texts, at most as many tokens stand at a place.
        nearest = own.argsort()[: max(size, int((own < _INSIDE).sum()))]
        added = nearest.repeat(len(texts)).unsqueeze(1)
        texts = torch.cat([texts.repeat_interleave(len(nearest), dim=0), added], dim=1)
        inputs = _inputs(network, model, list(spans), texts)
        costs = costs.repeat_interleave(len(nearest))
        for heard, span in zip(inputs, spans.values(), strict=True):
            costs = costs + _distances(heard[:, -1], span)
        kept = costs.topk(min(size, len(texts)), largest=False).indices
        texts, costs = texts[kept], costs[kept]
    return np.asarray(texts.numpy(), dtype=np.int64)


def _span(gradient: Tensor, places: int) -> Tensor:
    """An orthonormal basis ``(r, inputs)`` of a weight gradient's rows, of at most ``places`` directions."""
    _, sizes, rows = torch.linalg.svd(gradient.double(), full_matrices=False)
    span: Tensor = rows[: min(places, int((sizes > _ROUNDING * sizes[0]).sum()))]
    return span


def _distances(inputs: Tensor, span: Tensor) -> Tensor:
    """The sine of the angle between inputs ``(..., inputs)`` and the span, ``(...,)``."""
    outside = inputs - (inputs @ span.T) @ span
    distances: Tensor = torch.linalg.vector_norm(outside, dim=-1) / torch.linalg.vector_norm(inputs, dim=-1)
    return distances


def _inputs(network: Network, model: Tensor, names: list[str], texts: Tensor) -> list[Tensor]:
    """What the named layers receive when the model reads ``texts (n, length)``, ``(n, length, inputs)`` each."""
    images = texts.view(len(texts), 1, 1, -1).to(model.dtype)
    with torch.no_grad(), _listening(network.module, names) as heard:
        network.logits(model.double(), images)
    return [heard[name] for name in names]


@contextmanager
def _listening(module: nn.Module, names: list[str]) -> Iterator[dict[str, Tensor]]:
    heard: dict[str, Tensor] = {}

    def listen(name: str) -> "torch.utils.hooks.RemovableHandle":
        def keep(_: nn.Module, given: tuple[Tensor, ...]) -> None:
            heard[name] = given[0]

        return module.get_submodule(name).register_forward_pre_hook(keep)

    handles = [listen(name) for name in names]
    try:
        yield heard
    finally:
        for handle in handles:
            handle.remove()
