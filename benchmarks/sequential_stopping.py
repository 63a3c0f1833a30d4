"""Sequential audits: how often they refute, and the share of the runs that they make, against audits of a single look.

    python benchmarks/sequential_stopping.py                        # 4000 simulated audits per line, seconds
    python benchmarks/sequential_stopping.py --medians 200          # runs until half of the noise is refuted, minutes
    python benchmarks/sequential_stopping.py --boundary 2000        # false refutations of true claims, minutes

The claim is that of a Gaussian mechanism at delta 1e-5, with its trade-off curve; the truth has a share of its noise.
The test is the threshold halfway between the arms under the truth, the best one, at the level ``--alpha``.
"""

import argparse
from collections.abc import Callable
from typing import Any

import numpy as np
from fedassay.audit.betting import growth, tangents_of
from fedassay.audit.binomial import upper_bound
from fedassay.audit.curve import Curve, GaussianCurve, ProfileCurve, mu_from_epsilon
from fedassay.audit.estimators.sequential import capital, learned_scores
from fedassay.audit.power import Look, gaussian_points, planned_looks
from numpy.typing import NDArray
from scipy.stats import norm

DELTA = 1e-5
Counts = NDArray[np.int64]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=1000, help="runs per arm, at most")
    parser.add_argument("--alpha", type=float, default=0.01)
    parser.add_argument("--audits", type=int, default=4000)
    parser.add_argument(
        "--medians", type=int, default=0, metavar="AUDITS", help="runs until half of the noise is refuted"
    )
    parser.add_argument("--boundary", type=int, default=0, metavar="AUDITS", help="true claims that are refuted")
    arguments = parser.parse_args()
    if arguments.medians or arguments.boundary:
        print_medians(arguments.medians)
        print_boundary(arguments.boundary)
        return
    runs, alpha = arguments.runs, arguments.alpha
    single = (Look(replicas=runs, alpha=alpha),)
    print(f"{'claimed':>7} {'noise':>6} {'one look':>9} {'nine tenths':>12} {'looks':>7} {'share of the runs':>18}")
    for epsilon in (1.0, 4.0, 8.0):
        mu = mu_from_epsilon(epsilon, DELTA)
        curve = GaussianCurve(mu)
        for noise in (1.0, 0.9, 0.8, 0.75, 0.7, 0.6, 0.5, 0.3, 0.1):
            rng = np.random.default_rng(0)
            fp, fn = (
                np.cumsum(rng.random((arguments.audits, runs)) < norm.sf(mu / noise / 2), axis=1) for _ in range(2)
            )
            alone, _ = carried_out(fp, fn, single, curve)
            fewer, _ = carried_out(fp, fn, (Look(replicas=9 * runs // 10, alpha=alpha),), curve)
            refuted, made = carried_out(fp, fn, planned_looks(runs, alpha), curve)
            print(f"{epsilon:7g} {noise:6g} {alone:9.1%} {fewer:12.1%} {refuted:7.1%} {made / runs:18.1%}")


def carried_out(fp: Counts, fn: Counts, looks: tuple[Look, ...], curve: GaussianCurve) -> tuple[float, float]:
    """Return the share of audits that refute, and the mean number of runs that they make.

    ``fp``, ``fn``: (audits, runs) errors after each run.
    """
    made = np.zeros(len(fp), dtype=int)
    refuted = np.zeros(len(fp), dtype=bool)
    most = [most_false_negatives(look, curve) for look in looks]
    for number, look in enumerate(looks):
        wrong_out, wrong_in = fp[:, look.replicas - 1], fn[:, look.replicas - 1]
        now = (made == 0) & (wrong_in <= most[number][wrong_out])
        refuted |= now
        hopeless = ~np.any([wrong_in <= later[wrong_out] for later in most[number + 1 :]] or [refuted], axis=0)
        made[now | ((made == 0) & hopeless)] = look.replicas
    return float(refuted.mean()), float(np.where(made == 0, looks[-1].replicas, made).mean())


def most_false_negatives(look: Look, curve: GaussianCurve) -> Counts:
    """Return for each number of false positives the most false negatives that still refute at this look; -1: none."""
    high = upper_bound(np.arange(look.replicas + 1), look.replicas, look.alpha / 2)
    return np.asarray(np.searchsorted(high, curve.fnr(high), side="left") - 1)


_PAIRS = {1.0: 2500, 2.0: 800, 4.0: 250, 8.0: 120}
_LEVEL = 0.05


def print_medians(audits: int) -> None:
    """Print the pairs of runs until a mechanism with half of the claimed noise is refuted, at alpha .05."""
    if not audits:
        return
    print("pairs of runs until half of the noise is refuted, median and nine tenths of the audits, alpha .05")
    print(f"{'claimed':>7} {'one threshold, epsilon':>23} {'learnt, curve':>16} {'simulated first':>16} {'at best':>8}")
    for epsilon, pairs in _PAIRS.items():
        mu, rng = mu_from_epsilon(epsilon, DELTA), np.random.default_rng(1)
        tangents, points = tangents_of(GaussianCurve(mu)), gaussian_points(2 * mu)
        expected = rng.normal(2 * mu, 1, 10_000), rng.normal(0, 1, 10_000)
        fixed, learnt, known = [], [], []
        at = best_threshold(epsilon, mu) if epsilon < 4 else None
        for _ in range(audits):
            arms = rng.normal(2 * mu, 1, pairs), rng.normal(0, 1, pairs)
            learnt.append(reached(capital([arms], tangents).path(), _LEVEL))
            known.append(reached(capital([arms], tangents, expected=[expected]).path(), _LEVEL))
            if at is not None:
                hits = rng.random(30_000) < norm.sf(at - 2 * mu), rng.random(30_000) < norm.sf(at)
                fixed.append(reached(at_one_threshold(*hits, epsilon), _LEVEL))
        best = -np.log(_LEVEL) / growth(points.fpr, points.fnr, GaussianCurve(mu))
        print(
            f"{epsilon:7g} {quantiles(fixed):>23} {quantiles(learnt):>16} {quantiles(known):>16} {best:8.0f}",
            flush=True,
        )


def quantiles(found: list[float]) -> str:
    """Return the median and the 90 % quantile in words."""
    if not found:
        return "not simulated"
    return " ".join(f"{float(np.quantile(found, part, method='inverted_cdf')):,.0f}" for part in (0.5, 0.9))


def reached(path: NDArray[np.float64], alpha: float) -> float:
    """Return the pair of runs after which the capital first reaches 1 / alpha; infinite if it never does."""
    at = np.flatnonzero(path >= -np.log(alpha))
    return float(at[0] + 1) if len(at) else np.inf


def best_threshold(epsilon: float, mu: float) -> float:
    """Return the threshold at which a bet against epsilon alone grows fastest, if half of the noise is missing."""
    cuts = np.linspace(1, 5, 81)
    hits, false = norm.sf(cuts - 2 * mu), norm.sf(cuts)
    gain = hits - np.exp(epsilon) * false - DELTA
    return float(cuts[np.argmax(np.maximum(gain, 0) ** 2 / (hits + np.exp(2 * epsilon) * false))])


def at_one_threshold(member: NDArray[np.bool_], nonmember: NDArray[np.bool_], epsilon: float) -> NDArray[np.float64]:
    """Return the log capital of bets on one event against epsilon, with stakes of mean over mean square so far."""
    odds = np.exp(epsilon)
    won = member - odds * nonmember - DELTA
    gains, squares = (
        10 * (1 + odds**2) * 0.2 / odds + np.cumsum(won) - won,
        10 * (1 + odds**2) + np.cumsum(won**2) - won**2,
    )
    return np.asarray(np.cumsum(np.log1p(np.clip(gains / squares, 0, 0.5 / (odds + DELTA)) * won)))


def print_boundary(audits: int, pairs: int = 300) -> None:
    """Print how many true claims are refuted at any of 300 pairs of runs, at alpha .05, for mechanisms at the claim."""
    if not audits:
        return
    mu, yes = mu_from_epsilon(1.0, DELTA), 1 / (1 + np.exp(-1.0))
    pure, curve = ProfileCurve((1.0,), (0.0,), (0.0,)), GaussianCurve(mu)
    loss = np.linspace(-1, 1, 21)
    deltas = tuple(float(1 - np.exp((one - 1) / 2)) for one in loss[10:])
    laplace = ProfileCurve(tuple(loss[10:]), deltas, deltas)
    cases: dict[str, tuple[Curve, Callable[[np.random.Generator], tuple[Any, Any]]]] = {
        "Gaussian, its curve": (curve, lambda rng: (rng.normal(mu, 1, pairs), rng.normal(0, 1, pairs))),
        "Gaussian at 8, its curve": (
            GaussianCurve(mu_from_epsilon(8.0, DELTA)),
            lambda rng: (rng.normal(mu_from_epsilon(8.0, DELTA), 1, pairs), rng.normal(0, 1, pairs)),
        ),
        "randomised response": (pure, lambda rng: (rng.random(pairs) < yes, rng.random(pairs) < 1 - yes)),
        "Laplace, pure epsilon": (pure, lambda rng: (rng.laplace(1, 1, pairs), rng.laplace(0, 1, pairs))),
        "Laplace, its curve": (laplace, lambda rng: (rng.laplace(1, 1, pairs), rng.laplace(0, 1, pairs))),
        "no difference, epsilon 0": (
            ProfileCurve((0.0,), (0.0,), (0.0,)),
            lambda rng: (rng.normal(0, 1, pairs), rng.normal(0, 1, pairs)),
        ),
        "rows of 4, learnt scores": (
            curve,
            lambda rng: (rng.normal(mu / 2, 1, (pairs, 4)), rng.normal(0, 1, (pairs, 4))),
        ),
    }
    print(f"true claims refuted at any of {pairs} pairs of runs, of {audits} audits at alpha .05, with 95 % intervals")
    for name, (claimed, draw) in cases.items():
        rng, wrong = np.random.default_rng(2), 0
        for _ in range(audits):
            arms = [np.asarray(side, dtype=float).reshape(pairs, -1) for side in draw(rng)]
            path = capital(learned_scores(arms[0], arms[1]), tangents_of(claimed)).path()
            wrong += bool(path.max() >= -np.log(_LEVEL))
        low, high = 1 - float(upper_bound(audits - wrong, audits, 0.025)), float(upper_bound(wrong, audits, 0.025))
        print(f"{name:26} {wrong:5} {wrong / audits:7.2%} ({low:.2%} to {high:.2%})", flush=True)


if __name__ == "__main__":
    main()
