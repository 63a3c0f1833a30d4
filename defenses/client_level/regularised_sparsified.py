"""DP-FedAvg clips less of each update if clients keep their updates short and sparse (Cheng et al. 2022)."""

from dataclasses import dataclass, replace

import numpy as np
from torch import Tensor

from ...audit.observer import Observer
from ...fl.laws import GaussianLaw, prune
from ...fl.message import Message
from ...fl.plan import Plan
from ...fl.protection import Context, Protection, State
from ..clipped.claims import ClippedDefense, check_bounded
from ..defense import Prepared, Share
from .dp_fedavg import DPFedAvg


@dataclass(frozen=True, kw_only=True)
class SparsifiedProtection(Protection):
    """A protection in which each client sets the smallest entries of its update to zero before DP-FedAvg clips it and
    adds noise.
    """

    noised: Protection
    dropped: float

    def report(self, updates: Message, context: Context, state: State, rng: np.random.Generator) -> Message:
        # Sparsify before the clip: dropping numbers afterwards would waste part of the clip norm.
        return self.noised.report(updates.with_values(prune(updates.values, self.dropped)), context, state, rng)

    def aggregate(self, received: Message, context: Context, state: State, rng: np.random.Generator) -> Tensor:
        return self.noised.aggregate(received, context, state, rng)

    def law(self, observer: Observer, plan: Plan, client: int) -> GaussianLaw | None:
        """Return the distribution of one round's aggregate. The privacy loss of this distribution is exact for an
        update that is already sparse, and an upper bound for any other.
        """
        law = self.noised.law(observer, plan, client)
        return law if isinstance(law, GaussianLaw) else None


@dataclass(frozen=True, kw_only=True)
class RegularisedSparsified(ClippedDefense):
    """A defense for client-level DP with a trusted server; clients keep their updates short and sparse, so that
    clipping removes less of them.

    Bounded local update regularisation is the algorithm ``bounded_update`` (its ``radius`` is the clip norm). Local
    update sparsification is done here, on each client's update by its own numbers, so one client still moves the sum by
    at most the clip norm. The claim is that of DP-FedAvg: one client, add/remove; the adversary is another client.

    Args:
        epsilon, delta: the budget to calibrate to, by the privacy-loss distribution over the rounds.
        clip_norm: L2 bound of a client's sparse update.
        dropped: share of an update's numbers that is set to zero.

    Raises (in prepare):
        ValueError: if the algorithm does not bound updates by the clip norm, or as ``DPFedAvg``.

    Errata:
        - Not stated: in the survey of Fu et al. 2024, footnote 11 (the paper itself was not at hand), how many clients
          share the noise, if each adds N(0, sigma^2 C^2 / K). K is "the number of clients participating in federated
          learning", of all rounds or of one. Where exactly K clients come each time, the sum has the accounted noise.
          Of a Poisson cohort, which the accountant here assumes, k < K clients may come and bring k / K of the
          variance. Here: the trusted server adds the noise once.
    """

    dropped: Share = 0.5

    def prepare(self, plan: Plan) -> Prepared:
        check_bounded(plan, self.clip_norm)
        prepared = DPFedAvg(epsilon=self.epsilon, delta=self.delta, clip_norm=self.clip_norm).prepare(plan)
        source = "Cheng et al. 2022 (BLUR and LUS) before McMahan et al. 2018, Algorithm 1; privacy-loss distributions"
        return Prepared(
            protection=SparsifiedProtection(noised=prepared.protection, dropped=self.dropped),
            claims=tuple(replace(claim, source=source) for claim in prepared.claims),
        )
