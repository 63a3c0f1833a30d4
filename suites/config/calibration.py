"""Prepare a defense for a plan, once for each pair of them."""

from collections.abc import Callable
from functools import lru_cache

from ...defenses.defense import Defense, Prepared
from ...fl.plan import Plan


def calibrated(defense: Defense, plan: Plan) -> Prepared:
    """Return ``defense.prepare(plan)``; the result is kept for equal defenses and plans, if both can be hashed.

    Raises:
        Exception: whatever the defense raises.
    """
    try:
        hash((defense, plan))
    except TypeError:
        return defense.prepare(plan)
    return _kept(type(defense).prepare, defense, plan)


# Calibration may take seconds. The plans of all seeds are often equal, and so are those that the audits of a defense's
# claims run.
@lru_cache(maxsize=1024)
def _kept(prepare: Callable[[Defense, Plan], Prepared], defense: Defense, plan: Plan) -> Prepared:
    return prepare(defense, plan)
