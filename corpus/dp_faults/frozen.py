"""The frozen half: the hashes of its files, written before any tool ran on it."""

import hashlib
import json
from pathlib import Path

from .case import half, names, path

FILE = Path(__file__).parent / "frozen.json"


def digest(kind: str, name: str) -> str:
    """Return the sha256 of a case's file."""
    return hashlib.sha256(path(kind, name).read_bytes()).hexdigest()


def digests() -> dict[str, str]:
    """Return ``kind/name`` -> sha256 of the cases of the frozen half as they are now."""
    return {f"{kind}/{name}": digest(kind, name) for kind, name in names() if half(kind, name) == "frozen"}


def freeze() -> int:
    """Write the hashes of new cases of the frozen half; return how many there are in all.

    Raises ValueError where a case that was frozen has changed or is absent.
    """
    if changed := changes():
        raise ValueError(f"frozen cases must stay as they are, but changed: {', '.join(changed)}")
    now = digests()
    FILE.write_text(json.dumps(now, indent=1) + "\n", encoding="utf-8")
    return len(now)


def changes() -> list[str]:
    """Return the frozen cases whose files have changed or are absent."""
    now = digests()
    kept = json.loads(FILE.read_text(encoding="utf-8")) if FILE.exists() else {}
    return [name for name, hashed in kept.items() if now.get(name) != hashed]
