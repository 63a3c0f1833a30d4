"""Reads text files (.csv, .tsv) and Parquet files with pandas, and numpy files (.npz, .npy) without pickle."""

import csv
import io
import re
import zipfile
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from math import prod
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from .options import PER_NUMBER, check_size, refuse_rows

if TYPE_CHECKING:
    from pandas import DataFrame, Series

MISSING = ("", "NA", "N/A", "NaN", "nan", "null", "NULL", "None", "?")
"""The cells of a text file that count as missing values."""
_SEPARATORS = ",\t;|"
_COMMAS = str.maketrans(",.", ".,")
_UNNAMED = re.compile(r"|Unnamed: \d+|__index_level_\d+__")
_REMEDY = ": correct the rows, leave the cells empty, or list the column in categories"
_EXACT = 2**53
"""Below this size every whole number is a float of 64 bits of its own."""
_HEADER = 1 << 16
"""Bytes among which the header of an array must end."""
_COLUMNS = 2**16
"""Columns of a text file, at most: each takes time, however few lines there are."""
_ROWS = 1 << 16
"""Rows of a text file that are read at once."""


def read_table(
    path: Path, separator: str = "", missing: Sequence[str] = MISSING, numeric: Collection[str] = ()
) -> "DataFrame":
    """Read the table of a text file, whose cells are texts or missing, or of a Parquet file.

    A text file is in UTF-8, names its columns in the first line, and has as many cells in every other line.
    ``separator``: of its cells; by default a comma, or a tab in a .tsv file. ``missing``: its cells that are missing.
    ``numeric``: names of columns of a text file that become numbers, in less memory, if all of them hold nothing else.

    Raises ValueError, with file and line, for a file that does not fit or needs too much memory.
    """
    if path.suffix.lower() == ".parquet":
        return _parquet(path)
    return _text(path, separator or ("\t" if path.suffix.lower() == ".tsv" else ","), missing, numeric)


def arrays_of(path: Path, wanted: Callable[[str], bool], *, more: int = PER_NUMBER) -> dict[str, np.ndarray | None]:
    """Return the arrays of a numpy file, keyed by name; None for arrays that are not ``wanted``.

    The array of a .npy file has the name "". ``more``: bytes of memory that each number will take besides its own.

    Raises ValueError, with the file's name, for a damaged file, Python objects, whose reading could run code, arrays
    that are not as large as their headers claim, and more memory for all of them together than the limit allows.
    """
    found = dict[str, np.ndarray | None]()
    try:
        if path.suffix.lower() == ".npy":
            with path.open("rb") as content:
                return {"": _array(content, path.stat().st_size, path.name, more, ())}
        with zipfile.ZipFile(path) as archive:
            for member in archive.infolist():
                name = member.filename.removesuffix(".npy")
                if name in found:
                    raise ValueError(f"{path.name} holds two arrays of the name {name}, and needs one")
                found[name] = None
                if wanted(name):
                    with archive.open(member) as content:
                        place = f"{path.name}: array {name}"
                        found[name] = _array(content, member.file_size, place, more, found.values())
        return found
    except Exception as error:  # For damaged files, numpy and zipfile raise errors of many kinds.
        if isinstance(error, ValueError) and path.name in str(error):
            raise
        words = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise ValueError(f"{path.name} cannot be read as a numpy file: {words}") from None


