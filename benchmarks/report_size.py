"""Time and peak memory of a large run's report and gate: 12,768 rows of 25 defenses, with scores, images and curves.

    python benchmarks/report_size.py [--defenses 25] [--seeds 8] [--folder DIR] [--profile]

Writes the run's folder, reports it in one process per format, and gates it alone and against a baseline file made of
it. Wall time counts from the start of Python; CPU seconds are better on a shared machine; the peak is the resident
set. ``--profile`` prints a profile of the page.
"""

import argparse
import cProfile
import json
import os
import pstats
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from fedassay.audit.claim import Adjacency, Claim, Unit
from fedassay.audit.curve import GaussianCurve
from fedassay.audit.observer import UPLOADS
from fedassay.reports.reading.run_folder import RunFolder
from fedassay.reports.regression.baseline import Baseline
from fedassay.suites.results.outcome import INCOMPLETE
from fedassay.suites.results.record import Record

TRIALS, CANDIDATES, IMAGES, SIDE, ROUNDS, CHECKS = 1000, 200, 8, 28, 50, 6
MEMBERSHIP, GRADIENT, FAILING = 12, 3, 8
FORMATS = ("html", "md", "latex", "csv", "claims")


class LargeRun:
    """Collects the rows of a made-up run and writes its folder."""

    def __init__(self, folder: Path, defenses: int, seeds: int) -> None:
        self.folder, self.seeds, self.rows, self.rng = folder, seeds, [], np.random.default_rng(0)
        self.defenses = ["none", *(f"defense_{number}" for number in range(1, defenses))]
        self.claims: list[dict[str, Any]] = []

    def write(self) -> int:
        """Writes everything; returns the number of rows."""
        for number, defense in enumerate(self.defenses):
            self._audit(defense, number)
            for seed in range(self.seeds):
                self._training(defense, seed)
                for attack in range(MEMBERSHIP):
                    self._membership(defense, f"membership_{attack}", seed)
                for attack in range(GRADIENT if seed < 4 else 0):
                    self._images(defense, f"inversion_{attack}", seed)
            for number in range(min(self.seeds, FAILING)):
                self._row(defense, f"failing_{number}", status="failed", metric="none", reason=f"ValueError: {defense}")
        self.folder.mkdir(parents=True, exist_ok=True)
        lines = [Record.model_validate(row).to_line() for row in self.rows]
        (self.folder / "results.jsonl").write_text("".join(lines), encoding="utf-8")
        self._json("claims.json", {"schema": "claims-1", "claims": self.claims})
        self._json("gate.json", {"verdict_line": "INCOMPLETE: made up", "exit_code": 12})
        self._json("manifest.json", self._manifest())
        return len(self.rows)

    def _json(self, name: str, content: dict[str, Any]) -> None:
        (self.folder / name).write_text(json.dumps(content), encoding="utf-8")

    def _manifest(self) -> dict[str, Any]:
        return {
            "schema": "manifest-1",
            "run_id": "r",
            "name": self.folder.name,
            "suite": {
                "name": "large",
                "version": "1",
                "alpha": 0.01,
                "federations": {"main": {"rounds": ROUNDS}},
                "defenses": {defense: {} for defense in self.defenses},
            },
            "seeds": list(range(self.seeds)),
            "command": "fedassay run large",
            "planned_cells": len({row["cell_id"] for row in self.rows}),
        }

    def _row(self, defense: str, cell: str, role: str = "attack", **fields: Any) -> None:
        row = {
            "schema": "result-2",
            "run_id": "r",
            "cell_id": f"{cell}_{defense}_{fields.get('seed')}",
            "suite": "large",
            "suite_version": "1",
            "federation": "main",
            "dataset": "digits",
            "dataset_sha256": "0" * 64,
            "model": "lenet",
            "defense": defense,
            "defense_version": "1",
            "role": role,
            "attack": cell,
            "attack_version": "1",
            "observer": "uploads",
        }
        self.rows.append(row | fields)

    def _arrays(self, cell: str, **arrays: Any) -> str:
        place = self.folder / "cells" / cell
        place.mkdir(parents=True, exist_ok=True)
        np.savez(place / "arrays.npz", **arrays)
        return f"cells/{cell}/arrays.npz"

    def _audit(self, defense: str, number: int) -> None:
        if defense == "none":
            return
        claim = Claim(
            epsilon=8.0,
            delta=1e-5,
            unit=Unit.SAMPLE,
            adjacency=Adjacency.ADD_REMOVE,
            observer=UPLOADS,
            rounds=ROUNDS,
            dp_model="local",
            mechanism="gaussian",
            parameters={"noise_multiplier": 1.0 + number},
            accountant="gdp 1",
            sampling="none assumed",
            trust="nobody",
            source="made up",
            curve=GaussianCurve(1.6),
        )
        entry = {"claim_id": claim.claim_id, "defense": defense, "federation": "main", "control": False, "variant": ""}
        self.claims.append({**entry, "claim": claim.to_dict()})
        nonmember, member = self.rng.normal(0, 1, TRIALS), self.rng.normal(1, 1, TRIALS)
        scores = {"member": member, "nonmember": nonmember, "threshold": 0.5, "fpr_high": 0.35, "fnr_high": 0.35}
        artifact = self._arrays(f"audit_{defense}", **scores, alpha=0.01)
        judged = {"claim_id": claim.claim_id, "seed": None}
        bound = {"metric": "epsilon_low", "value": 0.6, "ceiling": 4.5, "detectable": 9.0, "n": TRIALS}
        verdict = {"verdict": "NOT_REFUTED", "route": "curve", "ci_level": 0.99, "artifact": artifact}
        self._row(defense, "audit", "audit", **judged, **bound, **verdict)
        for check in range(CHECKS):
            self._row(defense, "audit", "check", **judged, metric=f"check_{check}", verdict="PASSED")

    def _training(self, defense: str, seed: int) -> None:
        accuracy = 0.9 - 0.3 * np.exp(-np.arange(ROUNDS) / 9) + self.rng.normal(0, 0.01, ROUNDS)
        cell = f"training_{defense}_{seed}"
        (self.folder / "cells" / cell).mkdir(parents=True, exist_ok=True)
        losses = 2.3 * (1 - accuracy)
        points = enumerate(zip(accuracy, losses, strict=True), start=1)
        curve = "".join(f"{number},{value:.4f},{loss:.4f}\n" for number, (value, loss) in points)
        (self.folder / "cells" / cell / "rounds.csv").write_text("round,accuracy,loss\n" + curve)
        rows = {"accuracy": float(accuracy[-1]), "loss": float(losses[-1])}
        for part, share in (("worst", 0.5), ("mean", 1.0), ("std", 0.2)):
            rows |= {f"{group}_accuracy_{part}": share * float(accuracy[-1]) for group in ("class", "client")}
        for part, size in (("client", 1e5), ("round", 1e6), ("total", 1e6 * ROUNDS)):
            rows |= {f"bytes_{way}_{part}": size for way in ("up", "down")}
        for metric, value in rows.items():
            known = {"metric": metric, "value": value, "direction": "higher_better"}
            self._row(defense, "training", "utility", seed=seed, artifact=f"cells/{cell}/rounds.csv", **known)

    def _membership(self, defense: str, attack: str, seed: int) -> None:
        scores = {"member": self.rng.normal(0.5, 1, CANDIDATES), "nonmember": self.rng.normal(0, 1, CANDIDATES)}
        setting = {"observer": "uploads", "unit": "sample", "adjacency": "add_remove", "rounds": ROUNDS}
        artifact = self._arrays(f"{attack}_{defense}_{seed}", **scores, **setting, design="clustered")
        for metric in ("auc", "balanced_accuracy"):
            value = float(self.rng.uniform(0.5, 0.9))
            self._row(
                defense, attack, seed=seed, metric=metric, value=value, direction="higher_leaks", artifact=artifact
            )

    def _images(self, defense: str, attack: str, seed: int) -> None:
        originals = self.rng.random((IMAGES, 1, SIDE, SIDE))
        psnr = self.rng.normal(12, 2, IMAGES)
        noise = self.rng.normal(0, 0.3, originals.shape)
        images = {"originals": originals, "reconstructions": np.clip(originals + noise, 0, 1), "psnr": psnr}
        artifact = self._arrays(f"{attack}_{defense}_{seed}", **images)
        place = {"seed": seed, "scope": "record", "artifact": artifact, "direction": "higher_leaks"}
        for record in range(IMAGES):
            for metric, value in (("psnr", psnr[record]), ("ssim", psnr[record] / 30)):
                self._row(defense, attack, **place, record=record, metric=metric, value=float(value))


