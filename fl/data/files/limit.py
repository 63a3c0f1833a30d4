"""The largest data set that is read, so that a huge or a manipulated file ends in a message and not without memory."""

import math
import os

GIGABYTES = 4.0
VARIABLE = "FEDASSAY_DATA_LIMIT_GB"


def check_size(place: str, numbers: int) -> None:
    """Raise ValueError if so many numbers, held as 32-bit floats, exceed the limit.

    The limit is 4 GB, or the number of gigabytes that the environment variable ``FEDASSAY_DATA_LIMIT_GB`` sets.
    ``place`` names the file, for the message.
    """
    needed, limit = numbers * 4 / 1e9, _limit()
    if needed > limit:
        raise ValueError(
            f"{place} would need {needed:.1f} GB of memory, more than the limit of {limit:g} GB: use fewer or smaller "
            f"samples, or set the environment variable {VARIABLE} to a higher number"
        )


def _limit() -> float:
    given = os.environ.get(VARIABLE)
    if not given:
        return GIGABYTES
    try:
        limit = float(given)
    except ValueError:
        limit = math.nan
    if not limit > 0:
        raise ValueError(f"the environment variable {VARIABLE} must be a number of gigabytes > 0, got {given!r}")
    return limit
