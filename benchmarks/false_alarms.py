"""False alarms of the implementation checks: all of them on every correct version of the suite ``mutants``, many seeds.

    python benchmarks/false_alarms.py                       # one seed, 127 correct versions, four minutes on one core
    python benchmarks/false_alarms.py --seeds 1-16 --jobs 2 --out alarms.jsonl
    python benchmarks/false_alarms.py --out alarms.jsonl --table     # of what was measured before

A result that fails is a false alarm. For each check: how often it could look, how often it failed, and the upper end of
the 95 % Clopper-Pearson interval of the rate. Results are appended to a file, and what is in the file is not repeated.
"""

import argparse
import json
import time
from collections import Counter
from pathlib import Path

import torch
from fedassay.suites.mutation.mutants import MECHANISM, known_mutants, versions
from joblib import Parallel, delayed
from scipy.stats import beta


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", default="1-1", help="first and last seed, such as 1-16")
    parser.add_argument("--trials", action="store_true", help="trials of everything that is received too: slower")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--out", type=Path, default=None, help="file to which results are appended")
    parser.add_argument("--table", action="store_true", help="print the table of the file alone")
    args = parser.parse_args()
    rows = [] if args.out is None or not args.out.exists() else list(map(json.loads, args.out.open(encoding="utf-8")))
    known = {(row["name"], row["seed"], row["trials"]) for row in rows}
    first, _, last = args.seeds.partition("-")
    names = sorted(name for name, kind in known_mutants().items() if kind != MECHANISM)
    left = [
        (name, seed, args.trials)
        for seed in range(int(first), int(last or first) + 1)
        for name in names
        if (name, seed, args.trials) not in known and not args.table
    ]
    for row in Parallel(n_jobs=args.jobs, return_as="generator_unordered")(delayed(measured)(*one) for one in left):
        rows.append(row)
        if args.out is not None:
            with args.out.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")
    print_table(rows)


def measured(name: str, seed: int, trials: bool) -> dict[str, object]:
    """Run all checks of the correct version of a mutant; return which held, failed and could not look."""
    torch.set_num_threads(1)
    begun = time.process_time()
    results = versions(name).checks(broken=False, trials=trials, seed=seed)
    return {
        "name": name,
        "seed": seed,
        "trials": trials,
        "held": [one.name for one in results if one.passed is True],
        "failed": {one.name: one.witness for one in results if one.passed is False},
        "cpu_s": round(time.process_time() - begun, 2),
    }


def print_table(rows: list[dict[str, object]]) -> None:
    """Print the false alarms of each check and of all together."""
    held = Counter(name for row in rows for name in row["held"])
    failed = Counter(name for row in rows for name in row["failed"])
    alarmed = sum(bool(row["failed"]) for row in rows)
    names, seeds = ({row[key] for row in rows} for key in ("name", "seed"))
    print(f"{len(rows)} runs of {len(names)} correct versions, {len(seeds)} seeds")
    print(f"CPU seconds per run: {sum(row['cpu_s'] for row in rows) / max(1, len(rows)):.2f}")
    print(f"runs with a false alarm: {alarmed}, rate at most {upper(alarmed, len(rows)):.2g}")
    print("| check | looked | failed | rate at most |\n|---|---|---|---|")
    for name in sorted({*held, *failed}):
        looked = held[name] + failed[name]
        print(f"| {name} | {looked} | {failed[name]} | {upper(failed[name], looked):.2g} |")
    for row in rows:
        for name, witness in row["failed"].items():
            print(f"{row['name']}, seed {row['seed']}: {name}: {witness}")


def upper(count: int, total: int) -> float:
    """The upper end of the 95 % Clopper-Pearson interval of a rate."""
    return 1.0 if count >= total else float(beta.ppf(0.975, count + 1, total - count))


if __name__ == "__main__":
    main()
