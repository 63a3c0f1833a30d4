"""Write reports in the requested formats, each file completely or not at all, and never over a run's data."""

import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from ...audit.output_file import check_inside, write_atomically
from ...suites.results.store import CLAIMS, GATE, MANIFEST, RESULTS
from ..reading.run_folder import RunFolder
from ..tables.several_runs import chosen_table, claims_of_runs, histories, overview, run_labels, scoreboards
from .exports import csv_text, deployments, quiet, spreadsheet
from .latex import latex

_DATA = (RESULTS, MANIFEST, CLAIMS, GATE)


def write_whole(path: Path, content: str | bytes) -> Path:
    """Write a text (as UTF-8) or bytes atomically, so that a reader finds either the old file or the new one; return
    ``path``.

    A pipe or a device is written directly; a reader that closes the pipe early is not an error. Raises OSError, which
    names ``path``, and ValueError for a link out of its folder.
    """
    check_inside(path, path.parent)
    data = content.encode() if isinstance(content, str) else content
    try:
        # Before resolving, because /dev/stdout may resolve to a name that does not exist.
        if path.exists() and not path.is_file():
            with suppress(BrokenPipeError):
                path.write_bytes(data)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            # Replacing a link itself would leave the file that it points to unchanged.
            write_atomically(Path(os.path.realpath(path)), data)
    except OSError as error:  # It may name no file, a folder or a temporary file.
        raise OSError(error.errno, error.strerror or str(error), str(path)) from error
    return path


def check_targets(
    targets: Collection[Path], runs: Iterable[Path], read: Iterable[Path] = (), within: Path | None = None
) -> None:
    """Raise ValueError if an output path is a folder, occurs twice, belongs to the data of ``runs``, or is one of the
    input files ``read``. The error is also raised for a pipe or a device in a run, and for a path that leads by a link
    out of a run or of the folder ``within``, by default its own folder.
    """
    folders = [run.resolve() for run in runs]
    for path in targets:
        # A run may be another person's: a folder in it that is named may not be a link out of it.
        above = [one for one in path.absolute().parents if Path(os.path.realpath(one)) in folders]
        for folder in (within or path.parent, *above):
            check_inside(path, folder)
    places = [path.resolve() for path in targets]
    data = {folder / name for folder in folders for name in _DATA} | {path.resolve() for path in read}
    cells = {folder / "cells" for folder in folders}
    overwrites = any(place in data or place.is_dir() or cells & {place, *place.parents} for place in places)
    # A pipe in another person's run would wait for a reader; one of the user's own, as /dev/stdout, is meant.
    overwrites |= any({*place.parents} & {*folders} and place.exists() and not place.is_file() for place in places)
    if overwrites or len(set(places)) < len(places):
        named = " and ".join(repr(str(path)) for path in targets)
        raise ValueError(f"each output must be a separate file, neither a folder nor part of a run's data, got {named}")


def check_replaced(place: Path, targets: Iterable[Path], written: str, mark: bytes) -> None:
    """Raise ValueError if ``targets`` in the folder ``place`` would replace files of a user's own. This is so if some
    targets exist, and the file ``written`` of this folder, which is always written first, does not hold the ``mark`` of
    an earlier output.
    """
    # A file in the place of a folder, too.
    within = [above for path in targets for above in path.parents if place in above.parents and above.is_file()]
    # A page of an earlier report may be replaced wherever it is.
    there = within + [path for path in targets if path.exists() and not (path.is_file() and _PAGE in path.read_bytes())]
    first = place / written
    if there and not (first.is_file() and mark in first.read_bytes()):
        raise ValueError(f"{there[0]} would be replaced, and {place} holds no earlier output: name another folder")


def write_report(folder: str | Path, *, html: Path | None = None, md: Path | None = None) -> Path:
    """Read a run's folder and write its report files; return the path of the first one.

    Without paths it writes ``report.html`` and ``report.md`` in the run's folder; with one or both exactly those.
    Raises FileNotFoundError or ValueError where the folder cannot be read (see ``RunFolder.read``).
    """
    run = RunFolder.read(folder)
    if html is None and md is None:
        html, md = run.path / "report.html", run.path / "report.md"
    targets = {"html": html, "md": md}
    return write_files([run], {name: path for name, path in targets.items() if path is not None})[0]


def read_runs(folders: Sequence[str | Path]) -> list[RunFolder]:
    """Read the runs in these folders; raise the errors of ``RunFolder.read``, and ValueError if a run is given
    twice.
    """
    runs = [RunFolder.read(folder) for folder in folders]
    seen: dict[object, Path] = {}
    for run in runs:
        manifest = run.manifest
        # A copied folder has another path. Two runs of one suite and seed differ in the time when they started.
        for mark in (run.path.resolve(), (manifest.run_id, manifest.name, manifest.started)):
            if mark in seen:
                raise ValueError(
                    f"each run can be given only once, got {seen[mark]} and {run.path}, which hold the same run"
                )
        seen |= {run.path.resolve(): run.path, (manifest.run_id, manifest.name, manifest.started): run.path}
    return runs


