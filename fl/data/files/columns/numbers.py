"""Reads the cells of a column as numbers in double precision, and refuses what that precision cannot hold."""

from typing import TYPE_CHECKING

import numpy as np

from .....audit.wording import counted
from ..limit import check_size
from .notation import SHARE_OF_NUMBERS, notation_of

if TYPE_CHECKING:
    from pandas import Series

_EXACT = 2**53
"""Up to this size every whole number is a float of 64 bits."""
LARGEST_SINGLE = 3e38
"""The size up to which numbers are finite in single precision, in which features are kept."""
_WITH_COMMA = r"\s*[+-]?\d*,\d+([eE][+-]?\d+)?\s*"
_WITH_POINT = r"\s*[+-]?(\d*\.\d+([eE][+-]?\d+)?|\d{1,3}(\.\d{3})+(,\d+)?)\s*"


def numbers_of(column: "Series", place: str) -> np.ndarray | None:
    """Return the column as numbers ``(n,)``, NaN where missing; None where it holds texts.

    Raises ValueError, with ``place`` and row, for a column of mostly numbers with a text in it, cells of another type,
    and different whole numbers that are the same float.
    """
    import pandas

    if pandas.api.types.is_bool_dtype(column):
        return np.asarray(column.to_numpy(dtype=np.float64, na_value=np.nan))
    if pandas.api.types.is_numeric_dtype(column):
        if column.dtype.kind == "c":
            raise ValueError(f"{place} must hold real numbers, got complex ones: list it in drop, or convert it")
        found = np.asarray(column.to_numpy(dtype=np.float64, na_value=np.nan))
        if column.dtype.kind in "iu":
            _check_told_apart(column, found, place)
        return found
    if isinstance(column.dtype, pandas.CategoricalDtype):
        return None
    given = column.dropna()
    if not all(isinstance(value, str) for value in given):
        kinds = sorted({type(value).__name__ for value in given})
        raise ValueError(f"{place} must hold numbers or texts, got {', '.join(kinds)}: list it in drop, or convert it")
    found = np.asarray(pandas.to_numeric(column, errors="coerce").to_numpy(dtype=np.float64, na_value=np.nan))
    text = np.flatnonzero(np.isnan(found) & column.notna().to_numpy())
    if not len(text):
        _check_told_apart(column, found, place)
        return found
    if len(text) < (1 - SHARE_OF_NUMBERS) * len(given):
        foreign = notation_of(column.iloc[text].to_numpy(str))
        remedy = f"they hold {foreign[0].what}: {foreign[0].remedy}" if foreign else "correct the rows"
        raise ValueError(
            f"{place} must hold numbers in all rows, as in most of them, got a text in row {text[0] + 1} "
            f"({counted(len(text), 'such row')}): {remedy}, leave the cells empty, or list the column in categories"
        )
    return None


def with_decimal_points(column: "Series", place: str) -> "Series":
    """Return a column of texts whose numbers with a decimal comma have a decimal point; other columns as they are.

    Raises ValueError, with ``place`` and row, where a number has a point: it may separate thousands.
    """
    import pandas

    if not pandas.api.types.is_string_dtype(column.dropna()):
        return column
    comma = column.str.fullmatch(_WITH_COMMA, na=False).to_numpy(bool)
    point = np.flatnonzero(column.str.fullmatch(_WITH_POINT, na=False).to_numpy(bool))
    if len(point):
        raise ValueError(
            f'{place} must hold numbers with a decimal comma (decimal = ","), got a number with a point in row '
            f"{point[0] + 1} ({counted(len(point), 'such row')}): remove points that separate thousands"
        )
    return column.where(~comma, column.str.replace(",", ".", regex=False))


def texts_of(column: "Series", place: str) -> np.ndarray:
    """Return the cells of a column as texts ``(n,)``; raise ValueError, with ``place``, where memory is short."""
    texts = column.astype(str)
    # An array of texts has room for the longest one in each row.
    check_size(place, len(texts) * int(texts.str.len().max()))
    return np.asarray(texts.to_numpy(str))


def check_single_precision(values: np.ndarray, place: str, remedy: str, *, first: int = 1) -> None:
    """Raise ValueError, with ``place`` and row, if different whole numbers are one number in single precision.

    values: (n,) numbers, of which none is missing; numbers with fractions are rounded without an error. ``first``: the
    number of the first row.
    """
    if not (np.abs(values.astype(np.float64)) > 2**24).any() or not (values == np.rint(values)).all():
        return
    different = np.unique(values)
    same = np.flatnonzero(np.diff(different.astype(np.float32)) == 0)
    if len(same):
        row = int(np.flatnonzero(values == different[same[0] + 1])[0])
        raise ValueError(
            f"{place} holds different whole numbers that are one number in single precision, as in row {row + first}: "
            f"{remedy}"
        )


def check_present(column: "Series", place: str) -> None:
    """Raise ValueError, with ``place`` and row, if a cell of the column is missing."""
    missing = np.flatnonzero(column.isna().to_numpy())
    if len(missing):
        raise ValueError(
            f"{place} must have a value in every row, got none in row {missing[0] + 1} "
            f"({counted(len(missing), 'such row')}): complete the rows or remove them; in a text file, the words NA, "
            'N/A, NaN, null and None and a question mark mean a missing value; missing = "fill" allows it in columns '
            "other than label, owner and split"
        )


def _check_told_apart(column: "Series", found: np.ndarray, place: str) -> None:
    """Raise ValueError if two different whole numbers are one float."""
    large = np.flatnonzero(np.abs(found) > _EXACT)
    if not len(large):
        return
    known, shared = dict[float, int](), list[int]()
    for row, cell in zip(large.tolist(), column.iloc[large], strict=True):
        try:
            whole = int(cell)
        except ValueError:  # A text such as 1e30, which is the float itself.
            continue
        if known.setdefault(float(found[row]), whole) != whole:
            shared.append(row)
    if shared:
        raise ValueError(
            f"{place} holds different whole numbers that are too large to tell apart in double precision, as in row "
            f"{shared[0] + 1} ({counted(len(shared), 'such row')}): subtract a constant from all of them, or list it "
            "in drop if it names the record"
        )
