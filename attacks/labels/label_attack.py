"""Base class of attacks that infer labels from the uploads of one round, and what such attacks know about an upload:
the last layer's gradient, the public number of labels, the published noise of each coordinate.

The number of samples in an upload is public where the plan fixes it: full lots and lots of fixed size. The size of a
Poisson lot is not public; its expectation, which is, replaces it.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from ...audit.arrays import FloatArray, IntArray
from ...audit.evidence import LabelCounts
from ...fl.laws import GaussianLaw, Law, LayeredGaussianLaw, ReportLaw, spread_layers
from ...fl.layout import Layout
from ...fl.plan import Plan
from ...fl.recorder import View
from ..attack import Knowledge
from ..uploads import UploadAttack, count_uploads, read_uploads, upload_setting


@dataclass(frozen=True, kw_only=True)
class LastLayer:
    """A classifier's last linear layer, or its gradients, in double precision.

    ``weight``: (..., classes, features); ``bias``: (..., classes), None for a layer without bias.
    """

    weight: FloatArray
    bias: FloatArray | None

    @property
    def row_sums(self) -> FloatArray:
        """Return, for each class, the sum of its last-layer weights over the features, shape ``(..., classes)``."""
        return np.asarray(self.weight.sum(-1), dtype=np.float64)

    def needed_bias(self, attack: str) -> FloatArray:
        """Return the bias of the model's last layer; if it has none, raise a ValueError that names the ``attack``."""
        if self.bias is None:
            raise ValueError(f"{attack} needs the last layer's bias, and this model's last layer has none")
        return self.bias


@dataclass(frozen=True, kw_only=True)
class LabelLots:
    """A set of all uploads of one round with what label inference needs: gradients, model, senders and batch sizes.

    Args:
        gradients: (n, d), as `read_uploads` returns them.
        model: (d,), at which they were computed.
        last: the last layer's gradients of each upload.
        clients: (n,), the sender of each upload.
        sizes: (n,), number of labels behind each upload. A full lot is the same in each of a round's steps and counts
            once; any other lot is drawn again in each step, and a sample counts as often as it was drawn.
    """

    gradients: Tensor
    model: Tensor
    last: LastLayer
    clients: tuple[int, ...]
    sizes: IntArray


def read_label_lots(view: View, knowledge: Knowledge, round: int) -> LabelLots:
    """Return the round's uploads with what label inference needs: gradients, last layer, senders and batch sizes.

    Raises ValueError like `read_uploads`, or for a model whose last layer is not linear.
    """
    uploads, plan = read_uploads(view, knowledge, round), knowledge.plan
    clients = _senders(view, round)
    return LabelLots(
        gradients=uploads.gradients,
        model=uploads.model,
        last=last_layer(uploads.gradients, knowledge.network.layout),
        clients=clients,
        sizes=lot_sizes(plan, clients),
    )


def public_sizes(view: View, knowledge: Knowledge, round: int) -> IntArray:
    """Return the public number of labels of each upload. Raises ValueError if senders are hidden.

    A null attack reads nothing else of a view.
    """
    count_uploads(view, round)
    return lot_sizes(knowledge.plan, _senders(view, round))


def lot_sizes(plan: Plan, clients: tuple[int, ...]) -> IntArray:
    """Return the number of labels (at least 1) in each client's batches of one round, computed from public facts alone;
    see `LabelLots`.
    """
    sizes = []
    for client in clients:
        # A full lot holds the same samples in every step; counting it once per step would repeat them.
        everything = plan.lot.rate(plan.sizes[client]) == 1
        steps = 1 if everything else plan.algorithm.local_steps
        sizes.append(max(1, round(plan.expected_lot(client) * steps)))
    return np.array(sizes, dtype=np.int64)


def last_layer(vectors: Tensor, layout: Layout) -> LastLayer:
    """Extract the weights of the last layer from parameters or gradients of a model, of shape ``(..., d)``.

    Raises:
        ValueError: if the layout does not end in a linear layer.
    """
    # Double precision: linear systems for counts lose too much in single.
    named = [tensor.double().numpy() for tensor in layout.unflatten(vectors.detach()).values()]
    shapes = layout.shapes
    if len(shapes[-1]) == 2:
        return LastLayer(weight=named[-1], bias=None)
    if len(shapes) < 2 or len(shapes[-2]) != 2 or shapes[-2][:1] != shapes[-1]:
        raise ValueError(f"the model must end in a linear layer, got layers of shapes {shapes[-2:]}")
    return LastLayer(weight=named[-2], bias=named[-1])


def check_linear(attack: str, plan: Plan) -> None:
    """Raise ValueError if an update is not linear in the gradients of the client's steps, so that the gradient's scale
    is unknown.
    """
    if plan.algorithm.linear_scale is None:
        name = type(plan.algorithm).__name__
        raise ValueError(f"{attack} needs updates that are linear in the steps' gradients; those of {name} are not")


def whole_counts(shares: ArrayLike, sizes: ArrayLike) -> IntArray:
    """Round label shares to whole counts that sum to each batch's size, by the largest-remainder method.

    ``shares``: (n, classes), >= 0; ``sizes``: (n,).

    Ties go to the lower class. A row of zeros is divided equally.
    """
    given, wanted = np.asarray(shares, dtype=np.float64), np.asarray(sizes, dtype=np.int64)[:, None]
    total = given.sum(1, keepdims=True)
    even = np.full_like(given, 1 / given.shape[1])
    # The total of a row without shares is zero, so `where` keeps the equal shares there.
    exact = wanted * np.divide(given, total, out=even, where=total > 0)
    # Slightly increased first: 3 * (1 / 3) must not lose a whole label to rounding.
    whole = np.floor(exact + 1e-9).astype(np.int64)
    ranks = np.argsort(np.argsort(whole - exact, axis=1, kind="stable"), axis=1, kind="stable")
    return np.asarray(whole + (ranks < wanted - whole.sum(1, keepdims=True)), dtype=np.int64)


