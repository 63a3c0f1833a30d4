"""Ways of breaking an Opacus training: the check that finds each, by which layer, and CPU seconds of both layers.

    python benchmarks/opacus_faults.py              # a table, less than half a minute of CPU
    python benchmarks/opacus_faults.py --honest 40  # and 40 watched runs of each correct training
    python benchmarks/opacus_faults.py --replicas   # and verdicts by replicas, of half of the noise too

The trainings are those of the tests (``tests/builders/opacus_runs.py``). The peer of each row is the first one, the
correct training, in the same process.
"""

import argparse
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path

from fedassay.adapters.opacus import Training
from fedassay.adapters.replicas import audit_replicas, plan_replicas
from fedassay.checks.watched_run import Watched

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "builders"))
from opacus_runs import BROKEN, CORRECT, records


def timed(make: Callable[[], Watched]) -> tuple[str, float]:
    """The checks that failed, in words, and CPU seconds."""
    start = time.process_time()
    try:
        words = ", ".join(sorted({one.name for one in make().failed})) or "none"
    except ValueError as reason:
        words = str(reason)
    return words, time.process_time() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--honest", type=int, default=0, metavar="RUNS", help="watched runs of each correct training")
    parser.add_argument("--replicas", action="store_true", help="verdicts by independent runs")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    print("| training | watch: failed checks | CPU s | play-back: failed checks | CPU s |")
    print("|---|---|---|---|---|")
    trainings = {name: each[:2] for name, each in (CORRECT | BROKEN).items()}
    for name, (build, train) in trainings.items():
        run = Training(build, train, records(), delta=1e-5)
        watched, playing = timed(run.watch), timed(lambda run=run: run.play_back().results())
        print(f"| {name} | {watched[0]} | {watched[1]:.2f} | {playing[0]} | {playing[1]:.2f} |", flush=True)
    for name, (build, train) in CORRECT.items() if arguments.honest else ():
        run = Training(build, train, records(), delta=1e-5)
        accused = [seed for seed in range(arguments.honest) if run.watch(seed).failed]
        print(f"{name}: {len(accused)} of {arguments.honest} watched runs accused")
    if arguments.replicas:
        plan = plan_replicas(Training(*CORRECT["plain"], records(), delta=1e-5))
        print(plan.line())
        for name in (*CORRECT, "half of the noise"):
            build, train = trainings[name]
            start = time.process_time()
            found = audit_replicas(Training(build, train, records(), delta=1e-5), plan=plan)
            spent = time.process_time() - start
            assert found.measurement is not None
            print(
                f"{name}: {found.verdict.value}, {found.measurement.n1} runs per arm, {spent:.0f} s of CPU", flush=True
            )


if __name__ == "__main__":
    main()
