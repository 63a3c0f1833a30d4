"""Hold the label inference of a run of a vertical suite against what its claims allow, and print both as tables.

    fedassay run vertical -o RUN
    python benchmarks/label_bounds.py RUN

An attack that sees gradients alone infers labels no better than label DP allows:
``label_accuracy`` is at most the accuracy of the best (epsilon, delta)-DP release for the shares of the labels (a
linear program; e^eps / (k - 1 + e^eps) for k equally frequent labels), ``label_over_chance``, in which all labels weigh
the same, at most what follows from that number, and ``label_auc`` of two labels at most e^eps / (1 + e^eps) + delta.
Attacks that also train on columns are not held against it, because columns show labels by themselves. The script ends
with status 1 where a value is above its bound by more than chance explains: a probability below .001, after a
Bonferroni correction for all comparisons. The number of excesses is no test: attacks read the same released labels, and
defenses at several epsilons draw them with the same random numbers.
"""

import math
import sys
from collections import defaultdict

import numpy as np
from fedassay.audit.claim import Claim
from fedassay.audit.observer import PASSIVE_PARTY
from fedassay.reports.reading.run_folder import RunFolder
from fedassay.suites.config.other_federations import vertical_task_of
from fedassay.suites.config.tables.other_federations import VerticalSpec
from fedassay.suites.results.record import Record
from scipy.optimize import linprog
from scipy.stats import norm

BY_GRADIENTS = ("gradient_norm", "gradient_direction", "spectral", "gradient_likelihood", "gradient_sign")
ABOVE, ALARM = 0.025, 1e-3


def main() -> None:
    """Print both tables, and the comparisons that exceed."""
    run = RunFolder.read(sys.argv[1])
    for federation in run.manifest.suite["vertical"]:
        print_table(run, federation)
    sys.exit(0 if compare(run) else 1)


def best_accuracy(shares: np.ndarray, epsilon: float, delta: float) -> float:
    """Return the largest accuracy of guesses of labels with these ``shares (k,)`` from an (epsilon, delta)-DP release.

    The variables are the probabilities (true, guessed), each at most e^eps times that of another label, plus delta.
    """
    k = len(shares)
    limits = []
    for guessed in range(k):
        for true in range(k):
            for other in range(k):
                if true != other:
                    row = np.zeros((k, k))
                    row[true, guessed], row[other, guessed] = math.exp(-epsilon), -1
                    limits.append(row.ravel())
    sums = np.kron(np.eye(k), np.ones(k))
    gain = -np.diag(shares).ravel()
    allowed = np.full(len(limits), delta * math.exp(-epsilon))
    found = linprog(gain, A_ub=np.array(limits), b_ub=allowed, A_eq=sums, b_eq=np.ones(k), bounds=(0, 1))
    return float(-found.fun)


def bound_of(row: Record, claim: Claim, shares: np.ndarray) -> float | None:
    """Return the largest value of a row's metric that the claim allows; None for a metric without a bound."""
    k = len(shares)
    if row.metric == "label_accuracy":
        return best_accuracy(shares, claim.epsilon, claim.delta)
    if row.metric == "label_over_chance":
        return (best_accuracy(np.full(k, 1 / k), claim.epsilon, claim.delta) - 1 / k) / (1 - 1 / k)
    return 1 / (1 + math.exp(-claim.epsilon)) + claim.delta if row.metric == "label_auc" else None


