"""Conformance checks of canaries and of estimators of epsilon."""

import numpy as np
import torch

from ...audit.calibration import ALPHA, KnownMechanism, calibrate, evidence_of, known_mechanism_for, levels_of
from ...audit.claim import Adjacency, Unit
from ...audit.estimators.catalogue import Estimator
from ...audit.measurement import Kind, Measurement
from ...checks.canaries import COVERED, CanaryInputs, CanaryKind
from ...fl.canary import Canary, DataCanary
from ...fl.engine import run_federation
from ...fl.protection import Protection
from ...fl.streams import Streams
from ...fl.training.local import Batch
from .check import CheckedPart, ConformanceCheck, built, equal, no_global_randomness, require
from .toys import toy_plan, toy_task

_LENGTH = 10.0


def canary_fits(subject: CheckedPart) -> str | None:
    """It gives a canary of each unit and adjacency that an audit covers, or refuses it with a ValueError."""
    made = [name for name in sorted(COVERED) if _canary_canary(subject, *name) is not None]
    require(made, "the part refused every combination of unit and adjacency")
    return ", ".join(f"{unit} {adjacency}" for unit, adjacency in made)


def canary_finite(subject: CheckedPart) -> None:
    """Its vectors are finite, single precision and not zero; its images are in [0, 1]."""
    for unit, adjacency in sorted(COVERED):
        canary = _canary_canary(subject, unit, adjacency)
        if isinstance(canary, Canary):
            require(canary.present.dtype == torch.float32, f"the vector is {canary.present.dtype}, not torch.float32")
            require(bool(canary.present.isfinite().all()), "its vector is not finite")
            require(bool(canary.present.any()), "the vector is zero, so that no audit can see it")
        elif isinstance(canary, DataCanary):
            low, high = float(canary.images.min()), float(canary.images.max())
            require(0 <= low <= high <= 1, f"the images must be in [0, 1], got {low:g} to {high:g}")


def canary_deterministic(subject: CheckedPart) -> None:
    """Equal streams give equal canaries."""
    for unit, adjacency in sorted(COVERED):
        with no_global_randomness():
            first, again = (_canary_canary(subject, unit, adjacency) for _ in range(2))
        require(
            _canary_same(first, again),
            "equal random streams give different canaries: it keeps state, or draws from another generator",
        )


def canary_trains(subject: CheckedPart) -> None:
    """A small federation runs with it and without it, and its models then differ."""
    task = toy_task().with_inert(1)
    plan = toy_plan(task)
    for unit, adjacency in sorted(COVERED):
        canary = _canary_canary(subject, unit, adjacency)
        if canary is None:
            continue
        finals = [
            run_federation(task, plan, Protection(), Streams(1), batch=Batch(replicas=1, arm=arm), canary=canary)
            for arm in (0, 1)
        ]
        require(not equal(*finals), f"the trained model is the same with and without the canary ({unit}, {adjacency})")


def _canary_canary(subject: CheckedPart, unit: Unit, adjacency: Adjacency) -> Canary | DataCanary | None:
    task, kind = toy_task().with_inert(1), subject.make()
    inputs = CanaryInputs(
        unit=unit, adjacency=adjacency, length=_LENGTH, task=task, plan=toy_plan(task), streams=Streams(0)
    )
    assert isinstance(kind, CanaryKind)
    try:
        return kind.build(inputs)
    except ValueError:
        # A refusal of one adjacency is the author's right; `fits` requires that one is accepted.
        if adjacency is Adjacency.ADD_REMOVE:
            raise
        return None


def _canary_same(first: Canary | DataCanary | None, again: Canary | DataCanary | None) -> bool:
    if first is None or again is None:
        return first is again
    return equal({**vars(first)}, {**vars(again)})


CANARY_CHECKS: tuple[ConformanceCheck, ...] = (built, canary_fits, canary_finite, canary_deterministic, canary_trains)


REPEATS = 200
_TRIALS, _LEAK = 4000, 8.0


def estimator_same_again(subject: CheckedPart) -> str | None:
    """Equal evidence gives an equal bound, which is a number >= 0."""
    estimator: Estimator = subject.make()
    with no_global_randomness():
        first, again = (_estimator_measured(estimator, leak=1.0) for _ in range(2))
    require(equal(first.epsilon_low, again.epsilon_low), "two calls on equal evidence give different bounds")
    require(first.epsilon_low >= 0, f"the lower bound on epsilon must be >= 0, got {first.epsilon_low}")
    return first.kind.value


def estimator_known_answers(subject: CheckedPart) -> str | None:
    """It finds a leak, and does not exceed the epsilon of a mechanism that is known."""
    estimator: Estimator = subject.make()
    law = _estimator_law(estimator)
    found, leaking = _estimator_measured(estimator, leak=1.0), _estimator_measured(estimator, leak=_LEAK)
    require(
        found.kind is not Kind.BOUND or found.epsilon_low <= law.epsilon,
        f"the bound {found.epsilon_low:.3g} exceeds the true epsilon {law.epsilon:.3g}",
    )
    # Estimates guarantee nothing, so that nothing is required of their values.
    require(
        found.kind is not Kind.BOUND or leaking.epsilon_low > 0,
        f"{_TRIALS} trials of a mechanism with an eighth of its noise gave a lower bound of 0",
    )
    return (
        f"lower bound {found.epsilon_low:.3g} where the true epsilon is {law.epsilon:.3g}, and "
        f"{leaking.epsilon_low:.3g} with an eighth of the noise"
    )


def estimator_error_rate(subject: CheckedPart) -> str | None:
    """It refutes true claims no more often than alpha, and handles degenerate scores."""
    estimator: Estimator = subject.make()
    rows = list(calibrate(repeats=REPEATS, only=[estimator]))
    failed = [f"{row.situation}: {row.outcome}" for row in rows if row.fails]
    require(not failed, "; ".join(failed))
    counted = [row for row in rows if row.limit is not None]
    return (
        f"tried in {len(counted)} situations by {REPEATS} audits each, at alpha {ALPHA:g}, and in "
        f"{len(rows) - len(counted)} others without a limit"
    )


def _estimator_law(estimator: Estimator) -> KnownMechanism:
    return known_mechanism_for(estimator.evidence, gaussian=True)


def _estimator_measured(estimator: Estimator, *, leak: float) -> Measurement:
    law, rng = _estimator_law(estimator), np.random.default_rng(0)
    member, nonmember = law.draw(1, _TRIALS, rng, leak=leak), law.draw(0, _TRIALS, rng, leak=leak)
    evidence = evidence_of(estimator, member, nonmember, law, rng=rng, trials=estimator.design)
    found: Measurement = estimator.measure(*evidence, **levels_of(estimator, law, alpha=ALPHA))
    return found


ESTIMATOR_CHECKS: tuple[ConformanceCheck, ...] = (
    built,
    estimator_same_again,
    estimator_known_answers,
    estimator_error_rate,
)
