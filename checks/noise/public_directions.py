"""Check each round's noise along what is public before the round: aggregates, their sums, and the public state.

Noise that is projected off such a direction has full rank over many runs, in which the direction is another one each
time. Along the direction of its own run it is missing.
"""

from collections.abc import Iterator, Mapping

import numpy as np

from ...audit.arrays import BoolArray, FloatArray
from ..false_alarms import Shortfall, least_scale

_DECAY = 0.9
"""Decay of a sum of aggregates, as under momentum."""
_MARGIN = 2.0
"""Factor by which the squares may fall short of chance besides, where a law of another public state is unknown."""
_FEWEST = 64
"""Projections from which their scale is tested."""


def public_vectors(aggregates: FloatArray, state: Mapping[str, FloatArray]) -> dict[str, FloatArray]:
    """Return the vectors ``(runs, rounds, d)`` that are public before each round, by their words.

    Args:
        aggregates: ``(runs, rounds, d)``, those of each round.
        state: arrays of the public state as each round finds it, ``(runs, rounds, d)``.
    """
    last, total, decayed = (np.zeros_like(aggregates) for _ in range(3))
    for turn in range(1, aggregates.shape[1]):
        last[:, turn] = aggregates[:, turn - 1]
        total[:, turn] = total[:, turn - 1] + aggregates[:, turn - 1]
        decayed[:, turn] = _DECAY * decayed[:, turn - 1] + aggregates[:, turn - 1]
    found = {"the last aggregate": last, "the sum of all aggregates": total, "a decaying sum of aggregates": decayed}
    return found | {f"{name} of the public state": values for name, values in state.items()}


def along_public(
    noise: FloatArray, there: BoolArray, public: Mapping[str, FloatArray], slack: float
) -> Iterator[Shortfall]:
    """Return the scale of the noise along each public vector, which differs between the runs.

    Squares are compared with those of the same weights in all runs, or with the law's where it states less: the law of
    a later round, with another public state, is not published.

    Args:
        noise: ``(runs, rows, rounds, d)`` in standard deviations of the law, of mean zero over the runs.
        there: ``(rows, rounds)``, which of it is tested.
        slack: rounding of the released values, in standard deviations of the law.
    """
    there = there.copy()
    there[:, 0] = False
    scales = np.minimum(np.square(noise).mean(0), 1.0)
    squares, degrees, names = [], [], []
    for name, vectors in public.items():
        # A vector that is the same in all runs is seen in the covariance of the noise.
        moving = (vectors != vectors[:1]).any((0, 2)) & (np.square(vectors).sum(-1) > 0).all(0)
        tested = there & moving
        if not tested.any():
            continue
        rows, turns = np.nonzero(tested)
        units = vectors[:, turns] / np.linalg.norm(vectors[:, turns], axis=-1, keepdims=True)
        along = np.einsum("rkd,rkd->rk", noise[:, rows, turns], units)
        expected = np.einsum("kd,rkd->rk", scales[rows, turns], np.square(units))
        known = expected > 0
        if known.sum() >= _FEWEST:
            squares.append(_MARGIN * float((along[known] ** 2 / expected[known]).sum()))
            degrees.append(float(known.sum()))
            names.append(f"along {name} before the round")
    if names:
        yield least_scale(np.array(squares), np.array(degrees), names, slack=slack)[0]
