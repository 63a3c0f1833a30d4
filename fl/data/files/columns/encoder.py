"""Turns columns of a table into features: numbers are scaled, categories become indicators."""

from typing import TYPE_CHECKING

import numpy as np

from .....audit.wording import counted
from ..limit import check_size
from .notation import check_categories, plain_numbers, same_but_for_case
from .numbers import LARGEST_SINGLE, check_present, check_single_precision, numbers_of, texts_of
from .table_options import TableOptions

if TYPE_CHECKING:
    from pandas import Series

_LARGEST = {"standardise": 1e150, "none": LARGEST_SINGLE}
"""The size up to which the squares of numbers are finite, and up to which numbers are finite in single precision."""
_NAMED = 12


class Encoder:
    """Encodes one column after the other and counts what it did, for the notes.

    Args:
        file: for messages.
        train: (n,) booleans, the training rows, from which all constants are computed.
        options: of the table.
    """

    def __init__(self, *, file: str, train: np.ndarray, options: TableOptions) -> None:
        self.file, self.train, self.options = file, train, options
        self.numbers, self.categories, self.indicators, self.filled, self.unseen = 0, 0, 0, 0, 0
        self.scaled, self.constant, self.alike, self.partly = 0, list[str](), dict[str, int](), dict[str, int]()

    def encoded(self, name: str, column: "Series") -> np.ndarray:
        """Return the features of one column, ``(n, k)`` float32.

        Raises ValueError, with file, column and row, for a column that does not fit.
        """
        place = f"{self.file}: column {name}"
        missing = column.isna().to_numpy()
        if missing.any() and self.options.missing == "refuse":
            check_present(column, place)
        self.filled += int(missing.sum())
        if missing[self.train].all():
            raise ValueError(f"{place} must hold a value in some training row, got none: list it in drop")
        numbers = None if name in self.options.categories else numbers_of(column, place)
        if numbers is None and name in self.options.ranges:
            raise ValueError(f"{place} has a range but does not hold numbers")
        if numbers is None:
            return self._indicators(name, column, place)
        self.numbers += 1
        return self._number(name, numbers, place).astype(np.float32)[:, None]

    def _number(self, name: str, numbers: np.ndarray, place: str) -> np.ndarray:
        """The numbers as scaled, ``(n,)``, all of them finite in single precision."""
        public = self.options.ranges.get(name)
        _check_finite(numbers, np.inf if public else _LARGEST[self.options.scale], place)
        missing = np.isnan(numbers)
        known = numbers[self.train & ~missing]
        if public:
            low, high = public
            filled = np.where(missing, np.clip(known, low, high).mean(), numbers) if missing.any() else numbers
            wrong = np.flatnonzero((filled < low) | (filled > high))
            if len(wrong):
                raise ValueError(
                    f"{place} must lie in its range {low:g}..{high:g}, got another number in row "
                    f"{wrong[0] + 1} ({counted(len(wrong), 'such row')})"
                )
            return np.asarray((filled - low) / (high - low))
        mean = known.mean()
        filled = np.where(missing, mean, numbers)
        if self.options.scale == "none":
            check_single_precision(filled, place, "let the column be scaled, give it a range, or list it in drop")
            return filled
        self.scaled += 1
        spread = known.std()
        # A column that is constant up to rounding says nothing; dividing by its deviation would blow up the rounding
        # error. Whole numbers have none: 10**15 and 10**15 + 1 are two values.
        rounding = 0.0 if (known == np.rint(known)).all() else 1e-12 * abs(float(mean))
        if known.min() == known.max() or spread <= rounding:
            self.constant.append(name)
            return np.zeros(len(numbers))
        with np.errstate(over="ignore"):  # What overflows is refused below.
            scaled = (filled - mean) / spread
        wrong = np.flatnonzero(np.abs(scaled) > _LARGEST["none"])
        if len(wrong):
            raise ValueError(
                f"{place} must hold test rows of the size of its training rows, got a number in row {wrong[0] + 1} "
                f"that is more than {_LARGEST['none']:g} of their standard deviations away"
            )
        return np.asarray(scaled)

    def _indicators(self, name: str, column: "Series", place: str) -> np.ndarray:
        self.categories += 1
        # An empty text cannot occur as a value, because an empty cell is a missing one.
        values = texts_of(column.astype(object).where(column.notna(), ""), place)
        levels = np.unique(values[self.train])
        if name not in self.options.categories:
            check_categories(values, self.train, place)
            if alike := same_but_for_case(levels):
                self.alike[name] = len(alike)
            if partly := plain_numbers(values):
                self.partly[name] = partly
        self.indicators += len(levels)
        check_size(place, len(values) * len(levels))
        self.unseen += int((~np.isin(values, levels)).sum())
        return np.asarray(values[:, None] == levels[None, :], dtype=np.float32)

    def notes(self) -> list[str]:
        """Return the sentences that report what was done."""
        found = [
            f"Columns of numbers: {self.numbers}. Columns of categories: {self.categories}, which became "
            f"{counted(self.indicators, 'indicator')}."
        ]
        if self.scaled:
            were = "column of numbers was" if self.scaled == 1 else "columns of numbers were"
            found.append(
                f"{self.scaled} {were} standardised by mean and standard deviation of the training rows. These "
                "constants depend on private rows, and no claim covers them; ranges avoids this."
            )
        if self.constant:
            found.append(f"Columns that are constant in the training rows became 0: {_first(self.constant)}.")
        if self.alike:
            shown = _first([f"{name} ({counted(count, 'text')})" for name, count in self.alike.items()])
            found.append(f"Columns with categories that differ only by case or blanks: {shown}.")
        if self.partly:
            shown = _first([f"{name} ({counted(count, 'row')})" for name, count in self.partly.items()])
            found.append(f"Columns of categories in which some texts are numbers: {shown}.")
        filled = "1 missing value was filled." if self.filled == 1 else f"{self.filled} missing values were filled."
        found.append(filled if self.filled else "No value is missing.")
        if self.unseen:
            values = "value of test rows occurs" if self.unseen == 1 else "values of test rows occur"
            have = "has" if self.unseen == 1 else "have"
            found.append(f"{self.unseen} {values} in no training row and {have} no indicator.")
        return found


def _first(names: list[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f"{', '.join(names[:_NAMED])}{more}"


def _check_finite(numbers: np.ndarray, largest: float, place: str) -> None:
    """Raise ValueError if a number is infinite or larger in size than ``largest``; NaN is a missing one."""
    wrong = np.flatnonzero(np.isinf(numbers))
    if len(wrong):
        raise ValueError(f"{place} must hold finite numbers, got an infinite one in row {wrong[0] + 1}")
    wrong = np.flatnonzero(np.abs(numbers) > largest)
    if len(wrong):
        raise ValueError(
            f"{place} must hold numbers of size {largest:g} at most, got a larger one in row {wrong[0] + 1} "
            f"({counted(len(wrong), 'such row')}): change their unit"
        )
