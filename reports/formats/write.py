"""Writing reports of runs, from their records alone: each file whole or not at all."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from ..reading.run_folder import RunFolder
from .atomic_write import check_targets, write_whole


def write_report(folder: str | Path, *, html: Path | None = None, md: Path | None = None) -> Path:
    """Reads a run's folder and writes its pages; returns the path of the first one written.

    Without paths: ``report.html`` and ``report.md`` in the run's folder. With one or both: exactly those. Raises
    FileNotFoundError or ValueError where the folder cannot be read (see ``RunFolder.read``).
    """
    run = RunFolder.read(folder)
    if html is None and md is None:
        html, md = run.path / "report.html", run.path / "report.md"
    wanted = {"html": html, "md": md}
    return write_files([run], {name: path for name, path in wanted.items() if path is not None})[0]


def read_runs(folders: Sequence[str | Path]) -> list[RunFolder]:
    """The runs in these folders. Raises what ``RunFolder.read`` raises, and ValueError for the same run twice."""
    runs = [RunFolder.read(folder) for folder in folders]
    seen: dict[object, Path] = {}
    for run in runs:
        manifest = run.manifest
        # A run's folder may have been copied; two runs of one suite and seed differ in when they started.
        for mark in (run.path.resolve(), (manifest.run_id, manifest.name, manifest.started)):
            if mark in seen:
                raise ValueError(f"{seen[mark]} and {run.path} are the same run: name it once")
        seen |= {run.path.resolve(): run.path, (manifest.run_id, manifest.name, manifest.started): run.path}
    return runs


def write_files(runs: Sequence[RunFolder], wanted: Mapping[str, Path]) -> list[Path]:
    """Writes the report of one run, or of several side by side, in each format that is wanted: ``html``, ``md``,
    ``latex``, ``csv``, ``claims``. Returns the paths.

    Raises ValueError for a path that is a folder, is named twice or belongs to a run's data.
    """
    check_targets(wanted.values(), [run.path for run in runs])
    # All are made before the first is written: what cannot be made leaves every old file alone.
    texts = {path: _maker(format_)(runs) for format_, path in wanted.items()}
    return [write_whole(path, text) for path, text in texts.items()]


def _maker(format_: str) -> Callable[[Sequence[RunFolder]], str]:
    # Lazy: the page draws with matplotlib, which a CSV does not wait for.
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
    raise ValueError(f"a report is html, md, latex, csv or claims, got {format_!r}")
