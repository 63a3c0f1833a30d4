"""Read files of membership scores: long or wide tables in CSV, TSV, Parquet, NumPy or JSON files.

A long table has one row per score: the columns ``score`` and ``is_member``. A wide table has the columns ``member`` and
``nonmember``, which may differ in length. No file is unpickled.
"""

import csv
import json
import math
import zipfile
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..audit.arrays import BoolArray, FloatArray, as_floats
from ..audit.supplied.given import column as one_column
from ..suites.config.source import ConfigError

Values = NDArray[Any]
_TRUE, _FALSE = ("1", "true", "yes", "t", "y", "1.0"), ("0", "false", "no", "f", "n", "0.0")


@dataclass(frozen=True, kw_only=True)
class Columns:
    """The names of the columns of a score file; ``unnamed`` are the names of the columns of a plain ``.npy`` array.

    ``layout``: ``long``, ``wide``, or an empty string where it was not stated.
    """

    score: str = "score"
    is_member: str = "is_member"
    member: str = "member"
    nonmember: str = "nonmember"
    clusters: str | None = None
    unnamed: tuple[str, ...] = ()
    layout: str = ""

    @classmethod
    def stated(cls, target: str, *, unnamed: str | None, clusters: str | None, **named: str | None) -> "Columns":
        """Return the names of which None stands for the usual one; a name that was stated also states the layout.

        Raises:
            ConfigError: names of both layouts, or one column for two purposes.
        """
        given = {role: name for role, name in named.items() if name is not None}
        long = [role for role in ("score", "is_member") if role in given] + ["clusters"] * (clusters is not None)
        wide = [role for role in ("member", "nonmember") if role in given]
        if long and wide:
            options = " and ".join(f"--{role.replace('_', '-')}" for role in (long[0], wide[0]))
            raise ConfigError(
                f"{target}: {options} name columns of two layouts: a file has one row per score, or two columns"
            )
        found = cls(
            clusters=clusters,
            unnamed=tuple(name.strip() for name in (unnamed or "").split(",") if name.strip()),
            layout="long" if long else "wide" if wide else "",
            **given,
        )
        pair = ("member", "nonmember") if wide else ("score", "is_member")
        for role, other in (pair, ("score", "clusters"), ("is_member", "clusters")):
            if getattr(found, role) == getattr(found, other):
                raise ConfigError(
                    f"{target}: the column {getattr(found, role)} is named for two purposes ({role} and {other}), "
                    "which would compare it with itself"
                )
        return found


@dataclass(frozen=True, kw_only=True, eq=False)
class ScoreTable:
    """The scores of a file: (n1,) or (n1, d) of members and (n0,) or (n0, d) of non-members, with their clusters.

    ``design``: the design that the file itself records, or None; ``columns``: the names of the columns that were read.
    """

    member: FloatArray
    nonmember: FloatArray
    clusters: tuple[Values, Values] | None = None
    design: str | None = None
    columns: tuple[str, ...] = ()


def is_score_file(target: str) -> bool:
    """Whether the target's name ends like that of a file of scores."""
    return Path(target).suffix.lower() in _READERS


def read_scores(path: Path, columns: Columns, *, one_class: bool = False) -> ScoreTable:
    """Read a file of scores; ``one_class``: whether a long table may hold scores of members only.

    Raises:
        ConfigError: no such file, a damaged one, missing or repeated columns, text or gaps where numbers belong, a
            value that is not finite, or only one class.
    """
    if path.is_dir():
        raise ConfigError(f"{path} is a folder, not a file of scores")
    if not path.exists():
        raise ConfigError(f"no such file: {path}")
    names, column = _READERS[path.suffix.lower()](path, columns)
    for name in names:
        # Of two columns with one name, a reader would silently keep the last.
        if names.count(name) > 1 and name in (columns.score, columns.is_member, columns.member, columns.nonmember):
            raise ConfigError(f"{path} has {names.count(name)} columns with the name {name}, and needs one")
    long, wide = (columns.score, columns.is_member), (columns.member, columns.nonmember)
    here = {"long": set(long) <= set(names), "wide": set(wide) <= set(names)}
    if all(here.values()) and not columns.layout:
        raise ConfigError(
            f"{path} has scores in two layouts: state the columns that hold them, by --score {long[0]} --is-member "
            f"{long[1]} or by --member {wide[0]} --nonmember {wide[1]}"
        )
    if here["long"] and columns.layout != "wide":
        table, read = _long(path, columns, names, column, one_class), long
    elif here["wide"] and (columns.layout != "long" or columns.clusters is not None):
        table, read = _wide(path, columns, column), wide
    else:
        raise ConfigError(
            f"{path} must have one column {long[0]} and one column {long[1]}, or one column {wide[0]} and one column "
            f"{wide[1]}, but it has: {', '.join(names) or 'none'}{_separated(path, names) or _OTHER_NAMES}"
        )
    # Score files written by a run record the design: scores of one run are dependent.
    design = str(column("design", "text")) if "design" in names else None
    return ScoreTable(**vars(table) | {"design": design, "columns": read})


