"""Each client clips its whole report and adds Gaussian noise, under local DP (Balle and Wang 2018, Algorithm 1)."""

from dataclasses import dataclass

import numpy as np

from ....audit.observer import UPLOADS, Observer
from ....fl.laws import GaussianLaw, clip
from ....fl.message import Message
from ....fl.plan import Plan
from ....fl.protection import Context, Protection, State
from ....fl.streams import normal
from ...accounting.accountant import ANALYTIC_GAUSSIAN
from ...accounting.gaussian import gaussian_curve, gaussian_noise
from ...accounting.spending import gaussian_spending
from ...clipped.claims import ClippedDefense
from ...defense import Prepared, report_claim


@dataclass(frozen=True, kw_only=True)
class LDPGaussianProtection(Protection):
    """A protection in which each client sends its clipped update plus noise N(0, noise_std^2 I)."""

    clip_norm: float
    noise_std: float
    sums = "mean"

    def report(self, updates: Message, context: Context, state: State, rng: np.random.Generator) -> Message:
        noise = self.noise_std * normal(rng, tuple(updates.values.shape))
        return updates.with_values(clip(updates.values, self.clip_norm) + noise)

    def law(self, observer: Observer, plan: Plan, client: int) -> GaussianLaw | None:
        """Return the distribution of one client's report as the server observes it."""
        if observer.rank < UPLOADS.rank:
            return None
        return GaussianLaw(clip_norm=self.clip_norm, scale=1.0, noise_std=self.noise_std)


class LDPGaussian(ClippedDefense):
    """A defense that gives local DP for all of a client's reports together, by Gaussian noise.

    The claim: any two updates that a client might send (replace-one; two clipped updates are up to **twice** the clip
    norm apart). The adversary is the server, which observes individual updates.

    Args:
        epsilon, delta: the budget of all rounds together; calibrated by the analytic Gaussian.
        clip_norm: L2 bound of an update.
    """

    def prepare(self, plan: Plan) -> Prepared:
        noise = gaussian_noise(epsilon=self.epsilon, delta=self.delta, releases=plan.participations)
        # Any two clipped updates are up to twice the clip norm apart.
        protection = LDPGaussianProtection(clip_norm=self.clip_norm, noise_std=noise * 2 * self.clip_norm)
        claim = report_claim(
            epsilon=self.epsilon,
            delta=self.delta,
            rounds=plan.rounds,
            mechanism="Gaussian",
            parameters={
                "noise_std": protection.noise_std,
                "clip_norm": self.clip_norm,
                "releases": plan.participations,
            },
            accountant=ANALYTIC_GAUSSIAN,
            source="Balle and Wang 2018, Theorem 8; composition: Dong et al. 2022, Corollary 3.3",
            curve=gaussian_curve(noise=noise, releases=plan.participations),
        )
        spending = gaussian_spending(claim, plan.cohort.participations)
        return Prepared(protection=protection, claims=(claim,), spending=spending)
