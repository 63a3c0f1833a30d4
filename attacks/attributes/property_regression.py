"""Attack that infers the share of a group in each client's data by shadow clients (Ganju et al. 2018; Melis et al.
2019).
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from ...audit.arrays import FloatArray
from ...audit.observer import UPLOADS, Observer
from ...fl.candidates import Column
from ...fl.fields import Several
from ...fl.models.network import Network
from ...fl.recorder import View
from ..attack import Knowledge, Undefined
from .property_attack import PropertyAttack
from .uploaded_samples import UploadedSamples, groups_of

# Shadow clients that train at once: their records are held in memory.
_AT_ONCE = 100


@dataclass(frozen=True, kw_only=True)
class PropertyRegression(PropertyAttack):
    """An attack that predicts the share of a group in each client's data by a ridge regression on the uploads of all
    rounds.

    The regression is learned from shadow clients, whose records the adversary draws from public ones, with shares that
    it chooses uniformly. Shadow clients train as the clients do, with lots and published noise of their own; where a
    defense clips the gradients of samples, several local steps are approximated by their first. The predictions are
    shrunk towards the public share by the ratio of two variances, that of the clients' own shares and that of the
    predictions (empirical Bayes). Half as many shadow clients, whose records are drawn from the public ones regardless
    of the group, show the bias and the variance of a prediction.

    Args:
        simulated: number of shadow clients from which the regression is learned.
        samples: public records from which they are drawn.
    """

    observer: ClassVar[Observer] = UPLOADS
    simulated: Several = 500
    samples: Several = 2000

    def shares(self, view: View, knowledge: Knowledge, column: Column, rng: np.random.Generator) -> FloatArray:
        if view.observer.rank < UPLOADS.rank:
            raise Undefined(f"{view.observer.phrase} cannot identify clients, so no share of a client can be inferred")
        images, labels = knowledge.public_images[: self.samples], knowledge.public_labels[: self.samples]
        inside = (column.of_records(images) == self.value).numpy()
        if inside.all() or not inside.any():
            raise Undefined(f"all of {len(inside)} public records are alike in column {self.column!r}")
        groups, known = groups_of(view, knowledge, range(view.plan.clients)), float(inside.mean())
        found, variances = np.zeros(view.plan.clients), np.zeros(view.plan.clients)
        for group in groups:
            counts = self._drawn(inside, group.lot.size, rng)
            kernel = np.zeros((len(counts) + len(group.places), self.simulated))
            for rows in group.rounds:
                if group.lot.steps > 1 and group.lot.law is None:
                    own = _trained(group.lot, counts, rows.model, knowledge.network, (images, labels), rng)
                else:
                    own = _summed(group.lot, counts, group.shares(rows, knowledge, images, labels).numpy(), rng)
                own = own + group.lot.noise * rng.standard_normal(own.shape)
                kernel += _products(np.concatenate([own, group.received(rows).numpy()]), self.simulated)
            shares = counts[:, inside].sum(1) / group.lot.size
            found[group.places], variances[group.places] = _regressed(kernel, shares, self.simulated)
        # Empirical Bayes: what the predictions vary more than their errors is the variance of the clients' own shares.
        spread = max(0.0, float((np.square(found - known) - variances).mean()))
        weights = spread / np.maximum(spread + variances, 1e-300)
        return np.asarray((known + weights * (found - known)).clip(0, 1), dtype=np.float64)

    def _drawn(self, inside: np.ndarray, size: int, rng: np.random.Generator) -> np.ndarray:
        """How often each public record is in each shadow client's data, ``(1.5 simulated, m)``."""
        groups = np.flatnonzero(inside), np.flatnonzero(~inside)
        shares = np.concatenate([rng.random(self.simulated), np.full(self.simulated // 2, inside.mean())])
        counts = np.zeros((len(shares), len(inside)), dtype=np.int64)
        for row, share in zip(counts, shares, strict=True):
            of_group = rng.binomial(size, share)
            for group, number in zip(groups, (of_group, size - of_group), strict=True):
                np.add.at(row, rng.choice(group, size=number), 1)
        return counts


def _regressed(kernel: np.ndarray, shares: FloatArray, shadows: int) -> tuple[FloatArray, float]:
    """The clients' predicted shares and the variance of their errors, from the inner products of the uploads of all
    shadow clients, and after them of the clients, with those of the first ``shadows``.
    """
    from sklearn.linear_model import RidgeCV  # Imported late: half a second.

    # Coordinates of the uploads in the span of the shadows' uploads: a regression on all weights costs the same.
    values, vectors = np.linalg.eigh(kernel[:shadows])
    kept = values > 1e-10 * values.max()
    rows = kernel @ (vectors[:, kept] / np.sqrt(values[kept]))
    model = RidgeCV(alphas=values.max() * 10.0 ** np.arange(-8, 2)).fit(rows[:shadows], shares[:shadows])
    natural, clients = np.split(np.asarray(model.predict(rows[shadows:])), [len(shares) - shadows])
    errors = natural - shares[shadows:]
    return np.asarray(clients - errors.mean(), dtype=np.float64), float(errors.var())


def _summed(lot: UploadedSamples, counts: np.ndarray, each: np.ndarray, rng: np.random.Generator) -> FloatArray:
    """The gradients behind the uploads of shadow clients in one round, ``(n, d)``: sums of their records' shares."""
    times = counts if lot.rate == 1 else rng.binomial(counts * lot.steps, lot.rate) / (lot.steps * lot.rate)
    return np.asarray(times @ each, dtype=np.float64)


def _trained(
    lot: UploadedSamples,
    counts: np.ndarray,
    model: Tensor,
    network: Network,
    samples: tuple[Tensor, Tensor],
    rng: np.random.Generator,
) -> FloatArray:
    """The same of shadow clients that train for several local steps from the round's ``model (d,)``."""
    found = list[Tensor]()
    for rows in np.array_split(counts, -(-len(counts) // _AT_ONCE)):
        held = torch.from_numpy(np.stack([np.repeat(np.arange(len(row)), row) for row in rows]))
        start = model.expand(len(held), -1)
        local, state = start, lot.algorithm.start(start)
        for _ in range(lot.steps):
            weights = torch.from_numpy(rng.random(held.shape) < lot.rate).to(model) * (lot.steps / lot.draws)
            gradients = network.gradient(local, samples[0][held], samples[1][held], weights)
            local, state = lot.algorithm.step(local, gradients, state)
        found.append(lot.algorithm.gradient(lot.algorithm.update(start, local)))
    return np.asarray(torch.cat(found).double().numpy(), dtype=np.float64)


def _products(uploads: FloatArray, shadows: int) -> FloatArray:
    """Inner products ``(n, shadows)`` of uploads with the first ``shadows`` ones, relative to their mean and spread."""
    first = uploads[:shadows]
    rows = (uploads - first.mean(0)) / max(float(first.std(0).mean()), 1e-300)
    return np.asarray(rows @ rows[:shadows].T, dtype=np.float64)