def write_files(runs: Sequence[RunFolder], targets: Mapping[str, Path]) -> list[Path]:
    """Write the report of one run, or of several side by side, and return the paths of the files.

    ``targets``: format -> path; the formats are ``html``, ``md``, ``latex``, ``csv`` and ``claims``. Raises ValueError
    for a path that is a folder, is named twice or belongs to a run's data.
    """
    check_targets(targets.values(), [run.path for run in runs])
    # All texts exist before the first file is written, so that an error leaves every old file unchanged.
    texts = {path: _text(format_, runs) for format_, path in targets.items()}
    return [write_whole(path, text) for path, text in texts.items()]


def write_chosen_table(
    runs: Sequence[RunFolder], path: Path, *, columns: Sequence[str], metrics: Sequence[str], label: str = ""
) -> Path:
    """Write one LaTeX table of the runs with the chosen columns and metrics, see ``chosen_table``; return ``path``."""

    check_targets([path], [run.path for run in runs])
    return write_whole(path, latex(runs, chosen_table(runs, columns=columns, metrics=metrics), label))


def write_figures(runs: Sequence[RunFolder], folder: Path) -> list[Path]:
    """Write every figure of the runs to ``folder``, each as SVG and as PDF, and return the paths of the files.

    A file has the figure's name, after ``run-1-`` and so on if there are several runs. Raises ValueError if no run has
    data for a figure, or if a file would replace a run's data.
    """
    from ..figures.frame import SUFFIXES
    from .page import figures

    drawn = [
        figure if len(runs) == 1 else figure.of_run(number, label)
        for number, (label, run) in enumerate(zip(run_labels(runs), runs, strict=True), start=1)
        for figure in figures(run)
    ]
    if not drawn:
        raise ValueError("no figure was written, because the runs have no data for any figure")
    targets = {folder / f"{figure.key}{suffix}": figure for figure in drawn for suffix in SUFFIXES}
    check_targets(targets, [run.path for run in runs], within=folder)
    return [
        write_whole(path, figure.pdf() if path.suffix == ".pdf" else figure.svg) for path, figure in targets.items()
    ]


FRONT = "index.html"
_PAGE = b"<title>fedassay: "
"""What stands on every page that is written."""


def write_site(runs: Sequence[RunFolder], place: Path) -> list[Path]:
    """Write the site of these runs to the folder ``place`` and return the paths of its files, the front page first.

    Files of an earlier site are replaced; others are left alone. Raises ValueError for no run, and for a folder that
    belongs to a run's data or holds files of these names from elsewhere.
    """
    if not runs:
        raise ValueError("a site needs at least one run, got none")
    real = Path(os.path.realpath(place))
    for above in (real, *real.parents):
        if (above / MANIFEST).is_file() and any((above / name).is_file() for name in (CLAIMS, RESULTS)):
            raise ValueError(f"{place} is part of the run's data in {above}: name another folder for the site")

    # They need matplotlib and jinja2, which take a second to load.
    from . import page
    from .templates import environment

    claims = claims_of_runs(runs)
    boards, past = scoreboards(claims), histories(claims)
    tables = {
        f"tables/{kind}-{number}.csv": table
        for kind, group in (("claims", boards), ("history", past))
        for number, table in enumerate(group, start=1)
    }
    pages = [f"runs/run-{number}.html" for number in range(1, len(runs) + 1)]
    files = {name: page.html(run) for name, run in zip(pages, runs, strict=True)}
    files |= {
        name: csv_text([*map(quiet, table.headers)], [[*map(quiet, row)] for row in table.rows])
        for name, table in tables.items()
    }
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
    check_targets(targets, [run.path for run in runs], within=place)
    check_replaced(place, targets, FRONT, _PAGE)
    return [write_whole(path, text) for path, text in targets.items()]


def _text(format_: str, runs: Sequence[RunFolder]) -> str:
    """The report of these runs in one format. The pages need matplotlib or jinja2, which are loaded on demand."""
    match format_:
        case "html":
            from . import page

            return page.html(runs[0]) if len(runs) == 1 else page.html_of_several(runs)
        case "md":
            from . import markdown

            return markdown.markdown(runs[0]) if len(runs) == 1 else markdown.markdown_of_several(runs)
        case "latex":
            return latex(runs)
        case "csv":
            return spreadsheet(runs)
        case "claims":
            return deployments(runs)
    raise ValueError(f"format must be html, md, latex, csv or claims, got {format_!r}")
