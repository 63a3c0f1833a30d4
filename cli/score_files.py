"""Read files of membership scores: long or wide tables in CSV, TSV, Parquet, NumPy or JSON files.

A long table has one row per score: the columns ``score`` and ``is_member``. A wide table has the columns ``member`` and
``nonmember``, which may differ in length. No file is unpickled.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from sys import intern
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..audit.arrays import BoolArray, FloatArray
from ..audit.output_file import parsed_json
from ..audit.supplied.given import column as one_column
from ..audit.supplied.given import scores_or_rows
from ..audit.wording import nearest
from ..fl.data.files.options import check_size, refuse_rows
from ..fl.data.files.readers import arrays_of, numbers_of, read_table
from ..suites.config.source import ConfigError

if TYPE_CHECKING:
    from pandas import Series

Values = NDArray[Any]
Table = Mapping[str, "Series | Values | None"]
"""The columns of a file by their names: of pandas, whose cells may be missing, or arrays."""
SUFFIXES = (".csv", ".tsv", ".npz", ".npy", ".parquet", ".json")
_TRUE, _FALSE = ("1", "true", "yes", "t", "y", "1.0"), ("0", "false", "no", "f", "n", "0.0")
_BYTES = 80
"""Bytes of memory that an audit and its page take per score, as measured."""
_NOT_FINITE = ": a score must be finite, got NaN or infinity"
_OTHER_NAMES = " (--score, --is-member, --member and --nonmember name other columns)"


@dataclass(frozen=True, kw_only=True)
class ScoreColumns:
    """The names of a score file's columns; ``unnamed`` names the columns of a plain ``.npy`` array.

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
    def stated(cls, target: str, *, unnamed: str | None, clusters: str | None, **named: str | None) -> "ScoreColumns":
        """Build the column names that a command states; None stands for the usual name, and a stated name also
        determines the layout.

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
    """The scores in a file: (n1,) or (n1, d) of members and (n0,) or (n0, d) of non-members, with their clusters.

    ``design``: the design that the file itself records, or None; ``columns``: the names of the columns that were read;
    ``inside``: of a long table whether each row is of a member, (n,), in its order; None of two columns of scores.
    """

    member: FloatArray
    nonmember: FloatArray
    clusters: tuple[Values, Values] | None = None
    design: str | None = None
    columns: tuple[str, ...] = ()
    inside: BoolArray | None = None


def is_score_file(target: str) -> bool:
    """Whether the target's name has the ending of a score file, such as ``.csv``."""
    return Path(target).suffix.lower() in SUFFIXES


def read_scores(path: Path, columns: ScoreColumns, *, one_class: bool = False) -> ScoreTable:
    """Read a file of scores; ``one_class``: whether a long table may hold scores of members only.

    Raises:
        ValueError: no such file, a damaged one, missing or repeated columns, text or gaps where numbers belong, a value
            that is not finite, or only one class.
    """
    if not path.is_file():
        raise ConfigError(f"{path} is a folder, not a file of scores" if path.is_dir() else f"no such file: {path}")
    table, names = _table(path, columns)
    long, wide = (columns.score, columns.is_member), (columns.member, columns.nonmember)
    here = {"long": set(long) <= set(names), "wide": set(wide) <= set(names)}
    if all(here.values()) and not columns.layout:
        raise ConfigError(
            f"{path} has scores in two layouts: state the columns that hold them, by --score {long[0]} --is-member "
            f"{long[1]} or by --member {wide[0]} --nonmember {wide[1]}"
        )
    # Score files written by a run record the design: scores of one run are dependent.
    design = ", ".join(sorted(set(map(str, np.ravel(table["design"]))))) if "design" in names else None  # type: ignore[arg-type]
    if here["long"] and columns.layout != "wide":
        return replace(_long(path, columns, table, one_class), design=design, columns=long)
    stated = () if here["wide"] else {"long": long, "wide": wide}.get(columns.layout, ())
    if missing := [name for name in stated if name not in names]:
        raise ConfigError(f"{path} has no column {missing[0]}; it has: {nearest(missing[0], list(names))}")
    if not here["wide"] or (columns.layout == "long" and columns.clusters is None):
        raise ConfigError(
            f"{path} must have one column {long[0]} and one column {long[1]}, or one column {wide[0]} and one column "
            f"{wide[1]}, but it has: {', '.join(names) or 'none'}{_OTHER_NAMES}"
        )
    if columns.clusters is not None:
        raise ConfigError(
            f"--clusters needs one row per score, with the columns {columns.score}, {columns.is_member} and "
            f"{columns.clusters}; {path} has the columns {columns.member} and {columns.nonmember}"
        )
    member, nonmember = (_scores(table[name], f"{path}: {name}", ragged=True) for name in wide)
    return ScoreTable(member=member, nonmember=nonmember, design=design, columns=wide)