def _separated(path: Path, names: Sequence[str]) -> str:
    """What is wrong with a text file of one column whose name holds another separator; empty where nothing is."""
    separators = {",": "commas", "\t": "tabs", ";": "semicolons", "|": "vertical bars", " ": "blanks"}
    own = {".csv": ",", ".tsv": "\t"}.get(path.suffix.lower())
    other = next((mark for mark in separators if mark != own and len(names) == 1 and mark in names[0]), None)
    if own is None or other is None:
        return ""
    found = f": its columns are separated by {separators[other]}, and those of {path.suffix} by {separators[own]}"
    return f"{found} (name it .{'tsv' if other == chr(9) else 'csv'})" if other in ",\t" else found


_OTHER_NAMES = " (--score, --is-member, --member and --nonmember name other columns)"
_Column = Callable[[str, str], Values]
"""(name, kind) -> the column; kinds are ``numbers``, ``ragged`` (numbers, empty cells at the end) and ``text``."""


def _long(path: Path, columns: Columns, names: Sequence[str], column: _Column, one_class: bool) -> ScoreTable:
    scores = _finite(f"{path}: {columns.score}", column(columns.score, "numbers"))
    inside = _truth(f"{path}: {columns.is_member}", column(columns.is_member, "text"))
    if len(inside) != len(scores):
        raise ConfigError(f"{path}: {columns.score} has {len(scores)} values and {columns.is_member} {len(inside)}")
    if (inside.all() and not one_class) or not inside.any():
        only = "members" if inside.any() else "non-members"
        raise ConfigError(f"{path} holds scores of {only} only ({columns.is_member}), and an audit compares both")
    clusters = None
    if columns.clusters is not None:
        if columns.clusters not in names:
            raise ConfigError(f"{path} has no column {columns.clusters} (--clusters); it has: {', '.join(names)}")
        groups = one_column(column(columns.clusters, "text"))
        if len(groups) != len(scores):
            raise ConfigError(f"{path}: {columns.clusters} has {len(groups)} values and {columns.score} {len(scores)}")
        clusters = groups[inside], groups[~inside]
    return ScoreTable(member=scores[inside], nonmember=scores[~inside], clusters=clusters)


def _wide(path: Path, columns: Columns, column: _Column) -> ScoreTable:
    if columns.clusters is not None:
        raise ConfigError(
            f"--clusters needs one row per score, with the columns {columns.score}, {columns.is_member} and "
            f"{columns.clusters}; {path} has the columns {columns.member} and {columns.nonmember}"
        )
    sides = [_finite(f"{path}: {name}", column(name, "ragged")) for name in (columns.member, columns.nonmember)]
    return ScoreTable(member=sides[0], nonmember=sides[1])


def _finite(where: str, values: Values) -> FloatArray:
    if values.dtype.kind not in "biuf":
        raise ConfigError(f"{where} must hold numbers, got {values.dtype}")
    try:
        numbers = as_floats(where, values)
    except ValueError as error:
        raise ConfigError(str(error)) from None
    if not numbers.size:
        raise ConfigError(f"{where} must not be empty, got shape {numbers.shape}")
    numbers = one_column(numbers)
    bad = np.flatnonzero(~np.isfinite(numbers.reshape(len(numbers), -1)).all(axis=1))
    if len(bad):
        more = f" ({len(bad):,} such rows of {len(numbers):,})" if len(bad) > 1 else ""
        raise ConfigError(f"{where}, row {bad[0] + 1}: a score must be finite, got {_odd(numbers[bad[0]])}{more}")
    return numbers


