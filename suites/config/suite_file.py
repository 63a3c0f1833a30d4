"""Read and check a suite from a file or from the package, and report every mistake with its line."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from ...audit.parts import is_path
from ...audit.wording import nearest
from ...fl.data.files.lookup import is_object, keep
from .catalogue import Part, build, check_loaded_from, find, names_data_files
from .part_files import Kind
from .part_listing import bundled_suites
from .source import (
    FEDERATION_TABLES,
    ConfigError,
    Source,
    apply_override,
    apply_preset,
    check_left_out,
    keep_only,
    mistake_text,
    not_too_deep,
    wrong_number,
)
from .sweeps import expanded
from .tables.suite import AttackSpec, DefenseSpec, Suite

GIVEN = "defenses"
"""The word in ``only`` by which a caller leaves out all defenses of the suite, because only the added ones run."""


@not_too_deep()
def load_suite(
    suite: str | Mapping[str, Any] | Suite,
    *,
    preset: str | None = None,
    overrides: tuple[str, ...] = (),
    options: tuple[str, ...] = (),
    only: tuple[str, ...] = (),
) -> tuple[Suite, Source]:
    """Load a suite; apply one of its presets, ``key=value`` overrides and a choice of its tables.

    ``suite``: a bundled suite's name, the path of a suite file, a dictionary with the keys of a suite file, or a
    checked suite. ``options``: overrides of keys that have an option of their own, such as ``device=cuda`` for
    ``--device``. ``only``: the tables that are kept, as in ``keep`` of a preset. The bare word ``defenses`` removes
    all defenses of the suite: those that the caller adds run alone.

    Raises:
        ConfigError: for an unknown suite, a file that is not TOML, unknown keys or bad values; the message gives the
            file, the line and the nearest known name.
    """
    source = _source_of(suite)
    if GIVEN in only and (lost := [pattern for pattern in only if pattern.startswith(f"{GIVEN}.")]):
        raise ConfigError(
            f"only: {source.name}: the word {GIVEN!r} alone removes all defenses of the suite, also "
            f"{', '.join(map(repr, lost))}: leave out either the word or these patterns"
        )
    tree = source.parse()
    whole, source = expanded(source.parse(), source)
    gone, left_out = list[str](), list[str]()
    if preset is not None or only:
        check_suite(whole, source)  # Checks the unchanged file first, so that its tables and presets are valid.
    if preset is not None:
        left_out = apply_preset(tree, preset, source)
    if only:
        gone = keep_only(tree, [pattern for pattern in only if pattern != GIVEN], source)
    keys = tuple(apply_override(tree, assignment) for assignment in overrides)
    for_mutants = [key for key in keys if key.startswith("mutants.")]
    # Setting such a key would create the table, and an empty [mutants] table stands for all mutants: hours of work.
    if for_mutants and "mutants" not in source.parse():
        raise ConfigError(
            f"--set {for_mutants[0]}: the suite has no [mutants] table to change, and creating one "
            f"would add every mutant to the suite"
        )
    own = tuple(apply_override(tree, assignment) for assignment in options)
    check_left_out(tree, gone, source)
    named, source = source.sweeps, replace(source, overrides=keys, options=own, preset=preset or "", sweeps={})
    tree, source = expanded(tree, source, {*left_out, *gone})
    lost, rows = [label for label in named if label not in source.sweeps], tree.get("published")
    if lost and isinstance(rows, list):  # What was published for a defense that a change of its sweep left out.
        tree["published"] = [row for row in rows if not (isinstance(row, dict) and row.get("defense") in lost)]
    spec = check_suite(tree, source)
    # The presets are dropped from the resolved suite: editing an unused one must not change a run's identity.
    changes: dict[str, Any] = {"presets": {}}
    if GIVEN in only:
        # Removed after the check, which requires a defense: the caller adds those that run.
        changes |= {"defenses": {}, "published": ()}
    return spec.model_copy(update=changes), source


def _source_of(suite: str | Mapping[str, Any] | Suite) -> Source:
    if isinstance(suite, Suite):
        try:
            return Source(f"suite {suite.name!r}", given=suite.model_dump(mode="json", exclude_unset=True))
        except ValueError as error:  # A value that no file can hold.
            raise ConfigError(f"suite {suite.name!r} cannot be written as a suite file: {error}") from None
    if isinstance(suite, Mapping):
        return Source("the suite's dictionary", given=_with_kept_data(suite))
    bundled, path = bundled_suites(), Path(suite)
    if suite in bundled:
        return Source(f"{suite}.toml", bundled[suite])
    try:
        found = path.is_file()
    except OSError:  # A text that is too long for a path, such as a suite's own text.
        found = False
    if not found:
        raise ConfigError(f"no suite {suite!r}: it is neither a file nor a bundled suite ({nearest(suite, bundled)})")
    try:
        return Source(str(path), path.read_text(encoding="utf-8-sig"), folder=str(path.resolve().parent))
    except UnicodeDecodeError:
        raise ConfigError(f"{suite}: not a TOML file: it is not UTF-8 text") from None


def _with_kept_data(suite: Mapping[str, Any]) -> dict[str, Any]:
    """The same dictionary with the names of the copies of data sets that it holds as objects, which are read once."""

    def kept(table: Any, place: str) -> Any:
        if not isinstance(table, Mapping) or not is_object(table.get("dataset")):
            return table
        try:
            return {**table, "dataset": keep(table["dataset"])}
        except ValueError as error:
            raise ConfigError(f"the suite's dictionary: {place}.dataset: {error}") from None

    tree = {**suite}
    for table in FEDERATION_TABLES:
        if isinstance(tree.get(table), Mapping):
            tree[table] = {name: kept(one, f"{table}.{name}") for name, one in tree[table].items()}
    if "audit" in tree:
        tree["audit"] = kept(tree["audit"], "audit")
    return tree


def named_changes(**changes: int | str | None) -> tuple[str, ...]:
    """Convert the arguments that are not None to ``key=value`` overrides of a suite."""
    return tuple(f"{key}={value}" for key, value in changes.items() if value is not None)


def weak_change(accept: bool) -> dict[str, str]:
    """Return the change to a suite that makes it accept weak tests, for ``named_changes``; empty if they are not
    accepted.
    """
    return {"gate.accept_weak": "true"} if accept else {}


def check_suite(tree: dict[str, Any], source: Source) -> Suite:
    """Check a parsed suite; raise ConfigError with the file and line of each mistake."""
    if (found := wrong_number(tree)) is not None:
        raise ConfigError(f"{source.where(found[0])}: {found[1]}")
    # A suite of mutants needs no defenses. For any other suite the missing table is an error.
    defaults: dict[str, Any] = {} if tree.get("mutants") is None else {"defenses": {}}
    try:
        spec = Suite.model_validate(defaults | tree)
    except ValidationError as error:
        mistakes = error.errors()
        # A list with a wrong value also counts as too short, even where it is long enough.
        inside = {item["loc"][: len(item["loc"]) - 1] for item in mistakes}
        mistakes = [item for item in mistakes if item["type"] != "too_short" or item["loc"] not in inside]
        lines = [_explain(dict(item), source) for item in mistakes]
        raise ConfigError(*dict.fromkeys([*lines, *_of_parts(tree, source)])) from None
    return with_data_files(spec, source.data_folder, {})


def _of_parts(tree: dict[str, Any], source: Source) -> Iterator[str]:
    """The mistakes of our own defenses and attacks of a suite of which another table is wrong."""
    tables: dict[Kind, type[BaseModel]] = {"defense": DefenseSpec, "attack": AttackSpec}
    for kind, table in tables.items():
        listed = tree.get(f"{kind}s")
        for label, found in listed.items() if isinstance(listed, Mapping) else ():
            name = found.get("part", label) if isinstance(found, Mapping) else None
            if not isinstance(name, str) or is_path(kind, name):  # Code of the user's own is imported by a valid suite.
                continue
            try:
                own = {key: value for key, value in found.items() if key not in table.model_fields}
                listed_part(kind, label, name, own, source)
            except ConfigError as error:
                yield from error.args


def with_data_files(spec: Suite, folder: str, digests: dict[str, str]) -> Suite:
    """Return the suite with federations that read data files from ``folder``, provided that the files have the
    ``digests``.
    """
    # Suites without data files compare equal wherever they lie.
    if not names_data_files(spec):
        return spec
    read = {
        table: {name: one.reading(folder, digests) for name, one in getattr(spec, table).items()}
        for table in FEDERATION_TABLES
    }
    return spec.model_copy(update=read)


def _explain(item: dict[str, Any], source: Source) -> str:
    path = source.written(tuple(str(part) for part in item["loc"] if part != "[key]"))
    if item["type"] == "misplaced":
        path = tuple(item["ctx"]["place"].split("."))
    if path[:1] == ("attacks",) and path[2:3] == ("federation",):
        path = path[:3]  # One name or a list of names: pydantic adds which of the two it tried.
    place = source.where(path)
    name = ".".join(path)
    if item["type"] == "extra_forbidden":
        return f"{place}: unknown key {name!r}; known here: {nearest(path[-1], _fields_at(path[:-1]))}"
    # ``--device`` is the option of the key ``device``: its name stands once.
    text = mistake_text(name, item).removeprefix(f"{name}: " if name in source.options else "")
    return f"{place}: {text}".replace(": : ", ": ")


def _fields_at(path: tuple[str, ...]) -> list[str]:
    """The keys of the table at a place of a suite."""
    table: type[BaseModel] = Suite
    # The second part is a label; or it is a key of a table without labels, which holds no further tables.
    for name in (*path[:1], *path[2:]):
        table = _table_in(table, name) or table
    return list(table.model_fields)


def _table_in(table: type[BaseModel], name: str) -> type[BaseModel] | None:
    """The table that a key of a table holds, or one of its entries; None where it holds something else."""
    held = [table.model_fields[name].annotation] if name in table.model_fields else []
    while held:
        one = held.pop()
        if isinstance(one, type) and issubclass(one, BaseModel):
            return one
        held += get_args(one)
    return None


def listed_part(kind: Kind, label: str, name: str, configuration: dict[str, Any], source: Source) -> Part:
    """Build the defense or attack of a table of a suite; raise ConfigError with the line of the wrong key."""
    table = (f"{kind}s", label)
    try:
        find(kind, name)
        check_loaded_from(name, source.folder)
    except ConfigError as error:
        raise ConfigError(f"{source.where((*table, 'part'))}: {error}") from None
    try:
        return build(kind, name, configuration)
    except ConfigError as error:
        raise ConfigError(f"{line_of(str(error), source, table, configuration, 'part')}: {error}") from None


def line_of(message: str, source: Source, table: tuple[str, ...], keys: Iterable[str], default: str = "") -> str:
    """Return the line of the suite's key to which a part's error message refers: the first of the table's ``keys`` that
    occurs in the message.
    """
    words = re.findall(r"\w+", message)
    return source.where((*table, min((key for key in keys if key in words), key=words.index, default=default)))
