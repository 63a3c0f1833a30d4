"""Label likelihood: the counts under which the upload is likeliest by the defense's own law: its clip and its noise."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from scipy.special import gammaln
from torch import Tensor
from torch.nn.functional import one_hot

from ...audit.arrays import FloatArray, IntArray
from ...audit.evidence import LabelCounts
from ...fl.fields import check_count
from ...fl.laws.law import GaussianLaw, Law
from ...fl.laws.layered_law import LayeredGaussianLaw, layer_slices
from ...fl.models.network import Network
from ...fl.view import View
from ..attack import Attack, Knowledge, Undefined
from ..uploads import check_round
from .gaussian_lots import Cost, GaussianLots, likeliest_counts
from .lots import Lots, check_linear, class_means, counts_of_round, read_lots, whole_counts
from .noise import noise_units

Gaussian = GaussianLaw | LayeredGaussianLaw
"""Laws with Gaussian noise around the clipped row."""

_TYPICAL = 64
"""Lots that are drawn from public data to see how much a report's clip takes off."""

_PRICE = 1.0
"""What a free factor must gain, in nats."""


@dataclass(frozen=True, kw_only=True)
class LabelLikelihood(Attack):
    """Counts of each upload of ``round``: maximum likelihood, or the mode of the posterior, over all coordinates.

    The law's clip goes over public samples' gradients at the model that was broadcast; their class means are what one
    label adds, and their scatter is a second noise beside the law's. A law of whole reports (local noise) clips the
    lot's mean gradient: the factor is that of typical lots of public data, layer by layer where the law clips so.
    Layers of different noise weigh by their own. A law that is no Gaussian but reports each coordinate by itself is
    taken for one with the size, in each layer, of its reports of zero; where nothing is published, or coordinates hang
    together, there is no noise but the scatter. Without a Gaussian an unknown factor is assumed where it makes the
    upload likelier by more than a nat, the price of a parameter (Akaike 1974). Steps after the first are taken to be
    like it, and dropout, whose draws are unknown, to be off. Under batch norm samples of larger lots add up to no
    gradient: it reads lots of one.

    Args:
        prior: "flat", or "public": labels drawn independently with the public labels' shares, which is worth a lot
            under noise and misleads where clients differ.
        samples: public samples whose gradients are looked at, at most.
    """

    prior: Literal["flat", "public"] = "flat"
    samples: int = 400
    round: int = 0

    def __post_init__(self) -> None:
        check_round(self.round)
        if self.prior not in ("flat", "public"):
            raise ValueError(f'prior must be "flat" or "public", got {self.prior!r}')
        check_count("samples", self.samples, least=2)

    def run(self, view: View, knowledge: Knowledge, rng: np.random.Generator) -> LabelCounts:
        """Counts ``(n, classes)``.

        Raises:
            Undefined: for lots of several under a model that mixes samples.
            ValueError: as `read_lots`, or where uploads are not linear in gradients.
        """
        check_linear("label_likelihood", knowledge.plan)
        lots, classes = read_lots(view, knowledge, self.round), knowledge.network.classes
        chosen = torch.from_numpy(rng.permutation(len(knowledge.public_labels))[: self.samples])
        images, labels = knowledge.public_images[chosen], knowledge.public_labels[chosen]
        rows = _sample_rows(knowledge.network, lots, images, labels)
        shares = (torch.bincount(knowledge.public_labels, minlength=classes) + 1.0).double().numpy()
        shares /= shares.sum()
        counts, models = [], dict[object, tuple[GaussianLots, Tensor]]()
        for row, size in enumerate(lots.sizes.tolist()):
            client = lots.clients[row]
            law = knowledge.law(view.observer, client)
            # Building a lot's model costs most: once for all clients of one size and law.
            alike = (size, knowledge.plan.sizes[client], law)
            if alike not in models:
                models[alike] = _model(rows, labels, lots, row, law, knowledge, rng)
            start = whole_counts(shares[None], [size])[0]
            model, units = models[alike]
            release, gaussian = lots.gradients[row].double() / units, isinstance(law, Gaussian)
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


def _sample_rows(network: Network, lots: Lots, images: Tensor, labels: Tensor) -> Tensor:
    """What each public sample adds to a lot, ``(m, d)``."""
    if not network.mixes:
        return network.sample_gradients(lots.model[None], images[None], labels[None])[0]
    if lots.sizes.max() > 1:
        raise Undefined(f"what labels add to a lot of {lots.sizes.max()} is not defined: {network.mixture}")
    classes = one_hot(labels, network.classes).to(lots.model)
    return network.lot_gradients(lots.model, images.unsqueeze(1), classes.unsqueeze(1))


def _model(
    rows: Tensor,
    labels: Tensor,
    lots: Lots,
    row: int,
    law: Law | None,
    knowledge: Knowledge,
    rng: np.random.Generator,
) -> tuple[GaussianLots, Tensor]:
    """The law of the upload in ``row``, from public samples' ``rows (n, d)``, and the units of gradients in it."""
    plan, size = knowledge.plan, int(lots.sizes[row])
    algorithm = plan.algorithm
    if not isinstance(law, Gaussian):
        added = rows / size
    elif isinstance(law, GaussianLaw) and law.scale < 0:
        # A law of samples: a lot that is everything meets it once a step.
        repeats = algorithm.local_steps if plan.lot.rate(plan.sizes[lots.clients[row]]) == 1 else 1
        added = algorithm.gradient(law.contribution(rows)) * repeats
    else:
        typical = torch.stack([rows[rng.integers(len(rows), size=size)].mean(0) for _ in range(_TYPICAL)])
        updates = (algorithm.linear_scale or 0.0) * algorithm.local_steps * typical
        added = rows / size * _left_by_clip(updates, law)
    means, (units, noise) = class_means(added, labels, knowledge.network.classes).double(), noise_units(law, plan, rng)
    scatter = added.double() - means[labels]
    return GaussianLots(means=means / units, scatter=scatter / units, noise_std=noise, size=size), units


def _left_by_clip(updates: Tensor, law: Gaussian) -> Tensor:
    """The factor between a report and its update, for each coordinate alike that is clipped together, on average over
    ``updates (lots, d)``.
    """
    reports, factors = law.contribution(updates), torch.empty_like(updates[0])
    for layer in layer_slices(law.starts if isinstance(law, LayeredGaussianLaw) else (0,)):
        lengths = torch.linalg.vector_norm(updates[:, layer], dim=1).clamp_min(1e-30)
        factors[layer] = (torch.linalg.vector_norm(reports[:, layer], dim=1) / lengths).mean()
    return factors
