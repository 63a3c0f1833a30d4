"""Group-sequential design: looks at an audit's runs that are planned beforehand, each with its share of alpha.

An audit may stop at a look. The bound of look k, computed from the first n_k runs at the level alpha_k, exceeds the
truth with probability at most alpha_k, whether or not the audit gets there. By the union bound all of them hold at once
with probability 1 - sum(alpha_k), so the bound of the look at which the audit stopped holds at alpha. This is alpha
spending (Lan and DeMets 1983) by a function that is fixed beforehand, without an assumption on how looks depend on
each other.
"""

from dataclasses import dataclass

_SHARES_BY_RUNS = ((1 / 8, 1 / 16), (1 / 4, 1 / 16), (1 / 2, 1 / 8), (3 / 4, 1 / 8), (7 / 8, 1 / 16), (1.0, 9 / 16))
"""Share of the runs at each look, and the share of alpha that it spends. Most is kept for the last look, where a
violation that is hard to see has its best chance; the late looks serve to end runs that can refute nothing any more."""


@dataclass(frozen=True, kw_only=True)
class Look:
    """A planned look at an audit's runs.

    Args:
        replicas: runs per arm by then, those of earlier looks included.
        alpha: level of the bound of this look.
    """

    replicas: int
    alpha: float


def planned_looks(replicas: int, alpha: float) -> tuple[Look, ...]:
    """Return the looks at an audit of at most ``replicas`` runs per arm; their levels sum to at most ``alpha``.

    Looks that would have equally many runs are one, with the sum of their levels; none has fewer than two runs.

    Raises:
        ValueError: for fewer than two runs, or a level outside (0, 1).
    """
    if replicas < 2:
        raise ValueError(f"replicas must be >= 2, got {replicas}")
    if not 0 < alpha < 1:
        raise ValueError(f"alpha must lie in (0, 1), got {alpha}")
    shares: dict[int, float] = {}
    for part, share in _SHARES_BY_RUNS:
        count = max(2, round(part * replicas))
        shares[count] = shares.get(count, 0.0) + share
    return tuple(Look(replicas=count, alpha=share * alpha) for count, share in shares.items())
