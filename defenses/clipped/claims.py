"""Define the base class of defenses that have a budget (epsilon, delta) and an L2 clip norm.

State the claim that Gaussian noise on Poisson samples protects one sample, one user or one client.
"""

from abc import ABC
from collections.abc import Mapping
from dataclasses import dataclass

from ...audit.claim import Adjacency, Claim, Unit, Value
from ...audit.curve import Curve
from ...audit.observer import GLOBAL_MODELS, UPLOADS
from ..accounting.accountant import ACCOUNTANT
from ..accounting.gaussian import SampledGaussian
from ..defense import Defense, check_bound, check_budget


@dataclass(frozen=True, kw_only=True)
class ClippedDefense(Defense, ABC):
    """A base class of defenses that have a budget (epsilon, delta) and an L2 clip norm."""

    epsilon: float = 4.0
    delta: float = 1e-5
    clip_norm: float = 1.0

    def __post_init__(self) -> None:
        check_budget(self.epsilon, self.delta)
        check_bound("clip_norm", self.clip_norm)


_OBSERVERS = {Unit.SAMPLE: UPLOADS, Unit.USER: GLOBAL_MODELS, Unit.CLIENT: GLOBAL_MODELS}
_DRAWN = {
    Unit.SAMPLE: "each sample enters a lot",
    Unit.USER: "each client enters a cohort",
    Unit.CLIENT: "each client enters a cohort",
}
_TRUST = {
    Unit.SAMPLE: "each client for itself; nobody else",
    Unit.USER: "the server sees every update and is trusted; clients clip, and know the owners of their samples",
    Unit.CLIENT: "the server sees every update and is trusted",
}
BY_PLD = "composition by privacy-loss distributions"
"""The second half of a claim's ``source``."""


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
    under add/remove adjacency.

    About one sample of a client, the adversary is the server, which observes individual updates. About one client or
    one user, it is another client, who sees every round's model.

    Args:
        words: appended to the name of the mechanism.
        more: parameters in addition to noise, clip norm, rate and steps.
        curve: the tight trade-off curve, where one is stated.
    """
    return Claim(
        epsilon=defense.epsilon,
        delta=defense.delta,
        unit=unit,
        adjacency=Adjacency.ADD_REMOVE,
        observer=_OBSERVERS[unit],
        rounds=rounds,
        dp_model="central",
        mechanism="Poisson-subsampled Gaussian" + words,
        parameters={
            "noise_multiplier": mechanism.sigma,
            "clip_norm": defense.clip_norm,
            "rate": mechanism.rate,
            "steps": mechanism.steps,
            **(more or {}),
        },
        accountant=accountant,
        sampling=f"{_DRAWN[unit]} with probability {mechanism.rate:g}, independently, unseen",
        trust=_TRUST[unit],
        source=source,
        curve=curve,
    )
