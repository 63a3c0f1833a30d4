"""Judges the power of an audit of supplied evidence, and completes its minimum detectable epsilon."""

from dataclasses import replace

from ..claim import Claim
from ..curve import Curve, ProfileCurve
from ..estimators.catalogue import estimators
from ..finding import WEAK_TEST, Weakness
from ..measurement import Measurement
from ..power.detectable import minimum_detectable_epsilon

COUNTED_EVENTS = ("event_ratio", "guess_odds")
"""The estimators of counted events, which no evidence of a user fits and the catalogue therefore does not list."""
_WITHOUT_POWER = ("sequential",)


def with_power(measured: Measurement, claim: Claim) -> Measurement:
    """Return the measurement with the detectable epsilon of the two inputs in exchanged roles, where it has none.

    ``detectable`` is computed at the false-positive rate of the event. An event that is nearly certain without the
    canary has no power at this rate, while its complement may have.
    """
    counting = measured.fpr_high is not None or measured.estimator in COUNTED_EVENTS
    if measured.detectable is not None or measured.false_negatives is None or not counting:
        return measured
    found = minimum_detectable_epsilon(
        n0=measured.n1,
        n1=measured.n0,
        alpha=measured.alpha / measured.comparisons,
        delta=measured.delta,
        fpr=(measured.false_negatives + 0.5) / (measured.n1 + 1),
        curve=None if measured.below_curve is None else _exchanged(claim.curve),
        epsilon=claim.epsilon,
    )
    return replace(measured, detectable=found)


def weakness_of(measured: Measurement) -> Weakness:
    """Return the weakness by which the measurement is judged.

    Without a detectable epsilon the power is nil, except for estimators that compute none: there it is not known.
    """
    known = measured.estimator in COUNTED_EVENTS or measured.estimator in estimators()
    return WEAK_TEST if known and measured.estimator not in _WITHOUT_POWER else replace(WEAK_TEST, no_power="")


def _exchanged(curve: Curve | None) -> Curve | None:
    if isinstance(curve, ProfileCurve):
        return ProfileCurve(curve.epsilons, delta_remove=curve.delta_add, delta_add=curve.delta_remove)
    return curve
