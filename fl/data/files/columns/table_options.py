"""The options of a table."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ....objective import MULTILABEL
from ..options import SplitOptions, check_choice, check_names, check_range
from ..targets import check_task, is_classification


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
        categories: columns of numbers that are categories, and columns of texts that are categories although they have
            more than 100 different values, one in nearly every row, or look like numbers or dates; the column of the
            labels, if classes differ only by case or blanks.
        ranges: public range of a column of numbers, ``{ age = [0, 100] }``, which is scaled to [0, 1] by it and not by
            the training rows.
        scale: "standardise": columns of numbers without a range get mean 0 and standard deviation 1 over the training
            rows; "none": they are kept.
        missing: "refuse", or "fill": a missing number becomes the mean of the training rows, a missing text is a
            category of its own.
        decimal: sign before the decimal places of numbers that stand as texts, "." or ",".
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
    decimal: str = "."

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
        # With classes, the label may be the owner: then a model recognises users.
        others = () if is_classification(self.task) else (self.owner, self.split)
        used = {*self.drop, *others} & set(self.label_columns)
        if used:
            raise ValueError(f"a column of labels must not be in drop, owner or split, got {min(used)!r}")
        if self.split and self.test:
            raise ValueError(
                f"only one of split (a column) and test (a file) can be given, got {self.split!r} and {self.test!r}"
            )
        check_names("drop", self.drop)
        check_names("categories", self.categories)
        check_choice("scale", self.scale, ("standardise", "none"))
        check_choice("missing", self.missing, ("refuse", "fill"))
        check_choice("decimal", self.decimal, (".", ","))
        if not isinstance(self.ranges, Mapping):
            raise ValueError(f"ranges must be a table such as {{ age = [0, 100] }}, got {self.ranges!r}")
        for name, bounds in self.ranges.items():
            check_range(f"ranges.{name}", bounds)

    @property
    def label_columns(self) -> tuple[str, ...]:
        """The columns of the labels."""
        return self.labels or (self.label,)