def _odd(row: Any) -> str:
    return str(next(float(value) for value in np.ravel(row) if not math.isfinite(value)))


def _truth(where: str, values: Values) -> BoolArray:
    values = one_column(values)
    flat = values.tolist()
    words = [str(value).strip().lower() for value in flat]
    if values.ndim == 1:
        for row, word in enumerate(words, start=1):
            if word not in _TRUE + _FALSE:
                raise ConfigError(f"{where}, row {row}: must be true or false (or 1 or 0), got {flat[row - 1]!r}")
        return np.array([word in _TRUE for word in words], dtype=np.bool_)
    raise ConfigError(f"{where} must hold one value per score, got shape {values.shape}")


def _read_text(path: Path, columns: Columns) -> tuple[list[str], _Column]:
    comma = "\t" if path.suffix.lower() == ".tsv" else ","
    try:
        # utf-8-sig: spreadsheets write a byte-order mark, which would become part of the first column's name.
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.reader(file, delimiter=comma, skipinitialspace=True)
            names = [name.strip() for name in next(reader, [])]
            rows = [(reader.line_num, row) for row in reader if row]
    except (UnicodeDecodeError, csv.Error) as error:
        raise ConfigError(f"{path} cannot be read as {'TSV' if comma != ',' else 'CSV'} in UTF-8: {error}") from None

    def column(name: str, kind: str) -> Values:
        at = names.index(name)
        cells = [(line, (row[at] if at < len(row) else "").strip()) for line, row in rows]
        if kind == "text":
            return np.array([cell for _, cell in cells])
        gap = next((line for line, cell in cells if not cell), None)
        if gap is not None:
            last = max((line for line, cell in cells if cell), default=0)
            # Wide columns may differ in length; a gap in the middle is a damaged file.
            if kind == "numbers" or gap < last:
                before = " before its last score" if kind == "ragged" else ""
                raise ConfigError(f"{path}, line {gap}: the column {name} has an empty cell{before}")
        return np.array([_number(cell, f"{path}, line {line}, {name}") for line, cell in cells if cell], dtype=float)

    return names, column


def _number(text: str, where: str) -> float:
    try:
        number = float(text)
    except ValueError:
        raise ConfigError(f"{where}: a score must be a number, got {text!r}") from None
    if not math.isfinite(number):
        raise ConfigError(f"{where}: a score must be finite, got {text}")
    # Two large integers that become one float would be a tie that the scores do not have.
    if text.lstrip("+-").isdecimal() and Decimal(text) != Decimal(number):
        raise ConfigError(f"{where}: the score {text} cannot be stored exactly as float64: rescale the scores")
    return number


def _read_npz(path: Path, columns: Columns) -> tuple[list[str], _Column]:
    try:
        with zipfile.ZipFile(path) as members:
            names = [name.removesuffix(".npy") for name in members.namelist()]
        with np.load(path, allow_pickle=False) as arrays:
            found = {name: arrays[name] for name in names if name in _wanted(columns)}
    except (zipfile.BadZipFile, zlib.error, EOFError) as error:
        raise ConfigError(f"{path} is damaged, or is not an .npz file: {error}") from None
    except ValueError as error:  # Arrays of Python objects, among others: reading them could execute code.
        raise ConfigError(f"{path} cannot be read as .npz without unpickling: {error}") from None
    return names, lambda name, kind: found[name]


