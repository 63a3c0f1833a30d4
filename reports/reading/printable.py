"""Remove control characters, which could forge a line on a terminal, from names and reasons.

A line end, a terminal escape or a mark of the reading direction is also invalid on a page.
"""

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ...suites.results.record import Record  # Every command prints through this module: importing it must be fast.

_WHITE = re.compile(r"[\t\n\v\f\r\x1c-\x1e\x85\u2028\u2029]+")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]")


def printable(text: str) -> str:
    """Return the text on one line: white space becomes one blank, an unpaired surrogate becomes its escape, and any
    other control character the replacement character.
    """
    # Most texts are clean, and one search is faster than two substitutions.
    if not _CONTROL.search(text):
        return text
    # No file in UTF-8 holds such a half, which a file's name that is no text contains.
    whole = text.encode(errors="backslashreplace").decode()
    return _CONTROL.sub("�", _WHITE.sub(" ", whole))


def printable_content(content: Any) -> Any:
    """Return parsed JSON in which control characters are removed from all texts and keys."""
    if isinstance(content, str):
        return printable(content)
    if isinstance(content, list):
        return [printable_content(item) for item in content]
    if isinstance(content, dict):
        return {printable(key): printable_content(item) for key, item in content.items()}
    return content


def printable_record(record: "Record") -> "Record":
    """Return the result row with control characters removed from its texts; a row without any is returned unchanged."""
    spoilt = {name: value for name, value in vars(record).items() if _is_spoilt(value)}
    return record.model_copy(update=printable_content(spoilt)) if spoilt else record


def _is_spoilt(value: Any) -> bool:
    if isinstance(value, list):
        return any(map(_is_spoilt, value))
    return isinstance(value, str) and _CONTROL.search(value) is not None
