"""One for all: the target client's statistic against the other clients', who did not train on the candidate."""

import numpy as np
from scipy.special import ndtr

LEAST = 3
"""Clients that a round needs: the target and two others, whose scatter is to be measured."""


def one_for_all(table: np.ndarray) -> np.ndarray:
    """``table``: (m, n), a statistic of each client and candidate -> ``Phi(z)``, (m, n), in [0, 1], where z is the
    client's distance from the mean of the **other** clients in their standard deviations (FedMIA, Zhu et al. 2024).

    Each client is compared with a null of which it is no part; where that does not vary a tie with it is 1/2. Rounds
    are averaged as they are, not their logarithms, in which one round of quiet others would outweigh all the rest.
    Raises ValueError below three clients.
    """
    if len(table) < LEAST:
        raise ValueError(f"one for all needs {LEAST} clients, got {len(table)}")
    others = len(table) - 1
    centred = table - table.mean(0)
    # Of centred numbers: sums of squares of a loss far from zero would cancel.
    mean = (centred.sum(0) - centred) / others
    squares = ((centred**2).sum(0) - centred**2) - others * mean**2
    spread = np.sqrt(np.maximum(squares, 0) / (others - 1))
    scale = np.maximum(spread, 1e-9 * np.abs(table).max(0) + 1e-300)
    return np.asarray(ndtr((centred - mean) / scale), dtype=np.float64)
