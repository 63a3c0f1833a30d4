"""What layer-wise defenses share: scores of layers, reports clipped and noised by layer, and their aggregation.

Measure how strongly each layer's gradient depends on sensitive pixels (PSI score: Xiao et al. 2025, eq. 3 to 5).

Clip each client's report layer by layer and add noise, in the same way in all rounds.

Average client models layer by layer; less sensitive layers get more weight (PDA-PAM: Xiao et al. 2025, eq. 10, 11).

Not stated in the paper: what the weights of reports sum to. Equation 11 divides each report by its alpha-hat and by K,
so that the weights 1 / (K alpha-hat) sum to K for equal scores, and to more, without bound, for uneven ones. Here the
inverses are normalised to sum to 1. As alpha-hat is a softmax of the scores, these are the softmax of minus the scores.
The scores of a layer are norms of Jacobians, in hundreds or thousands for weights: their softmax gives nearly all
weight to one client. With ``relative``, each layer's scores are first divided by their mean.

The fields that both readings of FedRE share: a budget, clip norms, scores and the way of aggregation.
"""

from abc import ABC
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.func import grad, jacfwd, vmap

from ...audit.observer import UPLOADS, Observer
from ...fl.fields import check_count
from ...fl.laws import LayeredGaussianLaw, layer_slices, layer_starts, spread_layers
from ...fl.layout import Layout
from ...fl.message import Message
from ...fl.models.network import Network
from ...fl.plan import Plan
from ...fl.protection import Context, Protection, State
from ...fl.task import Samples
from ..defense import Defense, Delta, Epsilon, Share
from .budget import check_numbers

# Upper bound on the numbers held at once in Jacobians and in what they are computed from.
_NUMBERS = 2**24
_HELD_PER_PIXEL = 64
# 1 / g and 1 / g^2 of the plastic number g: the fractional parts of their multiples fill the square evenly.
_ROBERTS = (0.7548776662466927, 0.5698402909980532)


