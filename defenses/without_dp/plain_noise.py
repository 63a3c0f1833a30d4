"""Each client adds Gaussian noise to its update, without clipping or a claim (Zhu et al. 2019, section 5.1)."""

from dataclasses import dataclass

import numpy as np

from ...audit.observer import UPLOADS, Observer
from ...fl.fields import Positive
from ...fl.laws import GaussianLaw, clip
from ...fl.message import Message
from ...fl.plan import Plan
from ...fl.protection import Context, Protection, State
from ...fl.streams import normal
from ..defense import Defense, Prepared, check_bound

# Longer than any update of a training run.
_NO_CLIP = 1e12


@dataclass(frozen=True, kw_only=True)
class PlainNoiseProtection(Protection):
    """A protection in which a client sends its update + N(0, noise_std^2 I); the update is clipped only if a clip norm
    is given.
    """

    noise_std: float
    clip_norm: float | None = None
    sums = "mean"

    def report(self, updates: Message, context: Context, state: State, rng: np.random.Generator) -> Message:
        sent = updates.values if self.clip_norm is None else clip(updates.values, self.clip_norm)
        return updates.with_values(sent + self.noise_std * normal(rng, tuple(updates.values.shape)))

    def law(self, observer: Observer, plan: Plan, client: int) -> GaussianLaw | None:
        """Return the distribution of one client's report as the server observes it."""
        if observer.rank < UPLOADS.rank:
            return None
        return GaussianLaw(clip_norm=self.clip_norm or _NO_CLIP, scale=1.0, noise_std=self.noise_std)


@dataclass(frozen=True, kw_only=True)
class PlainNoise(Defense):
    """A defense that adds noise but gives no local DP, because the norm of an update is unbounded. The defense states
    no privacy claim.

    With a clip norm it would be local DP; without a claim it also covers noise so small that its epsilon would be
    meaningless.

    Args:
        noise_std: standard deviation of the noise on each number of an update (the paper tries 1e-4 to 1e-1).
        clip_norm: L2 bound of an update; by default there is none.
    """

    noise_std: Positive = 0.01
    clip_norm: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.clip_norm is not None:
            check_bound("clip_norm", self.clip_norm)

    def prepare(self, plan: Plan) -> Prepared:
        protection = PlainNoiseProtection(noise_std=self.noise_std, clip_norm=self.clip_norm)
        return Prepared(protection=protection, claims=())
