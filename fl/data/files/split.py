"""A seeded split of samples into a training part and a test part, for a data set that has no test part."""

import numpy as np

from ..dataset import fixed_order
from .options import SplitOptions


def test_rows(labels: np.ndarray, owners: np.ndarray | None, options: SplitOptions, place: str) -> np.ndarray:
    """Return which samples become the test part, ``(n,)`` booleans.

    labels: (n,) whole numbers; owners: (n,) whole numbers or None. With owners, all samples of an owner lie in one
    part: otherwise an owner who is in no federation would still appear in the public test data. Without owners every
    class is split in the same proportion, as far as whole samples allow. The split depends on ``split_seed`` and the
    number of samples only, not on a run's seed.

    Raises ValueError, starting with ``place``, if one of the two parts would be empty.
    """
    groups = np.zeros_like(labels) if owners is not None else labels
    units = np.arange(len(labels)) if owners is None else owners
    rank = np.empty(len(labels), dtype=np.int64)
    rank[fixed_order(f"test part {options.split_seed}", len(labels)).numpy()] = np.arange(len(labels))
    chosen = np.zeros(len(labels), dtype=bool)
    for group in np.unique(groups):
        kinds, first = np.unique(units[groups == group], return_index=True)
        order = kinds[np.argsort(rank[groups == group][first], kind="stable")]
        # At least one unit stays for training.
        count = min(round(options.test_share * len(order)), len(order) - 1)
        chosen |= np.isin(units, order[:count]) & (groups == group)
    if not chosen.any():
        what = "owners" if owners is not None else "samples of a class"
        raise ValueError(
            f"{place} has too few {what} to split off a share of {options.test_share:g} as the test part: give a test "
            "part, or raise test_share"
        )
    return chosen


def split_note(chosen: np.ndarray, owners: np.ndarray | None, options: SplitOptions) -> str:
    """Return the sentence that reports the split."""
    whole = ", whole owners at a time" if owners is not None else ""
    return (
        f"The data set has no test part: {int(chosen.sum())} of {len(chosen)} samples were split off as one{whole} "
        f"(test_share {options.test_share:g}, split_seed {options.split_seed})."
    )
