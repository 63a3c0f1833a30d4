"""Tightness of each estimator: measured bounds over their limits, error rates, stopping times.

    python benchmarks/tightness.py             # all tables, about half a minute on one core
    python benchmarks/tightness.py --repeats 50

One-step Gaussian releases at delta 1e-5, alpha .05, means over 200 repeats. The threshold (or the number of guesses)
is the planner's, fixed beforehand from the law. The limits are the expected bounds of an oracle threshold, computed
once; those of one run are exceeded by better numbers of guesses.
"""

import argparse
import math
import time
from collections.abc import Callable
from functools import lru_cache

import numpy as np
from fedassay.audit.binomial import privacy_loss, upper_bound
from fedassay.audit.claim import Adjacency, Unit
from fedassay.audit.curve import epsilon_from_mu, mu_from_epsilon
from fedassay.audit.estimators import one_run, one_run_fdp, z_test
from fedassay.audit.estimators.gaussian_dp import mu_from_rates
from fedassay.audit.estimators.hockey_stick import MechanismOutputs, hockey_stick
from fedassay.audit.estimators.one_run_claim import planned_guesses
from fedassay.audit.estimators.sequential import anytime_bound
from fedassay.audit.evidence import Design, Setting
from fedassay.audit.observer import UPLOADS
from fedassay.audit.power import OperatingPoints, gaussian_points, trials_needed
from scipy.special import bdtrik
from scipy.stats import binom, norm

DELTA, ALPHA = 1e-5, 0.05
TRIALS = (10**3, 10**4, 10**5, 10**6)
LIMITS = {
    1: ((0.12, 0.38, 0.70), (0.38, 0.80, 0.91), (0.60, 0.94, 0.97), (0.77, 0.98, 0.99)),
    2: ((0.49, 1.31, 1.68), (0.93, 1.78, 1.90), (1.29, 1.93, 1.97), (1.58, 1.98, 1.99)),
    4: ((1.29, 3.20, 3.64), (2.00, 3.75, 3.88), (2.59, 3.92, 3.96), (3.10, 3.98, 3.99)),
    8: ((2.67, 6.98, 7.58), (3.76, 7.68, 7.87), (4.71, 7.90, 7.96), (5.55, 7.97, 7.99)),
}
"""Expected bounds by Clopper-Pearson, Gaussian-DP, z with a known deviation; by epsilon, then by trials per arm."""
ONE_RUN = {
    (1000, 1): (0.22, 0.32),
    (1000, 4): (1.55, 2.32),
    (1000, 8): (2.94, 4.77),
    (10_000, 1): (0.47, 0.60),
    (10_000, 4): (2.15, 2.75),
    (10_000, 8): (3.78, 5.36),
}
"""By canaries and epsilon: expected bounds by Steinke's theorem and by f-DP."""


