"""Write a static site over many runs: a front page with comparable claims and histories, and the page of each run."""

import csv
import io
from collections.abc import Sequence
from pathlib import Path

from ..overviews.scoreboard import claims_of_runs, histories, scoreboards
from ..overviews.several_runs import overview, run_labels
from ..reading.run_folder import RunFolder
from ..tables.table import Table
from .atomic_write import check_targets, write_whole
from .spreadsheet import quiet, spreadsheet
from .templates import environment

FRONT = "index.html"


def write_site(runs: Sequence[RunFolder], place: Path) -> list[Path]:
    """Write the site of these runs to the folder ``place`` and return the paths of its files, the front page first.

    Files that are there already are replaced; others are left alone. Raises ValueError for no run, and for a folder
    that belongs to a run's data.
    """
    if not runs:
        raise ValueError("a site needs at least one run, got none")
    from . import page  # It needs matplotlib, which takes a second to load.

    claims = claims_of_runs(runs)
    boards, past = scoreboards(claims), histories(claims)
    tables = {
        f"tables/{kind}-{number}.csv": table
        for kind, group in (("claims", boards), ("history", past))
        for number, table in enumerate(group, start=1)
    }
    pages = [f"runs/run-{number}.html" for number in range(1, len(runs) + 1)]
    files = {name: page.html(run) for name, run in zip(pages, runs, strict=True)}
    files |= {name: _csv(table) for name, table in tables.items()}
    files["tables/records.csv"] = spreadsheet(runs)
    named = [(table, name) for name, table in tables.items()]
    front = (
        environment(autoescape=True)
        .get_template("site.html.j2")
        .render(
            overview=overview(runs),
            pages=dict(zip(run_labels(runs), pages, strict=True)),
            boards=named[: len(boards)],
            histories=named[len(boards) :],
        )
    )
    files = {FRONT: front, **files}
    targets = {place / name: text for name, text in files.items()}
    check_targets(targets, [run.path for run in runs])
    for path in targets:
        path.parent.mkdir(parents=True, exist_ok=True)
    return [write_whole(path, text) for path, text in targets.items()]


def _csv(table: Table) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\r\n")  # RFC 4180 requires these line ends.
    writer.writerow(map(quiet, table.headers))
    writer.writerows([quiet(cell) for cell in row] for row in table.rows)
    return text.getvalue()
