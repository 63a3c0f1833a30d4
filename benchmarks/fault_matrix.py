"""The matrix of faults and checks: which implementation checks find which fault, and what each of them costs.

    python benchmarks/fault_matrix.py                    # all faults and correct versions, half an hour on one core
    python benchmarks/fault_matrix.py --only last_coordinate_bare,triple_noise    # these again
    python benchmarks/fault_matrix.py --rows FILE        # from the rows of a whole run, which measures nothing again
    python benchmarks/fault_matrix.py --table            # the tables of what was measured, and nothing else

Faults are the broken versions of the suite ``mutants`` and those of the Opacus trainings of the tests; correct versions
run with them. All draws have seed 0. As in audits, trials of all that is received are made of faults that no other
check finds. Each version is a line of ``--rows`` as it ends, and a whole run does not repeat what is in that file. With
``--only``, the measured versions replace theirs in the committed matrix. Where each check looked, and what it costs,
stay as the last whole run has them.

Some checks fail for no fault of the matrix, or only where others fail too. They are kept for faults that they alone can
see, as their tests show:

- curve of the law: a curve that promises more than its epsilon.
- noise present, noise fresh between clients, noise of its own in every run: missing or shared noise without a law.
- noise fresh between rounds: the same, where noise has one direction only.
- rows that follow releases: a clip that is loose along the last aggregate.
- rows outside the lot: gradients of samples that were not drawn are summed up.
- arrays sent with reports: counts of the real data, which no planted row moves, with too little noise.
- arrays together: a budget that each of several noised vectors takes for itself.
- pure epsilon of the releases: an L2 clip where an L1 one is accounted, and half of the noise of a sum.
- reports before the shuffler: a local budget that is too large, or one coin for all clients.
- epsilon of the shuffled law: amplification that counts more clients than there are.
- noise shape, noise along the sum: in a single run, uniform noise of the stated size, and noise without its
  part along the sum.
- sizes of lots, records in common, neighbouring records, sampling rate: lots of one size, lots that come again in each
  epoch, windows of the data, and lots drawn more often than accounted.
- noise multiplier accounted, epsilon accounted, updates without a release: a history that does not fit its run.
"""

import argparse
import json
import signal
import statistics
import sys
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from fedassay.adapters.opacus import Training
from fedassay.audit.check import CheckResult
from fedassay.suites.mutation.mutants import CORRECT_CASE, MECHANISM, TRANSFER, known_mutants, versions

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "builders"))
from opacus_runs import BROKEN, CORRECT, records  # noqa: E402

MATRIX = ROOT / "tests" / "checks" / "fault_matrix.json"
OPACUS = "Opacus training"
SEED = 0
Row = dict[str, Any]


def tasks() -> Iterator[tuple[str, str, bool]]:
    """Name, kind and whether it is broken, of every version that has checks."""
    for name, kind in sorted(known_mutants().items()):
        if kind not in (MECHANISM, TRANSFER):
            yield from ((name, kind, broken) for broken in (True, False) if not (broken and kind == CORRECT_CASE))
    for names, broken in ((CORRECT, False), (BROKEN, True)):
        yield from ((name, OPACUS, broken) for name in names)


def results_of(name: str, kind: str, *, broken: bool) -> tuple[CheckResult, ...]:
    """Run the checks of one version."""
    if kind != OPACUS:
        return versions(name).checks(broken=broken, trials=broken, seed=SEED)
    build, train = (CORRECT | BROKEN)[name][:2]
    return Training(build, train, records(), delta=1e-5).watch(SEED).results


def measured(name: str, kind: str, *, broken: bool) -> Row:
    """Run the checks of one version; return which failed and could not look, and CPU seconds by group of checks."""
    begun = time.process_time()
    with sampled() as (groups, homes):
        results = results_of(name, kind, broken=broken)
    return {
        "name": name,
        "kind": kind,
        "broken": broken,
        "failed": sorted(one.name for one in results if one.passed is False),
        "passed": sorted(one.name for one in results if one.passed is True),
        "skipped": sorted(one.name for one in results if one.passed is None),
        "cpu_s": round(time.process_time() - begun, 2),
        "groups": {group: round(spent, 3) for group, spent in groups.items()},
        "homes": {one.name: homes[one.name] for one in results if one.name in homes},
    }


@contextmanager
def sampled() -> Iterator[tuple[Counter[str], dict[str, str]]]:
    """CPU seconds by the function of checks that runs, from samples of the stack, and the function that made the result
    of each name.
    """
    groups: Counter[str] = Counter()
    homes: dict[str, str] = {}
    last = time.process_time()

    def sample(_: int, frame: Any) -> None:
        nonlocal last
        now = time.process_time()
        groups[group_of(frame)] += now - last
        last = now

    own = CheckResult.__init__

    def made(self: CheckResult, *args: Any, **fields: Any) -> None:
        own(self, *args, **fields)
        # The first one: results are made again with other words.
        homes.setdefault(self.name, group_of(sys._getframe(1)))

    before = signal.signal(signal.SIGPROF, sample)
    signal.setitimer(signal.ITIMER_PROF, 0.005, 0.005)
    CheckResult.__init__ = made  # type: ignore[method-assign]
    try:
        yield groups, homes
    finally:
        CheckResult.__init__ = own  # type: ignore[method-assign]
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def group_of(frame: Any) -> str:
    """The innermost public function of a folder of checks that is named as a check, or else the innermost file."""
    file = "federation"
    while frame is not None:
        name, home = frame.f_code.co_name, Path(frame.f_code.co_filename)
        if "checks" in home.parts:
            if name.rstrip("s").endswith("check") and name[0] != "_":
                return f"{home.stem}.{name}"
            file = home.stem if file == "federation" else file
        frame = frame.f_back
    return file


