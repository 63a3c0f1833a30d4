"""Compares an accountant's history with the releases that were seen: their number, noise and epsilon."""

import math

from ...audit.check import ACCOUNTED, MULTIPLIER, STEPS, UPDATES, CheckResult
from ...audit.claim import Adjacency
from ...defenses.accounting.accountant import epsilon_of
from ...defenses.accounting.stated_laws import event_of
from ..recording import Recording

_SLACK = 1e-6
_INTERVALS = (1e-3, 2.5e-4, 6.25e-5)
_ROUNDING = 0.02
"""Relative difference between two accountants that is no fault: both round their losses, in either direction."""


def ledger_checks(recording: Recording) -> list[CheckResult]:
    """Check that every release was accounted, with no more noise than the system states, and the printed epsilon."""
    if recording.ledger is None:
        reason = recording.remarks.get("ledger", "there is no accountant")
        return [name.skipped(reason) for name in (STEPS, MULTIPLIER, ACCOUNTED, UPDATES)]
    return [_steps(recording), _multiplier(recording), _epsilon(recording), _updates(recording)]


def _steps(recording: Recording) -> CheckResult:
    accounted = len(recording.accounted_steps)
    witness = "noised sums of the run that the accountant's history covers"
    if recording.earlier:
        witness += f", without the {recording.earlier} steps that it held before"
    return STEPS.at_least(accounted, len(recording.releases), unit="steps", witness=witness)


def _multiplier(recording: Recording) -> CheckResult:
    """Compare the multipliers in the order of the steps; a history that is too short covers the first ones.

    Further steps of the history may be those of an older training, or pay for other numbers, at any place.
    """
    accounted = [noise for noise, _ in recording.accounted_steps]
    pairs = list(zip(recording.releases, accounted, strict=False))
    if not pairs:
        return MULTIPLIER.skipped("no step was accounted")
    if len(accounted) > len(recording.releases) and _fits(accounted, recording):
        return MULTIPLIER.passes(f"{len(accounted)} steps hold the noise of each release")
    release, noise = max(pairs, key=lambda pair: pair[1] - pair[0].noise_multiplier)
    witness = f"accounted in step {release.step}, where the system states {release.noise_multiplier:.6g}"
    slack = _SLACK * release.noise_multiplier
    return MULTIPLIER.at_most(noise, release.noise_multiplier, unit="clip norms", witness=witness, slack=slack)


def _fits(accounted: list[float], recording: Recording) -> bool:
    """Whether the history has steps in the order of the releases with no more noise than these."""
    steps = iter(accounted)
    return all(any(noise <= one.noise_multiplier * (1 + _SLACK) for noise in steps) for one in recording.releases)


def _epsilon(recording: Recording) -> CheckResult:
    """Compare the printed epsilon with that of the history, computed again by privacy-loss distributions."""
    if recording.accounted is None or recording.delta is None or not recording.ledger:
        return ACCOUNTED.skipped("the accountant printed no epsilon")
    event, delta = event_of(recording.ledger), recording.delta
    again, before = math.inf, math.inf
    # Discretised losses are rounded up, so that a coarse grid gives too much, which may explain a difference.
    for interval in _INTERVALS:
        before, again = again, epsilon_of(event, delta=delta, adjacency=Adjacency.ADD_REMOVE, interval=interval)
        if recording.accounted >= again * (1 - _ROUNDING):
            break
    if not math.isfinite(again):
        return ACCOUNTED.skipped("the history computed again gives no finite epsilon")
    witness = f"printed at delta {delta:g}; the history computed again gives {again:.4g}"
    # A step to a finer grid gains less than the one before it, so that the last gain bounds what is left.
    required = (again - min(before - again, again)) * (1 - _ROUNDING)
    return ACCOUNTED.at_least(recording.accounted, required, unit="epsilon", witness=witness)


def _updates(recording: Recording) -> CheckResult:
    if recording.steps is None:
        return UPDATES.skipped("updates of the model were not counted")
    without = recording.steps - len(recording.releases)
    witness = f"of {recording.steps} updates of the model"
    return UPDATES.at_most(max(0, without), 0, unit="updates", witness=witness)
