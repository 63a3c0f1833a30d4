"""Check the noise of many runs where no law is published: it must not repeat, nor leave a direction that a unit moves.

Correlated, sparse, discrete and shared noise are mechanisms of their own. Noise is at fault only where the adversary of
a claim can use its structure: a direction in which a unit moves a release and noise does not, or noise that comes
twice in different runs, because its seeds are few.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ...audit.arrays import FloatArray, IntArray
from ...audit.check_result import CheckResult
from ...audit.claim import Claim
from .noise_sample import NoiseSample

REPEATS, DIRECTIONS = "noise of its own in every run", "noise where a unit moves the release"
_HIDES = 1000.0
"""Move over noise, in any direction, from which no noise of a finite budget is left to hide it."""
_DISTINCT, _FEWEST = 0.9, 8
"""Share of distinct numbers from which noise counts as continuous, of so many numbers at least."""
_SPARE = 16
"""Noise vectors beyond the number of weights, at least."""
_ROUNDING = 2.0**-22
"""Rounding of a release in single precision as a share of its largest number, with a margin."""


class Move(NamedTuple):
    """How far one unit moved a row of a release, ``vector (d,)``, in runs of equal draws; ``turn``: the round."""

    vector: FloatArray
    witness: str
    turn: int = 0


def structure_checks(sample: NoiseSample, moves: Sequence[Move], claim: Claim) -> list[CheckResult]:
    """Return the checks that need no law: noise of its own in every run, and in every direction that a unit moves.

    A sample that shows no continuous noise is not checked: coins and grids repeat by chance.
    """
    reason = _unfit(sample)
    if reason:
        return [CheckResult(name=name, passed=None, witness=reason) for name in (REPEATS, DIRECTIONS)]
    return [_repeats(sample), _free_moves(sample, moves, claim)]


def _unfit(sample: NoiseSample) -> str:
    """Why the sample cannot be checked; empty if it can."""
    noisy = sample.values[:, sample.present & ~sample.silent]
    moved = (noisy != noisy[:1]).any(0)
    if not moved.any():
        return "the runs of one batch show no noise"
    numbers = noisy[:, moved]
    seen = numbers[numbers != 0][:20_000]
    if len(seen) < _FEWEST or len(np.unique(seen)) < _DISTINCT * len(seen):
        return "its noise takes few values, which repeat by chance"
    return ""


def _repeats(sample: NoiseSample) -> CheckResult:
    """Equal releases of two runs: noise of single precision never gives two equal vectors, noise of few seeds does."""
    repeated, total, where = 0, 0, ""
    for row, name in enumerate(sample.row_names):
        turns = [turn for turn in np.flatnonzero(sample.present[row]) if _is_continuous(sample.values[:, row, turn])]
        if not turns:
            continue
        vectors = sample.values[:, row][:, turns].reshape(sample.runs * len(turns), -1)
        # Two releases of zeros, as of a report that is lost or withheld after the noise, show nothing.
        sent = vectors.any(axis=1)
        copies = _copies(vectors[sent], np.repeat(np.arange(sample.runs), len(turns))[sent])
        repeated, total = repeated + copies, total + int(sent.sum())
        where = where or (name if copies else "")
    if not total:
        return CheckResult(name=REPEATS, passed=None, witness="no release has noise in enough numbers")
    witness = f"of {total} releases of {sample.runs} runs those that equal one of another run bit for bit"
    witness += f", {where}" if where else ""
    return CheckResult.at_most(REPEATS, float(repeated), 0.0, unit="releases", witness=witness)


def _is_continuous(vectors: FloatArray) -> bool:
    """Whether the runs of one release differ in so many numbers that two of them are never equal by chance."""
    vectors = vectors[vectors.any(axis=1)]
    if not len(vectors):
        return False
    moved = (vectors != vectors[:1]).any(0)
    if moved.sum() < _FEWEST:
        return False
    # Mostly distinct within one vector, since all runs' vectors may be few.
    first = vectors[0, moved]
    seen = first[first != 0]
    return len(seen) >= _FEWEST and len(np.unique(seen)) >= _DISTINCT * len(seen)


def _copies(vectors: FloatArray, runs: IntArray) -> int:
    """Vectors that equal one of another run."""
    _, group = np.unique(vectors, axis=0, return_inverse=True)
    group = group.reshape(-1)
    pairs = np.unique(np.stack([group, runs]), axis=1)
    others = np.bincount(pairs[0])
    return int((others[group] > 1).sum())


def _free_moves(sample: NoiseSample, moves: Sequence[Move], claim: Claim) -> CheckResult:
    """The largest move over the noise in its direction, over all directions (the Mahalanobis length of the move)."""
    allowed = max(_HIDES, 3 * largest_move(claim))
    there, dim = sample.present & ~sample.silent, sample.values.shape[-1]
    # Clip norms may adapt: the noise of each round, and its moves, count in units of the round's noise.
    scales = np.where(there, np.sqrt(np.square(sample.contrasts).mean(axis=(0, 3))), 0.0)
    units = np.where(scales > 0, scales, 1.0)
    vectors = (sample.contrasts / units[..., None])[:, there].reshape(-1, dim)
    largest = scales.max(axis=0)
    # A later round than those of the sample is compared with the loudest one.
    moves = [
        move._replace(vector=move.vector / scale)
        for move in moves
        if (scale := float(largest[move.turn] if move.turn < len(largest) else largest.max())) > 0
    ]
    count = len(vectors)
    if not moves or count < 2 * _SPARE + 2:
        reason = "no unit moves a release in runs of equal draws" if not moves else f"only {count} noise vectors"
        return CheckResult(name=DIRECTIONS, passed=None, witness=reason)
    # A release of zeros adds nothing to what its round's other runs show, though its contrasts with them differ.
    sent = (sample.values[:, there] != 0).sum(0) - 1
    counts = np.minimum((vectors != 0).sum(0), np.maximum(sent, 0).sum(0))
    # Weights that are rarely sent show no noise in a few vectors; the whole message is compared where they are.
    shown = np.flatnonzero(counts >= 2 * _SPARE)
    if len(shown) == 0:
        return CheckResult(name=DIRECTIONS, passed=None, witness="each weight is sent too rarely")
    blocks = [shown[block] for block in _blocks(counts[shown])]
    sizes = np.abs(sample.values).max(axis=(0, 3))
    floor = (_ROUNDING * float((sizes / units)[there].max())) ** 2
    worst, witness = -1.0, ""
    for block in blocks:
        part = vectors[:, block]
        # Rounds that send other weights say nothing about the noise of these.
        part = part[(part != 0).any(1)]
        covariance = part.T @ part / max(1, len(part))
        covariance[np.diag_indices_from(covariance)] += floor
        rows = np.stack([move.vector[block] for move in moves])
        lengths = np.sqrt(np.maximum(0.0, (rows * np.linalg.solve(covariance, rows.T).T).sum(1)))
        best = int(lengths.argmax())
        if lengths[best] > worst:
            worst, witness = float(lengths[best]), moves[best].witness
    scope = "all weights" if len(blocks) == 1 else f"{max(map(len, blocks))} weights at a time"
    witness = f"{witness}; in the direction with the least noise over {scope}, from {count} noise vectors"
    return CheckResult.at_most(DIRECTIONS, worst, allowed, unit="standard deviations of the noise", witness=witness)


def _blocks(counts: IntArray) -> list[IntArray]:
    """Weights in blocks that are smaller than the number of noise vectors that move every weight of the block.

    In more directions than vectors some direction has no noise by chance. A weight without any noise, or with too few
    vectors, is a block of its own.
    """
    # A random order, since neighbouring weights may share their noise; those of many vectors first.
    order = np.random.default_rng(0).permutation(len(counts))
    order = order[np.argsort(-counts[order], kind="stable")]
    blocks, start = list[IntArray](), 0
    while start < len(order):
        # The least count of a block decides its size.
        sizes = np.arange(1, len(order) - start + 1)
        least = counts[order[start:]]
        fits = sizes <= least - np.maximum(_SPARE, least // 8)
        end = start + max(1, int(fits.argmin()) if not fits.all() else len(fits))
        blocks.append(order[start:end])
        start = end
    return blocks


def largest_move(claim: Claim) -> float:
    """Return the largest distance of two means, in standard deviations, that (epsilon, delta)-DP allows.

    Two distributions whose means lie m standard deviations s apart differ by m^2 / (m^2 + 4 s^2) in total variation at
    least (Cantelli's inequality), and (epsilon, delta)-DP allows (e^epsilon - 1 + 2 delta) / (e^epsilon + 1).
    """
    if claim.delta >= 1 or claim.epsilon > 600:
        return math.inf
    return math.sqrt(2 * (math.expm1(claim.epsilon) + 2 * claim.delta) / (1 - claim.delta))
