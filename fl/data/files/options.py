"""Defines the options that readers of data files share, the limit on the size of a data set, and the error that names a
wrong row.
"""

import math
import os
from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeVar

import numpy as np
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from ....audit.wording import counted, nearest

GIGABYTES = 4.0
PER_NUMBER = 16
"""Bytes of memory that a number of a data set takes while it is read, besides those in a file of arrays, as measured:
32-bit floats, their copies in two parts, and checks.
"""
VARIABLE = "FEDASSAY_DATA_LIMIT_GB"
Options = TypeVar("Options", bound=BaseModel)
Names = tuple[str, ...]
Task = Literal["classification", "regression", "multilabel"]
Scale = Literal["standardise", "none"]


def _in_order(bounds: tuple[float, float]) -> tuple[float, float]:
    # The width too: from -1e308 to 1e308 it is infinite, and every scaled number 0.
    if not 0 < bounds[1] - bounds[0] < math.inf:
        raise ValueError("must be two finite numbers, the smaller one first")
    return bounds


Range = Annotated[tuple[float, float], AfterValidator(_in_order)]


class SplitOptions(BaseModel):
    """The options for splitting off a test part if a data set has none.

    Args:
        test_share: share of the samples that becomes the test part, > 0 and < 1.
        split_seed: seed of the split, a whole number >= 0. It does not depend on the seed of a run.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)
    test_share: float = Field(default=0.2, gt=0, lt=1, strict=True)
    split_seed: int = Field(default=0, ge=0, strict=True)


def options_from(kind: type[Options], given: Mapping[str, Any], what: str) -> Options:
    """Build the options of a reader from a table of a suite file.

    ``what``: the format, for the message. Raises ValueError for an unknown option (the known ones are listed, nearest
    first) or a value that is not allowed.
    """
    for key in given:
        if key not in kind.model_fields:
            raise ValueError(f"{what} has no option {key!r}; it has {nearest(key, kind.model_fields)}")
    try:
        return kind(**given)
    except ValidationError as error:
        first = error.errors()[0]
        words = str(first.get("ctx", {}).get("error", first["msg"]))
        if not first["loc"]:  # Options that do not fit each other.
            raise ValueError(f"{what}: {words}") from None
        raise ValueError(f"{what}: option {first['loc'][0]}: {words}, got {first['input']!r}") from None


def check_size(place: str, numbers: int, *, each: int = PER_NUMBER) -> None:
    """Raise ValueError if so many numbers, of ``each`` bytes each, exceed the size limit of a data set. A huge or
    manipulated file then gives an error message and does not exhaust the memory.

    The limit is 4 GB, or the number of gigabytes that the environment variable ``FEDASSAY_DATA_LIMIT_GB`` sets.
    ``place`` names the file, for the message.
    """
    given = os.environ.get(VARIABLE) or GIGABYTES
    try:
        limit = float(given)
    except ValueError:
        limit = math.nan
    if not limit > 0:
        raise ValueError(f"the environment variable {VARIABLE} must be a number of gigabytes > 0, got {given!r}")
    if (needed := numbers * each / 1e9) > limit:
        raise ValueError(
            f"{place} would need {needed:.1f} GB of memory, more than the limit of {limit:g} GB: use fewer or smaller "
            f"samples, or set the environment variable {VARIABLE} to a higher number"
        )


def refuse_rows(wrong: np.ndarray, sentence: str, remedy: str = "", *, first: int = 0) -> None:
    """Raise ValueError if ``wrong`` (n, ...) is true in any row; the message joins the given sentence with the number
    of the first such row.

    ``first``: the number of the first row.
    """
    rows = np.flatnonzero(wrong.any(tuple(range(1, wrong.ndim))))
    if len(rows):
        raise ValueError(f"{sentence} in row {rows[0] + first} ({counted(len(rows), 'such row')}){remedy}")
