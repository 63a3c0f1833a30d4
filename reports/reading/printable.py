"""Remove control characters, which could forge a line on a terminal, from names and reasons.

A line end, a terminal escape or a mark of the reading direction is also invalid on a page.
"""

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ...suites.results.record import Record  # Every command prints through this module: importing it must be fast.

_WHITE = re.compile(r"[\t\n\v\f\r\x1c-\x1e\x85\u2028\u2029]+")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ufffe\uffff]")


def printable(text: str) -> str:
    """Return the text on one line: white space becomes one blank, and other control characters become the replacement
    character.
    """
    # Most texts are clean, and one search is faster than two substitutions.
    return _CONTROL.sub("�", _WHITE.sub(" ", text)) if _CONTROL.search(text) else text


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
    """Return the result row with control characters removed from its texts; without any, return the same object."""
    spoilt = {name: text for name, text in vars(record).items() if isinstance(text, str) and _CONTROL.search(text)}
    return record.model_copy(update={name: printable(text) for name, text in spoilt.items()}) if spoilt else record
