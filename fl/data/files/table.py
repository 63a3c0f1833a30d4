"""Turns a table of records into a data set: numbers are standardised, categories become indicators.

Messages give the file, the column and the row (from 1 on, without the header and empty lines), and never a value of a
record.
"""

from typing import TYPE_CHECKING

import numpy as np

from ....audit.wording import counted, nearest
from ...objective import MULTILABEL
from ..dataset import Dataset
from .columns.encoder import Encoder
from .columns.notation import notation_of, same_but_for_case
from .columns.numbers import check_present, numbers_of, texts_of, with_decimal_points
from .columns.table_options import TableOptions
from .columns.unnamed import without_index
from .limit import check_size
from .npz import owner_numbers
from .samples import Samples, dataset_of
from .split import split_note, test_rows
from .targets import LabelRule, check_numbers, flags, is_classification

if TYPE_CHECKING:
    from pandas import DataFrame, Series

MOST_LABELS = 1000


def dataset_of_table(
    frame: "DataFrame", test: "DataFrame | None", *, file: str, name: str, options: TableOptions
) -> Dataset:
    """Build a data set from the rows of a table, and from its test rows where they are a table of their own.

    Each column of numbers is one feature. A column of texts, or one listed in ``categories``, becomes one indicator per
    value that occurs in the training rows; another value in a test row has no indicator. Labels are the column's
    different values in their order, whole numbers by size and texts by alphabet; for other tasks than classification
    see ``TableOptions.task``. All constants are computed from the training rows alone. A column of texts that are no
    categories is refused (``check_categories``), and a column without a name is left out if it numbers the rows.

    Raises ValueError, with file, column and row, for a table that does not fit.
    """
    frame, given, notes = _joined(frame, test, file, options)
    _check_columns(frame, file, options)
    if options.decimal == ",":
        frame = frame.apply(_with_points, file=file, options=options)
    labels, names, rule = _labelled(frame, file, options)
    owner = options.owner or ("owner" if "owner" in frame.columns else "")
    owners = _owners(frame[owner], f"{file}: column {owner}") if owner else None
    chosen, split = _test_rows(frame, given, labels, owners, file, options)
    used = _features(frame, owner, file, options)
    encoder = Encoder(file=file, train=~chosen, options=options)
    blocks = [encoder.encoded(one, frame[one]) for one in used]
    features = np.concatenate(blocks, axis=1)
    check_size(file, features.size)
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
        notes=(*notes, *split, *encoder.notes()),
        rule=rule,
        columns=tuple((str(one), block.shape[1]) for one, block in zip(used, blocks, strict=True)),
    )


def _joined(
    frame: "DataFrame", test: "DataFrame | None", file: str, options: TableOptions
) -> tuple["DataFrame", np.ndarray | None, list[str]]:
    """All rows; which are the test rows, None where they are no table of their own; and notes on what was left out."""
    import pandas

    if test is None:
        frame, notes = without_index(frame, file, options.drop)
        return frame, None, notes
    if list(test.columns) != list(frame.columns):
        raise ValueError(f"{options.test} must have the columns of {file}, in the same order")
    test, _ = without_index(test, options.test, options.drop)
    frame, notes = without_index(frame, file, options.drop)
    given = np.arange(len(frame) + len(test)) >= len(frame)
    return pandas.concat([frame, test], ignore_index=True), given, notes


def _labelled(
    frame: "DataFrame", file: str, options: TableOptions
) -> tuple[np.ndarray, tuple[str, ...], LabelRule | None]:
    """Labels, the names of the classes or of the columns of labels, and how numbers are scaled."""
    if not is_classification(options.task):
        return _targets(frame, file, options)
    place = f"{file}: column {options.label}"
    labels, names = _labels(frame[options.label], place)
    if options.label not in options.categories:
        _check_names(names, place)
    return labels, names, None


def _owners(column: "Series", place: str) -> np.ndarray:
    check_present(column, place)
    return owner_numbers(texts_of(column, place), place)


