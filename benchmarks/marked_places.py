"""Where models of FedRE's federation mark pixels as tampered, on drawn receipts, compared with chance.

    python benchmarks/marked_places.py   # no defense, FedRE 50 and with mean aggregation; 6 minutes
    python benchmarks/marked_places.py --defense ldp_fed_50

One federation per defense, of suite ``papers/fedre --preset drawn``. ``share`` is the share of tampered test pixels,
which is the precision of marking at random; ``by place`` the precision of a model that marks the same places on every
image as often as this one does on all of them, but ignores the image; ``edge``: within four pixels of the border.
"""

import argparse

import torch
from fedassay.fl.engine import run_federation
from fedassay.fl.streams import Streams
from fedassay.suites.config.resolve import plan_of, prepare, resolve, task_of
from fedassay.suites.config.suite_file import load_suite
from torch import Tensor

FEDERATION = "main"
DEFENSES = ["none", "fedre_50", "fedre_50_mean"]
HEADERS = ("defense", "marked", "precision", "share", "by place", "marks at the edge", "tampered there", "pixels there")
EDGE = 4


def row(marked: Tensor, tampered: Tensor) -> list[float]:
    """Of pixels ``(n, h, w)``, 0 and 1, the numbers that ``HEADERS`` names; nan where nothing is marked."""
    edge = torch.ones(marked.shape[1:], dtype=torch.bool)
    edge[EDGE:-EDGE, EDGE:-EDGE] = False
    places, where = marked.mean(0), tampered.mean(0)
    numbers = [
        marked.mean(),
        (marked * tampered).sum() / marked.sum(),
        tampered.mean(),
        (places * where).sum() / places.sum(),
        places[edge].sum() / places.sum(),
        where[edge].sum() / where.sum(),
        edge.double().mean(),
    ]
    return [float(number) for number in numbers]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--defense", action="append", help="a defense of the suite; repeatable")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    suite = resolve(*load_suite("papers/fedre", preset="drawn"), seed=arguments.seed)
    spec = suite.spec.federations[FEDERATION]
    task = task_of(spec, arguments.seed)
    entries = {entry.label: entry for entry in suite.defenses}
    print(f"| {' | '.join(HEADERS)} |")
    print("|---|" + "---|" * (len(HEADERS) - 1))
    for name in arguments.defense or DEFENSES:
        protection = prepare(suite, entries[name], FEDERATION, arguments.seed).protection
        plan = plan_of(spec, entries[name].change, task)
        model = run_federation(task, plan, protection, Streams(arguments.seed))
        marked = task.outcomes(model[0], task.test_images, task.test_labels).found
        told = (f"{value:.4f}" for value in row(marked.double(), task.test_labels.double()))
        print(f"| {name} | {' | '.join(told)} |", flush=True)


if __name__ == "__main__":
    main()
