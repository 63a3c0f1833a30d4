"""What a claim lets an adversary believe about one unit, and what it implies for several units together.

The bounds of a belief follow from Bayes' rule; with delta 0 they hold after every output. With delta > 0 an output of
small probability may give certainty, so that only the share of right guesses is bounded.
"""

import math

_LARGEST_EXPONENT = 700.0


def posterior_bounds(prior: float, epsilon: float) -> tuple[float, float]:
    """Return the smallest and the largest probability that an adversary assigns to a hypothesis about one unit after an
    epsilon-DP output (delta 0), from its probability ``prior`` before it.

    ``p / (e^epsilon + (1 - e^epsilon) p)`` and ``e^epsilon p / (1 + (e^epsilon - 1) p)``, for two neighbouring data
    sets, such as with and without the unit.

    Args:
        prior: in [0, 1].
        epsilon: >= 0; an infinite one limits nothing.

    Raises:
        ValueError: outside these ranges.
    """
    _check_probability("prior", prior)
    _check_epsilon(epsilon)
    # With exp(-epsilon), which cannot overflow.
    shrunk = math.exp(-epsilon)
    low = prior if prior in (0.0, 1.0) else shrunk * prior / (1 - prior + shrunk * prior)
    high = prior if prior in (0.0, 1.0) else prior / (prior + shrunk * (1 - prior))
    return low, high


def right_guesses(prior: float, epsilon: float, delta: float = 0.0) -> float:
    """Return the largest probability with which an adversary guesses right which of two neighbouring data sets gave an
    (epsilon, delta)-DP output, if the first has probability ``prior``.

    The best guess lies at a corner of the trade-off region (Kairouz et al. 2015): always one of the two but for a
    share delta, or error rates of ``(1 - delta) / (1 + e^epsilon)`` each. At delta 0 and prior 1/2 it equals the larger
    bound of the posterior.

    Args:
        prior, delta: in [0, 1].
        epsilon: >= 0.

    Raises:
        ValueError: outside these ranges.
    """
    _check_probability("prior", prior)
    _check_probability("delta", delta)
    _check_epsilon(epsilon)
    shrunk = math.exp(-epsilon)
    equal = 1 - (1 - delta) * shrunk / (1 + shrunk)
    return max(equal, prior + delta * (1 - prior), 1 - prior + delta * prior)


def group_privacy(epsilon: float, delta: float, units: int) -> tuple[float, float]:
    """Return the (epsilon, delta) that an (epsilon, delta)-DP mechanism satisfies for so many units together.

    ``(k epsilon, delta (e^(k epsilon) - 1) / (e^epsilon - 1))``, which is ``k delta`` at epsilon 0, and a delta of 1 at
    most. It applies the definition k times: every further unit multiplies the delta so far by ``e^epsilon`` and adds
    one (Dwork and Roth 2014, Theorem 2.2, for delta 0; Vadhan 2017, Lemma 2.2).

    Args:
        epsilon: >= 0 and finite.
        delta: in [0, 1].
        units: k >= 1.

    Raises:
        ValueError: outside these ranges.
    """
    _check_epsilon(epsilon)
    _check_probability("delta", delta)
    if isinstance(units, bool) or units < 1 or int(units) != units:
        raise ValueError(f"units (of the group) must be a whole number >= 1, got {units!r}")
    if delta == 0:
        return units * epsilon, 0.0
    if units * epsilon > _LARGEST_EXPONENT:
        return units * epsilon, 1.0
    factor = units if epsilon == 0 else math.expm1(units * epsilon) / math.expm1(epsilon)
    return units * epsilon, min(1.0, delta * factor)


def _check_probability(name: str, value: float) -> None:
    if not 0 <= value <= 1:
        raise ValueError(f"{name} must lie in [0, 1], got {value}")


def _check_epsilon(epsilon: float) -> None:
    if not epsilon >= 0:
        raise ValueError(f"epsilon must be >= 0, got {epsilon}")
