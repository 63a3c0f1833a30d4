"""How long the gate takes for a run of ten thousand rows against a baseline: time and memory, once.

    python benchmarks/gate_rows.py

Rows: 10 defenses, 8 seeds, 5 attacks with images (24 rows a seed), 5 without, and the training.
"""

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from fedassay.reports.reading.run_folder import RunFolder
from fedassay.reports.regression.baseline import Baseline

_DEFENSES, _SEEDS, _IMAGES, _ATTACKS = 10, 8, 24, 5
_COUNTED = """
import resource, sys
from fedassay.cli.app import app
try:
    app()
finally:
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024, "MiB at most", file=sys.stderr)
"""


def main() -> None:
    with tempfile.TemporaryDirectory() as place:
        one, two = (_run(Path(place) / name, shift) for name, shift in (("base", 0.0), ("new", 0.01)))
        rows = len((two / "results.jsonl").read_text().splitlines())
        kept = Baseline.of(RunFolder.read(one)).write(Path(place) / "base.json")
        print(f"baseline of {rows} rows: {kept.stat().st_size // 1024} KiB")
        written = ["--junit", str(Path(place) / "junit.xml"), "--summary", str(Path(place) / "summary.md")]
        for name, base, extra in (("a file", kept, []), ("a run", one, []), ("a file, all written", kept, written)):
            words = ["gate", str(two), "--baseline", str(base), *extra]
            start = time.perf_counter()
            done = subprocess.run([sys.executable, "-c", _COUNTED, *words], capture_output=True, text=True, check=True)
            print(f"{rows} rows against {name}: {time.perf_counter() - start:.2f} s, {done.stderr.strip()}")


def _run(folder: Path, shift: float) -> Path:
    rng = np.random.default_rng(0)
    rows = []
    for defense in range(_DEFENSES):
        for seed in range(_SEEDS):
            for attack in range(_ATTACKS):
                for image in range(_IMAGES):
                    rows.append(_row(defense, f"inversion_{attack}", "psnr", seed, 10 + rng.normal(), record=image))
                rows.append(_row(defense, f"membership_{attack}", "auc", seed, 0.6 + shift + 0.01 * rng.normal()))
            utility = _row(defense, "training", "accuracy", seed, 0.9 + 0.01 * rng.normal())
            rows.append(utility | {"role": "utility", "direction": "higher_better"})
    folder.mkdir()
    manifest = {"schema": "manifest-1", "run_id": "r", "name": folder.name, "suite": {"name": "s"}, "command": "none"}
    manifest |= {"seeds": list(range(_SEEDS)), "planned_cells": len({row["cell_id"] for row in rows})}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    (folder / "results.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def _row(
    defense: int, attack: str, metric: str, seed: int, value: float, record: int | None = None
) -> dict[str, object]:
    return {
        "schema": "result-1",
        "run_id": "r",
        "cell_id": f"{defense}_{attack}_{seed}",
        "suite": "s",
        "suite_version": "1",
        "federation": "main",
        "dataset": "digits",
        "dataset_sha256": "0" * 64,
        "model": "mlp",
        "defense": f"defense_{defense}",
        "defense_version": "1",
        "role": "attack",
        "attack": attack,
        "attack_version": "1",
        "observer": "uploads",
        "metric": metric,
        "direction": "higher_leaks",
        "seed": seed,
        "value": value,
        "record": record,
        "scope": "run" if record is None else "record",
    }


if __name__ == "__main__":
    main()
