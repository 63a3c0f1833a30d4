"""Completes the minimum detectable epsilon of an audit whose event is rather the absence of the canary."""

from dataclasses import replace

from ..claim import Claim
from ..curve import Curve, ProfileCurve
from ..measurement import Measurement
from ..power.detectable import minimum_detectable_epsilon


def with_power(measured: Measurement, claim: Claim) -> Measurement:
    """Return the measurement with the detectable epsilon of the two inputs in exchanged roles, where it has none.

    ``detectable`` is computed at the false-positive rate of the event. An event that is nearly certain without the
    canary has no power at this rate, while its complement may have.
    """
    if measured.detectable is not None or measured.false_negatives is None or not measured.n0:
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


def _exchanged(curve: Curve | None) -> Curve | None:
    if isinstance(curve, ProfileCurve):
        return ProfileCurve(curve.epsilons, delta_remove=curve.delta_add, delta_add=curve.delta_remove)
    return curve
