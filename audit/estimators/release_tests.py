"""Tests releases of a claimed Gaussian mechanism for known bugs, with one likelihood-ratio test for each bug.

The likelihood ratio of the claimed law is the best score against the claimed mechanism, and can be blind to a broken
one: at sampling rate .013 over 200 rounds no threshold on it detects halved noise. Every score is valid against the
stated curve, so each test uses the likelihood ratio of the broken version that it is designed for, at a threshold
that is fixed by simulation before any counted score is seen.
"""

import copy
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..arrays import BoolArray, FloatArray
from ..betting import tangents_of
from ..binomial import privacy_loss, upper_bound
from ..curve import Curve
from ..evidence import MembershipScores, Projections, Setting
from ..measurement import Measurement
from ..power import OperatingPoints, forbidden_curve, most_refuting_point, power_at, simulated_points
from ..threshold import FixedThreshold
from .clopper_pearson import clopper_pearson
from .joint_point import best_of
from .likelihood_ratio import subsampled_gaussian
from .sequential import Arms, capital, measured_bets

RUNS = 10_000
"""Simulated runs per arm; a rate of zero errors among them is counted as half an error."""
_BLOCK = 2**23
"""Most projections that are simulated at a time: all of 10,000 runs of 100,000 rounds would take 8 GB."""


@dataclass(frozen=True, kw_only=True)
class GaussianRelease:
    """The parameters of a claimed Gaussian mechanism with Poisson sampling over several rounds.

    ``sigma``: noise standard deviation of one step over the sensitivity; ``rate``: Poisson sampling rate of the canary;
    ``steps`` per round; ``sigmas``, ``rates``: one per round, in place of ``sigma`` and ``rate``, where rounds differ.
    """

    sigma: float
    rate: float = 1.0
    steps: int = 1
    rounds: int = 1
    sigmas: tuple[float, ...] = ()
    rates: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if not (math.isfinite(self.sigma) and self.sigma > 0 and 0 < self.rate <= 1):
            raise ValueError(
                "sigma (noise divided by sensitivity) must be > 0 and the sampling rate in (0, 1], "
                f"got {self.sigma} and {self.rate}"
            )
        if self.steps < 1 or self.rounds < 1:
            raise ValueError(f"steps and rounds must be >= 1, got {self.steps} and {self.rounds}")
        if any(each and len(each) != self.rounds for each in (self.sigmas, self.rates)):
            raise ValueError(
                f"sigmas and rates must have one number for each of the {self.rounds} rounds, "
                f"got {len(self.sigmas)} and {len(self.rates)}"
            )
        if not (all(math.isfinite(one) and one > 0 for one in self.sigmas) and all(0 < one <= 1 for one in self.rates)):
            raise ValueError("sigmas must be > 0 and finite, and rates in (0, 1], in every round")

    @property
    def sigma_of_rounds(self) -> float | FloatArray:
        """The noise ``sigma``: one number for all rounds, or ``(rounds,)``, one per round."""
        return np.array(self.sigmas) if self.sigmas else self.sigma

    @property
    def rate_of_rounds(self) -> float | FloatArray:
        """The sampling ``rate``: one number for all rounds, or ``(rounds,)``, one per round."""
        return np.array(self.rates) if self.rates else self.rate


@dataclass(frozen=True, kw_only=True)
class BrokenRelease:
    """A broken version of the claimed Gaussian mechanism, which adds less noise or lets the canary exceed the
    sensitivity.

    ``noise``: the share of the claimed noise that is added; ``row``: the canary's length in sensitivities.
    """

    noise: float = 1.0
    row: float = 1.0

    @property
    def score_words(self) -> str:
        """The score that is most powerful against this broken version, in words."""
        return (
            f"likelihood ratio for a mechanism with {self.noise:g} times the claimed noise and a canary of "
            f"{self.row:g} times the sensitivity"
        )


@dataclass(frozen=True, kw_only=True)
class ReleaseTest:
    """A test for one broken version of a mechanism: it compares that version's likelihood ratio with a fixed
    ``threshold``.

    A score above the threshold is a guess of "member".
    """

    broken: BrokenRelease
    threshold: float