def numbers_of(column: "Series", place: str, decimal: str = ".", remedy: str = _REMEDY) -> np.ndarray | None:
    """Return a column as float64 numbers ``(n,)``, NaN for missing cells, or ``(n, k)`` if its cells are lists of k
    numbers; None if it holds texts.

    ``decimal``: the sign before decimal places in texts. Raises ValueError, with ``place`` and row, for a column of
    mostly numbers with a text in it, cells of another type, and different whole numbers that are the same float.
    """
    import pandas

    if isinstance(column.dtype, pandas.CategoricalDtype):
        return None
    # Arrays, because pandas' own columns take longer, and a table may have many.
    present = column.notna().to_numpy()
    numeric = pandas.api.types.is_numeric_dtype(column) and column.dtype.kind != "c"
    known: Any = np.empty(0) if numeric else column.to_numpy(dtype=object)[present]
    if numeric:
        held = np.asarray(column.to_numpy(dtype=np.float64, na_value=np.nan))
    elif len(known) and all(isinstance(cell, list | tuple | np.ndarray) for cell in known):
        return _lists(column, place)
    elif all(isinstance(cell, str) for cell in known):
        if decimal == ",":
            # A point may separate thousands where a comma stands before decimal places: such a cell stays a text.
            known = np.array([cell.translate(_COMMAS) for cell in known], dtype=object)
        held = np.full(len(present), np.nan)
        held[present] = pandas.to_numeric(known, errors="coerce")
    else:
        kinds = ", ".join(
            sorted({"a whole number of more than 64 bits" if _huge(cell) else type(cell).__name__ for cell in known})
        )
        raise ValueError(f"{place} must hold real numbers, lists of them or texts, got {kinds}: drop or convert it")
    unread = np.isnan(held) & present
    if unread.any() and 2 * int(unread.sum()) >= int(present.sum()):
        return None
    sentence = f"{place} must hold numbers in all rows, as in most of them, got a text"
    refuse_rows(unread, sentence, remedy, first=1)
    large = np.abs(held) >= _EXACT
    if large.any() and column[large].nunique() > len(np.unique(held[large])):
        raise ValueError(
            f"{place} holds different whole numbers that are too large to tell apart in double precision, the first in "
            f"row {np.flatnonzero(large)[0] + 1}: subtract a constant from all of them, or drop it if it is a name"
        )
    return held


def _huge(cell: object) -> bool:
    return isinstance(cell, int) and cell.bit_length() > 63


def texts_of(column: "Series", place: str) -> np.ndarray:
    """Return the cells of a column as texts ``(n,)``; a missing cell is empty.

    Raises ValueError, with ``place``, where memory is short.
    """
    texts = column.astype(object).where(column.notna(), "").astype(str)
    # An array of texts has room for the longest one in each row.
    check_size(place, len(texts) * int(texts.str.len().max()), each=4)
    return np.asarray(texts.to_numpy(str))


def check_present(column: "Series", place: str) -> None:
    """Raise ValueError, with ``place`` and row, if a cell of the column is missing."""
    refuse_rows(
        column.isna().to_numpy(),
        f"{place} must have a value in every row, got none",
        ": complete the rows or remove them; in a text file, the words NA, N/A, NaN, null and None and a question mark "
        'mean a missing value; missing = "fill" allows it in columns other than label, owner and split',
        first=1,
    )


def without_index(frame: "DataFrame", file: str, drop: tuple[str, ...]) -> tuple["DataFrame", list[str]]:
    """Return the table without columns that have no name and hold no data, and one sentence for each removed column.

    A column without a name, or with one that pandas gives to such a column, is left out if it is empty, numbers the
    rows from 0 or 1 on, or is the index of a pandas table. One listed in ``drop`` is kept here.

    Raises ValueError, with file and column, for any other column without a name: it may hold data.
    """
    import pandas

    kept, notes = list[int](), list[str]()
    for position, name in enumerate(map(str, frame.columns)):
        if not _UNNAMED.fullmatch(name) or name in drop:
            kept.append(position)
            continue
        cells = pandas.to_numeric(frame.iloc[:, position], errors="coerce").to_numpy(np.float64, na_value=np.nan)
        steps = cells - np.arange(len(cells))
        if not (name.startswith("__") or frame.iloc[:, position].isna().all() or set(steps) in ({0}, {1})):
            raise ValueError(
                f"{file}: column {position + 1} of {frame.shape[1]} has no name ({name!r}) and does not number the "
                f"rows from 0 or 1 on: give it a name if it holds data, or leave it out by drop = [{name!r}]"
            )
        notes.append(f"Column {position + 1}, which has no name, was left out: it is empty or numbers the rows.")
    return frame.iloc[:, kept], notes