def _table(path: Path, columns: ScoreColumns) -> tuple[Table, Sequence[str]]:
    """The columns of a file that are needed, and the names of all."""
    kind = path.suffix.lower()
    if kind == ".json":
        return _json(path)
    if kind in (".npz", ".npy"):
        used = (columns.score, columns.is_member, columns.member, columns.nonmember, columns.clusters, "design", "")
        arrays = arrays_of(path, lambda name: name in used, more=_BYTES - 8)
        found = arrays if kind == ".npz" else _named(path, arrays[""], columns)  # type: ignore[arg-type]
        if single := [name for name, one in found.items() if one is not None and not one.ndim and name != "design"]:
            raise ConfigError(f"{path}: {single[0]} must hold one value per score, got a single value")
        return found, list(found)
    # A cell such as nan is a score that is not finite, and no missing one.
    frame = read_table(path, missing=("",), numeric=(columns.score, columns.member, columns.nonmember))
    names = [str(name) for name in frame.columns]
    for name in (columns.score, columns.is_member, columns.member, columns.nonmember, columns.clusters, "design"):
        # Of two columns with one name, the last would silently be kept.
        if name is not None and names.count(name) > 1:
            raise ConfigError(f"{path} has {names.count(name)} columns with the name {name}, and needs one")
    return {name: frame.iloc[:, place] for place, name in enumerate(names)}, names


def _named(path: Path, array: Values, columns: ScoreColumns) -> Table:
    import pandas

    if array.dtype.names:
        return {name: array[name] for name in array.dtype.names}
    if not columns.unnamed:
        raise ConfigError(
            f"{path} holds an array of shape {array.shape} without column names: name its columns, for example "
            "--columns score,is_member or --columns member,nonmember"
        )
    if array.ndim != 2 or array.shape[1] != len(columns.unnamed):
        count = len(columns.unnamed)
        raise ConfigError(f"{path} must hold one row per score and {count} columns (--columns), got {array.shape}")
    # Columns of unequal length are padded with NaN at the end, which is a missing value to pandas.
    return {name: pandas.Series(part) for name, part in zip(columns.unnamed, array.T, strict=True)}