def _test_rows(
    frame: "DataFrame",
    given: np.ndarray | None,
    labels: np.ndarray,
    owners: np.ndarray | None,
    file: str,
    options: TableOptions,
) -> tuple[np.ndarray, list[str]]:
    """Which rows are test rows: as the column ``split`` says, or as ``given``, or else drawn, with a note on it."""
    classes, notes = is_classification(options.task), list[str]()
    if options.split:
        chosen = _given_split(frame[options.split], f"{file}: column {options.split}")
    elif given is not None:
        chosen = given
    else:
        kinds = labels if classes else np.zeros(len(labels), dtype=np.int64)
        chosen = test_rows(kinds, owners, options, file)
        notes.append(split_note(chosen, owners, options))
    if classes and len(np.unique(labels[~chosen])) < 2:
        raise ValueError(f"{file}: column {options.label} must hold at least two classes in the training rows, got one")
    return chosen, notes


def _features(frame: "DataFrame", owner: str, file: str, options: TableOptions) -> list[str]:
    """The columns that are features."""
    others = {*options.label_columns, owner, options.split} - {""}
    used = [one for one in frame.columns if one not in {*others, *options.drop}]
    if not used:
        raise ValueError(f"{file} must have a column that is neither the label nor the owner, got none")
    return used


def _labels(column: "Series", place: str) -> tuple[np.ndarray, tuple[str, ...]]:
    """Class numbers and the names of the classes."""
    check_present(column, place)
    numbers = numbers_of(column, place)
    if numbers is not None:
        wrong = np.flatnonzero(numbers != np.rint(numbers))
        if len(wrong):
            raise ValueError(
                f"{place} must hold classes (whole numbers or texts), got a number with a fraction or an infinite one "
                f"in row {wrong[0] + 1} ({counted(len(wrong), 'such row')}): "
                'set task = "regression" if they are numbers to predict'
            )
        known, found = np.unique(numbers, return_inverse=True)
        names = tuple(f"{value:.0f}" for value in known)
    else:
        known, found = np.unique(texts_of(column, place), return_inverse=True)
        names = tuple(map(str, known))
    if len(names) < 2:
        raise ValueError(f"{place} must hold at least two classes, got only one in {len(column)} rows")
    if len(names) > min(MOST_LABELS, max(2, len(column) // 2)):
        raise ValueError(
            f"{place} has {len(names)} different values in {len(column)} rows, too many for classes: name the "
            'column of the labels by label, or set task = "regression" if they are numbers to predict'
        )
    return found.astype(np.int64), names


def _check_names(names: tuple[str, ...], place: str) -> None:
    """Raise ValueError if classes differ only by case or blanks."""
    if alike := same_but_for_case(np.array(names)):
        raise ValueError(
            f"{place} has classes that differ only by case or blanks: {', '.join(map(repr, alike[:4]))}: write them in "
            "one way, or list the column in categories if they are different classes"
        )


def _with_points(column: "Series", file: str, options: TableOptions) -> "Series":
    """The column with decimal points, unless it is dropped or holds categories."""
    if column.name in {*options.drop, *options.categories}:
        return column
    return with_decimal_points(column, f"{file}: column {column.name}")


def _targets(
    frame: "DataFrame", file: str, options: TableOptions
) -> tuple[np.ndarray, tuple[str, ...], LabelRule | None]:
    """Labels that are no classes ``(n, labels)``, the names of their columns, and how numbers are scaled."""
    names = options.label_columns
    places, columns = [f"{file}: column {name}" for name in names], list[np.ndarray]()
    for name, place in zip(names, places, strict=True):
        check_present(frame[name], place)
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
        foreign = notation_of(words.to_numpy(str))
        looks = f": they look like {foreign[0].what}; {foreign[0].remedy}" if foreign else ""
        raise ValueError(
            f"{place} must hold {wanted} for task {task!r}, got a text in row {text[0] + 1} "
            f"({counted(len(text), 'such row')}){looks}"
        )
    return np.asarray(found)


def _given_split(column: "Series", place: str) -> np.ndarray:
    check_present(column, place)
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
        shown = ", ".join(one or "''" for one in twice)
        raise ValueError(f"{file} must have columns of different names, got {shown} more than once")
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
