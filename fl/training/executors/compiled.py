"""Trains the clients of a cohort in blocks, by gradients that ``torch.compile`` has turned into machine code."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cache
from math import ceil, prod
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.func import functional_call, grad, vmap

from ....audit.parts import described
from ...models.network import Network
from ...plan import Plan
from ..local import Lot
from .batched import LARGE, Batched, JoinedLots

# Rows of a call; more do not fit in the cache.
_ROWS = 16
# Each shape is compiled once; beyond PyTorch's limit of 8 it would compute without compiling.
_SHAPES = 256
_BACKEND = "inductor"
_Function = Callable[..., Tensor]


@dataclass(frozen=True, kw_only=True)
class Compiled(Batched):
    """The executor that computes a block of clients by compiled gradients, in calls with few different shapes.

    A shape takes some ten seconds to compile, once per process. Linear models use their closed form, uncompiled.
    """

    @classmethod
    def check(cls, network: Network) -> None:
        if network.mixes:
            raise ValueError(
                f"executor compiled pads lots to fixed shapes, but under model {network.model} batch norm mixes the "
                "samples of a batch; choose executor sequential"
            )
        if network.model != "logistic":
            _check_compiler()
            _check_traced(network)

    def clients_at_once(self, plan: Plan) -> int:
        most = max(1, _most_rows(plan) // self.batch.replicas)
        expected = max(1, ceil(plan.expected_cohort))
        # As equal as possible: 50 clients make four blocks of 13, of which the last is padded.
        return ceil(expected / ceil(expected / most))

    def rows_at_once(self, plan: Plan) -> int:
        rows = self.clients_at_once(plan) * self.batch.replicas
        return ceil(rows / ceil(rows / _most_rows(plan)))

    def length(self, longest: int, plan: Plan) -> int:
        # A power of two, so that few lengths are compiled, and no more than the largest lot.
        return max(longest, min(plan.largest_lot, 1 << (longest - 1).bit_length()))

    def gradients(self, local: Tensor, lots: JoinedLots, plan: Plan, *, each: bool = False) -> Tensor:
        if self.task.network.model == "logistic":
            return super().gradients(local, lots, plan, each=each)
        function = _sample_gradients(self.network) if each else _mean_gradients(self.network)
        size, found = self.rows_at_once(plan), list[Tensor]()
        with _many_shapes(), self.exactly():
            for start in range(0, lots.rows, size):
                part = lots.part(start, size)
                places = torch.arange(start, start + size, device=local.device).clamp_max(lots.rows - 1)
                cases = [part.images, part.labels, *([] if each else [part.weights])]
                cases += [] if part.dropout is None else [part.dropout]
                found.append(function(local[places], *cases))
        return torch.cat(found)[: lots.rows]

    def descent(self, layers: dict[str, Tensor], rate: float, lot: Lot, plan: Plan) -> dict[str, Tensor]:
        if lot.held.images is not self.task.images:
            return super().descent(layers, rate, lot, plan)
        lots = self._joined_lots([lot], plan)
        cases = [part[0] for part in (lots.images, lots.labels, lots.weights)]
        cases += [] if lots.dropout is None else [lots.dropout[0]]
        step = torch.tensor(rate, device=lots.weights.device)
        with _many_shapes():
            stepped = _descents(self.network)(tuple(layers.values()), step, *cases)
        return dict(zip(layers, stepped, strict=True))


def _many_shapes() -> AbstractContextManager[None]:
    """PyTorch's limit, which holds for the code of all models together, raised to as many shapes as a run may have."""
    raised: AbstractContextManager[None] = torch._dynamo.config.patch(
        recompile_limit=_SHAPES, accumulated_recompile_limit=_SHAPES
    )
    return raised


def _most_rows(plan: Plan) -> int:
    return 1 if plan.layout.dim > LARGE else _ROWS


@cache
def _mean_gradients(network: Network) -> _Function:
    """``(rows, d)`` from parameters, images, labels, weights and dropout of each row."""
    return _compiled(vmap(grad(_mean_loss(network))), _BACKEND)


