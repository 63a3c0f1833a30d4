"""Exact bounds on a probability (Clopper and Pearson 1934), with numpy alone."""

import numpy as np


def lower(count: int, number: int, alpha: float) -> float:
    """Return a bound that is above the true probability with probability at most ``alpha``."""
    return 1 - upper(number - count, number, alpha)


def upper(count: int, number: int, alpha: float) -> float:
    """Return a bound that is below the true probability with probability at most ``alpha``.

    Args:
        count: successes, in [0, number].
        number: trials, >= 1.
        alpha: in (0, 1).
    """
    if not 0 <= count <= number or not number:
        raise ValueError(f"count must be in [0, number] and number >= 1, got {count} of {number}")
    if count == number:
        return 1.0
    logs = np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, number + 1)))])
    k = np.arange(count + 1)
    choose = logs[number] - logs[k] - logs[number - k]
    low, high = count / number, 1.0
    for _ in range(60):
        p = (low + high) / 2
        # The probability of at most ``count`` successes falls with p.
        if np.exp(choose + k * np.log(p) + (number - k) * np.log1p(-p)).sum() > alpha:
            low = p
        else:
            high = p
    return high


def epsilon_low(counts: tuple[int, int], numbers: tuple[int, int], *, delta: float, alpha: float) -> float:
    """Return a lower bound on epsilon from how often an event happened on two neighbours, at level 1 - ``alpha``.

    The first probability is at most e^epsilon times the second, plus delta; each is bounded at half of ``alpha``.
    """
    over = lower(counts[0], numbers[0], alpha / 2) - delta
    under = upper(counts[1], numbers[1], alpha / 2)
    return float(np.log(over / under)) if over > 0 else -np.inf
