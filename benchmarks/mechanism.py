"""Audit of a mechanism: CPU seconds of a million trials, distance of the bounds to an oracle, error rates.

    python benchmarks/mechanism.py             # about half a minute on one core
    python benchmarks/mechanism.py --trials 100000 --repeats 200

Batched trials are compared with one call per trial, and both with a loop that keeps every output and counts at the end,
in one process. The bounds are those of one-step Gaussian releases at delta 1e-5, alpha .05, means over ten audits,
next to the expected bound of an oracle threshold (see ``tightness.py``).
"""

import argparse
import math
import time
import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
from fedassay.audit.claim import Claim
from fedassay.audit.curve import mu_from_epsilon
from fedassay.audit.finding import Verdict
from fedassay.audit.mechanism.mechanism import audit_mechanism
from scipy.stats import binom

DELTA, ALPHA = 1e-5, 0.05
LIMITS = {10**4: (0.38, 0.93, 2.00, 3.76), 10**5: (0.60, 1.29, 2.59, 4.71), 10**6: (0.77, 1.58, 3.10, 5.55)}
"""Expected bounds at epsilon 1, 2, 4, 8, by trials per arm."""


def gaussian(sigma: float) -> Callable[[Any, np.random.Generator], Any]:
    return lambda x, rng: x + sigma * rng.normal(size=x.shape)


def coins(x: Any, rng: np.random.Generator) -> Any:
    """Randomised response at epsilon 1."""
    return np.where(rng.random(x.shape) < math.e / (1 + math.e), x, 1 - x)


def one(x: float, rng: np.random.Generator) -> float:
    return x + rng.normal()


def naive(trials: int) -> tuple[int, int]:
    """One call per trial, all outputs kept, with a given threshold."""
    rng = np.random.default_rng(0)
    kept = [[one(x, rng) for _ in range(trials)] for x in (0.0, 1.0)]
    return sum(output > 2.5 for output in kept[0]), sum(not output > 2.5 for output in kept[1])


def timed(what: str, call: Callable[[], object]) -> None:
    start = time.process_time()
    call()
    print(f"  {what:<34} {time.process_time() - start:6.2f} CPU s")


def print_times(trials: int) -> None:
    print(f"\n{trials} Gaussian trials per arm, d = 1")
    claim = Claim.stated(delta=DELTA, mu=1.0)

    def audited(mechanism: Callable[[Any, np.random.Generator], Any], batched: bool) -> Callable[[], object]:
        return lambda: audit_mechanism(mechanism, claim, inputs=(0.0, 1.0), trials=trials, batched=batched)

    timed("audited, batched", audited(gaussian(1.0), True))
    timed("audited, one call a trial", audited(one, False))
    timed("naive loop, threshold given", lambda: naive(trials))
    for some in (10**5, trials):
        tracemalloc.start()
        audit_mechanism(gaussian(1.0), claim, inputs=(0.0, 1.0), trials=some, batched=True)
        print(f"  peak of {some} trials: {tracemalloc.get_traced_memory()[1] / 1e6:.1f} MB")
        tracemalloc.stop()


def print_bounds(audits: int = 10) -> None:
    print("\nLearnt events: measured / oracle = ratio, at epsilon 1, 2, 4, 8")
    for trials, limits in LIMITS.items():
        cells = []
        for epsilon, limit in zip((1, 2, 4, 8), limits, strict=True):
            mechanism, claim = gaussian(1 / mu_from_epsilon(epsilon, DELTA)), Claim.stated(epsilon, DELTA)
            shown = [
                audit_mechanism(mechanism, claim, inputs=(0.0, 1.0), trials=trials, seed=seed, batched=True)
                for seed in range(audits)
            ]
            got = np.mean([found.measurement.epsilon_low for found in shown if found.measurement])
            cells.append(f"{got:.2f}/{limit:.2f} = {got / limit:.2f}")
        print(f"  N {trials:>7}  " + "   ".join(cells))


def print_errors(repeats: int) -> None:
    limit = int(binom.ppf(0.999, repeats, ALPHA))
    print(f"\nRefutations of {repeats} at alpha {ALPHA}, 500 trials per arm (99.9 % limit {limit})")
    exact, curve = Claim.stated(1.0), Claim.stated(delta=DELTA, mu=1.0)
    cases = {
        "randomised response at its claim": (coins, exact, (0, 1)),
        "Gaussian at its curve": (gaussian(1.0), curve, (0.0, 1.0)),
        "input ignored, claim nearly 0": (gaussian(1.0), Claim.stated(1e-9), (0.0, 0.0)),
        "half the noise (must be refuted)": (gaussian(0.5), curve, (0.0, 1.0)),
    }
    for name, (mechanism, claim, inputs) in cases.items():
        verdicts = [
            audit_mechanism(mechanism, claim, inputs=inputs, trials=500, seed=seed, batched=True).verdict
            for seed in range(repeats)
        ]
        print(f"  {name:<34} {verdicts.count(Verdict.REFUTED)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=10**6)
    parser.add_argument("--repeats", type=int, default=1000)
    arguments = parser.parse_args()
    print_times(arguments.trials)
    print_bounds()
    print_errors(arguments.repeats)


if __name__ == "__main__":
    main()
