"""Attack that infers a column of a known record by the likelihood of a client's uploads under each value.

An upload is the completed record's contribution plus those of the other samples of the lot. These are approximately
Gaussian, with the mean and the covariance of public records' contributions: over all rounds together, because a client
has the same samples in each, while lots and noise are drawn anew.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from ...audit.arrays import FloatArray
from ...audit.observer import UPLOADS, Observer
from ...fl.fields import Several
from ...fl.recorder import View
from ..attack import Knowledge
from .attribute_attack import AttributeAttack
from .uploaded_samples import UploadedSamples, groups_of

_FLOOR = 0.01
"""Share of the mean variance that is added to every direction: few public records show none of the rare ones."""
_NO_NOISE = 1e-24
"""Variance of an upload of one sample without noise, so that its likelihood stays finite."""


@dataclass(frozen=True, kw_only=True)
class AttributeLikelihood(AttributeAttack):
    """An attack whose score is the log-likelihood of what the observer receives if the client holds the completed
    record. The observer receives the client's uploads of all rounds, or the sums of all clients' uploads.

    A defense's published clipping and noise of samples enter it. Records of a client with other data than the public
    ones, clipped reports and several local steps are approximated.

    Args:
        samples: public records from which the contributions of the other samples are estimated.
    """

    observer: ClassVar[Observer] = UPLOADS
    samples: Several = 1000

    def scores(self, view: View, knowledge: Knowledge, rng: np.random.Generator) -> FloatArray:
        shown = self.shown(knowledge)
        public = knowledge.public_images[: self.samples], knowledge.public_labels[: self.samples]
        groups = groups_of(view, knowledge, shown.clients)
        found = np.zeros((sum(len(group.places) for group in groups), len(shown.labels)))
        for group in groups:
            products = _Products()
            for rows in group.rounds:
                others = group.shares(rows, knowledge, *public)
                records = group.shares(rows, knowledge, shown.images, shown.labels)
                left = group.received(rows) - (group.lot.size - 1) * others.mean(0)
                products.add(group.lot, others, records, left)
            found[group.places] = products.log_likelihoods()
        return found.reshape(-1)


@dataclass(kw_only=True)
class _Products:
    """Inner products, summed over rounds, of what uploads hold beyond the expected shares of the other samples (the
    left, L), of the records' shares (R), and of the directions in which the other samples vary (F), in the metric of
    the inverse covariance of what is drawn anew in each round.
    """

    ff: Tensor | float = 0.0
    fr: Tensor | float = 0.0
    lf: Tensor | float = 0.0
    lr: Tensor | float = 0.0
    rr: Tensor | float = 0.0

    def add(self, lot: UploadedSamples, others: Tensor, records: Tensor, left: Tensor) -> None:
        """Add a round; ``others (m, d)`` and ``records (n, d)``: shares of the samples, ``left (clients, d)``."""
        count = len(others)
        fixed = (others - others.mean(0)) * ((lot.size - 1) / count) ** 0.5
        drawn = others * (lot.size * (1 / lot.rate - 1) / (lot.steps * count)) ** 0.5
        spread = _FLOOR * float(fixed.square().sum() + drawn.square().sum()) / fixed.shape[1]
        spread += lot.noise**2 + _NO_NOISE
        f, r = (_whitened(rows, drawn, spread, drawn=lot.rate < 1) for rows in (fixed, records))
        self.ff, self.fr = self.ff + fixed @ f.T, self.fr + fixed @ r.T
        self.lf, self.lr = self.lf + left @ f.T, self.lr + left @ r.T
        self.rr = self.rr + (records * r).sum(1)

    def log_likelihoods(self) -> FloatArray:
        """Return the log-likelihoods ``(clients, n)``, up to a constant per client, of each of n records being among a
        client's samples.
        """
        assert isinstance(self.ff, Tensor)
        assert isinstance(self.fr, Tensor)
        solved = torch.linalg.solve(torch.eye(len(self.ff)).double() + self.ff, self.fr)
        found = self.lr - self.lf @ solved - (self.rr - (self.fr * solved).sum(0)) / 2
        return np.asarray(torch.as_tensor(found).numpy(), dtype=np.float64)


def _whitened(rows: Tensor, basis: Tensor, spread: float, *, drawn: bool) -> Tensor:
    """The rows times the inverse of ``basis^T basis + spread``, by Woodbury; without lots drawn at random, of
    ``spread`` alone.
    """
    if not drawn:
        return rows / spread
    inner = spread * torch.eye(len(basis)).double() + basis @ basis.T
    found: Tensor = (rows - torch.linalg.solve(inner, basis @ rows.T).T @ basis) / spread
    return found
