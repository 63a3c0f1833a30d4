"""Situations of foreign systems, right and broken: what ``fedassay watch`` and ``audit`` say of each.

    python benchmarks/foreign_situations                  # the table, one seed
    python benchmarks/foreign_situations --seeds 20       # and all of them under twenty seeds
    python benchmarks/foreign_situations --only opacus    # of one kind, or with this word in the name
    python benchmarks/foreign_situations --honest 1000    # so many correct trainings of random settings, and no table

The situations are from public bug reports, pages and papers, or our own: one file for each kind of system. A broken one
is found by the first of four layers: the watched run, play-back, runs on other data, and trials, which are the audit by
independent runs of those that no check accuses. Exit code 11 is INCONCLUSIVE, 2 a system that is refused in words.
Those of Opacus and Flower are left out where these are not installed.
"""

import argparse
import logging
import sys
import time
import warnings
from importlib.util import find_spec
from pathlib import Path

import functions
import plain_loops
import random_trainings
from fedassay.suites.results.outcome import FAIL, OK
from situation import Seen, Situation, named, see

TESTS = Path(__file__).resolve().parents[2] / "tests"
"""Where the trainings and apps of the tests are."""


def situations() -> list[Situation]:
    """Return those of all installed libraries."""
    found = []
    if find_spec("opacus"):
        import opacus_data
        import opacus_steps

        found += named([*opacus_steps.ROWS, *opacus_data.ROWS])
    else:
        print("Opacus is not installed: its rows are left out")
    found += [*plain_loops.ROWS, *functions.ROWS]
    if find_spec("flwr"):
        import flower_ways

        found += flower_ways.rows()
    else:
        print("Flower is not installed: its rows are left out")
    return found


def table(rows: list[Situation], seeds: int, *, trials: bool) -> None:
    """Print a line for each situation, and the counts; ``trials``: of broken ones that no check accuses at seed 0."""
    print("| situation | kind | is | source | exit code | found by, or why not | layer | CPU s | accused |")
    print("|---|---|---|---|---|---|---|---|---|")
    seen = list[list[Seen]]()
    for one in rows:
        every = [see(one, seed, trials=trials and not one.right and not seed) for seed in range(seeds)]
        first, accused = every[0], sum(each.code == FAIL for each in every)
        cells = (
            *(one.name, one.kind, "right" if one.right else "broken", one.source, str(first.code), first.checks),
            *(first.layer, f"{sum(each.cpu_s for each in every) / seeds:.2f}", f"{accused} of {seeds}"),
        )
        print(f"| {' | '.join(cells)} |", flush=True)
        for seed, each in enumerate(every):
            if one.right and seed and each.code not in (OK, first.code):
                print(f"seed {seed} of {one.name}: exit code {each.code}, {each.checks}", flush=True)
        seen.append(every)
    for kind in (*dict.fromkeys(one.kind for one in rows), ""):
        mine = [number for number, one in enumerate(rows) if not kind or one.kind == kind]
        broken = [seen[number] for number in mine if not rows[number].right]
        right = [each for number in mine if rows[number].right for each in seen[number]]
        for line in summary(broken, right, seeds):
            print(f"{kind}: {line}" if kind else line)


def summary(broken: list[list[Seen]], right: list[Seen], seeds: int) -> list[str]:
    """Return the counts: of broken ones under their first seed, and of right ones under all."""
    first = [every[0] for every in broken]
    found, trials = sum(one.found for one in first), sum(one.layer == "trials" for one in first)
    missed = sum(one.missed for one in first)
    accused = sum(one.code == FAIL for one in right)
    unclear = sum(one.code not in (OK, FAIL) for one in right)
    lines = [
        f"{len(first)} broken: {found} found ({trials} by trials), {len(first) - found - missed} inconclusive (11), "
        f"{missed} missed (OK)",
        f"{len(right) // seeds} right ones, {seeds} seeds each: {accused} accused of {len(right)}, "
        f"{unclear} inconclusive",
    ]
    if seeds > 1:
        always = sum(all(one.found for one in every) for every in broken)
        never = sum(not any(one.found for one in every) for every in broken)
        lines[1:1] = [f"{len(first)} broken, {seeds} seeds each: {always} found under all, {never} under none"]
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=1, help="seeds of each")
    parser.add_argument("--only", default="", metavar="WORD", help="situations with this word in kind or name")
    parser.add_argument("--side", choices=("right", "broken"), help="the right or the broken ones alone")
    parser.add_argument("--checks-only", action="store_true", help="no audits by independent runs")
    parser.add_argument("--honest", type=int, default=0, metavar="RUNS", help="correct trainings of random settings")
    parser.add_argument("--first", type=int, default=0, metavar="SEED", help="the first seed of --honest")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    sys.path += [str(TESTS / "builders"), str(TESTS / "adapters")]
    for name in ("flwr", "opacus"):
        logging.getLogger(name).setLevel(logging.ERROR)
    start = time.process_time()
    if arguments.honest:
        random_trainings.watch_all(range(arguments.first, arguments.first + arguments.honest))
    else:
        word = arguments.only.lower()
        rows = [one for one in situations() if word in f"{one.kind} {one.name}".lower()]
        chosen = [one for one in rows if arguments.side in (None, "right" if one.right else "broken")]
        table(chosen, arguments.seeds, trials=not arguments.checks_only)
    print(f"{time.process_time() - start:.0f} s of CPU")


if __name__ == "__main__":
    main()
