"""Conformance checks of models."""

import torch
from torch import Tensor

from ...fl.data.shakespeare import ALPHABET, LENGTH
from ...fl.models.network import Network
from ...fl.models.probabilities import WORDS, returns_probabilities
from ...fl.objective import CLASSIFICATION, NEXT_TOKEN, SEGMENTATION
from ...fl.streams import Streams, uniform
from .check import Check, Fault, Subject, equal, no_global_randomness, require

SHAPES = ((1, 8, 8), (1, 28, 28), (3, 32, 32), (1, 64, 64), (1, 1, 64))
"""Images on which a model is tried in turn; it must take one of these shapes, or texts, of 64 places or like those
of data set shakespeare."""
_TEXTS = (((1, 1, 64), 10), ((1, 1, LENGTH), len(ALPHABET)))
_CLASSES = (10, 2)
_SAMPLES, _CLOSE = 3, 1e-5


def takes_images(subject: Subject) -> str | None:
    """It builds a module whose output is logits."""
    network = network_for(subject)
    return f"shape {network.shape}, {network.classes} classes, {network.layout.model_dim} parameters"


def finite(subject: Subject) -> str | None:
    """Its outputs are logits, not probabilities: finite numbers in single precision."""
    network, params, images, _ = _case(subject)
    logits = network.logits(params, images)
    require(logits.dtype == torch.float32, f"its logits are {logits.dtype}, not torch.float32")
    require(bool(logits.isfinite().all()), "its logits are not finite for images in [0, 1]")
    require(not returns_probabilities(network), WORDS)
    return None


def deterministic(subject: Subject) -> str | None:
    """Equal seeds and inputs give equal parameters and logits, other seeds other parameters."""
    network, params, images, _ = _case(subject)
    again = network_for(subject)
    require(equal(params, again.initial(Streams(0).generator("init"))), "equal seeds give other initial parameters")
    require(
        not equal(params, again.initial(Streams(1).generator("init"))), "all seeds give the same initial parameters"
    )
    with no_global_randomness():
        first, second = (network.logits(params, images) for _ in range(2))
    require(equal(first, second), "a second evaluation of the same images gives other logits: it keeps state")
    require(equal(first, again.logits(params, images)), "a module built again gives other logits")
    return None


def separate(subject: Subject) -> str | None:
    """Each image's logits depend on that image alone."""
    network, params, images, _ = _case(subject)
    if network.mixes:
        return (
            "batch norm mixes the images of a batch, so that no defense at sample level accepts this model; with "
            "GroupNorm in its place each sample has a gradient of its own"
        )
    whole = network.logits(params, images)
    alone = torch.cat([network.logits(params, image.unsqueeze(0)) for image in images])
    gap = float((whole - alone).abs().max())
    require(gap <= 1e-4 * max(1.0, float(whole.abs().max())), f"logits change by {gap:.2g} with the rest of the batch")
    return None


def per_sample_gradients(subject: Subject) -> str | None:
    """Its per-sample gradients agree with one backward pass per sample."""
    network, params, images, labels = _case(subject)
    if network.mixes:
        return "not checked: batch norm leaves no sample a gradient of its own"
    rows = network.sample_gradients(params.unsqueeze(0), images.unsqueeze(0), labels.unsqueeze(0))[0]
    for row, image, label in zip(rows, images, labels, strict=True):
        point = params.clone().requires_grad_(True)
        loss = network.losses(point, image.unsqueeze(0), label.unsqueeze(0)).sum()
        (slope,) = torch.autograd.grad(loss, point)
        gap, size = float((row - slope).abs().max()), max(1.0, float(slope.abs().max()))
        require(gap <= _CLOSE * size, f"a sample's gradient is {gap:.2g} away from that of a backward pass")
    return f"{len(rows)} samples, {rows.shape[1]} parameters"


def inputs_kept(subject: Subject) -> str | None:
    """It changes neither the images nor the parameters that it is given."""
    network, params, images, _ = _case(subject)
    kept = params.clone(), images.clone()
    network.logits(params, images)
    require(equal(params, kept[0]), "it changed the parameters")
    require(equal(images, kept[1]), "it changed the images")
    return None


def network_for(subject: Subject) -> Network:
    """Return the network of the model on the first of ``SHAPES`` that it takes, or else on texts; raise the first error
    if it takes none.

    Raises:
        Fault: if it accepts none of the shapes.
    """
    first = ""
    tried = [(shape, classes, CLASSIFICATION) for shape in SHAPES for classes in _CLASSES]
    for shape, classes, task in [*tried, *((*text, NEXT_TOKEN) for text in _TEXTS)]:
        network = _network(subject, shape, classes, task)
        try:
            network.objective  # noqa: B018
            return network
        except ValueError as error:
            first = first or str(error)
    raise Fault(first)


def _network(subject: Subject, shape: tuple[int, int, int], classes: int, task: str) -> Network:
    options = dict(subject.options)
    bins = tuple((n + 0.5) / 8 for n in range(options.pop("bins", 8))) if subject.name == "imprint" else ()
    return Network(model=subject.name, shape=shape, classes=classes, bins=bins, options=options, task=task)


def _case(subject: Subject) -> tuple[Network, Tensor, Tensor, Tensor]:
    """The network, its initial parameters, random images and labels."""
    network, rng = network_for(subject), Streams(0).generator("conformance images")
    images = uniform(rng, (_SAMPLES, *network.shape))
    labels = torch.from_numpy(rng.integers(network.classes, size=_SAMPLES))
    if network.objective.name == SEGMENTATION:
        labels = images[:, 0] > 0.5
    if network.objective.name == NEXT_TOKEN:
        images = (images * network.classes).floor()
        labels = images[:, 0, 0].long().roll(-1, 1)
    return network, network.initial(Streams(0).generator("init")), images, labels


CHECKS: tuple[Check, ...] = (takes_images, finite, deterministic, separate, per_sample_gradients, inputs_kept)
