"""The wrong Cholesky factor has rows of length 1, where the claim needs columns of length 1.

Library: pfl==0.6.0.
"""

import os
import tempfile

import numpy as np
from pfl.internal.ops import pytorch_ops
from pfl.internal.ops.selector import set_framework_module
from pfl.privacy.ftrl_mechanism import BandedMatrixFactorizationMechanism
from pfl.privacy.privacy_accountant import PLDPrivacyAccountant

set_framework_module(pytorch_ops)

os.chdir(tempfile.mkdtemp())  # the mechanism stores its matrix


def mechanism(rounds):  # each user takes part in one round
    def accountant(times):
        return PLDPrivacyAccountant(times, 1.0, "gaussian", epsilon=2.0, delta=1e-5, value_discretization_interval=1e-3)

    return BandedMatrixFactorizationMechanism(1.0, rounds, rounds, accountant)


for rounds in (4, 20, 100):
    made = mechanism(rounds)
    factor = made.query_matrix
    gram = factor @ factor.T  # what the optimisation found, with ones on its diagonal
    correct = np.linalg.cholesky(gram[::-1, ::-1])[
        ::-1, ::-1
    ].T  # lower triangular too, and correct.T @ correct == gram
    lengths = [np.linalg.norm(one, axis=0).max() for one in (factor, correct)]
    print(f"{rounds} rounds: longest column {lengths[0]:.3f}, right {lengths[1]:.3f}")
print(f"verdict: REFUTED, effective noise multiplier {1 / lengths[0]:.3f} of the stated one (100 rounds, one of them)")
