"""FedRE with each sample's gradient clipped layer by layer: the other reading of its equation 7 (Xiao et al. 2025)."""

from dataclasses import dataclass, replace

import numpy as np
from torch import Tensor

from ...audit.claim import Adjacency, Unit
from ...audit.observer import Observer
from ...fl.laws import clip_layers, layer_starts, spread_layers
from ...fl.plan import Plan
from ...fl.protection import Context, Protection, State
from ...fl.streams import normal
from ..accounting.gaussian import poisson_rate
from ..defense import Prepared
from .budget import JointBudget, layer_norms, layer_scores, layered_claims
from .fedre import FedREProtection
from .scored_layers import ScoredLayers


@dataclass(frozen=True, kw_only=True)
class FedREPerSampleProtection(FedREProtection):
    """A protection whose step direction is (sum of the samples' gradients, each clipped layer by layer, + noise per
    layer) / expected batch size; scores, noise and aggregation are those of ``FedREProtection``.
    """

    per_sample: bool = True

    def local_step(
        self, gradients: Tensor, present: Tensor, client: int, context: Context, state: State, rng: np.random.Generator
    ) -> Tensor:
        starts, scores = layer_starts(context.plan.layout), state["scores"]
        total = (clip_layers(gradients, starts, self.clip_norms) * present.unsqueeze(-1)).sum(1)
        stds = self.noise(scores[:, client % scores.shape[1]]).to(total)
        noise = spread_layers(stds, starts, total.shape[-1]) * normal(rng, tuple(total.shape))
        # The expected lot is public; the actual size would reveal who was drawn.
        return (total + noise) / context.plan.expected_lot(client)

    # The noise is in every step already.
    report = Protection.report

    def law(self, observer: Observer, plan: Plan, client: int) -> None:
        """Return None, because no law is published for a sum over samples with noise per layer."""


class FedREPerSample(ScoredLayers):
    """A defense that gives sample-level DP for a client's reports over all rounds; layers get shares of the budget by
    their sensitivity scores.

    The FedRE paper states neither whose gradient equation 7 clips nor which data sets are neighbours (see the errata of
    ``FedRE``). Here it is one sample's gradient ("the maximum contribution of a training sample"), and that sample "is
    included" or not: the sum over n samples moves by at most the clip norm, so that the noise on a client's mean
    gradient is 2 n times smaller than in ``FedRE``. It protects one sample and not a client's whole report. The noise
    enters every local step.

    The claim: one sample of a client, add/remove, all layers jointly, over all local steps of a client that takes part
    in every round, whatever its lots (no amplification by sampling is counted, as in equation 9). The adversary is the
    server, which observes individual updates.

    Args: those of ``FedRE``.

    Raises (in prepare):
        ValueError: if lots have a fixed size, where one sample's absence brings another one in.
    """

    def prepare(self, plan: Plan) -> Prepared:
        poisson_rate("lot", plan.lot)
        norms = layer_norms(self.clip_norms, plan)
        budget = JointBudget(epsilon=self.epsilon, delta=self.delta, rounds=plan.steps, adjacency=Adjacency.ADD_REMOVE)
        joint, *_ = layered_claims(
            budget,
            [1 / len(norms)] * len(norms),
            norms,
            plan,
            source="Xiao et al. 2025, Algorithm 1; Balle and Wang 2018, Theorem 8; Dong et al. 2022, Corollary 3.3",
        )
        claim = replace(
            joint,
            unit=Unit.SAMPLE,
            adjacency=Adjacency.ADD_REMOVE,
            dp_model="central",
            trust="each client trusts only itself",
            parameters={**joint.parameters, "releases": plan.steps},
        )
        protection = FedREPerSampleProtection(
            budget=budget,
            clip_norms=norms,
            even=self.even,
            scorers=self.scorers(),
            aggregation=self.aggregation,
            scores=layer_scores(self.scores, plan) if self.scores else (),
        )
        return Prepared(protection=protection, claims=(claim,))
