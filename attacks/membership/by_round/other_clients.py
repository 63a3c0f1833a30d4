"""Compares the target client's statistic with the statistics of clients that did not train on the candidate."""

import numpy as np
from scipy.special import ndtr

LEAST = 3
"""Number of clients that a round needs: the target, and two others to measure their scatter."""


def compare_with_other_clients(table: np.ndarray) -> np.ndarray:
    """Standardise each client's statistic of a candidate by the other clients' mean and deviation, and return the
    normal CDF of the result.

    ``table``: (m, n), the statistic of m clients and n candidates; the result is ``Phi(z)``, (m, n), in [0, 1].

    z is the client's distance from the mean of the **other** clients in their standard deviations (FedMIA, Zhu et al.
    2024), so that no client is part of its own null distribution. If the others do not vary, a tie with them is 1/2.
    Raises ValueError for fewer than three clients.
    """
    # Callers average these values over rounds, not their logarithms: one round of similar others would dominate.
    if len(table) < LEAST:
        raise ValueError(f"a comparison with other clients needs at least {LEAST} clients, got {len(table)}")
    others = len(table) - 1
    centred = table - table.mean(0)
    # Of centred numbers: sums of squares of a loss far from zero would lose digits.
    mean = (centred.sum(0) - centred) / others
    squares = ((centred**2).sum(0) - centred**2) - others * mean**2
    spread = np.sqrt(np.maximum(squares, 0) / (others - 1))
    scale = np.maximum(spread, 1e-9 * np.abs(table).max(0) + 1e-300)
    return np.asarray(ndtr((centred - mean) / scale), dtype=np.float64)
