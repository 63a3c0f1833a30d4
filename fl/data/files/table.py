"""Turns a table of records into a data set: numbers are standardised, categories become indicators.

Messages give the file, the column and the row (from 1 on, without the header and empty lines), and never a value of a
record.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from ....audit.nearest import nearest
from ...objective import MULTILABEL
from ..dataset import Dataset
from .limit import check_size
from .npz import owner_numbers
from .options import SplitOptions, check_choice, check_names, check_range
from .samples import Samples, dataset_of
from .split import split_note, test_rows
from .targets import LabelRule, check_numbers, check_task, flags, is_classification

if TYPE_CHECKING:
    from pandas import DataFrame, Series

MOST_LEVELS = 100
"""A column of more different texts is more likely a name or a number of the record than a category."""
MOST_LABELS = 1000
_SHARE_OF_NUMBERS = 0.5


@dataclass(frozen=True, kw_only=True)
class TableOptions(SplitOptions):
    """The options of a table.

    Args:
        label: column of the labels.
        labels: columns of several labels per sample, in place of ``label``.
        task: "classification", as by default; "regression": the labels are numbers to predict, which are scaled like
            other columns of numbers (``ranges``, ``scale``); "multilabel": each of ``labels`` is 0 or 1.
        owner: column of the owners; by default a column ``owner`` where there is one.
        split: column that holds ``train`` or ``test`` for each row; by default a part is split off for testing.
        test: file with the test rows, in the same folder and of the same format; by default there is none.
        drop: columns that are not used.
        categories: columns of numbers that are categories, and columns of texts with more than 100 different values.
        ranges: public range of a column of numbers, ``{ age = [0, 100] }``, which is scaled to [0, 1] by it and not by
            the training rows.
        scale: "standardise": columns of numbers without a range get mean 0 and standard deviation 1 over the training
            rows; "none": they are kept.
        missing: "refuse", or "fill": a missing number becomes the mean of the training rows, a missing text is a
            category of its own.
    """

    label: str = "label"
    labels: tuple[str, ...] = ()
    task: str = ""
    owner: str = ""
    split: str = ""
    test: str = ""
    drop: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    ranges: Mapping[str, Any] = field(default_factory=dict)
    scale: str = "standardise"
    missing: str = "refuse"

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("label", "owner", "split", "test"):
            if not isinstance(getattr(self, name), str):
                raise ValueError(f"{name} must be a name, got {getattr(self, name)!r}")
        if not self.label:
            raise ValueError("label must be the name of a column, got ''")
        if isinstance(self.labels, str):
            raise ValueError(
                f"labels must be a list of columns, got {self.labels!r}: a single column is given by label"
            )
        check_names("labels", self.labels)
        check_task(self.task)
        if self.labels and is_classification(self.task):
            raise ValueError(
                'labels (several columns) needs a task: set task = "multilabel" if each label holds (1) or not (0), '
                f'or task = "regression" if they are numbers to predict; got labels {list(self.labels)}'
            )
        if self.task == MULTILABEL and len(self.labels) < 2:
            raise ValueError(
                f"task {MULTILABEL!r} needs labels, the names of at least two columns, got {list(self.labels)}"
            )
        if self.labels and self.label != "label":
            raise ValueError(f"only one of label and labels can be given, got {self.label!r} and {list(self.labels)}")
        if len(set(self.labels)) < len(self.labels):
            raise ValueError(f"labels must be different columns, got {list(self.labels)}")
        used = {*self.drop, self.owner, self.split} & set(self.label_columns)
        if used and not is_classification(self.task):
            raise ValueError(f"a column of labels must not be in drop, owner or split, got {min(used)!r}")
        if self.split and self.test:
            raise ValueError(
                f"only one of split (a column) and test (a file) can be given, got {self.split!r} and {self.test!r}"
            )
        check_names("drop", self.drop)
        check_names("categories", self.categories)
        check_choice("scale", self.scale, ("standardise", "none"))
        check_choice("missing", self.missing, ("refuse", "fill"))
        if not isinstance(self.ranges, Mapping):
            raise ValueError(f"ranges must be a table such as {{ age = [0, 100] }}, got {self.ranges!r}")
        for name, bounds in self.ranges.items():
            check_range(f"ranges.{name}", bounds)

    @property
    def label_columns(self) -> tuple[str, ...]:
        """The columns of the labels."""
        return self.labels or (self.label,)


def dataset_of_table(
    frame: "DataFrame", test: "DataFrame | None", *, file: str, name: str, options: TableOptions
) -> Dataset:
    """Build a data set from the rows of a table, and from its test rows where they are a table of their own.

    Each column of numbers is one feature. A column of texts, or one listed in ``categories``, becomes one indicator per
    value that occurs in the training rows; another value in a test row has no indicator. Labels are the column's
    different values in their order, whole numbers by size and texts by alphabet; for other tasks than classification
    see ``TableOptions.task``. All constants are computed from the
    training rows alone.

    Raises ValueError, with file, column and row, for a table that does not fit.
    """
    import pandas

    if test is not None:
        if list(test.columns) != list(frame.columns):
            raise ValueError(f"{options.test} must have the columns of {file}, in the same order")
        chosen = np.arange(len(frame) + len(test)) >= len(frame)
        frame = pandas.concat([frame, test], ignore_index=True)
    _check_columns(frame, file, options)
    rule: LabelRule | None = None
    if is_classification(options.task):
        labels, names = _labels(frame[options.label], f"{file}: column {options.label}")
    else:
        labels, names, rule = _targets(frame, file, options)
    owner = options.owner or ("owner" if "owner" in frame.columns else "")
    owners = None
    if owner:
        _check_present(frame[owner], f"{file}: column {owner}")
        owners = owner_numbers(frame[owner].astype(str).to_numpy(str), f"{file}: column {owner}")
    notes = list[str]()
    if options.split:
        chosen = _given_split(frame[options.split], f"{file}: column {options.split}")
    elif test is None:
        kinds = labels if is_classification(options.task) else np.zeros(len(labels), dtype=np.int64)
        chosen = test_rows(kinds, owners, options, file)
        notes.append(split_note(chosen, owners, options))
    if is_classification(options.task) and len(np.unique(labels[~chosen])) < 2:
        raise ValueError(f"{file}: column {options.label} must hold at least two classes in the training rows, got one")
    used = [one for one in frame.columns if one not in {*options.label_columns, owner, options.split, *options.drop}]
    if not used:
        raise ValueError(f"{file} must have a column that is neither the label nor the owner, got none")
    encoder = _Encoder(file=file, train=~chosen, options=options)
    blocks = [encoder.encoded(one, frame[one]) for one in used]
    features = np.concatenate(blocks, axis=1).astype(np.float32)
    check_size(file, features.size)
    notes += encoder.notes()
    samples = Samples(images=features[:, None, None, :], labels=labels, owners=owners)
    return dataset_of(
        samples.at(~chosen),
        samples.at(chosen),
        name=name,
        file=file,
        options=options,
        classes=len(names),
        class_names=names,
        rows=True,
        notes=tuple(notes),
        rule=rule,
    )


class _Encoder:
    """Encodes one column after the other and counts what it did, for the notes."""

    def __init__(self, *, file: str, train: np.ndarray, options: TableOptions) -> None:
        self.file, self.train, self.options = file, train, options
        self.numbers, self.categories, self.indicators, self.filled, self.unseen = 0, 0, 0, 0, 0
        self.scaled, self.constant = 0, list[str]()

    def encoded(self, name: str, column: "Series") -> np.ndarray:
        """Return the features of one column, ``(n, k)``."""
        place = f"{self.file}: column {name}"
        missing = column.isna().to_numpy()
        if missing.any() and self.options.missing == "refuse":
            _check_present(column, place)
        self.filled += int(missing.sum())
        if missing[self.train].all():
            raise ValueError(f"{place} must hold a value in some training row, got none: list it in drop")
        numbers = None if name in self.options.categories else _numbers(column, place)
        if numbers is None and name in self.options.ranges:
            raise ValueError(f"{place} has a range but does not hold numbers")
        return self._indicators(name, column, place) if numbers is None else self._number(name, numbers, place)

    def _number(self, name: str, numbers: np.ndarray, place: str) -> np.ndarray:
        self.numbers += 1
        missing = np.isnan(numbers)
        wrong = np.flatnonzero(np.isinf(numbers))
        if len(wrong):
            raise ValueError(f"{place} must hold finite numbers, got an infinite one in row {wrong[0] + 1}")
        known = numbers[self.train & ~missing]
        mean = known.mean()
        filled = np.where(missing, mean, numbers)
        if name in self.options.ranges:
            low, high = self.options.ranges[name]
            wrong = np.flatnonzero((filled < low) | (filled > high))
            if len(wrong):
                raise ValueError(
                    f"{place} must lie in its range {low:g}..{high:g}, got another number in row "
                    f"{wrong[0] + 1} ({len(wrong)} such rows)"
                )
            return np.asarray((filled - low) / (high - low))[:, None]
        if self.options.scale == "none":
            return np.asarray(filled)[:, None]
        self.scaled += 1
        spread = known.std()
        # A constant column, up to rounding, says nothing; dividing by its deviation would blow up the rounding error.
        if spread <= 1e-12 * max(1.0, abs(float(mean))):
            self.constant.append(name)
            return np.zeros((len(numbers), 1))
        return np.asarray((filled - mean) / spread)[:, None]

    def _indicators(self, name: str, column: "Series", place: str) -> np.ndarray:
        self.categories += 1
        # An empty text cannot occur as a value, because an empty cell is a missing one.
        values = column.astype(object).where(column.notna(), "").astype(str).to_numpy(str)
        levels = np.unique(values[self.train])
        if len(levels) > MOST_LEVELS and name not in self.options.categories:
            raise ValueError(
                f"{place} has {len(levels)} different texts, more than {MOST_LEVELS}: list it in drop if it names the "
                "record, or in categories if it is a category"
            )
        self.indicators += len(levels)
        check_size(place, len(values) * len(levels))
        self.unseen += int((~np.isin(values, levels)).sum())
        return np.asarray(values[:, None] == levels[None, :], dtype=np.float32)

    def notes(self) -> list[str]:
        """Return the sentences that report what was done."""
        found = [
            f"Columns of numbers: {self.numbers}. Columns of categories: {self.categories}, which became "
            f"{self.indicators} indicators."
        ]
        if self.scaled:
            found.append(
                f"{self.scaled} columns of numbers were standardised by mean and standard deviation of the training "
                "rows. These constants depend on private rows, and no claim covers them; ranges avoids this."
            )
        if self.constant:
            found.append(f"Columns that are constant in the training rows became 0: {', '.join(self.constant)}.")
        found.append(f"{self.filled} missing values were filled." if self.filled else "No value is missing.")
        if self.unseen:
            found.append(f"{self.unseen} values of test rows occur in no training row and have no indicator.")
        return found


def _numbers(column: "Series", place: str) -> np.ndarray | None:
    """The column as numbers, NaN where missing; None where it holds texts."""
    import pandas

    if pandas.api.types.is_bool_dtype(column):
        return np.asarray(column, dtype=np.float64)
    if pandas.api.types.is_numeric_dtype(column):
        return np.asarray(column.to_numpy(dtype=np.float64, na_value=np.nan))
    if isinstance(column.dtype, pandas.CategoricalDtype):
        return None
    given = column.dropna()
    if not all(isinstance(value, str) for value in given):
        kinds = sorted({type(value).__name__ for value in given})
        raise ValueError(f"{place} must hold numbers or texts, got {', '.join(kinds)}: list it in drop, or convert it")
    found = pandas.to_numeric(column, errors="coerce").to_numpy(dtype=np.float64, na_value=np.nan)
    text = np.flatnonzero(np.isnan(found) & column.notna().to_numpy())
    if not len(text):
        return np.asarray(found)
    if len(text) < (1 - _SHARE_OF_NUMBERS) * len(given):
        raise ValueError(
            f"{place} must hold numbers in all rows, as in most of them, got a text in row {text[0] + 1} ({len(text)} "
            "such rows): correct the rows, leave the cells empty, or list the column in categories"
        )
    return None


def _labels(column: "Series", place: str) -> tuple[np.ndarray, tuple[str, ...]]:
    """Class numbers and the names of the classes."""
    _check_present(column, place)
    numbers = _numbers(column, place)
    if numbers is not None:
        wrong = np.flatnonzero(numbers != np.rint(numbers))
        if len(wrong):
            raise ValueError(
                f"{place} must hold classes (whole numbers or texts), got a number with a fraction or an infinite one "
                f"in row {wrong[0] + 1} ({len(wrong)} such rows): "
                'set task = "regression" if they are numbers to predict'
            )
        known, found = np.unique(numbers, return_inverse=True)
        names = tuple(f"{value:.0f}" for value in known)
    else:
        known, found = np.unique(column.astype(str).to_numpy(str), return_inverse=True)
        names = tuple(map(str, known))
    if len(names) < 2:
        raise ValueError(f"{place} must hold at least two classes, got only one in {len(column)} rows")
    if len(names) > min(MOST_LABELS, max(2, len(column) // 2)):
        raise ValueError(
            f"{place} has {len(names)} different values in {len(column)} rows, too many for classes: name the "
            'column of the labels by label, or set task = "regression" if they are numbers to predict'
        )
    return found.astype(np.int64), names


def _targets(
    frame: "DataFrame", file: str, options: TableOptions
) -> tuple[np.ndarray, tuple[str, ...], LabelRule | None]:
    """Labels that are no classes ``(n, labels)``, the names of their columns, and how numbers are scaled."""
    names = options.label_columns
    places, columns = [f"{file}: column {name}" for name in names], list[np.ndarray]()
    for name, place in zip(names, places, strict=True):
        _check_present(frame[name], place)
        columns.append(_label_numbers(frame[name], place, options.task))
    values = np.stack(columns, axis=1)
    if options.task == MULTILABEL:
        return flags(values, places, first=1), names, None
    ranges = {place: options.ranges[name] for place, name in enumerate(names) if name in options.ranges}
    rule = LabelRule(places=places, ranges=ranges, standardise=options.scale == "standardise")
    return check_numbers(values, places, first=1), names, rule


def _label_numbers(column: "Series", place: str, task: str) -> np.ndarray:
    """A column of labels as numbers; where they are several labels, the words true and false are 1 and 0."""
    import pandas

    if pandas.api.types.is_numeric_dtype(column):
        return np.asarray(column.to_numpy(dtype=np.float64))
    # As text, because pandas would turn dates into whole numbers.
    words = column.astype(str).str.strip()
    if task == MULTILABEL:
        words = words.str.lower().replace({"true": "1", "false": "0"})
    found = pandas.to_numeric(words, errors="coerce").to_numpy(dtype=np.float64)
    text = np.flatnonzero(np.isnan(found))
    if len(text):
        wanted = "0 or 1" if task == MULTILABEL else "plain numbers such as 1234.5"
        raise ValueError(
            f"{place} must hold {wanted} for task {task!r}, got a text in row {text[0] + 1} ({len(text)} such rows)"
        )
    return np.asarray(found)


def _given_split(column: "Series", place: str) -> np.ndarray:
    _check_present(column, place)
    words = column.astype(str).str.strip().str.lower().to_numpy(str)
    wrong = np.flatnonzero(~np.isin(words, ("train", "test")))
    if len(wrong):
        raise ValueError(f"{place} must hold train or test, got another value in row {wrong[0] + 1}")
    chosen = np.asarray(words == "test")
    if chosen.all() or not chosen.any():
        raise ValueError(f"{place} must hold both train and test, got only {words[0]}")
    return chosen


def _check_columns(frame: "DataFrame", file: str, options: TableOptions) -> None:
    columns = [str(one) for one in frame.columns]
    twice = sorted({one for one in columns if columns.count(one) > 1})
    if twice:
        raise ValueError(f"{file} must have columns of different names, got {', '.join(twice)} more than once")
    if not len(frame):
        raise ValueError(f"{file} must have at least one row below its header, got none")
    listed = {
        "labels": options.labels,
        "drop": options.drop,
        "categories": options.categories,
        "ranges": tuple(options.ranges),
    }
    keys = ("owner", "split") if options.labels else ("label", "owner", "split")
    single = {key: (value,) for key in keys if (value := getattr(options, key))}
    for key, names in (single | listed).items():
        for name in names:
            if name not in columns:
                raise ValueError(f"{file} has no column {name!r} ({key}); it has {nearest(name, columns)}")


def _check_present(column: "Series", place: str) -> None:
    missing = np.flatnonzero(column.isna().to_numpy())
    if len(missing):
        raise ValueError(
            f"{place} must have a value in every row, got none in row {missing[0] + 1} ({len(missing)} such rows): "
            'complete the rows or remove them; missing = "fill" allows it in columns other than label, owner and split'
        )
