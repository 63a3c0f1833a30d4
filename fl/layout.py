"""Maps each named layer of a model to its slice of one flat parameter vector."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

import torch
from torch import Tensor

from .fields import check_count

INERT = "inert"


@dataclass(frozen=True, kw_only=True)
class Layout:
    """The order of a model's layers in one flat parameter vector.

    ``inert`` weights may follow the model's own. They never enter the loss, so no data moves them. An audit plants its
    canaries there: without the canary, the noiseless release is known to be zero along such a weight.
    """

    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    inert: int = 0

    def __post_init__(self) -> None:
        if len(self.names) != len(self.shapes) or len(set(self.names)) != len(self.names):
            raise ValueError(
                f"layer names must be unique, one per shape, got {self.names} for {len(self.shapes)} shapes"
            )
        if not self.names or INERT in self.names:
            raise ValueError(f"names must list at least one layer, and none may be called {INERT!r}, got {self.names}")
        check_count("inert (number of unused weights)", self.inert, least=0)

    @cached_property
    def model_dim(self) -> int:
        """The number of coordinates of the flat vector that enter the loss: all except the inert (unused) weights."""
        return sum(math.prod(shape) for shape in self.shapes)

    @property
    def dim(self) -> int:
        """The number of all coordinates of the flat vector: the model's coordinates plus the inert (unused) weights."""
        return self.model_dim + self.inert

    @cached_property
    def slices(self) -> dict[str, slice]:
        """The slice of each layer in the flat vector, by layer name.

        ``inert`` is last where there are inert (unused) weights.
        """
        ends = list(accumulate(math.prod(shape) for shape in self.shapes))
        slices = {name: slice(low, high) for name, low, high in zip(self.names, [0, *ends[:-1]], ends, strict=True)}
        return slices | ({INERT: slice(self.model_dim, self.dim)} if self.inert else {})

    def flatten(self, tensors: Mapping[str, Tensor]) -> Tensor:
        """Concatenate a model's layers into flat parameter vectors, with zeros for the inert (unused) weights.

        The result has shape ``(..., dim)``; all layers have the same leading dimensions.

        Raises:
            ValueError: if a layer is missing or unknown, or a shape is not this layout's.
        """
        if set(tensors) != set(self.names):
            raise ValueError(f"layers must be {', '.join(self.names)}, got {', '.join(tensors)}")
        # The first layer gives the leading dimensions that all layers must share.
        first = tensors[self.names[0]]
        lead = first.shape[: max(0, first.ndim - len(self.shapes[0]))]
        layers = list(zip(self.names, self.shapes, strict=True))
        for name, shape in layers:
            if tensors[name].shape != (*lead, *shape):
                raise ValueError(f"layer {name} must have shape {(*lead, *shape)}, got {tuple(tensors[name].shape)}")
        # A scalar parameter has no dimension to flatten.
        parts = [tensors[name].flatten(len(lead)) if shape else tensors[name].unsqueeze(-1) for name, shape in layers]
        return torch.cat([*parts, first.new_zeros((*lead, self.inert))], dim=-1)

    def unflatten(self, vector: Tensor) -> dict[str, Tensor]:
        """Split flat parameter vectors ``(..., dim)`` into the model's layers by name.

        Each has shape ``(..., *shape)``; inert (unused) weights are left out.

        Raises:
            ValueError: if the last dimension is not ``dim``.
        """
        if vector.ndim == 0 or vector.shape[-1] != self.dim:
            raise ValueError(f"the last dimension of vector must be {self.dim}, got shape {tuple(vector.shape)}")
        lead, slices = vector.shape[:-1], self.slices
        return {
            name: vector[..., slices[name]].reshape((*lead, *shape))
            for name, shape in zip(self.names, self.shapes, strict=True)
        }
