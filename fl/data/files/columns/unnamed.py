"""Finds columns without a name: the index that pandas and R write, empty ones at the end of a line, and data."""

import re
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from pandas import DataFrame, Series

_UNNAMED = re.compile(r"|Unnamed: \d+|__index_level_\d+__")
_INDEX = "__index_level_"
"""How pandas names the index of a table without a name of its own in a Parquet file."""


def without_index(frame: "DataFrame", file: str, drop: tuple[str, ...]) -> tuple["DataFrame", list[str]]:
    """Return the table without columns that have no name and hold no data, and a sentence for each.

    A column without a name, or with one that pandas gives to such a column, is left out if it is empty, numbers the
    rows from 0 or 1 on, or is the index of a pandas table. One listed in ``drop`` is kept here.

    Raises ValueError, with file and column, for any other column without a name: it may hold data.
    """
    kept, notes = list[int](), list[str]()
    for position, name in enumerate(frame.columns):
        if not _UNNAMED.fullmatch(str(name)) or name in drop:
            kept.append(position)
            continue
        column, place = frame.iloc[:, position], f"Column {position + 1}, which has no name of its own,"
        if str(name).startswith(_INDEX):
            notes.append(f"Column {position + 1} is the index of a pandas table and was left out.")
        elif column.isna().all():
            notes.append(f"{place} is empty and was left out.")
        elif _numbers_rows(column):
            notes.append(f"{place} numbers the rows and was left out.")
        else:
            raise ValueError(
                f"{file}: column {position + 1} of {frame.shape[1]} has no name ({str(name)!r}) and does not number "
                f"the rows from 0 or 1 on: give it a name if it holds data, or leave it out by drop = [{str(name)!r}]"
            )
    return frame.iloc[:, kept], notes


def _numbers_rows(column: "Series") -> bool:
    import pandas

    found = pandas.to_numeric(column, errors="coerce").to_numpy(dtype=np.float64, na_value=np.nan)
    return len(found) > 0 and found[0] in (0, 1) and bool((found == np.arange(len(found)) + found[0]).all())
