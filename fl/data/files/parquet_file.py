"""Reads a data set from a Parquet file."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..dataset import Dataset
from .columns.table_options import TableOptions
from .limit import check_size
from .table import dataset_of_table

if TYPE_CHECKING:
    from pandas import DataFrame


def read_parquet(path: Path, name: str, options: TableOptions) -> Dataset:
    """Read a data set from a Parquet file of numbers and texts (see ``dataset_of_table``).

    Raises ValueError where the package pyarrow is missing, and, with file, column and row, for a file that does not
    fit.
    """
    frame = _frame(path)
    test = _frame(path.parent / options.test) if options.test else None
    return dataset_of_table(frame, test, file=path.name, name=name, options=options)


def _frame(path: Path) -> "DataFrame":
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
            check_size(path.name, file.metadata.num_rows * file.metadata.num_columns)
            # Without the metadata of pandas, by which a column of data could become an index that is not read; whole
            # numbers and booleans with missing values would otherwise become floats and objects.
            return file.read().to_pandas(ignore_metadata=True, types_mapper=_nullable().get)
    except (ArrowException, OSError) as error:
        raise ValueError(f"{path.name} must be a Parquet file: {error}") from None


def _nullable() -> dict[Any, Any]:
    """The types of pandas for whole numbers and booleans that may be missing."""
    import pandas
    import pyarrow

    return {
        pyarrow.bool_(): pandas.BooleanDtype(),
        pyarrow.int64(): pandas.Int64Dtype(),
        pyarrow.uint64(): pandas.UInt64Dtype(),
    }
