"""Check the noise of many runs, whether or not its distribution is published: noise must be present, be drawn anew, and
cover each change that a unit causes.

Compare runs that differ only in the defense's random draws, so that the difference between them is the noise.

Check the noise of many runs where no law is published: it must not repeat, nor leave a direction that a unit moves.

Correlated, sparse, discrete and shared noise are mechanisms of their own. Noise is at fault only where the adversary of
a claim can use its structure: a direction in which a unit moves a release and noise does not, or noise that comes
twice in different runs, because its seeds are few.

Find numbers of a release that sometimes have no noise, where no law is published: values that runs of other noise
repeat bit for bit, and that move with the unit.

Continuous noise hardly ever repeats a number in several runs. A number that is clamped or set to zero after the noise
was added repeats too, and honestly so: its value does not depend on the data. A correct defense fails once in 10^7
checks.
"""

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from scipy.special import gammaln
from torch import Tensor

from ..audit.arrays import BoolArray, FloatArray, IntArray
from ..audit.check import (
    BARE,
    BETWEEN_CLIENTS,
    BETWEEN_ROUNDS,
    COVERS_MOVES,
    OWN_IN_RUNS,
    PRESENT,
    SCALE,
    Check,
    CheckResult,
)
from ..audit.claim import Claim
from ..audit.ledger import SUITE
from ..fl.laws import GaussianLaw
from ..fl.replay import Recording
from .neighbours import RunPair
from .noise_sample import NoiseSample

_SHARED = 0.99999
"""Cosine from which two noise vectors count as one draw. Noise that adds up over the rounds, as under momentum or in a
running sum, comes near 1; noise used twice gives 1 up to rounding.
"""
_LEVELS = 32
"""Distinct numbers of all releases together up to which they count as coins or levels."""
_FEWEST, _FEWEST_DRAWN = 10, 50
"""Numbers that both noise vectors must move before they are compared; coins are equal by chance, Gaussians never."""


def noise_checks(
    draws: Sequence[Recording],
    laws: Sequence[GaussianLaw] | None,
    layers: Mapping[str, slice],
    *,
    drawn: bool = False,
    rounded: bool = False,
    reason: str = "",
    constant: Collection[int] = (),
) -> list[CheckResult]:
    """Check that noise is present, and drawn anew for each client and round; a check of the noise's size needs more
    draws.

    Args:
        draws: at least two recordings with equal data, cohorts and lots.
        laws: one per row of a release; None where the defense publishes no Gaussian law.
        rounded: whether the released numbers are rounded, so that other noise may leave a number as it was.
        reason: why no law can be compared, where ``laws`` is None.
        layers: coordinates of each layer.
        drawn: whether reports are drawn from a law of their own, such as coins.
        constant: rounds whose releases no unit moved. They need no noise, unless a law publishes some.
    """
    releases = torch.stack([torch.stack(draw.releases) for draw in draws])
    # A release of zeros, as in a round that is skipped, shows no noise.
    sent = present = torch.stack(draws[0].present) & (releases != 0).any(0).any(-1)
    senders = draws[0].senders
    if not laws:
        present = sent.clone()
        present[[turn for turn in constant if turn < len(present)]] = False
    if drawn:
        found = [_any_presence(releases, present)]
    else:
        places = layers if laws and not rounded else {"release": slice(None)}
        found = [_presence(releases, present, places, senders, gaussian=bool(laws) and not rounded)]
        if not laws and found[0].passed is False and _few_values(releases[:, present]):
            reason = "released numbers take few different values, which may stay equal under other noise"
            found = [PRESENT.skipped(reason)]
    # Data, cohorts and lots cancel in the difference of two draws.
    found += freshness_checks(releases[0] - releases[1], present, senders, drawn=drawn)
    if not bool(present.any()):
        none = "no unit changed a release" if bool(sent.any()) else "only zeros were released"
        found = [replace(one, witness=none) for one in found]
    if laws is None:
        found.append(SCALE.skipped(reason))
    return found


