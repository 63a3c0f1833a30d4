"""One for all: the target client's statistic against the other clients', who did not train on the candidate."""

import numpy as np
from scipy.special import log_ndtr

LEAST = 3
"""Clients that a round needs: the target and two others, whose scatter is to be measured."""


def one_for_all(table: np.ndarray) -> np.ndarray:
    """``table``: (m, n), a statistic of each client and candidate -> ``ln Phi(z)``, (m, n), where z is the client's
    distance from the mean of the **other** clients in their standard deviations (FedMIA, Zhu et al. 2024).

    Each client is compared with a null of which it is no part. Where the others do not vary z is 0 for a tie with them,
    else as far as counts. Raises ValueError below three clients.
    """
    if len(table) < LEAST:
        raise ValueError(f"one for all needs {LEAST} clients, got {len(table)}")
    others = len(table) - 1
    mean = (table.sum(0) - table) / others
    centred = table - table.mean(0)
    # Of centred numbers: sums of squares of a loss far from zero would cancel.
    other_mean = (centred.sum(0) - centred) / others
    squares = ((centred**2).sum(0) - centred**2) - others * other_mean**2
    spread = np.sqrt(np.maximum(squares, 0) / (others - 1))
    scale = np.maximum(spread, 1e-9 * np.abs(table).max(0) + 1e-300)
    return np.asarray(log_ndtr(np.clip((table - mean) / scale, -_FAR, _FAR)), dtype=np.float64)


_FAR = 30.0
"""Standard deviations beyond which more is no more."""
