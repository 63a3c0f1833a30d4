"""Chooses the learning rates, clip norms and radii of the suite flagship on public data, in two stages.

    python benchmarks/flagship_search.py [--only LABEL ...] [--seed 0] [--samples 54000]

MNIST stands in for Fashion-MNIST, and MNIST's features by components of Fashion-MNIST for Fashion-MNIST's by those of
MNIST. No record of the suite's clients is read, so that the search costs no epsilon. (Fashion-MNIST gives the stand-in
its components, which nothing in the suite receives.) Rounds, cohorts, lots and the number of clients are the suite's.

The first stage tries each clip of a list with three learning rates, the second the best clip with two rates around the
best one. The accuracy of a setting is the mean over the epsilons of the defense's table (2 and 8 of a table of four),
one seed each. Chosen is the smallest rate within two points of the best, which is about what a seed moves. Defenses of
one family share what was found: ``quantile_clipping``, ``distributed_discrete_gaussian`` and ``skellam`` have the
settings of ``dp_fedavg``, ``ldp_fed`` those of ``ldp_piecewise``, ``fedre`` those of ``ldp_gaussian``, ``apes`` and
``cldp_sgd`` those of ``unis``, and ``adap_dp_fl`` and ``census_dp_sgd`` those of ``dp_sgd``, because no
public table stands in for the census. Undefended silos have the rate of the suite ``standard``. About ten CPU minutes.
"""

import argparse
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from fedassay.fl.algorithms import FedSGD
from fedassay.fl.engine import run_federation
from fedassay.fl.streams import Streams
from fedassay.suites.config.resolve import DefenseEntry, ResolvedSuite, calibrated, plan_of, resolve, task_of
from fedassay.suites.config.suite_file import load_suite

PUBLIC = ("silo.dataset=mnist", "device.dataset=mnist_features", "shuffled.dataset=mnist_features")
GRID: Mapping[str, tuple[str, Sequence[Any], Sequence[float]]] = {
    "dp_sgd": ("clip_norm", (0.1,), (2.0, 5.0, 12.0)),
    "device_none": ("", (None,), (2.0, 6.0, 18.0)),
    "dp_fedavg": ("clip_norm", (0.3, 1.0), (3.0, 10.0, 30.0)),
    "ldp_gaussian": ("clip_norm", (0.3, 1.0), (1.0, 3.0, 10.0)),
    "ldp_piecewise": ("radius", (0.03, 0.1), (1.0, 3.0, 10.0)),
    "shuffled_none": ("", (None,), (2.0, 6.0, 18.0)),
    "unis": ("radius", (0.03, 0.1), (2.0, 6.0, 18.0)),
}
"""By the label of a table of the suite: its clip, the clips and the learning rates of the first stage."""
_FINER, _ALIKE = 1.7, 0.02
Tried = tuple[str, str, Any, float, float]
"""Table, stage, clip, learning rate, accuracy."""


def labels_of(suite: ResolvedSuite, family: str) -> dict[str, list[DefenseEntry]]:
    """The entries of each table of a family, one for each epsilon: ``dp_sgd_low`` and ``dp_sgd``."""
    tables = {name: [e for e in suite.defenses if e.label.split("-")[0] == name] for name in (f"{family}_low", family)}
    # Of the four epsilons of one table the second and the last.
    return {name: entries[1::2] if len(entries) > 2 else entries for name, entries in tables.items() if entries}


def accuracy(suite: ResolvedSuite, entry: DefenseEntry, clip: tuple[str, Any], rate: float, seed: int) -> float:
    """The test accuracy of one setting on the stand-in, at its epsilon; no setting is left out that diverges."""
    name = entry.spec.federation or ""
    spec = suite.spec.federations[name]
    task = task_of(spec, seed)
    plan = replace(plan_of(spec, entry.change, task), algorithm=FedSGD(learning_rate=rate))
    field, value = clip
    defense: Any = entry.defense
    protection = calibrated(defense, plan).protection
    if field == "radius" and hasattr(protection, field):
        # The budgets behind a shuffler do not depend on the radius, and take longer to calibrate than the training.
        protection = replace(protection, radius=value)
    elif field:
        protection = calibrated(replace(defense, **{field: value}), plan).protection
    model = run_federation(task, plan, protection, Streams(seed))[0]
    return next(float(row.value or 0.0) for row in task.utility(model) if row.metric == "accuracy")


def searched(suite: ResolvedSuite, family: str, seed: int) -> Iterator[Tried]:
    """The settings that were tried, with the mean accuracy over the epsilons of a table."""
    field, clips, rates = GRID[family]
    for table, entries in labels_of(suite, family).items():

        def mean(clip: Any, rate: float, entries: list[DefenseEntry] = entries) -> float:
            return sum(accuracy(suite, entry, (field, clip), rate, seed) for entry in entries) / len(entries)

        found = {(clip, rate): mean(clip, rate) for clip in clips for rate in rates}
        yield from ((table, "coarse", *setting, value) for setting, value in found.items())
        clip, rate = max(found, key=lambda setting: found[setting])
        yield from ((table, "fine", clip, round(r, 3), mean(clip, r)) for r in (rate / _FINER, rate * _FINER))


def chosen(rows: Sequence[Tried]) -> Tried:
    """Of the settings that are within two points of the best, the one with the smallest rate: a rate that is just below
    those that diverge on the stand-in may diverge on other data.
    """
    best = max(row[4] for row in rows)
    return min((row for row in rows if row[4] >= best - _ALIKE), key=lambda row: (row[3], -row[4]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=tuple(GRID), default=tuple(GRID))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--samples", type=int, default=54000, help="images of the silo; a coarse search may use fewer")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    overrides = [f"federations.{change}" for change in PUBLIC] + [f"federations.silo.samples={arguments.samples}"]
    suite = resolve(*load_suite("flagship", overrides=tuple(overrides)), seed=arguments.seed)
    print("| table | stage | clip | learning rate | accuracy on the stand-in |\n|---|---|---|---|---|", flush=True)
    for family in arguments.only:
        begun = time.process_time()
        rows = list(searched(suite, family, arguments.seed))
        for table, stage, clip, rate, value in rows:
            print(f"| {table} | {stage} | {clip} | {rate:g} | {value:.3f} |")
        for table in dict.fromkeys(row[0] for row in rows):
            _, _, clip, rate, value = chosen([row for row in rows if row[0] == table])
            print(f"| **{table}** | chosen | {clip} | {rate:g} | {value:.3f} |")
        print(f"<!-- {family}: {time.process_time() - begun:.0f} CPU s -->", flush=True)


if __name__ == "__main__":
    main()