def _json(path: Path) -> tuple[Table, Sequence[str]]:
    import pandas

    check_size(path.name, path.stat().st_size // 2)  # Each number takes at least two characters.
    content = path.read_bytes()
    # An object or a list takes about a hundred bytes, however few it has in the file.
    check_size(path.name, len(content) // 2 + 8 * (content.count(b"{") + content.count(b"[")))
    try:
        data = parsed_json(content.decode().lstrip("\ufeff"), parse_constant=_no_number, object_pairs_hook=_pairs)
    except ValueError as error:
        raise ConfigError(f"{path} cannot be read as JSON: {error}") from None
    if isinstance(data, list) and data and all(isinstance(row, dict) for row in data):
        names = list(dict.fromkeys(name for row in data for name in row))
        data = {name: [row.get(name) for row in data] for name in names}
    if not isinstance(data, dict):
        raise ConfigError(f"{path} must hold an object of lists, or a list of objects, as JSON")
    for name, values in data.items():
        if not isinstance(values, list) and name != "design":
            raise ConfigError(f"{path}: {name} must be a list, got {type(values).__name__}")
    return {name: pandas.Series(values, dtype=object) for name, values in data.items()}, list(data)


def _long(path: Path, columns: ScoreColumns, table: Table, one_class: bool) -> ScoreTable:
    scores = _scores(table[columns.score], f"{path}: {columns.score}")
    inside = _truth(table[columns.is_member], f"{path}: {columns.is_member}")
    groups = None
    if columns.clusters is not None:
        if columns.clusters not in table:
            raise ConfigError(f"{path} has no column {columns.clusters} (--clusters); it has: {', '.join(table)}")
        groups = one_column(np.asarray(table[columns.clusters]))
    for name, values in ((columns.is_member, inside), (columns.clusters, groups)):
        if values is not None and len(values) != len(scores):
            raise ConfigError(f"{path}: {columns.score} has {len(scores)} values and {name} {len(values)}")
    if (inside.all() and not one_class) or not inside.any():
        only = "members" if inside.any() else "non-members"
        raise ConfigError(f"{path} holds scores of {only} only ({columns.is_member}), and an audit compares both")
    clusters = None if groups is None else (groups[inside], groups[~inside])
    return ScoreTable(member=scores[inside], nonmember=scores[~inside], clusters=clusters, inside=inside)


def _scores(given: "Series | Values | None", place: str, *, ragged: bool = False) -> FloatArray:
    """Finite scores (n,) or rows (n, d); of ``ragged`` columns, missing values at the end are left out."""
    if isinstance(given, np.ndarray):
        numbers = scores_or_rows(place, given)
    else:
        column: Any = given
        if ragged:
            last = column.last_valid_index()
            column = column.iloc[: 0 if last is None else last + 1]
        missing = column.isna().to_numpy()
        refuse_rows(missing, f"{place} must have a score in every row up to its last one, got none", first=1)
        if (column := column.infer_objects()).dtype.kind == "b":
            raise ConfigError(f"{place} must be real numbers, got bool")
        if column.dtype.kind not in "fiu":
            words = column.astype(str).str.strip().str.lower().str.lstrip("+-")
            refuse_rows(words.isin(("nan", "inf", "infinity")).to_numpy(), f"{place}{_NOT_FINITE}", first=1)
        found = numbers_of(column, place, remedy=": correct the row")
        if found is None:
            raise ConfigError(f"{place} must hold numbers, got texts in at least half of its rows")
        numbers = found
    if not numbers.size:
        raise ConfigError(f"{place} must not be empty, got shape {numbers.shape}")
    check_size(place, numbers.size, each=_BYTES)
    refuse_rows(~np.isfinite(numbers), f"{place}{_NOT_FINITE}", first=1)
    return numbers


def _truth(given: "Series | Values | None", place: str) -> BoolArray:
    values = one_column(np.asarray(given))
    # A damaged file may hold other bytes than 0 and 1, which all are true to NumPy.
    values = values.view(np.uint8) if values.dtype == np.bool_ else values
    values = np.char.decode(values, "latin-1") if values.dtype.kind == "S" else values
    if values.ndim != 1:
        raise ConfigError(f"{place} must hold one value per score, got shape {values.shape}")
    # No array of texts, which has room for the longest one in each row, and no text of its own for each row.
    words = [intern(str(value).strip().lower()) for value in values.tolist()]
    wrong = np.array([word not in _TRUE + _FALSE for word in words], dtype=bool)
    refuse_rows(wrong, f"{place} must be true or false (or 1 or 0), got another word", first=1)
    return np.array([word in _TRUE for word in words], dtype=bool)


def _no_number(word: str) -> None:
    raise ValueError(f"{word} is not a JSON number")


def _pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
    names = [name for name, _ in items]
    if len(set(names)) < len(names):
        raise ValueError(f"an object has one name twice: {', '.join(names)}")
    return dict(items)
