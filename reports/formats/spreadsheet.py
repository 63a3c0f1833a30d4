"""All records as CSV: one row a record, the same columns in the same order for every run."""

import csv
import io
from collections.abc import Sequence

from ...suites.results.record import Record
from ..reading.run_folder import RunFolder
from ..tables.run_tables import labels

COLUMNS = ("run", *(field.alias or name for name, field in Record.model_fields.items()))
_FORMULA = "=+-@＝＋－＠"


def spreadsheet(folders: Sequence[RunFolder]) -> str:
    """Rows of all runs in the order of their files, each behind its run's name.

    A text that a spreadsheet would take for a formula gets an apostrophe in front; numbers stay numbers, and what was
    not measured is an empty cell.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\r\n")  # RFC 4180; and both signs inside a text are quoted.
    writer.writerow(COLUMNS)
    for label, folder in zip(labels(folders), folders, strict=True):
        for record in folder.records:
            writer.writerow([quiet(label), *(_cell(value) for value in record.model_dump().values())])
    return text.getvalue()


def _cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    return quiet(value) if isinstance(value, str) else repr(value)


def quiet(text: str) -> str:
    """Text that no spreadsheet calculates: programs look past blanks in front, and take a tab for the next cell."""
    start = text.lstrip()[:1]
    return f"'{text}" if (start and start in _FORMULA) or text[:1] in ("\t", "\r", "\n") else text
