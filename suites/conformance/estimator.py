"""Conformance checks of estimators of epsilon."""

import numpy as np

from ...audit.calibration import ALPHA, KnownMechanism, calibrate, evidence_of, known_mechanism_for, levels_of
from ...audit.estimators.catalogue import Estimator
from ...audit.measurement import Kind, Measurement
from .check import Check, Subject, built, equal, no_global_randomness, require

REPEATS = 200
_TRIALS, _LEAK = 4000, 8.0


def same_again(subject: Subject) -> str | None:
    """Equal evidence gives an equal bound, which is a number >= 0."""
    estimator: Estimator = subject.make()
    with no_global_randomness():
        first, again = (_measured(estimator, leak=1.0) for _ in range(2))
    require(equal(first.epsilon_low, again.epsilon_low), "equal evidence gives another bound")
    require(first.epsilon_low >= 0, f"the bound is {first.epsilon_low}")
    return first.kind.value


def known_answers(subject: Subject) -> str | None:
    """It finds a leak, and does not exceed the epsilon of a mechanism that is known."""
    estimator: Estimator = subject.make()
    law = _law(estimator)
    found, leaking = _measured(estimator, leak=1.0), _measured(estimator, leak=_LEAK)
    require(
        found.kind is not Kind.BOUND or found.epsilon_low <= law.epsilon,
        f"the bound {found.epsilon_low:.3g} exceeds the true epsilon {law.epsilon:.3g}",
    )
    # Credible intervals and estimates guarantee nothing, so that nothing is required of their values.
    require(
        found.kind is not Kind.BOUND or leaking.epsilon_low > 0,
        f"{_TRIALS} trials with an eighth of the noise gave a bound of 0",
    )
    return f"{found.epsilon_low:.3g} where epsilon is {law.epsilon:.3g}, {leaking.epsilon_low:.3g} with less noise"


def error_rate(subject: Subject) -> str | None:
    """It refutes true claims no more often than alpha, and handles degenerate scores."""
    estimator: Estimator = subject.make()
    rows = list(calibrate(repeats=REPEATS, only=[estimator]))
    failed = [f"{row.situation}: {row.outcome}" for row in rows if row.fails]
    require(not failed, "; ".join(failed))
    counted = [row for row in rows if row.limit is not None]
    return f"{len(counted)} situations of {REPEATS} audits each, alpha {ALPHA:g}, {len(rows) - len(counted)} others"


def _law(estimator: Estimator) -> KnownMechanism:
    return known_mechanism_for(estimator.evidence, gaussian=True)


def _measured(estimator: Estimator, *, leak: float) -> Measurement:
    law, rng = _law(estimator), np.random.default_rng(0)
    member, nonmember = law.draw(1, _TRIALS, rng, leak=leak), law.draw(0, _TRIALS, rng, leak=leak)
    evidence = evidence_of(estimator, member, nonmember, law, rng=rng, trials=estimator.design)
    found: Measurement = estimator.measure(*evidence, **levels_of(estimator, law, alpha=ALPHA))
    return found


CHECKS: tuple[Check, ...] = (built, same_again, known_answers, error_rate)
