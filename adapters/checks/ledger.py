"""Compares an accountant's history with the releases that were seen: their number, noise and epsilon."""

from ...audit.check_result import CheckResult
from ...audit.claim import Adjacency
from ...defenses.accounting.accountant import epsilon_of
from ...defenses.accounting.stated_laws import event_of
from ..recording import Recording

STEPS, MULTIPLIER, EPSILON, UPDATES = (
    "steps accounted",
    "noise multiplier accounted",
    "epsilon accounted",
    "updates without a release",
)
_SLACK = 1e-6
_ROUNDING = 0.02
"""Relative difference between two accountants that is no fault: both round their losses, in either direction."""


def ledger_checks(recording: Recording) -> list[CheckResult]:
    """Check that every release was accounted, with no more noise than the system states, and the printed epsilon."""
    if recording.ledger is None:
        reason = recording.remarks.get("ledger", "there is no accountant")
        return [CheckResult(name=name, passed=None, witness=reason) for name in (STEPS, MULTIPLIER, EPSILON, UPDATES)]
    return [_steps(recording), _multiplier(recording), _epsilon(recording), _updates(recording)]


def _steps(recording: Recording) -> CheckResult:
    accounted = sum(steps for _, _, steps in recording.ledger or ())
    witness = "noised sums of the run that the accountant's history covers"
    return CheckResult.at_least(STEPS, accounted, len(recording.releases), unit="steps", witness=witness)


def _multiplier(recording: Recording) -> CheckResult:
    """Compare the multipliers in the order of the steps; a history that is too short covers the first ones."""
    accounted = [noise for noise, _, steps in recording.ledger or () for _ in range(steps)]
    pairs = list(zip(recording.releases, accounted, strict=False))
    if not pairs:
        return CheckResult(name=MULTIPLIER, passed=None, witness="no step was accounted")
    release, noise = max(pairs, key=lambda pair: pair[1] - pair[0].noise_multiplier)
    witness = f"accounted in step {release.step}, where the system states {release.noise_multiplier:.6g}"
    slack = _SLACK * release.noise_multiplier
    return CheckResult.at_most(
        MULTIPLIER, noise, release.noise_multiplier, unit="clip norms", witness=witness, slack=slack
    )


def _epsilon(recording: Recording) -> CheckResult:
    """Compare the printed epsilon with that of the history, computed again by privacy-loss distributions."""
    if recording.accounted is None or recording.delta is None or not recording.ledger:
        return CheckResult(name=EPSILON, passed=None, witness="the accountant printed no epsilon")
    event = event_of(recording.ledger)
    again = epsilon_of(event, delta=recording.delta, adjacency=Adjacency.ADD_REMOVE, interval=1e-3)
    witness = f"printed at delta {recording.delta:g}; the history computed again gives {again:.4g}"
    required = again * (1 - _ROUNDING)
    return CheckResult.at_least(EPSILON, recording.accounted, required, unit="epsilon", witness=witness)


def _updates(recording: Recording) -> CheckResult:
    if recording.steps is None:
        return CheckResult(name=UPDATES, passed=None, witness="updates of the model were not counted")
    without = recording.steps - len(recording.releases)
    witness = f"of {recording.steps} updates of the model"
    return CheckResult.at_most(UPDATES, max(0, without), 0, unit="updates", witness=witness)
