"""Clip each client's report layer by layer and add noise, in the same way in all rounds."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ...audit.observer import UPLOADS, Observer
from ...fl.laws import LayeredGaussianLaw, layer_starts
from ...fl.layout import Layout
from ...fl.message import Message
from ...fl.plan import Plan
from ...fl.protection import Context, Protection, State, Sums


@dataclass(frozen=True, kw_only=True)
class LayeredProtection(Protection):
    """A protection in which each client sparsifies its update, clips it layer by layer, and adds N(0, noise_std_l^2) to
    every number of layer l.

    Which numbers were dropped depends on the data. It is protected like the rest, because dropped numbers are noised
    too.

    Args:
        dropped: share of each layer's numbers, the smallest in size, that is zeroed before the clip.
    """

    clip_norms: tuple[float, ...]
    noise_stds: tuple[float, ...]
    dropped: float = 0.0
    sums: ClassVar[Sums] = "mean"

    def report(self, updates: Message, context: Context, state: State, rng: np.random.Generator) -> Message:
        # Sampled through the published law, so that both cannot differ.
        law = self._law(context.plan.layout)
        return updates.with_values(law.sample(law.contribution(updates.values), rng))

    def law(self, observer: Observer, plan: Plan, client: int) -> LayeredGaussianLaw | None:
        """Return the distribution of one client's report as the server observes it."""
        return self._law(plan.layout) if observer.rank == UPLOADS.rank else None

    def _law(self, layout: Layout) -> LayeredGaussianLaw:
        return LayeredGaussianLaw(
            starts=layer_starts(layout),
            clip_norms=self.clip_norms,
            noise_stds=self.noise_stds,
            dropped=self.dropped,
        )
