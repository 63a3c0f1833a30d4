"""Define a mutant, which consists of a mechanism's correct version, a version with a planted bug, and one claim for
both.

Both kinds of broken things end here: a file of ``controls/mechanisms`` supplies its two samplers itself, and a
``Control`` is run in federations with and without its bug (``suites.mutation.federated_mutant``).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...audit.arrays import FloatArray
from ...audit.claim import Adjacency, Claim, Unit
from ...audit.curve import Curve
from ...audit.observer import UPLOADS, Observer

Sample = Callable[[int, int, np.random.Generator], NDArray[Any]]
"""(world, n, rng) -> outputs of ``n`` independent runs ``(n, ...)`` on the worst-case input; ``world`` is 1 with the
canary and 0 without.
"""
Score = Callable[[NDArray[Any]], FloatArray]
"""Outputs ``(n, ...)`` -> ``(n,)``, higher means with the canary."""


@dataclass(frozen=True, kw_only=True)
class Mutant:
    """A mechanism in two versions, one correct and one with a planted bug, which state the same claim.

    Args:
        claim: what both versions state; only the correct one satisfies it.
        correct, broken: samplers with one output per run; world 1 holds the unit in question, world 0 does not, or
            holds another.
        scores: fixed before any run; each looks for one bug that may be there.
        witness: the inputs and the event that show the bug.
    """

    claim: Claim
    correct: Sample
    broken: Sample
    scores: tuple[Score, ...]
    witness: str


def mechanism_claim(
    *,
    epsilon: float,
    delta: float,
    unit: Unit,
    adjacency: Adjacency,
    observer: Observer,
    mechanism: str,
    source: str,
    curve: Curve | None = None,
    rounds: int = 1,
    dp_model: str = "central",
    sampling: str = "none assumed",
) -> Claim:
    """Return a privacy claim that names the ``mechanism`` and its ``source`` but states no public parameters."""
    return Claim(
        epsilon=epsilon,
        delta=delta,
        unit=unit,
        adjacency=adjacency,
        observer=observer,
        rounds=rounds,
        dp_model=dp_model,
        mechanism=mechanism,
        parameters={},
        accountant="exact",
        sampling=sampling,
        trust="as the model says",
        source=source,
        curve=curve,
    )


def report_claim(*, epsilon: float, mechanism: str, source: str, rounds: int = 1) -> Claim:
    """Return a claim of pure local DP for any two values of one client; the adversary is the server, which observes
    individual updates.
    """
    return mechanism_claim(
        epsilon=epsilon,
        delta=0.0,
        unit=Unit.REPORT,
        adjacency=Adjacency.REPLACE_ONE,
        observer=UPLOADS,
        rounds=rounds,
        mechanism=mechanism,
        dp_model="local",
        source=source,
    )
