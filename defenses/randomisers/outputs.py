"""Sum or integrate a function over all possible reports of a randomiser."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ...audit.arrays import FloatArray

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(20)


@dataclass(frozen=True, eq=False)
class WeightedReports:
    """A list of reports with weights: ``sum(weights * f(reports))`` is the sum of f over all reports, or the integral
    of f if reports are continuous.

    Args:
        reports: (m, *report shape).
        weights: (m,), 1 for an output with positive probability, >= 0 for a quadrature node.
    """

    reports: NDArray[Any]
    weights: FloatArray


MOST_LISTED = 2**20


def check_listable(count: int) -> None:
    """Raise ValueError if a randomiser has too many possible reports to list them."""
    if count > MOST_LISTED:
        raise ValueError(f"there are {count} possible reports, too many to list: at most {MOST_LISTED} are allowed")


def finite(reports: ArrayLike) -> WeightedReports:
    """Return a list of all possible ``reports``, given as an array with one report per row; each gets the weight 1, so
    that the weighted sum of a function over the list is its sum over all reports.
    """
    rows = np.asarray(reports)
    return WeightedReports(rows, np.ones(len(rows)))


def quadrature(breaks: Iterable[float]) -> WeightedReports:
    """Return Gauss-Legendre nodes and weights for the intervals between neighbouring ``breaks``; integrals of a density
    that is smooth within them are exact up to rounding.

    The breaks themselves are among the reports with weight 0, because suprema are attained there.
    """
    # Duplicate breaks would give intervals of length 0.
    edges = np.unique(np.fromiter(breaks, dtype=np.float64))
    half, middle = np.diff(edges)[:, np.newaxis] / 2, (edges[1:] + edges[:-1])[:, np.newaxis] / 2
    nodes, weights = middle + half * _NODES, half * _WEIGHTS
    return WeightedReports(
        np.concatenate([nodes.ravel(), edges]), np.concatenate([weights.ravel(), np.zeros(len(edges))])
    )


def labelled(labels: int, numbers: WeightedReports) -> WeightedReports:
    """Return every combination of a label in 0..labels-1 and one of ``numbers``, as rows (label, number) of floats."""
    columns = np.meshgrid(np.arange(labels, dtype=np.float64), numbers.reports, indexing="ij")
    return WeightedReports(np.stack([column.ravel() for column in columns], axis=-1), np.tile(numbers.weights, labels))
