"""Expand sweeps: a defense's table that lists several values of a field stands for one defense per value."""

import re
from collections.abc import Collection
from dataclasses import fields, replace
from itertools import product
from math import prod
from typing import Any, get_args, get_origin

from ...audit.parts import import_first_from, is_path
from ...fl.fields import type_in
from .catalogue import find
from .source import ConfigError, Source

MOST_POINTS = 100


def expanded(tree: dict[str, Any], source: Source, gone: Collection[str] = ()) -> tuple[dict[str, Any], Source]:
    """Replace the table of each sweep in a parsed suite by its defenses, except those in ``gone`` (as
    ``defenses.LABEL``); return the suite, and the source with the table of each defense.

    A list is a sweep unless the type of the field takes lists. Labels name the swept values: ``dp_sgd-epsilon-0_5``.

    Raises:
        ConfigError: for a sweep of no, equal or too many values, or with a label that is taken.
    """
    written = tree.get("defenses")
    if not isinstance(written, dict):
        return tree, source
    defenses, sweeps = dict[str, Any](), dict[str, str]()
    for name, table in written.items():
        if (points := _points(name, table, source)) is None:
            defenses[name] = table
            continue
        if taken := points.keys() & {*written, *defenses}:
            raise ConfigError(f"{source.where(('defenses', name))}: its sweep makes a second defense {min(taken)!r}")
        for label, point in points.items():
            if f"defenses.{label}" not in gone:
                defenses[label], sweeps[label] = point, name
    return tree | {"defenses": defenses}, replace(source, sweeps=sweeps)


def _points(name: str, table: Any, source: Source) -> dict[str, dict[str, Any]] | None:
    """The tables of a sweep's defenses by label; None for a table that is no sweep."""
    part = table.get("part", name) if isinstance(table, dict) else None
    if not isinstance(part, str) or not any(isinstance(value, list) for value in table.values()):
        return None
    if source.folder and is_path("defense", part):
        import_first_from(source.folder)
    try:
        kind = find("defense", part)
    except ConfigError as error:
        raise ConfigError(f"{source.where(('defenses', name, 'part'))}: {error}") from None
    lists = {field.name: table[field.name] for field in fields(kind) if isinstance(table.get(field.name), list)}
    swept = {key: lists[key] for key in lists if not any(_takes_lists(type_in(one, key)) for one in kind.__mro__)}
    if not swept:
        return None
    if not 0 < (count := prod(map(len, swept.values()))) <= MOST_POINTS:
        place = source.where(("defenses", name, *swept))
        raise ConfigError(f"{place}: the sweep {name} must have 1 to {MOST_POINTS} defenses, got {count}")
    words = [_words(key, values, source.where(("defenses", name, key))) for key, values in swept.items()]
    points = {}
    for chosen in product(*(one.items() for one in words)):
        named = [f"{key}-{word}" for key, (word, _) in zip(swept, chosen, strict=True)]
        values = {key: value for key, (_, value) in zip(swept, chosen, strict=True)}
        points["-".join([name, *named])] = {"sweep": "-".join([name, *named[1:]]), **table, **values, "part": part}
    return points


def _takes_lists(hint: Any) -> bool:
    """Whether a type takes more than one value, or anything."""
    owner = get_origin(hint) or hint
    several = isinstance(owner, type) and issubclass(owner, Collection) and owner is not str
    return several or owner in (Any, object) or any(map(_takes_lists, get_args(hint)))


def _words(key: str, values: list[Any], place: str) -> dict[str, Any]:
    """What labels say of each value of a sweep's list."""
    if wrong := [value for value in values if not isinstance(value, bool | int | float | str)]:
        raise ConfigError(f"{place}: {key} must list numbers, texts, or true and false, got {wrong[0]!r:.80}")
    # 1.0 is 1: the two would be one defense twice.
    plain = [str(value).lower() if isinstance(value, bool) else f"{value}".removesuffix(".0") for value in values]
    words = {re.sub(r"[^A-Za-z0-9_\-]", "_", word): value for word, value in zip(plain, values, strict=True)}
    if len(words) < len(values):
        raise ConfigError(f"{place}: {key} must list each value once, got {values!r:.80}")
    return words