def _lists(column: "Series", place: str) -> np.ndarray:
    """Cells that are lists of equally many numbers, as a matrix; NaN in a row without a list."""
    sizes = {len(cell) for cell in column.dropna()}
    if len(sizes) > 1 or 0 in sizes:
        raise ValueError(f"{place} must hold lists of equally many numbers, got {sorted(sizes)[:5]} numbers")
    size = sizes.pop()
    check_size(place, len(column) * size)
    try:
        rows = [[np.nan] * size if cell is None else cell for cell in column.where(column.notna(), None)]
        return np.asarray(rows, dtype=np.float64).reshape(len(column), size)
    except (TypeError, ValueError):
        raise ValueError(f"{place} must hold lists of numbers, got lists of something else") from None


def _array(content: IO[bytes], size: int, place: str, more: int, others: Iterable[np.ndarray | None]) -> np.ndarray:
    """One array of a file of ``size`` bytes, after its header, which may claim any number, was checked."""
    # A header states its own length too, of up to 4 GB.
    start = io.BytesIO(content.read(_HEADER))
    try:
        version = np.lib.format.read_magic(start)
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, _, dtype = read(start)
    except Exception as error:  # A damaged header is evaluated as text, with errors of many kinds.
        raise ValueError(f"{place} is not an array as numpy saves it: {error}") from None
    if dtype.hasobject:
        raise ValueError(
            f"{place} holds Python objects, which are never read, because reading them could run code: save it as "
            "numbers or texts"
        )
    if min(shape, default=0) < 0:
        raise ValueError(f"{place} must have no negative length, got the shape {shape}")
    if (claimed := prod(shape) * dtype.itemsize) != (there := size - start.tell()):
        raise ValueError(f"{place} must hold {claimed} bytes, as its header states, got {there}")
    held = sum(one.size * (more + one.itemsize) for one in others if one is not None)
    check_size(place, held + prod(shape) * (more + dtype.itemsize), each=1)
    content.seek(0)
    return np.asarray(np.lib.format.read_array(content, allow_pickle=False))