@cache
def _sample_gradients(network: Network) -> _Function:
    """``(rows, L, d)`` from parameters, images, labels and dropout of each row."""
    losses = _losses(network)

    def loss(params: Tensor, *case: Tensor) -> Tensor:
        return losses(params, *(part.unsqueeze(0) for part in case))[0]

    def of_row(params: Tensor, *cases: Tensor) -> Tensor:
        if network.plain:
            return vmap(grad(loss), in_dims=(None, *[0] * len(cases)))(params, *cases)  # type: ignore[no-any-return]
        # The same parameters for every sample, without memory: recurrent cells write in place into their products.
        return vmap(grad(loss))(params.expand(len(cases[0]), -1), *cases)  # type: ignore[no-any-return]

    return _compiled(vmap(of_row), _BACKEND)


@cache
def _descents(network: Network) -> Callable[..., tuple[Tensor, ...]]:
    """A model's layers after one step, from its layers, the rate, and images, labels, weights and dropout of a lot.

    Not from the flat vector, whose gradient would be joined from those of the layers in every step.
    """
    losses = _losses_of_layers(network)

    def loss(layers: Sequence[Tensor], images: Tensor, labels: Tensor, weights: Tensor, *dropout: Tensor) -> Tensor:
        return (losses(layers, images, labels, *dropout) * weights).sum()

    def step(layers: tuple[Tensor, ...], rate: Tensor, *case: Tensor) -> tuple[Tensor, ...]:
        return tuple(layer - rate * slope for layer, slope in zip(layers, grad(loss)(layers, *case), strict=True))

    return _compiled(step, _BACKEND)


def _compiled(function: Callable[..., Any], backend: str) -> Callable[..., Any]:
    return torch.compile(function, fullgraph=True, dynamic=False, backend=backend)


def _mean_loss(network: Network) -> _Function:
    losses = _losses(network)

    def loss(params: Tensor, images: Tensor, labels: Tensor, weights: Tensor, *dropout: Tensor) -> Tensor:
        return (losses(params, images, labels, *dropout) * weights).sum()

    return loss


def _losses(network: Network) -> _Function:
    """The losses of a batch at a flat vector."""
    losses, layout = _losses_of_layers(network), network.layout
    sizes = [prod(shape) for shape in layout.shapes]

    def of_vector(params: Tensor, *case: Tensor) -> Tensor:
        parts = torch.split(params[: layout.model_dim], sizes)
        return losses([part.reshape(shape) for part, shape in zip(parts, layout.shapes, strict=True)], *case)

    return of_vector


def _losses_of_layers(network: Network) -> _Function:
    """The losses of a batch, computed without the network's cached properties, which cannot be traced."""
    module, names, objective = network.module, network.layout.names, network.objective

    def losses(layers: Sequence[Tensor], images: Tensor, labels: Tensor, *dropout: Tensor) -> Tensor:
        # Without the replacements for second derivatives, which a first derivative does not need.
        logits = functional_call(module, dict(zip(names, layers, strict=True)), (images, *dropout))
        return objective.losses(logits, labels)

    return losses


def _check_compiler() -> None:
    from torch._inductor.cpp_builder import get_cpp_compiler
    from torch._inductor.exc import InvalidCxxCompiler

    try:
        get_cpp_compiler()
    except (InvalidCxxCompiler, FileNotFoundError) as error:
        raise ValueError(
            "executor compiled needs a C++ compiler, such as g++, and found none; choose executor sequential"
        ) from error


@cache
def _check_traced(network: Network) -> None:
    """ValueError for a model whose gradient PyTorch cannot trace as one graph, with which compiling begins."""
    images, params = torch.zeros(2, 2, *network.shape), torch.zeros(2, network.layout.dim)
    labels = torch.stack([network.objective.found(network.evaluated(params[0], row)) for row in images])
    cases = [images, labels, torch.ones(2, 2)]
    dropout = network.draw_dropout(np.random.default_rng(0), (2, 2))
    cases += [] if dropout is None else [dropout]
    try:
        with _many_shapes():
            _compiled(vmap(grad(_mean_loss(network))), "eager")(params, *cases)
    except Exception as error:
        reason = described(error).strip().splitlines()[0]
        raise ValueError(
            f"executor compiled cannot compile model {network.model}: {reason}; choose executor sequential"
        ) from error