def measure(words: list[str], codes: tuple[int, ...] = (0,)) -> str:
    """Seconds, seconds of the processor and GiB of a process of its own, which has to end with one of ``codes``."""
    start = time.perf_counter()
    child = subprocess.Popen([sys.executable, "-m", "fedassay", *words], stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(child.pid, 0)
    if (code := os.waitstatus_to_exitcode(status)) not in codes:
        raise RuntimeError(f"fedassay {' '.join(words)} ended with {code}")
    busy = usage.ru_utime + usage.ru_stime
    return f"{time.perf_counter() - start:6.2f} s  {busy:6.2f} s CPU  {usage.ru_maxrss / 2**20:5.2f} GiB"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--defenses", type=int, default=25)
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--profile", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        folder = arguments.folder or Path(place) / "large"
        print(f"{LargeRun(folder, arguments.defenses, arguments.seeds).write()} rows of {arguments.defenses} defenses")
        if arguments.profile:
            from fedassay.reports.formats.write import write_report

            profiler = cProfile.Profile()
            profiler.runcall(write_report, folder)
            pstats.Stats(profiler).sort_stats("cumulative").print_stats(45)
            return
        both = ["report", str(folder)]
        for name, words in [("html and md", both), *((f, [*both, f"--{f}", str(Path(place) / f)]) for f in FORMATS)]:
            print(f"{name:12} {measure(words)}")
        baseline = Path(place) / "baseline.json"
        Baseline.of(RunFolder.read(folder)).write(baseline)
        gate = ["gate", str(folder)]
        for name, words in (("gate", gate), ("gate against", [*gate, "--baseline", str(baseline)])):
            # Some of the cells that were made up FAILED.
            print(f"{name:12} {measure(words, codes=(INCOMPLETE,))}")
        print(f"page {(folder / 'report.html').stat().st_size / 2**20:.2f} MiB")


if __name__ == "__main__":
    main()