def freshness_checks(
    noise: Tensor, present: Tensor, senders: tuple[int, ...] | None, *, drawn: bool = False
) -> list[CheckResult]:
    """Check that no two clients of a round, and no two rounds of a client, share their noise.

    Noise in one direction only has this direction everywhere: it has to be compared over several independent draws. Of
    five draws of one number, two have a cosine above ``_SHARED`` by chance once in 10^9.

    Args:
        noise: ``(rounds, rows, n)``, the numbers of all draws of a row after each other.
        present: ``(rounds, rows)``, whether a row was sent.
        drawn: whether reports are drawn from a law of their own, such as coins.
    """
    fewest = _FEWEST_DRAWN if drawn else _FEWEST
    noise = noise.masked_fill(~present.unsqueeze(-1), 0)
    rounds, found = [f"round {t}" for t in range(len(noise))], []
    if senders is not None and len(senders) > 1:
        found.append(_freshness(BETWEEN_CLIENTS, noise, rounds, _names(senders), fewest))
    if len(noise) > 1:
        found.append(_freshness(BETWEEN_ROUNDS, noise.transpose(0, 1), _names(senders), rounds, fewest))
    return found


def _names(senders: tuple[int, ...] | None) -> list[str]:
    return ["the sum"] if senders is None else [f"client {sender}" for sender in senders]


def _presence(
    releases: Tensor, present: Tensor, layers: Mapping[str, slice], senders: tuple[int, ...] | None, *, gaussian: bool
) -> CheckResult:
    """Check the least share of a layer's numbers that other noise moves.

    Under a Gaussian law all of them must move, under another law at least one number of a release.
    """
    # Layer by layer: one small layer without noise would hardly change the share of the whole release.
    moved = (releases[1:] != releases[:1]).any(0)
    names, least, where, allowed = _names(senders), math.inf, "", 1.0
    for number, row in present.nonzero().tolist():
        for layer, place in layers.items():
            share = float(moved[number, row, place].double().mean())
            if share < least:
                least, where = share, f"{names[row]}, round {number}, {layer}"
    if not gaussian:
        allowed = 1 / releases.shape[-1]
    if math.isinf(least):
        return PRESENT.skipped(where)
    none = ": it has no noise, or noise with a fixed seed that the random streams do not change" if least == 0 else ""
    return PRESENT.at_least(least, allowed, unit="share of numbers", witness=where + none)


def _few_values(rows: Tensor) -> bool:
    """Whether the numbers of ``rows (draws, n, d)`` are as coins or levels, of which there are few."""
    return len(np.unique(rows[0].numpy())) <= _LEVELS


def _any_presence(releases: Tensor, present: Tensor) -> CheckResult:
    """Check that other draws move any number of all reports: a single report may be drawn twice by chance."""
    moved = (releases[1:] != releases[:1]).any(0)[present]
    if len(moved) < _FEWEST:
        return PRESENT.skipped(f"fewer than {_FEWEST} reports were sent")
    share = float(moved.double().mean())
    return CheckResult(
        name=PRESENT,
        passed=share > 0,
        measured=share,
        allowed=1 / moved.numel(),
        relation=">=",
        unit="share of numbers",
        witness=f"{len(moved)} reports together",
    )


