"""DP-FTRL adds noise that is correlated over the rounds, so that most of it cancels in the model (Kairouz et al. 2021).

Trees, optimal dense factorisations, BandMF, square roots and BLT differ in the matrix of the noise alone: see
``accounting.correlated``.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from ...audit.claim import Adjacency, Claim, Unit
from ...audit.curve import Curve, GaussianCurve, epsilon_from_mu, mu_from_epsilon
from ...audit.observer import GLOBAL_MODELS, Observer
from ...fl.fields import Index
from ...fl.plan import Plan
from ...fl.protection import Context
from ...fl.sampling import Epoch, Full, Poisson
from ...fl.streams import normal
from ..accounting.accountant import ACCOUNTANT
from ..accounting.correlated import BANDED, CorrelatedNoise, Kind, Participation, correlated_noise
from ..accounting.gaussian import calibrate_sampled_gaussian, check_least_noise
from ..clipped.claims import ClippedDefense
from ..defense import Prepared, check_budget
from .dp_fedavg import DPFedAvgProtection


@dataclass(frozen=True, kw_only=True)
class DPFTRLProtection(DPFedAvgProtection):
    """A DP-FedAvg protection with correlated noise: in round t it adds ``noise_multiplier * clip_norm`` times ``sum_s
    weights[t, s] z_s``, as ``noise`` describes. No law of single rounds is published, because their noise depends on
    other rounds.
    """

    noise: CorrelatedNoise
    sums = "sum"

    def drawn(self, total: Tensor, context: Context, rng: np.random.Generator) -> Tensor:
        if context.draws is None:
            raise ValueError(
                "context.draws must return the random generators of earlier rounds, as it does in a federation"
            )
        noise = torch.zeros_like(total)
        for draw, weight in self.noise.terms(context.round):
            noise.add_(normal(context.draws(draw), tuple(total.shape)), alpha=weight)
        return noise

    def law(self, observer: Observer, plan: Plan, client: int) -> None:
        return None


@dataclass(frozen=True, kw_only=True)
class DPFTRL(ClippedDefense):
    """A defense for client-level DP in which a trusted server adds noise that is correlated over the rounds.

    The claim: one client, add/remove (zero-out where cohorts are a random order or of fixed size, because one client
    more would change who else is drawn), over all rounds. The adversary is another client, who sees every round's
    model. Its curve is that of one Gaussian release of the exact sensitivity, over all rounds in which the plan's
    cohorts let one client take part: in every one, or (``epoch``) in one of each pass, at the same place if the passes
    have the same order. Where clients come by coins, and the strategy has no more bands than a pass has rounds, the
    coins amplify (Choquette-Choo et al. 2023, theorem 4); elsewhere they are not counted on.

    Args:
        epsilon, delta: the budget to calibrate to.
        clip_norm: L2 bound of a client's update.
        kind: of the noise; "independent" is DP-FedAvg.
        bands: of the kinds "banded" (BandMF), "banded_square_root" (BSR), "banded_inverse_square_root" (BISR); for
            "blt" the number of buffers.
        restart: rounds after which the noise begins anew; 0: never.

    Raises (in prepare):
        ValueError: for bands that the kind lacks, and without those that it has.
    """

    kind: Kind = "tree"
    bands: Index = 0
    restart: Index = 0

    def prepare(self, plan: Plan) -> Prepared:
        check_budget(self.epsilon, self.delta)
        schema = participation(plan)
        noise = correlated_noise(self.kind, plan.rounds, schema=schema, bands=self.bands, restart=self.restart)
        rate = plan.cohort.probability if isinstance(plan.cohort, Epoch | Poisson) else 1.0
        amplified = rate < 1 and self._bands <= schema.period
        if amplified:
            sampled = calibrate_sampled_gaussian(
                epsilon=self.epsilon, delta=self.delta, rate=rate, steps=schema.most(plan.rounds)
            )
            # A client's columns of the strategy do not overlap: each participation is a release of its own.
            column = math.sqrt(float(np.diag(noise.precision).max()))
            multiplier = sampled.sigma * column
            curve: Curve = sampled.curve(self.epsilon)
        else:
            mu = mu_from_epsilon(self.epsilon, self.delta)
            multiplier, curve = noise.sensitivity(schema) / mu, GaussianCurve(mu)
            check_least_noise(1 / mu, epsilon=self.epsilon)
        claim = self._claim(plan, multiplier, rate if amplified else 1.0, schema, curve)

        def spent(rounds: int) -> float:
            if amplified:
                return replace(sampled, steps=schema.most(rounds)).epsilon(self.delta)
            return epsilon_from_mu(noise.sensitivity(schema, rounds) / multiplier, self.delta)

        spending: dict[str, Callable[[int], float]] = {claim.claim_id: spent}
        protection = DPFTRLProtection(clip_norm=self.clip_norm, noise_multiplier=multiplier, noise=noise)
        return Prepared(protection=protection, claims=(claim,), spending=spending)

    @property
    def _bands(self) -> float:
        if self.kind not in BANDED:
            return math.inf
        return max(1, self.bands)

    def _claim(self, plan: Plan, multiplier: float, rate: float, schema: Participation, curve: Curve) -> Claim:
        words = {"blt": f" of {self.bands} buffers"}.get(self.kind, f" of {self.bands} bands" if self.bands else "")
        places = "always in the same position" if schema.same else "in any order"
        taking = f"each client takes part in one of every {schema.period} rounds, {places}"
        return Claim(
            epsilon=self.epsilon,
            delta=self.delta,
            unit=Unit.CLIENT,
            # One more client would change which others come.
            adjacency=Adjacency.ADD_REMOVE if schema.same else Adjacency.ZERO_OUT,
            observer=GLOBAL_MODELS,
            rounds=plan.rounds,
            dp_model="central",
            mechanism=f"Gaussian noise correlated over rounds ({self.kind.replace('_', ' ')}{words})",
            parameters={
                "noise_multiplier": multiplier,
                "clip_norm": self.clip_norm,
                "rate": rate,
                "participations": schema.most(plan.rounds),
            },
            accountant=ACCOUNTANT if rate < 1 else "exact trade-off function of a Gaussian release",
            sampling=(taking if schema.period > 1 else "none assumed")
            + (
                f", each time with independent probability {rate:g}, and the adversary does not see who takes part"
                if rate < 1
                else ""
            ),
            trust="the server, which sees every update",
            source=_SOURCES[self.kind] + ("; Choquette-Choo et al. 2023, theorem 4" if rate < 1 else ""),
            curve=curve,
        )


_SOURCES: dict[Kind, str] = {
    "independent": "McMahan et al. 2018, Algorithm 1",
    "tree": "Kairouz et al. 2021, Algorithm 1",
    "honaker": "Kairouz et al. 2021, Algorithm 1, with Honaker 2015",
    "dense": "Denisov et al. 2022",
    "banded": "Choquette-Choo et al. 2023",
    "banded_square_root": "Kalinin and Lampert 2024",
    "square_root": "Fichtenberger, Henzinger, Upadhyay 2023",
    "banded_inverse_square_root": "Kalinin et al. 2025",
    "blt": "McMahan et al. 2024",
}


def participation(plan: Plan) -> Participation:
    """Return the rule for the rounds in which one client may take part, given the plan's rule for cohorts."""
    if isinstance(plan.cohort, Epoch):
        return Participation(period=min(plan.cohort.rounds, plan.rounds), same=plan.cohort.same)
    return Participation(same=isinstance(plan.cohort, Full | Poisson))
