"""Seal: what a finished run leaves in gate.json of its rows and claims: one that is lost or changed later is told."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .rows import Rows

ROWS, CLAIMS = "rows_sha256", "claims_sha256"


def digests(claims: Path, rows: Rows) -> dict[str, str]:
    """Digests of a run's rows and of its claims file; empty for no file."""
    content = json.loads(claims.read_text(encoding="utf-8")) if claims.is_file() else None
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return {ROWS: rows.digest, CLAIMS: "" if content is None else hashlib.sha256(text.encode()).hexdigest()}


def changed_files(gate: Mapping[str, Any], claims: Path, rows: Rows) -> tuple[str, ...]:
    """What of a run is not as it was when ``gate`` was written; nothing where that holds no digests."""
    now, what = digests(claims, rows), {ROWS: "results.jsonl", CLAIMS: "claims.json"}
    return tuple(name for key, name in what.items() if key in gate and gate[key] != now[key])
