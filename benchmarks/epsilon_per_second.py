"""Epsilon proved per CPU second: audits by independent runs, compared with audits in one run.

    python benchmarks/epsilon_per_second.py [--budgets 2 8 32] [--seeds 3] [--designs planted ...] [--defenses ...]

The claims (4, 1e-5) of DP-SGD and DP-FedAvg, and of a control with half of the noise, on ten clients of digits with a
logistic regression, 20 rounds, as in the suite ``quick``. Each design gets a budget of CPU seconds: the number of
federations, or of canaries in the one run, is the largest that a pilot of the design shows to fit. CPU seconds are
those of the runs and of the estimator; calibration and implementation checks are not counted, because all designs share
them.

- ``planted``: a canary along an unused weight, scored by the law (Nasr et al. 2023, section 4); by the tests that
  the audit designs from the law, by the error rates of one threshold under Gaussian DP, and without an assumption on
  the mechanism (Clopper and Pearson).
- ``random``: a canary along a random direction of all weights. ``mislabelled``: an image with a wrong label.
- ``one_run``: one federation with many canaries (Steinke, Nasr and Jagielski 2023), and the same guesses by the
  trade-off curve (Mahloujifar, Melis and Chaudhuri 2024), which applies to claims with a Gaussian curve.

Bounds hold with probability .95. Printed are medians over seeds with the range. Crafted reports audit local
randomisers, which are other claims, so they are not here.
"""

import argparse
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from fedassay.audit.claim import Adjacency
from fedassay.defenses.accounting.accountant import epsilon_of, gaussian_steps
from fedassay.suites.audits.audit_method import PlannedAudit, audit_methods
from fedassay.suites.config.source import Source
from fedassay.suites.config.suite_file import check_suite
from fedassay.suites.execution.backend import keep_freed_memory
from fedassay.suites.execution.run import launch

ALPHA, EPSILON, DELTA = 0.05, 4.0, 1e-5
DEFENSES: dict[str, dict[str, Any]] = {
    "dp_sgd": {},
    "dp_fedavg": {"plan": {"cohort": {"poisson": 0.5}}},
    "control_noise_halved": {"plan": {"cohort": {"poisson": 0.5}}},
}
PILOT = 200


@dataclass(frozen=True, kw_only=True)
class AuditDesign:
    """One way to spend CPU seconds on a claim.

    ``size``: the key of the audit table that the budget sets, from ``least`` to ``most``; ``table``: its other keys.
    ``estimators``: those that read the same runs; None: the audit method's own.
    """

    size: str
    table: dict[str, Any]
    estimators: tuple[str | None, ...]
    least: int = PILOT
    most: int = 1_000_000


DESIGNS = {
    "planted": AuditDesign(
        size="replicas", table={"canary": "dirac"}, estimators=(None, "gaussian_dp", "clopper_pearson")
    ),
    "random": AuditDesign(size="replicas", table={"canary": "random"}, estimators=(None,)),
    "mislabelled": AuditDesign(size="replicas", table={"canary": "mislabelled"}, estimators=(None,)),
    # A suite file takes at most 4,000 canaries.
    "one_run": AuditDesign(
        size="canaries", table={"design": "one_run"}, estimators=("one_run", "one_run_fdp"), most=4000
    ),
}


@dataclass(frozen=True, kw_only=True)
class Proof:
    """What one audit proved: a lower bound on epsilon, and CPU seconds of the runs and of the estimator."""

    epsilon: float
    runs_s: float
    estimator_s: float
    size: int

    @property
    def seconds(self) -> float:
        return self.runs_s + self.estimator_s


def suite_of(defense: str, design: AuditDesign, size: int) -> dict[str, Any]:
    """A suite with this one audit."""
    return {
        "name": "epsilon_per_second",
        "version": "1",
        "alpha": ALPHA,
        "seeds": 1,
        "federations": {
            "main": {
                "dataset": "digits",
                "model": "logistic",
                "partition": "iid",
                "clients": 10,
                "rounds": 20,
                "lot": {"poisson": 0.1},
                "algorithm": {"name": "fedsgd", "learning_rate": 1.0},
            }
        },
        "defenses": {defense: {"epsilon": EPSILON, "delta": DELTA, **DEFENSES[defense]}},
        "audit": {**design.table, design.size: size},
    }


