"""Public auditors of canary scores on the same scores: mean bounds, error rates, CPU seconds.

    python benchmarks/auditors.py                    # all tables, 26 minutes of CPU with all libraries
    python benchmarks/auditors.py --only fedassay    # ours alone
    python benchmarks/auditors.py --names eps_cp one_run_rates --seconds 25    # those with these words in their names
    python benchmarks/auditors.py --repeats 20 --nulls 20 --canaries 100 1000

Scores are those of an ideal Gaussian mechanism: N(0, 1), and N(mu, 1) for canaries that fair coins included, where mu
has the claimed epsilon at delta 1e-5. Null scores have no shift, and are judged against the claim of epsilon 4. Bounds
have level .05. Each row states what it needs: the scores alone, or a threshold (or a shape) that the law of the scores
gives. Rows that need the law get the threshold that is best for it.

Every auditor sees the first repeats that fit into ``--seconds`` of CPU per table cell. A cell is invalid if more bounds
than .05 allows are above the truth: if the exact lower limit of that share (99.9 %) is above .05.

Each foreign library has an environment of its own in ``--environments`` (build/auditors), called through
``foreign_auditors.py``::

    python3 -m venv build/auditors/jax_privacy
    build/auditors/jax_privacy/bin/pip install jax-privacy
    # opake: opake-auditing; privacyguard: privacyguard-platform; privacy_estimates: privacy-estimates
"""

import argparse
import json
import math
import os
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from fedassay.audit.binomial import privacy_loss, upper_bound
from fedassay.audit.claim import Adjacency, Unit
from fedassay.audit.curve import GaussianCurve, epsilon_from_mu, mu_from_epsilon
from fedassay.audit.estimators import one_run, one_run_fdp
from fedassay.audit.estimators.clopper_pearson import clopper_pearson
from fedassay.audit.estimators.gaussian_dp import gaussian_dp
from fedassay.audit.estimators.guess_odds import GuessRule, guess_odds, odds_low
from fedassay.audit.estimators.hockey_stick import MechanismOutputs, hockey_stick
from fedassay.audit.estimators.one_run_claim import planned_guesses
from fedassay.audit.estimators.one_run_gaussian import gaussian_canaries
from fedassay.audit.estimators.one_run_rates import one_run_rates
from fedassay.audit.estimators.z_test import z_test
from fedassay.audit.evidence import CanaryScores, CandidateScores, Design, MembershipScores, Setting
from fedassay.audit.observer import UPLOADS
from fedassay.audit.threshold import CHOOSING, FixedThreshold, SplitThreshold
from foreign_auditors import LIBRARIES, Auditor, Cell, selected, timed
from scipy.special import expit
from scipy.stats import beta, norm

DELTA, ALPHA, EPSILONS, CLAIMED = 1e-5, 0.05, (1, 2, 4, 8), 4
SURE, JUDGED = 1e-3, 100
"""Error of the exact lower limit by which a cell is called invalid; null scores from which on a row is judged."""
ONE_RUN, ARMS = "one run", "independent runs"
ANY, CURVE = "any mechanism", "Gaussian mechanism"


@dataclass(frozen=True)
class Row:
    """An auditor of the tables: the question that it answers, its library, and whether it needs the scores' law."""

    design: str
    assumes: str
    library: str
    name: str
    law: bool = False


