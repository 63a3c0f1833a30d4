"""The estimate of a run's CPU time on a machine without earlier runs, against the time that the run then takes.

    python benchmarks/estimate_accuracy.py                        # three small suites, a few CPU minutes
    python benchmarks/estimate_accuracy.py labels --preset smoke  # another one

Estimate and run are made by processes of their own, in one process each. An estimate within a factor 1.5 is good.
"""

import argparse
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

CASES = (
    ("quick", "--seeds", "1"),
    ("labels", "--seeds", "1"),
    ("text", "--preset", "smoke"),
)
GOOD = 1.5
_UNITS = {"s": 1, "min": 60}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    _, words = parser.parse_known_args()
    print(f"{'suite':44} {'estimate':>9} {'measured':>9} {'ratio':>6}")
    for case in [tuple(words)] if words else CASES:
        expected, measured = times_of(case)
        ratio = measured / expected
        verdict = "" if 1 / GOOD <= ratio <= GOOD else f"  off by more than {GOOD:g}"
        print(f"{' '.join(case):44} {expected:7.0f} s {measured:7.0f} s {ratio:6.2f}{verdict}", flush=True)


def times_of(case: tuple[str, ...]) -> tuple[float, float]:
    """Return the CPU seconds that ``fedassay plan`` expects of a suite, and those that ``fedassay run`` takes."""
    with tempfile.TemporaryDirectory() as folder:
        planned = _fedassay(folder, "plan", *case)
        found = re.search(r"about (\d+) (s|min) of CPU time", planned)
        if found is None:
            raise SystemExit(f"no estimate of {' '.join(case)}: {planned}")
        _fedassay(folder, "run", *case, "-j", "1", "-o", "run")
        manifest = json.loads((Path(folder) / "run" / "manifest.json").read_text(encoding="utf-8"))
    return float(found[1]) * _UNITS[found[2]], float(manifest["cpu_s"])


def _fedassay(folder: str, *words: str) -> str:
    # A run with a verdict other than OK is a run as well.
    done = subprocess.run(
        [sys.executable, "-m", "fedassay", *words], cwd=folder, capture_output=True, text=True, check=False
    )
    if done.returncode in (1, 2):
        raise SystemExit(done.stderr)
    return done.stdout


if __name__ == "__main__":
    main()
