"""Read runs and write their reports in the requested formats, each file atomically."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from ..figures.figure import SUFFIXES
from ..overviews.several_runs import run_labels
from ..reading.run_folder import RunFolder
from .atomic_write import check_targets, write_whole


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
    texts = {path: _maker(format_)(runs) for format_, path in targets.items()}
    return [write_whole(path, text) for path, text in texts.items()]


def write_chosen_table(
    runs: Sequence[RunFolder], path: Path, *, columns: Sequence[str], metrics: Sequence[str], label: str = ""
) -> Path:
    """Write one LaTeX table of the runs with the chosen columns and metrics, see ``chosen_table``; return ``path``."""
    from ..overviews.chosen import chosen_table
    from .latex import latex

    check_targets([path], [run.path for run in runs])
    return write_whole(path, latex(runs, chosen_table(runs, columns=columns, metrics=metrics), label))


def write_figures(runs: Sequence[RunFolder], folder: Path) -> list[Path]:
    """Write every figure of the runs to ``folder``, each as SVG and as PDF, and return the paths of the files.

    A file has the figure's name, after ``run-1-`` and so on if there are several runs. Raises ValueError if no run has
    data for a figure, or if a file would replace a run's data.
    """
    from .page import figures

    drawn = [
        figure if len(runs) == 1 else figure.of_run(number, label)
        for number, (label, run) in enumerate(zip(run_labels(runs), runs, strict=True), start=1)
        for figure in figures(run)
    ]
    if not drawn:
        raise ValueError("no figure was written, because the runs have no data for any figure")
    targets = {folder / f"{figure.key}{suffix}": figure for figure in drawn for suffix in SUFFIXES}
    check_targets(targets, [run.path for run in runs])
    return [
        write_whole(path, figure.pdf() if path.suffix == ".pdf" else figure.svg) for path, figure in targets.items()
    ]


def _maker(format_: str) -> Callable[[Sequence[RunFolder]], str]:
    # Imported on demand: the page needs matplotlib, which takes a second to load.
    match format_:
        case "html":
            from . import page

            return lambda runs: page.html(runs[0]) if len(runs) == 1 else page.html_of_several(runs)
        case "md":
            from . import markdown

            return lambda runs: markdown.markdown(runs[0]) if len(runs) == 1 else markdown.markdown_of_several(runs)
        case "latex":
            from .latex import latex

            return latex
        case "csv":
            from .spreadsheet import spreadsheet

            return spreadsheet
        case "claims":
            from .deployment import deployments

            return deployments
    raise ValueError(f"format must be html, md, latex, csv or claims, got {format_!r}")
