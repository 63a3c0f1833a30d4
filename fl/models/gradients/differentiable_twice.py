"""Runs a model so that function transforms can map it and gradients of its gradients are right.

PyTorch (2.15, for one) returns wrong second derivatives, without any error, where ``vmap(grad(...))`` runs through a
layer norm, an instance norm or a batch norm with weights, or through its fused weight norm; the same operation without
weights, followed by a product, is right. Of its kernels of attention one can be mapped and differentiated twice.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.overrides import TorchFunctionMode


@contextmanager
def differentiable_twice() -> Iterator[None]:
    """Replace the operations whose second derivatives are wrong or missing inside the context."""
    with sdpa_kernel(SDPBackend.MATH), _Replaced():
        yield


class _Replaced(TorchFunctionMode):
    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        return _REPLACED.get(func, func)(*args, **(kwargs or {}))


def _layer_norm(
    input: Tensor, normalized_shape: Any, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5
) -> Tensor:
    return _scaled(F.layer_norm(input, normalized_shape, eps=eps), weight, bias)


def _instance_norm(
    input: Tensor,
    running_mean: Tensor | None = None,
    running_var: Tensor | None = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    *rest: Any,
    **options: Any,
) -> Tensor:
    plain = F.instance_norm(input, running_mean, running_var, None, None, *rest, **options)
    return _scaled(plain, *(_of_channels(one, input) for one in (weight, bias)))


def _batch_norm(
    input: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    *rest: Any,
    **options: Any,
) -> Tensor:
    plain = F.batch_norm(input, running_mean, running_var, None, None, *rest, **options)
    return _scaled(plain, *(_of_channels(one, input) for one in (weight, bias)))


def _weight_norm(direction: Tensor, length: Tensor, dim: int = 0) -> Tensor:
    # All other dimensions; -1 stands for the norm of the whole weight.
    others = [axis for axis in range(direction.ndim) if axis != dim]
    # Without the test a sum over no dimension would be one over all.
    norms: Tensor = direction.square().sum(others, keepdim=True).sqrt() if others else direction.abs()
    return direction * (length / norms)


def _of_channels(values: Tensor | None, like: Tensor) -> Tensor | None:
    """Numbers per channel, the second dimension of ``like``."""
    return None if values is None else values.view(-1, *[1] * (like.ndim - 2))


def _scaled(plain: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    scaled = plain if weight is None else plain * weight
    return scaled if bias is None else scaled + bias


_REPLACED: Mapping[Any, Callable[..., Tensor]] = {
    F.layer_norm: _layer_norm,
    F.instance_norm: _instance_norm,
    F.batch_norm: _batch_norm,
    torch._weight_norm: _weight_norm,
}
