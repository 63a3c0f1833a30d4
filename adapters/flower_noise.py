"""Finds where a Flower app draws its noise. Noise of the server or of mods is drawn above the place where units are
planted; with noise inside the clients' training function, no unit can be planted.

Server and mods are played on frozen replies, with which no client trains. Training functions run in the first round,
under one seed of server and mods and several seeds of their own. What they draw may be noise or lots of a training, so
that it can only show that there is too little.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from ..audit.arrays import FloatArray
from ..audit.check import CLIPPED, FRESH_NOISE, INDEPENDENT, PRESENT, SCALE, SHAPE, CheckResult
from ..audit.ledger import WATCHED
from .flower_hooks import QUIET, mend_of_share
from .flower_play_back import FlowerPlay
from .play_back import largest_deviation

INSIDE = (
    "server and mods draw less noise than stated, and no canary can be inserted where noise is drawn inside the "
    "training function"
)
UPDATES = CLIPPED.worded(
    seen="one client's update adds {}",
    cause="replies are weighted by numbers of examples that differ, fewer clients reply than the noise is divided by, "
    "or the strategy or a missing mod does not clip whole updates",
    mend="send the same `num-examples` from every client, require replies of `num_sampled_clients` clients, and clip "
    "all arrays of an update together",
)
"""The check ``CLIPPED`` in words for clients."""
SEEN_ABOVE = (UPDATES, PRESENT, SCALE, FRESH_NOISE, SHAPE, INDEPENDENT)
"""Checks that compare a release with updates as training functions made them, before all noise; the first one compares
their sum, the others its noise.
"""
_DRAWS, _RUNS = 16, 12
_SLACK, _ERRORS = 1e-3, 8.0
"""Relative rounding, and standard errors by which a row must be too long."""


@dataclass(frozen=True, kw_only=True)
class NoisePlace:
    """Where a Flower app draws its noise.

    Args:
        inside: why no unit can be planted; empty where noise is drawn above that place, or missing.
        nowhere: why there is none, where nothing states any; empty otherwise.
        row: the failed check of a training function that clips too little.
    """

    inside: str = ""
    nowhere: str = ""
    row: CheckResult | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class FirstRound:
    """The result of the first round: ``movement`` of the model ``(d,)``, and ``updates`` by node as the training
    functions return them.
    """

    movement: Tensor
    updates: Mapping[int, Tensor]


def noise_place(play: FlowerPlay, first_round: Callable[[int], FirstRound]) -> NoisePlace:
    """Find where the noise stated by the user is drawn, or, if no noise is stated, whether any is drawn.

    ``first_round``: runs the app's first round with this seed of all training functions, and one of all else. A
    wrapper or a mod of Flower that states its noise draws it by itself, and is not asked. Frozen replies that a
    strategy refuses show nothing.
    """
    if play.law is None and play.own is not None:
        return NoisePlace()
    try:
        outside = _outside(play)
    except Exception:  # Foreign strategies may refuse frozen replies by any exception.
        return NoisePlace()
    if play.law is None:
        if (outside != outside[:1]).any() or _differ(first_round(0), first_round(1)):
            return NoisePlace()
        return NoisePlace(nowhere="no noise is stated, and the first round releases the same model under two seeds")
    std, level = play.law.noise_std / play.law.scale, WATCHED.level("watched run", 2)
    # Where nothing varies there is no noise, as in layers that a strategy leaves alone.
    varying = (outside != outside[:1]).any(0)
    if varying.any() and largest_deviation(_centred(outside)[:, varying], level) >= std:
        return NoisePlace()
    rounds = [first_round(seed) for seed in range(2)]
    if not _differ(*rounds):
        return NoisePlace()
    rounds += [first_round(seed) for seed in range(2, _RUNS)]
    sums = np.stack([one.movement.numpy() for one in rounds]) / play.law.scale
    moving = sums.any(0)
    inside, above = _centred(sums)[:, moving], _centred(outside)[:, moving]
    each = WATCHED.level("watched run", 4 * inside.shape[1])
    columns = zip(inside.T[..., None], above.T[..., None], strict=True)
    enough = all(_together(one, other, each) >= std for one, other in [(inside, above), *columns])
    return NoisePlace(inside=INSIDE, row=_long_row(rounds, sums, play.law.clip_norm)) if enough else NoisePlace()


def _outside(play: FlowerPlay) -> FloatArray:
    """The sum of short equal replies with the noise of server and mods, ``(draws, d)``."""
    rows = torch.zeros(play.asked, play.layout.dim, dtype=torch.float64)
    rows[:, 0] = QUIET * (1.0 if play.law is None else play.law.clip_norm)
    drawn = [play.releases(rows, seed) for seed in range(_DRAWS)]
    return np.stack([one[-1].numpy() for one in drawn if one is not None])


def _differ(one: FirstRound, other: FirstRound) -> bool:
    return not torch.equal(one.movement, other.movement)


def _centred(values: FloatArray) -> FloatArray:
    return np.asarray((values - values.mean(0)) * math.sqrt(len(values) / (len(values) - 1)))


def _together(one: FloatArray, other: FloatArray, level: float) -> float:
    """The largest standard deviation of the sum of two parts that their draws ``(draws, k)`` allow."""
    return math.hypot(largest_deviation(one, level), largest_deviation(other, level))


def _long_row(rounds: list[FirstRound], sums: FloatArray, clip_norm: float) -> CheckResult | None:
    """The failed check of the clip inside of training functions; None where nothing shows that it is missing.

    Whatever noise a function adds to a clipped update, the mean of what it returns is at most as long as the clip norm.
    Shown only where the sum is that of all updates, so that each counts once.
    """
    nodes = sorted(set.intersection(*(set(one.updates) for one in rounds)))
    rows = np.stack([[one.updates[node].numpy() for node in nodes] for one in rounds])
    if np.linalg.norm(rows.sum(1) - sums) > _SLACK * np.linalg.norm(sums):
        return None
    count = len(rows)
    variance = rows.var(axis=0, ddof=1)
    # Unbiased: pairs of different runs have independent noise.
    squares = (np.square(rows.sum(0)).sum(-1) - np.square(rows).sum((0, 2))) / (count * (count - 1))
    errors = np.sqrt((4 * squares.clip(0) * variance.max(-1) + 2 * np.square(variance).sum(-1)) / count)
    least = squares - _ERRORS * errors
    worst = int(least.argmax())
    if least[worst] <= (clip_norm * (1 + _SLACK)) ** 2:
        return None
    length = math.sqrt(squares[worst]) / clip_norm
    witness = f"norm of the mean update of node {nodes[worst]} in {count} runs of the first round, corrected for noise"
    cause, mend = "the training function returns updates above the clip norm", "clip the whole update before its noise"
    return UPDATES.failed(witness, length, 1.0, unit="clip norms", cause=cause, mend=mend)


def of_updates(found: CheckResult) -> CheckResult:
    """Return a result of the check ``CLIPPED`` in words for clients."""
    words = found.witness.replace("gradient", "update")
    return replace(found, name=UPDATES, witness=words, mend=mend_of_share(found.cause))
