"""Local randomisers: measured epsilon from a million reports, its optimum, and a broken version with 1.2 epsilon.

    python benchmarks/randomisers.py                      # about a minute and a half on one core
    python benchmarks/randomisers.py --epsilon 4 --trials 100000

``exact`` is the supremum of the log-ratio, ``optimum`` the exact log-ratio of the pre-registered event on the worst
pair (less delta), ``measured`` the Clopper-Pearson bound at alpha .05; ``broken`` the bound of the same randomiser
built for 1.2 epsilon, which must lie above the claim.
"""

import argparse
import math
import sys
import time
from dataclasses import replace
from pathlib import Path

from fedassay.audit.mechanism.mechanism import audit_mechanism
from fedassay.defenses.randomisers.randomiser import Randomiser

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "builders"))

from small_randomisers import small_randomisers


def measured(randomiser: Randomiser, trials: int) -> tuple[float, str]:
    """The bound, and the verdict on the claim of the randomiser as it is."""
    found = audit_mechanism(
        randomiser.sample,
        randomiser.claim(),
        inputs=randomiser.worst_pair(),
        trials=trials,
        batched=True,
        score=lambda reports: randomiser.event(reports, trials=trials),
    )
    assert found.measurement is not None
    return found.measurement.epsilon_low, found.verdict.value


def print_row(name: str, randomiser: Randomiser, trials: int) -> None:
    start = time.process_time()
    event = randomiser.event_masses(trials=trials)
    optimum = math.log((event.member - randomiser.delta) / event.nonmember)
    bound, verdict = measured(randomiser, trials)
    broken, _ = measured(replace(randomiser, epsilon=1.2 * randomiser.epsilon), trials)
    print(
        f"{name:<24}{randomiser.exact_epsilon():7.3f}{optimum:9.3f}{bound:10.3f}{broken:7.3f}  "
        f"{verdict}, {time.process_time() - start:.1f} CPU s"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--trials", type=int, default=10**6)
    arguments = parser.parse_args()
    print(f"{'epsilon ' + str(arguments.epsilon):<24}  exact  optimum  measured broken")
    for name, randomiser in small_randomisers(arguments.epsilon).items():
        print_row(name, randomiser, arguments.trials)


if __name__ == "__main__":
    main()
