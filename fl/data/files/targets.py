"""Labels that are no classes: numbers to predict (regression), and several labels that each hold or not."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from ....audit.wording import counted
from ...objective import CLASSIFICATION, MULTILABEL, REGRESSION, SAMPLE_TASKS
from .options import check_choice


def check_task(task: str) -> None:
    """Raise ValueError unless ``task``, an option of a reader, is the name of a task, or empty for classification."""
    if task:
        check_choice("task", task, SAMPLE_TASKS)


def is_classification(task: str) -> bool:
    """Return whether the option ``task`` of a reader names a classification, as by default."""
    return task in ("", CLASSIFICATION)


@dataclass(frozen=True, kw_only=True)
class LabelRule:
    """How the labels of a regression are scaled, once it is known which samples are the training part.

    Args:
        places: file and array or column of each label, for messages.
        ranges: public range of some labels, by their number; such a label is scaled to [0, 1].
        standardise: whether the others get mean 0 and deviation 1 over the training samples, or are kept.
    """

    places: Sequence[str]
    ranges: Mapping[int, Sequence[float]] = field(default_factory=dict)
    standardise: bool = True

    def applied(self, train: np.ndarray, test: np.ndarray) -> tuple[np.ndarray, np.ndarray, tuple[float, ...], str]:
        """Return both parts ``(n, labels)`` scaled, as float32, one scaled unit of each label in its own unit, and a
        sentence that reports it.

        Raises ValueError for a label that is constant in the training part or lies outside of its range.
        """
        shifts, units = np.zeros(train.shape[1]), np.ones(train.shape[1])
        for column, place in enumerate(self.places):
            own = train[:, column]
            with np.errstate(over="ignore"):  # What overflows is refused below.
                spread, middle = float(own.std()), float(own.mean())
            if not np.isfinite(spread):
                raise ValueError(f"{place} must hold numbers whose squares are finite: change their unit")
            if spread <= 1e-12 * max(abs(middle), np.finfo(float).tiny):
                raise ValueError(
                    f"{place} must hold at least two different numbers in the training part, got one in {len(own)} "
                    "rows: there is nothing to predict"
                )
            if column in self.ranges:
                low, high = self.ranges[column]
                everyone = np.concatenate([own, test[:, column]])
                outside = int(((everyone < low) | (everyone > high)).sum())
                if outside:
                    raise ValueError(
                        f"{place} must lie in its range {low:g}..{high:g}, got another number in "
                        f"{counted(outside, 'row')}"
                    )
                shifts[column], units[column] = low, high - low
            elif self.standardise:
                shifts[column], units[column] = middle, spread
        scaled = [((part - shifts) / units).astype(np.float32) for part in (train, test)]
        if not all(bool(np.isfinite(part).all()) for part in scaled):
            raise ValueError(f"{self.places[0]} must hold numbers below 3e38 in size: let labels be scaled")
        return scaled[0], scaled[1], tuple(map(float, units)), self._note(shifts, units)

    def _note(self, shifts: np.ndarray, units: np.ndarray) -> str:
        count = len(self.places)
        public = count if not self.standardise else len(self.ranges)
        if public == count:
            how = "scaled to [0, 1] by their public ranges" if len(self.ranges) == count else "kept as they are"
            if 0 < len(self.ranges) < count:
                how = "scaled to [0, 1] where they have a public range, and kept otherwise"
            return f"The numbers to predict are {how}."
        constants = ", ".join(f"{unit:.4g}" for unit in units)
        middles = ", ".join(f"{shift:.4g}" for shift in shifts)
        return (
            f"The numbers to predict were reduced by {middles} and divided by {constants}: mean and standard deviation "
            "of the training rows. These constants depend on private rows, and no claim covers them; a public range "
            "avoids this."
        )


def check_numbers(values: np.ndarray, places: Sequence[str], *, first: int = 0) -> np.ndarray:
    """Return the labels of a regression ``(n, labels)`` in double precision; raise ValueError, with the first row at
    fault, for NaN and infinity. ``first``: the number of the first row.
    """
    for column, place in enumerate(places):
        wrong = np.flatnonzero(~np.isfinite(values[:, column]))
        if len(wrong):
            raise ValueError(
                f"{place} must hold finite numbers, got NaN or infinity in row {wrong[0] + first} ({len(wrong)} such "
                "rows): correct or remove these rows"
            )
    return np.asarray(values, dtype=np.float64)


def flags(values: np.ndarray, places: Sequence[str], *, first: int = 0) -> np.ndarray:
    """Return several labels per sample ``(n, labels)`` as booleans; raise ValueError, with the first row at fault, for
    other numbers than 0 and 1, or fewer than two labels.
    """
    if values.shape[1] < 2:
        raise ValueError(
            f"{places[0]} is a single label: several labels per sample (task {MULTILABEL}) need at least two; classify "
            f"a single one (task {CLASSIFICATION})"
        )
    for column, place in enumerate(places):
        wrong = np.flatnonzero(~np.isin(values[:, column], (0, 1)))
        if len(wrong):
            raise ValueError(
                f"{place} must hold 0 or 1 (task {MULTILABEL}), got another value in row {wrong[0] + first} "
                f"({counted(len(wrong), 'such row')})"
                + (f"; numbers are predicted by task {REGRESSION}" if values.dtype.kind == "f" else "")
            )
    return values.astype(bool)


def empty_labels(labels: np.ndarray, places: Sequence[str]) -> tuple[str, ...]:
    """Return a sentence on the labels that hold for no sample, or for all, of the training part ``(n, labels)``."""
    rare = [
        f"{place} ({'all' if labels[0, column] else 'none'})"
        for column, place in enumerate(places)
        if labels[:, column].all() or not labels[:, column].any()
    ]
    return (
        f"Labels that are equal in all training rows: {', '.join(rare)}. Nothing can be learnt about them.",
    ) * bool(rare)
