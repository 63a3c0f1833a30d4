"""The text of a suite file: the line of each key for error messages, overrides and presets."""

import math
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path
from reprlib import Repr
from typing import Any

from ...audit.wording import nearest

TOO_LARGE = "a whole number has more than 64 bits"


def wrong_number(value: Any, path: tuple[str, ...] = ()) -> tuple[tuple[str, ...], str] | None:
    """Return the place of the first number of a parsed suite that its manifest could not hold, and the reason; None if
    there is none.
    """
    if isinstance(value, Mapping | list | tuple):
        items = value.items() if isinstance(value, Mapping) else enumerate(value)
        inside = (wrong_number(item, (*path, str(key))) for key, item in items)
        return next((found for found in inside if found is not None), None)
    # TOML has nan and inf, but JSON, in which the manifest is written, does not.
    if isinstance(value, float) and not math.isfinite(value):
        return path, f"{'.'.join(path)} must be finite, got NaN or infinity"
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        bits = value.bit_length()
        return path, f"{'.'.join(path)} must be a whole number of at most 64 bits, got one of {bits} bits"
    return None


_HEADER = re.compile(r"^\s*\[\[?\s*([^\]]+?)\s*\]\]?\s*(#.*)?$")
_KEY = re.compile(r"^\s*([A-Za-z0-9_\-.\"']+)\s*=")


class ConfigError(ValueError):
    """An error in a suite file, in a command's option, or in the settings of a defense or attack.

    Each argument is one paragraph, which names the place, the mistake and the known alternatives.
    """

    def __str__(self) -> str:
        return "\n".join(map(str, self.args))


@contextmanager
def not_too_deep() -> Iterator[None]:
    """Raise ConfigError where lists or tables are nested more deeply than Python's stack reaches."""
    try:
        yield
    except RecursionError:
        raise ConfigError("the lists or tables of the suite are nested too deeply to be read") from None


@contextmanager
def config_errors() -> Iterator[None]:
    """Inside this context, turn a ValueError into a ConfigError with the same message."""
    try:
        yield
    except ConfigError:
        raise
    except ValueError as error:
        raise ConfigError(str(error)) from error


@dataclass(frozen=True)
class Source:
    """A suite's name and text, or the dictionary that Python code gave in place of a text.

    Args:
        overrides: dotted keys that the command line set by ``--set``.
        options: keys that it set by an option of their own, such as ``--device``.
        preset: name of the preset that was applied, or empty.
        folder: the file's folder, empty for a bundled suite.
        given: the suite as nested dictionaries with the keys of a suite file; None where there is a text.
        sweeps: the table of each defense of a sweep, by label.
    """

    name: str
    text: str = ""
    overrides: tuple[str, ...] = field(default=())
    options: tuple[str, ...] = field(default=(), kw_only=True)
    preset: str = ""
    folder: str = ""
    given: Mapping[str, Any] | None = field(default=None, repr=False)
    sweeps: Mapping[str, str] = field(default_factory=dict, kw_only=True, repr=False)

    @property
    def data_folder(self) -> str:
        """The folder to which relative paths of data files refer: the suite file's folder, or the current one for a
        suite without a file.
        """
        return self.folder or str(Path.cwd())

    def parse(self) -> dict[str, Any]:
        """Parse the suite file and return it as a dictionary.

        Raises:
            ConfigError: if it is not TOML, with the line and the parser's own message.
        """
        if self.given is not None:
            return deepcopy(dict(self.given))  # Presets and overrides change the tree, never the caller's one.
        try:
            return _parsed(self.text, f"{self.name}: the file cannot be read")
        except tomllib.TOMLDecodeError as error:
            # The parser names a line for every mistake except one at the end of the file.
            what = str(error).replace("at end of document", f"at the end, line {self.text.rstrip().count(chr(10)) + 1}")
            raise ConfigError(f"{self.name}: not a TOML file: {what}") from None

    def where(self, path: tuple[str, ...]) -> str:
        """Return the file name and line of a suite's key, for an error message.

        ``--set key`` or ``--key`` where the command line set the path or a table of it; else ``file, line N`` of its
        longest part that the file contains; else the file alone.
        """
        path = self.written(path)
        if path and path[0] in self.options:
            return f"--{path[0]}"
        for key in self.overrides:
            overridden = tuple(key.split("."))
            shared = min(len(overridden), len(path))
            if path and overridden[:shared] == path[:shared]:
                return f"--set {key}"
        ours = ("presets", self.preset)
        found = [(key[:2] == ours, key, number) for number, key in self._keys]
        # A preset's key replaces the file's, so its line is the right one; among several lines the first is reported.
        named = [
            (len(key) - 2 * preset, preset, -line) for preset, key, line in found if _is_prefix(key[2 * preset :], path)
        ]
        return f"{self.name}, line {-max(named)[2]}" if named else self.name

    def written(self, path: tuple[str, ...]) -> tuple[str, ...]:
        """Return the path of a key as the suite file has it; for a defense of a sweep, the path leads into the sweep's
        table.
        """
        return (path[0], self.sweeps.get(path[1], path[1]), *path[2:]) if path[:1] == ("defenses",) != path else path

    @cached_property
    def _keys(self) -> list[tuple[int, tuple[str, ...]]]:
        table: tuple[str, ...] = ()
        keys = []
        for number, line in enumerate(self.text.split("\n"), 1):
            if header := _HEADER.match(line):
                table = _dotted(header.group(1))
                keys.append((number, table))
            elif key := _KEY.match(line):
                keys.append((number, table + _dotted(key.group(1))))
        return keys


