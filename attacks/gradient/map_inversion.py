"""Attack that finds the most probable images given a release, the defense's noise distribution and public images.

For a Gaussian release y of a clipped gradient g(x) the objective is ``|y - g(x)|^2 / (2 sigma^2) - log p(x)``.
"""

from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from ...audit.evidence import Reconstructions
from ...fl.fields import Count
from ...fl.recorder import View
from ...fl.sampling import Full
from ..attack import Knowledge, Undefined
from ..uploads import read_uploads
from .image_attack import ImageLots, SearchAttack, lot_labels, lots_evidence, random_lots, samples_behind, soft
from .posterior import FlatPrior, GaussianPrior, ImagePosterior, Prior, TotalVariationPrior, image_posteriors
from .search import Values


@dataclass(frozen=True, kw_only=True)
class MapInversion(SearchAttack):
    """An attack that finds the most probable images, given how the defense clips client updates and adds noise (in each
    layer separately, if the defense does so).

    Where noise hides the upload, the mode of the prior remains: the mean public image, or that of the label where the
    upload still reveals it.

    The search starts at public images. For uploads of one sample these are the ``restarts`` most likely of 256, each
    with its label, so that restarts also try labels; for larger lots they are images with the labels that the upload
    reveals. The number of samples is the plan's (under Poisson sampling, the expected number). The attack does not know
    dropout's draws: its likelihood is that of the gradient without dropout, and wrong by that difference.

    Args:
        prior: ``gaussian``: normal about the mean public image (each label's mean weighted by the label's probability
            given the upload), with the shrunken covariance of public images, and with their flat areas as far as the
            uploads can resolve these; ``total_variation``: neighbouring pixels' mean difference in public images. Both
            are in nats: there is no weight to tune.
        rounds: consecutive rounds whose uploads are matched with the same images; more than one needs full lots.
    """

    pool: ClassVar[int] = 256
    typical: ClassVar[int] = 64
    """Number of public images with which the uploads' resolution of a pixel is estimated."""
    prior: Literal["gaussian", "total_variation"] = "gaussian"
    rounds: Count = 1

    def run(self, view: View, knowledge: Knowledge, rng: np.random.Generator) -> Reconstructions:
        """Return the reconstructed images and labels, upload by upload.

        Raises:
            Undefined: if the defense publishes no law with a density for one client's upload.
            ValueError: for a zero or non-finite upload, or a client that is missing in one of the rounds.
        """
        rounds = [read_uploads(view, knowledge, self.round + number) for number in range(self.rounds)]
        if any(uploads.senders != rounds[0].senders for uploads in rounds):
            raise ValueError("the same clients must upload in all rounds that the attack combines")
        if self.rounds > 1 and not isinstance(knowledge.plan.lot, Full):
            raise Undefined("the attack can combine several rounds only if each batch is the client's whole dataset")
        public, labels = knowledge.public_images.to(rounds[0].model), knowledge.public_labels
        prior: Prior = TotalVariationPrior.of(public)
        if self.prior == "gaussian":
            prior = FlatPrior.of(public, GaussianPrior.of(public, labels, knowledge.network.classes))
        found = []
        for rows, posterior in image_posteriors(rounds, knowledge, view.observer, prior):
            k = samples_behind(knowledge.plan, posterior.client)
            if k == 1:
                start = self._likeliest(posterior, public, labels, rng)
            else:
                named = lot_labels(rounds[0].gradients[rows], rounds[0].model, knowledge.network, k, public)
                lots = random_lots(named.repeat_interleave(self.restarts, 0), public, labels, rng)
                start = _Start(lots=lots, classes=soft(lots.labels, knowledge.network, public))
            # The prior's flat areas must not be finer than the uploads can show; see ``FlatPrior.seen_at``.
            if isinstance(prior, FlatPrior):
                resolution = self._resolution(posterior, k, public, labels, rng)
                posterior = replace(posterior, prior=prior.seen_at(resolution))
            found.append((rows, self._searched(posterior, start)))
        return lots_evidence(found, view)

    def _resolution(
        self, posterior: ImagePosterior, k: int, public: Tensor, labels: Tensor, rng: np.random.Generator
    ) -> float:
        drawn = torch.from_numpy(rng.integers(len(public), size=(max(1, self.typical // k), k)))
        spread = float((public - public.mean(0)).square().mean().sqrt())
        return posterior.resolution(ImageLots(images=public[drawn], labels=labels[drawn]), spread, rng)

    def _searched(self, posterior: ImagePosterior, start: "_Start") -> ImageLots:
        def objective(part: slice) -> Values:
            # All restarts of an upload are in one part, so the part covers whole uploads.
            held = slice(part.start // self.restarts, part.stop // self.restarts)
            known = posterior.of(held, posterior.prior.given(start.classes[part]))
            labels = start.lots.labels[part]
            return lambda images: known.values(ImageLots(images=images, labels=labels))

        return self.search(objective, start.lots, posterior.network.layout.dim)

    def _likeliest(
        self, posterior: ImagePosterior, public: Tensor, labels: Tensor, rng: np.random.Generator
    ) -> "_Start":
        """For each upload the most likely public images of a pool, and the label probabilities that follow."""
        drawn = torch.from_numpy(rng.permutation(len(public))[: max(self.pool, self.restarts)]).unsqueeze(1)
        pool = ImageLots(images=public[drawn], labels=labels[drawn])
        density = posterior.of_pool(pool)
        # Before the upload is seen, every public image is equally probable.
        share = density.softmax(1) @ soft(pool.labels[:, 0], posterior.network, density)
        order = density.argsort(dim=1, descending=True, stable=True)
        # With fewer public images than restarts, the most likely ones are repeated.
        best = order[:, torch.arange(self.restarts) % order.shape[1]].flatten()
        lots = ImageLots(images=pool.images[best], labels=pool.labels[best])
        return _Start(lots=lots, classes=share.repeat_interleave(self.restarts, 0).unsqueeze(1).to(public))


@dataclass(frozen=True, kw_only=True)
class _Start:
    """ImageLots at which the search starts, and the probability of each class for each image, ``(n, k, classes)``."""

    lots: ImageLots
    classes: Tensor