def release_scores(
    projections: FloatArray, release: GaussianRelease, broken: BrokenRelease, *, seen: BoolArray | None = None
) -> FloatArray:
    """Return one score per run: the log-likelihood ratio (with over without the canary) under a broken version of the
    mechanism.

    ``(n, rounds)`` projections become ``(n,)`` scores.

    ``projections``: <canary, release minus the known rest> / sensitivity^2; ``seen``: (n, rounds), false where the
    observer received nothing from the canary's client.
    """
    # In units of the canary's length, a longer canary under the same noise is a canary of length 1 under less noise.
    sigma = release.sigma_of_rounds * broken.noise / broken.row
    ratios = subsampled_gaussian(
        projections / broken.row, sigma=sigma, rate=release.rate_of_rounds, steps=release.steps
    )
    # A round in which nothing was received does not depend on the canary: its ratio is 0, whatever was filled in.
    return np.asarray((ratios if seen is None else np.where(seen, ratios, 0.0)).sum(axis=1), dtype=np.float64)


def draw_projections(
    release: GaussianRelease,
    broken: BrokenRelease,
    *,
    arm: int,
    n: int,
    rng: np.random.Generator,
    lots_rng: np.random.Generator | None = None,
) -> FloatArray:
    """Simulate ``n`` runs of a broken mechanism; return each round's release projected on the canary, shape ``(n,
    rounds)``.

    ``arm`` is 1 with the canary and 0 without. ``lots_rng`` draws the lots, ``rng`` where it is None.
    """
    # The sum of the noise of all steps of a round, as the observer receives only the sum.
    deviation = math.sqrt(release.steps) * release.sigma_of_rounds * broken.noise
    noise = rng.standard_normal((n, release.rounds)) * deviation
    if arm:
        noise += broken.row * (lots_rng or rng).binomial(release.steps, release.rate_of_rounds, size=noise.shape)
    return noise


def _simulated_scores(
    release: GaussianRelease,
    truth: BrokenRelease,
    designed_for: Sequence[BrokenRelease],
    *,
    arm: int,
    n: int,
    rng: np.random.Generator,
) -> list[FloatArray]:
    """For each score of ``designed_for``, its values ``(n,)`` on the runs of ``draw_projections``."""
    blocks = [
        [release_scores(values, release, broken) for broken in designed_for]
        for values in _blocks(release, truth, arm=arm, n=n, rng=rng)
    ]
    return [np.concatenate(scores) for scores in zip(*blocks, strict=True)]


