"""BLUR+LUS gives local DP with bounded, sparse updates and noise per layer (Cheng et al. 2022; FedRE's baseline)."""

import math
from dataclasses import dataclass

from ...fl.plan import Plan
from ..clipped.claims import ClippedDefense, check_bounded
from ..defense import Prepared, Share
from .budget import JointBudget
from .uniform_layers import even_layers


@dataclass(frozen=True, kw_only=True)
class BlurLus(ClippedDefense):
    """A defense that gives local DP for a client's reports over all rounds; clipping removes less of an update, because
    updates are bounded and sparse.

    Bounded local update regularisation is the algorithm ``bounded_update`` (its ``radius`` is the clip norm of the
    whole update). Local update sparsification zeroes the smallest numbers of each layer. Each layer is then clipped and
    noised by itself, all at the same mu. The claims are those of uniform layers: any two updates (replace-one), jointly
    and for each layer alone; the adversary is the server, which observes individual updates. Dropped numbers are noised
    like the others: if they were sent without noise, their places, which depend on the data, would be released without
    being accounted for. The client-level form with a trusted server is ``regularised_sparsified``; FedRE does not say
    how it makes it local, so this is one way.

    Args:
        epsilon, delta: the joint budget of all layers and rounds, by the analytic Gaussian.
        clip_norm: L2 bound of the whole update; each of L layers is clipped to ``clip_norm / sqrt(L)``.
        dropped: share of each layer's numbers that is set to zero.

    Raises (in prepare):
        ValueError: if the algorithm does not bound updates by the clip norm.
    """

    dropped: Share = 0.5

    def prepare(self, plan: Plan) -> Prepared:
        check_bounded(plan, self.clip_norm)
        layers = len(plan.layout.names)
        return even_layers(
            JointBudget(epsilon=self.epsilon, delta=self.delta, rounds=plan.rounds),
            (self.clip_norm / math.sqrt(layers),) * layers,
            plan,
            source="Cheng et al. 2022 (BLUR and LUS) before Balle and Wang 2018, Theorem 8, on each layer",
            dropped=self.dropped,
        )
