"""What every defense costs and leaves: the suite `training`, timed round by round, beside no defense.

    FEDASSAY_DATA=... python benchmarks/training.py [LABEL ...]

One process, one thread. CPU seconds are of training alone, and the ratio is to the federation without a defense that
has the same clients; accuracy is of the final model on the first 2000 test images.
"""

import sys
import time

import torch
from fedassay.fl.engine import run_federation
from fedassay.fl.streams import Streams
from fedassay.suites.config.resolve import DefenseEntry, plan_of, prepare, resolve, task_of
from fedassay.suites.config.suite_file import load_suite

BARE = {"ten": "none", "crowd": "undefended"}
TESTED = 2000


def main(labels: list[str]) -> None:
    torch.set_num_threads(1)
    spec, source = load_suite("training")
    suite = resolve(spec, source, seed=0)
    entries = [entry for entry in suite.defenses if not labels or entry.label in (*labels, *BARE.values())]
    bare: dict[str, float] = {}
    print(f"{'defense':32}{'clients':>8}{'CPU s a round':>15}{'ratio':>8}{'accuracy':>10}  parameters")
    # Those without a defense first: the others are compared with them.
    for entry in sorted(entries, key=lambda one: one.label not in BARE.values()):
        federation = entry.federation or "ten"
        spent, accuracy, finite = trained(suite, entry, federation)
        if entry.label == BARE[federation]:
            bare[federation] = spent
        clients = spec.federations[federation].clients
        ratio = f"{spent / bare[federation]:8.2f}" if federation in bare else f"{'':8}"
        print(
            f"{entry.label:32}{clients:8}{spent:15.3f}{ratio}{accuracy:10.3f}  {'finite' if finite else 'NOT FINITE'}"
        )
        sys.stdout.flush()


def trained(suite, entry: DefenseEntry, federation: str) -> tuple[float, float, bool]:
    """CPU seconds a round, accuracy, and whether every parameter is a number."""
    task = task_of(suite.spec.federations[federation], suite.seeds[0])
    plan = plan_of(suite.spec.federations[federation], entry.change, task)
    protection = prepare(suite, entry, federation, suite.seeds[0]).protection
    begun = time.process_time()
    final = run_federation(task, plan, protection, Streams(suite.seeds[0]))[0]
    spent = (time.process_time() - begun) / plan.rounds
    guesses = task.network.logits(final, task.test_images[:TESTED]).argmax(-1)
    accuracy = float((guesses == task.test_labels[:TESTED]).float().mean())
    return spent, accuracy, bool(final.isfinite().all())


if __name__ == "__main__":
    main(sys.argv[1:])
