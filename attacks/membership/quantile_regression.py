"""Attack that compares a candidate with similar public points by quantile regression (Bertran et al. 2023).

It needs no shadow model: the target's logits of points that it never trained on show how hard such points are.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from torch import Tensor
from torch.nn.functional import one_hot

from ...audit.arrays import FloatArray
from ...audit.evidence import CandidateScores
from ...audit.observer import FINAL_MODEL, Observer
from ...fl.objective import CLASSIFICATION
from ...fl.recorder import View
from ..attack import Knowledge
from .candidates import MembershipAttack
from .shadow_attack import target_logits

# Mean of ln x^2 for standard normal x: a fit of ln residual^2 is lower than the ln variance by so much.
_MEAN_LOG_SQUARE = -1.2704
_PENALTIES = np.logspace(-2, 5, 15)


@dataclass(frozen=True, kw_only=True)
class QuantileRegression(MembershipAttack):
    """An attack whose score is (logit - mean) / deviation, where a regression predicts mean and deviation from similar
    public points.

    It orders candidates like their quantiles. Mean and log deviation are linear in pixels and label, fitted by ridge
    regression on the public points.
    """

    observer: ClassVar[Observer] = FINAL_MODEL
    tasks: ClassVar[tuple[str, ...]] = (CLASSIFICATION,)

    def run(self, view: View, knowledge: Knowledge, rng: np.random.Generator) -> CandidateScores:
        found, shown, classes = target_logits(view, knowledge), self.shown(knowledge), knowledge.network.classes
        features = features_of(shown.images, shown.labels, classes)
        public = features_of(knowledge.public_images, knowledge.public_labels, classes)
        return self.evidence(conditional_deviations(features, found.candidates, public, found.population), view)


def features_of(images: Tensor, labels: Tensor, classes: int) -> FloatArray:
    """Return the features that the regression uses, ``(n, pixels + classes)``: an image's pixels and its
    one-hot label.
    """
    columns = [images.flatten(1).double().numpy(), one_hot(labels, classes).double().numpy()]
    return np.concatenate(columns, axis=1, dtype=np.float64)


def conditional_deviations(
    features: FloatArray, logits: FloatArray, public: FloatArray, public_logits: FloatArray
) -> FloatArray:
    """Compute by how many standard deviations each candidate's logit exceeds the logit that a regression, fitted to
    public points, predicts for it.

    ``logits``: (n,); ``features``: (n, k).

    Raises:
            ValueError: for fewer than 3 public points.
    """
    if len(public_logits) < 3:
        raise ValueError(f"a regression needs at least 3 public points, got {len(public_logits)}")
    mean, residuals = _ridge(public, public_logits, features)
    # Leave-one-out residuals: points used in the fit scatter less than a candidate does.
    least = 1e-12 + 1e-6 * float(np.mean(residuals**2))
    log_variance, _ = _ridge(public, np.log(residuals**2 + least) - _MEAN_LOG_SQUARE, features)
    return np.asarray((logits - mean) / np.exp(log_variance / 2), dtype=np.float64)


def _ridge(public: FloatArray, values: FloatArray, features: FloatArray) -> tuple[FloatArray, FloatArray]:
    """The regression's values at ``features (n, k)``, and each public point's leave-one-out residual.

    The penalty has the least leave-one-out error; constant columns are ignored.
    """
    centre, scale = public.mean(0), public.std(0)
    scale = np.where(scale > 1e-9, scale, np.inf)
    left, singular, right = np.linalg.svd((public - centre) / scale, full_matrices=False)
    middle = values.mean()
    spectrum = left.T @ (values - middle)

    def fit(penalty: float) -> tuple[float, FloatArray, FloatArray]:
        """Fit the ridge regression of logits on features; return its leave-one-out error, coefficients
        and residuals.
        """
        shrink = singular**2 / (singular**2 + penalty)
        leverage = (left**2 @ shrink) + 1 / len(values)
        residuals = (values - middle - left @ (shrink * spectrum)) / np.maximum(1 - leverage, 1e-9)
        return float(np.mean(residuals**2)), singular / (singular**2 + penalty) * spectrum, residuals

    _, coefficients, residuals = min(map(fit, _PENALTIES), key=lambda found: found[0])
    return middle + ((features - centre) / scale) @ (right.T @ coefficients), residuals
