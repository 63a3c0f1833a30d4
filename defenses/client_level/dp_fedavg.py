"""DP-FedAvg clips client updates and adds Gaussian noise to their sum (McMahan et al. 2018, Algorithm 1)."""

from dataclasses import dataclass

import numpy as np
from torch import Tensor

from ...audit.claim import Unit
from ...audit.observer import AGGREGATE, GLOBAL_MODELS, Observer
from ...fl.laws import GaussianLaw, clip
from ...fl.message import Message
from ...fl.plan import Plan
from ...fl.protection import Context, Protection, State
from ...fl.streams import normal
from ..clipped.claims import ClippedDefense
from ..defense import Prepared


@dataclass(frozen=True, kw_only=True)
class DPFedAvgProtection(Protection):
    """A protection in which the server computes (sum of clipped updates + N(0, (noise_multiplier * clip_norm)^2 I)) /
    expected cohort size.
    """

    clip_norm: float
    noise_multiplier: float
    sums = "sum"

    def report(self, updates: Message, context: Context, state: State, rng: np.random.Generator) -> Message:
        # Clipped at the client's report, so the server's noise is relative to a bound that always holds.
        return updates.with_values(clip(updates.values, self.clip_norm))

    def aggregate(self, received: Message, context: Context, state: State, rng: np.random.Generator) -> Tensor:
        total = received.values.sum(1)
        noise = self.noise_multiplier * self.clip_norm * self.drawn(total, context, rng)
        # The expected cohort is public; the actual size would reveal who took part.
        return (total + noise) / context.plan.expected_cohort

    def drawn(self, total: Tensor, context: Context, rng: np.random.Generator) -> Tensor:
        """Draw the noise of a round, of the shape ``(R, d)`` of ``total``, in units of noise multiplier times clip
        norm.
        """
        return normal(rng, tuple(total.shape))

    def law(self, observer: Observer, plan: Plan, client: int) -> GaussianLaw | None:
        """Return the distribution of one round's aggregate, which an observer of global models receives as the
        difference of two models; return None for an observer of single client updates, which carry no noise.
        """
        if not GLOBAL_MODELS.rank <= observer.rank <= AGGREGATE.rank:
            return None
        scale = 1 / plan.expected_cohort
        return GaussianLaw(
            clip_norm=self.clip_norm,
            scale=scale,
            noise_std=scale * self.noise_multiplier * self.clip_norm,
            rate=plan.cohort_rate,
        )


class DPFedAvg(ClippedDefense):
    """A defense for client-level DP in which a trusted server clips client updates and adds noise to their sum.

    The claim: one client, add/remove; with cohorts of fixed size replace-one, in which a client moves a sum by two clip
    norms. The adversary is another client, who sees every round's model but not who else takes part; of a cohort of
    fixed size it knows whether it takes part itself, so that the rate is that among the others.

    Args:
        epsilon, delta: the budget to calibrate to, by the privacy-loss distribution over the rounds.
        clip_norm: L2 bound of a client's update.

    Raises (in prepare):
        ValueError: if cohorts are neither Poisson samples, nor of fixed size, nor all clients.
    """

    def prepare(self, plan: Plan) -> Prepared:
        mechanism = self.calibrated(plan, Unit.CLIENT)
        protection = DPFedAvgProtection(clip_norm=self.clip_norm, noise_multiplier=mechanism.sigma)
        return self.stated(plan, mechanism, protection, Unit.CLIENT, source="McMahan et al. 2018, Algorithm 1")
