"""Computes the slopes of the cosine objective by machine code that ``torch.compile`` makes of its nested gradients."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache, partial

import torch
from torch import Tensor
from torch.func import functional_call, grad, vmap

from ....fl.models.network import Network
from .cosine import Cosine
from .search import total_variation

# Candidates of a call; more do not fit in the cache, and every other number would be compiled anew.
_AT_ONCE = 32
# Code for each shape of each model; beyond PyTorch's limit of 8 it would compute without compiling.
_SHAPES = 256
# A squared length below it counts as zero; single precision holds no smaller number exactly.
_LEAST_SQUARE = 1e-37
_Function = Callable[..., Tensor]
_Layers = dict[str, Tensor]


def check_compiled(network: Network) -> None:
    """Raise ValueError, with the reason, unless this machine can compile searches on ``network``.

    It must be a model of the catalogue that consists of linear layers, convolutions, pools, activations and dropout.
    """
    if not network.plain or network.mixes:
        raise ValueError(
            f"a compiled search needs a model of the catalogue without batch norm, got {network.model}: "
            "leave out compiled = true"
        )
    # Imported here, because it takes a second.
    from torch._inductor.cpp_builder import get_cpp_compiler
    from torch._inductor.exc import InvalidCxxCompiler

    try:
        get_cpp_compiler()
    except (InvalidCxxCompiler, FileNotFoundError) as error:
        raise ValueError(
            "a compiled search needs a C++ compiler, such as g++, and this machine has none: leave out compiled = true"
        ) from error


def compiled_slopes(cosine: Cosine) -> Callable[[Tensor], Tensor]:
    """Return the function ``images (n, k, c, h, w) -> slopes`` of the objective of ``cosine``, of the same shape.

    It is compiled at the first call of each number of images, up to 32 and padded to a power of two; more are computed
    32 at a time. It differs from ``search.slopes`` by rounding. Raises ValueError as ``check_compiled``, and for images
    that are not on the CPU.
    """
    check_compiled(cosine.network)
    if cosine.model.device.type != "cpu":
        raise ValueError(f'a compiled search runs on the CPU, got device "{cosine.model.device.type}"')
    return partial(_in_calls, cosine)


def _in_calls(cosine: Cosine, images: Tensor) -> Tensor:
    n = len(images)
    size = min(_AT_ONCE, 1 << (n - 1).bit_length())
    layout, function = cosine.network.layout, _function(cosine.network)
    weight, layers, found = torch.tensor(cosine.total_variation), layout.unflatten(cosine.model), list[Tensor]()
    # Directions have no inert weights.
    wanted = replace(layout, inert=0).unflatten(cosine.directions)
    cases = [images, cosine.labels, *([] if cosine.dropout is None else [cosine.dropout])]
    with _compiling(), torch.no_grad():
        for start in range(0, n, size):
            rows = torch.arange(start, start + size).clamp_max(n - 1)
            directions = {name: part[rows] for name, part in wanted.items()}
            found.append(function(layers, directions, weight, *(case[rows] for case in cases)))
    return torch.cat(found)[:n]


@contextmanager
def _compiling() -> Iterator[None]:
    """PyTorch's settings while a function may be compiled."""
    # Imported here, because it takes a second.
    from torch._inductor import config

    # By default a pool of processes compiles, each with PyTorch in memory; runs have their own.
    limits = torch._dynamo.config.patch(recompile_limit=_SHAPES, accumulated_recompile_limit=_SHAPES)
    with limits, config.patch(compile_threads=1):
        yield


@cache
def _function(network: Network) -> _Function:
    """``(layers, directions, weight of total variation, images, labels, dropout) -> slopes`` of all candidates."""
    # What is looked up outside need not be traced.
    module, objective = network.module, network.objective

    def loss(layers: _Layers, images: Tensor, labels: Tensor, *dropout: Tensor) -> Tensor:
        return objective.soft_loss(functional_call(module, layers, (images, *dropout)), labels)

    def total(images: Tensor, layers: _Layers, directions: _Layers, weight: Tensor, *cases: Tensor) -> Tensor:
        of_lots = vmap(grad(loss), in_dims=(None, 0, *[0] * len(cases)))
        rows = of_lots(layers, images, *cases)
        # Layer by layer, so that the rows are not joined.
        products = sum((row * directions[name]).flatten(1).sum(1) for name, row in rows.items())
        squares = sum(row.square().flatten(1).sum(1) for row in rows.values())
        cosines = products / squares.clamp_min(_LEAST_SQUARE).sqrt()
        whole: Tensor = (1 - cosines + weight * total_variation(images)).sum()
        return whole

    slopes = grad(total)

    def function(layers: _Layers, directions: _Layers, weight: Tensor, images: Tensor, *cases: Tensor) -> Tensor:
        found: Tensor = slopes(images, layers, directions, weight, *cases)
        return found

    compiled: _Function = torch.compile(function, fullgraph=True, dynamic=False)
    return compiled
