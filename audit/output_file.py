"""Write a file completely or not at all, and never through a link out of the folder that was named for the file;
compute the checksum in a JSON file.
"""

import hashlib
import json
import os
import secrets
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

SUM = "sha256"
"""Key of the checksum of everything else in a JSON object."""


def check_inside(place: Path, folder: Path) -> None:
    """Raise ValueError if a link leads from ``place``, a path in ``folder``, out of this folder, because writing there
    would replace another file of the user. A link within the folder is allowed; the folder itself may be a link, and a
    device such as ``/dev/stdout`` is allowed.
    """
    # Not Path.resolve, which raises an error for links in a circle.
    within = Path(os.path.realpath(place)).is_relative_to(os.path.realpath(folder))
    if not within and place.parts[:2] != ("/", "dev"):
        raise ValueError(
            f"{place} is a link that leads out of the folder {folder}, so nothing is written there: remove the link"
        )


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file so that a reader finds either the old content or the new one; a link at ``path`` is replaced. Raises
    OSError, which names this file or another.
    """
    # In the same folder, because a rename is atomic only within one file system.
    temporary = path.with_name(f".{path.name[:100]}.{secrets.token_hex(4)}.part")
    try:
        # A new file: one that is already there under this name may be a link.
        with temporary.open("xb") as file:
            file.write(content)
            file.flush()
            # Otherwise a power failure could leave the new name with empty content.
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:  # Of a full disk it names none.
        error.filename = error.filename or str(path)
        raise
    finally:
        temporary.unlink(missing_ok=True)


def parsed_json(text: str | bytes, **hooks: Any) -> Any:
    """Return the value of a JSON text, with the ``hooks`` of ``json.loads``; raise ValueError for any other text, also
    for one that is nested too deeply.
    """
    try:
        return json.loads(text, **hooks)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def with_checksum(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return a JSON object with the checksum of everything else in it."""
    return {**content, SUM: digest_of(content, without=(SUM,))}


def is_changed(content: Mapping[str, Any]) -> bool:
    """Return whether the content of a JSON object differs from its stored checksum, or has no checksum."""
    return with_checksum(content) != content


def digest_of(content: Mapping[str, Any], without: Collection[str] = ()) -> str:
    """Return the SHA-256 digest of a JSON object in canonical form: only the content counts, not the layout of a
    file.
    """
    kept = {key: value for key, value in content.items() if key not in without}
    return hashlib.sha256(json.dumps(kept, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
