"""Moves the tensors and models of local training between the CPU and a GPU, where convolutions are exact and
deterministic.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import replace
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor, nn

from ..algorithms import Numbers
from ..models.network import Network

CPU = "cpu"


def moved(tensor: Tensor, device: str) -> Tensor:
    """Return a tensor on ``device``; all tensors of a federation pass here from the CPU to a GPU and back."""
    return tensor.to(device)


def moved_numbers(numbers: Numbers, device: str) -> dict[str, Tensor]:
    """Return named tensors on ``device``."""
    return {name: moved(value, device) for name, value in numbers.items()}


@lru_cache(maxsize=4)
def network_on(network: Network, device: str) -> Network:
    """Return a network whose module, with its frozen parameters and buffers, is on ``device``."""
    found = replace(network)
    vars(found).update({"module": deepcopy(network.module), "objective": network.objective})
    for part in found.module.modules():
        for name, value in part._parameters.items():
            if value is not None:
                part._parameters[name] = nn.Parameter(moved(value.detach(), device), value.requires_grad)
        for name, buffer in part._buffers.items():
            part._buffers[name] = None if buffer is None else moved(buffer, device)
    return found


@contextmanager
def exact_convolutions() -> Iterator[None]:
    """Inside this context, compute convolutions in float32 and deterministically; the settings are restored afterwards.

    By default cuDNN's convolutions use TF32, with ten bits of each mantissa.
    """
    # Not ``cudnn.flags``, which fails where the caller has chosen a precision.
    cudnn: Any = torch.backends.cudnn  # mypy sees the module, which torch replaces by an object on import.
    before = cudnn.conv.fp32_precision, cudnn.deterministic, cudnn.benchmark
    cudnn.conv.fp32_precision, cudnn.deterministic, cudnn.benchmark = "ieee", True, False
    try:
        yield
    finally:
        cudnn.conv.fp32_precision, cudnn.deterministic, cudnn.benchmark = before


def free_numbers(device: str) -> int:
    """Return how many float32 numbers fit into half of the free memory of a GPU."""
    return int(torch.cuda.mem_get_info(device)[0]) // 8


def numbers_of_sample(network: Network) -> int:
    """Return how many numbers a model's layers output for one sample; all of them are in memory during a gradient
    computation.
    """
    counts = list[int]()

    def count(layer: nn.Module, given: object, output: object) -> None:
        counts.append(output.numel() if isinstance(output, Tensor) else 0)

    watched = [layer.register_forward_hook(count) for layer in network.module.modules() if not [*layer.children()]]
    try:
        with torch.no_grad():
            network.module(torch.zeros(1, *network.shape))
    finally:
        for hook in watched:
            hook.remove()
    return sum(counts)
