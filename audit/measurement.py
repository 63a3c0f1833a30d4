"""Results of an estimator: a bound or estimate of epsilon, with its assumptions and counts."""

import math
from dataclasses import asdict, dataclass, fields
from enum import StrEnum
from typing import Any

from .binomial import check_delta
from .curve import Tangent
from .evidence import Setting

# A bound under this assumption holds for every mechanism.
INDEPENDENT_TRIALS = "independent trials, and a threshold fixed before they were counted"
# For a mechanism of another shape, even a correct one, a bound under one of these assumptions is wrong.
GAUSSIAN_MECHANISM = "trade-off curve of a mu-GDP mechanism"
GAUSSIAN_SCORES = "Gaussian scores with one unknown variance, equal with and without the canary"
KNOWN_GAUSSIAN = "Gaussian scores with one known variance, equal with and without the canary"
FAIR_COINS = (
    "independent fair coins decided which canaries were included, and the number of guesses was fixed before scoring"
)
GAUSSIAN_ONE_RUN = f"{GAUSSIAN_MECHANISM}; {FAIR_COINS}"
_INDEPENDENT = "independent fair coins decided which canaries were included, and scores are independent given the coins"
GAUSSIAN_CANARIES = f"{_INDEPENDENT}, Gaussian and with one unknown variance"
INDEPENDENT_GAUSSIAN = f"{GAUSSIAN_MECHANISM}; {_INDEPENDENT}; the threshold was fixed on other canaries"
NEEDS_GAUSSIAN_CURVE = frozenset(
    {
        GAUSSIAN_MECHANISM,
        GAUSSIAN_SCORES,
        KNOWN_GAUSSIAN,
        GAUSSIAN_ONE_RUN,
        GAUSSIAN_CANARIES,
        INDEPENDENT_GAUSSIAN,
    }
)

FINITE = ("threshold", "fpr_high", "fnr_high", "epsilon_low", "ceiling", "estimate", "detectable", "effect_z")


class Kind(StrEnum):
    """The kind of guarantee that a measurement gives: a lower bound, or none (estimate).

    Only a BOUND is wrong with probability at most alpha, so only a BOUND can refute.
    """

    BOUND = "bound"
    ESTIMATE = "estimate"


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """The result of one estimator on an attack's evidence: a bound or estimate of epsilon, with the counts behind it.

    ``estimator``: its name; ``assumption``: what its theorem assumes; ``alpha``: the error probability of all
    statements here together, spread over ``comparisons`` thresholds (1 for an estimate). ``n0``, ``n1``: the trials
    counted without and with the canary; in one run both are 0, and ``canaries``, ``made`` and ``right`` count canaries,
    guesses and correct guesses. ``delta``: the delta at which epsilon is stated. ``threshold_policy`` and the
    ``threshold`` it gave, with the errors counted there and their upper bounds ``fpr_high``, ``fnr_high`` (they
    hold jointly at alpha); None where the theorem uses none.

    ``kind``: bound or estimate. ``epsilon_low``: the lower bound on epsilon, >= 0, and 0 for all but a bound.
    ``estimate``: point estimate of epsilon, None where the counts
    give none. ``ceiling``: the largest epsilon that this sample size can certify, 0 for all but a bound, None where no
    such limit exists. ``detectable``: the minimum detectable epsilon (90 % power), None where there is none or there
    was no claim to test. ``witness``: which inputs and which event. ``below_curve``: whether (fpr_high, fnr_high) lies
    under the stated trade-off curve, or the counts under its ``tangent`` where one was tested; None when no curve was
    tested. ``effect_z``: standard score of the effect size
    over the claimed one; it is printed and enters no verdict.

    Raises ValueError where a number is not finite or out of its range.
    """

    estimator: str
    assumption: str
    alpha: float
    n0: int
    n1: int
    delta: float
    threshold_policy: str = "none"
    threshold: float | None = None
    false_positives: int | None = None
    false_negatives: int | None = None
    fpr_high: float | None = None
    fnr_high: float | None = None
    epsilon_low: float
    estimate: float | None
    ceiling: float | None
    detectable: float | None = None
    witness: str
    setting: Setting
    below_curve: bool | None = None
    tangent: Tangent | None = None
    effect_z: float | None = None
    comparisons: int = 1
    kind: Kind = Kind.BOUND
    canaries: int | None = None
    made: int | None = None
    right: int | None = None

    def __post_init__(self) -> None:
        # First of all, because NaN passes a check such as epsilon_low < 0.
        for name in FINITE:
            value = getattr(self, name)
            if value is not None and not math.isfinite(value):
                raise ValueError(f"{name} must be finite, got {value}")
        check_delta(self.delta)
        if self.epsilon_low < 0:
            raise ValueError(f"epsilon_low must be >= 0, got {self.epsilon_low}")
        self._check_kind()
        self._check_trials()
        rates = self.fpr_high is not None and self.fnr_high is not None
        if self.below_curve is not None and self.tangent is None and not rates:
            raise ValueError(
                "below_curve (error rates under the claimed curve) needs fpr_high and fnr_high or a tangent, "
                "got None for one of them"
            )

    def _check_kind(self) -> None:
        if self.kind is Kind.ESTIMATE and self.alpha != 1:
            raise ValueError(f"alpha of an estimate must be 1, because it guarantees nothing, got {self.alpha}")
        if self.kind is not Kind.ESTIMATE and not 0 < self.alpha < 1:
            raise ValueError(f"alpha must lie in (0, 1), got {self.alpha}")
        if self.kind is not Kind.BOUND and (self.epsilon_low or self.ceiling or self.below_curve is not None):
            raise ValueError(
                f"a measurement of kind {self.kind.value} proves nothing, so epsilon_low and ceiling (the largest "
                "certifiable epsilon) must be 0 and below_curve None"
            )

    def _check_trials(self) -> None:
        if self.canaries is None and min(self.n0, self.n1, self.comparisons) < 1:
            raise ValueError(
                "n0 and n1 (trials without and with the canary) and comparisons (thresholds) must be >= 1, "
                f"got {self.n0}, {self.n1}, {self.comparisons}"
            )
        if self.canaries is not None and (self.canaries < 1 or self.n0 or self.n1):
            raise ValueError(
                "a one-run measurement needs at least one canary and no independent trials, "
                f"got {self.canaries} canaries, {self.n0} trials without the canary and {self.n1} with it"
            )

    @property
    def share(self) -> float:
        """The error probability of each comparison behind the measurement: an equal share of alpha."""
        return self.alpha / self.comparisons

    @property
    def trials(self) -> str:
        """The sample size in words, such as ``1000 + 1000 trials`` or ``100 guesses on 1000 canaries of one run``."""
        if self.canaries is None:
            return f"{self.n0} + {self.n1} trials"
        made = "" if self.made is None else f"{self.made} guesses on "
        return f"{made}{self.canaries} canaries of one run"

    def to_dict(self) -> dict[str, Any]:
        """Return the measurement as a dictionary of JSON values; the setting is a nested dictionary."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        tangent = None if self.tangent is None else asdict(self.tangent)
        return values | {"setting": self.setting.to_dict(), "kind": self.kind.value, "tangent": tangent}
