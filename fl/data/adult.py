"""Loads the Adult census data: whether a person in the US of 1994 earns more than 50,000 dollars (Kohavi 1996; UCI)."""

import gzip
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from .data_folder import DataFolder
from .dataset import Dataset

TRAIN, TEST = "adult/adult.data.gz", "adult/adult.test.gz"
_TARGETS = {"<=50K": 0, ">50K": 1}
_MISSING = "?"
# Both from the data set's documentation, not from its rows: one person's data must not change another's features.
_RANGES = {
    "age": (0, 100),
    "fnlwgt": (0, 1_500_000),
    "education-num": (1, 16),
    "capital-gain": (0, 99_999),
    "capital-loss": (0, 5_000),
    "hours-per-week": (0, 100),
}
_VALUES = {
    "workclass": "? Federal-gov Local-gov Never-worked Private Self-emp-inc Self-emp-not-inc State-gov Without-pay",
    "education": "10th 11th 12th 1st-4th 5th-6th 7th-8th 9th Assoc-acdm Assoc-voc Bachelors Doctorate HS-grad Masters "
    "Preschool Prof-school Some-college",
    "marital-status": "Divorced Married-AF-spouse Married-civ-spouse Married-spouse-absent Never-married Separated "
    "Widowed",
    "occupation": "? Adm-clerical Armed-Forces Craft-repair Exec-managerial Farming-fishing Handlers-cleaners "
    "Machine-op-inspct Other-service Priv-house-serv Prof-specialty Protective-serv Sales Tech-support "
    "Transport-moving",
    "relationship": "Husband Not-in-family Other-relative Own-child Unmarried Wife",
    "race": "Amer-Indian-Eskimo Asian-Pac-Islander Black Other White",
    "sex": "Female Male",
    "native-country": "? Cambodia Canada China Columbia Cuba Dominican-Republic Ecuador El-Salvador England France "
    "Germany Greece Guatemala Haiti Holand-Netherlands Honduras Hong Hungary India Iran Ireland Italy Jamaica Japan "
    "Laos Mexico Nicaragua Outlying-US(Guam-USVI-etc) Peru Philippines Poland Portugal Puerto-Rico Scotland South "
    "Taiwan Thailand Trinadad&Tobago United-States Vietnam Yugoslavia",
}
_COLUMNS = (
    "age",
    "workclass",
    "fnlwgt",
    "education",
    "education-num",
    "marital-status",
    "occupation",
    "relationship",
    "race",
    "sex",
    "capital-gain",
    "capital-loss",
    "hours-per-week",
    "native-country",
)
_PLACES = {name: {value: place for place, value in enumerate(values.split())} for name, values in _VALUES.items()}
FEATURES = len(_RANGES) + sum(len(places) for places in _PLACES.values())


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
    paths = [folder.file(path, of="adult") for path in (TRAIN, TEST)]
    train, test = (_table(path) for path in paths)
    return Dataset(
        name="adult",
        train_images=train[0],
        train_labels=train[1],
        test_images=test[0],
        test_labels=test[1],
        classes=2,
        columns=tuple((name, 1 if name in _RANGES else len(_PLACES[name])) for name in _COLUMNS),
    )


def _table(path: Path) -> tuple[Tensor, Tensor]:
    """Images ``(n, 1, 1, 108)`` and labels ``(n,)``."""
    features, labels = [], []
    for number, cells in _rows(path):
        try:
            features.append(_encoded(cells))
            labels.append(_target(cells[-1]))
        except ValueError as error:
            # Without the cause's traceback, which could show the row.
            raise ValueError(f"{path} line {number}: {error}") from None
    if not labels:
        raise ValueError(f"{path} must hold at least one table row, got none")
    images = torch.from_numpy(np.array(features, dtype=np.float32)).reshape(-1, 1, 1, FEATURES)
    return images, torch.tensor(labels)


def _rows(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Line numbers and cells; the test file starts with a remark, and both files end with an empty line."""
    try:
        with gzip.open(path, "rt", encoding="ascii") as lines:
            for number, line in enumerate(lines, start=1):
                if line.strip() and not line.startswith("|"):
                    yield number, [cell.strip() for cell in line.split(",")]
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} must be a gzip file of comma-separated text: {type(error).__name__}") from error


def _encoded(cells: Sequence[str]) -> list[float]:
    if len(cells) != len(_COLUMNS) + 1:
        raise ValueError(f"a table row must have {len(_COLUMNS) + 1} cells, got {len(cells)}")
    row: list[float] = []
    for name, cell in zip(_COLUMNS, cells[:-1], strict=True):
        row += [_scaled(name, cell)] if name in _RANGES else _indicators(name, cell)
    return row


def _scaled(name: str, cell: str) -> float:
    low, high = _RANGES[name]
    if not (cell.isdecimal() and low <= int(cell) <= high):
        raise ValueError(f"{name} must be a whole number in {low}..{high}, got another value")
    # Fixed public ranges: ranges of the data would leak its extreme values.
    return (int(cell) - low) / (high - low)


def _indicators(name: str, cell: str) -> list[float]:
    places = _PLACES[name]
    if cell not in places:
        missing = " or ? where it is missing" if _MISSING in places else ""
        raise ValueError(f"{name} must be one of its {len(places)} documented values{missing}, got another value")
    return [float(place == places[cell]) for place in places.values()]


def _target(cell: str) -> int:
    # The test file ends its targets with a full stop, the training file does not.
    if (name := cell.removesuffix(".")) not in _TARGETS:
        raise ValueError(f"the target must be {' or '.join(_TARGETS)}, got another value")
    return _TARGETS[name]
