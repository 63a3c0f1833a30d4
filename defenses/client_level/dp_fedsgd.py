"""DP-FedSGD clips clients' gradients and adds Gaussian noise to their sum (McMahan et al. 2018, Algorithm 1)."""

from ...fl.plan import Plan
from ..clipped.claims import ClippedDefense, check_fedsgd
from ..defense import Prepared, restated
from .dp_fedavg import DPFedAvg


class DPFedSGD(ClippedDefense):
    """A defense for client-level DP in which each client sends the gradient of one batch, and a trusted server clips
    these gradients and adds noise to their sum.

    The mechanism is that of DP-FedAvg. The noise is added to gradients, so the server's learning rate scales it. The
    claim: one client, add/remove (cohorts of fixed size: replace-one). The adversary is another client, who sees every
    round's model but not who else takes part. All clients have equal weight (the paper's weights all 1), over the
    expected cohort (its estimator with a fixed denominator).

    Args:
        epsilon, delta: the budget to calibrate to, by the privacy-loss distribution over the rounds.
        clip_norm: L2 bound of a client's gradient.

    Raises (in prepare):
        ValueError: if clients compute more than one gradient per round, or as ``DPFedAvg``.
    """

    def prepare(self, plan: Plan) -> Prepared:
        check_fedsgd(plan)
        # The mechanism does not depend on what a row is: a clipped gradient is released as a clipped update is.
        prepared = DPFedAvg(epsilon=self.epsilon, delta=self.delta, clip_norm=self.clip_norm).prepare(plan)
        source = "McMahan et al. 2018, Algorithm 1 with UserUpdateFedSGD; composition by privacy-loss distributions"
        return restated(prepared, source=source)
