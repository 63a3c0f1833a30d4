"""Auditors of one foreign library on given scores: run by ``auditors.py`` with the interpreter of that library.

    PYTHON foreign_auditors.py LIBRARY scores.npz found.json [NAME ...]

The npz file holds scores (n, m) and coins (n, m) of each cell, and the cells as JSON. Written are, by auditor and cell,
the bounds of the first repeats that fit into the cell's CPU seconds, and CPU seconds per call. Names (or parts of them)
select auditors.
"""

import importlib
import json
import sys
import time
import warnings
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

Cell = dict[str, Any]
Auditor = Callable[[np.ndarray, np.ndarray, Cell], float]
"""(m,) scores, higher means included; (m,) coins; the cell -> lower bound on epsilon."""


class ByCount:
    """An auditor whose bound depends on one number alone, and so slow that equal numbers share a call.

    Between two numbers whose bounds differ by at most ``tolerance`` the bound is interpolated. ``fixed``: the key of
    the cell on which the bound depends too; ``most``: canaries that are not too many; ``known``: bounds by number.
    """

    def __init__(
        self,
        count: Callable[..., int],
        bound: Auditor,
        *,
        tolerance: float,
        fixed: str = "",
        most: int = 10**9,
        known: dict[tuple[Any, ...], float] | None = None,
    ) -> None:
        self.count, self.bound, self.tolerance, self.fixed, self.most = count, bound, tolerance, fixed, most
        self.known = {} if known is None else known

    def all_bounds(self, scores: np.ndarray, coins: np.ndarray, cell: Cell) -> tuple[list[float], float]:
        if scores.shape[1] > self.most:
            return [], 0.0
        counts = np.array([self.count(*pair, cell) for pair in zip(scores, coins, strict=True)])
        values, first = np.unique(counts, return_index=True)
        found: dict[int, float] = {}
        spent, calls = 0.0, 0

        def call(at: int) -> float:
            nonlocal spent, calls
            key = (scores.shape[1], cell.get(self.fixed), int(values[at]))
            if key not in self.known:
                start = time.process_time()
                self.known[key] = self.bound(scores[first[at]], coins[first[at]], cell)
                spent, calls = spent + time.process_time() - start, calls + 1
            return found.setdefault(int(values[at]), self.known[key])

        def fill(low: int, high: int) -> None:
            ends = call(low), call(high)
            # Never across 0, so that the share of bounds above 0 is exact.
            if high - low > 1 and (min(ends) == 0 < max(ends) or abs(ends[1] - ends[0]) > self.tolerance):
                fill(low, (low + high) // 2)
                fill((low + high) // 2, high)

        fill(0, len(values) - 1)
        bounds = np.interp(counts, sorted(found), [found[value] for value in sorted(found)])
        return bounds.tolist(), spent / calls if calls else 0.0


def selected(auditors: dict[str, Any], parts: list[str]) -> dict[str, Any]:
    return {name: one for name, one in auditors.items() if not parts or any(part in name for part in parts)}


def timed(auditor: Auditor, scores: np.ndarray, coins: np.ndarray, cell: Cell) -> tuple[list[float], float]:
    start, bounds = time.process_time(), list[float]()
    for pair in zip(scores, coins, strict=True):
        bounds.append(float(auditor(*pair, cell)))
        if time.process_time() - start > cell["seconds"]:
            break
    return bounds, (time.process_time() - start) / len(bounds)


def jax_privacy() -> dict[str, Auditor | ByCount]:
    auditing = importlib.import_module("jax_privacy.auditing")

    def by(method: str, strategy: Callable[[Cell], Any]) -> Auditor:
        def bound(scores: np.ndarray, coins: np.ndarray, cell: Cell) -> float:
            auditor = auditing.CanaryScoreAuditor(scores[coins], scores[~coins])
            found = getattr(auditor, method)(cell["alpha"], cell["delta"], threshold_strategy=strategy(cell))
            return float(found)

        return bound

    def gdp(scores: np.ndarray, coins: np.ndarray, cell: Cell) -> float:
        auditor = auditing.CanaryScoreAuditor(scores[coins], scores[~coins])
        return float(auditor.epsilon_from_gdp(cell["alpha"], cell["delta"]))

    found: dict[str, Auditor | ByCount] = {"epsilon_from_gdp": gdp}
    for method in ("epsilon_one_run", "epsilon_one_run_fdp", "epsilon_clopper_pearson"):
        found[f"{method}, Bonferroni"] = by(method, lambda cell: auditing.Bonferroni())
        found[f"{method}, Split"] = by(method, lambda cell: auditing.Split(seed=0))
        found[f"{method}, Explicit"] = by(method, lambda cell, name=method: auditing.Explicit(cell[name]))
    return found


def opake() -> dict[str, Auditor | ByCount]:
    auditing, types = importlib.import_module("opake.auditing"), importlib.import_module("opake.auditing.types")

    def estimate(scores: np.ndarray, coins: np.ndarray) -> Any:
        places = np.arange(len(scores))
        flips = types.CoinFlip(len(scores), places, coins, places[coins], places[~coins], len(scores))
        return auditing.one_run(auditing.canary_scores(scores, canary_indices=places), coin_flip=flips)

    def eps_delta(cut: str | None) -> Auditor:
        return lambda scores, coins, cell: (
            estimate(scores, coins)
            .eps_delta()
            .epsilon_at(delta=cell["delta"], significance=cell["alpha"], threshold=cell[cut] if cut else None)
        )

    # A third of the default grid, which gave the same bounds in five draws of 100, 1,000 and 10,000 canaries.
    def gdp(cut: str | None) -> Auditor:
        return lambda scores, coins, cell: (
            estimate(scores, coins)
            .gdp(grid_size=3000)
            .epsilon_at(delta=cell["delta"], significance=cell["alpha"], threshold=cell[cut] if cut else None)
        )

    def fewest_errors(scores: np.ndarray, coins: np.ndarray, cell: Cell) -> int:
        steps = np.where(coins[np.argsort(scores, kind="stable")], 1, -1)
        return int((~coins).sum() + min(0, np.cumsum(steps).min()))

    def errors_at_cut(scores: np.ndarray, coins: np.ndarray, cell: Cell) -> int:
        return int(((scores >= cell["middle"]) != coins).sum())

    known: dict[tuple[Any, ...], float] = {}
    return {
        "eps_delta": eps_delta(None),
        "eps_delta, threshold": eps_delta("middle"),
        "gdp": ByCount(fewest_errors, gdp(None), tolerance=0.2, known=known),
        "gdp, threshold": ByCount(errors_at_cut, gdp("middle"), tolerance=0.2, known=known),
    }


def privacyguard() -> dict[str, Auditor | ByCount]:
    pandas = importlib.import_module("pandas")
    mia = "privacy_guard.analysis.mia"
    node = importlib.import_module(f"{mia}.analysis_node").AnalysisNode
    curve = importlib.import_module(f"{mia}.fdp_analysis_node").FDPAnalysisNode
    given = importlib.import_module(f"{mia}.aggregate_analysis_input")

    def analysis(scores: np.ndarray, coins: np.ndarray, cell: Cell, resamples: int) -> Any:
        sides = [pandas.DataFrame({"user_id": np.arange(len(x)), "score": x}) for x in (scores[coins], scores[~coins])]
        users = given.AggregateAnalysisInput(given.AggregationType.NONE, *sides, "user_id")
        return node(
            users, delta=cell["delta"], n_users_for_eval=len(scores), num_bootstrap_resampling_times=resamples
        ).run_analysis()

    def right(scores: np.ndarray, coins: np.ndarray, cell: Cell) -> int:
        held, side = coins[np.argsort(scores)], cell["made"] // 2
        return int(held[-side:].sum() + (~held[:side]).sum())

    def fdp(scores: np.ndarray, coins: np.ndarray, cell: Cell) -> float:
        made, found = cell["made"] // 2 * 2, right(scores, coins, cell)
        return float(
            curve(m=len(scores), c=found, c_cap=made, threshold=cell["alpha"], delta=cell["delta"]).run_analysis().eps
        )

    return {
        "AnalysisNode, eps_cp": lambda scores, coins, cell: analysis(scores, coins, cell, 2).eps_cp,
        "AnalysisNode, eps_lb": lambda scores, coins, cell: analysis(scores, coins, cell, 200).eps_lb,
        "FDPAnalysisNode": ByCount(right, fdp, tolerance=0.5, fixed="made", most=1000),
    }


def privacy_estimates() -> dict[str, Auditor | ByCount]:
    library = importlib.import_module("privacy_estimates")

    def by(method: str) -> Auditor:
        def bound(scores: np.ndarray, coins: np.ndarray, cell: Cell) -> float:
            over = scores >= cell["epsilon_clopper_pearson"]
            # Python's own whole numbers, as its command reads them.
            counts = {
                "FN": int((~over & coins).sum()),
                "FP": int((over & ~coins).sum()),
                "TN": int((~over & ~coins).sum()),
                "TP": int((over & coins).sum()),
            }
            return float(
                library.compute_eps_lo(
                    count=library.AttackResults(**counts), delta=cell["delta"], alpha=cell["alpha"], method=method
                )
            )

        return bound

    return {"beta, threshold": by("beta"), "jeffreys, threshold": by("jeffreys")}


LIBRARIES = {
    "jax_privacy": ("jax-privacy", jax_privacy),
    "opake": ("opake-auditing", opake),
    "privacyguard": ("privacyguard-platform", privacyguard),
    "privacy_estimates": ("privacy-estimates", privacy_estimates),
}
"""By name: the package to install, and the auditors that are called."""


def main() -> None:
    name, scores_file, found_file, *parts = sys.argv[1:]
    warnings.simplefilter("ignore")
    package, auditors = LIBRARIES[name]
    found: dict[str, Any] = {"version": version(package), "auditors": {}}
    with np.load(scores_file) as given:
        cells: dict[str, Cell] = json.loads(str(given["cells"]))
        arrays = {cell: (given[f"{cell} scores"], given[f"{cell} coins"]) for cell in cells}
    for auditor, method in selected(auditors(), parts).items():
        rows = found["auditors"][auditor] = {}
        for key, cell in cells.items():
            way = method.all_bounds if isinstance(method, ByCount) else lambda *given, own=method: timed(own, *given)
            bounds, seconds = way(*arrays[key], cell)
            rows[key] = {"bounds": bounds, "seconds": seconds}
    found["seconds"] = time.process_time()
    Path(found_file).write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    main()
