"""Hold the text of a suite file, and find the line of a key in it for error messages."""

import re
import tomllib
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from .bounds import DEEPEST, TOO_DEEP, TOO_LARGE, unreadable

_HEADER = re.compile(r"^\s*\[\[?\s*([^\]]+?)\s*\]\]?\s*(#.*)?$")
_KEY = re.compile(r"^\s*([A-Za-z0-9_\-.\"']+)\s*=")


class ConfigError(ValueError):
    """An error in a suite file, in a command's option, or in the settings of a defense or attack.

    Each argument is one paragraph, which names the place, the mistake and the known alternatives.
    """

    def __str__(self) -> str:
        return "\n".join(map(str, self.args))


@dataclass(frozen=True)
class Source:
    """A suite's name and its text, or the dictionary that Python code gave in place of a text.

    Args:
        overrides: dotted keys that the command line set by ``--set``.
        options: keys that it set by an option of their own, such as ``--device``.
        preset: name of the preset that was applied, or empty.
        folder: the file's folder, empty for a bundled suite.
        given: the suite as nested dictionaries with the keys of a suite file; None where there is a text.
    """

    name: str
    text: str = ""
    overrides: tuple[str, ...] = field(default=())
    options: tuple[str, ...] = field(default=(), kw_only=True)
    preset: str = ""
    folder: str = ""
    given: Mapping[str, Any] | None = field(default=None, repr=False)

    @property
    def data_folder(self) -> str:
        """The folder to which relative paths of data files belong: the suite file's, or the current one for a suite
        without a file.
        """
        return self.folder or str(Path.cwd())

    def parse(self) -> dict[str, Any]:
        """Parse the suite file and return it as a dictionary.

        Raises:
            ConfigError: if it is not TOML, with the line and the parser's own message, or nested too deeply.
        """
        if self.given is not None:
            try:
                return deepcopy(dict(self.given))  # Presets and overrides change the tree, never the caller's one.
            except RecursionError:
                raise ConfigError(f"{self.name}: {TOO_DEEP}") from None
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
    if len(path) > DEEPEST:
        raise ConfigError(f"--set {key[:80]}...: the key must not be nested more than {DEEPEST} levels deep")
    try:
        value = _parsed(f"value = {text}", f"--set {key}: the value cannot be read")["value"]
    except tomllib.TOMLDecodeError:
        # Shells remove quotes, so that `name=quick` arrives as bare text.
        value = text.strip()
    set_key(tree, path, value, change=f"--set {assignment}")
    return ".".join(path)


def _parsed(text: str, place: str) -> dict[str, Any]:
    """Parse TOML. Raises ConfigError, which starts with ``place``, for a text that no parser should read."""
    if reason := unreadable(text):
        raise ConfigError(f"{place}: {reason}")
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        raise
    except RecursionError:
        raise ConfigError(f"{place}: {TOO_DEEP}") from None
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
