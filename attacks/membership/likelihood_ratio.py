"""Attack that infers membership from the likelihood of each round's uploads, with and without it in the batch.

For one round with Poisson rate q and noise law p the ratio is ``ln(1 - q + q p(r | with) / p(r | without))``; it is
summed over rounds. For a Gaussian around sums, with contribution c, it is
``ln(1 - q + q exp((<r - rest, c> - |c|^2 / 2) / s^2))``, the exact ratio of the sampled Gaussian if rest and s are
known. A sum has one row for all clients. Any of the shuffled rows is equally likely to be the client's, so their ratio
is the mean over all rows.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from scipy.special import logsumexp
from torch import Tensor

from ...audit.estimators.likelihood_ratio import subsampled_gaussian
from ...audit.observer import SHUFFLED, UPLOADS
from ...fl.algorithms import Algorithm
from ...fl.candidates import Candidates
from ...fl.laws import GaussianLaw
from ...fl.recorder import View
from ..attack import Knowledge, Level, Undefined
from .candidates import CHUNK, RoundRows, candidate_gradients
from .round_attack import RoundAttack


@dataclass(frozen=True, kw_only=True)
class LikelihoodRatio(RoundAttack):
    """An attack whose score is the log-likelihood ratio of the uploads (with over without the candidate), summed over
    rounds.

    Args:
        rest: ``"estimated"``: the rest of the client's release is estimated by the mean of the other clients' uploads,
            or, without two other uploads (a sum), by what the public samples would add in the lot's place. The noise is
            estimated by the remaining deviation. This is a realistic server; it works on any defense, and clips as the
            defense does where its law is published. ``"known"``: rest and noise are given (the worst-case adversary of
            differential privacy), which makes the ratio exact and needs the defense's law.
    """

    rest: Literal["estimated", "known"] = "estimated"

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
        if knowledge.hypotheses is None:
            raise Undefined(
                "the exact ratio is not defined: the defense publishes no noise distribution of what this observer "
                "receives, or the observer does not know what all others contribute to the release"
            )
        named = view.observer.rank >= UPLOADS.rank
        came = [client for client in shown.clients if not named or client in rows.senders]
        found = np.empty((len(came), len(shown.labels)))
        for start in range(0, len(shown.labels), CHUNK):
            which = slice(start, start + CHUNK)
            for number, client in enumerate(came):
                hypotheses = knowledge.hypotheses(rows.round, client, which)
                found[number, which] = _mixed(hypotheses.log_ratio, hypotheses.rate)
        return found

    def table(self, rows: RoundRows, view: View, knowledge: Knowledge, shown: Candidates) -> np.ndarray:
        # In gradients, not in updates: under Adam an update's length has no meaning, only its direction.
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
        """What a candidate adds to a row, and to which rows; clients of one size and law share this."""
        plan, kinds = view.plan, dict[_Share, list[int]]()
        if view.observer.rank < SHUFFLED.rank:
            drawn = plan.cohort_rate * sum(map(plan.expected_lot, range(plan.clients)))
            rate, draws = drawn / sum(plan.sizes), drawn * plan.algorithm.local_steps
            return [(_Share(law=None, algorithm=plan.algorithm, draws=draws, rate=rate), [0])]
        for row, client in enumerate(rows.senders):
            law = knowledge.law(view.observer, client)
            share = _Share(
                # Gradients enter updates with a minus sign, so a law of positive scale describes whole reports.
                law=law if isinstance(law, GaussianLaw) and law.scale < 0 else None,
                algorithm=plan.algorithm,
                draws=plan.expected_lot(client) * plan.algorithm.local_steps,
                rate=plan.lot.rate(plan.sizes[client]),
            )
            kinds.setdefault(share, []).append(row)
        return list(kinds.items())

    def _of_public(self, rows: RoundRows, view: View, knowledge: Knowledge) -> "_Rest":
        """The rest if the lot held samples with the public samples' mean gradient."""
        ((share, _),) = self._kinds(rows, view, knowledge)
        public = Candidates(images=knowledge.public_images, labels=knowledge.public_labels, clients=(0,))
        chunks = candidate_gradients(knowledge.network, rows.model, public)
        total = torch.stack([share.of(gradients).sum(0) for _, gradients in chunks]).sum(0)
        residuals = rows.gradients - total * (share.draws / len(public.labels))
        return _Rest(residuals=residuals, noise=residuals.double().square().mean(1).sqrt())


@dataclass(frozen=True, kw_only=True)
class _Rest:
    """Rows minus what others than the candidate contribute ``(m, d)``, and the remaining deviation ``(m,)``."""

    residuals: Tensor
    noise: Tensor


@dataclass(frozen=True, kw_only=True)
class _Share:
    """What one draw of a candidate adds to the gradient behind a row, out of ``draws`` expected ones."""

    law: GaussianLaw | None
    algorithm: Algorithm
    draws: float
    rate: float

    def of(self, gradients: Tensor) -> Tensor:
        """Return what each of n samples would add to the release, shape ``(n, d)``, given the samples' gradients ``(n,
        d)``.
        """
        if self.law is not None:
            return self.algorithm.gradient(self.law.contribution(gradients))
        return gradients / self.draws

    def ratio(self, gradients: Tensor, residuals: Tensor, noise: Tensor) -> np.ndarray:
        """Compute the log-likelihood ratios ``(m, n)`` of m uploads and n candidates, under Gaussian noise.

        ``residuals``: (m, d); ``noise``: (m,), its standard deviation per coordinate.
        """
        shares, steps = self.of(gradients), self.algorithm.local_steps
        squares = shares.square().sum(-1).double()
        return _ratio((residuals @ shares.T).double(), squares, noise.unsqueeze(1), self.rate, steps)


def _of_others(gradients: Tensor) -> _Rest:
    """Every row minus the mean of all others, and the scatter of these differences."""
    count = len(gradients)
    centred = gradients - gradients.mean(0)
    squares = centred.double().square().sum(1)
    # A row scatters about the mean of the m others with (1 + 1/m) times the variance of one.
    scatter = (squares.sum() - squares * count / (count - 1)).clamp_min(0) / ((count - 2) * gradients.shape[1])
    return _Rest(residuals=centred * count / (count - 1), noise=(scatter * count / (count - 1)).sqrt())


def _mixed(drawn: Tensor, rate: float) -> np.ndarray:
    """The ratio ``(m,)`` if it is unknown whether the candidate was drawn, from the ratio if it was drawn."""
    with np.errstate(divide="ignore"):
        return np.asarray(np.logaddexp(np.log1p(-rate), np.log(rate) + drawn.numpy()), dtype=np.float64)


def _ratio(dots: Tensor, squares: Tensor, noise: Tensor, rate: float, steps: int) -> np.ndarray:
    """Ratios of a whole release with deviation ``noise``, from <residual, share> and |share|^2, in double precision."""
    squares = squares.clamp_min(1e-30)
    sigma = noise.clamp_min(1e-12) / (squares.sqrt() * steps**0.5)
    return subsampled_gaussian((dots / squares).numpy(), sigma=sigma.numpy(), rate=rate, steps=steps)
