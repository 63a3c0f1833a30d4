"""Compute digests of a finished run's rows, claims and manifest, stored in gate.json to detect later changes."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .rows import Rows

ROWS, CLAIMS, MANIFEST = "rows_sha256", "claims_sha256", "manifest_sha256"
_FILES = {ROWS: "results.jsonl", CLAIMS: "claims.json", MANIFEST: "manifest.json"}
_LATER = ("finished", "cpu_s")
"""Keys of the manifest that are written after the digests."""


def digests(folder: Path, rows: Rows) -> dict[str, str]:
    """Compute the SHA-256 digests of a run's result rows, claims and manifest; a missing file has an empty digest."""
    return {
        ROWS: rows.digest,
        CLAIMS: _digest(folder / _FILES[CLAIMS]),
        MANIFEST: _digest(folder / _FILES[MANIFEST], without=_LATER),
    }


def _digest(path: Path, without: tuple[str, ...] = ()) -> str:
    if not path.is_file():
        return ""
    content = json.loads(path.read_text(encoding="utf-8"))
    for key in without:
        content.pop(key, None)
    # In canonical form: only the content counts, not the layout of the file.
    return hashlib.sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def changed_files(gate: Mapping[str, Any], folder: Path, rows: Rows) -> tuple[str, ...]:
    """Return the names of the files that changed since the run's verdict ``gate`` was stored; gate.json is one of them
    where it lacks a digest.
    """
    now = digests(folder, rows)
    changed = [name for key, name in _FILES.items() if key in gate and gate[key] != now[key]]
    return (*changed, *(["gate.json"] if _FILES.keys() - gate.keys() else []))