def _read_npy(path: Path, columns: Columns) -> tuple[list[str], _Column]:
    try:
        array = np.load(path, allow_pickle=False)
    except (ValueError, EOFError, OSError) as error:
        raise ConfigError(f"{path} cannot be read as .npy without unpickling: {error}") from None
    if not isinstance(array, np.ndarray):
        raise ConfigError(f"{path} is no .npy file but an archive of several arrays: name it .npz")
    if array.dtype.names:
        return list(array.dtype.names), lambda name, kind: array[name]
    if not columns.unnamed:
        raise ConfigError(
            f"{path} holds an array of shape {array.shape} without column names: name its columns, for example "
            "--columns score,is_member or --columns member,nonmember"
        )
    if array.ndim != 2 or array.shape[1] != len(columns.unnamed):
        raise ConfigError(
            f"{path} must hold one row per score and {len(columns.unnamed)} columns (--columns), "
            f"got shape {array.shape}"
        )
    named = dict(zip(columns.unnamed, array.T, strict=True))

    def column(name: str, kind: str) -> Values:
        values = np.asarray(named[name])
        if kind != "ragged" or values.dtype.kind != "f":
            return values
        # Columns of unequal length are padded with NaN at the end.
        kept = np.flatnonzero(~np.isnan(values))
        return values[: kept[-1] + 1] if len(kept) else values[:0]

    return list(columns.unnamed), column


def _read_parquet(path: Path, columns: Columns) -> tuple[list[str], _Column]:
    try:
        import pyarrow.parquet as parquet  # type: ignore[import-not-found,unused-ignore]
    except ImportError:
        raise ConfigError(
            f"{path}: reading .parquet needs the package pyarrow, which is not installed: "
            "pip install 'fedassay[parquet]', or save the scores as .csv or .npz"
        ) from None
    try:
        table = parquet.read_table(path)
    except Exception as error:  # The library has exceptions of its own for a damaged file.
        raise ConfigError(f"{path} is damaged, or is not a Parquet file: {error}") from None
    names = [str(name) for name in table.column_names]
    return names, lambda name, kind: _of_list(path, name, table.column(names.index(name)).to_pylist(), kind)


def _read_json(path: Path, columns: Columns) -> tuple[list[str], _Column]:
    try:
        data = json.loads(path.read_text(encoding="utf-8-sig"), parse_constant=_no_number, object_pairs_hook=_pairs)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path} cannot be read as JSON: {error}") from None
    if isinstance(data, list) and data and all(isinstance(row, dict) for row in data):
        names = list(dict.fromkeys(name for row in data for name in row))
        found = {name: [row.get(name) for row in data] for name in names}
    elif isinstance(data, dict):
        names, found = list(data), data
    else:
        raise ConfigError(f"{path} must hold an object of lists, or a list of objects, as JSON")
    return names, lambda name, kind: _of_list(path, name, found[name], kind)


def _of_list(path: Path, name: str, values: Any, kind: str) -> Values:
    """A column of a JSON or Parquet file as an array; None is an empty cell."""
    if not isinstance(values, list):
        if kind == "text" and name == "design":
            return np.asarray(values)
        raise ConfigError(f"{path}: {name} must be a list, got {type(values).__name__}")
    if kind == "ragged":
        while values and values[-1] is None:
            values = values[:-1]
    for row, value in enumerate(values, start=1):
        if value is None:
            raise ConfigError(f"{path}: {name}, row {row}, has no value")
        if kind != "text" and not isinstance(value, int | float | list):
            raise ConfigError(f"{path}: {name}, row {row}: a score must be a number, got {value!r}")
    if kind == "text":
        return np.array([str(value) for value in values])
    try:
        return as_floats(f"{path}: {name}", values)
    except (ValueError, OverflowError) as error:
        raise ConfigError(str(error)) from None


def _no_number(word: str) -> None:
    raise ValueError(f"{word} is not a JSON number")


def _pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
    names = [name for name, _ in items]
    if len(set(names)) < len(names):
        raise ValueError(f"an object has one name twice: {', '.join(names)}")
    return dict(items)


def _wanted(columns: Columns) -> set[str | None]:
    return {columns.score, columns.is_member, columns.member, columns.nonmember, columns.clusters, "design"}


_READERS: Mapping[str, Callable[[Path, Columns], tuple[list[str], _Column]]] = {
    ".csv": _read_text,
    ".tsv": _read_text,
    ".npz": _read_npz,
    ".npy": _read_npy,
    ".parquet": _read_parquet,
    ".json": _read_json,
}
SUFFIXES = tuple(_READERS)
