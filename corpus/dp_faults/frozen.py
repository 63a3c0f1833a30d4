"""The frozen half: the hashes of its files, and of those that they import, written before any tool ran on it."""

import hashlib
import json
from pathlib import Path

from . import case
from .case import half, names, path

FILE = Path(__file__).parent / "frozen.json"
SHARED = tuple(Path(__file__).parent / name for name in ("in_process.py", "unwatched.py"))
"""Files that cases import, beside those in their own folder whose names begin with an underscore."""


def digest(kind: str, name: str) -> str:
    """Return the sha256 of a case's file."""
    return _hashed(path(kind, name))


def _hashed(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def digests() -> dict[str, str]:
    """Return ``folder/name`` -> sha256, as they are now, of the frozen cases and of all files that cases share."""
    shared = [*SHARED, *sorted(case.FOLDER.glob("*/_*.py"))]
    frozen = [path(*each) for each in names() if half(*each) == "frozen"]
    return {f"{one.parent.name}/{one.stem}": _hashed(one) for one in shared + frozen}


def freeze() -> int:
    """Write the hashes of new files of the frozen half; return how many there are in all.

    Raises ValueError where a case that was frozen has changed or is absent.
    """
    if changed := changes():
        raise ValueError(f"frozen files must stay as they are, but changed: {', '.join(changed)}")
    now = digests()
    FILE.write_text(json.dumps(now, indent=1) + "\n", encoding="utf-8")
    return len(now)


def changes() -> list[str]:
    """Return the frozen files that have changed or are absent."""
    now = digests()
    kept = json.loads(FILE.read_text(encoding="utf-8")) if FILE.exists() else {}
    return [name for name, hashed in kept.items() if now.get(name) != hashed]
