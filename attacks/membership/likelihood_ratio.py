"""Likelihood ratio: how much likelier each round's upload is with the candidate in the lot than without it.

One round, Poisson rate q, contribution c, noise s: ``ln(1 - q + q exp((<r - rest, c> - |c|^2 / 2) / s^2))``, summed
over rounds (the exact ratio for the sampled Gaussian where rest and s are known).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from torch import Tensor

from ...audit.evidence import CandidateScores
from ...audit.likelihood_ratio import subsampled_gaussian
from ...audit.observer import UPLOADS, Observer
from ...fl.law import GaussianLaw
from ...fl.message import Message
from ...fl.view import RoundView, View
from ..attack import Knowledge, Level, Undefined
from ..candidate_attack import MembershipAttack


@dataclass(frozen=True, kw_only=True)
class LikelihoodRatio(MembershipAttack):
    """Sums the rounds' log-likelihood ratios at the server that sees every upload.

    Args:
        rest: ``"estimated"``: the rest of the client's release is taken to be the mean of the other clients' uploads,
            and the noise what they scatter by (a realistic server; works on any defense, and clips as the defense does
            where its law says how); ``"known"``: rest and noise are given (the adversary that differential privacy
            assumes), which makes the ratio exact and needs the defense's law.
    """

    observer: ClassVar[Observer] = UPLOADS
    chunk: ClassVar[int] = 100
    """Candidates whose gradients are held at once: larger temporaries cost more in page faults than in arithmetic."""
    rest: Literal["estimated", "known"] = "estimated"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.rest not in ("estimated", "known"):
            raise ValueError(f'rest must be "estimated" or "known", got {self.rest!r}')

    @property
    def level(self) -> Level:
        return Level.WORST_CASE if self.rest == "known" else Level.REALISTIC

    def run(self, view: View, knowledge: Knowledge, rng: np.random.Generator) -> CandidateScores:
        score = self._known if self.rest == "known" else self._estimated
        rounds = [(seen, row) for seen in view.rounds if (row := self._row(seen)) is not None and self._usable(seen)]
        if not rounds:
            needed = "the audited client" if self.rest == "known" else "the audited client and two others"
            raise Undefined(f"in no round {needed} took part: there is nothing to score")
        return self.evidence(np.sum([score(seen, row, view, knowledge) for seen, row in rounds], axis=0), view)

    def _usable(self, seen: RoundView) -> bool:
        """Whether enough others took part to estimate the rest."""
        return self.rest == "known" or int(_reports(seen).present[0].sum()) >= 3

    def _known(self, seen: RoundView, row: int, view: View, knowledge: Knowledge) -> np.ndarray:
        law = self._sample_law(view, knowledge)
        if law is None or knowledge.rest is None:
            raise Undefined("no noise law and known rest for what this observer sees: the exact ratio is not defined")
        released, ratios = _reports(seen).values[0, row], []
        for which, gradients in self._gradients(seen, knowledge):
            contribution = law.contribution(gradients)
            residual = released - knowledge.rest(seen.round, which, contribution)
            ratios.append(_ratio(residual, contribution, law.noise_std, law.rate, law.steps))
        return np.concatenate(ratios)

    def _estimated(self, seen: RoundView, row: int, view: View, knowledge: Knowledge) -> np.ndarray:
        # In gradients, not in updates: under Adam their length says nothing, and only the direction can be compared.
        # Words of a secure sum are integers: read as numbers like any upload.
        values, present = _reports(seen).values[0].float(), _reports(seen).present[0]
        gradients = view.plan.algorithm.gradient(values)
        others = gradients[[k for k in range(len(gradients)) if k != row and present[k]]]
        mean = others.mean(0)
        # The audited upload scatters about the mean of the m others with (1 + 1/m) times the variance of one.
        variance = float((others - mean).square().sum() / ((len(others) - 1) * mean.numel())) * (1 + 1 / len(others))
        rate, steps = view.plan.lot.rate(view.plan.sizes[self.client]), view.plan.algorithm.local_steps
        shares = (self._share(rows, view, knowledge) for _, rows in self._gradients(seen, knowledge))
        return np.concatenate([_ratio(gradients[row] - mean, share, variance**0.5, rate, steps) for share in shares])

    def _share(self, rows: Tensor, view: View, knowledge: Knowledge) -> Tensor:
        """What one draw of each candidate adds to the gradient that the upload stands for, ``(n, d)``."""
        law, plan = self._sample_law(view, knowledge), view.plan
        if law is not None:
            return plan.algorithm.gradient(law.contribution(rows))
        return rows / (plan.expected_lot(self.client) * plan.algorithm.local_steps)

    def _sample_law(self, view: View, knowledge: Knowledge) -> GaussianLaw | None:
        """The law of one sample's part in the upload, where the defense publishes one."""
        law = knowledge.law(view.observer, self.client)
        # A gradient enters an update with a minus sign: a law of positive scale is one of whole reports.
        return law if isinstance(law, GaussianLaw) and law.scale < 0 else None

    def _gradients(self, seen: RoundView, knowledge: Knowledge) -> Iterator[tuple[slice, Tensor]]:
        """The candidates' gradients at the model that the round broadcast, chunk by chunk: which, ``(m, d)``."""
        shown = self.shown(knowledge)
        if knowledge.network.mixes:
            raise Undefined(f"no candidate's part of an upload is defined: {knowledge.network.mixture}")
        if seen.broadcast is None:
            raise ValueError("the view holds no broadcast models")
        for start in range(0, len(shown.labels), self.chunk):
            which = slice(start, start + self.chunk)
            images, labels = shown.images[which].unsqueeze(0), shown.labels[which].unsqueeze(0)
            yield which, knowledge.network.sample_gradients(seen.broadcast, images, labels)[0]

    def _row(self, seen: RoundView) -> int | None:
        reports = _reports(seen)
        if reports.senders is None:
            raise ValueError("the view does not name senders: this attack needs the server that sees every upload")
        if self.client not in reports.senders:
            return None
        row = reports.senders.index(self.client)
        return row if bool(reports.present[0, row]) else None


def _reports(seen: RoundView) -> Message:
    if seen.reports is None:
        raise ValueError("the view holds no uploads")
    return seen.reports


def _ratio(residual: Tensor, contribution: Tensor, noise: float, rate: float, steps: int) -> np.ndarray:
    """Ratio of one round for each candidate; ``residual (n, d) or (d,)``, ``contribution (n, d)``, noise of the whole
    release.
    """
    square = contribution.square().sum(-1).double().clamp_min(1e-30)
    projection = (residual * contribution).sum(-1).double() / square
    sigma = max(noise, 1e-12) / (square.sqrt() * steps**0.5)
    return subsampled_gaussian(projection.numpy(), sigma=sigma.numpy(), rate=rate, steps=steps)
