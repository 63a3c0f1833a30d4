"""Sequential audits: how often they refute, and the share of the runs that they make, against audits of a single look.

    python benchmarks/sequential_stopping.py    # 4000 simulated audits per line, seconds

The claim is that of a Gaussian mechanism at delta 1e-5, with its trade-off curve; the truth has a share of its noise.
The test is the threshold halfway between the arms under the truth, the best one, at the level ``--alpha``.
"""

import argparse

import numpy as np
from fedassay.audit.binomial import upper_bound
from fedassay.audit.curve import GaussianCurve, mu_from_epsilon
from fedassay.audit.power import Look, planned_looks
from numpy.typing import NDArray
from scipy.stats import norm

DELTA = 1e-5
Counts = NDArray[np.int64]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=1000, help="runs per arm, at most")
    parser.add_argument("--alpha", type=float, default=0.01)
    parser.add_argument("--audits", type=int, default=4000)
    arguments = parser.parse_args()
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


if __name__ == "__main__":
    main()
