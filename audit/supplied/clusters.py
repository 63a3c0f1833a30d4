"""Reduces scores that share runs to independent trials: one score of each run (cluster), drawn at random.

Scores of one run share its noise and are no independent trials, while scores of different runs are.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..arrays import BoolArray, FloatArray

ASSUMPTION = (
    "one score of each cluster, drawn at random; clusters share no noise, and the membership of each record was an "
    "independent coin"
)


def one_score_per_cluster(
    scores: FloatArray, member: BoolArray, clusters: ArrayLike, *, seed: int
) -> tuple[FloatArray, FloatArray]:
    """Return the scores of members and of non-members after one score of each cluster was drawn at random.

    ``scores``: (n,), ``member``: (n,) booleans, ``clusters``: (n,) numbers or names of the runs, by ``seed``.

    Raises ValueError where several scores of every cluster are all of members or all of non-members: then the runs
    differ in several records, which no claim about one record covers.
    """
    names = np.asarray(clusters)
    if names.shape != scores.shape:
        raise ValueError(f"clusters must name one cluster per score, shape {scores.shape}, got shape {names.shape}")
    groups = np.unique(names, return_inverse=True)[1].reshape(scores.shape)
    sizes, taken = np.bincount(groups), np.bincount(groups, weights=member)
    several = sizes > 1
    if len(sizes) == 1:
        raise ValueError(
            "all scores are of one cluster, so there are no independent trials: an audit of one run needs fair coins "
            "(--one-run, in Python audit_one_run)"
        )
    if several.any() and not ((taken > 0) & (taken < sizes))[several].any():
        raise ValueError(
            "every cluster with several scores holds members only or non-members only, so its runs with and without "
            "differ in more than one record: reduce the scores of one record in one run to one number and state "
            "independent runs, or decide the membership of each record by a coin of its own"
        )
    drawn = _one_of_each(groups, np.random.default_rng(seed))
    kept, inside = scores[drawn], member[drawn]
    return kept[inside], kept[~inside]


def _one_of_each(groups: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.int64]:
    """The place of one score of each cluster."""
    order = rng.permutation(len(groups))
    return order[np.unique(groups[order], return_index=True)[1]]
