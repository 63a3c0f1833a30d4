"""Likelihood ratio: how much likelier each round's release is with the candidate in the lot than without it.

One round, Poisson rate q, law p of the noise: ``ln(1 - q + q p(r | with) / p(r | without))``, summed over rounds. For a
Gaussian around sums, with contribution c: ``ln(1 - q + q exp((<r - rest, c> - |c|^2 / 2) / s^2))``, the exact ratio of
the sampled Gaussian where rest and s are known. A sum's only row is everybody's; which of shuffled rows is the
client's is a uniform guess, so their ratio is the mean of all rows'.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from scipy.special import logsumexp
from torch import Tensor

from ....audit.estimators.likelihood_ratio import subsampled_gaussian
from ....audit.observer import SHUFFLED, UPLOADS
from ....fl.algorithms.algorithm import Algorithm
from ....fl.laws.law import GaussianLaw
from ....fl.probe import Candidates
from ....fl.view import View
from ...attack import Knowledge, Level, Undefined
from ..alignment import CHUNK, RoundRows, candidate_gradients
from .round_attack import RoundAttack


@dataclass(frozen=True, kw_only=True)
class LikelihoodRatio(RoundAttack):
    """Sums the rounds' log-likelihood ratios.

    Args:
        rest: ``"estimated"``: the rest of the client's release is taken to be the mean of the other clients' uploads,
            or where there are no two others (a sum) what the public samples would add in the lot's place; the noise,
            what it then scatters by (a realistic server; works on any defense, and clips as the defense does where its
            law says how); ``"known"``: rest and noise are given (the adversary that differential privacy assumes),
            which makes the ratio exact and needs the defense's law.
    """

    rest: Literal["estimated", "known"] = "estimated"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.rest not in ("estimated", "known"):
            raise ValueError(f'rest must be "estimated" or "known", got {self.rest!r}')

    @property
    def level(self) -> Level:
        return Level.WORST_CASE if self.rest == "known" else Level.REALISTIC

    def least(self, view: View) -> int:
        return 3 if self.rest == "estimated" and view.observer.rank >= SHUFFLED.rank else 1

    def by_client(self, view: View) -> bool:
        return self.rest == "known" or super().by_client(view)

    def scores_of(self, rows: RoundRows, view: View, knowledge: Knowledge, shown: Candidates) -> np.ndarray:
        if self.rest == "estimated":
            return super().scores_of(rows, view, knowledge, shown)
        if knowledge.worlds is None:
            raise Undefined("no noise law and known rest for what this observer sees: the exact ratio is not defined")
        named = view.observer.rank >= UPLOADS.rank
        came = [client for client in shown.clients if not named or client in rows.senders]
        found = np.empty((len(came), len(shown.labels)))
        for start in range(0, len(shown.labels), CHUNK):
            which = slice(start, start + CHUNK)
            for number, client in enumerate(came):
                worlds = knowledge.worlds(rows.round, client, which)
                found[number, which] = _mixed(worlds.log_ratio, worlds.rate)
        return found

    def table(self, rows: RoundRows, view: View, knowledge: Knowledge, shown: Candidates) -> np.ndarray:
        # In gradients, not in updates: under Adam their length says nothing, and only the direction can be compared.
        others = len(rows.senders) >= self.least(view) > 1
        rest = _of_others(rows.gradients) if others else self._of_public(rows, view, knowledge)
        ratios = np.empty((len(rows.senders), len(shown.labels)))
        for share, members in self._kinds(rows, view, knowledge):
            for which, gradients in candidate_gradients(knowledge.network, rows.model, shown):
                ratios[members, which] = share.ratio(gradients, rest.residuals[members], rest.noise[members])
        return ratios

    def of_multiset(self, table: np.ndarray) -> np.ndarray:
        return np.asarray(logsumexp(table, axis=0, keepdims=True) - np.log(len(table)), dtype=np.float64)

    def _kinds(self, rows: RoundRows, view: View, knowledge: Knowledge) -> list[tuple["_Share", list[int]]]:
        """What a candidate adds to a row, and which rows it so adds to: clients of one size and law are alike."""
        plan, kinds = view.plan, dict[_Share, list[int]]()
        if view.observer.rank < SHUFFLED.rank:
            drawn = plan.cohort_rate * sum(map(plan.expected_lot, range(plan.clients)))
            rate, draws = drawn / sum(plan.sizes), drawn * plan.algorithm.local_steps
            return [(_Share(law=None, algorithm=plan.algorithm, draws=draws, rate=rate), [0])]
        for row, client in enumerate(rows.senders):
            law = knowledge.law(view.observer, client)
            share = _Share(
                # A gradient enters an update with a minus sign: a law of positive scale is one of whole reports.
                law=law if isinstance(law, GaussianLaw) and law.scale < 0 else None,
                algorithm=plan.algorithm,
                draws=plan.expected_lot(client) * plan.algorithm.local_steps,
                rate=plan.lot.rate(plan.sizes[client]),
            )
            kinds.setdefault(share, []).append(row)
        return list(kinds.items())

    def _of_public(self, rows: RoundRows, view: View, knowledge: Knowledge) -> "_Rest":
        """The rest as if the lot held the public samples' mean."""
        ((share, _),) = self._kinds(rows, view, knowledge)
        public = Candidates(images=knowledge.public_images, labels=knowledge.public_labels, clients=(0,))
        chunks = candidate_gradients(knowledge.network, rows.model, public)
        total = torch.stack([share.of(gradients).sum(0) for _, gradients in chunks]).sum(0)
        residuals = rows.gradients - total * (share.draws / len(public.labels))
        return _Rest(residuals=residuals, noise=residuals.double().square().mean(1).sqrt())


