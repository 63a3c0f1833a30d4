"""Presets: other runs of the same suite that its file names, such as a small one for continuous integration."""

from typing import Any

from ..audit.nearest import nearest
from .source import ConfigError, Source, set_key

PRESETS = "presets"
DROP = "drop"
AUDIT = "audit"


def apply_preset(tree: dict[str, Any], name: str, source: Source) -> None:
    """Change a parsed suite as its table ``[presets.NAME]`` says.

    Its ``drop`` names tables that are left out, with the figures published for them; every other key is a dotted one in
    quotes with the value that takes the place of the file's.

    Raises:
        ConfigError: no such preset, a key that is no change, a table to drop that is not there.
    """
    presets = tree.get(PRESETS, {})
    if name not in presets:
        known = nearest(name, presets) if presets else "the suite has none"
        raise ConfigError(f"--preset {name}: no such preset of {source.name}; known: {known}")
    changes, place = presets[name], source.where((PRESETS, name))
    for key in changes.get(DROP, []):
        _drop(tree, key, f"{place}: {DROP}")
    for key in (key for key in changes if key != DROP):
        if key in ("federations", "defenses", "attacks", PRESETS):
            raise ConfigError(f'{place}: write the whole key in quotes, such as "{key}.NAME.FIELD", got {key!r}')
        set_key(tree, key.split("."), changes[key], told=f"{place}: {key}")


def _drop(tree: dict[str, Any], key: str, place: str) -> None:
    if key == AUDIT and key in tree:
        del tree[key]
        return
    kind, _, label = key.partition(".")
    if kind not in ("federations", "defenses", "attacks") or label not in tree.get(kind, {}):
        there = [f"{kind}.{name}" for kind in ("federations", "defenses", "attacks") for name in tree.get(kind, {})]
        there += [AUDIT] if AUDIT in tree else []
        raise ConfigError(f"{place}: no table {key!r}; known: {nearest(key, there)}")
    del tree[kind][label]
    field = kind.removesuffix("s")
    if "published" in tree:
        tree["published"] = [row for row in tree["published"] if row.get(field) != label]