def _text(path: Path, separator: str, missing: Sequence[str], numeric: Collection[str]) -> "DataFrame":
    import pandas

    # Each number takes at least two characters in the file.
    check_size(path.name, path.stat().st_size // 2)
    try:
        columns, last = _checked_header(path, separator)
        places = [place for place, name in enumerate(columns) if name in numeric]
        # A column with a text in one block is read again, as texts alone.
        for chosen in (places, []):
            # All cells as text: pandas would otherwise choose types by blocks of rows, and rename equal columns.
            blocks = pandas.read_csv(
                path,
                sep=separator,
                dtype=str,
                header=0,
                names=list(range(len(columns))),
                keep_default_na=False,
                na_values=list(missing),
                skipinitialspace=True,
                encoding="utf-8-sig",
                chunksize=_ROWS,
            )
            with blocks:
                frame = pandas.concat([_with_numbers(block, chosen) for block in blocks], ignore_index=True)
            if all(frame[place].dtype.kind == "f" for place in chosen):
                break
    except (UnicodeDecodeError, csv.Error, pandas.errors.ParserError) as error:
        # pandas counts rows, among which are no empty lines.
        words = f"a quote in line {last} is not closed" if "EOF inside string" in str(error) else str(error)
        raise ValueError(f"{path.name} must be a table in UTF-8: {words}") from None
    frame.columns = pandas.Index(columns)
    return frame


def _with_numbers(block: "DataFrame", places: Sequence[int]) -> "DataFrame":
    """The block of rows with those of these columns as numbers that hold no text and no number beyond ``_EXACT``."""
    import pandas

    for place in places:
        found = pandas.to_numeric(block[place].astype(object), errors="coerce").astype(np.float64)
        if (found.isna() == block[place].isna()).all() and not (found.abs() >= _EXACT).any():
            block[place] = found
    return block


def _checked_header(path: Path, separator: str) -> tuple[list[str], int]:
    """The names of the columns, and the line in which the last row begins; pandas would fill short lines, and cut long
    ones or take their first cells as names.
    """
    with path.open(encoding="utf-8-sig", newline="") as file:
        rows = _rows(file, separator)
        begins, header = next(rows, (1, []))
        # A file may begin with several byte order marks.
        columns = [name.strip().lstrip("\ufeff") for name in header]
        if len(columns) > _COLUMNS:
            raise ValueError(
                f"{path.name} must have at most {_COLUMNS} columns, got {len(columns)}: save arrays as .npz"
            )
        if not columns:
            raise ValueError(f"{path.name} must have the names of its columns in the first line, got an empty line")
        if columns[0].startswith("# ") or (len(columns) == 1 and columns[0].startswith("#")):
            raise ValueError(
                f"{path.name} must have the names of its columns in the first line, got a comment "
                f"({columns[0][:40]!r}): remove the comment, or its mark # if it holds the names"
            )
        if len(columns) == 1 and (other := [mark for mark in _SEPARATORS if mark in columns[0]]):
            raise ValueError(
                f"{path.name} must have columns separated by {separator!r}, got a first line with only one column, in "
                f"which {other[0]!r} stands: name the file .csv (commas) or .tsv (tabs), or set separator in a suite"
            )
        for begins, row in rows:
            if row and len(row) != len(columns):
                quoted = "" if all("\n" not in cell for cell in row) else ", where a quote is opened that joins lines"
                raise ValueError(
                    f"{path.name} must have {len(columns)} cells in every line, as its first line has, got {len(row)} "
                    f"in line {begins}{quoted}: put a cell that contains {separator!r} in quotes"
                )
    return columns, begins


def _rows(file: IO[str], separator: str) -> Iterator[tuple[int, list[str]]]:
    """The rows of a text file, each with the line in which it begins."""
    rows, begins = csv.reader(file, delimiter=separator, skipinitialspace=True), 1
    try:
        for row in rows:
            yield begins, row
            begins = rows.line_num + 1
    except csv.Error as error:
        raise csv.Error(f"{error} in the row that begins in line {begins}; perhaps a quote is not closed") from None


def _parquet(path: Path) -> "DataFrame":
    try:
        from pyarrow import ArrowException
        from pyarrow.parquet import ParquetFile
    except ImportError:
        raise ValueError(
            f"{path.name} can be read only with the package pyarrow, which is not installed: install it, for example "
            "by pip install 'fedassay[parquet]', or convert the file to .csv"
        ) from None
    try:
        with ParquetFile(path) as file:
            # Compressed: a small file may hold billions of cells.
            groups = [file.metadata.row_group(number) for number in range(file.metadata.num_row_groups)]
            cells = [group.column(number).num_values for group in groups for number in range(group.num_columns)]
            check_size(path.name, sum(cells))
            # Without the metadata of pandas, by which a column of data could become an index that is not read; whole
            # numbers and booleans with missing values would otherwise become floats and objects.
            return file.read().to_pandas(ignore_metadata=True, types_mapper=_nullable().get)
    except (ArrowException, OSError) as error:
        raise ValueError(f"{path.name} must be a Parquet file: {error}") from None


def _nullable() -> dict[Any, Any]:
    """The types of pandas for whole numbers and booleans that may be missing."""
    import pandas
    import pyarrow

    whole = {pyarrow.int64(): pandas.Int64Dtype(), pyarrow.uint64(): pandas.UInt64Dtype()}
    return whole | {pyarrow.bool_(): pandas.BooleanDtype()}
