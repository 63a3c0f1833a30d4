"""Apply presets: named variants of a suite, such as a small one for continuous integration."""

from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import Any

from ...audit.wording import nearest
from .source import ConfigError, Source, set_key

PRESETS = "presets"
KEEP = "keep"
DROP = "drop"
AUDIT = "audit"
FEDERATION_TABLES = ("federations", "vertical", "transfer")
"""The tables of a suite file that define federations, each those of one kind."""
TABLES = (*FEDERATION_TABLES, "defenses", "attacks")


def apply_preset(tree: dict[str, Any], name: str, source: Source) -> None:
    """Change a parsed suite ``tree`` in place, as its table ``[presets.NAME]`` specifies.

    ``keep`` lists tables: all others of the same kind are removed. ``drop`` lists tables that are removed in any case.
    Both accept ``*`` for any letters. The published figures of a removed table are removed as well. Every other key is
    a dotted key in quotes, and its value replaces that of the file.

    Raises:
        ConfigError: for an unknown preset, a key that is not dotted or belongs to a removed table, or an unknown table
            to keep or drop.
    """
    presets = tree.get(PRESETS, {})
    if name not in presets:
        known = nearest(name, presets) if presets else "the suite has none"
        raise ConfigError(f"--preset {name}: {source.name} has no preset of this name; known: {known}")
    changes, place = presets[name], source.where((PRESETS, name))
    gone = _leave_out(tree, changes, place)
    # After the removal: setting a key of a removed table would silently create the table again.
    for key in (key for key in changes if key not in (KEEP, DROP)):
        if key in (*TABLES, PRESETS):
            raise ConfigError(f'{place}: write the whole key in quotes, such as "{key}.NAME.FIELD", got {key!r}')
        for table in gone:
            # With the dot, so that `attacks.loss` does not match a key of `attacks.loss_threshold`.
            if f"{key}.".startswith(f"{table}."):
                raise ConfigError(f"{place}: the preset sets {key}, but removes the table {table} that holds it")
        set_key(tree, key.split("."), changes[key], change=f"{place}: {key}")


def keep_only(tree: dict[str, Any], patterns: Iterable[str], source: Source) -> list[str]:
    """Remove from a parsed suite, in place, all tables except those that ``patterns`` name; return the names of those
    that are removed.

    A pattern is that of ``keep`` in a preset, such as ``defenses.dp_*``; it restricts only the tables of its kind.

    Raises:
        ConfigError: if a pattern matches no table.
    """
    return _leave_out(tree, {KEEP: list(patterns)}, f"only: {source.name}")


def check_left_out(tree: dict[str, Any], gone: Iterable[str], source: Source) -> None:
    """Raise ConfigError if a table of a parsed suite, not yet checked, names a federation that ``keep_only`` removed;
    the message states what to keep instead.
    """
    named = _named_federations(tree)
    for table in (key for key in gone if _kind(key) in FEDERATION_TABLES):
        name = table.partition(".")[2]
        if needing := [key for key, federations in named.items() if name in federations]:
            # Without the federation's attacks the others do, unless something else needs it.
            others = [key for key in named if _kind(key) == "attacks" and key not in needing]
            only_attacks = others and all(_kind(key) == "attacks" for key in needing)
            raise ConfigError(
                f"only: {source.name}: federation {name!r} is left out, and {', '.join(needing)} "
                f"need{'s' * (len(needing) == 1)} it: keep {table} too"
                + (f", or of the attacks only {', '.join(others)}" if only_attacks else "")
            )


def _named_federations(tree: dict[str, Any]) -> dict[str, list[Any]]:
    """The federations that each table names, or has by default."""
    fields = {
        "federations": ("calibrated_on", None),
        "defenses": ("federation", None),
        "attacks": ("federation", "main"),
    }
    found = {
        f"{kind}.{label}": table.get(*field)
        for kind, field in fields.items()
        for label, table in _tables(tree.get(kind)).items()
    }
    if (audit := _tables(tree).get(AUDIT)) is not None:
        found[AUDIT] = audit.get("federation", "main")
    return {key: names if isinstance(names, list) else [names] for key, names in found.items()}


def _tables(found: object) -> dict[str, dict[str, Any]]:
    """The tables of a value that may be anything: overrides are not checked yet."""
    items = found.items() if isinstance(found, dict) else ()
    return {key: value for key, value in items if isinstance(value, dict)}


def _leave_out(tree: dict[str, Any], changes: dict[str, Any], place: str) -> list[str]:
    """Remove the tables that ``changes`` excludes; returns their names."""
    there = [f"{kind}.{name}" for kind in TABLES for name in tree.get(kind, {})]
    there += [AUDIT] if AUDIT in tree else []
    kept, dropped = (_matching(changes.get(word, []), there, f"{place}: {word}") for word in (KEEP, DROP))
    chosen = {_kind(key) for key in kept}
    # `keep` restricts only the kinds that it names: keeping one attack must not remove all defenses.
    gone = [key for key in there if key in dropped or (_kind(key) in chosen and key not in kept)]
    for key in gone:
        _remove(tree, key)
    return gone


def _kind(key: str) -> str:
    return key.partition(".")[0]


def _matching(patterns: Iterable[str], there: list[str], place: str) -> set[str]:
    found: set[str] = set()
    for pattern in patterns:
        named = {key for key in there if fnmatchcase(key, pattern)}
        if not named:
            raise ConfigError(f"{place}: the suite has no table {pattern!r}; known: {nearest(pattern, there)}")
        found |= named
    return found


def _remove(tree: dict[str, Any], key: str) -> None:
    kind, _, label = key.partition(".")
    if kind == AUDIT:
        del tree[kind]
        return
    del tree[kind][label]
    # A figure of a removed table has nothing to be compared with, and the check of references would refuse it.
    field = "federation" if kind in FEDERATION_TABLES else kind.removesuffix("s")
    if "published" in tree:
        tree["published"] = [row for row in tree["published"] if row.get(field) != label]
