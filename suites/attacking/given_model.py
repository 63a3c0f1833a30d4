"""Use a PyTorch model that the caller built, with the caller's weights, in attacks outside any federation."""

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn

from ...audit.wording import shortened
from ...fl.layout import Layout
from ...fl.models.network import Network
from ...fl.models.normalise import Normalisation, Normalise
from ...fl.objective import CLASSIFICATION, Objective, objective_of

Gradient = Tensor | ArrayLike | Sequence[Tensor | None] | Mapping[str, Tensor]


@dataclass(frozen=True, kw_only=True)
class GivenNetwork(Network):
    """A network whose module the caller built; ``given`` is a copy, so that no attack changes the caller's model."""

    given: nn.Module = field(repr=False, compare=False)

    @cached_property
    def module(self) -> nn.Module:
        """The caller's module, behind the normalisation where there is one."""
        if self.normalisation is None:
            return self.given
        self.normalisation.check_channels(self.shape[0])
        return nn.Sequential(Normalise(self.normalisation), self.given)

    @property
    def objective(self) -> Objective:
        """Always a classification: these attacks are for classifiers."""
        return objective_of(CLASSIFICATION)

    @property
    def weights(self) -> Tensor:
        """The caller's weights as one flat vector ``(d,)``."""
        return self.layout.flatten({name: value.detach() for name, value in self.module.named_parameters()})


def given_network(
    model: nn.Module, shape: Sequence[int], *, normalisation: Normalisation | None = None, name: str = "model"
) -> tuple[GivenNetwork, Tensor]:
    """Return a network of the caller's model and its weights ``(d,)`` in single precision.

    Args:
        model: turns images ``(n, *shape)`` into logits ``(n, classes)``.
        shape: (channels, height, width) of an image.
        normalisation: applied before the model, if the caller's images are in [0, 1] and the model wants others.
        name: the caller's argument, for messages.

    Raises:
        TypeError: ``model`` is no PyTorch module.
        ValueError: a shape that is no image's, a model without parameters, in training mode with dropout or batch norm,
            or that does not turn an image of this shape into one vector of finite logits.
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"{name} must be a torch.nn.Module with its weights, got {type(model).__name__}")
    sides = tuple(shape) if isinstance(shape, Sequence | torch.Size) else ()
    if len(sides) != 3 or not all(isinstance(side, int) and side >= 1 for side in sides):
        raise ValueError(f"shape must be (channels, height, width) of one image, each >= 1, got {shape!r}")
    if drawing := _changes_in_training(model):
        raise ValueError(
            f"{name} is in training mode and its layer {drawing!r} then draws random numbers or mixes the samples "
            "of a batch: call its eval(), and compute the gradient in that mode too"
        )
    own = deepcopy(model).to(device="cpu", dtype=torch.float32)
    if not any(True for _ in own.parameters()):
        raise ValueError(f"{name} has no parameters, so that no gradient reveals anything")
    blank = torch.full((2, *sides), 0.5)
    try:
        with torch.no_grad():
            logits = own(blank if normalisation is None else normalisation.apply(blank))
    except Exception as error:  # A caller's model may raise anything; its own words name the cause.
        raise ValueError(
            f"{name} cannot evaluate images of shape {sides}: {type(error).__name__}: {str(error).strip()}"
        ) from error
    if not isinstance(logits, Tensor) or logits.ndim != 2 or len(logits) != 2 or logits.shape[1] < 2:
        found = tuple(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
        raise ValueError(f"{name} must turn n images into logits (n, classes) with 2 classes or more, got {found}")
    if not bool(logits.isfinite().all()):
        raise ValueError(f"{name} returned logits that are NaN or infinite for a grey image: check its weights")
    network = GivenNetwork(model="given", shape=sides, classes=logits.shape[1], normalisation=normalisation, given=own)
    return network, network.weights


def flat_gradients(gradient: Gradient, model: nn.Module, layout: Layout) -> Tensor:
    """Return the caller's gradients as rows ``(n, d)`` in the order of the model's parameters.

    ``gradient``: one array per parameter, in the order of ``model.parameters()`` or by name, as ``torch.autograd.grad``
    returns them (None or left out: zero); one flat vector ``(d,)``; or several, ``(n, d)``.

    Raises:
        TypeError: for anything that is no array of numbers and no list or dictionary of arrays.
        ValueError: for other shapes, with the first parameter that does not fit; for zero or non-finite gradients.
    """
    named = dict(model.named_parameters())
    if isinstance(gradient, Mapping):
        rows = _joined([gradient.get(name) for name in named], named)
        if unknown := sorted(set(map(str, gradient)) - set(named)):
            raise ValueError(f"gradient names {unknown[0]!r}, which is no parameter of the model: {', '.join(named)}")
    elif isinstance(gradient, Sequence) and any(isinstance(part, Tensor | np.ndarray) for part in gradient):
        parts = list(gradient)
        if len(parts) != len(named):
            raise ValueError(
                f"gradient must hold one array per parameter of the model, {len(named)}, in the order of "
                f"model.parameters(), got {len(parts)}"
            )
        rows = _joined(parts, named)
    else:
        rows = _tensor("gradient", gradient)
        rows = rows.unsqueeze(0) if rows.ndim == 1 else rows
    if rows.ndim != 2 or rows.shape[1] != layout.model_dim or not len(rows):
        raise ValueError(
            f"a flat gradient must have as many numbers as the model has weights, {layout.model_dim}, got shape "
            f"{tuple(rows.shape)}"
        )
    # Without a direction, a search would return noise that looks like a result.
    for fault, bad in (("zero", (rows == 0).all(1)), ("NaN or infinite numbers", ~rows.isfinite().all(1))):
        if bad.any():
            which = "" if len(rows) == 1 else f" in row {int(bad.nonzero()[0])}"
            raise ValueError(f"gradient must be finite and not zero, got {fault}{which}")
    return rows


def _tensor(name: str, given: Any) -> Tensor:
    try:
        # An array of Python objects, such as None, or a generator has no numbers.
        return torch.as_tensor(given, dtype=torch.float32).detach().cpu()
    except (TypeError, ValueError, RuntimeError):
        raise TypeError(
            f"{name} must be numbers: the list that torch.autograd.grad returns, a dictionary of arrays by parameter "
            f"or a flat array, got {shortened(given)}"
        ) from None


def _joined(parts: Sequence[Any], named: Mapping[str, nn.Parameter]) -> Tensor:
    found = []
    for part, (name, parameter) in zip(parts, named.items(), strict=True):
        # torch.autograd.grad returns None for a parameter that the loss does not use.
        array = torch.zeros(parameter.shape) if part is None else _tensor(f"the gradient of {name}", part)
        if array.shape != parameter.shape:
            raise ValueError(
                f"the gradient of parameter {name} must have shape {tuple(parameter.shape)}, got {tuple(array.shape)}"
            )
        found.append(array.flatten())
    return torch.cat(found).unsqueeze(0)


def _changes_in_training(model: nn.Module) -> str:
    """The first layer in training mode that draws random numbers or mixes samples; empty if there is none."""
    kinds = (nn.modules.dropout._DropoutNd, nn.modules.batchnorm._BatchNorm)
    return next((name for name, layer in model.named_modules() if isinstance(layer, kinds) and layer.training), "")
