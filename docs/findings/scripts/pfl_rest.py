"""Parts of pfl for which no finding is known.

Library: pfl==0.6.0.
"""

import fedassay
import numpy as np
from pfl.common_types import Population
from pfl.context import CentralContext, UserContext
from pfl.internal.ops import numpy_ops
from pfl.internal.ops.selector import set_framework_module
from pfl.privacy.adaptive_clipping import AdaptiveClippingGaussianMechanism
from pfl.privacy.gaussian_mechanism import GaussianMechanism
from pfl.privacy.joint_mechanism import JointMechanism
from pfl.privacy.laplace_mechanism import LaplaceMechanism
from pfl.privacy.privacy_accountant import PLDPrivacyAccountant, RDPPrivacyAccountant
from pfl.stats import MappedVectorStatistics

set_framework_module(numpy_ops)


def audit(name, make, claim, trials=5000):
    def report(value, rng):
        update = MappedVectorStatistics({"a": np.array([value, 0.0])})
        return make.privatize(update, seed=int(rng.integers(1, 2**31)))[0]["a"]

    found = fedassay.audit_mechanism(report, claim, inputs=(-10.0, 10.0), trials=trials)
    bound = int(100 * found.measurement.epsilon_low) / 100
    verdict = found.verdict.value.replace("_", " ")
    print(f"verdict: {name}: {verdict}, epsilon >= {bound} (claim {claim.epsilon:.3g})")


replace = {"unit": "report", "adjacency": "replace_one"}
# Two clipped reports differ by 2C. The documentation states epsilon for C, which is the distance to no report.
audit("GaussianMechanism", GaussianMechanism(1.0, 4.0), fedassay.Claim.stated(mu=2 / 4.0, delta=1e-5, **replace))
audit("LaplaceMechanism", LaplaceMechanism(1.0, 1.0), fedassay.Claim.stated(epsilon=2.0, **replace))

norms = []
rng = np.random.default_rng(0)
for scale in (1e-2, 1, 10, 1e4, 1e20):
    update = {"weight": scale * rng.normal(size=(3, 2)), "bias": scale * rng.normal(size=3)}
    clipped, _ = GaussianMechanism(1.0, 1.0).constrain_sensitivity(MappedVectorStatistics(update))
    norms.append(np.sqrt(sum(np.sum(clipped[key] ** 2) for key in update)))
print("verdict: NormClipping (order 2, finite values):", "norms at most 1" if max(norms) < 1 + 1e-9 else "longer")

adaptive = AdaptiveClippingGaussianMechanism(lambda bound: GaussianMechanism(bound, 1.0), 2.0, 10.0, 0.5)
user = UserContext(num_datapoints=1, seed=1)
long, _ = adaptive.postprocess_one_user(stats=MappedVectorStatistics({"a": np.array([9.0, 9.0])}), user_context=user)
length = float(np.sqrt(np.sum(long["a"] ** 2) + np.sum(long[adaptive._CLIPPING_INDICATOR_NAME] ** 2)))
ratio = adaptive._get_overall_clipping_bound() / length
print(f"verdict: AdaptiveClippingGaussianMechanism: effective noise multiplier {ratio:.3f}")

apart = JointMechanism({"x": (GaussianMechanism(1.0, 1.0), ["a"]), "y": (GaussianMechanism(1.0, 1.0), ["b"])})
np.random.seed(0)
zeros = MappedVectorStatistics({"a": np.zeros(10_000), "b": np.zeros(10_000)})
noised, _ = apart.add_noise(zeros, 1, seed=None)
print(f"verdict: JointMechanism (no seed): correlation of two parts {np.corrcoef(noised['a'], noised['b'])[0, 1]:.2f}")

local = LaplaceMechanism(1.0, 1.0).approximate_as_central_mechanism()
context = CentralContext(
    current_central_iteration=0,
    do_evaluation=False,
    cohort_size=100,
    population=Population.TRAIN,
    algorithm_params=None,
    model_train_params=None,
    seed=1,
)
zeros = MappedVectorStatistics({"a": np.zeros(100_000)})
noised, _ = local.postprocess_server(stats=zeros, central_context=context, aggregate_metrics=None)
variance = noised["a"].var() / (100 * 2.0)
print(f"verdict: GaussianApproximatedPrivacyMechanism: variance {variance:.2f} times that of 100 local reports")

exact = fedassay.Claim.stated(mu=np.sqrt(10) / 5.0, delta=1e-5).epsilon
for kind in (PLDPrivacyAccountant, RDPPrivacyAccountant):
    stated = kind(10, 1.0, "gaussian", noise_parameter=5.0, delta=1e-5).epsilon
    noise = kind(10, 1.0, "gaussian", epsilon=2.0, delta=1e-5).noise_parameter
    true = fedassay.Claim.stated(mu=np.sqrt(10) / noise, delta=1e-5).epsilon
    print(f"verdict: {kind.__name__}: epsilon {stated:.3f} (exact {exact:.3f}); noise for epsilon 2 gives {true:.3f}")