def _freshness(name: Check, noise: Tensor, groups: Sequence[str], members: Sequence[str], fewest: int) -> CheckResult:
    """Check the largest absolute cosine between the noise of two members of a group: noise used twice gives 1.

    Args:
        noise: (groups, members, d).
        fewest: numbers that both members' noise must move at least; other pairs are not compared.
    """
    lengths = torch.linalg.vector_norm(noise, dim=-1, keepdim=True)
    unit = noise / lengths.clamp_min(torch.finfo(noise.dtype).tiny)
    # Rounded: the last digit must not decide which of several equal pairs is named.
    cosines = (unit @ unit.transpose(1, 2)).abs().tril(-1).round(decimals=6)
    moved = (noise != 0).to(noise.dtype)
    compared = (moved @ moved.transpose(1, 2)).tril(-1) >= fewest
    # Below every cosine, so that a pair that is not compared is never the largest.
    cosines = cosines.masked_fill(~compared, -1.0)
    if not bool(compared.any()):
        return name.skipped("fewer than two releases have noise that the random streams change")
    # PyTorch's own function would import sympy.
    group, one, other = np.unravel_index(int(cosines.argmax()), cosines.shape)
    measured = float(cosines.max())
    return CheckResult(
        name=name,
        passed=measured < _SHARED,
        measured=measured,
        allowed=_SHARED,
        unit="cosine",
        witness=f"{members[int(other)]} and {members[int(one)]}, {groups[int(group)]}",
    )


_HIDES = 1000.0
"""Move over noise, in any direction, from which no noise of a finite budget is left to hide it."""
_CONTINUOUS, _FEWEST_NUMBERS = 0.9, 8
"""Share of distinct numbers from which noise counts as continuous, of so many numbers at least."""
_SPARE = 16
"""Noise vectors beyond the number of weights, at least."""
_ROUNDING = 2.0**-22
"""Rounding of a release in single precision as a share of its largest number, with a margin."""


class Move(NamedTuple):
    """A vector ``(d,)`` by which one unit moved a row of a release, in runs of equal draws.

    ``turn``: the round; ``pair``: of runs that show it.
    """

    vector: FloatArray
    witness: str
    turn: int = 0
    pair: RunPair | None = None


def structure_checks(sample: NoiseSample, moves: Sequence[Move], claim: Claim) -> list[CheckResult]:
    """Return the checks that need no published noise: every run has independent noise, and there is noise in every
    direction in which a unit changes a release.

    A sample that shows no continuous noise is not checked: coins and grids repeat by chance.
    """
    reason = _unfit(sample)
    if reason:
        return [name.skipped(reason) for name in (OWN_IN_RUNS, COVERS_MOVES)]
    return [_repeats(sample), _free_moves(sample, moves, claim)]


def _unfit(sample: NoiseSample) -> str:
    """Why the sample cannot be checked; empty if it can."""
    noisy = sample.values[:, sample.present & ~sample.silent]
    moved = (noisy != noisy[:1]).any(0)
    if not moved.any():
        return "runs of one batch show no noise"
    numbers = noisy[:, moved]
    seen = numbers[numbers != 0][:20_000]
    if len(seen) < _FEWEST_NUMBERS or len(np.unique(seen)) < _CONTINUOUS * len(seen):
        return "the noise takes few different values, which repeat by chance"
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
        return OWN_IN_RUNS.skipped("too few numbers of each release have noise")
    witness = f"among {total} releases of {sample.runs} runs, those that equal a release of another run bit for bit"
    witness += f", {where}" if where else ""
    return OWN_IN_RUNS.at_most(float(repeated), 0.0, unit="releases", witness=witness)