def updated(committed: Row, rows: list[Row]) -> Row:
    """Return the committed matrix with the given rows in place of its own.

    What each check looked at and costs is a sum over all versions: it changes only where the rows are of all of them.
    """
    known = {broken: {name for name, _, one in tasks() if one is broken} for broken in (True, False)}
    rows = [row for row in rows if row["name"] in known[row["broken"]]]
    whole = len(rows) == sum(map(len, known.values()))
    return {
        "seed": SEED,
        "expected": {"faults": "REFUTED", "correct": "no check fails"},
        "checks": _checks(rows) if whole else committed["checks"],
        "groups": _groups(rows) if whole else committed["groups"],
        "faults": _versions(committed["faults"], rows, known[True], broken=True),
        "correct": _versions(committed["correct"], rows, known[False], broken=False),
        "trials alone": sorted(name for name, kind in known_mutants().items() if kind in (MECHANISM, TRANSFER)),
    }


def _checks(rows: list[Row]) -> Row:
    """By check, the group that makes its result, and the number of versions at which it looked."""
    homes = {name: home for row in rows for name, home in row["homes"].items()}
    looked = Counter(name for row in rows for name in (*row["failed"], *row["passed"]))
    names = sorted({name for row in rows for part in ("failed", "passed", "skipped") for name in row[part]})
    return {name: {"group": homes.get(name, "none"), "looked": looked[name]} for name in names}


def _groups(rows: list[Row]) -> Row:
    """By group of checks, the number of versions at which it ran, and CPU seconds of a run."""
    cost: dict[str, list[float]] = {}
    for row in rows:
        for group, spent in row["groups"].items():
            cost.setdefault(group, []).append(spent)
    return {
        group: {"runs": len(spent), "cpu_s": round(sum(spent) / len(spent), 3)} for group, spent in sorted(cost.items())
    }


def _versions(committed: Row, rows: list[Row], known: set[str], *, broken: bool) -> Row:
    """By version that still exists, the checks that failed, those that could not look, and the costs."""
    kept = ("kind", "failed", "skipped", "cpu_s")
    measured = {row["name"]: {key: row[key] for key in kept} for row in rows if row["broken"] is broken}
    found = {name: row for name, row in (committed | measured).items() if name in known}
    return dict(sorted(found.items(), key=lambda item: (item[1]["kind"], item[0])))


def written(matrix: Row) -> str:
    """JSON with one line per check, group and version, so that a change of one is one line."""
    parts = []
    for key, value in matrix.items():
        if isinstance(value, dict) and key != "expected":
            lines = ",\n".join(f"    {json.dumps(name)}: {json.dumps(one)}" for name, one in value.items())
            parts.append(f"  {json.dumps(key)}: {{\n{lines}\n  }}")
        else:
            parts.append(f"  {json.dumps(key)}: {json.dumps(value)}")
    return "{\n" + ",\n".join(parts) + "\n}\n"


def print_table(matrix: Row) -> None:
    """Print what each check finds, by itself and with others, and what its group costs."""
    faults, checks, groups = matrix["faults"], matrix["checks"], matrix["groups"]
    found = {name: [fault for fault, row in faults.items() if name in row["failed"]] for name in checks}
    alone = {name: [fault for fault in found[name] if len(faults[fault]["failed"]) == 1] for name in checks}
    counts = [len(row["failed"]) for row in faults.values()]
    missed = [fault for fault, row in faults.items() if not row["failed"]]
    accused = {name: row["failed"] for name, row in matrix["correct"].items() if row["failed"]}
    print(f"{len(faults)} faults, {statistics.median(counts):g} checks fail in the median; none in: {missed}")
    print(f"{len(matrix['correct'])} correct versions, accused: {accused or 'none'}")
    print("| check | looked | faults found | only detector of | group | CPU s per run |\n|---|---|---|---|---|---|")
    for name in sorted(checks, key=lambda name: (-len(found[name]), name)):
        group = checks[name]["group"]
        spent = groups.get(group, {}).get("cpu_s", 0.0)
        only = ", ".join(alone[name]) or "-"
        print(f"| {name} | {checks[name]['looked']} | {len(found[name])} | {only} | {group} | {spent} |")
    print("never failed:", ", ".join(name for name in checks if not found[name]))
    for name in checks:
        others = [other for other in checks if other != name and set(found[name]) <= set(found[other])]
        if found[name] and others:
            print(f"all that {name!r} finds is found by any of: {', '.join(others)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="names of faults, with commas, measured again")
    parser.add_argument("--rows", type=Path, default=ROOT / "build" / "fault_rows.jsonl")
    parser.add_argument("--table", action="store_true", help="print the tables of the committed matrix alone")
    args = parser.parse_args()
    if args.table:
        print_table(json.loads(MATRIX.read_text(encoding="utf-8")))
        return
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    rows = list(map(json.loads, args.rows.open(encoding="utf-8"))) if args.rows.exists() else []
    again = set(filter(None, args.only.split(",")))
    # Rows of the file may be older than what is committed: they count in whole runs alone.
    known = {} if again else {(row["name"], row["broken"]): row for row in rows}
    for name, kind, broken in tasks():
        if name in again or ((name, broken) not in known and not again):
            known[name, broken] = row = measured(name, kind, broken=broken)
            print(f"{name}: {row['failed']}, {row['cpu_s']} s", file=sys.stderr, flush=True)
            args.rows.parent.mkdir(exist_ok=True)
            with args.rows.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")
    matrix = updated(json.loads(MATRIX.read_text(encoding="utf-8")), list(known.values()))
    MATRIX.write_text(written(matrix), encoding="utf-8")
    print_table(matrix)


if __name__ == "__main__":
    main()
