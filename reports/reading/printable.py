"""Printable: text without control characters. A name or a reason may hold a line's end, a terminal's escape or a mark
that turns the reading direction: on a page it is invalid, on a terminal it can forge a line.
"""

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ...suites.results.record import Record  # What a command prints passes here too, and need not wait for it.

_WHITE = re.compile(r"[\t\n\v\f\r\x1c-\x1e\x85\u2028\u2029]+")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ufffe\uffff]")


def printable(text: str) -> str:
    """The text as one line: white space of any length a blank, other control characters the replacement character."""
    return _CONTROL.sub("�", _WHITE.sub(" ", text)) if _CONTROL.search(text) else text


def printable_content(content: Any) -> Any:
    """Parsed JSON with every text in it, and every key, made printable."""
    if isinstance(content, str):
        return printable(content)
    if isinstance(content, list):
        return [printable_content(item) for item in content]
    if isinstance(content, dict):
        return {printable(key): printable_content(item) for key, item in content.items()}
    return content


def printable_record(record: "Record") -> "Record":
    """The record with printable texts; itself where they are."""
    spoilt = {name: text for name, text in vars(record).items() if isinstance(text, str) and _CONTROL.search(text)}
    return record.model_copy(update={name: printable(text) for name, text in spoilt.items()}) if spoilt else record
