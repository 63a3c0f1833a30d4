"""DP-FedSGD: clip each client's gradient, add Gaussian noise to the cohort's sum (McMahan et al. 2018, Algorithm 1)."""

from dataclasses import dataclass

from ...fl.algorithms.algorithm import FedSGD
from ...fl.plan import Plan
from ..clipped.defense import ClippedDefense
from ..defense import Prepared, restated
from .dp_fedavg import DPFedAvg


@dataclass(frozen=True, kw_only=True)
class DPFedSGD(ClippedDefense):
    """Client-level DP by a trusted server, each client sending one gradient of one lot: DP-FedAvg's mechanism, whose
    noise here falls on gradients, so that the server's learning rate scales it.

    The claim: one client, add/remove, against the other clients, who see every round's model but not who else takes
    part. Clients weigh alike (the paper's weights all 1), over the expected cohort (its estimator with a fixed
    denominator).

    Args:
        epsilon, delta: the budget to calibrate to, by the privacy-loss distribution over the rounds.
        clip_norm: L2 bound of a client's gradient.

    Raises (in prepare):
        ValueError: if clients do more than one gradient a round, or cohorts are not Poisson samples (or everybody),
            which is what the accountant assumes.
    """

    def prepare(self, plan: Plan) -> Prepared:
        if not isinstance(plan.algorithm, FedSGD):
            raise ValueError(f"algorithm must be fedsgd, one gradient a client and round, got {plan.algorithm}")
        prepared = DPFedAvg(epsilon=self.epsilon, delta=self.delta, clip_norm=self.clip_norm).prepare(plan)
        source = "McMahan et al. 2018, Algorithm 1 with UserUpdateFedSGD; composition by privacy-loss distributions"
        return restated(prepared, source=source)
