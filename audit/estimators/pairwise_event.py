"""Audit of a local randomiser: counts how often one pre-registered event occurs in its reports on two inputs.

``eps_low = ln((TPR_low - delta) / FPR_high)``, each rate bounded by Clopper-Pearson at alpha / 2. The bound is only as
tight as its event, so the event is the likelihood-ratio-optimal one, fixed from the mechanism's densities before any
report is drawn.
"""

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike

from ..arrays import BoolArray, FloatArray
from ..binomial import ErrorCounts, upper_bound
from ..curve import Curve
from ..evidence import Setting, whole
from ..measurement import Measurement
from .joint_point import JointPointRule

FIXED_EVENT = "independent reports; the event was fixed from the mechanism's density before reports were counted"


@dataclass(frozen=True, kw_only=True)
class EventCounts:
    """The numbers of times that a pre-registered event occurred in a local randomiser's reports on each of two inputs.

    It occurred in ``hits_in`` of ``n1`` reports on one input, and in ``hits_out`` of ``n0`` on the other.

    Counts are all that the bound needs, so that 1e6 reports stream in constant memory. Raises ValueError unless
    0 <= hits <= n and n >= 1.
    """

    hits_in: int
    n1: int
    hits_out: int
    n0: int
    setting: Setting

    def __post_init__(self) -> None:
        for name, hits, n in (("hits_in", self.hits_in, self.n1), ("hits_out", self.hits_out, self.n0)):
            if n < 1 or not 0 <= hits <= n:
                raise ValueError(
                    f"{name}, the number of reports in the event, must lie in 0..n for n >= 1 reports, "
                    f"got {hits} of {n}"
                )
        for name in ("hits_in", "n1", "hits_out", "n0"):
            object.__setattr__(self, name, whole(name, getattr(self, name)))

    @classmethod
    def of_errors(cls, errors: ErrorCounts, setting: Setting) -> "EventCounts":
        """Count the event "the attack guesses member" from the attack's errors at a threshold."""
        hits = {"hits_in": errors.n1 - errors.false_negatives, "hits_out": errors.false_positives}
        return cls(**hits, n1=errors.n1, n0=errors.n0, setting=setting)

    def errors(self, alpha: float) -> ErrorCounts:
        """Return the counts as errors of an attack that guesses the first input whenever the event did not occur."""
        counts = {"false_positives": self.hits_out, "false_negatives": self.n1 - self.hits_in}
        return ErrorCounts(threshold=None, **counts, n0=self.n0, n1=self.n1, alpha=alpha)


def pairwise_event(
    counts: EventCounts,
    *,
    delta: float,
    alpha: float,
    curve: Curve | None = None,
    epsilon: float | None = None,
    witness: str = "",
) -> Measurement:
    """Compute a lower bound on a local randomiser's epsilon at ``delta`` from how often one event occurs on two inputs.

    ``delta`` lies in [0, 1); the bound holds with probability 1 - ``alpha``.

    ``curve``, ``epsilon``: the claimed ones, as in ``clopper_pearson``; ``witness``: the inputs and the event in words.
    Raises ValueError for levels out of range and for reports that are not independent.
    """
    # In one direction only, because the event was registered together with the input that it favours.
    rule = JointPointRule(
        estimator="pairwise_event",
        assumption=FIXED_EVENT,
        implied=lambda fpr, fnr: _loss(1 - fnr, fpr, delta),
        delta=delta,
        alpha=alpha,
        curve=curve,
        epsilon=epsilon,
        witness=witness,
    )
    seen = rule.of_counts([counts.errors(alpha)], setting=counts.setting, threshold_policy="event")
    estimate = _loss(counts.hits_in / counts.n1, counts.hits_out / counts.n0, delta) if counts.hits_out else None
    return replace(seen, estimate=estimate)


def best_event(
    member: ArrayLike, nonmember: ArrayLike, *, trials: int | None = None, delta: float = 0.0, alpha: float = 0.05
) -> BoolArray:
    """Return the set of a randomiser's outputs whose counts prove the largest epsilon: one boolean per output, true if
    it is in the set.

    The output space is finite, with k outputs; the result has shape ``(k,)``.

    ``member``, ``nonmember``: (k,) the distributions of the output on the two inputs. The event is one of the sets
    {ratio >= t} of the likelihood ratio member / nonmember (Neyman and Pearson 1933): the one with the largest expected
    bound from ``trials`` reports per input, or with the largest ln((P - delta) / Q) where ``trials`` is None. Outputs
    of equal ratio are in it together. Raises ValueError unless both are distributions on the same outputs.
    """
    p, q = _distribution("member", member), _distribution("nonmember", nonmember)
    if p.shape != q.shape:
        raise ValueError(
            "member and nonmember must be distributions on the same outputs, with one probability per output, "
            f"got shapes {p.shape} and {q.shape}"
        )
    ratio = np.divide(p, q, out=np.where(p > 0, np.inf, 0.0), where=q > 0)
    # Ratios that are equal up to rounding count as equal, because half of a tied group is a weaker event.
    levels = np.unique([float(f"{value:.9g}") for value in ratio])
    events = ratio >= levels[:, np.newaxis] * (1 - 1e-8)
    shown = [_expected(float(p @ event), float(q @ event), trials, delta, alpha) for event in events]
    return np.asarray(events[int(np.argmax(shown))], dtype=np.bool_)


def _expected(tpr: float, fpr: float, trials: int | None, delta: float, alpha: float) -> float:
    if trials is not None:
        tpr = 1 - float(upper_bound(round((1 - min(tpr, 1.0)) * trials), trials, alpha / 2))
        fpr = float(upper_bound(round(min(fpr, 1.0) * trials), trials, alpha / 2))
    # An event of at most delta proves nothing, however rare it is on the other input.
    if tpr <= delta:
        return -math.inf
    return math.log((tpr - delta) / fpr) if fpr > 0 else math.inf


def _distribution(name: str, values: ArrayLike) -> FloatArray:
    masses = np.asarray(values, dtype=np.float64)
    if masses.ndim != 1 or not np.all(np.isfinite(masses) & (masses >= 0)) or abs(masses.sum() - 1) > 1e-9:
        raise ValueError(f"{name} must be a probability distribution (k values >= 0 that sum to 1), got {values!r}")
    return masses


def _loss(tpr: float, fpr: float, delta: float) -> float:
    if tpr <= delta:
        return 0.0
    return max(0.0, math.log((tpr - delta) / fpr)) if fpr else math.inf
