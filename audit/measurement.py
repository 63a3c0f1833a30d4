"""What an estimator read off the evidence: a bound, with everything that is needed to believe it."""

import math
from dataclasses import dataclass, fields
from typing import Any

from .evidence import Setting

# One that needs no more assumes nothing of the mechanism.
INDEPENDENT_TRIALS = "independent trials, threshold fixed before they were counted"
# Of a mechanism of another shape, even an honest one, such a bound is wrong.
GAUSSIAN_MECHANISM = "trade-off curve of a mu-GDP mechanism"

_FINITE = ("threshold", "epsilon_low", "ceiling", "estimate", "detectable", "effect_z")


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """One reading of one piece of evidence.

    ``estimator`` and the ``assumption`` that its theorem makes; ``alpha``: the chance of error of all that is stated
    here together, spread over ``comparisons`` thresholds; ``n0``, ``n1``: the trials that were counted, without and
    with the canary; ``delta``: at which epsilon is read; ``threshold_policy`` and the ``threshold`` that it gave, with
    the errors counted there and their upper bounds ``fpr_high``, ``fnr_high`` (a joint statement at alpha).

    ``epsilon_low``: lower bound, >= 0; ``estimate``: point estimate of epsilon, None where the counts give none;
    ``ceiling``: the bound that no error at all would have given; ``detectable``: the smallest true epsilon that this
    design refutes with power .9, None where none or nothing was to be refuted; ``witness``: which inputs, which event;
    ``below_curve``: whether (fpr_high, fnr_high) lies under the signed curve, None when no curve was tested;
    ``effect_z``: standard score of the effect size over the claim's, to print beside. ValueError where a number is
    not finite or out of its range.
    """

    estimator: str
    assumption: str
    alpha: float
    n0: int
    n1: int
    delta: float
    threshold_policy: str
    threshold: float
    false_positives: int
    false_negatives: int
    fpr_high: float
    fnr_high: float
    epsilon_low: float
    estimate: float | None
    ceiling: float
    detectable: float | None
    witness: str
    setting: Setting
    below_curve: bool | None
    effect_z: float | None = None
    comparisons: int = 1

    def __post_init__(self) -> None:
        for name in _FINITE:
            value = getattr(self, name)
            if value is not None and not math.isfinite(value):
                raise ValueError(f"{name} must be finite, got {value}")
        if not 0 < self.alpha < 1:
            raise ValueError(f"alpha must lie in (0, 1), got {self.alpha}")
        if not 0 <= self.delta < 1:
            raise ValueError(f"delta must lie in [0, 1), got {self.delta}")
        if self.epsilon_low < 0:
            raise ValueError(f"epsilon_low must be >= 0, got {self.epsilon_low}")
        if min(self.n0, self.n1, self.comparisons) < 1:
            raise ValueError(f"n0, n1, comparisons must be >= 1, got {self.n0}, {self.n1}, {self.comparisons}")

    def to_dict(self) -> dict[str, Any]:
        """JSON-safe, the setting as a nested object."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return values | {"setting": self.setting.to_dict()}
