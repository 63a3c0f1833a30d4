"""Reads a data set from a text file of comma-separated (.csv) or tab-separated (.tsv) values."""

import csv
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ..dataset import Dataset
from .columns.table_options import TableOptions
from .limit import check_size
from .table import dataset_of_table

if TYPE_CHECKING:
    from pandas import DataFrame

MISSING = ("", "NA", "N/A", "NaN", "nan", "null", "NULL", "None", "?")
"""The cells that count as missing values."""


@dataclass(frozen=True, kw_only=True)
class CsvOptions(TableOptions):
    """The options of a text file: those of a table, and ``separator``.

    Args:
        separator: one character; by default a comma, or a tab in a ``.tsv`` file.
    """

    separator: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.separator, str) or len(self.separator) > 1:
            raise ValueError(f"separator must be one character, got {self.separator!r}")


def read_csv(path: Path, name: str, options: CsvOptions) -> Dataset:
    """Read a data set from a text file in UTF-8 whose first line names the columns (see ``dataset_of_table``).

    Empty cells, and the words NA, N/A, NaN, null, None and ``?``, are missing values. Raises ValueError, with file,
    column and row, for a file that does not fit.
    """
    separator = options.separator or ("\t" if path.suffix.lower() == ".tsv" else ",")
    frame = _frame(path, separator, options.label_columns[0])
    test = _frame(path.parent / options.test, separator, options.label_columns[0]) if options.test else None
    return dataset_of_table(frame, test, file=path.name, name=name, options=options)


def _frame(path: Path, separator: str, label: str) -> "DataFrame":
    import pandas

    # Each number takes at least two characters in the file.
    check_size(path.name, path.stat().st_size // 2)
    try:
        columns = _header(path, separator)
        if label not in columns and len(columns) == 1:
            raise ValueError(
                f"{path.name} must have columns separated by {separator!r}, got a first line with only one column: set "
                "separator if it is another character"
            )
        # All cells as text: pandas would otherwise choose types by blocks of rows, and rename columns of equal names.
        frame = pandas.read_csv(
            path,
            sep=separator,
            dtype=str,
            header=None,
            skiprows=1,
            names=range(len(columns)),
            keep_default_na=False,
            na_values=list(MISSING),
            skipinitialspace=True,
            encoding="utf-8-sig",
            on_bad_lines="error",
        )
    except UnicodeDecodeError as error:
        raise ValueError(f"{path.name} must be text in UTF-8, got another byte at position {error.start}") from None
    except (pandas.errors.ParserError, csv.Error) as error:
        words = " ".join(str(error).split()).removeprefix("Error tokenizing data. C error: ")
        raise ValueError(f"{path.name} must have {len(columns)} cells in every line: {words}") from None
    except pandas.errors.EmptyDataError:
        frame = pandas.DataFrame(columns=range(len(columns)))
    # Where the lines have a cell more than the header, pandas takes the first one for a name of the row.
    if not isinstance(frame.index, pandas.RangeIndex):
        raise ValueError(f"{path.name} must have {len(columns)} cells in every line, as in its first, got more")
    frame.columns = pandas.Index(columns)
    return frame


def _header(path: Path, separator: str) -> list[str]:
    with path.open(encoding="utf-8-sig", newline="") as lines:
        columns = next(csv.reader(lines, delimiter=separator), [])
    if not columns:
        raise ValueError(f"{path.name} must have the names of its columns in the first line, got an empty line or file")
    return [one.strip() for one in columns]
