"""Compute digests of a finished run's result rows and claims, stored in gate.json to detect later changes."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .rows import Rows

ROWS, CLAIMS = "rows_sha256", "claims_sha256"


def digests(claims: Path, rows: Rows) -> dict[str, str]:
    """Compute the SHA-256 digests of a run's result rows and of its claims file; a missing file has an empty digest."""
    # The claims are hashed in canonical form: only their content counts, not the layout of the file.
    content = json.loads(claims.read_text(encoding="utf-8")) if claims.is_file() else None
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return {ROWS: rows.digest, CLAIMS: "" if content is None else hashlib.sha256(text.encode()).hexdigest()}


def changed_files(gate: Mapping[str, Any], claims: Path, rows: Rows) -> tuple[str, ...]:
    """Return the names of the files that changed since the run's verdict ``gate`` was stored; empty if it has no
    digests.
    """
    now, what = digests(claims, rows), {ROWS: "results.jsonl", CLAIMS: "claims.json"}
    return tuple(name for key, name in what.items() if key in gate and gate[key] != now[key])
