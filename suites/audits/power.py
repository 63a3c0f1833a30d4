"""Compute the smallest violation of a privacy claim that a planned audit refutes with probability 0.9."""

import math
from collections.abc import Sequence
from functools import lru_cache

from ...audit.bisection import fewest
from ...audit.claim import Claim
from ...audit.curve import Curve, GaussianCurve
from ...audit.estimators.release_tests import (
    BrokenRelease,
    GaussianRelease,
    ReleaseTest,
    chance_refuted,
    design_test,
    simulated_release_points,
)
from ...audit.finding import weak_beyond
from ...audit.power import (
    LIMIT,
    effect_trials_needed,
    enough_trials,
    gaussian_points,
    minimum_detectable_epsilon,
    sequential_trials_needed,
    trials_needed,
)
from ...audit.threshold import CHOOSING
from ...defenses.accounting.gaussian import SampledGaussian
from ...fl.streams import Streams
from ..config.tables.suite import AuditSpec

_KEPT = 1024
"""Results that each search keeps."""
_POWER = 0.9
"""Probability of refuting a violation from which it counts as detectable."""
_SHARES = (0.95, 0.9, 0.85, 0.8, 0.75, 0.7, 0.65, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1, 0.05)
"""Shares of the claimed noise that are tried, from the least violation to the largest."""


def designed_tests(claim: Claim, release: GaussianRelease, audit: AuditSpec, *, n: int) -> tuple[ReleaseTest, ...]:
    """Return the tests that are fixed before the run. Each test is designed to detect one violation: noise reduced to
    an assumed fraction, or a canary that is not clipped.

    Thresholds depend on the claim and the numbers of the design only, never on a score of the audit.
    """
    looked_for = (*(BrokenRelease(noise=share) for share in audit.noise_shares), BrokenRelease(row=audit.canary_norm))
    return _designed(claim, release, looked_for, n)


# The searches are cached, because many defenses of a suite often state equal claims, and each takes .2 s.
@lru_cache(maxsize=_KEPT)
def _designed(
    claim: Claim, release: GaussianRelease, looked_for: tuple[BrokenRelease, ...], n: int
) -> tuple[ReleaseTest, ...]:
    return tuple(
        design_test(
            release,
            broken,
            n=n,
            delta=claim.delta,
            curve=claim.curve,
            epsilon=claim.epsilon,
            # A seed of its own: thresholds are equal in every run, whatever seed the suite runs on.
            rng=Streams(0).generator("design", replicate=number),
        )
        for number, broken in enumerate(looked_for)
    )


@lru_cache(maxsize=_KEPT)
def detectable_epsilon(
    claim: Claim, release: GaussianRelease, tests: tuple[ReleaseTest, ...], *, n: int, alpha: float
) -> float | None:
    """Return the true epsilon of the smallest violation that these tests detect with power 0.9, given ``n`` runs with
    the canary and ``n`` without it.

    None where they refute none of those tried.

    Violations are the claimed mechanism with a share of its noise. At delta 0 no Gaussian has a finite epsilon: the
    truth there is the worst mechanism of pure epsilon, which errs with rate 1 / (1 + e^eps).
    """
    if claim.delta == 0:
        # exp overflows above 709.
        fpr = 1 / (1 + math.exp(min(claim.epsilon, 700.0)))
        level = {"alpha": alpha / len(tests), "delta": 0.0, "fpr": fpr}
        return minimum_detectable_epsilon(n0=n, n1=n, curve=claim.curve, epsilon=claim.epsilon, **level)
    # From the most noise down: power need not grow as the noise falls, since each test is blind to some violations.
    for share in _SHARES:
        if refutes(BrokenRelease(noise=share), claim, release, tests, n=n, alpha=alpha) >= _POWER:
            steps = release.rounds * release.steps
            return SampledGaussian(sigma=release.sigma * share, rate=release.rate, steps=steps).epsilon(claim.delta)
    return None


_STEP, _STEPS = 1.1, 120
"""Factor from one number of runs that is tried to the next, and how many are tried: up to 90,000 times the first."""


def strong_replicas(claim: Claim, release: GaussianRelease, audit: AuditSpec, *, made: int, alpha: float) -> int | None:
    """Return the number of runs per arm, more than the ``made`` ones and at most a tenth too large, with which the
    tests that are designed for it are no weak test of the claim; None if it is out of reach.
    """

    def size(step: int) -> int:
        return math.ceil(made * _STEP**step)

    def strong(step: int) -> bool:
        n = size(step)
        tests = designed_tests(claim, release, audit, n=n)
        found = detectable_epsilon(claim, release, tests, n=n, alpha=alpha)
        return found is not None and found <= weak_beyond(claim.epsilon)

    needed = fewest(strong, _STEPS)
    return None if needed is None else size(needed)


def refutes(
    truth: BrokenRelease, claim: Claim, release: GaussianRelease, tests: Sequence[ReleaseTest], *, n: int, alpha: float
) -> float:
    """Return the probability that the tests refute the claim, if ``truth`` is the actual violation."""
    return chance_refuted(
        tests,
        release,
        truth,
        n=n,
        alpha=alpha,
        delta=claim.delta,
        curve=claim.curve,
        epsilon=claim.epsilon,
        rng=Streams(0).generator("power"),
    )


def enough_replicas(claim: Claim, *, alpha: float, limit: int) -> int | None:
    """Return the number of runs per arm (with and without the canary) from which an audit of a claim no longer counts
    as weak; None if this number exceeds ``limit``. A fifth of the runs may be spent on the choice of a threshold.
    """
    needed = enough_trials(
        weak_beyond(claim.epsilon),
        curve=claim.curve,
        epsilon=claim.epsilon,
        delta=claim.delta,
        alpha=alpha,
        limit=max(1, math.floor((1 - CHOOSING) * limit)),
    )
    return None if needed is None else math.ceil(needed / (1 - CHOOSING))


@lru_cache(maxsize=_KEPT)
def replicas_needed(
    claim: Claim, release: GaussianRelease, *, share: float, alpha: float, limit: int = LIMIT
) -> dict[str, int | None]:
    """Return for each estimator how many runs it needs per arm (with and without the canary) to refute the claim with
    power 0.9.

    Args:
        share: of the claimed noise that is there.
        alpha: of each estimator's only test; the e-process stops by that number of replicas half of the time.
        limit: the result is None where more replicas are needed.
    """
    broken, curve = BrokenRelease(noise=share), claim.curve
    claimed_mu = (release.rounds * release.steps) ** 0.5 / release.sigma
    gaussian = release.rate == 1
    # Without sampling the error rates are exact; a sampled release is simulated.
    points = (
        gaussian_points(claimed_mu / share)
        if gaussian
        else simulated_release_points(release, broken, rng=Streams(0).generator("replicas needed"))
    )

    def counted(against: Curve | None) -> int | None:
        plan = trials_needed(
            points, curve=against, epsilon=claim.epsilon, delta=claim.delta, alpha=alpha, power=_POWER, limit=limit
        )
        return None if plan is None else plan.trials

    needed: dict[str, int | None] = {"trade-off curve": counted(curve)} if curve is not None else {}
    needed["epsilon alone"] = counted(None)
    if isinstance(curve, GaussianCurve) and gaussian:
        needed["effect size"] = effect_trials_needed(claimed_mu / share, curve.mu, alpha=alpha, power=_POWER)
    needed["e-process"] = sequential_trials_needed(
        points, curve=curve, epsilon=claim.epsilon, delta=claim.delta, alpha=alpha
    )
    return needed
