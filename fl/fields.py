"""Checks the numbers with which algorithms, models, attacks and defenses are configured, one by one or by the types of
the fields of a data class.
"""

import dataclasses
import inspect
import math
import sys
from collections.abc import Callable
from functools import cache, partial
from numbers import Real
from types import SimpleNamespace
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints


def check_positive(name: str, value: float) -> None:
    """Raise ValueError unless ``value`` is a finite number above zero."""
    if not _is_number(value) or not 0 < value < math.inf:
        raise ValueError(f"{name} must be a number > 0, got {value!r}")


def check_weight(name: str, value: float) -> None:
    """Raise ValueError unless ``value``, such as the weight of a term, is a finite number >= 0."""
    if not _is_number(value) or not 0 <= value < math.inf:
        raise ValueError(f"{name} must be a number >= 0, got {value!r}")


def check_share(name: str, value: float, *, ends: bool = True) -> None:
    """Raise ValueError unless ``value`` is a number in [0, 1]; if ``ends`` is False, also for 0 and 1."""
    if not _is_number(value) or not (0 <= value <= 1 if ends else 0 < value < 1):
        raise ValueError(f"{name} must be a number in {'[0, 1]' if ends else '(0, 1)'}, got {value!r}")


def _is_number(value: object) -> bool:
    # bool is a Real number to Python, and `clip_norm = true` is a mistake.
    return isinstance(value, Real) and not isinstance(value, bool)


def check_count(name: str, value: object, *, least: int = 1, alternative: str = "") -> None:
    """Raise ValueError unless ``value`` is an integer >= ``least``.

    ``alternative``: other accepted values, for the message.
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ValueError(f"{name} must be a whole number >= {least}{alternative}, got {value!r}")


def _check_count_or_all(name: str, value: object, *, least: int = 1) -> None:
    if value != "all":
        check_count(name, value, least=least, alternative=' or "all"')


def _check_column(name: str, value: object) -> None:
    # A number in quotes is a mistake, and no column has such a name.
    if not isinstance(value, str) or not value or value.isdecimal():
        check_count(name, value, least=0, alternative=" or a column's name")


Count = Annotated[int, check_count]
"""A whole number >= 1."""
Several = Annotated[int, partial(check_count, least=2)]
"""A whole number >= 2."""
Index = Annotated[int, partial(check_count, least=0)]
"""A whole number >= 0."""
CountOrAll = Annotated[int | Literal["all"], _check_count_or_all]
IndexOrAll = Annotated[int | Literal["all"], partial(_check_count_or_all, least=0)]
ColumnName = Annotated[int | str, _check_column]
"""A column's name, or the number of a feature, a whole number >= 0."""
Positive = Annotated[float, check_positive]
Weight = Annotated[float, check_weight]
"""A finite number >= 0."""
Share = Annotated[float, check_share]
"""A number in [0, 1]."""
OpenShare = Annotated[float, partial(check_share, ends=False)]
"""A number in (0, 1)."""


def check_fields(part: Any) -> None:
    """Raise ValueError for the first field of a data class whose value does not fit its type, including fields of base
    classes.

    It checks fields of type ``bool``, of a ``Literal``, and of the types of this module: ``Annotated`` with a check,
    which is called with the field's name and value. A class that declares a field of its base class again, such as with
    another default, also refuses what the base class refuses.
    """
    for name, check in _checks(part.__class__):
        check(name, getattr(part, name))


@cache
def _checks(kind: Any) -> tuple[tuple[str, Callable[[str, Any], None]], ...]:
    names = [one.name for one in dataclasses.fields(kind)]
    return tuple((name, check) for name in names for base in kind.__mro__ for check in _checks_of(type_in(base, name)))


def type_in(base: type[Any], name: str) -> Any:
    """Return the type that a class itself states for a field; None if it states none, or one that cannot be read."""
    hint = inspect.get_annotations(base).get(name)
    if not isinstance(hint, str):
        return hint
    # A text, as of a module that postpones the evaluation of annotations.
    stated = SimpleNamespace(__annotations__={name: hint})
    known = getattr(sys.modules.get(base.__module__), "__dict__", {})
    try:
        return get_type_hints(stated, known, dict(vars(base)), include_extras=True)[name]
    except Exception:  # Any text may stand there, such as a name that is imported for type checkers alone.
        return None


def _checks_of(hint: Any) -> list[Callable[[str, Any], None]]:
    if hint is bool:
        return [_check_switch]
    if get_origin(hint) is Literal:
        return [partial(_check_choice, choices=get_args(hint))]
    if get_origin(hint) is Annotated:
        return [check for check in get_args(hint)[1:] if callable(check)]
    return []


def _check_switch(name: str, value: object) -> None:
    if not isinstance(value, bool):
        raise ValueError(f"{name} must be true or false, got {value!r}")


def _check_choice(name: str, value: object, *, choices: tuple[object, ...]) -> None:
    if value not in choices:
        known = " or ".join(f'"{one}"' for one in choices)
        raise ValueError(f"{name} must be {known}, got {value!r}")
