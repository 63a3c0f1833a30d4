"""Write all result rows as CSV, with the same columns in the same order for every run."""

import csv
import io
from collections.abc import Sequence

from ...suites.results.record import Record
from ..overviews.several_runs import run_labels
from ..reading.run_folder import RunFolder

COLUMNS = ("run", *(field.alias or name for name, field in Record.model_fields.items()))
_FORMULA = "=+-@＝＋－＠"


def spreadsheet(folders: Sequence[RunFolder]) -> str:
    """Return all runs' result rows as CSV text, in the order of their files; the first column names the run.

    Text that a spreadsheet would run as a formula gets a leading apostrophe. A missing value is an empty cell.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\r\n")  # RFC 4180 requires these line ends.
    writer.writerow(COLUMNS)
    for label, folder in zip(run_labels(folders), folders, strict=True):
        # All of them, bookkeeping rows too: this format is for further computation.
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
    """Return the text such that no spreadsheet program runs it as a formula. An apostrophe is put before texts that
    such programs would read as one, even after blanks or tabs.
    """
    start = text.lstrip()[:1]
    return f"'{text}" if (start and start in _FORMULA) or text[:1] in ("\t", "\r", "\n") else text
