"""Loads the Adult census data: whether a person in the US of 1994 earns more than 50,000 dollars (Kohavi 1996; UCI)."""

import numpy as np
import torch
from torch import Tensor

from .data_folder import DataFolder
from .dataset import Dataset

TRAIN, TEST = "adult/adult.data.gz", "adult/adult.test.gz"
_MISSING = "?"
# Both from the data set's documentation, not from its rows: one person's data must not change another's features.
_COLUMNS: dict[str, tuple[int, int] | str] = {
    "age": (0, 100),
    "workclass": "? Federal-gov Local-gov Never-worked Private Self-emp-inc Self-emp-not-inc State-gov Without-pay",
    "fnlwgt": (0, 1_500_000),
    "education": "10th 11th 12th 1st-4th 5th-6th 7th-8th 9th Assoc-acdm Assoc-voc Bachelors Doctorate HS-grad Masters "
    "Preschool Prof-school Some-college",
    "education-num": (1, 16),
    "marital-status": "Divorced Married-AF-spouse Married-civ-spouse Married-spouse-absent Never-married Separated "
    "Widowed",
    "occupation": "? Adm-clerical Armed-Forces Craft-repair Exec-managerial Farming-fishing Handlers-cleaners "
    "Machine-op-inspct Other-service Priv-house-serv Prof-specialty Protective-serv Sales Tech-support "
    "Transport-moving",
    "relationship": "Husband Not-in-family Other-relative Own-child Unmarried Wife",
    "race": "Amer-Indian-Eskimo Asian-Pac-Islander Black Other White",
    "sex": "Female Male",
    "capital-gain": (0, 99_999),
    "capital-loss": (0, 5_000),
    "hours-per-week": (0, 100),
    "native-country": "? Cambodia Canada China Columbia Cuba Dominican-Republic Ecuador El-Salvador England France "
    "Germany Greece Guatemala Haiti Holand-Netherlands Honduras Hong Hungary India Iran Ireland Italy Jamaica Japan "
    "Laos Mexico Nicaragua Outlying-US(Guam-USVI-etc) Peru Philippines Poland Portugal Puerto-Rico Scotland South "
    "Taiwan Thailand Trinadad&Tobago United-States Vietnam Yugoslavia",
    "target": "<=50K >50K",
}
"""The columns of the files in their order, each with the public range of its numbers or with its known values."""
_WIDTHS = {name: len(known.split()) if isinstance(known, str) else 1 for name, known in _COLUMNS.items()}
FEATURES = sum(_WIDTHS.values()) - _WIDTHS["target"]


def adult(folder: DataFolder) -> Dataset:
    """Load the Adult data set with its official split: 32,561 training and 16,281 test rows.

    Each row is an image 1x1x108; rows are in the order of the files.

    Six numbers scaled to [0, 1] by public ranges, and 102 indicators, column by column as in the files; a missing value
    is a category of its own. Labels: 1 for more than 50,000 dollars. The census weight ``fnlwgt`` is a feature like any
    other. 24 training rows repeat another row: of such a pair one may take part and the other not.

    Raises:
        DatasetMissing: if a file is not in ``folder``.
        ValueError: for a file that is not gzip text, or a row that does not fit; the message gives file, line and
            column but never the content.
    """
    columns = tuple((name, width) for name, width in _WIDTHS.items() if name != "target")
    return Dataset.of_parts("adult", _table(folder, TRAIN), _table(folder, TEST), classes=2, columns=columns)


def _table(folder: DataFolder, path: str) -> tuple[Tensor, Tensor]:
    """Images ``(n, 1, 1, 108)`` and labels ``(n,)``."""
    rows = list[list[float]]()
    # The test file starts with a remark, and both files end with an empty line.
    for number, line in enumerate(folder.text(path, of="adult").splitlines(), start=1):
        if line.strip() and not line.startswith("|"):
            try:
                # The test file ends its targets with a full stop, the training file does not.
                rows.append(_encoded([cell.strip() for cell in line.strip().removesuffix(".").split(",")]))
            except ValueError as error:
                # Without the cause's traceback, which could show the row.
                raise ValueError(f"{folder.root}/{path} line {number}: {error}") from None
    if not rows:
        raise ValueError(f"{folder.root}/{path} must hold at least one table row, got none")
    numbers = torch.from_numpy(np.array(rows, dtype=np.float32))
    return numbers[:, :FEATURES].reshape(-1, 1, 1, FEATURES).clone(), numbers[:, -1].long()


def _encoded(cells: list[str]) -> list[float]:
    if len(cells) != len(_COLUMNS):
        raise ValueError(f"a table row must have {len(_COLUMNS)} cells, got {len(cells)}")
    row: list[float] = []
    for (name, known), cell in zip(_COLUMNS.items(), cells, strict=True):
        row += _indicators(name, cell, known.split()) if isinstance(known, str) else [_scaled(name, cell, *known)]
    return row


def _scaled(name: str, cell: str, low: int, high: int) -> float:
    if not (cell.isdecimal() and low <= int(cell) <= high):
        raise ValueError(f"{name} must be a whole number in {low}..{high}, got another value")
    # Fixed public ranges: ranges of the data would leak its extreme values.
    return (int(cell) - low) / (high - low)


def _indicators(name: str, cell: str, known: list[str]) -> list[float]:
    if cell not in known:
        missing = " or ? where it is missing" if _MISSING in known else ""
        raise ValueError(f"{name} must be one of its {len(known)} documented values{missing}, got another value")
    return [float(value == cell) for value in known]
