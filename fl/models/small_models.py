"""Small image models, built by name, and their initial parameters, drawn from a named random stream.

All work under `torch.func.functional_call`, `vmap` and double backward: no buffers, no in-place operations, no random
draws of their own. The last layer is called `output` in each of them; classifiers are chains of layers.

Batch norm has no running statistics: it uses those of the lot at hand, in training and at evaluation. Running
statistics would be buffers that leave the client in addition to its upload, and that no defense here protects.
"""

import math
from collections import OrderedDict

import numpy as np
import torch
from torch import nn

from ...audit.nearest import nearest
from ..streams import uniform
from .dropout import Chain, Dropout
from .imprint import BINS, ImprintLayer
from .normalise import Normalisation, Normalise
from .unet import UNet, check_unet

CLASSIFIERS = ("logistic", "mlp", "lenet", "lenet_bn", "lenet_dropout", "cnn26k", "convnet", "imprint")
SEGMENTERS = ("unet",)
"""Models with one logit per pixel, trained on the data set's targets."""
KNOWN_MODELS = (*CLASSIFIERS, *SEGMENTERS)
_ACTIVATIONS: dict[str, type[nn.Module]] = {
    "leaky_relu": nn.LeakyReLU,
    "relu": nn.ReLU,
    "sigmoid": nn.Sigmoid,
    "tanh": nn.Tanh,
}
_BATCH_NORM = nn.modules.batchnorm._BatchNorm
# A last map smaller than 4x4 would leave the linear layer too few features.
_SMALLEST_MAP = 4


def build_model(
    name: str,
    *,
    shape: tuple[int, int, int],
    classes: int,
    hidden: int | None = None,
    activation: str | None = None,
    bins: int | None = None,
    normalisation: Normalisation | None = None,
) -> nn.Module:
    """Build a classifier or a segmentation model by name, with all parameters zero.

    A classifier turns images (batch, *shape) into logits (batch, classes); a segmentation model gives one logit per
    pixel, (batch, height, width).

    shape: (channel, height, width). hidden: width of the mlp's hidden layer, 256 by default; mlp only. activation:
    leaky_relu (default), relu, sigmoid or tanh; lenet only, where it decides how well gradients can be inverted. bins:
    rows of the imprint layer, 256 by default; imprint only. normalisation: public constants that scale the
    input first (after an imprint layer, which is the server's and reads the images). `initial_parameters` gives the
    values; the global generator is neither read nor changed. Raises ValueError for an unknown name, an option of
    another model, or an image that is too small.

    - logistic: one linear layer.
    - mlp: one hidden layer with ReLU.
    - lenet: the network of iDLG (Zhao et al. 2020): 5x5 convolutions with 12 channels, strides 2, 2, 1, then linear.
      Images under 13 pixels (digits) get strides 2, 1, so that the last map is at least 4x4. DLG's sigmoid is an
      option; its initial values from U(-0.5, 0.5) are not used here.
    - lenet_bn: lenet with a batch norm after each convolution, which then has no bias: the norm would cancel it.
    - lenet_dropout: lenet with dropout of one half of the features before the last layer.
    - cnn26k: the MNIST network of Papernot et al. 2021 with ReLU: 26,010 parameters on 1x28x28 with 10 classes.
    - convnet: eight 3x3 convolutions of 64 to 256 channels, as Geiping et al. 2020 attack at width 64, without the
      batch norm that they leave at its initial statistics: 2.9 million parameters on 3x32x32.
    - imprint: the mlp behind a malicious server's imprint layer (see ``imprint``).
    - unet: a segmentation model, 66,116 parameters on one channel (see ``unet``).
    """
    if name not in KNOWN_MODELS:
        raise ValueError(f"model must be one of {nearest(name, KNOWN_MODELS)}, got {name!r}")
    _check_options(name, shape, classes, hidden, activation)
    _check_bins(name, bins)
    if normalisation is not None:
        normalisation.check_channels(shape[0])
    # On the meta device nothing is drawn: PyTorch's own initialisation would advance the global generator.
    with torch.device("meta"):
        model: nn.Module
        if name in SEGMENTERS:
            model = UNet(shape[0])
            if normalisation is not None:
                model = Chain(OrderedDict([("normalise", Normalise(normalisation)), ("unet", model)]))
        else:
            layers = _layers(name, shape, classes, hidden or 256, activation or "leaky_relu", bins or BINS)
            if normalisation is not None:
                layers.insert(1 if name == "imprint" else 0, ("normalise", Normalise(normalisation)))
            model = Chain(OrderedDict(layers))
    model.to_empty(device="cpu")
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    return model


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
            if isinstance(layer, _BATCH_NORM):
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


def is_batch_norm(layer: nn.Module) -> bool:
    """Return whether this layer is a batch norm, which makes the samples of a batch share statistics."""
    return isinstance(layer, _BATCH_NORM)


