"""Runs suites on the CPU and on a GPU, and compares their times and verdicts.

    python benchmarks/training_on_cuda.py [--jobs 1] [--suites standard membership_final papers/adap_dp_fl]

Each suite is run once on each device, in runs of one seed. CPU seconds are those of all processes, wall seconds those
of the whole run. A verdict belongs to a claim, or to one of its checks; those that differ are listed with both. Bounds
may differ by the rounding of float32. Without a GPU the script prints so and runs nothing.
"""

import argparse
import json
import tempfile
import time
from pathlib import Path

import fedassay
import torch

SUITES = ["standard", "membership_final", "papers/adap_dp_fl"]
Key = tuple[str, ...]


def verdicts(folder: Path) -> dict[Key, str]:
    """The verdict of each row that has one, by all that names the row on both devices."""
    rows = [json.loads(line) for line in (folder / "results.jsonl").read_text().splitlines()]
    names = ("federation", "defense", "variant", "role", "attack", "claim_id", "metric", "route", "seed")
    return {tuple(str(row[name]) for name in names): row["verdict"] for row in rows if row["verdict"]}


def timed(suite: str, device: str, jobs: int, folder: Path) -> tuple[float, float]:
    """The wall and CPU seconds of a run in ``folder``."""
    begun = time.perf_counter()
    fedassay.run(suite, device=device, jobs=jobs, seeds=1, folder=folder, report=False)
    wall = time.perf_counter() - begun
    return wall, json.loads((folder / "manifest.json").read_text()).get("cpu_s", float("nan"))


def compared(suite: str, jobs: int) -> None:
    """Print the times of a suite on both devices, and the verdicts that differ."""
    found = dict[str, dict[Key, str]]()
    with tempfile.TemporaryDirectory() as root:
        for device in ("cpu", "cuda"):
            folder = Path(root) / device
            wall, cpu = timed(suite, device, jobs, folder)
            print(f"{suite} on {device}: {wall:.0f} s, {cpu:.0f} CPU s", flush=True)
            found[device] = verdicts(folder)
    names = sorted({*found["cpu"], *found["cuda"]})
    differing = [name for name in names if found["cpu"].get(name) != found["cuda"].get(name)]
    print(f"{suite}: {len(names)} verdicts, {len(differing)} of them differ")
    for name in differing:
        print(f"  {' '.join(name)}: {found['cpu'].get(name)} on the CPU, {found['cuda'].get(name)} on the GPU")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--suites", nargs="+", default=SUITES)
    given = parser.parse_args()
    if not torch.cuda.is_available():
        print("There is no GPU here that this build of PyTorch can use: nothing was run.")
        return
    print(f"GPU: {torch.cuda.get_device_name(0)}, PyTorch {torch.__version__}")
    for suite in given.suites:
        compared(suite, given.jobs)


if __name__ == "__main__":
    main()
