"""Lower bound on epsilon from raw outputs: a classifier is trained on some of them; its errors are counted on the rest.

The event {score above the threshold} is fixed before the second half is counted. The bound therefore assumes nothing
about the mechanism or the classifier; a poor classifier only proves less. The classifier is ridge-penalised logistic
regression on the coordinates and their squares, which can express the exact likelihood ratio of any two Gaussians with
diagonal covariances.
"""

import dataclasses
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit

from ..arrays import FloatArray
from ..curve import Curve
from ..evidence import MembershipScores, Setting, finite_array
from ..measurement import Measurement
from ..threshold import FixedThreshold, SplitThreshold, best_bound_threshold
from .clopper_pearson import clopper_pearson
from .joint_point import check_independent_trials

_LARGEST = 1e300


@dataclass(frozen=True, eq=False)
class MechanismOutputs:
    """A mechanism's outputs in independent trials with and without the canary, one row per trial.

    ``member``: (n1, d) with the canary, ``nonmember``: (n0, d) without it.

    Raises ValueError unless they are finite and at most 1e300 in size, so that they can be averaged.
    """

    member: FloatArray
    nonmember: FloatArray
    setting: Setting

    def __post_init__(self) -> None:
        for side in ("member", "nonmember"):
            array = finite_array(f"the outputs in {side}", getattr(self, side), dimensions=2)
            if np.abs(array).max() > _LARGEST:
                raise ValueError(
                    f"the outputs in {side} must be at most {_LARGEST:g} in absolute value, got {np.abs(array).max():g}"
                )
            object.__setattr__(self, side, array)
        if self.member.shape[1] != self.nonmember.shape[1]:
            raise ValueError(
                "member and nonmember must have the same number of columns, "
                f"got {self.member.shape[1]} and {self.nonmember.shape[1]}"
            )


@dataclass(frozen=True, eq=False)
class Classifier:
    """A membership classifier: a logistic regression on each output's standardised coordinates and their squares.

    ``score`` is its log-odds of membership.
    """

    centre: FloatArray
    spread: FloatArray
    weights: FloatArray
    squares: bool = True

    def score(self, outputs: ArrayLike) -> FloatArray:
        """Return the membership score of each output: an array ``(n, d)`` becomes ``(n,)``, higher means member."""
        return np.asarray(_features(outputs, self.centre, self.spread, self.squares) @ self.weights, dtype=np.float64)


def fit(
    member: FloatArray, nonmember: FloatArray, *, ridge: float = 1.0, steps: int = 30, squares: bool = True
) -> Classifier:
    """Train a logistic regression that guesses membership from outputs, by Newton's method on the penalised likelihood.

    ``squares``: whether the squares of the coordinates are features too. Outputs with and without the canary have equal
    total weight; ``ridge`` > 0 is the penalty in units of trials.
    """
    both = np.concatenate([member, nonmember])
    centre = both.mean(axis=0)
    # The mean absolute deviation, because the squares of large outputs overflow.
    spread = np.abs(both - centre).mean(axis=0)
    spread = np.where(spread > 0, spread, 1.0)
    features = _features(both, centre, spread, squares)
    truth = np.r_[np.ones(len(member)), np.zeros(len(nonmember))]
    # Equal weight for both arms: unequal numbers of trials would shift all log-odds towards the larger arm.
    share = np.where(truth == 1, len(both) / (2 * len(member)), len(both) / (2 * len(nonmember)))
    weights, penalty = np.zeros(features.shape[1]), np.full(features.shape[1], ridge)
    for _ in range(steps):
        odds = expit(features @ weights)
        slope = features.T @ (share * (truth - odds)) - penalty * weights
        curvature = (features.T * (share * odds * (1 - odds))) @ features + np.diag(penalty)
        step = np.linalg.solve(curvature, slope)
        # Limited in length, because a full Newton step overshoots where the two arms are separable.
        weights += step * min(1.0, 5.0 / max(float(np.linalg.norm(step)), 1e-300))
        if float(np.abs(step).max()) < 1e-8:
            break
    return Classifier(centre=centre, spread=spread, weights=weights, squares=squares)


def hockey_stick(
    outputs: MechanismOutputs,
    *,
    delta: float,
    alpha: float,
    seed: int = 0,
    curve: Curve | None = None,
    epsilon: float | None = None,
    witness: str = "",
) -> Measurement:
    """Compute a lower bound on epsilon at ``delta`` from raw outputs of any mechanism.

    ``delta`` lies in [0, 1); the bound holds with probability 1 - ``alpha``.

    A random half of each side trains and sets the threshold, the rest is counted: ``n0``, ``n1``.
    ``curve``, ``epsilon``: the claimed ones, as in ``clopper_pearson``. Raises ValueError for a split that leaves a
    part empty and for trials that are not independent.
    """
    check_independent_trials(outputs.setting, "hockey_stick", delta, alpha)
    learnt, rest = SplitThreshold(0.5, seed).halves(outputs.member, outputs.nonmember)
    classifier = fit(*learnt)
    (learnt_in, learnt_out), (rest_in, rest_out) = (tuple(map(classifier.score, half)) for half in (learnt, rest))
    threshold = best_bound_threshold(learnt_in, learnt_out, delta, alpha)
    counted = MembershipScores(rest_in, rest_out, outputs.setting)
    measured = clopper_pearson(
        counted,
        delta=delta,
        alpha=alpha,
        threshold=FixedThreshold(threshold),
        curve=curve,
        epsilon=epsilon,
        witness=witness,
    )
    policy = f"classifier and threshold were learned on half of the outputs, seed {seed}"
    return dataclasses.replace(measured, estimator="hockey_stick", threshold_policy=policy)


def _features(outputs: ArrayLike, centre: FloatArray, spread: FloatArray, squares: bool) -> FloatArray:
    # Clipped at ten deviations, because one extreme output would otherwise dominate through its square.
    standard = np.clip((np.asarray(outputs, dtype=np.float64) - centre) / spread, -10, 10)
    ones = np.ones((len(standard), 1))
    return np.concatenate([ones, standard, standard**2 - 1] if squares else [ones, standard], axis=1)
