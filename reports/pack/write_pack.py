"""Write an evidence pack: page, statement, crosswalk, claims, records and hashes of one run in one folder."""

import hashlib
import json
from datetime import UTC, datetime
from pathlib import Path

import yaml

from ..formats import page
from ..formats.atomic_write import check_targets, write_whole
from ..formats.deployment import deployments, results_sha256
from ..formats.spreadsheet import spreadsheet
from ..reading.run_folder import RunFolder
from ..tables import summary
from ..tables.table import Table
from .crosswalk import crosswalk
from .document import Block, Heading, filled, markdown_of
from .pdf import pdf_of
from .statement import statement

HASHES = "hashes.txt"
_RECORDS = ("manifest.json", "results.jsonl", "claims.json", "gate.json")
_UNKNOWN = datetime(1970, 1, 1, tzinfo=UTC)


def write_pack(folder: RunFolder, place: Path) -> list[Path]:
    """Write the pack of one run to the folder ``place`` and return the paths of its files, the PDF first.

    The same run gives the same bytes. Files that are there already are replaced; others are left alone, but for
    records of an earlier pack. Raises ValueError for a folder that belongs to the run's data, and OSError for one that
    cannot be written.
    """
    stated, crossed, sources = statement(folder), crosswalk(folder), provenance(folder)
    name = f"Evidence pack of {folder.manifest.name}"
    files: dict[str, str | bytes] = {
        "evidence.pdf": pdf_of([*stated, *sources, *crossed], title=name, made=_made(folder)),
        "statement.md": markdown_of([*stated, *sources]),
        "crosswalk.md": markdown_of(crossed),
        "claims.yaml": claims_yaml(folder),
        "report.html": page.html(folder),
        "records.csv": spreadsheet([folder]),
    }
    files |= {f"run/{name}": (folder.path / name).read_bytes() for name in _RECORDS if (folder.path / name).is_file()}
    files[HASHES] = hashes(files)
    targets = {place / name: content for name, content in files.items()}
    check_targets(targets, [folder.path])
    for name in _RECORDS:
        # An earlier pack of another run may have held a file that this run lacks.
        if f"run/{name}" not in files:
            (place / "run" / name).unlink(missing_ok=True)
    return [write_whole(path, content) for path, content in targets.items()]


def provenance(folder: RunFolder) -> list[Block]:
    """Return where the numbers come from: commit, packages, machine, hashes of the data, and how to repeat the run."""
    manifest = folder.manifest
    # Every run of one plan has the same identifier; only the digest says which run it was.
    rows = [("run", manifest.name), ("plan", manifest.run_id), ("results.jsonl (SHA-256)", results_sha256(folder))]
    rows += [(name, text) for name, text in summary.provenance(folder) if name != "run"]
    rows += [("repeat with", " && ".join(summary.reproduce(folder).splitlines()))]
    rows += [("changed since the run", ", ".join(folder.changed))] if folder.changed else []
    table = Table(title="Provenance", headers=("fact", "value"), rows=tuple(rows))
    return [Heading(text="Code, data and records"), filled(table), f"Hashes of all files of this pack: {HASHES}."]


def claims_yaml(folder: RunFolder) -> str:
    """Return the claims in the fields of a registry of deployments as YAML."""
    entries = json.loads(deployments([folder]))
    text: str = yaml.safe_dump(entries, sort_keys=False, allow_unicode=True, width=110)
    return text


def hashes(files: dict[str, str | bytes]) -> str:
    """Return the SHA-256 of each file, as ``sha256sum --check`` reads them."""
    lines = []
    for name, content in files.items():
        data = content.encode() if isinstance(content, str) else content
        lines.append(f"{hashlib.sha256(data).hexdigest()}  {name}\n")
    return "".join(lines)


def _made(folder: RunFolder) -> datetime:
    """When the run ended, or else began; a manifest may hold any text."""
    for text in (folder.manifest.finished, folder.manifest.started):
        try:
            return datetime.fromisoformat(text or "")
        except ValueError:
            continue
    return _UNKNOWN