def compare(run: RunFolder) -> bool:
    """Print which intervals lie above their bounds; return whether chance explains them."""
    claims = {(one.federation, one.defense): one.claim for one in run.claims if one.claim.observer == PASSIVE_PARTY}
    shares = {
        (name, seed): shares_of(run, name, seed) for name in run.manifest.suite["vertical"] for seed in seeds(run)
    }
    levels, above = [], 0
    for row in run.records:
        claim = claims.get((row.federation, row.defense))
        if claim is None or row.attack not in BY_GRADIENTS or row.status != "ok" or row.ci_low is None:
            continue
        bound = bound_of(row, claim, shares[row.federation, row.seed])
        if bound is None:
            continue
        levels.append(level(row, bound))
        if row.ci_low > bound:
            above += 1
            place = f"{row.federation} {row.defense} {row.attack} {row.metric} seed {row.seed}"
            print(f"above  {place}: {row.value:.4f} [{row.ci_low:.4f}, {row.ci_high:.4f}] > {bound:.4f}")
    corrected = min(1.0, len(levels) * min(levels, default=1.0))
    print(
        f"{above} of {len(levels)} intervals lie above their bounds; chance puts up to {ABOVE * len(levels):.1f} there"
    )
    print(f"smallest probability of an excess, times the comparisons: {corrected:.3g}")
    return corrected >= ALARM


def level(row: Record, bound: float) -> float:
    """Return the probability of a value so far above the bound: by the width of its interval, or by the spread of a
    share of as many people at the bound, where that is larger. An interval near 1 shows no people who would have
    been wrong.
    """
    if row.value <= bound or row.ci_low is None:
        return 1.0
    spread = max((row.value - row.ci_low) / norm.isf(ABOVE), math.sqrt(bound * (1 - bound) / (row.n or 1)))
    return float(norm.sf((row.value - bound) / spread))


def seeds(run: RunFolder) -> set[int]:
    """Return the seeds of a run."""
    return {row.seed for row in run.records if row.seed is not None}


def shares_of(run: RunFolder, federation: str, seed: int) -> np.ndarray:
    """The shares of the labels among the people of a training."""
    task = vertical_task_of(VerticalSpec.model_validate(run.manifest.suite["vertical"][federation]), seed)
    return np.bincount(task.people.labels.numpy(), minlength=task.network.classes) / len(task.people)


def print_table(run: RunFolder, federation: str) -> None:
    """Print one row per defense: accuracy, each attack's success, the bound on epsilon and the verdict."""
    rows = [row for row in run.records if row.federation == federation and row.status == "ok"]
    metric = "label_auc" if any(row.metric == "label_auc" for row in rows) else "label_accuracy"
    utility = ["accuracy"] if metric == "label_accuracy" else ["accuracy", "test_auc"]
    found: dict[tuple[str, str], list[Record]] = defaultdict(list)
    for row in rows:
        if row.metric in utility or row.role == "audit":
            found[row.defense, row.observer if row.role == "audit" else row.metric].append(row)
        elif row.metric == metric:
            found[row.defense, row.attack].append(row)
    attacks = list(dict.fromkeys(row.attack for row in rows if row.metric == metric))
    heads = ["defense", *utility, *attacks, "passive party", "public"]
    print(f"\n{federation}: {metric}\n\n| {' | '.join(heads)} |\n|{' --- |' * len(heads)}")
    for defense in dict.fromkeys(row.defense for row in rows):
        cells = [words(found[defense, name]) for name in (*utility, *attacks)]
        cells += [verdict(found[defense, name]) for name in ("passive_party", "final_model")]
        print(f"| `{defense}` | {' | '.join(cells)} |")
    print()


def words(rows: list[Record]) -> str:
    """The mean over the seeds, with the outermost ends of their intervals."""
    if not rows:
        return "-"
    mean = f"{np.mean([row.value for row in rows]):.3f}"
    lows, highs = ([getattr(row, end) for row in rows] for end in ("ci_low", "ci_high"))
    return mean if None in (*lows, *highs) else f"{mean} [{min(lows):.3f}, {max(highs):.3f}]"


def verdict(rows: list[Record]) -> str:
    """Return the lower bounds on epsilon with their verdicts."""
    return ", ".join(f"{row.value:.2f} {(row.verdict or '').replace('_', ' ').lower()}" for row in rows) or "-"


if __name__ == "__main__":
    main()