def proofs(defense: str, design: AuditDesign, size: int, seed: int) -> dict[str, Proof]:
    """Run one audit of ``size`` federations per arm, or canaries; the result of each estimator on the same runs."""
    tree = suite_of(defense, design, size)
    source = Source("benchmark")
    with TemporaryDirectory() as folder:
        begun = launch(check_suite(tree, source), source, seed=seed, folder=Path(folder) / "run")
        audit = next(audit for audit in begun.plan.audits if audit.blocks)
        started = time.process_time()
        for block in audit.blocks:
            if failed := block.run(begun.store, frozenset()):
                raise RuntimeError(f"the runs must succeed: {failed[0]}")
            begun.store.append(block.cell.cell_id)
        runs_s = time.process_time() - started
        found = {}
        for estimator in design.estimators:
            started = time.process_time()
            read = read_by(estimator, audit)
            measured = audit_methods()[audit.method].reading(read, begun.store).measurement
            spent = time.process_time() - started
            found[f"{estimator or 'default'}"] = Proof(
                epsilon=measured.epsilon_low, runs_s=runs_s, estimator_s=spent, size=size
            )
    return found


def read_by(estimator: str | None, audit: PlannedAudit) -> PlannedAudit:
    """The audit at level ``ALPHA``, measured by one estimator."""
    if estimator is None:
        return replace(audit, alpha=ALPHA)
    blocks = tuple(
        replace(block, audit=block.audit.model_copy(update={"estimator": estimator})) for block in audit.blocks
    )
    return replace(audit, alpha=ALPHA, blocks=blocks)


def sizes_for(defense: str, design: AuditDesign, budgets: Sequence[float]) -> dict[int, float]:
    """The numbers of runs or canaries that take about these CPU seconds, by two pilots on seeds of their own; a design
    at its limit has no more than one.
    """
    few, more = (
        next(iter(proofs(defense, design, size, seed=100 + size).values())) for size in (PILOT, min(1000, design.most))
    )
    # Estimators that fix their thresholds by simulation take time that does not depend on the number of runs.
    each = max((more.runs_s - few.runs_s) / (more.size - few.size), 1e-6)
    fixed = more.estimator_s + few.runs_s - each * few.size
    sizes = [int(np.clip((budget - fixed) / each, design.least, design.most)) for budget in budgets]
    return dict(reversed(list(zip(sizes, budgets, strict=True))))


def true_epsilon(defense: str) -> float:
    """The epsilon of what the defense does, by its accountant: of a control, with half of the claimed noise."""
    if defense != "control_noise_halved":
        return EPSILON
    source = Source("benchmark")
    with TemporaryDirectory() as folder:
        tree = suite_of(defense, DESIGNS["planted"], PILOT)
        begun = launch(check_suite(tree, source), source, folder=Path(folder) / "run")
    block = next(audit for audit in begun.plan.audits if audit.blocks).blocks[0]
    release, (_, plan) = block.release, block.small
    if release is None:
        raise RuntimeError("the control must publish a law")
    event = gaussian_steps(sigma=release.sigma / 2, rate=release.rate, steps=plan.rounds)
    return epsilon_of(event, delta=DELTA, adjacency=Adjacency.ADD_REMOVE)


def spread(values: Sequence[float], digits: int = 2) -> str:
    return f"{np.median(values):.{digits}f} ({min(values):.{digits}f} to {max(values):.{digits}f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--budgets", type=float, nargs="+", default=[2, 8, 32], help="CPU seconds")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--designs", nargs="+", choices=DESIGNS, default=list(DESIGNS))
    parser.add_argument("--defenses", nargs="+", choices=DEFENSES, default=list(DEFENSES))
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    keep_freed_memory()  # As a run's workers do.
    print("| defense | true epsilon | design | estimator | budget | size | CPU seconds | epsilon proved |")
    print("|---|---|---|---|---|---|---|---|")
    for defense in arguments.defenses:
        true = true_epsilon(defense)
        for name in arguments.designs:
            design = DESIGNS[name]
            for size, budget in sorted(sizes_for(defense, design, arguments.budgets).items()):
                found = [proofs(defense, design, size, seed) for seed in range(arguments.seeds)]
                for estimator in found[0]:
                    own = [one[estimator] for one in found]
                    print(
                        f"| `{defense}` | {true:.2f} | {name} | {estimator} | {budget:g} | {size} | "
                        f"{spread([one.seconds for one in own], 1)} | {spread([one.epsilon for one in own])} |",
                        flush=True,
                    )


if __name__ == "__main__":
    main()
