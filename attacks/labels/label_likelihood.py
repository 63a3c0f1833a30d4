"""Attack that infers the label counts that make an upload most likely under the defense's published noise.

A release is modelled as its labels' mean contributions plus Gaussian noise of two variances: the defense's published
noise, and the scatter of samples about their class's mean, which public data shows.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
import torch
from scipy.special import gammaln
from torch import Tensor
from torch.nn.functional import one_hot

from ...audit.arrays import FloatArray, IntArray
from ...audit.evidence import LabelCounts
from ...fl.fields import Several
from ...fl.laws import GaussianLaw, Law, LayeredGaussianLaw, layer_slices
from ...fl.models.network import Network
from ...fl.recorder import View
from ..attack import Knowledge, Undefined
from .label_attack import (
    LabelAttack,
    LabelLots,
    check_linear,
    class_means,
    counts_of_round,
    noise_units,
    read_label_lots,
    whole_counts,
)

Cost = Callable[[FloatArray], FloatArray]
"""Counts ``(..., classes)`` -> cost ``(...,)``; lower is more likely."""


@dataclass(frozen=True, kw_only=True)
class GaussianLots:
    """A model of a batch's release, in double precision: release = sum of the labels' mean contributions + Gaussian
    noise.

    Args:
        means: (classes, d), the mean contribution of one sample of each class.
        scatter: (n, d), public samples' contributions minus their class's mean.
        noise_std: of one coordinate of the release, >= 0.
        size: number of labels in the lot.
    """

    means: Tensor
    scatter: Tensor
    noise_std: float
    size: int

    def __post_init__(self) -> None:
        if self.least_variance <= 0:
            raise ValueError(
                "the release has no variance: the defense publishes no noise, and public samples do not vary "
                "within a class"
            )

    @cached_property
    def gram(self) -> Tensor:
        """Return the inner products of public samples' deviations from their class means (``scatter``), shape ``(n,
        n)``.
        """
        return self.scatter @ self.scatter.T

    @cached_property
    def shrinkage(self) -> float:
        """Return the shrinkage weight: the share of the samples' covariance that is spread evenly over all directions
        (Ledoit and Wolf 2004), because there are fewer samples than coordinates.
        """
        n, d = self.scatter.shape
        square = float(self.gram.square().sum()) / n**2
        lengths = self.gram.diagonal()
        spread = square - float(lengths.mean()) ** 2 / d
        error = (float(lengths.square().sum()) / n - square) / n
        return 1.0 if spread <= 0 else min(1.0, max(0.0, error / spread))

    @property
    def least_variance(self) -> float:
        """Return the variance of the release along a direction in which public samples do not vary."""
        even = float(self.gram.diagonal().mean()) / self.scatter.shape[1]
        return self.noise_std**2 + self.size * self.shrinkage * even

    def whiten(self, rows: Tensor) -> Tensor:
        """Multiply ``rows (m, d)`` by the inverse of the release's covariance, by Woodbury's identity."""
        weight = self.size * (1 - self.shrinkage) / len(self.scatter)
        if weight == 0:
            return rows / self.least_variance
        # A d x d matrix would not fit in memory: the inner one is n x n.
        inner = self.gram + self.least_variance / weight * torch.eye(len(self.scatter), dtype=rows.dtype)
        shared: Tensor = torch.linalg.solve(inner, self.scatter @ rows.T)
        return (rows - shared.T @ self.scatter) / self.least_variance

    @cached_property
    def _whitened(self) -> Tensor:
        return self.whiten(self.means)

    def cost(self, release: Tensor, *, scaled: bool = False) -> Cost:
        """Return the function that computes minus the log-likelihood of ``release (d,)`` for given label counts, up to
        a constant.

        The constant depends on neither counts nor ``scaled``.

        ``scaled``: the sum may be multiplied by any factor, as after clipping that is not published; the most likely
        factor is used.
        """
        quadratic = np.asarray((self._whitened @ self.means.T).numpy(), dtype=np.float64)
        linear = np.asarray((self._whitened @ release).numpy(), dtype=np.float64)

        def as_it_is(counts: FloatArray) -> FloatArray:
            square = np.einsum("...i,ij,...j->...", counts, quadratic, counts)
            return np.asarray(square / 2 - counts @ linear, dtype=np.float64)

        def at_best_factor(counts: FloatArray) -> FloatArray:
            # Where the best factor is negative, no factor fits: the cost only has to lead the search away from there.
            square, along = np.einsum("...i,ij,...j->...", counts, quadratic, counts), counts @ linear
            return np.asarray(-along * np.abs(along) / (2 * np.maximum(square, 1e-300)), dtype=np.float64)

        return at_best_factor if scaled else as_it_is


def likeliest_counts(cost: Cost, start: IntArray) -> IntArray:
    """Find label counts ``(classes,)`` whose likelihood cannot be raised by exchanging one label for another.

    Takes the best exchange each time, from ``start`` on.
    """
    classes = len(start)
    swaps = np.array(
        [[(k == to) - (k == of) for k in range(classes)] for of in range(classes) for to in range(classes)]
    )
    counts, best = start.copy(), float(cost(start.astype(np.float64)))
    while True:
        others = counts + swaps
        costs = np.where((others >= 0).all(1), cost(others.clip(0).astype(np.float64)), np.inf)
        lowest = int(costs.argmin())
        # By more than rounding: otherwise two equally likely sets of counts would alternate for ever.
        if not costs[lowest] < best - 1e-9 * (1 + abs(best)):
            return counts
        counts, best = others[lowest], float(costs[lowest])


_GaussianNoise = GaussianLaw | LayeredGaussianLaw

# LabelLots drawn from public data to measure how much a report is shortened by clipping.
_TYPICAL = 64

# Gain in nats that justifies a free factor: the price of one parameter (Akaike 1974).
_PRICE = 1.0


@dataclass(frozen=True, kw_only=True)
class LabelLikelihood(LabelAttack):
    """An attack that infers the label counts of each upload of one round, as maximum-likelihood or posterior-mode
    estimates from all coordinates of the upload.

    The law's clipping is applied to public samples' gradients at the broadcast model. Their class means are what one
    label adds, and their scatter is a second noise in addition to the law's. A law of whole reports (local noise) clips
    the lot's mean gradient: the factor is that of typical lots of public data, layer by layer where the law clips by
    layer. Layers of different noise are weighted by their own noise. A law that is not Gaussian but has independent
    coordinates is approximated by a Gaussian with, in each layer, the size of its reports of zero. Where no law is
    published, or coordinates are dependent, the scatter is the only noise. Without a Gaussian law an unknown factor is
    assumed where it makes the upload more likely by more than a nat. Steps after the first are assumed to be like the
    first, and dropout, whose draws are unknown, to be off. Under batch norm the gradients of several samples do not add
    up, so only lots of one sample are possible.

    Args:
        prior: "flat", or "public": labels are independent with the public labels' shares, which helps much under noise
            and misleads where clients differ.
        samples: largest number of public samples whose gradients are used.
    """

    prior: Literal["flat", "public"] = "flat"
    samples: Several = 400

    def run(self, view: View, knowledge: Knowledge, rng: np.random.Generator) -> LabelCounts:
        """Return label counts ``(n, classes)``, one row per upload.

        Raises:
            Undefined: for lots of several samples under a model that mixes samples.
            ValueError: like `read_label_lots`, or if uploads are not linear in gradients.
        """
        check_linear("label_likelihood", knowledge.plan)
        lots, classes = read_label_lots(view, knowledge, self.round), knowledge.network.classes
        chosen = torch.from_numpy(rng.permutation(len(knowledge.public_labels))[: self.samples])
        images, labels = knowledge.public_images[chosen], knowledge.public_labels[chosen]
        rows = _sample_rows(knowledge.network, lots, images, labels)
        # One more of each label, so that a label without public samples is not impossible.
        shares = (torch.bincount(knowledge.public_labels, minlength=classes) + 1.0).double().numpy()
        shares /= shares.sum()
        counts, models = [], dict[object, tuple[GaussianLots, Tensor]]()
        for row, size in enumerate(lots.sizes.tolist()):
            client = lots.clients[row]
            law = knowledge.law(view.observer, client)
            # Building a lot's model takes most of the time: once for all clients of one size and law.
            alike = (size, knowledge.plan.sizes[client], law)
            if alike not in models:
                models[alike] = _model(rows, labels, lots, row, law, knowledge, rng)
            start = whole_counts(shares[None], [size])[0]
            model, units = models[alike]
            release, gaussian = lots.gradients[row].double() / units, isinstance(law, _GaussianNoise)
            counts.append(self._likeliest(model, release, gaussian, shares, start))
        return counts_of_round(np.stack(counts), view, self.round)

    def _likeliest(
        self, model: GaussianLots, release: Tensor, published: bool, shares: FloatArray, start: IntArray
    ) -> IntArray:
        plain = self._with_prior(model.cost(release), shares)
        found = likeliest_counts(plain, start)
        if published:
            return found
        free = self._with_prior(model.cost(release, scaled=True), shares)
        other = likeliest_counts(free, found)
        gain = plain(found.astype(np.float64)) - free(other.astype(np.float64))
        return other if gain > _PRICE else found

    def _with_prior(self, cost: Cost, shares: FloatArray) -> Cost:
        if self.prior == "flat":
            return cost
        return lambda counts: cost(counts) + gammaln(counts + 1).sum(-1) - counts @ np.log(shares)


def _sample_rows(network: Network, lots: LabelLots, images: Tensor, labels: Tensor) -> Tensor:
    """What each public sample adds to a lot, ``(m, d)``."""
    if not network.mixes:
        return network.sample_gradients(lots.model[None], images[None], labels[None])[0]
    if lots.sizes.max() > 1:
        raise Undefined(
            f"the contribution of one label to a batch of {lots.sizes.max()} is not defined: {network.mixture}"
        )
    classes = one_hot(labels, network.classes).to(lots.model)
    return network.lot_gradients(lots.model, images.unsqueeze(1), classes.unsqueeze(1))


def _model(
    rows: Tensor,
    labels: Tensor,
    lots: LabelLots,
    row: int,
    law: Law | None,
    knowledge: Knowledge,
    rng: np.random.Generator,
) -> tuple[GaussianLots, Tensor]:
    """The law of the upload in ``row``, from public samples' ``rows (n, d)``, and the units of its gradients."""
    plan, size = knowledge.plan, int(lots.sizes[row])
    algorithm = plan.algorithm
    if not isinstance(law, _GaussianNoise):
        added = rows / size
    elif isinstance(law, GaussianLaw) and law.scale < 0:
        # A law of samples: a full lot contributes once per step.
        repeats = algorithm.local_steps if plan.lot.rate(plan.sizes[lots.clients[row]]) == 1 else 1
        added = algorithm.gradient(law.contribution(rows)) * repeats
    else:
        typical = torch.stack([rows[rng.integers(len(rows), size=size)].mean(0) for _ in range(_TYPICAL)])
        updates = (algorithm.linear_scale or 0.0) * algorithm.local_steps * typical
        added = rows / size * _clip_factors(updates, law)
    means, (units, noise) = class_means(added, labels, knowledge.network.classes).double(), noise_units(law, plan, rng)
    scatter = added.double() - means[labels]
    return GaussianLots(means=means / units, scatter=scatter / units, noise_std=noise, size=size), units


def _clip_factors(updates: Tensor, law: _GaussianNoise) -> Tensor:
    """The mean factor between a report and its update over ``updates (lots, d)``.

    It is one factor for all coordinates that are clipped together.
    """
    reports, factors = law.contribution(updates), torch.empty_like(updates[0])
    for layer in layer_slices(law.starts if isinstance(law, LayeredGaussianLaw) else (0,)):
        lengths = torch.linalg.vector_norm(updates[:, layer], dim=1).clamp_min(1e-30)
        factors[layer] = (torch.linalg.vector_norm(reports[:, layer], dim=1) / lengths).mean()
    return factors
