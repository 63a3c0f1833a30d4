"""The pair of neighbouring replies that play-back found as the furthest apart, as a system that replicas judge."""

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from ...audit.claim import Adjacency, Claim, Unit
from ...audit.observer import GLOBAL_MODELS
from ...defenses.accounting.stated_laws import claim_from_noise
from ...fl.laws.law import GaussianLaw
from ...fl.layout import Layout
from ..recording import Plant, Recording, Release
from .play_back import EQUAL, FlowerPlayBack, Replies

_PILOT = 64
"""Plays without the unit, by seeds of their own, whose mean is taken for the release without noise."""
_LAYOUT = Layout(names=("the movement",), shapes=((1,),))


@dataclass(frozen=True, kw_only=True, eq=False)
class FrozenReplies:
    """One round on frozen replies with and without the unit, seen along the movement of the model.

    Example::

        print(audit_replicas(FrozenReplies(back=app.play_back())).line())

    Args:
        back: the plays of the strategy.
        case: which replies arrive, of one round.
        delta: of the claim, in (0, 1).

    Raises:
        ValueError: for several rounds.
    """

    back: FlowerPlayBack
    case: Replies = EQUAL
    delta: float = 1e-5
    replayable: bool = True

    def __post_init__(self) -> None:
        if self.case.rounds != 1:
            raise ValueError(f"rounds of the case must be 1, got {self.case.rounds}")

    @cached_property
    def claim(self) -> Claim:
        """What the stated noise multiplier implies for one round."""
        return claim_from_noise(
            self.back.play.stated.noise_multiplier,
            delta=self.delta,
            unit=Unit.CLIENT,
            adjacency=Adjacency.ZERO_OUT,
            observer=GLOBAL_MODELS,
        )

    @property
    def law(self) -> GaussianLaw:
        """The law of the release that is stated."""
        stated = self.back.play.stated
        deviation = stated.noise_multiplier * stated.clip_norm
        return GaussianLaw(clip_norm=stated.clip_norm, scale=1.0, noise_std=deviation)

    def run(self, member: bool = False, seed: int = 0, *, noise: int = 0, plant: Plant | None = None) -> Recording:
        """Play the round once. ``noise``: all that a seed changes is the noise, so that both are one number.

        Raises ValueError where nothing is released or moves.
        """
        sign = 1.0 if plant is None else float(plant.direction(_LAYOUT)[0])
        stated = self.back.play.stated
        release = Release(
            step=0,
            released=sign * self._seen(member, seed + noise),
            rest=sign * self._centre,
            clip_norm=stated.clip_norm,
            noise_multiplier=stated.noise_multiplier,
        )
        return Recording(layout=_LAYOUT, releases=(release,))

    @cached_property
    def _pair(self) -> tuple[Tensor, Tensor, Tensor]:
        return self.back.worst(self.case)

    @cached_property
    def _centre(self) -> Tensor:
        # Any number would be valid, because scores need no mean; this one is the adversary's best.
        return torch.stack([self._seen(False, 2**32 - 1 - n) for n in range(_PILOT)]).mean(0)

    def _seen(self, member: bool, seed: int) -> Tensor:
        within, out, direction = self._pair
        released = self.back.released(within if member else out, self.case, seed)
        if released is None:
            raise ValueError(f"the strategy releases nothing, with {self.case.words}")
        return (released[-1] @ direction)[None]