ROWS = (
    Row(ONE_RUN, ANY, "fedassay", "one_run"),
    Row(ONE_RUN, ANY, "jax_privacy", "epsilon_one_run, Bonferroni"),
    Row(ONE_RUN, ANY, "jax_privacy", "epsilon_one_run, Split"),
    Row(ONE_RUN, ANY, "jax_privacy", "epsilon_one_run, Explicit", True),
    Row(ONE_RUN, ANY, "opake", "eps_delta"),
    Row(ONE_RUN, ANY, "opake", "eps_delta, threshold", True),
    Row(ONE_RUN, CURVE, "fedassay", "one_run_fdp"),
    Row(ONE_RUN, CURVE, "fedassay", "one_run_rates"),
    Row(ONE_RUN, CURVE, "fedassay", "one_run_rates, threshold", True),
    Row(ONE_RUN, CURVE, "fedassay", "mean shift (published law)", True),
    Row(ONE_RUN, CURVE, "jax_privacy", "epsilon_one_run_fdp, Bonferroni"),
    Row(ONE_RUN, CURVE, "jax_privacy", "epsilon_one_run_fdp, Split"),
    Row(ONE_RUN, CURVE, "jax_privacy", "epsilon_one_run_fdp, Explicit", True),
    Row(ONE_RUN, CURVE, "opake", "gdp"),
    Row(ONE_RUN, CURVE, "opake", "gdp, threshold", True),
    Row(ONE_RUN, CURVE, "privacyguard", "FDPAnalysisNode"),
    Row(ARMS, ANY, "fedassay", "guess_odds"),
    Row(ARMS, ANY, "fedassay", "guess_odds, thresholds", True),
    Row(ARMS, ANY, "fedassay", "clopper_pearson"),
    Row(ARMS, ANY, "fedassay", "clopper_pearson, threshold", True),
    Row(ARMS, ANY, "fedassay", "hockey_stick"),
    Row(ARMS, ANY, "jax_privacy", "epsilon_clopper_pearson, Bonferroni"),
    Row(ARMS, ANY, "jax_privacy", "epsilon_clopper_pearson, Split"),
    Row(ARMS, ANY, "jax_privacy", "epsilon_clopper_pearson, Explicit", True),
    Row(ARMS, ANY, "privacyguard", "AnalysisNode, eps_cp"),
    Row(ARMS, ANY, "privacyguard", "AnalysisNode, eps_lb"),
    Row(ARMS, ANY, "privacy_estimates", "beta, threshold", True),
    Row(ARMS, ANY, "privacy_estimates", "jeffreys, threshold", True),
    Row(ARMS, CURVE, "fedassay", "gaussian_dp"),
    Row(ARMS, CURVE, "fedassay", "gaussian_dp, threshold", True),
    Row(ARMS, CURVE, "fedassay", "z_test", True),
    Row(ARMS, CURVE, "jax_privacy", "epsilon_from_gdp"),
)


def setting(design: Design) -> Setting:
    return Setting(unit=Unit.SAMPLE, adjacency=Adjacency.ADD_REMOVE, observer=UPLOADS, rounds=1, design=design)


