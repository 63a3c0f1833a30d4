"""Writing a report beside the records that it was made from."""

from pathlib import Path

from . import markdown, page
from .run_folder import RunFolder
from .whole import write_whole

_DATA = ("results.jsonl", "manifest.json", "claims.json", "gate.json")


def write_report(folder: str | Path, *, html: Path | None = None, md: Path | None = None) -> Path:
    """Reads a run's folder and writes its pages; returns the path of the first one written.

    Without paths: ``report.html`` and ``report.md`` in the run's folder. With one or both: exactly those. Raises
    FileNotFoundError or ValueError where the folder cannot be read (see ``RunFolder.read``).
    """
    run = RunFolder.read(folder)
    if html is None and md is None:
        html, md = run.path / "report.html", run.path / "report.md"
    targets = [path.resolve() for path in (html, md) if path is not None]
    own = {(run.path / name).resolve() for name in _DATA}
    if len(set(targets)) < len(targets) or own & set(targets) or any(path.is_dir() for path in targets):
        named = " and ".join(str(path) for path in targets)
        raise ValueError(f"a page needs a file of its own, no folder and none of the run's data files, got {named}")
    written = []
    if html is not None:
        written.append(write_whole(html, page.html(run)))
    if md is not None:
        written.append(write_whole(md, markdown.markdown(run)))
    return written[0]
