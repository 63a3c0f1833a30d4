"""How many guesses a one-run audit makes: fixed by the claim and the number of canaries, before anything is seen.

The more canaries are guessed, the more is counted, and the worse the guesses near the middle are. The plan takes the
number at which the audit would prove most of a mechanism with half of the claimed noise (or another share of it), its
canaries independent Gaussians (scores +-mu/2 + N(0, 1)), among those at which guesses without an error refute the
claim; if the truth is another one, that costs power and no validity.
"""

import math
from collections.abc import Callable
from functools import lru_cache

import numpy as np
from scipy.special import bdtrik

from ..gaussian import epsilon_from_mu, mu_from_epsilon
from .one_run import epsilon_from_guesses
from .one_run_fdp import mu_from_guesses, share_right

_SHARES = (0.02, 0.03, 0.05, 0.07, 0.1, 0.15, 0.2, 0.3, 0.4, 0.6, 0.8, 1.0)
_LEAST_DELTA = 1e-9
"""At delta 0 no Gaussian has a finite epsilon: one that is pure but for this delta stands in."""


@lru_cache(maxsize=64)
def planned_guesses(
    canaries: int, *, epsilon: float, delta: float, alpha: float, gaussian: bool = False, noise: float = 0.5
) -> int:
    """The number of guesses on ``canaries`` >= 2 for a claim of ``epsilon`` at ``delta``, to be judged at ``alpha``.

    ``gaussian``: for ``one_run_fdp``; else for ``one_run``. ``noise``: the share of the claimed noise that the audit is
    aimed at, in (0, 1]. At 1 the claim is true: the plan is for the largest expected bound, and refutes nothing.

    Raises ValueError for fewer than two canaries and for a share outside.
    """
    if canaries < 2:
        raise ValueError(f"a plan of guesses needs at least 2 canaries, got {canaries}")
    if not 0 < noise <= 1:
        raise ValueError(f"noise must lie in (0, 1], got {noise}")
    truth = mu_from_epsilon(epsilon, max(delta, _LEAST_DELTA)) / noise

    def bound(right: int, made: int) -> float:
        if gaussian:
            return epsilon_from_mu(mu_from_guesses(right, made, canaries, alpha=alpha), max(delta, _LEAST_DELTA))
        return epsilon_from_guesses(right, made, canaries, delta=delta, alpha=alpha)

    numbers = sorted({max(2, round(share * canaries)) for share in _SHARES})
    if noise == 1:
        return max(numbers, key=lambda made: _mean(bound, truth, made, canaries))
    # Few guesses prove most of what is in reach of all, but even without an error they may not reach the claim.
    return max(numbers, key=lambda made: (bound(made, made) > epsilon, _cautious(bound, truth, made, canaries)))


def _mean(bound: Callable[[int, int], float], truth: float, made: int, canaries: int) -> float:
    """The expected bound, from nine quantiles of the number of right guesses."""
    rights = bdtrik((np.arange(9) + 0.5) / 9, made, _share(truth, made, canaries))
    return float(np.mean([bound(int(right), made) for right in np.clip(np.ceil(rights), 0, made)]))


def _cautious(bound: Callable[[int, int], float], truth: float, made: int, canaries: int) -> float:
    """The bound from one standard deviation fewer right guesses than are expected."""
    share = _share(truth, made, canaries)
    right = math.floor(made * share - math.sqrt(made * share * (1 - share)))
    return bound(max(0, right), made)


def _share(truth: float, made: int, canaries: int) -> float:
    return float(share_right(np.array([truth]), 1 - made / canaries)[0])