def rates(mu: float, cut: float, n: int, repeats: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    fp, fn = rng.binomial(n, norm.sf(cut), repeats), rng.binomial(n, norm.cdf(cut - mu), repeats)
    return upper_bound(fp, n, ALPHA / 2), upper_bound(fn, n, ALPHA / 2)


def most_proving_cut(points: OperatingPoints, n: int) -> float:
    """The threshold with the largest expected Clopper-Pearson bound, from nine quantiles of both error counts."""
    quantiles = ((np.arange(9) + 0.5) / 9)[:, np.newaxis]
    fpr_high, fnr_high = (
        upper_bound(np.clip(np.ceil(bdtrik(quantiles, n, rate)), 0, n), n, ALPHA / 2)
        for rate in (points.fpr, points.fnr)
    )
    losses = privacy_loss(fpr_high[:, np.newaxis], fnr_high[np.newaxis], DELTA)
    return float(points.thresholds[np.argmax(np.maximum(losses, 0).mean(axis=(0, 1)))])


def print_repeated_runs(repeats: int) -> None:
    print("\nRepeated runs: measured / limit = ratio, for Clopper-Pearson, Gaussian-DP, z")
    rng = np.random.default_rng(0)
    for epsilon, limits in LIMITS.items():
        mu = mu_from_epsilon(epsilon, DELTA)
        points = gaussian_points(mu)
        for n, limit in zip(TRIALS, limits, strict=True):
            cut = most_proving_cut(points, n)
            cp = np.maximum(0, privacy_loss(*rates(mu, cut, n, repeats, rng), DELTA)).mean()
            pairs = zip(*rates(mu, mu / 2, n, repeats, rng), strict=True)
            gdp = np.mean([epsilon_from_mu(mu_from_rates(*pair), DELTA) for pair in pairs])
            effects = rng.normal(mu, math.sqrt(2 / n), repeats)
            shown = [z_test.mu_from_effect(effect, n, n, alpha=ALPHA, known=True) for effect in effects]
            z = np.mean([epsilon_from_mu(level, DELTA) for level in shown])
            cells = (f"{got:.2f}/{want:.2f} = {got / want:.2f}" for got, want in zip((cp, gdp, z), limit, strict=True))
            print(f"  eps {epsilon}  N {n:>7}  " + "   ".join(cells))


def right_guesses(mu: float, canaries: int, made: int, repeats: int, rng: np.random.Generator) -> np.ndarray:
    coins = rng.random((repeats, canaries)) < 0.5
    order = np.argsort(rng.normal(size=coins.shape) + mu * coins, axis=1)
    held, side = np.take_along_axis(coins, order, axis=1), made // 2
    return held[:, -side:].sum(axis=1) + (~held[:, :side]).sum(axis=1)


def print_one_run(repeats: int) -> None:
    print("\nOne run: measured / limit = ratio, for Steinke (guesses), f-DP (guesses)")
    rng = np.random.default_rng(1)
    for (canaries, epsilon), (limit, limit_fdp) in ONE_RUN.items():
        mu = mu_from_epsilon(epsilon, DELTA)
        r, r_fdp = (
            planned_guesses(canaries, epsilon=epsilon, delta=DELTA, alpha=ALPHA, gaussian=gaussian, noise=1.0)
            for gaussian in (False, True)
        )
        steinke, fdp = lru_cache(one_run.epsilon_from_guesses), lru_cache(one_run_fdp.mu_from_guesses)
        some = [
            steinke(int(v), r, canaries, delta=DELTA, alpha=ALPHA) for v in right_guesses(mu, canaries, r, repeats, rng)
        ]
        more = [
            epsilon_from_mu(fdp(int(v), r_fdp, canaries, alpha=ALPHA), DELTA)
            for v in right_guesses(mu, canaries, r_fdp, repeats, rng)
        ]
        first, second = np.mean(some), np.mean(more)
        print(
            f"  m {canaries:>5}  eps {epsilon}  {first:.2f}/{limit:.2f} = {first / limit:.2f} ({r})   "
            f"{second:.2f}/{limit_fdp:.2f} = {second / limit_fdp:.2f} ({r_fdp})"
        )


def print_fixed_size(mu: float, repeats: int) -> None:
    """What Clopper-Pearson needs where the number of trials is fixed beforehand: planned, then measured."""
    rng = np.random.default_rng(4)
    for power in (0.5, 0.9):
        plan = trials_needed(gaussian_points(mu), curve=None, epsilon=1.0, delta=DELTA, alpha=ALPHA, power=power)
        if plan is None:
            raise RuntimeError("half of the noise must be refutable")
        shown = privacy_loss(*rates(mu, plan.threshold, plan.trials, repeats, rng), DELTA)
        refuted = np.mean(shown > 1)
        print(f"  fixed size {plan.trials}, threshold {plan.threshold:.2f}: refuted {refuted:.0%}, planned {power:.0%}")


def print_stopping(repeats: int) -> None:
    mu = 2 * mu_from_epsilon(1, DELTA)
    print("\nTrials per arm to refute sigma / 2 behind (1, 1e-5)")
    print_fixed_size(mu, repeats)
    print("  of any number, by bets: benchmarks/sequential_stopping.py --medians 200")


def print_errors(repeats: int = 2000) -> None:
    limit = int(binom.ppf(0.999, repeats, ALPHA))
    print(f"\nFalse refutations of {repeats} at alpha {ALPHA} (99.9 % limit {limit}): what the tests repeat 500 times")
    setting = Setting(
        unit=Unit.SAMPLE, adjacency=Adjacency.ADD_REMOVE, observer=UPLOADS, rounds=1, design=Design.INDEPENDENT
    )
    yes, no = 1 / (1 + math.exp(-1)), 1 / (1 + math.e)

    def learnt(rng: np.random.Generator, rate_in: float, rate_out: float, epsilon: float) -> bool:
        sides = [np.c_[rng.random(400) < rate, rng.normal(size=400)] for rate in (rate_in, rate_out)]
        return hockey_stick(MechanismOutputs(*sides, setting), delta=0.0, alpha=ALPHA).epsilon_low > epsilon

    def sequence(rng: np.random.Generator, rate_in: float, rate_out: float, epsilon: float) -> bool:
        hits = (np.asarray(rng.random(300) < rate, dtype=np.float64) for rate in (rate_in, rate_out))
        return anytime_bound([(next(hits), next(hits))], delta=0.0, alpha=ALPHA) > epsilon

    trials: dict[str, Callable[[np.random.Generator, float, float, float], bool]] = {
        "hockey_stick": learnt,
        "sequential": sequence,
    }
    for name, errs in trials.items():
        rng = np.random.default_rng(3)
        null = sum(errs(rng, 0.5, 0.5, 0.0) for _ in range(repeats))
        boundary = sum(errs(rng, yes, no, 1.0) for _ in range(repeats))
        print(f"  {name:<13} null {null}, boundary {boundary}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=200)
    repeats, start = parser.parse_args().repeats, time.process_time()
    print_repeated_runs(repeats)
    print_one_run(repeats)
    print_stopping(repeats)
    print_errors()
    print(f"\n{time.process_time() - start:.0f} CPU s")


if __name__ == "__main__":
    main()
