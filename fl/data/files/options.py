"""The options that readers of data files share, and the checks of their values."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from numbers import Real
from typing import Any, TypeVar

from ....audit.wording import nearest
from ...fields import check_count

Options = TypeVar("Options")


@dataclass(frozen=True, kw_only=True)
class SplitOptions:
    """How a test part is split off where a data set has none.

    Args:
        test_share: share of the samples that becomes the test part, > 0 and < 1.
        split_seed: seed of the split, a whole number >= 0. It does not depend on the seed of a run.
    """

    test_share: float = 0.2
    split_seed: int = 0

    def __post_init__(self) -> None:
        share = self.test_share
        if isinstance(share, bool) or not isinstance(share, Real) or not (math.isfinite(share) and 0 < share < 1):
            raise ValueError(f"test_share must be a number > 0 and < 1, got {share!r}")
        check_count("split_seed", self.split_seed, least=0)


def options_from(kind: type[Options], given: Mapping[str, Any], what: str) -> Options:
    """Build the options of a reader from a table of a suite file.

    ``what``: the format, for the message. Raises ValueError for an unknown option (the known ones are listed, nearest
    first) or a value that is not allowed.
    """
    known = [field.name for field in fields(kind)]  # type: ignore[arg-type]
    for key in given:
        if key not in known:
            raise ValueError(f"{what} has no option {key!r}; it has {nearest(key, known)}")
    return kind(**{key: tuple(value) if isinstance(value, list) else value for key, value in given.items()})


def check_choice(name: str, value: object, allowed: Iterable[str]) -> None:
    """Raise ValueError unless ``value`` is one of the ``allowed`` words."""
    if not isinstance(value, str) or value not in allowed:
        raise ValueError(f"{name} must be {nearest(str(value), allowed)}, got {value!r}")


def check_range(name: str, bounds: object) -> None:
    """Raise ValueError unless ``bounds`` are two finite numbers, the smaller one first."""
    numbers = isinstance(bounds, list | tuple) and all(
        isinstance(one, Real) and not isinstance(one, bool) and math.isfinite(one) for one in bounds
    )
    # The width too: from -1e308 to 1e308 it is infinite, and every scaled number 0.
    if not (numbers and len(bounds) == 2 and 0 < bounds[1] - bounds[0] < math.inf):  # type: ignore[arg-type,index]
        raise ValueError(f"{name} must be two finite numbers, the smaller one first, got {bounds!r}")


def check_names(name: str, value: object) -> None:
    """Raise ValueError unless ``value`` is a tuple of texts, such as the names of columns."""
    if not isinstance(value, tuple) or not all(isinstance(one, str) for one in value):
        raise ValueError(f"{name} must be a list of names, got {value!r}")
