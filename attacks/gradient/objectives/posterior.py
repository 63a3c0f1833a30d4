"""Objective for image attacks: minus the log density of a release given images, minus the images' own log density."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from ....audit.observer import Observer
from ....fl.laws.law import GaussianLaw, Law
from ....fl.models.network import Network
from ....fl.plan import Plan
from ...attack import Knowledge, Undefined
from ...uploads import Uploads
from .image_lots import ImageLots, of_equal_lots, simulated_updates, soft
from .prior import Prior

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
    """Return whether a noise distribution describes sums of per-sample gradients, as opposed to whole client updates.

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
            "the defense publishes no law of one client's upload (its distribution), so there is no likelihood to "
            "maximise"
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
