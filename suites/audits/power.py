"""Power of a planned audit: which broken twins it is designed for, and how broken one must be to be refuted."""

import math
from collections.abc import Sequence

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
from ...audit.power.detectable import minimum_detectable_epsilon
from ...audit.power.trials_needed import (
    LIMIT,
    effect_trials_needed,
    gaussian_points,
    sequential_trials_needed,
    trials_needed,
)
from ...defenses.accounting.gaussian import SampledGaussian
from ...fl.streams import Streams
from ..config.suite import AuditSpec

_POWER = 0.9
_SHARES = (0.95, 0.9, 0.85, 0.8, 0.75, 0.7, 0.65, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1, 0.05)


def designed_tests(claim: Claim, release: GaussianRelease, audit: AuditSpec, *, n: int) -> tuple[ReleaseTest, ...]:
    """The tests that a suite registers: one per share of the noise, one for a canary that was not clipped.

    They know the claim and the numbers of the design, and no score: their stream is nobody else's.
    """
    twins = [*(BrokenRelease(noise=share) for share in audit.noise_shares), BrokenRelease(row=audit.canary_norm)]
    return tuple(
        design_test(
            release,
            twin,
            n=n,
            delta=claim.delta,
            curve=claim.curve,
            epsilon=claim.epsilon,
            rng=Streams(0).generator("design", replicate=number),
        )
        for number, twin in enumerate(twins)
    )


def detectable_epsilon(
    claim: Claim, release: GaussianRelease, tests: Sequence[ReleaseTest], *, n: int, alpha: float
) -> float | None:
    """True epsilon of the least-broken twin that these tests refute with power .9 at ``n`` replicas a world; None if
    none.

    The twins are the claimed mechanism with a share of its noise. The search comes from above, for power need not
    grow as the noise falls: every test has its blind spots, which the others must cover. At delta 0 no Gaussian has a
    finite epsilon: the truth there is the worst mechanism of pure epsilon, which errs with rate 1 / (1 + e^eps).
    """
    if claim.delta == 0:
        fpr = 1 / (1 + math.exp(min(claim.epsilon, 700.0)))
        level = {"alpha": alpha / len(tests), "delta": 0.0, "fpr": fpr}
        return minimum_detectable_epsilon(n0=n, n1=n, curve=claim.curve, epsilon=claim.epsilon, **level)
    for share in _SHARES:
        if refutes(BrokenRelease(noise=share), claim, release, tests, n=n, alpha=alpha) >= _POWER:
            twin = SampledGaussian(sigma=release.sigma * share, rate=release.rate, steps=release.rounds * release.steps)
            return twin.epsilon(claim.delta)
    return None


def refutes(
    truth: BrokenRelease, claim: Claim, release: GaussianRelease, tests: Sequence[ReleaseTest], *, n: int, alpha: float
) -> float:
    """Chance that the tests refute the claim when this is the truth."""
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


def replicas_needed(
    claim: Claim, release: GaussianRelease, *, share: float, alpha: float, limit: int = LIMIT
) -> dict[str, int | None]:
    """Replicas a world with which each estimator refutes the claim with power .9 when the noise is this ``share`` of
    the claimed one; None where it cannot below ``limit``. One test each, at all of ``alpha``; the e-process stops there
    at half of the times.
    """
    twin, curve = BrokenRelease(noise=share), claim.curve
    claimed_mu = (release.rounds * release.steps) ** 0.5 / release.sigma
    gaussian = release.rate == 1
    points = (
        gaussian_points(claimed_mu / share)
        if gaussian
        else simulated_release_points(release, twin, rng=Streams(0).generator("replicas needed"))
    )

    def counted(against: Curve | None) -> int | None:
        plan = trials_needed(
            points, curve=against, epsilon=claim.epsilon, delta=claim.delta, alpha=alpha, power=_POWER, limit=limit
        )
        return None if plan is None else plan.trials

    needed = {"signed curve": counted(curve)} if curve is not None else {}
    needed["epsilon alone"] = counted(None)
    if isinstance(curve, GaussianCurve) and gaussian:
        needed["effect size"] = effect_trials_needed(claimed_mu / share, curve.mu, alpha=alpha, power=_POWER)
    needed["e-process"] = sequential_trials_needed(points, epsilon=claim.epsilon, delta=claim.delta, alpha=alpha)
    return needed
