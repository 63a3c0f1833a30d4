"""Turns a table of records into a data set: numbers are scaled, categories become indicators.

Messages give the file, the column and the row (from 1 on, without the header and empty lines), and never a value of a
record.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from pydantic import Field, model_validator

from ....audit.wording import counted, nearest
from ...objective import CLASSIFICATION, MULTILABEL
from ..dataset import Dataset, first_of
from .options import Names, Range, Scale, SplitOptions, Task, check_size, refuse_rows
from .readers import check_present, numbers_of, read_table, texts_of, without_index
from .samples import (
    Labels,
    Samples,
    dataset_of,
    drawn_test_rows,
    owner_numbers,
    same_but_for_case,
    scaled,
    target_numbers,
)

if TYPE_CHECKING:
    from pandas import DataFrame, Series

MOST_LABELS = 1000
MOST_LEVELS = 100
"""A column of more different texts is more likely a name or a number of the record than a category."""
FEWEST_ROWS, IDENTIFYING = 20, 0.9
"""So many training rows, of which more than this share have a text of their own, are taken to have names of records."""

_FILLED = "Missing values that were filled"
_UNSEEN = "Values of test rows that have no indicator column, because no training row has them"
_STANDARDISED = (
    "Features standardised by mean and standard deviation of the training rows, which depend on private rows and which "
    "no claim covers (ranges avoids this)"
)


class TableOptions(SplitOptions):
    """The options for reading a data set from a table.

    Args:
        label: column of the labels.
        labels: columns of several labels per sample, in place of ``label``.
        task: "classification"; "regression": the labels are numbers to predict, which are scaled like other columns of
            numbers (``ranges``, ``scale``); "multilabel": each of ``labels`` is 0 or 1.
        owner: column of the owners; by default a column ``owner`` where there is one.
        split: column that holds ``train`` or ``test`` for each row; by default a part is split off for testing.
        test: file with the test rows, in the same folder and of the same format; by default there is none.
        drop: columns that are not used.
        categories: columns of numbers that are categories, and columns of texts that are categories although they have
            more than 100 different values or one in nearly every row; the column of the labels, if classes differ only
            by case or blanks.
        ranges: public range of a column of numbers, ``{ age = [0, 100] }``, which is scaled to [0, 1] by it and not by
            the training rows.
        scale: "standardise": columns of numbers without a range get mean 0 and standard deviation 1 over the training
            rows; "none": they are kept.
        missing: "refuse", or "fill": a missing number becomes the mean of the training rows, a missing text is a
            category of its own.
        decimal: sign before the decimal places of numbers that stand as texts, "." or ",".
        separator: of a text file, one character; by default a comma, or a tab in a ``.tsv`` file.
    """

    label: str = Field(default="label", min_length=1)
    labels: Names = ()
    task: Task = "classification"
    owner: str = ""
    split: str = ""
    test: str = ""
    drop: Names = ()
    categories: Names = ()
    ranges: Mapping[str, Range] = Field(default_factory=dict)
    scale: Scale = "standardise"
    missing: Literal["refuse", "fill"] = "refuse"
    decimal: Literal[".", ","] = "."
    separator: str = Field(default="", max_length=1)

    @model_validator(mode="after")
    def _check(self) -> "TableOptions":
        classes, several = self.task == CLASSIFICATION, list(self.labels)
        if several and classes:
            raise ValueError(
                'labels (several columns) needs a task: set task = "multilabel" if each label holds (1) or not (0), '
                f'or task = "regression" if they are numbers to predict; got labels {several}'
            )
        if self.task == MULTILABEL and len(several) < 2:
            raise ValueError(f"task {MULTILABEL!r} needs labels, the names of at least two columns, got {several}")
        if several and self.label != "label":
            raise ValueError(f"only one of label and labels can be given, got {self.label!r} and {several}")
        if len(set(several)) < len(several):
            raise ValueError(f"labels must be different columns, got {several}")
        # With classes, the label may be the owner: then a model recognises users.
        if used := {*self.drop, *(() if classes else (self.owner, self.split))} & set(self.label_columns):
            raise ValueError(f"a column of labels must not be in drop, owner or split, got {min(used)!r}")
        if self.split and self.test:
            raise ValueError(
                f"only one of split (a column) and test (a file) can be given, "
                f"got split = {self.split!r} and test = {self.test!r}"
            )
        return self

    @property
    def label_columns(self) -> tuple[str, ...]:
        """The names of the columns that hold the labels."""
        return self.labels or (self.label,)


def read_table_file(path: Path, name: str, options: TableOptions) -> Dataset:
    """Read a data set from a text file or a Parquet file; ``options.test`` may name a second file with the test
    rows.
    """
    frame = read_table(path, options.separator)
    test = read_table(path.parent / options.test, options.separator) if options.test else None
    return dataset_of_table(frame, test, file=path.name, name=name, options=options)


def dataset_of_table(
    frame: "DataFrame", test: "DataFrame | None", *, file: str, name: str, options: TableOptions
) -> Dataset:
    """Build a data set from the rows of a table; the test rows may be a separate table.

    Each column of numbers is one feature, and one of lists of k numbers is k features. A column of texts, or one listed
    in ``categories``, becomes one indicator per value that occurs in the training rows; another value in a test row has
    no indicator. Labels are the column's different values in their order, whole numbers by size and texts by alphabet;
    for other tasks than classification see ``TableOptions.task``. All constants are computed from the training rows
    alone.

    Raises ValueError, with file, column and row, for a table that does not fit.
    """
    frame, test_rows, notes = _joined(frame, test, file, options)
    _check_columns(frame, file, options)
    values, labels, remarks = _labels(frame, file, options)
    owner = options.owner or ("owner" if "owner" in frame.columns else "")
    samples: Samples = {"labels": values}
    if owner:
        check_present(frame[owner], f"{file}: column {owner}")
        samples["owners"] = owner_numbers(texts_of(frame[owner], file), f"{file}: column {owner}")
    if options.split:
        test_rows = _stated_test_rows(frame[options.split], f"{file}: column {options.split}")
    if test_rows is None:
        test_rows, note = drawn_test_rows(samples, file, options)
        notes.append(note)
    others = {*options.label_columns, owner, options.split, *options.drop}
    used = [column for column in frame.columns if column not in others]
    if not used:
        raise ValueError(f"{file} must have a column that is neither the label nor the owner, got none")
    encoder = _Encoder(file, ~test_rows, options)
    blocks = [encoder.encoded(column, frame[column]) for column in used]
    samples["images"] = np.concatenate(blocks, axis=1)[:, None, None, :]
    check_size(file, samples["images"].size)
    facts: dict[str, Any] = {"name": name, "rows": True, "notes": (*notes, *encoder.notes(), *remarks)}
    columns = tuple((str(column), block.shape[1]) for column, block in zip(used, blocks, strict=True))
    return dataset_of(samples, test_rows, labels, file=file, options=options, columns=columns, **facts)


def _joined(
    frame: "DataFrame", test: "DataFrame | None", file: str, options: TableOptions
) -> tuple["DataFrame", np.ndarray | None, list[str]]:
    """All rows; which are the test rows, None where they are no table of their own; and notes on what was left out."""
    import pandas

    chosen = None
    if test is not None:
        if list(test.columns) != list(frame.columns):
            raise ValueError(f"{options.test} must have the columns of {file}, in the same order")
        chosen = np.arange(len(frame) + len(test)) >= len(frame)
        test, _ = without_index(test, options.test, options.drop)
    frame, notes = without_index(frame, file, options.drop)
    return (frame if test is None else pandas.concat([frame, test], ignore_index=True)), chosen, notes


def _check_columns(frame: "DataFrame", file: str, options: TableOptions) -> None:
    columns = Counter(str(one) for one in frame.columns)
    if twice := sorted(repr(one) for one, count in columns.items() if count > 1):
        raise ValueError(f"{file} must have columns of different names, got {', '.join(twice)} more than once")
    if not len(frame):
        raise ValueError(f"{file} must have at least one row below its header, got none")
    label = {"labels": options.labels} if options.labels else {"label": (options.label,)}
    single = {key: (one,) for key in ("owner", "split") if (one := getattr(options, key))}
    several = {"drop": options.drop, "categories": options.categories, "ranges": tuple(options.ranges)}
    for key, names in (label | single | several).items():
        for name in names:
            if name not in columns:
                raise ValueError(f"{file} has no column {name!r} ({key}); it has {nearest(name, columns)}")


def _stated_test_rows(column: "Series", place: str) -> np.ndarray:
    check_present(column, place)
    words = column.astype(str).str.strip().str.lower()
    known = words.isin(("train", "test")).to_numpy()
    refuse_rows(~known, f"{place} must hold train or test, got another value", first=1)
    if words.nunique() < 2:
        raise ValueError(f"{place} must hold both train and test, got only {words.iloc[0]}")
    return np.asarray(words == "test")


def _labels(frame: "DataFrame", file: str, options: TableOptions) -> tuple[np.ndarray, Labels, list[str]]:
    """The labels of all rows, what they mean, and a sentence for classes that got another number than their own."""
    names = options.label_columns
    places = tuple(f"{file}: column {name}" for name in names)
    for name, place in zip(names, places, strict=True):
        check_present(frame[name], place)
    if options.task == CLASSIFICATION:
        return _classes(frame[options.label], places[0], options)
    columns = [_label_numbers(frame[name], place, options) for name, place in zip(names, places, strict=True)]
    bounds = tuple(options.ranges.get(name) for name in names)
    facts: dict[str, Any] = {"places": places, "bounds": bounds, "scale": options.scale}
    labels = Labels(task=options.task, classes=len(names), names=names, **facts)
    return target_numbers(np.stack(columns, axis=1), options.task, places, first=1), labels, []


def _classes(column: "Series", place: str, options: TableOptions) -> tuple[np.ndarray, Labels, list[str]]:
    numbers, remedy = numbers_of(column, place), 'set task = "regression" if they are numbers to predict'
    if numbers is None:
        known, found = np.unique(texts_of(column, place), return_inverse=True)
        names, moved = tuple(map(str, known)), False
    else:
        sentence = (
            f"{place} must hold classes (whole numbers or texts), got a number with a fraction or an infinite one"
        )
        refuse_rows(numbers != np.rint(numbers), sentence, f": {remedy}", first=1)
        known, found = np.unique(numbers, return_inverse=True)
        names, moved = tuple(f"{value:.0f}" for value in known), list(known) != list(range(len(known)))
    if len(names) > min(MOST_LABELS, max(2, len(column) // 2)):
        raise ValueError(
            f"{place} has {len(names)} different values in {len(column)} rows, too many for classes: name the column "
            f"of the labels by label, or {remedy}"
        )
    alike = [] if options.label in options.categories else same_but_for_case(known.astype(str))
    if alike:
        raise ValueError(
            f"{place} has classes that differ only by case or blanks: {', '.join(map(repr, alike[:4]))}: write them in "
            "one way, or list the column in categories if they are different classes"
        )
    note = f"The labels {first_of(list(names))} are the names of the classes 0 to {len(names) - 1}, in this order."
    return found.astype(np.int64), Labels(classes=len(names), names=names), [note] if moved else []


def _label_numbers(column: "Series", place: str, options: TableOptions) -> np.ndarray:
    """A column of labels as numbers; where they are several labels, the words true and false are 1 and 0."""
    import pandas

    if options.task == MULTILABEL and not pandas.api.types.is_numeric_dtype(column):
        flags = {"true": "1", "false": "0"}
        column = column.map(lambda cell: flags.get(str(cell).strip().lower(), cell))
    found = numbers_of(column, place, options.decimal)
    if found is None or found.ndim > 1:
        wanted = "0 or 1" if options.task == MULTILABEL else "plain numbers such as 1234.5"
        raise ValueError(f"{place} must hold {wanted} for task {options.task!r}, got texts or lists")
    return found


class _Encoder:
    """Encodes one column after the other and counts what it did, for the notes.

    ``train``: (n,) booleans, the training rows, from which all constants are computed.
    """

    def __init__(self, file: str, train: np.ndarray, options: TableOptions) -> None:
        self.file, self.train, self.options = file, train, options
        self.counts, self.columns = Counter[str](), defaultdict[str, list[str]](list)

    def encoded(self, name: str, column: "Series") -> np.ndarray:
        """Return the features of one column, ``(n, k)`` float32.

        Raises ValueError, with file, column and row, for a column that does not fit.
        """
        place, options, missing = f"{self.file}: column {name}", self.options, column.isna().to_numpy()
        if options.missing == "refuse" and missing.any():
            check_present(column, place)
        self.counts[_FILLED] += int(missing.sum())
        if missing[self.train].all():
            raise ValueError(f"{place} must hold a value in some training row, got none: list it in drop")
        numbers = None if name in options.categories else numbers_of(column, place, options.decimal)
        if numbers is None and name in options.ranges:
            raise ValueError(f"{place} has a range but does not hold numbers")
        if numbers is None:
            return self._indicators(name, texts_of(column, place), place)
        self.counts["Columns of numbers"] += 1
        refuse_rows(np.isinf(numbers), f"{place} must hold finite numbers, got an infinite one", first=1)
        found = []
        for part in numbers.reshape(len(numbers), -1).T:
            values, _, unit = scaled(part, self.train, place, options.ranges.get(name), options.scale)
            if not unit:
                self.columns["Columns that were set to 0, because they are constant in the training rows"].append(name)
            self.counts[_STANDARDISED] += options.scale == "standardise" and name not in options.ranges
            found.append(values)
        return np.stack(found, axis=1).astype(np.float32)

    def _indicators(self, name: str, values: np.ndarray, place: str) -> np.ndarray:
        import pandas

        self.counts["Columns of categories"] += 1
        levels = np.unique(values[self.train])
        if name not in self.options.categories:
            self._check_levels(values, place)
            if alike := same_but_for_case(levels):
                found = f"{name} ({counted(len(alike), 'text')})"
                self.columns["Columns with categories that differ only by case or blanks"].append(found)
            if partly := int(pandas.to_numeric(pandas.Series(values), errors="coerce").notna().sum()):
                found = f"{name} ({counted(partly, 'row')})"
                self.columns["Columns of categories in which some texts are numbers"].append(found)
        self.counts["Indicators of categories"] += len(levels)
        check_size(place, len(values) * len(levels))
        self.counts[_UNSEEN] += int((~np.isin(values, levels)).sum())
        return np.asarray(values[:, None] == levels[None, :], dtype=np.float32)

    def _check_levels(self, values: np.ndarray, place: str) -> None:
        """Raise ValueError for texts of which nearly every training row has one of its own, or that are too many."""
        known = values[self.train & (values != "")]
        levels = len(np.unique(known))
        if levels > MOST_LEVELS or (len(known) >= FEWEST_ROWS and levels > IDENTIFYING * len(known)):
            raise ValueError(
                f"{place} has {levels} different texts in {len(known)} training rows, so that it seems to name single "
                "records, or to hold numbers or dates in a notation that is not read: list it in drop, or in "
                "categories if it is a category, or read the file with a function of your own "
                "(dataset = package.module:function) that returns numbers"
            )

    def notes(self) -> list[str]:
        """Return the sentences that report what was done."""
        found = [f"{words}: {count}." for words, count in self.counts.items() if count]
        found += [f"{words}: {first_of(names)}." for words, names in self.columns.items()]
        return found if self.counts[_FILLED] else [*found, "No value is missing."]