def apply_override(tree: dict[str, Any], assignment: str) -> str:
    """Apply an override ``key.sub=value`` to a parsed suite and return the key. A value that is not valid TOML is taken
    as text.

    Raises:
        ConfigError: for another form than ``key.sub=value``, or a key inside something that is not a table.
    """
    key, sign, text = assignment.partition("=")
    path = [part.strip() for part in key.split(".")]
    if not sign or not all(path):
        raise ConfigError(f"--set must have the form key.sub=value, got {assignment!r}")
    try:
        value = _parsed(f"value = {text}", f"--set {key}: the value cannot be read")["value"]
    except tomllib.TOMLDecodeError:
        # Shells remove quotes, so that `name=quick` arrives as bare text.
        value = text.strip()
    set_key(tree, path, value, change=f"--set {assignment}")
    return ".".join(path)


def _parsed(text: str, place: str) -> dict[str, Any]:
    """Parse TOML. Raises ConfigError, which starts with ``place``, for a number that Python cannot read."""
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        raise
    except ValueError:  # Python reads no number of more than 4300 digits.
        raise ConfigError(f"{place}: {TOO_LARGE}") from None


def set_key(tree: dict[str, Any], path: list[str], value: Any, *, change: str) -> None:
    """Set a key of a parsed suite; create missing tables on its path.

    Raises:
        ConfigError: for a key inside something that is not a table; the message starts with ``change``.
    """
    place: Any = tree
    for part in path[:-1]:
        place = place.setdefault(part, {}) if isinstance(place, dict) else None
    if not isinstance(place, dict):
        raise ConfigError(f"{change}: {'.'.join(path[:-1])} is not a table of the suite")
    place[path[-1]] = value


def _dotted(text: str) -> tuple[str, ...]:
    return tuple(part.strip().strip("\"'") for part in text.split("."))


def _is_prefix(key: tuple[str, ...], path: tuple[str, ...]) -> bool:
    return bool(key) and path[: len(key)] == key


PRESETS = "presets"
KEEP = "keep"
DROP = "drop"
AUDIT = "audit"
FEDERATION_TABLES = ("federations", "vertical", "transfer")
"""The tables of a suite file that define federations, each those of one kind."""
TABLES = (*FEDERATION_TABLES, "defenses", "attacks")


def apply_preset(tree: dict[str, Any], name: str, source: Source) -> list[str]:
    """Change a parsed suite ``tree`` in place, as its table ``[presets.NAME]`` specifies; return the names of the
    tables, and of the defenses of sweeps, that it removes.

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
    gone = _leave_out(tree, changes, place, source.sweeps)
    # After the removal: setting a key of a removed table would silently create the table again.
    for key in (key for key in changes if key not in (KEEP, DROP)):
        if key in (*TABLES, PRESETS):
            raise ConfigError(f'{place}: write the whole key in quotes, such as "{key}.NAME.FIELD", got {key!r}')
        for table in gone:
            # With the dot, so that `attacks.loss` does not match a key of `attacks.loss_threshold`.
            if f"{key}.".startswith(f"{table}."):
                raise ConfigError(f"{place}: the preset sets {key}, but removes the table {table} that holds it")
        set_key(tree, key.split("."), changes[key], change=f"{place}: {key}")
    return gone


def keep_only(tree: dict[str, Any], patterns: Iterable[str], source: Source) -> list[str]:
    """Remove from a parsed suite, in place, all tables except those that ``patterns`` name; return the names of those
    that are removed, and of the removed defenses of sweeps.

    A pattern is that of ``keep`` in a preset, such as ``defenses.dp_*``; it restricts only the tables of its kind.

    Raises:
        ConfigError: if a pattern matches no table.
    """
    return _leave_out(tree, {KEEP: list(patterns)}, f"only: {source.name}", source.sweeps)


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


def _leave_out(tree: dict[str, Any], changes: dict[str, Any], place: str, sweeps: Mapping[str, str]) -> list[str]:
    """Remove the tables that ``changes`` excludes; returns their names, and those of the sweeps' excluded defenses."""
    there = [f"{kind}.{name}" for kind in TABLES for name in tree.get(kind, {})]
    there += [AUDIT] if AUDIT in tree else []
    points = {f"defenses.{label}": f"defenses.{name}" for label, name in sweeps.items() if f"defenses.{name}" in there}
    names = [*there, *points]
    kept, dropped = (_matching(changes.get(word, []), names, f"{place}: {word}") for word in (KEEP, DROP))
    # A sweep is kept whole, or for the sake of one of its defenses.
    kept |= {point for point, table in points.items() if table in kept}
    kept |= {table for point, table in points.items() if point in kept}
    chosen = {_kind(key) for key in kept}
    # `keep` restricts only the kinds that it names: keeping one attack must not remove all defenses.
    gone = [key for key in names if key in dropped or (_kind(key) in chosen and key not in kept)]
    for key in gone:
        if key in there:
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