def _is_continuous(vectors: FloatArray) -> bool:
    """Whether the runs of one release differ in so many numbers that two of them are never equal by chance."""
    vectors = vectors[vectors.any(axis=1)]
    if not len(vectors):
        return False
    moved = (vectors != vectors[:1]).any(0)
    if moved.sum() < _FEWEST_NUMBERS:
        return False
    # Mostly distinct within one vector, since all runs' vectors may be few.
    first = vectors[0, moved]
    seen = first[first != 0]
    return len(seen) >= _FEWEST_NUMBERS and len(np.unique(seen)) >= _CONTINUOUS * len(seen)


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
    # Clip norms may adapt in each run: every noise vector counts in units of its own size, and a move in units of the
    # round's median. A few vectors of much noise would otherwise hide that there is noise in all directions.
    own = np.sqrt(np.square(sample.contrasts).mean(axis=3))
    scales = np.where(there, _median_of_positive(own), 0.0)
    vectors = (sample.contrasts / np.where(own > 0, own, 1.0)[..., None])[:, there].reshape(-1, dim)
    largest = scales.max(axis=0)
    # A later round than those of the sample is compared with the loudest one.
    moves = [
        move._replace(vector=move.vector / scale)
        for move in moves
        if (scale := float(largest[move.turn] if move.turn < len(largest) else largest.max())) > 0
    ]
    count = len(vectors)
    if not moves or count < 2 * _SPARE + 2:
        reason = (
            "no unit changes a release in runs with equal random draws"
            if not moves
            else f"{count} noise vectors are too few"
        )
        return COVERS_MOVES.skipped(reason)
    # A release of zeros adds nothing to what its round's other runs show, though its contrasts with them differ.
    sent = (sample.values[:, there] != 0).sum(0) - 1
    counts = np.minimum((vectors != 0).sum(0), np.maximum(sent, 0).sum(0))
    # Weights that are rarely sent show no noise in a few vectors; the whole message is compared where they are.
    shown = np.flatnonzero(counts >= 2 * _SPARE)
    if len(shown) == 0:
        return COVERS_MOVES.skipped("each weight is sent in too few runs")
    blocks = [shown[block] for block in _blocks(counts[shown])]
    # A contrast is rounded as the largest number of the runs in it.
    sizes = np.maximum.accumulate(np.abs(sample.values).max(axis=3), axis=0)[1:]
    noisy = there & (own > 0)
    floor = (_ROUNDING * float((sizes[noisy] / own[noisy]).max(initial=0.0))) ** 2
    worst, found = -1.0, moves[0]
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
            worst, found = float(lengths[best]), moves[best]
    scope = "all weights" if len(blocks) == 1 else f"{max(map(len, blocks))} weights at a time"
    witness = (
        f"{found.witness}; compared with the noise in its worst direction, over {scope}, from {count} noise vectors"
    )
    result = COVERS_MOVES.at_most(worst, allowed, unit="standard deviations of the noise", witness=witness)
    return result if result.passed or found.pair is None else replace(result, proposal=found.pair.proposal)


