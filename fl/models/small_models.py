"""Builds models by name, from the catalogue or from outside, and draws their initial parameters.

All models work under `torch.func.functional_call`, `vmap` and double backward: no buffers, no in-place operations, no
random draws of their own. In the catalogue's models the last layer is called `output`; its classifiers are chains of
layers.

Batch norm has no running statistics: it uses those of the lot at hand, in training and at evaluation. Running
statistics would be buffers that leave the client in addition to its upload, and that no defense here protects.
"""

import math
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ...audit.parts import call, find_outside, names_in, part_in
from ..fields import check_count
from ..streams import seeded, uniform
from .admission import BATCH_NORM, prepared
from .layers import ImprintLayer, LayerChain, Normalisation, Normalise, with_seeded_dropout

_FOLDER = f"{__package__}.architectures"
# Images on which a model from outside is tried, together and one by one.
_TRIED = 3
Builder = Callable[..., nn.Module]
"""``(shape, classes, **options) -> nn.Module``, what a model is."""


def known_models() -> tuple[str, ...]:
    """Return the names of the catalogue's models, in alphabetical order."""
    return names_in(_FOLDER)


def find_model(name: str) -> Builder:
    """Find the function ``(shape, classes, **options) -> nn.Module`` of a model, in the catalogue or outside this
    package.

    Raises:
        ValueError: for an unknown name, a module that does not import, or something that cannot be called.
    """
    known = known_models()
    found = part_in(_FOLDER, name) if name in known else find_outside("model", name, known)
    if not callable(found):
        raise ValueError(f"model {name!r} must be a function (shape, classes) -> nn.Module, got {type(found).__name__}")
    function: Builder = found
    return function


def build_model(
    name: str,
    *,
    shape: tuple[int, int, int],
    classes: int,
    normalisation: Normalisation | None = None,
    **options: Any,
) -> nn.Module:
    """Build a model by name, with all trained parameters zero; a model from outside this package keeps its own initial
    values.

    It turns images (batch, *shape) into outputs (batch, classes): logits of classes or of labels, or the numbers of a
    regression, which may be a single one. A segmentation model gives one logit per pixel, (batch, height, width).

    shape: (channel, height, width). normalisation: public constants that scale the input first (after an imprint layer,
    which is the server's and reads the images). options: the model's own, which its function takes, such as ``hidden``
    of mlp. `initial_parameters` gives the values; the global generators are neither read nor changed. Raises ValueError
    for an unknown name, an option that the model does not have, an image that is too small, a function that raises or
    returns something else, or a module that `prepared` refuses.
    """
    _check_data(shape, classes)
    if normalisation is not None:
        normalisation.check_channels(shape[0])
    function, own = find_model(name), name in known_models()
    with seeded(0):
        if own:
            # On the meta device nothing is drawn, which takes time for large models.
            with torch.device("meta"):
                model = _called(name, function, shape, classes, options)
            check_stateless(model)
            if all(parameter.requires_grad for parameter in model.parameters()):
                # Not `to_empty`, which imports PyTorch's symbolic shapes.
                model._apply(lambda tensor: torch.zeros(tensor.shape, dtype=tensor.dtype))  # type: ignore[no-untyped-call]
            else:
                # Frozen parameters keep the values that the function gives them.
                model = _called(name, function, shape, classes, options)
            with torch.no_grad():
                for parameter in model.parameters():
                    if parameter.requires_grad:
                        parameter.zero_()
        else:
            model = _called(name, function, shape, classes, options)
            model = prepared(
                f"model {name}", model, torch.linspace(0, 1, _TRIED * math.prod(shape)).reshape(_TRIED, *shape)
            )
    return model if normalisation is None else _normalised(model, normalisation, name if own else "model")


def own_initial(
    name: str,
    options: Mapping[str, Any],
    *,
    shape: tuple[int, int, int],
    classes: int,
    normalisation: Normalisation | None,
    rng: np.random.Generator,
) -> dict[str, Tensor]:
    """Return the initial parameters that a model's own function draws, with generators seeded by ``rng``.

    The result has one tensor per trained parameter, in parameter order. PyTorch's initialisation uses the global
    generator: it is seeded for the call and restored afterwards, as are those of NumPy and Python.
    """
    own = name in known_models()
    with seeded(int(rng.integers(2**32))):
        model = with_seeded_dropout(_called(name, find_model(name), shape, classes, options))
    full = model if normalisation is None else _normalised(model, normalisation, name if own else "model")
    return {key: value.detach().clone() for key, value in full.named_parameters() if value.requires_grad}


