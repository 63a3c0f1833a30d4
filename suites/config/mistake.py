"""Describe why a value of a suite file or of a JSON file was refused: what is allowed there and what was received."""

from collections.abc import Mapping
from reprlib import Repr
from typing import Any

_ALLOWED = {
    "model_type": "must be a table of keys and values",
    "dict_type": "must be a table of keys and values",
    "tuple_type": "must be a list",
    "list_type": "must be a list",
    "bool_type": "must be true or false",
    "int_type": "must be a whole number",
    "int_parsing": "must be a whole number",
    "int_from_float": "must be a whole number",
    "float_type": "must be a number",
    "float_parsing": "must be a number",
    "string_type": "must be text",
    "string_too_short": "must not be empty",
    "string_pattern_mismatch": "must be 1 to 40 letters, digits, _ or -",
    "too_short": "must not be empty",
}
"""By pydantic's name of an error, what is allowed; for every other error its message contains that."""
_SIGNS = {
    "greater than or equal to": ">=",
    "less than or equal to": "<=",
    "greater than": ">",
    "less than": "<",
    "Input should": "must",
}
_SHOWN = Repr()
_SHOWN.maxstring = _SHOWN.maxother = 80


def mistake_text(key: str, item: Mapping[str, Any]) -> str:
    """Return one of pydantic's errors as the phrase ``replicas must be >= 2, got 1``; ``key`` is the value's name."""
    if item["type"] in ("value_error", "misplaced"):  # Checks of this package: their messages contain what is needed.
        return f"{key}: {item['msg'].removeprefix('Value error, ')}"
    if item["type"] == "missing":
        return f"{key} is missing"
    if item["type"] == "extra_forbidden":
        return f"{key} is an unknown key"
    if item["type"] == "too_short" and item["input"]:
        return f"{key} must have at least {item['ctx']['min_length']} entries, got {_received(item['input'])}"
    if item["type"] == "too_long":
        return f"{key} must have at most {item['ctx']['max_length']} entries, got {len(item['input'])}"
    allowed = _ALLOWED.get(item["type"], item["msg"])
    for words, sign in _SIGNS.items():
        allowed = allowed.replace(words, sign)
    return f"{key} {allowed}, got {_received(item['input'])}"


def _received(value: Any) -> str:
    if isinstance(value, dict):
        return "a table"
    if isinstance(value, list) and value and all(isinstance(one, dict) for one in value):
        return "a list of tables"
    return _SHOWN.repr(value)
