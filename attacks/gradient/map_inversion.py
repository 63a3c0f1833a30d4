"""MAP inversion: the images that are likeliest given what was released, by the defense's own law and public images.

For a Gaussian release y of a clipped gradient g(x) the objective is ``|y - g(x)|^2 / (2 sigma^2) - log p(x)``.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from ...audit.evidence import Reconstructions
from ...fl.sampling import Full
from ...fl.view import View
from ..attack import Knowledge, Undefined
from ..search_attack import SearchAttack, lots_evidence
from ..uploads import Uploads, read_uploads
from .lots import lot_labels, random_lots, samples_behind
from .posterior import Posterior, posteriors
from .prior import GaussianPrior, Prior, TotalVariationPrior
from .search import Lots


@dataclass(frozen=True, kw_only=True)
class MapInversion(SearchAttack):
    """Knows how reports are clipped and noised, layer by layer where the defense has layers, and looks for the mode of
    the posterior. Where noise drowns the upload its prior's mode is left: about the mean public image.

    The search starts at public images: for uploads of one sample at the ``restarts`` likeliest of 256, each with its
    label, so that restarts try labels too; for larger lots at images of the labels that the upload shows. How many
    samples there are is taken from the plan (under Poisson sampling, the expected number).

    Args:
        prior: ``gaussian``: mean and shrunken covariance of public images; ``total_variation``: their neighbouring
            pixels' mean difference. Both in nats: there is no weight to tune.
        rounds: consecutive rounds whose uploads are held against the same images; more than one needs full lots.
    """

    pool: ClassVar[int] = 256
    prior: Literal["gaussian", "total_variation"] = "gaussian"
    rounds: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.prior not in ("gaussian", "total_variation"):
            raise ValueError(f"prior must be 'gaussian' or 'total_variation', got {self.prior!r}")
        if isinstance(self.rounds, bool) or not isinstance(self.rounds, int) or self.rounds < 1:
            raise ValueError(f"rounds must be a whole number >= 1, got {self.rounds!r}")

    def run(self, view: View, knowledge: Knowledge, rng: np.random.Generator) -> Reconstructions:
        """Images and labels, upload by upload.

        Raises:
            Undefined: if the defense publishes no law with a density for one client's upload.
            ValueError: for a zero or non-finite upload, or a client that is missing in one of the rounds.
        """
        rounds = [read_uploads(view, knowledge, self.round + number) for number in range(self.rounds)]
        if any(uploads.senders != rounds[0].senders for uploads in rounds):
            raise ValueError("view must hold uploads of the same clients in all fused rounds")
        if self.rounds > 1 and not isinstance(knowledge.plan.lot, Full):
            raise Undefined("rounds are fused where the same samples stand behind each: that needs full lots")
        public = knowledge.public_images.to(rounds[0].model)
        prior: Prior = GaussianPrior.of(public) if self.prior == "gaussian" else TotalVariationPrior.of(public)
        found = []
        for rows, posterior in posteriors(rounds, knowledge, view.observer, prior):
            start = self._start(rows, posterior, rounds[0], knowledge, rng)
            found.append((rows, self._searched(posterior, start)))
        return lots_evidence(found, view)

    def _searched(self, posterior: Posterior, start: Lots) -> Lots:
        return self.search(lambda images: posterior.values(Lots(images=images, labels=start.labels)), start)

    def _start(
        self, rows: Tensor, posterior: Posterior, uploads: Uploads, knowledge: Knowledge, rng: np.random.Generator
    ) -> Lots:
        """``restarts`` lots of public images for each of the uploads ``rows``."""
        k = samples_behind(knowledge.plan, posterior.client)
        images, labels = knowledge.public_images, knowledge.public_labels
        if k == 1:
            drawn = torch.from_numpy(rng.permutation(len(images))[: max(self.pool, self.restarts)]).unsqueeze(1)
            pool = Lots(images=images[drawn].to(uploads.model), labels=labels[drawn])
            likeliest = posterior.of_pool(pool).argsort(dim=1, descending=True, stable=True)
            # Fewer public images than restarts: the likeliest come again.
            best = likeliest[:, torch.arange(self.restarts) % likeliest.shape[1]].flatten()
            return Lots(images=pool.images[best], labels=pool.labels[best])
        named = lot_labels(uploads.gradients[rows], uploads.model, knowledge.network, k, images)
        return random_lots(named.repeat_interleave(self.restarts, 0), images.to(uploads.model), labels, rng)
