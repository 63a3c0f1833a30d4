"""A file of one JSON object, read or refused by its name."""

import json
from pathlib import Path
from typing import Any


def read_json(path: Path) -> dict[str, Any]:
    """A file of one JSON object. Raises ValueError that names it."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        json.dumps(content, ensure_ascii=False).encode()  # Half of a surrogate pair, escaped, is no text either.
    except (ValueError, RecursionError) as error:  # No JSON, or no text.
        raise ValueError(f"{path} is not JSON: {error}") from error
    if not isinstance(content, dict):
        raise ValueError(f"{path} must hold a JSON object, got {type(content).__name__}")
    return content
