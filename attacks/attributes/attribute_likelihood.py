"""Attack that infers a column of a known record by the likelihood of a client's uploads under each value.

An upload is the completed record's contribution plus those of the other samples of the lot. These are approximately
Gaussian, with the mean and the covariance of public records' contributions. The mean over T rounds has the same share
of the client's fixed samples, whatever T is, but 1 / T of the variance of sampling and noise.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from ...audit.arrays import FloatArray
from ...audit.observer import SHUFFLED, UPLOADS, Observer
from ...fl.algorithms import Algorithm
from ...fl.candidates import Candidates
from ...fl.fields import Several
from ...fl.laws import GaussianLaw
from ...fl.recorder import View
from ..attack import Knowledge, Undefined
from ..membership.candidates import RoundRows, candidate_gradients, rounds_of
from ..uploads import reduce_view
from .attribute_attack import AttributeAttack

_FLOOR = 0.1
"""Share of the mean variance that is added to every direction: few public records show none of the rare ones."""
_NO_NOISE = 1e-24
"""Variance of an upload of one sample without noise, so that its likelihood stays finite."""


@dataclass(frozen=True, kw_only=True)
class AttributeLikelihood(AttributeAttack):
    """An attack whose score is the log-likelihood of what the observer receives if the client holds the completed
    record: of the client's uploads, or of the sum of all clients' uploads, averaged over the rounds.

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
        asked = shown.clients if view.observer.rank >= UPLOADS.rank else (_ALL,)
        if view.observer.rank == SHUFFLED.rank:
            reduced = reduce_view(view, knowledge)
            view, knowledge = reduced.view, reduced.knowledge
        rounds, kinds = list(rounds_of(view)), dict[_Lot, list[int]]()
        for place, client in enumerate(asked):
            kinds.setdefault(_lot_of(client, view, knowledge), []).append(place)
        found = np.zeros((len(asked), len(shown.labels)))
        for lot, places in kinds.items():
            others, records = (
                torch.stack([lot.share(_gradients(knowledge, rows.model, one)) for rows in rounds])
                for one in (Candidates(images=public[0], labels=public[1], clients=(0,)), shown)
            )
            expected = others.mean(1) * (lot.size - 1)
            received = torch.stack([_received(rounds, asked[place], expected) for place in places])
            found[places] = lot.log_likelihoods(received, others.mean(0), records.mean(0), rounds=len(rounds))
        return found.reshape(-1)


_ALL = -1
"""In place of a client's number: all clients together, of whom only the sum is known."""


def _gradients(knowledge: Knowledge, model: Tensor, samples: Candidates) -> Tensor:
    return torch.cat([gradients for _, gradients in candidate_gradients(knowledge.network, model, samples)])


def _received(rounds: Sequence[RoundRows], client: int, expected: Tensor) -> Tensor:
    """What a client's uploads hold beyond the other samples' ``expected (rounds, d)``: ``(d,)``, mean over its
    rounds.
    """
    left = [
        (rows.gradients.mean(0) if client == _ALL else rows.gradients[rows.senders.index(client)]) - mean
        for rows, mean in zip(rounds, expected, strict=True)
        if client == _ALL or client in rows.senders
    ]
    if not left:
        raise Undefined(f"client {client} took part in no round, so there is nothing to score")
    return torch.stack(left).mean(0)


@dataclass(frozen=True, kw_only=True)
class _Lot:
    """How the samples behind an upload, or a sum of uploads, enter it.

    ``size``: number of samples; ``rate``: the chance of each in each of ``steps`` steps; ``draws``: expected number of
    samples in all steps together; ``law``: of the samples' sum, times ``weight``, where the defense publishes it;
    ``noise``: the published standard deviation of each coordinate of the gradient.
    """

    size: int
    rate: float
    steps: int
    draws: float
    algorithm: Algorithm
    law: GaussianLaw | None
    weight: float
    noise: float

    def share(self, gradients: Tensor) -> Tensor:
        """Return what each sample is expected to add to the gradient behind the upload, from its gradient; both are
        ``(m, d)``, the result in double precision.
        """
        drawn = gradients / self.draws
        if self.law is not None:
            drawn = self.weight * self.algorithm.gradient(self.law.contribution(gradients))
        return drawn.double() * (self.rate * self.steps)

    def log_likelihoods(self, received: Tensor, others: Tensor, records: Tensor, *, rounds: int) -> FloatArray:
        """Return the log-likelihoods ``(clients, n)``, up to a constant per client, of each of n records being among a
        client's samples.

        ``received (clients, d)``: what the uploads hold beyond the expected shares of the other samples; ``others (m,
        d)`` and ``records (n, d)``: shares, means over the rounds.
        """
        count = len(others)
        fixed = (others - others.mean(0)) * ((self.size - 1) / count) ** 0.5
        sampled = others * (self.size * (1 / self.rate - 1) / (self.steps * count * rounds)) ** 0.5
        rows = torch.cat([fixed, sampled]) if self.rate < 1 else fixed
        spread = _FLOOR * float(rows.square().sum()) / rows.shape[1] + self.noise**2 / rounds + _NO_NOISE
        # Woodbury: the covariance has as many directions as there are public records, plus the same spread in all.
        inner = spread * torch.eye(len(rows)).double() + rows @ rows.T
        whitened = (records - rows.T.matmul(torch.linalg.solve(inner, rows @ records.T)).T) / spread
        found = received @ whitened.T - (records * whitened).sum(1) / 2
        return np.asarray(found.numpy(), dtype=np.float64)


def _lot_of(client: int, view: View, knowledge: Knowledge) -> _Lot:
    plan, steps = view.plan, view.plan.algorithm.local_steps
    if client == _ALL:
        size, drawn = sum(plan.sizes), sum(map(plan.expected_lot, range(plan.clients))) * plan.cohort_rate
        rate, weight = drawn / size, plan.sizes[0] / size
    else:
        size, drawn, weight = plan.sizes[client], plan.expected_lot(client), 1.0
        rate = plan.lot.rate(size)
    law, seen = (knowledge.law(observer, max(client, 0)) for observer in (UPLOADS, view.observer))
    noise = 0.0
    if isinstance(seen, GaussianLaw) and client == _ALL:
        noise = seen.noise_std
    elif isinstance(law, GaussianLaw):
        # Of a mean of equal clients, each with noise of its own: the squares of the weights add up to the weight.
        noise = law.noise_std * weight**0.5
    return _Lot(
        size=size,
        rate=rate,
        steps=steps,
        draws=drawn * steps,
        algorithm=plan.algorithm,
        law=law if isinstance(law, GaussianLaw) and law.scale < 0 else None,
        weight=weight,
        noise=abs(float(plan.algorithm.gradient(torch.tensor([noise])))),
    )