def _blocks(
    release: GaussianRelease, broken: BrokenRelease, *, arm: int, n: int, rng: np.random.Generator
) -> Iterator[FloatArray]:
    """The rows of ``draw_projections``, a block of runs at a time."""
    size = max(1, _BLOCK // release.rounds)
    counts = [min(size, n - start) for start in range(0, n, size)]
    noise_rng = rng
    if arm and len(counts) > 1:
        # The noise of all runs is drawn before all lots: a copy repeats the noise, while ``rng`` goes on to the lots.
        noise_rng = copy.deepcopy(rng)
        for count in counts:
            rng.standard_normal((count, release.rounds))
    for count in counts:
        yield draw_projections(release, broken, arm=arm, n=count, rng=noise_rng, lots_rng=rng)


def design_test(
    release: GaussianRelease,
    broken: BrokenRelease,
    *,
    n: int,
    delta: float,
    curve: Curve | None,
    epsilon: float,
    rng: np.random.Generator,
) -> ReleaseTest:
    """Simulate a broken version of the mechanism, and choose the score threshold at which runs of this version refute
    the claim best.

    It is chosen for ``n`` runs with and ``n`` without the canary.

    The criterion is the distance of its error rates from the stated curve, in standard deviations of n trials. Where no
    curve is stated, the curve of (``epsilon``, ``delta``) takes its place.
    """
    points = simulated_release_points(release, broken, rng=rng)
    best = most_refuting_point(points, forbidden_curve(curve, epsilon, delta), n)
    return ReleaseTest(broken=broken, threshold=float(points.thresholds[best]))


def simulated_release_points(
    release: GaussianRelease, broken: BrokenRelease, *, rng: np.random.Generator
) -> OperatingPoints:
    """Simulate releases of a broken mechanism; return the error rates of detecting the canary in these releases, one
    pair per threshold.
    """
    (out,), (within,) = (_simulated_scores(release, broken, [broken], arm=arm, n=RUNS, rng=rng) for arm in (0, 1))
    return simulated_points(out, within)


def chance_refuted(
    tests: Sequence[ReleaseTest],
    release: GaussianRelease,
    truth: BrokenRelease,
    *,
    n: int,
    alpha: float,
    delta: float,
    curve: Curve | None,
    epsilon: float,
    rng: np.random.Generator,
) -> float:
    """Return the probability (power) that the best of several tests refutes the claim if the mechanism has the bug
    ``truth``.

    Each test has its share of alpha, with ``n`` runs with and ``n`` without the canary.
    """
    errors = simulated_errors(tests, release, truth, rng=rng)
    stated: dict[str, Any] = {"delta": delta, "curve": curve, "epsilon": epsilon}
    return chance_of_best(errors, n=n, alpha=alpha, **stated)


def chance_of_best(
    errors: Sequence[tuple[float, float]], *, n: int, alpha: float, delta: float, curve: Curve | None, epsilon: float
) -> float:
    """Return a lower bound on the probability that at least one of several tests refutes the claim with ``n`` runs per
    arm: the power of the best single test, given the error rates (FPR, FNR) of each.
    """
    # The share that the audit itself gives to each test: at alpha itself the power would be overstated.
    share = alpha / len(errors)
    return max(
        power_at(fpr, fnr, n0=n, n1=n, alpha=share, delta=delta, curve=curve, epsilon=epsilon) for fpr, fnr in errors
    )


def simulated_errors(
    tests: Sequence[ReleaseTest],
    release: GaussianRelease,
    truth: BrokenRelease,
    *,
    rng: np.random.Generator,
    runs: int = RUNS // 2,
    cautious: float = 0.0,
) -> list[tuple[float, float]]:
    """Return the error rates (FPR, FNR) of each test if the mechanism has the bug ``truth``, from fresh simulated runs.

    ``cautious``: number of standard errors of the simulation by which both rates are raised.
    """
    designed_for = [test.broken for test in tests]
    out, within = (_simulated_scores(release, truth, designed_for, arm=arm, n=runs, rng=rng) for arm in (0, 1))
    return [
        (_rate(without_canary > test.threshold, cautious), _rate(with_canary <= test.threshold, cautious))
        for test, without_canary, with_canary in zip(tests, out, within, strict=True)
    ]


def expected_measurement(
    errors: Sequence[tuple[float, float]],
    *,
    setting: Setting,
    n: int,
    alpha: float,
    delta: float,
    curve: Curve | None,
    epsilon: float,
) -> Measurement:
    """Return what ``audit_release_tests`` is expected to measure in ``n`` runs per arm: each error occurs as often as
    the rates (FPR, FNR) of each test say.
    """

    def measure(rates: tuple[float, float], share: float) -> Measurement:
        fpr, fnr = rates
        out, within = np.arange(n) < round(fpr * n), np.arange(n) >= round(fnr * n)
        return clopper_pearson(
            MembershipScores(within.astype(np.float64), out.astype(np.float64), setting),
            delta=delta,
            alpha=share,
            threshold=FixedThreshold(0.5),
            curve=curve,
            epsilon=epsilon,
        )

    return best_of(errors, alpha, measure)


def counted_errors(
    member: Projections, nonmember: Projections, release: GaussianRelease, tests: Sequence[ReleaseTest]
) -> list[tuple[float, float]]:
    """Return the error rates (FPR, FNR) of each test in the recorded runs."""
    sides = [
        [release_scores(one.values, release, test.broken, seen=one.seen) for test in tests]
        for one in (member, nonmember)
    ]
    return [
        (float(np.mean(out > test.threshold)), float(np.mean(within <= test.threshold)))
        for test, within, out in zip(tests, *sides, strict=True)
    ]


def audit_release_tests(
    member: Projections,
    nonmember: Projections,
    release: GaussianRelease,
    tests: Sequence[ReleaseTest],
    *,
    alpha: float,
    delta: float,
    curve: Curve | None,
    epsilon: float,
    witness: str = "",
) -> Measurement:
    """Test recorded releases for several known bugs, and return the measurement that refutes the claim most clearly.

    Each test gives a Clopper-Pearson bound at alpha over the number of tests.

    It assumes independent runs, and nothing about the mechanism. Raises ValueError if the two sides have different
    settings, or another number of rounds than the release.
    """
    if member.setting != nonmember.setting or member.values.shape[1] != release.rounds:
        raise ValueError(
            f"member and nonmember must both have the release's setting and {release.rounds} rounds, got "
            f"{member.setting} and {nonmember.setting}, with {member.values.shape[1]} rounds"
        )

    def measure(test: ReleaseTest, share: float) -> Measurement:
        within, out = (
            release_scores(side.values, release, test.broken, seen=side.seen) for side in (member, nonmember)
        )
        return clopper_pearson(
            MembershipScores(within, out, member.setting),
            delta=delta,
            alpha=share,
            threshold=FixedThreshold(test.threshold),
            curve=curve,
            epsilon=epsilon,
            witness=f"{witness}; score: {test.broken.score_words}",
        )

    return best_of(tests, alpha, measure)


def audit_by_bets(
    member: Projections,
    nonmember: Projections,
    release: GaussianRelease,
    tests: Sequence[ReleaseTest],
    *,
    expected: Sequence[Arms],
    alpha: float,
    delta: float,
    curve: Curve | None,
    epsilon: float,
    witness: str = "",
    always: bool = False,
) -> Measurement | None:
    """Bet on the scores of several tests, which use no thresholds; return the measurement if the bets refute the
    claim or if ``always`` is set, else None.

    May be called after every pair of runs: the test is anytime-valid at ``alpha`` in all. ``expected``: result of
    ``expected_scores``.
    """
    sides = [
        [release_scores(one.values, release, test.broken, seen=one.seen) for test in tests]
        for one in (member, nonmember)
    ]
    scores = list(zip(*sides, strict=True))
    bets = capital(scores, tangents_of(forbidden_curve(curve, epsilon, delta)), expected=expected)
    # The bound on epsilon needs as much at least.
    if bets.path().max() < -math.log(alpha) and not always:
        return None
    return measured_bets(
        scores,
        member.setting,
        delta=delta,
        alpha=alpha,
        curve=curve,
        epsilon=epsilon,
        witness=f"{witness}; scores: {'; '.join(test.broken.score_words for test in tests)}",
        expected=expected,
    )


def could_refute(
    member: Projections,
    nonmember: Projections,
    release: GaussianRelease,
    tests: Sequence[ReleaseTest],
    *,
    runs: int,
    **stated: Any,
) -> bool:
    """Return whether ``audit_release_tests`` could still refute the claim after ``runs`` runs per arm, if no test made
    another error after these first runs. ``stated`` as in ``errors_refute``.

    Error counts only grow, and every bound falls with more errors.
    """
    found = []
    for test in tests:
        within, out = (release_scores(one.values, release, test.broken, seen=one.seen) for one in (member, nonmember))
        found.append((int(np.count_nonzero(out > test.threshold)), int(np.count_nonzero(within <= test.threshold))))
    return errors_refute(found, runs=runs, **stated)


def errors_refute(
    errors: Sequence[tuple[int, int]], *, runs: int, alpha: float, delta: float, curve: Curve | None, epsilon: float
) -> bool:
    """Return whether tests with so many false positives and false negatives, each in ``runs`` runs, refute a claim."""
    forbidden = forbidden_curve(curve, epsilon, delta)
    for counts in errors:
        fpr_high, fnr_high = (float(upper_bound(k, runs, alpha / len(errors) / 2)) for k in counts)
        if fnr_high < forbidden.fnr(fpr_high) or privacy_loss(fpr_high, fnr_high, delta) > epsilon:
            return True
    return False


def expected_scores(
    release: GaussianRelease, tests: Sequence[ReleaseTest], *, rng: np.random.Generator
) -> tuple[Arms, ...]:
    """Return the expected scores (n,) of each test with and without the canary, from simulated runs of the broken
    version that the test is designed for.
    """

    def arm(test: ReleaseTest, number: int) -> FloatArray:
        return _simulated_scores(release, test.broken, [test.broken], arm=number, n=RUNS // 5, rng=rng)[0]

    return tuple((arm(test, 1), arm(test, 0)) for test in tests)


def _rate(errors: BoolArray, cautious: float) -> float:
    # Half a count at least, because no simulation shows that a rate is 0.
    half = 0.5 / len(errors)
    rate = float(np.clip(np.count_nonzero(errors) / len(errors), half, 1 - half))
    return min(rate + cautious * math.sqrt(rate * (1 - rate) / len(errors)), 1 - half)
