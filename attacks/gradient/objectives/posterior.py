"""Posterior: minus the log density of what was released given candidate images, minus that of the images."""

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
from .lots import of_equal_lots, retold_updates, soft
from .prior import Prior
from .search import Lots

_UNEVEN = 4.0
"""Resolution of a typical pixel over that of the mean information; found on digits."""


@dataclass(frozen=True, kw_only=True)
class Posterior:
    """Of m uploads of one law, from clients whose lots are equally large.

    Rounds have independent noise: their log densities add up, which weighs each by its inverse variance.

    Args:
        client: one of those who uploaded.
        models: one a round, (d,), at which its uploads were computed.
        releases: one a round, the uploads (m, d).
        prior: of images.
    """

    network: Network
    plan: Plan
    client: int
    law: Law
    models: tuple[Tensor, ...]
    releases: tuple[Tensor, ...]
    prior: Prior

    def of(self, uploads: slice, prior: Prior) -> "Posterior":
        """The same of some of the uploads, under a prior of their candidates."""
        return replace(self, releases=tuple(release[uploads] for release in self.releases), prior=prior)

    def values(self, lots: Lots) -> Tensor:
        """Candidates ``(m * r, ...)``, r of each upload side by side -> ``(m * r,)`` nats up to a constant of the
        upload; differentiable.
        """
        density = torch.zeros((), dtype=torch.float64, device=lots.images.device)
        for model, release in self._rounds():
            totals = self.contributions(lots, model)
            # In double: thousands of coordinates at a small noise are far more nats than single precision counts.
            density = density + self.law.log_density(
                release.double().repeat_interleave(len(totals) // len(release), 0), totals.double()
            )
        return self.prior.values(lots.images) - density

    def of_pool(self, pool: Lots) -> Tensor:
        """Log density of each upload given each of the ``pool``'s q lots, over all rounds, ``(m, q)``."""
        density = torch.zeros((), dtype=torch.float64, device=pool.images.device)
        with torch.no_grad():
            for model, release in self._rounds():
                totals = self.contributions(pool, model).double()
                density = density + torch.stack(
                    [self.law.log_density(row.expand_as(totals), totals) for row in release.double()]
                )
        return density

    def resolution(self, lots: Lots, spread: float, rng: np.random.Generator) -> float:
        """How far apart two values of a pixel must be for the uploads to tell them apart, about; more than ``spread``
        where these tell nothing.

        The uploads are less likely given ``lots``, which stand for any public ones, than these lots' own, drawn here by
        the law. For differences d between images that costs half of d' F d nats, F the uploads' Fisher information.

        Args:
            spread: standard deviation of a public pixel.
        """
        own = 0.0
        with torch.no_grad():
            for model, _ in self._rounds():
                totals = self.contributions(lots, model).double().cpu()
                own += float(self.law.log_density(self.law.sample(totals, rng), totals).mean())
        nats = max(0.0, own - float(self.of_pool(lots).mean()))
        # Two images of independent pixels are 2 spread^2 apart. Information is uneven: most pixels get far less of it.
        return _UNEVEN * spread / math.sqrt(1 + nats / lots.images[0].numel())

    def contributions(self, lots: Lots, model: Tensor) -> Tensor:
        """What each lot puts into its release, noise aside, ``(n, d)``.

        A law of samples sums their clipped gradients; a law of reports clips the update that the lot gives.
        """
        labels = soft(lots.labels, self.network, model)
        if not of_samples(self.law):
            update = retold_updates(self.network, self.plan, self.client, model, lots.images, labels)
            return self.law.contribution(update)
        n, k = lots.labels.shape
        rows = self.network.lot_gradients(
            model, lots.images.flatten(0, 1).unsqueeze(1), labels.flatten(0, 1).unsqueeze(1)
        )
        return self.law.contribution(rows.view(n, k, -1)).sum(1)

    def _rounds(self) -> Iterator[tuple[Tensor, Tensor]]:
        return zip(self.models, self.releases, strict=True)


def posteriors(
    rounds: list[Uploads], knowledge: Knowledge, observer: Observer, prior: Prior
) -> list[tuple[Tensor, Posterior]]:
    """The uploads of fused ``rounds``, by law and size of the lots: rows ``(m,)`` and their posterior.

    Raises:
        Undefined: where an upload has no law that an image can be held against.
    """
    found = []
    for equal in of_equal_lots(knowledge.plan, rounds[0]):
        laws = [(usable_law(knowledge, observer, rounds[0].senders[row]), row) for row in equal.tolist()]
        while laws:
            law = laws[0][0]
            rows = torch.tensor([row for other, row in laws if other == law])
            laws = [(other, row) for other, row in laws if other != law]
            posterior = Posterior(
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
    """Whether rows are samples' gradients: these enter an update with a minus sign, reports as they are."""
    return isinstance(law, GaussianLaw) and law.scale < 0


def usable_law(knowledge: Knowledge, observer: Observer, client: int) -> Law:
    """The law of this client's upload; Undefined where it has none that an image can be held against."""
    law = knowledge.law(observer, client)
    if law is None:
        raise Undefined("the defense publishes no law of one client's upload: there is no likelihood to search by")
    if isinstance(law, GaussianLaw) and law.noise_std == 0:
        raise Undefined("a release without noise has no density: there is no likelihood to search by")
    if not _has_slope(law, knowledge.plan.layout.dim):
        raise Undefined("the density of the defense's law has no slope: there is nothing to descend")
    if of_samples(law) and knowledge.plan.algorithm.local_steps != 1:
        raise Undefined("each local step starts from the unseen noise of the one before: its density is not known")
    return law


def _has_slope(law: Law, dim: int) -> bool:
    """Whether torch can follow the law's density back to what was contributed: asked of a row of zeros."""
    point = torch.zeros(1, dim, dtype=torch.float64, requires_grad=True)
    try:
        return law.log_density(torch.zeros(1, dim, dtype=torch.float64), point).requires_grad
    # What numpy computes: torch refuses to hand it a number whose slope is asked for.
    except RuntimeError:
        return False
