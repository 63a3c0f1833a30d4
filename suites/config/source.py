"""Suite files as text: where a key stands, so that an error can point at it."""

import re
import tomllib
from dataclasses import dataclass, field
from typing import Any

_HEADER = re.compile(r"^\s*\[\[?\s*([^\]]+?)\s*\]\]?\s*(#.*)?$")
_KEY = re.compile(r"^\s*([A-Za-z0-9_\-.\"']+)\s*=")


class ConfigError(ValueError):
    """A suite, a flag or a part's configuration is wrong: one paragraph that says where and what is known, or several,
    an argument each.
    """

    def __str__(self) -> str:
        return "\n".join(map(str, self.args))


@dataclass(frozen=True)
class Source:
    """The text of a suite file and its name; ``folder``: where it lies, empty for a bundled one."""

    name: str
    text: str = ""
    overrides: tuple[str, ...] = field(default=())
    preset: str = ""
    folder: str = ""

    def parse(self) -> dict[str, Any]:
        """The file as a dictionary.

        Raises:
            ConfigError: if it is not TOML; the message gives file, line and what the parser says.
        """
        try:
            return tomllib.loads(self.text)
        except tomllib.TOMLDecodeError as error:
            # The parser names a line everywhere but at the end.
            what = str(error).replace("at end of document", f"at the end, line {self.text.rstrip().count(chr(10)) + 1}")
            raise ConfigError(f"{self.name}: not a TOML file: {what}") from None

    def where(self, path: tuple[str, ...]) -> str:
        """``file, line N`` of the deepest part of the dotted path that stands in the file, ``--set key`` where a key of
        the command line set it or led to it; the file alone where neither did.
        """
        for key in self.overrides:
            wished = tuple(key.split("."))
            shared = min(len(wished), len(path))
            if path and wished[:shared] == path[:shared]:
                return f"--set {key}"
        ours = ("presets", self.preset)
        found = [(key[:2] == ours, key, number) for number, key in self._keys()]
        # Of a key that stands in both, the preset's is what was read; of several lines the first.
        named = [
            (len(key) - 2 * preset, preset, -line) for preset, key, line in found if _leads(key[2 * preset :], path)
        ]
        return f"{self.name}, line {-max(named)[2]}" if named else self.name

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
    """Set ``key.sub=value`` in a parsed suite (the value is TOML, or else plain text) and return the dotted key.

    Raises:
        ConfigError: where the assignment is none, or leads through something that is no table.
    """
    key, sign, text = assignment.partition("=")
    path = [part.strip() for part in key.split(".")]
    if not sign or not all(path):
        raise ConfigError(f"--set takes key.sub=value, got {assignment!r}")
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        value = text.strip()
    set_key(tree, path, value, told=f"--set {assignment}")
    return ".".join(path)


def set_key(tree: dict[str, Any], path: list[str], value: Any, *, told: str) -> None:
    """Set a key of a parsed suite, through tables that are made where they are missing.

    Raises:
        ConfigError: where it leads through something that is no table; ``told`` says which change that was.
    """
    place: Any = tree
    for part in path[:-1]:
        place = place.setdefault(part, {}) if isinstance(place, dict) else None
    if not isinstance(place, dict):
        raise ConfigError(f"{told}: {'.'.join(path[:-1])} is no table")
    place[path[-1]] = value


def _dotted(text: str) -> tuple[str, ...]:
    return tuple(part.strip().strip("\"'") for part in text.split("."))


def _leads(key: tuple[str, ...], path: tuple[str, ...]) -> bool:
    return bool(key) and path[: len(key)] == key