def _check_options(
    name: str, shape: tuple[int, int, int], classes: int, hidden: int | None, activation: str | None
) -> None:
    if len(shape) != 3 or min(shape) < 1:
        raise ValueError(f"shape must be (channel, height, width), each >= 1, got {shape}")
    if classes < 2:
        raise ValueError(f"classes must be >= 2, got {classes}")
    if hidden is not None and name != "mlp":
        raise ValueError(f"hidden is an option of model mlp only, got {hidden} for {name}")
    if hidden is not None and hidden < 1:
        raise ValueError(f"hidden must be >= 1, got {hidden}")
    if activation is not None and name != "lenet":
        raise ValueError(f"activation is an option of model lenet only, got {activation!r} for {name}")
    if name in SEGMENTERS:
        check_unet(shape, classes)
    if activation is not None and activation not in _ACTIVATIONS:
        raise ValueError(f"activation must be one of {nearest(activation, _ACTIVATIONS)}, got {activation!r}")


def _check_bins(name: str, bins: int | None) -> None:
    if bins is not None and name != "imprint":
        raise ValueError(f"bins is an option of model imprint only, got {bins} for {name}")
    if bins is not None and bins < 1:
        raise ValueError(f"bins must be >= 1, got {bins}")


def _layers(
    name: str, shape: tuple[int, int, int], classes: int, hidden: int, activation: str, bins: int
) -> list[tuple[str, nn.Module]]:
    if name in ("lenet", "lenet_bn", "lenet_dropout"):
        return _lenet(shape, classes, _ACTIVATIONS[activation], extra=name.removeprefix("lenet_"))
    if name == "cnn26k":
        return _cnn26k(shape, classes)
    if name == "convnet":
        return _convnet(shape, classes)
    pixels = math.prod(shape)
    if name in ("mlp", "imprint"):
        imprint: list[tuple[str, nn.Module]] = [("imprint", ImprintLayer(shape, bins))] if name == "imprint" else []
        return [
            *imprint,
            ("flatten", nn.Flatten()),
            ("hidden", nn.Linear(pixels, hidden)),
            ("relu", nn.ReLU()),
            ("output", nn.Linear(hidden, classes)),
        ]
    return [("flatten", nn.Flatten()), ("output", nn.Linear(pixels, classes))]


def _lenet(
    shape: tuple[int, int, int], classes: int, activation: type[nn.Module], *, extra: str
) -> list[tuple[str, nn.Module]]:
    channels, height, width = shape
    # Small images keep one stride, so that the last map is large enough.
    strides = (2, 2, 1) if math.ceil(min(height, width) / 4) >= _SMALLEST_MAP else (2, 1)
    layers: list[tuple[str, nn.Module]] = []
    for number, stride in enumerate(strides, start=1):
        layers.append((f"conv{number}", nn.Conv2d(channels, 12, 5, stride=stride, padding=2, bias=extra != "bn")))
        if extra == "bn":
            layers.append((f"norm{number}", nn.BatchNorm2d(12, track_running_stats=False)))
        layers.append((f"activation{number}", activation()))
        channels, height, width = 12, math.ceil(height / stride), math.ceil(width / stride)
    if min(height, width) < _SMALLEST_MAP:
        raise ValueError(f"lenet needs images of at least 7x7 pixels, got shape {shape}")
    features = 12 * height * width
    layers.append(("flatten", nn.Flatten()))
    if extra == "dropout":
        layers.append(("dropout", Dropout(features)))
    return [*layers, ("output", nn.Linear(features, classes))]


def _cnn26k(shape: tuple[int, int, int], classes: int) -> list[tuple[str, nn.Module]]:
    # Each side: 8x8 convolution of stride 2 with padding 3, pool, 4x4 convolution of stride 2, pool.
    height, width = (((side - 2) // 2 + 1 - 1 - 4) // 2 + 1 - 1 for side in shape[1:])
    if min(height, width) < 1:
        raise ValueError(f"cnn26k needs images of at least 14x14 pixels, got shape {shape}")
    return [
        ("conv1", nn.Conv2d(shape[0], 16, 8, stride=2, padding=3)),
        ("relu1", nn.ReLU()),
        ("pool1", nn.MaxPool2d(2, stride=1)),
        ("conv2", nn.Conv2d(16, 32, 4, stride=2)),
        ("relu2", nn.ReLU()),
        ("pool2", nn.MaxPool2d(2, stride=1)),
        ("flatten", nn.Flatten()),
        ("hidden", nn.Linear(32 * height * width, 32)),
        ("relu3", nn.ReLU()),
        ("output", nn.Linear(32, classes)),
    ]


def _convnet(shape: tuple[int, int, int], classes: int) -> list[tuple[str, nn.Module]]:
    channels, height, width = shape
    if min(height, width) < 9:
        raise ValueError(f"convnet needs images of at least 9x9 pixels, got shape {shape}")
    layers: list[tuple[str, nn.Module]] = []
    for number, wide in enumerate((64, 128, 128, 256, 256, 256, 256, 256), start=1):
        layers += [(f"conv{number}", nn.Conv2d(channels, wide, 3, padding=1)), (f"relu{number}", nn.ReLU())]
        channels = wide
        if number in (6, 8):
            layers.append((f"pool{number}", nn.MaxPool2d(3)))
    return [*layers, ("flatten", nn.Flatten()), ("output", nn.Linear(256 * (height // 9) * (width // 9), classes))]
