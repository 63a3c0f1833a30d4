"""Exit codes of the cases of the suite ``mutants``, each audited as a user's defense: correct ones, and broken pairs.

    python benchmarks/case_exit_codes.py                  # correct cases, one seed, ten minutes on one core
    python benchmarks/case_exit_codes.py --seeds 20 --out honest.jsonl --only delayed_rounds,lazy_draws
    python benchmarks/case_exit_codes.py --version broken --law hidden   # broken pairs, without their laws
    python benchmarks/case_exit_codes.py --out honest.jsonl --table       # of what was measured before
    python benchmarks/case_exit_codes.py --file benchmarks/audited_cases/broken.py     # the defenses of a file

Each seed is a run of its own, in which each case has an exit code: 0, or 10 (REFUTED), 11 (a check failed, or the
verdict is UNDERPOWERED or OUT OF SCOPE) or 12. Results are appended to a file, and what is in the file is not repeated.
"""

import argparse
import json
import re
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path

from fedassay.api import run
from fedassay.audit.claim import Unit
from fedassay.defenses.defense import Defense, Prepared
from fedassay.fl.plan import Plan
from fedassay.suites.config.part_listing import correct_cases, faults
from fedassay.suites.results.outcome import judge_run
from fedassay.suites.results.record import Record

SUITE = """\
name = "case_exit_codes"
description = "Protections of the suite mutants, as defenses."
alpha = 0.01
seeds = 1

[federations.main]
dataset = "digits"
model = "logistic"
partition = { kind = "dirichlet", alpha = 1.0 }
clients = 6
samples = 90
rounds = 5
algorithm = { name = "fedsgd", learning_rate = 1.0 }

[audit]
clients = 2
samples_per_client = 16
replicas = 200
most_replicas = 2000
batch = 200
"""
SGD = '{ name = "fedsgd", learning_rate = 1.0 }'
PLANS = {
    Unit.SAMPLE: "plan = { lot = { poisson = 0.25 } }",
    Unit.CLIENT: "plan = { cohort = { poisson = 0.5 } }",
}
VERSIONS = {"case": correct_cases, "broken": faults, "correct": faults}
_NUMBERS = re.compile(r"\d[\d,.]*(e-?\d+)?")


@dataclass(frozen=True, kw_only=True)
class AuditedCase(Defense):
    """A case of the suite ``mutants`` as a defense; the claims of correct cases state their noise.

    ``kind``: ``case`` (an unusual correct case), or the ``broken`` or the ``correct`` one of a pair. ``law`` of a
    pair: its ``own``, ``hidden``, or hidden with claims that have their noise ``stated``.
    """

    case: str
    kind: str = "case"
    law: str = "own"

    def prepare(self, plan: Plan) -> Prepared:
        if self.kind != "case":
            part = faults()[self.case].load()
            prepared = part.prepare(plan) if self.kind == "broken" else part.correct(plan)
            if self.law != "own":
                own = type(prepared.protection)
                hidden = type(own.__name__, (own,), {"law": _no_law, "__module__": own.__module__})
                prepared = replace(prepared, protection=hidden(**vars(prepared.protection)))
            return _stated(prepared) if self.law == "stated" else prepared
        return _stated(correct_cases()[self.case].load().prepare(plan))


def _stated(prepared: Prepared) -> Prepared:
    """The defense with claims that state their noise, as the documentation asks where no law is published."""
    multiplier = getattr(prepared.protection, "noise_multiplier", None)
    # Noise at delta 0 is not Gaussian.
    claims = tuple(
        replace(claim, parameters={**claim.parameters, "noise_multiplier": multiplier})
        if multiplier and claim.delta > 0 and "rate" in claim.parameters
        else claim
        for claim in prepared.claims
    )
    return Prepared(protection=prepared.protection, claims=claims)


def _no_law(self: object, observer: object, plan: object, client: object) -> None:
    return None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--only", default="", help="names of cases, with commas")
    parser.add_argument("--out", type=Path, default=None, help="file to which results are appended")
    parser.add_argument("--version", choices=["case", "broken", "correct"], default="case")
    parser.add_argument("--law", choices=["own", "hidden", "stated"], default="own")
    parser.add_argument("--file", type=Path, default=None, help="audit the defenses of this file")
    parser.add_argument("--table", action="store_true", help="print the table of the file alone")
    args = parser.parse_args()
    of_file = {} if args.file is None else defenses_of(args.file)
    names = args.only.split(",") if args.only else sorted(of_file or VERSIONS[args.version]())
    rows = [] if args.out is None or not args.out.exists() else list(map(json.loads, args.out.open(encoding="utf-8")))
    kind = {"version": args.file.stem if args.file else args.version, "law": args.law}
    known = {(row["case"], row["seed"]) for row in rows if row.items() >= kind.items()}
    for seed in range(0 if args.table else args.seeds):
        if left := [name for name in names if (name, seed) not in known]:
            found = []
            for few in [[name] for name in left] if of_file else [left]:
                some = (
                    of_one(args.file, of_file[few[0]], seed) if of_file else measured(few, seed, args.version, args.law)
                )
                found += [row | kind for row in some]
                if args.out is not None:
                    with args.out.open("a", encoding="utf-8") as file:
                        file.writelines(json.dumps(row | kind) + "\n" for row in some)
            rows += found
            print(f"seed {seed}: {dict(Counter(row['exit'] for row in found))}", file=sys.stderr, flush=True)
    print_table(rows)


