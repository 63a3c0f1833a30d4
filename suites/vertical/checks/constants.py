"""Which numbers of a hook's outputs are no noise: they are the same in many draws, under either of two inputs.

If a number is ``c`` under one input with probability ``1 - p``, and another one under the other input with probability
``1 - q``, then an (epsilon, delta)-DP release has ``p + exp(epsilon) q >= 1 - delta``, so that ``p`` or ``q`` is at
least ``(1 - delta) / (1 + exp(epsilon))``. As many draws as ``SURE`` times the inverse of this never differ with
probability ``exp(-SURE)`` at most.
"""

import math
from dataclasses import dataclass, field

import torch
from torch import Tensor

from ....audit.claim import Claim
from ....fl.streams import Streams
from ....fl.vertical.protection import VerticalProtection
from .tape import Call, again

SURE = 20
"""Minus the logarithm of the probability that a private number is taken for a constant."""
_FEW = 4
"""Calls of a hook with other generators, because it may draw one noise for all replicas."""
_UNDRAWN = 1000
"""Draws at most of a hook that takes nothing from its generator, so that its outputs follow from its inputs unless it
has numbers from elsewhere.
"""
_MOST = 10_000_000
"""Numbers that are drawn at most; of a hook that returns more, all numbers count as noise."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Constants:
    """The constants of a protection's hooks.

    Args:
        claim: which is false where a constant that the adversary receives depends on the unit.
        protection: as it is before the training.
        seen: the hook whose outputs the adversary receives themselves; None: no hook. In outputs of other hooks one
            number's noise may hide another number, so they have constants only where all their numbers are constant.
        left: which hooks' outputs were not looked at, and why, in words.
    """

    claim: Claim
    protection: VerticalProtection
    seen: str | None
    left: set[str] = field(default_factory=set)

    def __call__(self, one: Call, other: Call) -> tuple[Tensor, Tensor] | None:
        """Return which numbers of ``other`` are constants, and all numbers of one draw of it; None: no number is."""
        first = self._of(one)
        if first is None:
            return None
        second = self._of(other)
        if second is None:
            return None
        # Where a hook's output depends on earlier calls, one call alone does not show what it returns.
        known = first[0] & second[0] & (first[1] == one.output)
        return (known, second[1]) if one.hook == self.seen or bool(known.all()) else None

    def _of(self, call: Call) -> tuple[Tensor, Tensor] | None:
        """Which numbers do not differ by draw, and the first draw."""
        rng = Streams(0).generator("constants")
        before = str(rng.bit_generator.state)
        try:
            # A hook of the user's own may not run on its own.
            few = torch.cat([again(self.protection, call, rng) for _ in range(_FEW)])
            same = (few == few[:1]).all(0, keepdim=True)
            if not bool(same.any()):
                return same, few[:1]
            count = math.ceil(SURE * (1 + math.exp(min(self.claim.epsilon, 100.0))) / (1 - self.claim.delta))
            if str(rng.bit_generator.state) == before:
                count = min(count, _UNDRAWN)
            if count * call.values.numel() > _MOST:
                words = f"{count} draws of its numbers are too many"
                self.left.add(f"constants were not looked for in {call.hook}: {words}")
                return None
            drawn = again(self.protection, call, rng, replicas=count)
        except Exception:
            return None
        return same & (drawn == few[:1]).all(0, keepdim=True), few[:1]
