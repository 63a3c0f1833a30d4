"""Objective for image attacks: minus the log density of a release given images, minus the images' own log density.

The latter is a prior of images, fitted to public images, in nats up to a constant.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import softplus

from ...audit.observer import Observer
from ...fl.laws import GaussianLaw, Law
from ...fl.models.network import Network
from ...fl.plan import Plan
from ..attack import Knowledge, Undefined
from ..uploads import Uploads
from .image_attack import ImageLots, of_equal_lots, simulated_updates, soft

# A grey value: smaller differences do not occur in 8-bit images.
_GREY = 1 / 255


@dataclass(frozen=True, kw_only=True)
class GaussianPrior:
    """A prior under which pixels are jointly normal around a mean public image, with the shrunken covariance of all
    public images (Ledoit and Wolf 2004), which is invertible for any number of images.

    Args:
        mean: (pixels,), or (n, k, pixels) for candidates with their own means.
        class_means: (classes, pixels).
        precision: (pixels, pixels), inverse of the covariance.
    """

    mean: Tensor
    class_means: Tensor
    precision: Tensor

    @classmethod
    def of(cls, public: Tensor, labels: Tensor, classes: int) -> "GaussianPrior":
        """Fit the prior to public images ``(m, c, h, w)`` with ``labels (m,)``; a class without public images gets the
        mean of all.
        """
        from sklearn.covariance import ledoit_wolf  # Imported late: half a second.

        flat = public.flatten(1).double().cpu().numpy()
        covariance = np.asarray(ledoit_wolf(flat)[0], dtype=np.float64)
        # Without this term, identical public images would make every other image impossible.
        precision = np.linalg.inv(covariance + np.eye(len(covariance)) * _GREY**2)
        same = [labels.cpu().numpy() == label for label in range(classes)]
        means = np.stack([flat[rows if rows.any() else slice(None)].mean(0) for rows in same])
        return cls(
            mean=torch.from_numpy(flat.mean(0)).to(public),
            class_means=torch.from_numpy(means).to(public),
            precision=torch.from_numpy(precision).to(public),
        )

    def given(self, labels: Tensor) -> "GaussianPrior":
        """Return the prior whose mean for each image averages the class means of public images with the image's label
        probabilities ``labels (n, k, classes)`` as weights.
        """
        return replace(self, mean=labels.to(self.class_means) @ self.class_means)

    def values(self, images: Tensor) -> Tensor:
        """Compute minus the log density of candidate ``images (n, k, c, h, w)``, summed over the k images, shape
        ``(n,)``.
        """
        away = images.flatten(2) - self.mean
        return 0.5 * ((away @ self.precision) * away).sum((1, 2))


@dataclass(frozen=True, kw_only=True)
class FlatPrior:
    """A Gaussian prior that also models flat areas of images, in which neighbouring pixels differ less.

    The difference of two neighbouring pixels belongs to a flat area with probability ``share``. It is Laplace with
    scale ``flat`` in a flat area and with scale ``wide`` elsewhere.

    The Gaussian already describes the wide differences. A difference d adds what flat areas change,
    ``ln(1 + (share wide) / ((1 - share) flat) exp(-|d| (1 / flat - 1 / wide)))``. Each pixel has one difference down
    and one across; each counts half, so that there is one term per pixel.
    """

    gaussian: GaussianPrior
    share: float
    flat: float
    wide: float

    @classmethod
    def of(cls, public: Tensor, gaussian: GaussianPrior) -> "FlatPrior":
        """Fit the prior to public images of shape ``(m, c, h, w)`` by 30 steps of expectation maximisation.

        The width of flat areas is not fitted: it is one grey value.
        """
        parts = [public.diff(dim=-2).abs().flatten(), public.diff(dim=-1).abs().flatten()]
        counts = torch.bincount((torch.cat(parts) / _GREY).round().long().cpu()).double()
        sizes, share, wide = _GREY * torch.arange(len(counts)), 0.5, 0.5
        for _ in range(30):
            of_flat = torch.sigmoid(math.log(share * wide / ((1 - share) * _GREY)) - sizes * (1 / _GREY - 1 / wide))
            # Public images may be flat everywhere or nowhere.
            share = min(max(float((counts * of_flat).sum() / counts.sum()), 0.01), 0.99)
            others = counts * (1 - of_flat)
            wide = max(float((others * sizes).sum() / others.sum()), 2 * _GREY)
        return cls(gaussian=gaussian, share=share, flat=_GREY, wide=wide)

    def seen_at(self, resolution: float) -> "FlatPrior":
        """Return the prior for uploads that reveal pixel differences only down to ``resolution``: differences within
        flat areas get at least this scale. If ``resolution`` is too coarse, flat areas are no longer modelled
        separately.

        A sharp peak attracts the mode but not the mean: a peak wider than the uploads can show would also attract
        images that are flat nowhere.
        """
        return replace(self, flat=min(max(self.flat, resolution), self.wide))

    def given(self, labels: Tensor) -> "FlatPrior":
        """Return the prior whose mean for each image averages the class means of public images with the image's label
        probabilities ``labels (n, k, classes)`` as weights.
        """
        return replace(self, gaussian=self.gaussian.given(labels))

    def values(self, images: Tensor) -> Tensor:
        """Compute minus the log density of candidate ``images (n, k, c, h, w)``, summed over the k images, shape
        ``(n,)``.
        """
        added = self._added(images.diff(dim=-2)) + self._added(images.diff(dim=-1))
        return self.gaussian.values(images) - added / 2

    def _added(self, differences: Tensor) -> Tensor:
        most = math.log(self.share * self.wide / ((1 - self.share) * self.flat))
        return softplus(most - differences.abs() * (1 / self.flat - 1 / self.wide)).flatten(1).sum(1)


@dataclass(frozen=True, kw_only=True)
class TotalVariationPrior:
    """A prior under which differences of neighbouring pixels have a Laplace distribution around 0, with the same mean
    absolute difference as in public images.

    Each pixel has one difference down and one across; their densities count half each, so that there is one per pixel.
    """

    mean_difference: float

    @classmethod
    def of(cls, public: Tensor) -> "TotalVariationPrior":
        """Fit the prior to public images of shape ``(m, c, h, w)``."""
        parts = [public.diff(dim=-2).abs().flatten(), public.diff(dim=-1).abs().flatten()]
        return cls(mean_difference=max(float(torch.cat(parts).double().mean()), _GREY))

    def given(self, labels: Tensor) -> "TotalVariationPrior":
        """Return the same prior, because it does not depend on labels."""
        return self

    def values(self, images: Tensor) -> Tensor:
        """Compute minus the log density of candidate ``images (n, k, c, h, w)``, summed over the k images, shape
        ``(n,)``.
        """
        differences = images.diff(dim=-2).abs().flatten(1).sum(1) + images.diff(dim=-1).abs().flatten(1).sum(1)
        return differences / (2 * self.mean_difference)


Prior = GaussianPrior | FlatPrior | TotalVariationPrior


# Resolution of a typical pixel relative to that of the mean information; measured on digits.
_UNEVEN = 4.0


@dataclass(frozen=True, kw_only=True)
class ImagePosterior:
    """An objective: the negative log posterior of the images behind m uploads with equal noise and equal batch sizes.

    Rounds have independent noise, so their log densities add up; each round is weighted by its inverse variance.

    Args:
        client: one of the clients that uploaded.
        models: one per round, (d,), at which its uploads were computed.
        releases: one per round, the uploads (m, d).
        prior: of images.
    """

    network: Network
    plan: Plan
    client: int
    law: Law
    models: tuple[Tensor, ...]
    releases: tuple[Tensor, ...]
    prior: Prior

    def of(self, uploads: slice, prior: Prior) -> "ImagePosterior":
        """Return the same objective for some of the uploads, with the ``prior`` of their candidate images."""
        return replace(self, releases=tuple(release[uploads] for release in self.releases), prior=prior)

    def values(self, lots: ImageLots) -> Tensor:
        """Compute the negative log posterior, in nats up to a constant, of r candidate batches for each of m uploads,
        as an array ``(m * r,)``.

        Candidates of one upload are adjacent; differentiable.
        """
        density = torch.zeros((), dtype=torch.float64, device=lots.images.device)
        for model, release in self._rounds():
            totals = self.contributions(lots, model)
            # In double precision: thousands of coordinates with small noise are more nats than single precision holds.
            density = density + self.law.log_density(
                release.double().repeat_interleave(len(totals) // len(release), 0), totals.double()
            )
        return self.prior.values(lots.images) - density

    def of_pool(self, pool: ImageLots) -> Tensor:
        """Compute the log density of each of m uploads given each of q candidate batches, summed over all rounds, shape
        ``(m, q)``.
        """
        density = torch.zeros((), dtype=torch.float64, device=pool.images.device)
        with torch.no_grad():
            for model, release in self._rounds():
                totals = self.contributions(pool, model).double()
                density = density + torch.stack(
                    [self.law.log_density(row.expand_as(totals), totals) for row in release.double()]
                )
        return density

    def resolution(self, lots: ImageLots, spread: float, rng: np.random.Generator) -> float:
        """Estimate the smallest pixel difference that the uploads reveal; the result exceeds the pixels' standard
        deviation ``spread`` if the uploads reveal no difference.

        The uploads are less likely given ``lots``, which stand for any public lots, than these lots' own releases,
        which are drawn here by the law. For differences d between images this costs half of d' F d nats, with F the
        uploads' Fisher information.

        Args:
            spread: standard deviation of a public pixel.
        """
        own = 0.0
        with torch.no_grad():
            for model, _ in self._rounds():
                totals = self.contributions(lots, model).double().cpu()
                own += float(self.law.log_density(self.law.sample(totals, rng), totals).mean())
        nats = max(0.0, own - float(self.of_pool(lots).mean()))
        # Two images of independent pixels differ by 2 spread^2. Information is uneven: most pixels get far less of it.
        return _UNEVEN * spread / math.sqrt(1 + nats / lots.images[0].numel())

    def contributions(self, lots: ImageLots, model: Tensor) -> Tensor:
        """Return what each candidate batch would add to the client's release, without noise, shape ``(n, d)``.

        A law of samples sums their clipped gradients; a law of reports clips the update of the whole lot.
        """
        labels = soft(lots.labels, self.network, model)
        if not of_samples(self.law):
            update = simulated_updates(self.network, self.plan, self.client, model, lots.images, labels)
            return self.law.contribution(update)
        n, k = lots.labels.shape
        rows = self.network.lot_gradients(
            model, lots.images.flatten(0, 1).unsqueeze(1), labels.flatten(0, 1).unsqueeze(1)
        )
        return self.law.contribution(rows.view(n, k, -1)).sum(1)

    def _rounds(self) -> Iterator[tuple[Tensor, Tensor]]:
        return zip(self.models, self.releases, strict=True)


def image_posteriors(
    rounds: list[Uploads], knowledge: Knowledge, observer: Observer, prior: Prior
) -> list[tuple[Tensor, ImagePosterior]]:
    """Group uploads by noise distribution and batch size; return for each group the indices of its uploads ``(m,)`` and
    its objective, the negative log posterior of images.

    Raises:
        Undefined: if an upload has no law that gives images a likelihood.
    """
    found = []
    for equal in of_equal_lots(knowledge.plan, rounds[0]):
        laws = [(usable_law(knowledge, observer, rounds[0].senders[row]), row) for row in equal.tolist()]
        # Compared by value, since clients may publish equal laws as different objects.
        while laws:
            law = laws[0][0]
            rows = torch.tensor([row for other, row in laws if other == law])
            laws = [(other, row) for other, row in laws if other != law]
            posterior = ImagePosterior(
                network=knowledge.network,
                plan=knowledge.plan,
                client=rounds[0].senders[int(rows[0])],
                law=law,
                models=tuple(seen.model for seen in rounds),
                releases=tuple(seen.values[rows] for seen in rounds),
                prior=prior,
            )
            found.append((rows, posterior))
    return found


def of_samples(law: Law) -> bool:
    """Return whether a noise distribution describes sums of per-sample gradients, and not sums of whole client updates.

    Such a sum enters an update with a minus sign.
    """
    return isinstance(law, GaussianLaw) and law.scale < 0


def usable_law(knowledge: Knowledge, observer: Observer, client: int) -> Law:
    """Return the noise distribution that the defense publishes for this client's upload; raise Undefined if an image's
    likelihood cannot be computed from it.
    """
    law = knowledge.law(observer, client)
    if law is None:
        raise Undefined(
            "the defense publishes no distribution of one client's upload, so there is no likelihood to maximise"
        )
    if isinstance(law, GaussianLaw) and law.noise_std == 0:
        raise Undefined("a release without noise has no density, so there is no likelihood to maximise")
    if not _has_slope(law, knowledge.plan.layout.dim):
        raise Undefined(
            "the density of the defense's reports is not differentiable, so a gradient search is impossible"
        )
    if of_samples(law) and knowledge.plan.algorithm.local_steps != 1:
        raise Undefined(
            "each local step starts from the previous step's hidden noise, so the upload's density is not known"
        )
    return law


def _has_slope(law: Law, dim: int) -> bool:
    """Whether torch can differentiate the law's density by the contribution, tested on a row of zeros."""
    point = torch.zeros(1, dim, dtype=torch.float64, requires_grad=True)
    try:
        return law.log_density(torch.zeros(1, dim, dtype=torch.float64), point).requires_grad
    # A density computed in numpy: torch refuses to convert a tensor that requires a gradient.
    except RuntimeError:
        return False
