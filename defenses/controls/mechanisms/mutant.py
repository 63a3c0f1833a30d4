"""Mutant: one mechanism in two editions, correct and broken, and the claim that both sign."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ....audit.arrays import FloatArray
from ....audit.claim import Adjacency, Claim, Unit
from ....audit.curve import Curve
from ....audit.observer import Observer

Sample = Callable[[int, int, np.random.Generator], NDArray[Any]]
"""(world, n, rng) -> outputs of ``n`` independent trials ``(n, ...)`` on the worst-case input of that world."""
Score = Callable[[NDArray[Any]], FloatArray]
"""Outputs ``(n, ...)`` -> ``(n,)``, higher means world 1."""


@dataclass(frozen=True, kw_only=True)
class Mutant:
    """A planted bug beside its correct twin.

    Args:
        claim: what both sign; the twin keeps it.
        correct, broken: one trial an output; world 1 holds the unit in question, world 0 does not (or another).
        scores: fixed beforehand, each for a bug that may be there.
        witness: which inputs and which event show the bug.
    """

    claim: Claim
    correct: Sample
    broken: Sample
    scores: tuple[Score, ...]
    witness: str


def signed(
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
    """The claim of a mechanism that is given in full by its name and source."""
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
