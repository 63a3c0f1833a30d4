"""Define the base class of defenses that have a budget (epsilon, delta) and an L2 clip norm.

State the claim that Gaussian noise on Poisson samples protects one sample, one user or one client.
"""

from abc import ABC
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...audit.claim import Adjacency, Claim, Unit, Value
from ...audit.curve import Curve
from ...audit.observer import GLOBAL_MODELS, UPLOADS
from ...fl.algorithms import BoundedUpdate, FedSGD
from ...fl.plan import Plan
from ...fl.protection import Protection
from ...fl.sampling import FixedSize
from ..accounting.accountant import ACCOUNTANT
from ..accounting.gaussian import SampledGaussian, calibrate_sampled_gaussian, poisson_rate
from ..accounting.spending import sampled_spending
from ..defense import Bound, Defense, Delta, Epsilon, Prepared


@dataclass(frozen=True, kw_only=True)
class ClippedDefense(Defense, ABC):
    """A base class of defenses that have a budget (epsilon, delta) and an L2 clip norm."""

    epsilon: Epsilon = 4.0
    delta: Delta = 1e-5
    clip_norm: Bound = 1.0

    def calibrated(self, plan: Plan, unit: Unit, *, parts: int = 1) -> SampledGaussian:
        """Find the noise on Poisson samples of the unit at which all releases of the plan satisfy the budget; ``parts``
        as in ``SampledGaussian``. Lots and cohorts of fixed size are accounted under replace-one, lots at the largest
        rate of a client.

        Raises:
            ValueError: for a plan that samples otherwise.
        """
        budget: dict[str, Any] = {"epsilon": self.epsilon, "delta": self.delta}
        if unit is Unit.SAMPLE and isinstance(plan.lot, FixedSize):
            rate = max(plan.lot.rate(size) for size in plan.sizes)
            return calibrate_sampled_gaussian(rate=rate, steps=plan.steps, fixed=True, **budget)
        if unit is Unit.CLIENT and isinstance(plan.cohort, FixedSize):
            # Another client who sits a round out knows that the cohort was drawn among all others.
            rate = plan.cohort.rate(max(1, plan.clients - 1))
            return calibrate_sampled_gaussian(rate=rate, steps=plan.rounds, fixed=True, **budget)
        rate, steps = poisson_steps(plan, unit)
        return calibrate_sampled_gaussian(rate=rate, steps=steps, parts=parts, **budget)

    def stated(
        self,
        plan: Plan,
        mechanism: SampledGaussian,
        protection: Protection,
        unit: Unit,
        *,
        source: str,
        words: str = "",
        more: Mapping[str, Value] | None = None,
    ) -> Prepared:
        """Return a protection with the claim that a calibrated ``mechanism`` satisfies the budget, accounted by
        privacy-loss distributions; arguments as for ``sampled_gaussian_claim``.
        """
        claim = sampled_gaussian_claim(
            self,
            mechanism,
            unit=unit,
            rounds=plan.rounds,
            source=f"{source}; composition by privacy-loss distributions",
            words=words,
            more=more,
            curve=mechanism.curve(self.epsilon),
        )
        return Prepared(protection=protection, claims=(claim,), spending=sampled_spending(claim, mechanism))


def poisson_steps(plan: Plan, unit: Unit) -> tuple[float, int]:
    """Return the rate at which a plan draws samples, or clients for any other unit, and the number of draws.

    Raises:
        ValueError: for a plan that samples otherwise than by Poisson or full sampling.
    """
    if unit is Unit.SAMPLE:
        return poisson_rate("lot", plan.lot), plan.steps
    return poisson_rate("cohort", plan.cohort), plan.rounds


_OBSERVERS = {Unit.SAMPLE: UPLOADS, Unit.USER: GLOBAL_MODELS, Unit.CLIENT: GLOBAL_MODELS}
_DRAWN = {
    Unit.SAMPLE: "each sample enters a lot",
    Unit.USER: "each client enters a cohort",
    Unit.CLIENT: "each client enters a cohort",
}
_TRUST = {
    Unit.SAMPLE: "each client trusts only itself",
    Unit.USER: "the server, which sees every update, and clients, which clip and know the owners of their samples",
    Unit.CLIENT: "the server, which sees every update",
}


def sampled_gaussian_claim(
    defense: ClippedDefense,
    mechanism: SampledGaussian,
    *,
    unit: Unit,
    rounds: int,
    source: str,
    words: str = "",
    more: Mapping[str, Value] | None = None,
    accountant: str = ACCOUNTANT,
    curve: Curve | None = None,
) -> Claim:
    """Return a defense's claim that ``mechanism``, Gaussian noise on Poisson samples, satisfies the defense's budget
    under add/remove adjacency, or on subsets of fixed size under replace-one.

    About one sample of a client, the adversary is the server, which observes individual updates. About one client or
    one user, it is another client, who sees every round's model.

    Args:
        words: appended to the name of the mechanism.
        more: parameters in addition to noise, clip norm, rate and steps.
        curve: the tight trade-off curve, where one is stated.
    """
    drawn = "uniformly among all subsets of that size" if mechanism.fixed else "independently"
    return Claim(
        epsilon=defense.epsilon,
        delta=defense.delta,
        unit=unit,
        adjacency=Adjacency.REPLACE_ONE if mechanism.fixed else Adjacency.ADD_REMOVE,
        observer=_OBSERVERS[unit],
        rounds=rounds,
        dp_model="central",
        mechanism=("Gaussian on subsets of fixed size" if mechanism.fixed else "Poisson-subsampled Gaussian") + words,
        parameters={
            "noise_multiplier": mechanism.sigma,
            "clip_norm": defense.clip_norm,
            "rate": mechanism.rate,
            "steps": mechanism.steps,
            **(more or {}),
        },
        accountant=accountant,
        sampling=f"{_DRAWN[unit]} with probability {mechanism.rate:g}, {drawn}; the adversary does not see which",
        trust=_TRUST[unit],
        source=source,
        curve=curve,
    )


def check_fedsgd(plan: Plan) -> None:
    """Raise ValueError unless the plan's algorithm is FedSGD."""
    if not isinstance(plan.algorithm, FedSGD):
        raise ValueError(
            f"algorithm must be fedsgd, in which a client sends one gradient per round, got {plan.algorithm}"
        )


def check_bounded(plan: Plan, clip_norm: float) -> None:
    """Raise ValueError unless the plan's algorithm keeps updates as short as the clip norm."""
    algorithm = plan.algorithm
    if not isinstance(algorithm, BoundedUpdate) or algorithm.radius != clip_norm:
        raise ValueError(
            f"algorithm must be bounded_update with radius {clip_norm:g}, which is the clip norm, got {algorithm}"
        )