@dataclass(frozen=True, kw_only=True)
class _Rest:
    """Rows without what others than the candidate put there ``(m, d)``, and the deviation that is left ``(m,)``."""

    residuals: Tensor
    noise: Tensor


@dataclass(frozen=True, kw_only=True)
class _Share:
    """What one draw of a candidate adds to the gradient that a row stands for, of ``draws`` expected ones."""

    law: GaussianLaw | None
    algorithm: Algorithm
    draws: float
    rate: float

    def of(self, gradients: Tensor) -> Tensor:
        """(n, d)."""
        if self.law is not None:
            return self.algorithm.gradient(self.law.contribution(gradients))
        return gradients / self.draws

    def ratio(self, gradients: Tensor, residuals: Tensor, noise: Tensor) -> np.ndarray:
        """(m, n): of ``residuals (m, d)`` whose coordinates deviate by ``noise (m,)``."""
        shares, steps = self.of(gradients), self.algorithm.local_steps
        squares = shares.square().sum(-1).double()
        return _ratio((residuals @ shares.T).double(), squares, noise.unsqueeze(1), self.rate, steps)


def _of_others(gradients: Tensor) -> _Rest:
    """Every row against the mean of all others, and what these scatter by."""
    count = len(gradients)
    centred = gradients - gradients.mean(0)
    squares = centred.double().square().sum(1)
    # A row scatters about the mean of the m others with (1 + 1/m) times the variance of one.
    scatter = (squares.sum() - squares * count / (count - 1)).clamp_min(0) / ((count - 2) * gradients.shape[1])
    return _Rest(residuals=centred * count / (count - 1), noise=(scatter * count / (count - 1)).sqrt())


def _mixed(drawn: Tensor, rate: float) -> np.ndarray:
    """The ratio where it is unknown whether the candidate was drawn, from that where it was; (m,)."""
    with np.errstate(divide="ignore"):
        return np.asarray(np.logaddexp(np.log1p(-rate), np.log(rate) + drawn.numpy()), dtype=np.float64)


def _ratio(dots: Tensor, squares: Tensor, noise: Tensor, rate: float, steps: int) -> np.ndarray:
    """Of a whole release with deviation ``noise``: <residual, share>, |share|^2, in double precision."""
    squares = squares.clamp_min(1e-30)
    sigma = noise.clamp_min(1e-12) / (squares.sqrt() * steps**0.5)
    return subsampled_gaussian((dots / squares).numpy(), sigma=sigma.numpy(), rate=rate, steps=steps)
