"""DP-SCAFFOLD runs DP-SGD and computes control variates from the same noised gradients (Noble et al. 2022)."""

from ...fl.algorithms import Scaffold
from ...fl.plan import Plan
from ..clipped.claims import ClippedDefense
from ..defense import Prepared, restated
from .dp_sgd import DPSGD


class DPScaffold(ClippedDefense):
    """A defense for sample-level DP that runs DP-SGD at each client within the federated algorithm SCAFFOLD.

    The claim: one sample of a client, with the adjacency of DP-SGD. The adversary is the server, which observes
    individual updates. Model and control variate are both functions of the round's noised gradients (the control is
    their mean), so the accounting of both is that of ``rounds * local_steps`` sampled Gaussians, once. A full gradient
    for the control (option I of SCAFFOLD) would be one more query. There is no amplification by client sampling,
    because the server sees who takes part.

    No law is published: an upload is linear in the noised gradients around controls that change from round to round.

    Args:
        epsilon, delta: the budget to calibrate to, by the privacy-loss distribution.
        clip_norm: L2 bound of a sample's gradient, before the correction.

    Raises (in prepare):
        ValueError: if the algorithm is not SCAFFOLD, or lots are of another kind than in DP-SGD.
    """

    def prepare(self, plan: Plan) -> Prepared:
        if not isinstance(plan.algorithm, Scaffold):
            raise ValueError(f"algorithm must be scaffold for DP-SCAFFOLD, got {plan.algorithm}")
        prepared = DPSGD(epsilon=self.epsilon, delta=self.delta, clip_norm=self.clip_norm).prepare(plan)
        source = "Noble et al. 2022, Algorithm 1 (DP-SCAFFOLD); composition by privacy-loss distributions"
        # Only the words differ from DP-SGD: both uploads are post-processing of the same noised gradients.
        mechanism = f"{prepared.claims[0].mechanism}; the control variate is post-processing"
        return restated(prepared, source=source, mechanism=mechanism)