def _median_of_positive(sizes: FloatArray) -> FloatArray:
    """The (lower) median over runs of the sizes above 0: (runs, rows, rounds) -> (rows, rounds), 0 where none is."""
    positive = (sizes > 0).sum(axis=0)
    ordered = np.sort(np.where(sizes > 0, sizes, np.inf), axis=0)
    middle = np.take_along_axis(ordered, np.maximum(positive - 1, 0)[np.newaxis] // 2, axis=0)[0]
    return np.where(positive > 0, middle, 0.0)


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
    """Return the largest distance of two means, in standard deviations of the noise, that (epsilon, delta)-DP allows.

    Two distributions whose means lie m standard deviations s apart differ by m^2 / (m^2 + 4 s^2) in total variation at
    least (Cantelli's inequality), and (epsilon, delta)-DP allows (e^epsilon - 1 + 2 delta) / (e^epsilon + 1).
    """
    if claim.delta >= 1 or claim.epsilon > 600:
        return math.inf
    return math.sqrt(2 * (math.expm1(claim.epsilon) + 2 * claim.delta) / (1 - claim.delta))


_SINGLE, _MARGIN = 2.0**-22, 16.0
"""Distance of numbers of single precision as a share of their size, and factor by which values are more likely than it
and the mean over all numbers say.
"""
_DISTINCT_RUNS, _FEWEST_RUNS = 0.9, 4
"""Share of distinct numbers among the other runs, so many at least, from which the noise counts as continuous."""
_MOST = 64
"""Repeated numbers that are compared in runs with the unit."""


class _Repeated(NamedTuple):
    """A value that several runs repeat: its row, round and coordinate, the runs, and the value."""

    row: int
    turn: int
    place: int
    runs: BoolArray
    value: float


def bare_checks(
    sample: NoiseSample, claim: Claim, with_unit: Callable[[int], NoiseSample | None]
) -> Iterator[CheckResult]:
    """Check that the unit changes no value that is equal in all runs and so has no noise; nothing if there is no such
    value.

    Args:
        with_unit: a sample of equal draws, in which a row moves by a unit, from the number of the row.
    """
    found = list(_repeated(sample))[:_MOST]
    if not found:
        return
    moved = list[tuple[int, str]]()
    for row in sorted({one.row for one in found}):
        other = with_unit(row)
        if other is None or other.values.shape != sample.values.shape:
            continue
        for one in found:
            if one.row == row and _moves(one, other):
                words = f"{sample.row_names[row]}, round {one.turn}, weight {one.place}"
                moved.append((int(one.runs.sum()), words))
    if not moved:
        words = (
            f"{len(found)} numbers repeat a value that no unit changes, for example a limit to which they are clamped"
        )
        yield BARE.at_most(0.0, claim.delta, unit="share of runs", witness=words)
        return
    count, words = max(moved)
    witness = (
        f"{words}: {count} of {sample.runs} runs repeat one value, and the unit changes it ({len(moved)} such numbers)"
    )
    yield BARE.at_most(count / sample.runs, claim.delta, unit="share of runs", witness=witness)


def _moves(one: _Repeated, other: NoiseSample) -> bool:
    """Whether the same runs repeat another value with the unit."""
    values = other.values[one.runs, one.row, one.turn, one.place]
    return bool((values == values[0]).all() and abs(values[0] - one.value) > 2 * _SINGLE * abs(one.value))


def _repeated(sample: NoiseSample) -> Iterator[_Repeated]:
    """Values that more runs repeat than noise on a grid of floats does, those of most runs first."""
    runs, values = sample.runs, np.sort(sample.values, axis=0)
    same = values[1:] == values[:-1]
    counts = _longest(same) + 1
    # (numbers) chance that two runs have one value: of the spacing of floats, and as often as all numbers show it
    spread = values[3 * runs // 4] - values[runs // 4]
    step = np.maximum(_SINGLE * np.abs(values).max(axis=0), 2 * sample.rounding[:, None, None])
    common = float(same.mean(axis=0)[counts <= 2].mean()) / runs if (counts <= 2).any() else 1.0
    chance = _MARGIN * np.maximum(step / np.maximum(spread, 1e-300), common)
    # A number that no run moves has no noise at all, which other checks find.
    noisy = (values[-1] > values[0]) & (counts > 2) & (spread > 0)
    expected = _log_repeats(runs, counts, np.minimum(chance, 1.0)) + np.log(max(1, counts.size))
    odd = np.argwhere(noisy & (expected < np.log(SUITE.level("repeated numbers"))))
    for row, turn, place in sorted(odd.tolist(), key=lambda where: -counts[tuple(where)]):
        numbers = sample.values[:, row, turn, place]
        seen, often = np.unique(numbers, return_counts=True)
        most = int(often.argmax())
        rest = runs - int(often[most])
        # Coins take few values, which the unit may move in all runs of some draws.
        if rest >= _FEWEST_RUNS and len(seen) - 1 >= _DISTINCT_RUNS * rest:
            yield _Repeated(row, turn, place, numbers == seen[most], float(seen[most]))


def _longest(same: BoolArray) -> FloatArray:
    """The length of the longest sequence of true values along the first axis."""
    length, longest = np.zeros(same.shape[1:]), np.zeros(same.shape[1:])
    for here in same:
        length = np.where(here, length + 1, 0)
        longest = np.maximum(longest, length)
    return longest


def _log_repeats(runs: int, counts: FloatArray, chance: FloatArray) -> FloatArray:
    """The logarithm of a bound on the chance that so many of the runs have one value: choices times chance each."""
    choices = gammaln(runs + 1) - gammaln(counts + 1) - gammaln(np.maximum(runs - counts, 0) + 1)
    return np.asarray(choices + (counts - 1) * np.log(np.maximum(chance, 1e-300)))
