"""The error rates of all estimators on mechanisms of known privacy, and what they make of degenerate inputs.

    python benchmarks/calibration.py                  # 2000 repeats, two minutes on one core
    python benchmarks/calibration.py --repeats 200 --seed 1

Prints how often a true claim was refuted, compared with alpha, on null scores, at the claim and on dependent scores.
Exit code 1 if a bound exceeds its alpha, or if a degenerate input gives neither an answer nor a clear error.
"""

import argparse
from collections.abc import Sequence

from fedassay.audit.calibration import CalibrationRow, calibrate
from fedassay.audit.wording import plain
from fedassay.cli.progress import print_table
from fedassay.reports.reading.pooling import gathered
from fedassay.reports.tables.table import Right, Table, tabulate

_LEAST = 100
"""Of one or two repeats no number of refutations exceeds the 99.9 % limit, so that every bound would hold."""


def error_table(rows: Sequence[CalibrationRow]) -> Table:
    """Return a table of simulated situations, which shows how often a true claim was refuted, compared with alpha."""
    # A degenerate or unusable situation has no count; a zero there would look like a perfect estimator.
    return tabulate(
        "Observed error against alpha",
        [row for row in rows if not row.degenerate],
        {
            "estimator": lambda row: row.estimator,
            "kind": lambda row: row.kind.value,
            "situation": lambda row: row.situation,
            Right("refuted"): lambda row: "" if row.refuted is None else str(row.refuted),
            Right("of"): lambda row: "" if row.refuted is None else str(row.repeats),
            Right("observed"): lambda row: "" if row.refuted is None else f"{row.refuted / row.repeats:.4f}",
            Right("alpha"): lambda row: "" if row.limit is None else plain(row.alpha),
            Right("at most"): lambda row: "" if row.limit is None else str(row.limit),
            "outcome": lambda row: row.outcome,
        },
        note="at most: the 99.9 % quantile of Binomial(repeats, alpha). Only a bound can fail. An estimate counts "
        "as refuted when it lies above the claim.",
    )


def degenerate_table(rows: Sequence[CalibrationRow]) -> Table:
    """Return a table with one row per degenerate input and kind of outcome, which names the estimators with that
    outcome and gives the reason that the first of them stated.
    """
    # Grouped, because many estimators answer a degenerate input in the same way.
    groups = gathered(((row.situation, row.outcome.partition(":")[0]), row) for row in rows if row.degenerate)
    inputs = list(dict.fromkeys(name for name, _ in groups))
    return tabulate(
        "Degenerate inputs",
        sorted(groups.items(), key=lambda group: inputs.index(group[0][0])),
        {
            "input": lambda group: group[0][0],
            "outcome": lambda group: group[0][1],
            "estimators": lambda group: ", ".join(row.estimator for row in group[1]),
            "for instance": lambda group: group[1][0].outcome.partition(": ")[2],
        },
        note="finite: a number that is neither NaN nor infinite nor the edge of a grid. error: a ValueError with a "
        "reason.",
    )


def outcome(rows: Sequence[CalibrationRow]) -> str:
    """Return a line that names the estimators of which a row fails, or counts the bounds that hold."""
    if failed := [f"{row.estimator} ({row.situation})" for row in rows if row.fails]:
        return f"FAIL: {', '.join(failed)}"
    # Estimators and not rows: each one is repeated in several situations.
    bounds = len({row.estimator for row in rows if row.limit is not None})
    return f"OK: {bounds} bounds hold in {len(rows)} situations"


def main(words: Sequence[str] | None = None) -> int:
    """Print both tables and the outcome; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=2000, help=f"at least {_LEAST}")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args(words)
    if given.repeats < _LEAST:
        parser.error(f"--repeats must be >= {_LEAST}, got {given.repeats}")
    rows = list(calibrate(repeats=given.repeats, seed=given.seed))
    for table in (error_table(rows), degenerate_table(rows)):
        print_table(table)
    print(found := outcome(rows))
    return int(not found.startswith("OK"))


if __name__ == "__main__":
    raise SystemExit(main())