def ours() -> dict[str, Auditor]:
    """The auditors of fedassay by the names of the rows."""
    of_guesses = lru_cache(partial(one_run.epsilon_from_guesses, delta=DELTA, alpha=ALPHA))
    mu_of_guesses = lru_cache(partial(one_run_fdp.mu_from_guesses, alpha=ALPHA))
    split = SplitThreshold(CHOOSING, 0)

    def right(scores: np.ndarray, coins: np.ndarray, made: int) -> int:
        given, rng = CandidateScores(scores, setting(Design.ONE_RUN)), np.random.default_rng(0)
        return one_run.guess(given, coins, highest=made - made // 2, lowest=made // 2, rng=rng).right

    def by_guesses(scores: np.ndarray, coins: np.ndarray, cell: Cell) -> float:
        made = cell["made by one_run"]
        return of_guesses(right(scores, coins, made), made, len(scores))

    def by_curve(scores: np.ndarray, coins: np.ndarray, cell: Cell) -> float:
        made = cell["made"]
        return epsilon_from_mu(mu_of_guesses(right(scores, coins, made), made, len(scores)), DELTA)

    def canaries(measure: Callable[..., Any], cut: str | None = None, **more: Any) -> Auditor:
        def bound(scores: np.ndarray, coins: np.ndarray, cell: Cell) -> float:
            given = CanaryScores(scores, coins, setting(Design.ONE_RUN))
            own = more | ({"threshold": FixedThreshold(cell[cut])} if cut else {})
            return float(measure(given, delta=DELTA, alpha=ALPHA, **own).epsilon_low)

        return bound

    def arms(measure: Callable[..., Any], cut: str | None = None, **more: Any) -> Auditor:
        def bound(scores: np.ndarray, coins: np.ndarray, cell: Cell) -> float:
            given = MembershipScores(scores[coins], scores[~coins], setting(Design.INDEPENDENT))
            own = more | ({"threshold": FixedThreshold(cell[cut])} if cut else {})
            return float(measure(given, delta=DELTA, alpha=ALPHA, **own).epsilon_low)

        return bound

    def rows(scores: np.ndarray, coins: np.ndarray, cell: Cell) -> float:
        sides = (scores[side][:, np.newaxis] for side in (coins, ~coins))
        given = MechanismOutputs(*sides, setting(Design.INDEPENDENT))
        return float(hockey_stick(given, delta=DELTA, alpha=ALPHA).epsilon_low)

    def of_two_thresholds(scores: np.ndarray, coins: np.ndarray, cell: Cell) -> float:
        rule = GuessRule(high=cell["epsilon_guesses"], low=cell["epsilon_guesses_low"])
        return arms(guess_odds, threshold=rule)(scores, coins, cell)

    def of_claimed_curve(scores: np.ndarray, coins: np.ndarray, cell: Cell) -> float:
        chosen = SplitThreshold(CHOOSING, 0, curve=GaussianCurve(cell["mu"]))
        return arms(gaussian_dp, threshold=chosen)(scores, coins, cell)

    return {
        "one_run": by_guesses,
        "one_run_fdp": by_curve,
        "one_run_rates": canaries(one_run_rates, threshold=split),
        "one_run_rates, threshold": canaries(one_run_rates, "middle"),
        "mean shift (published law)": canaries(gaussian_canaries),
        "guess_odds": arms(guess_odds, threshold=split),
        "guess_odds, thresholds": of_two_thresholds,
        "clopper_pearson": arms(clopper_pearson, threshold=split),
        "clopper_pearson, threshold": arms(clopper_pearson, "epsilon_clopper_pearson"),
        "hockey_stick": rows,
        "gaussian_dp": of_claimed_curve,
        "gaussian_dp, threshold": arms(gaussian_dp, "middle"),
        "z_test": arms(z_test),
    }


@lru_cache
def planned(canaries: int, epsilon: int) -> Cell:
    """What is fixed before the scores are seen: from the claim, numbers of guesses; from the law, best thresholds."""
    mu, half = mu_from_epsilon(epsilon, DELTA), canaries // 2
    made = {
        gaussian: planned_guesses(canaries, epsilon=epsilon, delta=DELTA, alpha=ALPHA, gaussian=gaussian, noise=1.0)
        for gaussian in (False, True)
    }

    def loss(alarms: int, hits: int) -> float:
        rates = upper_bound(np.array([alarms, half - hits]), half, ALPHA / 2)
        return float(privacy_loss(rates[0], rates[1], DELTA))

    expected: dict[str, Callable[[int, int], float]] = {
        "epsilon_one_run": lambda alarms, hits: one_run.epsilon_from_guesses(
            hits, alarms + hits, canaries, delta=DELTA, alpha=ALPHA
        ),
        "epsilon_one_run_fdp": lambda alarms, hits: one_run_fdp.mu_from_guesses(
            hits, alarms + hits, canaries, alpha=ALPHA
        ),
        "epsilon_clopper_pearson": loss,
        # The rule guesses as many of each input.
        "epsilon_guesses": lambda alarms, hits: (
            odds_low(2 * hits, 2 * alarms, ALPHA, delta=DELTA, runs=canaries) if alarms + hits <= half else 0.0
        ),
    }
    cuts = np.linspace(0.5, 4, 15)
    counts = [(round(half * norm.sf(cut)), round(half * norm.sf(cut - mu))) for cut in cuts]
    best = {
        name: float(cuts[int(np.argmax([bound(*pair) if sum(pair) else 0.0 for pair in counts]))])
        for name, bound in expected.items()
    }
    best["epsilon_guesses"] = max(best["epsilon_guesses"], mu / 2)
    best["epsilon_guesses_low"] = mu - best["epsilon_guesses"]
    return {"mu": mu, "middle": mu / 2, "made": made[True], "made by one_run": made[False], **best}


Drawn = Mapping[str, tuple[np.ndarray, np.ndarray, Cell]]


def ideal(canaries: int, repeats: int, shift: float, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    coins = rng.random((repeats, canaries)) < 0.5
    return rng.standard_normal(coins.shape) + shift * coins, coins


def ideal_cells(sizes: list[int], repeats: int, nulls: int, seconds: float) -> Iterator[tuple[str, Any]]:
    for canaries in sizes:
        for epsilon in (*EPSILONS, 0):
            cell = planned(canaries, epsilon or CLAIMED) | {"delta": DELTA, "alpha": ALPHA, "seconds": seconds}
            rng, shift = np.random.default_rng([3, canaries, epsilon]), cell["mu"] * (epsilon > 0)
            drawn = ideal(canaries, repeats if epsilon else nulls, shift, rng)
            yield f"{canaries} {epsilon}", (*drawn, cell)


SITUATIONS = {
    "cubed": "the scores of a Gaussian mechanism, cubed",
    "posteriors": "the same, as posteriors of being included",
    "Laplace": "Laplace noise with epsilon 4, delta 0",
    "batches": "groups of 50 canaries have a common shift N(0, 1), whatever the coins",
    "copies": "ten canaries share a coin and a score (up to 1e-6), as those of one client may",
}
"""Scores of 1,000 canaries for which epsilon 4 at delta 1e-5 is true, at the boundary or within it."""


def situation_cells(repeats: int, seconds: float, canaries: int = 1000) -> Iterator[tuple[str, Any]]:
    cell = planned(canaries, CLAIMED) | {"delta": DELTA, "alpha": ALPHA, "seconds": seconds}
    mu = cell["mu"]
    for number, name in enumerate(SITUATIONS):
        rng = np.random.default_rng([4, number])
        scores, coins = ideal(canaries, repeats, mu, rng)
        # A threshold of the law follows the scores through a monotone map.
        follow: Callable[[Any], Any] = lambda x: x  # noqa: E731
        if name == "cubed":
            follow = lambda x: x**3  # noqa: E731
        elif name == "posteriors":
            follow = lambda x: expit(mu * x - mu**2 / 2)  # noqa: E731
        elif name == "Laplace":
            scores = rng.laplace(size=coins.shape) + CLAIMED * coins
        elif name == "batches":
            scores = scores + np.repeat(rng.standard_normal((repeats, canaries // 50)), 50, axis=1)
        else:
            scores, coins = (np.repeat(one[:, : canaries // 10], 10, axis=1) for one in (scores, coins))
            scores = scores + 1e-6 * rng.standard_normal(scores.shape)
        cuts = {key: float(follow(cell[key])) for key in cell if key.startswith("epsilon") or key == "middle"}
        yield name, (follow(scores), coins, cell | cuts | ({"middle": CLAIMED / 2} if name == "Laplace" else {}))


def foreign(library: str, environments: Path, given: Path, names: Sequence[str] = ()) -> subprocess.Popen[str] | str:
    """Start the auditors of one library; or how to install it."""
    python = environments / library / "bin" / "python"
    if not python.exists():
        return (
            f"{library} is not installed: python3 -m venv {python.parents[1]} && "
            f"{python.parent}/pip install {LIBRARIES[library][0]}"
        )
    words = [str(python), str(Path(__file__).with_name("foreign_auditors.py")), library]
    # Libraries of this environment must not shadow those of the other one.
    own = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | {"OMP_NUM_THREADS": "1"}
    return subprocess.Popen([*words, str(given), str(given.with_name(f"{library}.json")), *names], env=own, text=True)


def measured(cells: Drawn, libraries: list[str], environments: Path, names: Sequence[str] = ()) -> dict[str, Any]:
    """Bounds and CPU seconds per call, by library, auditor and cell; each library in a process of its own."""
    found: dict[str, Any] = {}
    with TemporaryDirectory() as folder:
        given = Path(folder) / "scores.npz"
        arrays = {f"{key} scores": one[0] for key, one in cells.items()}
        arrays |= {f"{key} coins": one[1] for key, one in cells.items()}
        np.savez(given, cells=json.dumps({key: one[2] for key, one in cells.items()}), **arrays)
        started = {name: foreign(name, environments, given, names) for name in libraries if name != "fedassay"}
        if "fedassay" in libraries:
            found["fedassay"] = {
                "version": "",
                "auditors": {
                    name: {
                        key: dict(zip(("bounds", "seconds"), timed(auditor, *cell), strict=True))
                        for key, cell in cells.items()
                    }
                    for name, auditor in selected(ours(), list(names)).items()
                },
                "seconds": time.process_time(),
            }
        for name, running in started.items():
            if isinstance(running, str):
                print(running)
            elif running.wait() == 0:
                found[name] = json.loads(given.with_name(f"{name}.json").read_text(encoding="utf-8"))
            else:
                print(f"{name} ended with exit code {running.returncode}")
    return found


def share(bounds: list[float], above: float) -> tuple[str, bool]:
    """The share of bounds above a value with its exact 99.9 % limits, and whether it is too large for the level."""
    n, k = len(bounds), int(np.count_nonzero(np.array(bounds) > above + 1e-9))
    low = float(beta.ppf(SURE / 2, k, n - k + 1)) if k else 0.0
    high = float(beta.isf(SURE / 2, k + 1, n - k)) if k < n else 1.0
    too_large = bool(k) and float(beta.ppf(SURE, k, n - k + 1)) > ALPHA
    return f"{k / n:.3f}" + (f" ({low:.3f} to {high:.3f})" if too_large else ""), too_large


def print_ideal(rows: Sequence[Row], found: Mapping[str, Any], sizes: list[int]) -> None:
    kinds = dict.fromkeys((row.design, row.assumes) for row in rows)
    for design, assumes in kinds:
        print(f"\n**{design[0].upper()}{design[1:]}, {assumes}**\n")
        print("| canaries | auditor | needs the law | 1 | 2 | 4 | 8 | above 0 on null scores | CPU ms |")
        print("|---|---|---|---|---|---|---|---|---|")
        for canaries in sizes:
            for row in rows:
                if (row.design, row.assumes) == (design, assumes):
                    print_row(row, canaries, found[row.library]["auditors"][row.name])


def print_row(row: Row, canaries: int, cells: Mapping[str, Any]) -> None:
    by_epsilon = [cells[f"{canaries} {epsilon}"]["bounds"] for epsilon in (*EPSILONS, 0)]
    name = f"`{row.name}`" if row.library == "fedassay" else f"{row.library}: `{row.name}`"
    start = f"| {canaries:,} | {name} | {'yes' if row.law else ''} "
    if not all(by_epsilon):
        print(f"{start}| not run | | | | | |")
        return
    shown = []
    for epsilon, bounds in zip(EPSILONS, by_epsilon, strict=False):
        above, invalid = share(bounds, epsilon)
        few = f" [{len(bounds)}]" if len(bounds) < 100 else ""
        shown.append(f"{np.mean(np.maximum(bounds, 0)):.2f}{few}" + (f", invalid: above {above}" if invalid else ""))
    null, invalid = share(by_epsilon[-1], 0)
    took = max(cells[f"{canaries} {epsilon}"]["seconds"] for epsilon in EPSILONS)
    few = f" [{len(by_epsilon[-1])}]" if len(by_epsilon[-1]) < 1000 else ""
    print(f"{start}| {' | '.join(shown)} | {null}{few}{', invalid' if invalid else ''} | {1000 * took:.3g} |")


def print_comparison(rows: Sequence[Row], found: Mapping[str, Any], sizes: list[int]) -> None:
    """Cells in which the best valid foreign bound differs from the best valid one of ours by two standard errors."""
    print("\nBest valid bound of the others and of ours, with equal needs (first: ours is larger by two errors)")
    tally = {"first": 0, "equal": 0, "behind": 0}
    for design, assumes in dict.fromkeys((row.design, row.assumes) for row in rows):
        for law in (False, True):
            for canaries in sizes:
                for epsilon in EPSILONS:
                    of_question = [
                        row for row in rows if (row.design, row.assumes) == (design, assumes) and row.law <= law
                    ]
                    sides = best_valid(of_question, found, canaries, epsilon)
                    if len(sides) < 2:
                        continue
                    (mean, error, name), (other, its, foreigner) = sides[True], sides[False]
                    apart = (mean - other) / max(math.hypot(error, its), 1e-9)
                    word = "first" if apart > 2 else "behind" if apart < -2 else "equal"
                    tally[word] += 1
                    if word == "behind":
                        print(
                            f"  {design}, {assumes}{', law' * law}, m {canaries}, eps {epsilon}: "
                            f"{foreigner} {other:.2f}, {name} {mean:.2f}"
                        )
    print("  cells: " + ", ".join(f"{word} {count}" for word, count in tally.items()))


def best_valid(
    rows: Sequence[Row], found: Mapping[str, Any], canaries: int, epsilon: int
) -> dict[bool, tuple[float, float, str]]:
    """Mean, its standard error, and the name of the best valid row, by whether it is ours."""
    best: dict[bool, tuple[float, float, str]] = {}
    for row in rows:
        cells = found[row.library]["auditors"][row.name]
        bounds, nulls = (cells[f"{canaries} {one}"]["bounds"] for one in (epsilon, 0))
        if len(nulls) < JUDGED or share(bounds, epsilon)[1] or share(nulls, 0)[1]:
            continue
        values = np.maximum(bounds, 0)
        own = (float(values.mean()), float(values.std() / math.sqrt(len(values))), row.name)
        mine = row.library == "fedassay"
        best[mine] = max(best.get(mine, own), own)
    return best


def print_situations(rows: Sequence[Row], found: Mapping[str, Any]) -> None:
    print("\nShare of bounds above a true epsilon of 4, from 1,000 canaries\n")
    print(f"| auditor | {' | '.join(SITUATIONS)} |\n|---|{'---|' * len(SITUATIONS)}")
    for row in rows:
        cells = found[row.library]["auditors"][row.name]
        name = f"`{row.name}`" if row.library == "fedassay" else f"{row.library}: `{row.name}`"
        print(f"| {name} | {' | '.join(share(cells[key]['bounds'], CLAIMED)[0] for key in SITUATIONS)} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=300)
    parser.add_argument("--nulls", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=6.0, help="of CPU, for one auditor and one cell")
    parser.add_argument("--canaries", type=int, nargs="+", default=[100, 1000, 10_000])
    parser.add_argument("--only", nargs="+", choices=["fedassay", *LIBRARIES], default=["fedassay", *LIBRARIES])
    parser.add_argument("--names", nargs="+", default=[], help="parts of the names of auditors")
    parser.add_argument("--environments", type=Path, default=Path("build/auditors"))
    chosen = parser.parse_args()
    cells = dict(ideal_cells(chosen.canaries, chosen.repeats, chosen.nulls, chosen.seconds))
    cells |= dict(situation_cells(min(chosen.repeats, 200), chosen.seconds))
    found = measured(cells, chosen.only, chosen.environments, chosen.names)
    print(", ".join(f"{name} {own['version']} ({own['seconds']:.0f} CPU s)" for name, own in found.items()))
    shown = [row for row in ROWS if row.name in found.get(row.library, {"auditors": ()})["auditors"]]
    print_ideal(shown, found, chosen.canaries)
    print_comparison(shown, found, chosen.canaries)
    print_situations(shown, found)


if __name__ == "__main__":
    main()