def counts_of_round(counts: ArrayLike, view: View, round: int) -> LabelCounts:
    """Return the inferred label counts, an array ``(n, classes)`` for the n uploads of one ``round``, as the attack's
    result.
    """
    return LabelCounts(np.asarray(counts, dtype=np.float64), upload_setting(view), round=round)


def class_means(rows: Tensor, labels: Tensor, classes: int) -> Tensor:
    """Compute the mean vector of each class from ``rows (n, ...)``, shape ``(classes, ...)``; a class without vectors
    gets the mean of all.
    """
    means = [
        rows[labels == label].mean(0) if bool((labels == label).any()) else rows.mean(0) for label in range(classes)
    ]
    return torch.stack(means)


def _senders(view: View, round: int) -> tuple[int, ...]:
    reports = next(seen.reports for seen in view.rounds if seen.round == round)
    if reports is None or reports.senders is None:
        raise ValueError(f"view of round {round} must name the senders, because batch sizes are known per client")
    return reports.senders


# Numbers drawn to measure the noise of a law without a formula.
_DRAWN = 2**21

# The whole report's variance counts as so many numbers of each layer, so that no small layer seems to have no noise.
_SHRUNK = 100


def noise_units(law: Law | None, plan: Plan, rng: np.random.Generator) -> tuple[Tensor, float]:
    """Return a unit of noise for each coordinate of a gradient, and the noise's standard deviation in these units.

    The units have shape ``(d,)``, or are one for all coordinates.

    One Gaussian noise for all coordinates needs no units, nor does a release without noise. A law of layers is measured
    in each layer's own noise, so that a noisy layer has less weight. For any other law with independent coordinates,
    reports of zero are drawn, and their root mean square in each layer is taken as the noise. A law with dependent
    coordinates, such as reports of a few coordinates, counts as no noise.
    """
    gradient = plan.algorithm.gradient
    if isinstance(law, GaussianLaw):
        return torch.ones(1, dtype=torch.float64), float(gradient(torch.tensor(law.noise_std)).abs())
    if not isinstance(law, ReportLaw) or not _by_coordinate(law, plan.layout.dim):
        return torch.ones(1, dtype=torch.float64), 0.0
    if isinstance(law, LayeredGaussianLaw):
        stds = spread_layers(torch.tensor(law.noise_stds, dtype=torch.float64), law.starts, plan.layout.dim)
    else:
        stds = _drawn_stds(law, plan, rng)
    return gradient(stds).abs(), 1.0


def _by_coordinate(law: ReportLaw, dim: int) -> bool:
    nothing = torch.zeros(1, dim)
    try:
        # The law itself refuses a density by coordinate where its coordinates are dependent.
        law.log_densities(nothing, nothing)
    except ValueError:
        return False
    return True


def _drawn_stds(law: Law, plan: Plan, rng: np.random.Generator) -> Tensor:
    """Root mean square of a report of zero, equal within a layer, ``(d,)``."""
    layout = plan.layout
    rows = min(4096, max(4, _DRAWN // layout.dim))
    squares = law.sample(torch.zeros(rows, layout.dim), rng).double().square()
    whole, stds = squares.mean(), torch.empty(layout.dim, dtype=torch.float64)
    for layer in layout.slices.values():
        own = squares[:, layer]
        stds[layer] = ((own.sum() + _SHRUNK * whole) / (own.numel() + _SHRUNK)).sqrt()
    return stds


@dataclass(frozen=True, kw_only=True)
class LabelAttack(UploadAttack, ABC):
    """A base class of attacks that infer how often each label occurs behind each client's upload of one round.

    ``linear``: whether the attack needs updates that are linear in the gradients of the client's steps.
    """

    linear: ClassVar[bool] = False

    def run(self, view: View, knowledge: Knowledge, rng: np.random.Generator) -> LabelCounts:
        """Return label counts ``(n, classes)``, one row per upload.

        Raises ValueError like `read_label_lots` and `check_linear`, and for what ``counts`` refuses.
        """
        if self.linear:
            check_linear(type(self).__name__, knowledge.plan)
        lots = read_label_lots(view, knowledge, self.round)
        return counts_of_round(self.counts(lots, knowledge, rng), view, self.round)

    def counts(self, lots: LabelLots, knowledge: Knowledge, rng: np.random.Generator) -> ArrayLike:
        """Infer the label counts ``(n, classes)`` of the n uploads of a round."""
        raise TypeError(
            f"every LabelAttack must define counts(lots, knowledge, rng), but {type(self).__name__} does not"
        )


@dataclass(frozen=True, kw_only=True)
class NullLabelAttack(LabelAttack, ABC):
    """A base class of null attacks on labels, which use nothing but the public number of labels behind each upload."""

    null: ClassVar[bool] = True

    def run(self, view: View, knowledge: Knowledge, rng: np.random.Generator) -> LabelCounts:
        """Return label counts ``(n, classes)``, one row per upload."""
        sizes = public_sizes(view, knowledge, self.round)
        return counts_of_round(self.guesses(sizes, knowledge.network.classes, rng), view, self.round)

    @abstractmethod
    def guesses(self, sizes: IntArray, classes: int, rng: np.random.Generator) -> ArrayLike:
        """Guess the label counts ``(n, classes)`` of n uploads, given the number of labels of each, ``(n,)``."""
