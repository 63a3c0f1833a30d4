"""Recompute the epsilons in Table 3 of the APES paper by advanced composition over coordinates (Liu et al. 2023).

See Lemma 2 and Proposition 1 of the paper.
"""

import math
from collections.abc import Callable

from ...accounting.pure import advanced_composition

_SLACK = 1 / 7200
_LEAST = 1e-12  # A coordinate may have epsilon 0 at its delta, but the formula needs one above 0.


def published_total(
    one: Callable[[float], float], *, coordinates: int, releases: int, largest: float, delta: float
) -> float:
    """Compute the epsilon at ``delta`` of ``releases`` releases as the APES paper does. ``coordinates`` is the number
    of coordinates in all rounds; S-APES has fewer releases, because clients send only some coordinates.

    The paper does not state how it splits delta. This split meets its totals within 1 %: of 3.6e-5, 5e-9 for the
    composition of all coordinates and the rest for them, each at tanh(``largest`` / 2) delta_s (Theorem 4); what fewer
    releases leave goes to the composition.

    Args:
        one: epsilon of one coordinate as a function of delta_s.
    """
    # Coordinates get nearly all of delta: the composition needs little for its own slack.
    each = (1 - _SLACK) * delta / coordinates
    slack = delta - min(releases, coordinates) * each
    return advanced_composition(
        epsilon=max(one(min(0.5, each / math.tanh(largest / 2))), _LEAST),
        releases=releases,
        slack=max(slack, _SLACK * delta),
    )