def output_shape(module: nn.Module, shape: tuple[int, int, int]) -> tuple[int, ...]:
    """Return the shape of the module's output for one image of the given shape, without the dimension of the batch."""
    # Two images, because a batch norm refuses a single one.
    with torch.no_grad(), seeded(0):
        found = module(torch.zeros(2, *shape))
    if not isinstance(found, Tensor):
        raise ValueError(f"its output must be a tensor of logits, got {type(found).__name__}")
    return tuple(found.shape[1:])


def has_plain_layers(model: nn.Module) -> bool:
    """Return whether `initial_parameters` can draw all of the model's parameters: those of linear layers, convolutions
    and batch norms.
    """
    plain = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d, BATCH_NORM)
    return all(isinstance(layer, plain) for layer in model.modules() if list(layer.parameters(recurse=False)))


def initial_parameters(model: nn.Module, rng: np.random.Generator) -> dict[str, torch.Tensor]:
    """Draw PyTorch's default initial values for each of the model's parameters from `rng`.

    The result has one tensor per named parameter, in parameter order.

    Weights are Kaiming-uniform with a = sqrt(5) and biases U(-1, 1) / sqrt(fan_in); both intervals are
    +-1 / sqrt(fan_in). A batch norm starts at weight 1 and bias 0 without a draw. Shapes, dtypes and devices are those
    of the parameters; `model` is unchanged. Raises ValueError for a parameter of a layer other than Linear, Conv1d to
    Conv3d and batch norm, whose defaults differ, and for what `check_stateless` refuses.
    """
    check_stateless(model)
    drawn: dict[str, torch.Tensor] = {}
    for prefix, layer in model.named_modules():
        for name, parameter in layer.named_parameters(recurse=False):
            full = f"{prefix}.{name}" if prefix else name
            if isinstance(layer, BATCH_NORM):
                drawn[full] = torch.full_like(parameter.detach(), 1.0 if name == "weight" else 0.0)
                continue
            if not isinstance(layer, (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)):
                raise ValueError(f"layer of {full} must be linear or a convolution, got {type(layer).__name__}")
            bound = 1 / math.sqrt(layer.weight[0].numel())
            values = uniform(rng, parameter.shape, dtype=parameter.dtype)
            drawn[full] = ((2 * values - 1) * bound).to(parameter.device)
    return drawn


def check_stateless(model: nn.Module) -> None:
    """Raise ValueError if the model has a layer whose output depends on stored state or on its own random draws.

    The logits may depend on parameters, the batch and the arguments only.
    """
    for name, layer in model.named_modules():
        kind = f"layer {name} is a {type(layer).__name__}"
        # PyTorch's own dropout; `Dropout` of this package gets its factors as an argument.
        if isinstance(layer, nn.modules.dropout._DropoutNd):
            raise ValueError(
                f"unsupported model: {kind}, which draws from the global random generator and so cannot be repeated"
            )
        # Running statistics of a batch norm, for example: they would leave the client in addition to the upload.
        buffers = [buffer for buffer, _ in layer.named_buffers(recurse=False)]
        if buffers:
            raise ValueError(
                f"unsupported model: {kind} with buffers {', '.join(buffers)}, but a model may hold parameters only"
            )


def _check_data(shape: tuple[int, int, int], classes: int) -> None:
    if len(shape) != 3 or min(shape) < 1:
        raise ValueError(f"shape must be (channel, height, width), each >= 1, got {shape}")
    check_count("classes (outputs of the model)", classes)


def _called(
    name: str, function: Builder, shape: tuple[int, int, int], classes: int, options: Mapping[str, Any]
) -> nn.Module:
    model = call(f"model {name}", function, options, shape, classes)
    if not isinstance(model, nn.Module):
        raise ValueError(f"model {name} must return an nn.Module, got {type(model).__name__}")
    return model


def _normalised(model: nn.Module, constants: Normalisation, name: str) -> nn.Module:
    """The model with the normalisation as its first layer, or its second after the server's imprint layer."""
    layers = list(model.named_children()) if isinstance(model, LayerChain) else [(name, model)]
    layers.insert(1 if isinstance(layers[0][1], ImprintLayer) else 0, ("normalise", Normalise(constants)))
    return LayerChain(OrderedDict(layers))