def measured(names: list[str], seed: int, version: str, law: str) -> list[dict[str, object]]:
    """Run all cases on one seed; return their exit codes with the reasons."""
    steps = {name: VERSIONS[version]()[name].load().local_steps for name in names}
    alike = [[name for name in names if steps[name] == count] for count in sorted(set(steps.values()))]
    return [row for few in alike for row in _measured(few, seed, version, steps[few[0]], law)]


def defenses_of(path: Path) -> dict[str, type[Defense]]:
    """The defenses that a file defines and nothing in it derives from, by name."""
    sys.path.insert(0, str(path.parent))
    parts = vars(import_module(path.stem)).values()
    own = [one for one in parts if isinstance(one, type) and issubclass(one, Defense) and one.__module__ == path.stem]
    return {one.__name__: one for one in own if not any(one in other.__bases__ for other in own)}


def of_one(path: Path, case: type[Defense], seed: int) -> list[dict[str, object]]:
    """Run one defense of a file in a federation with its own ``FEDERATION`` keys and ``PREPARATION``."""
    keys = dict(getattr(case, "FEDERATION", {}))
    plan = f"plan = {_inline(keys.pop('plan'))}\n" if "plan" in keys else ""
    if hasattr(case, "PREPARATION"):
        keys["preparation"] = f"{path.stem}:{case.PREPARATION}"
    suite = SUITE.replace("rounds = 5\n", "" if "rounds" in keys else "rounds = 4\n")
    suite = suite.replace(
        "clients = 6\n", "clients = 6\n" + "".join(f"{key} = {_inline(one)}\n" for key, one in keys.items())
    )
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "case.toml"
        file.write_text(
            f'{suite}\n[defenses.{case.__name__}]\npart = "{path.stem}:{case.__name__}"\n{plan}', encoding="utf-8"
        )
        records = run(file, seed=seed, seeds=1, jobs=1, folder=Path(folder) / "out", report=False).records
    return [_row(case.__name__, seed, records)]


def _inline(value: object) -> str:
    """A value as TOML writes it on one line."""
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {_inline(one)}" for key, one in value.items()) + " }"
    return json.dumps(value)


def _measured(names: list[str], seed: int, version: str, steps: int, law: str) -> list[dict[str, object]]:
    suite = (
        SUITE
        if steps == 1
        else SUITE.replace(SGD, f'{{ name = "fedavg", learning_rate = 1.0, local_steps = {steps} }}')
    )
    tables = [
        f'[defenses.{name}]\npart = "case_exit_codes:AuditedCase"\ncase = "{name}"\n'
        f'kind = "{version}"\nlaw = "{law}"\n' + PLANS.get(VERSIONS[version]()[name].load().sampled, "")
        for name in names
    ]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "honest.toml"
        path.write_text("\n\n".join([suite, *tables]) + "\n", encoding="utf-8")
        records = run(path, seed=seed, seeds=1, jobs=1, folder=Path(folder) / "out", report=False).records
    return [_row(name, seed, [one for one in records if one.defense == name]) for name in names]


def _row(name: str, seed: int, records: list[Record]) -> dict[str, object]:
    cells = {one.cell_id: one.cpu_s or 0.0 for one in records}
    failed = [one.metric for one in records if one.verdict == "FAILED"]
    audits = [one for one in records if one.role == "audit" and one.verdict != "NOT_REFUTED"]
    return {
        "case": name,
        "seed": seed,
        "exit": judge_run(records).exit_code,
        "failed_checks": failed,
        "verdicts": [[one.verdict, _NUMBERS.sub("#", (one.reason or "").partition("; evidence")[0])] for one in audits],
        "replicas": [one.n for one in records if one.role == "audit"],
        "cpu_s": round(sum(cells.values()), 2),
    }


def print_table(rows: list[dict[str, object]]) -> None:
    """Print exit codes, and the cases of each cause of another code than 0."""
    seeds = {row["seed"] for row in rows}
    print(f"{len(rows)} runs of {len({row['case'] for row in rows})} cases on {len(seeds)} seeds")
    for (version, law), codes in _codes(rows).items():
        print(f"exit codes, {version}, law {law}:", dict(sorted(codes.items())))
    print(f"CPU seconds per run: {sum(row['cpu_s'] for row in rows) / max(1, len(rows)):.2f}")
    causes: dict[str, Counter[str]] = {}
    for row in rows:
        for cause in [
            *(f"failed {name}" for name in row["failed_checks"]),
            *(": ".join(one) for one in row["verdicts"]),
        ]:
            causes.setdefault(cause, Counter())[row["case"]] += 1
    for cause, found in sorted(causes.items(), key=lambda item: -sum(item[1].values())):
        print(f"{sum(found.values()):4d}  {cause[:200]}")
        print("      " + ", ".join(f"{name} {count}" for name, count in sorted(found.items())))


def _codes(rows: list[dict[str, object]]) -> dict[tuple[str, str], Counter[int]]:
    found: dict[tuple[str, str], Counter[int]] = {}
    for row in rows:
        found.setdefault((row["version"], row["law"]), Counter())[row["exit"]] += 1
    return found


if __name__ == "__main__":
    main()
