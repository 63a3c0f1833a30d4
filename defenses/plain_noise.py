"""Plain noise: Gaussian noise on every update, without a clip and without a claim (Zhu et al. 2019, section 5.1)."""

from dataclasses import dataclass

import numpy as np

from ..fl.message import Message
from ..fl.plan import Plan
from ..fl.protection import Context, Protection, State
from ..fl.streams import normal
from .defense import Defense, Prepared, check_positive


@dataclass(frozen=True, kw_only=True)
class PlainNoiseProtection(Protection):
    """report = update + N(0, noise_std^2 I)."""

    noise_std: float

    def report(self, updates: Message, context: Context, state: State, rng: np.random.Generator) -> Message:
        return updates.with_values(updates.values + self.noise_std * normal(rng, tuple(updates.values.shape)))


@dataclass(frozen=True, kw_only=True)
class PlainNoise(Defense):
    """Looks like local DP and is not: an update may be of any length, so no noise hides it. It signs no claim and
    publishes no law.

    Args:
        noise_std: standard deviation of the noise on each number of an update (the paper tries 1e-4 to 1e-1).
    """

    noise_std: float = 0.01

    def __post_init__(self) -> None:
        check_positive("noise_std", self.noise_std)

    def prepare(self, plan: Plan) -> Prepared:
        return Prepared(protection=PlainNoiseProtection(noise_std=self.noise_std), claims=())