@dataclass(frozen=True, kw_only=True)
class LayerScorer:
    """A function object that computes how sensitive each layer's gradient is to chosen pixels of chosen images.

    Args:
        count: number of images over which a score is averaged, the first ones (the paper samples ten of a format).
        region: the sensitive pixels as (top, left, height, width); () for the whole image.
        pixels: how many of the region's pixels are used, spread evenly; None: all. Each costs a forward-mode derivative
            of the gradient, three times a training step. The score is a mean over pixels, so a few of them estimate it
            well.
    """

    count: int
    region: tuple[int, ...] = ()
    pixels: int | None = None

    def __post_init__(self) -> None:
        check_count("images", self.count)
        if self.pixels is not None:
            check_count("pixels", self.pixels)
        if self.region != () and not is_region(self.region):
            raise ValueError(
                f"region must list four whole numbers, (top, left, height, width) of at least one pixel, "
                f"got {self.region!r}"
            )

    def scores(self, samples: Samples) -> Tensor:
        """Compute one score >= 0 per layer, array of shape ``(R, layers)`` for R models; higher means more sensitive.

        The mean over images and pixels of the norm of the derivative, by that pixel, of the layer's gradient
        (Frobenius, over its parameters and the channels).

        Raises:
            ValueError: if the region does not lie inside the image.
        """
        network, places = samples.network, self.places(samples.network)
        images, labels = samples.images[: self.count], samples.labels[: self.count]
        replicas, count = len(samples.models), len(images)
        measure = partial(_pixel_norms, network, places)
        # The memory of a backward pass is estimated as a fixed number of activations per pixel.
        held = len(places) * network.shape[0] * (network.layout.dim + _HELD_PER_PIXEL * prod(network.shape[1:]))
        # Chunks bound the memory of the Jacobians, which grows with pixels times parameters.
        norms = vmap(measure, chunk_size=max(1, _NUMBERS // held))(
            samples.models.repeat_interleave(count, dim=0),
            images.repeat(replicas, 1, 1, 1),
            labels.repeat(replicas, *[1] * (labels.ndim - 1)),
        )
        mean: Tensor = norms.view(replicas, count, *norms.shape[1:]).mean((1, 3))
        return mean

    def places(self, network: Network) -> Tensor:
        """Return the positions of the sensitive pixels, array of shape ``(m,)``, counted line by line through the
        image.

        Raises:
            ValueError: if the region does not lie inside the image.
        """
        _, height, width = network.shape
        top, left, rows, columns = self.region or (0, 0, height, width)
        if top + rows > height or left + columns > width:
            raise ValueError(f"region must lie inside images of {height} x {width} pixels, got {self.region}")
        if self.pixels is None or self.pixels >= rows * columns:
            down, across = torch.arange(rows).repeat_interleave(columns), torch.arange(columns).repeat(rows)
        else:
            # Roberts's sequence in the plane: a lattice would use the same columns in each row.
            steps = 0.5 + torch.outer(
                torch.arange(self.pixels, dtype=torch.float64), torch.tensor(_ROBERTS, dtype=torch.float64)
            )
            down, across = (steps % 1 * torch.tensor([rows, columns])).long().unbind(1)
        return (top + down) * width + left + across


def is_region(region: object) -> bool:
    """Return whether the value describes a rectangle of at least one pixel by four whole numbers (top, left, height,
    width).
    """
    if not isinstance(region, tuple) or len(region) != 4:
        return False
    whole = all(isinstance(number, int) and not isinstance(number, bool) for number in region)
    return whole and min(region[:2]) >= 0 and min(region[2:]) >= 1


def _pixel_norms(network: Network, places: Tensor, params: Tensor, image: Tensor, label: Tensor) -> Tensor:
    """``(layers, m)``: equation 4 for every layer at once; only the pixels at ``places (m,)`` are differentiated."""

    def loss(point: Tensor, moves: Tensor) -> Tensor:
        # Moves of the chosen pixels only: forward mode costs one pass per pixel.
        moved = image.flatten(1).index_add(1, places, moves).view_as(image)
        return network.losses(point, moved.unsqueeze(0), label.unsqueeze(0))[0]

    jacobian = jacfwd(grad(loss), argnums=1)(params, image.new_zeros(len(image), len(places)))
    layers = layer_slices(layer_starts(network.layout))
    return torch.stack([jacobian[layer].square().sum((0, 1)).sqrt() for layer in layers])


@dataclass(frozen=True, kw_only=True)
class LayeredProtection(Protection):
    """A protection in which each client sparsifies its update, clips it layer by layer, and adds N(0, noise_std_l^2) to
    every number of layer l.

    Which numbers were dropped depends on the data. It is protected like the rest, because dropped numbers are noised
    too.

    Args:
        dropped: share of each layer's numbers, the smallest in size, that is zeroed before the clip.
    """

    clip_norms: tuple[float, ...]
    noise_stds: tuple[float, ...]
    dropped: float = 0.0
    sums = "mean"

    def report(self, updates: Message, context: Context, state: State, rng: np.random.Generator) -> Message:
        # Sampled through the published law, so that both cannot differ.
        law = self._law(context.plan.layout)
        return updates.with_values(law.sample(law.contribution(updates.values), rng))

    def law(self, observer: Observer, plan: Plan, client: int) -> LayeredGaussianLaw | None:
        """Return the distribution of one client's report as the server observes it."""
        return self._law(plan.layout) if observer.rank == UPLOADS.rank else None

    def _law(self, layout: Layout) -> LayeredGaussianLaw:
        return LayeredGaussianLaw(
            starts=layer_starts(layout),
            clip_norms=self.clip_norms,
            noise_stds=self.noise_stds,
            dropped=self.dropped,
        )


def pda_pam(
    received: Message,
    context: Context,
    scorers: Sequence[LayerScorer],
    *,
    published: bool = False,
    relative: bool = False,
) -> Tensor:
    """Return the aggregate of clients' reports, shape ``(R, d)`` for R runs; each layer of a report gets a weight that
    falls as the layer's sensitivity score on public samples rises.

    All inputs are noised or public. Without public samples all clients have equal weight. The clients' sizes do not
    enter, as in the paper.

    Args:
        scorers: one per preference; client k's model is scored by its own (see ``preferred``).
        published: whether to use the weights as printed.
        relative: whether a layer's scores are divided by their mean over the clients.
    """
    scores = model_scores(received, context, scorers)
    scores = relative_scores(scores, received.present) if relative else scores
    weights = published_weights(scores, received.present) if published else client_weights(scores, received.present)
    layout = context.plan.layout
    spread = spread_layers(weights.to(received.values), layer_starts(layout), received.values.shape[-1])
    return torch.einsum("rkd,rkd->rd", spread, received.values)


def model_scores(received: Message, context: Context, scorers: Sequence[LayerScorer]) -> Tensor:
    """Return the sensitivity score of each layer on public samples, shape ``(R, rows, layers)``, for the model that
    each client's report (a row) alone would produce.
    """
    replicas, rows, dim = received.values.shape
    if context.samples is None or not rows:
        return torch.zeros(replicas, rows, len(context.plan.layout.names))
    public = context.samples(None)
    senders = received.senders or tuple(range(rows))
    scores = received.values.new_zeros(replicas, rows, len(context.plan.layout.names))
    # Several clients may share a scorer; each distinct one scores all of its clients in one batch.
    for scorer in dict.fromkeys(scorers):
        rows_of = [row for row, sender in enumerate(senders) if preferred(scorers, sender) == scorer]
        models = public.models.repeat_interleave(len(rows_of), dim=0)
        led = context.plan.algorithm.combine(models, received.values[:, rows_of].reshape(-1, dim))
        asked = Samples(network=public.network, models=led, images=public.images, labels=public.labels)
        scores[:, rows_of] = scorer.scores(asked).view(replicas, len(rows_of), -1)
    return scores


def preferred(scorers: Sequence[LayerScorer], client: int) -> LayerScorer:
    """Return the function that scores the layers for ``client``; ``scorers`` has one function per privacy preference (a
    choice of sensitive pixels), and clients get these functions in turn.
    """
    return scorers[client % len(scorers)]


def client_weights(scores: Tensor, present: Tensor) -> Tensor:
    """Return each client's weight in the average per layer, shape ``(R, rows, layers)``; weights fall as the
    sensitivity scores rise, and sum to 1 over the clients that take part.
    """
    return _softmax(-scores, present)


def published_weights(scores: Tensor, present: Tensor) -> Tensor:
    """Compute the weights 1 / (K alpha-hat) by which client models are averaged, as printed in equations 10 and 11 of
    the FedRE paper; K clients take part, and alpha-hat is the softmax of their sensitivity scores.
    """
    alpha, count = _softmax(scores, present), present.sum(1).view(-1, 1, 1)
    return (1 / (count * alpha)).masked_fill(~present.unsqueeze(-1), 0)


def relative_scores(scores: Tensor, present: Tensor) -> Tensor:
    """Return each layer's scores divided by their mean over the clients that take part, shape ``(R, rows, layers)``, so
    that weights depend on how clients differ and not on the scale of a layer's gradients.
    """
    there = present.unsqueeze(-1).to(scores)
    mean = (scores * there).sum(1, keepdim=True) / there.sum(1, keepdim=True).clamp_min(1)
    return scores / mean.clamp_min(torch.finfo(scores.dtype).tiny)


def _softmax(scores: Tensor, present: Tensor) -> Tensor:
    there = present.unsqueeze(-1)
    # In a replica without any report each weight is 0 / 0; the second fill makes it 0.
    return scores.masked_fill(~there, -torch.inf).softmax(1).masked_fill(~there, 0)


RELATIVE = "pda_pam_relative"
"""PDA-PAM with each layer's scores divided by their mean over the clients."""
AGGREGATIONS = ("pda_pam", RELATIVE, "mean")


@dataclass(frozen=True, kw_only=True)
class ScoredLayers(Defense, ABC):
    """A base class of defenses whose layers get shares of the budget by their sensitivity scores; ``FedRE`` documents
    the fields.
    """

    epsilon: Epsilon = 4.0
    delta: Delta = 1e-5
    clip_norms: tuple[float, ...] = (1.0,)
    scores: tuple[float, ...] = ()
    even: Share = 0.5
    images: int = 2
    pixels: int | None = 32
    region: tuple[int, ...] | tuple[tuple[int, ...], ...] = ()
    aggregation: str = "pda_pam"

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("clip_norms", "scores"):
            # The dataclass is frozen, and a suite file's lists must become hashable tuples.
            object.__setattr__(self, name, check_numbers(name, getattr(self, name)))
        object.__setattr__(self, "region", _plain(self.region))
        self.scorers()
        if self.aggregation not in AGGREGATIONS:
            raise ValueError(
                f"aggregation, the way in which the server averages reports, must be one of "
                f"{', '.join(map(repr, AGGREGATIONS))}, got {self.aggregation!r}"
            )

    def scorers(self) -> tuple[LayerScorer, ...]:
        """Return, for each privacy preference (a choice of sensitive pixels), the function that scores how sensitive
        the layers are.
        """
        # The type of the first entry distinguishes one region from a list of regions.
        several = isinstance(self.region, tuple) and self.region and isinstance(self.region[0], tuple)
        regions: Any = self.region if several else (self.region,)
        return tuple(LayerScorer(count=self.images, region=region, pixels=self.pixels) for region in regions)


def _plain(region: Any) -> Any:
    """Lists, as a suite file has them, as tuples."""
    return tuple(_plain(part) for part in region) if isinstance(region, list | tuple) else region
