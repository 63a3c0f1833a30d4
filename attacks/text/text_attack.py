"""Base class of attacks that recover tokens from the uploads of one round. A search finds the texts whose inputs to
linear layers lie in the spans of those layers' gradients (Petrov et al. 2024).

The gradient of a linear layer's weights is a sum over places of (gradient of the outputs) times (input), so its rows
span no more than the inputs of all places.
"""

import copy
from abc import ABC
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn
from torch.func import functional_call

from ...audit.arrays import IntArray
from ...audit.evidence import TokenGuesses
from ...fl.models.network import Network
from ...fl.objective import NEXT_TOKEN
from ...fl.recorder import View
from ..uploads import UploadAttack, upload_setting


@dataclass(frozen=True, kw_only=True)
class TextAttack(UploadAttack, ABC):
    """A base class of attacks that recover the tokens of the texts behind each client's upload of one round."""

    tasks: ClassVar[tuple[str, ...]] = (NEXT_TOKEN,)


def guesses_of_round(
    counts: ArrayLike, view: View, round: int, texts: Sequence[IntArray] | None = None, rounds: int = 1
) -> TokenGuesses:
    """Return an attack's result for the n uploads of one ``round``: the token counts ``(n, tokens)`` and, if given, the
    texts behind each upload. ``rounds``: the rounds whose uploads the attack read.
    """
    values = np.asarray(counts, dtype=np.float64)
    return TokenGuesses(
        values, upload_setting(view, rounds), texts=None if texts is None else tuple(texts), round=round
    )


def counts_of(texts: ArrayLike, tokens: int) -> IntArray:
    """Count how often each of ``tokens`` different tokens occurs in ``texts``, whole numbers of any shape; the result
    has shape ``(tokens,)``.
    """
    flat = torch.as_tensor(np.asarray(texts)).long().flatten()
    return np.asarray(torch.bincount(flat, minlength=tokens).numpy(), dtype=np.int64)


# Singular values this much below the largest are rounding errors of single precision.
_ROUNDING = 1e-6
# An input this near to a span, as the sine of an angle, lies in it up to rounding.
_INSIDE = 1e-3


def span_of(gradient: Tensor, places: int) -> Tensor:
    """Return an orthonormal basis ``(k, inputs)`` of a weight gradient's rows, of at most ``places`` directions."""
    _, sizes, rows = torch.linalg.svd(gradient.double(), full_matrices=False)
    span: Tensor = rows[: min(places, int((sizes > _ROUNDING * sizes[0]).sum()))]
    return span


def texts_in_spans(network: Network, model: Tensor, spans: Mapping[str, Tensor], size: int) -> IntArray:
    """Return the texts ``(size, length)`` whose inputs lie nearest to the spans of one upload's gradients.

    ``spans``: by the name of the layer, first the one whose inputs depend on a place's token alone. The model must be
    causal. Of a single text each token is the one whose input of the first layer lies nearest to the span. Of several
    texts all tokens in the span are joined to the texts found so far, and those kept that lie nearest in all layers.
    """
    reader = _Reader(network, model)
    alone = torch.arange(network.classes).view(-1, 1).expand(-1, network.shape[2])
    first = next(iter(spans))
    distances = _distances(reader.inputs([first], alone)[0], spans[first])
    if size == 1:
        return np.asarray(distances.argmin(0, keepdim=True).numpy(), dtype=np.int64)
    return _joined(reader, spans, distances, size)


class _Reader:
    """What layers receive when a model reads texts, in double precision."""

    def __init__(self, network: Network, model: Tensor) -> None:
        # A copy, because frozen parameters are the module's own, in single precision.
        self._module = copy.deepcopy(network.module).double()
        self._layers = network.layout.unflatten(model.double())

    def inputs(self, names: list[str], texts: Tensor) -> list[Tensor]:
        """Return the inputs ``(n, length, inputs)`` of each of the named layers for ``texts (n, length)``."""
        images = texts.view(len(texts), 1, 1, -1).double()
        with torch.no_grad(), _listening(self._module, names) as heard:
            functional_call(self._module, self._layers, images)
        return [heard[name] for name in names]


def _joined(reader: _Reader, spans: Mapping[str, Tensor], distances: Tensor, size: int) -> IntArray:
    """Texts built from left to right; ``distances (tokens, length)`` are those of the first layer's inputs."""
    texts, costs = torch.zeros(1, 0, dtype=torch.int64), torch.zeros(1, dtype=torch.float64)
    for own in distances.T:
        # Of several texts, at most as many tokens stand at a place.
        nearest = own.argsort()[: max(size, int((own < _INSIDE).sum()))]
        added = nearest.repeat(len(texts)).unsqueeze(1)
        texts = torch.cat([texts.repeat_interleave(len(nearest), dim=0), added], dim=1)
        costs = costs.repeat_interleave(len(nearest))
        for heard, span in zip(reader.inputs(list(spans), texts), spans.values(), strict=True):
            costs = costs + _distances(heard[:, -1], span)
        kept = costs.topk(min(size, len(texts)), largest=False).indices
        texts, costs = texts[kept], costs[kept]
    return np.asarray(texts.numpy(), dtype=np.int64)


def _distances(inputs: Tensor, span: Tensor) -> Tensor:
    """The sine of the angle between inputs ``(..., inputs)`` and the span, ``(...,)``."""
    outside = inputs - (inputs @ span.T) @ span
    distances: Tensor = torch.linalg.vector_norm(outside, dim=-1) / torch.linalg.vector_norm(inputs, dim=-1)
    return distances


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
