"""Many runs of one federation, made together, that differ only in the noise of the defense's hooks; checks test this
noise.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from ..audit.arrays import BoolArray, FloatArray
from ..audit.observer import Observer
from ..fl.canary import Canary
from ..fl.protection import Protection
from ..fl.replay import FrozenFederation, ManyRuns, Recording, ReplayedStreams

NUMBERS = 2**23
"""Released numbers of all runs of one sample together, at most."""
_STREAM = 64
"""Number of the noise of the first sample: the single runs of the other checks have lower ones."""
_FURTHER = 1.5
"""Squared distance of the means of two batches, over that of independent runs, from which batches share draws."""
_APART = 2**16
"""Numbers of the noise of runs that are made one by one, for each sample."""
_LEAST, _FEWEST, _MOST = 6, 10, 64
"""Runs of a sample: of large models, of small ones, and at most."""
_DIGITS, _SINGLE = 4, 2.0**-20
"""Last bits that numbers of full precision leave unused at most; rounding of single precision."""
_FEW, _NEAR = 12, 0.05
"""Numbers that show a lattice, at least, and their distance from it in its steps, at most."""
_SHOWN = 4096
"""Numbers, of many, that show whether there is a lattice."""
_LONGEST = 2.0**24
"""Steps between numbers of single precision, at most."""
_DECAY = 0.9
"""Decay of a sum of aggregates, as under momentum."""
_TAILS = 2**16
"""Numbers of all runs of a sample together, at least where few runs give them."""


@dataclass(kw_only=True)
class NoiseSample:
    """The messages that ``observer`` received in two batches of runs with equal data, cohorts and lots.

    ``values``: ``(runs, rows, rounds, d)``, the second batch after the first; ``present``: ``(rows, rounds)``, whether
    a row was sent in all runs; ``steady``: ``(rounds,)``, whether a round started from the public state of the first
    round; ``senders``: None for an aggregate; ``public``: vectors ``(runs, rounds, d)`` that are public before each
    round, by their words.
    """

    values: FloatArray
    present: BoolArray
    steady: BoolArray
    senders: tuple[int, ...] | None
    public: dict[str, FloatArray] = field(default_factory=dict)

    @property
    def runs(self) -> int:
        """The number of runs."""
        return len(self.values)

    @cached_property
    def silent(self) -> BoolArray:
        """Whether a row was zero in all runs, ``(rows, rounds)``, as in a round that is skipped."""
        return np.asarray(~self.values.any(axis=(0, 3)))

    @property
    def row_names(self) -> list[str]:
        """The names of the rows, such as ``client 3`` or ``the sum``."""
        return ["the sum"] if self.senders is None else [f"client {sender}" for sender in self.senders]

    @cached_property
    def contrasts(self) -> FloatArray:
        """Independent noise ``(runs - 1, rows, rounds, d)``: orthonormal contrasts of the runs, in which everything
        that the runs share cancels. Independent Gaussian noise stays independent, with the same variance.
        """
        # Helmert's matrix: run k less the mean of the runs before it.
        rows = np.tril(np.ones((self.runs, self.runs)), -1)[1:]
        counts = np.arange(1, self.runs)
        rows[np.arange(self.runs - 1), counts] = -counts
        rows /= np.sqrt(counts * (counts + 1))[:, None]
        flat = rows @ self.values.reshape(self.runs, -1)
        return np.asarray(flat.reshape(self.runs - 1, *self.values.shape[1:]))

    @cached_property
    def residuals(self) -> FloatArray:
        """The noise of each run, ``(runs, rows, rounds, d)``: values minus their mean over the runs, rescaled to the
        size of the noise. If the noise of different coordinates is independent, so is this noise within one run.
        """
        scale = math.sqrt(self.runs / (self.runs - 1))
        return np.asarray((self.values - self.values.mean(0)) * scale)

    @cached_property
    def paired(self) -> FloatArray:
        """Noise ``(runs / 2, rows, rounds, d)``: differences between runs at the same position of two batches, in which
        noise with a fixed seed cancels.
        """
        half = self.runs // 2
        return np.asarray((self.values[:half] - self.values[half:]) / math.sqrt(2))

    @cached_property
    def rounding(self) -> FloatArray:
        """Half the distance between values that a row can take, ``(rows,)``, as far as the values show it.

        It is the largest of what is seen of a few vectors: the smallest distance between numbers of one vector, and the
        last digit in use of its largest number.
        """
        found = np.zeros(self.values.shape[1])
        for row in range(len(found)):
            vectors = self.values[:3, row, self.present[row]][:, :3].reshape(-1, self.values.shape[-1])
            found[row] = max((spacing(vector) for vector in vectors), default=0.0) / 2
        return found


def public_vectors(aggregates: FloatArray, state: Mapping[str, FloatArray]) -> dict[str, FloatArray]:
    """Return vectors ``(runs, rounds, d)`` that are public before each round, keyed by a description.

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


def same_state(recording: Recording, number: int) -> bool:
    """Return whether a round started from the same public state as the first round, for which the noise distribution is
    published.
    """
    return equal_states(recording.states[0], recording.states[number])


def equal_states(one: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> bool:
    """Return whether two public states hold the same numbers; a NaN equals a NaN."""
    return one.keys() == other.keys() and all(_equal(one[name], other[name]) for name in one)


def _equal(one: Tensor, other: Tensor) -> bool:
    return one.shape == other.shape and bool(((one == other) | (one.isnan() & other.isnan())).all())


def runs_needed(dim: int, rows: int, rounds: int) -> int:
    """Return the number of runs that gives a quarter more noise vectors, over all rows and rounds, than weights, and
    enough numbers to reveal a missing tail.
    """
    enough = math.ceil(max(1.25 * dim + 64, _TAILS / dim) / max(1, rows * rounds)) + 1
    found = min(_MOST, max(_FEWEST, enough), NUMBERS // max(1, rows * rounds * dim))
    return max(_LEAST, found + found % 2)


def noise_sample(
    federation: FrozenFederation,
    protection: Protection,
    observer: Observer,
    *,
    seed: int,
    runs: int,
    rounds: int,
    number: int = 0,
    canary: Canary | None = None,
) -> NoiseSample:
    """Run a federation with a frozen model many times, in two batches, or one run at a time if runs of a batch share
    their noise. Each ``number`` gives different noise; ``canary`` is present in all runs.
    """

    def made(count: int, first: int) -> list[ManyRuns]:
        batches = [ManyRuns(observer=observer, replicas=runs // count, kept=rounds) for _ in range(count)]
        for place, batch in enumerate(batches):
            streams = ReplayedStreams(seed, first + place)
            arm = 0 if canary is None else 1
            federation.run(protection, streams, [batch], canary=canary, arm=arm, rounds=rounds, replicas=runs // count)
        return batches

    runs -= runs % 2
    batches = made(2, _STREAM + 2 * number)
    if _share_noise(batches):
        batches = made(runs, _STREAM + _APART * (number + 1))
    came = {sender for one in batches for names in one.senders for sender in names or ()}
    senders = tuple(sorted(came)) if batches[0].senders[0] is not None else None
    count, size = 1 if senders is None else len(senders), runs // len(batches)
    dim = batches[0].releases[0].shape[-1]
    values, present = np.zeros((runs, count, rounds, dim)), np.ones((count, rounds), dtype=bool)
    for batch, start in zip(batches, range(0, runs, size), strict=True):
        for turn, (rows, there, names) in enumerate(zip(batch.releases, batch.present, batch.senders, strict=True)):
            places = [0] if names is None or senders is None else [senders.index(name) for name in names]
            values[start : start + size, places, turn] = rows.numpy()
            here = np.zeros(count, dtype=bool)
            here[places] = there.all(0).numpy()
            present[:, turn] &= here
    steady = np.array([all(equal_states(one.states[0], one.states[turn]) for one in batches) for turn in range(rounds)])
    public = public_vectors(*_of_runs(batches))
    return NoiseSample(values=values, present=present, steady=steady, senders=senders, public=public)


def _share_noise(batches: Sequence[ManyRuns]) -> bool:
    """Whether two batches of runs on equal data lie further apart than their runs do, as where these share a draw."""
    between = within = 0.0
    for one, other in zip(*(batch.releases for batch in batches), strict=True):
        if one.shape == other.shape and len(one) > 1:
            between += float((one.mean(0) - other.mean(0)).square().sum()) * len(one)
            within += float(one.var(0).sum() + other.var(0).sum())
    # Few independent numbers exceed it by chance, and single runs then only cost time.
    return between > _FURTHER * within


def _of_runs(batches: list[ManyRuns]) -> tuple[FloatArray, dict[str, FloatArray]]:
    """The aggregates of all runs, ``(runs, rounds, d)``, and the vectors of the public state."""

    def together(kept: list[list[Tensor]]) -> FloatArray:
        return np.asarray(torch.cat([torch.stack(rounds, dim=1) for rounds in kept]).numpy())

    shape = batches[0].aggregates[0].shape

    def vectors(state: dict[str, Tensor]) -> dict[str, Tensor]:
        of_shape = {name: one for name, one in state.items() if one.shape in (shape, shape[1:])}
        return {name: one.double().expand(shape) for name, one in of_shape.items()}

    held = [[vectors(state) for state in batch.states] for batch in batches]
    rounds = [one for batch in held for one in batch]
    names = [name for name in rounds[0] if all(name in one for one in rounds)]
    state = {name: together([[one[name] for one in batch] for batch in held]) for name in names}
    return together([batch.aggregates for batch in batches]), state


def spacing(vector: FloatArray, *, share: float = 1.0) -> float:
    """Return the distance between neighbouring values that a vector's entries can take, at the largest entry; 0 for
    entries of full single precision.

    ``share``: of the numbers that must lack digits; less than 1 where something of full precision was subtracted, which
    gives digits to the numbers that were small before.
    """
    largest = float(np.abs(vector).max(initial=0.0))
    if not 0 < largest < math.inf:
        return 0.0
    bits = vector.astype(np.float32).view(np.uint32)
    if share < 1:
        # The last digit of each number, of those that have the fewest digits.
        last = np.sort((bits & -bits)[bits != 0])
        bits = last[int((1 - share) * len(last)) :]
    digits = int(np.bitwise_or.reduce(bits))
    unused = (digits & -digits).bit_length() - 1 if digits else 0
    digit = math.ldexp(1.0, math.frexp(largest)[1] - 24 + unused) if unused > _DIGITS else 0.0
    return max(lattice(vector, largest), digit)


def lattice(vector: FloatArray, largest: float) -> float:
    """The spacing of the lattice on which all entries of a vector lie; 0 without one."""
    if len(vector) > _SHOWN and not lattice(vector[:_SHOWN], largest):
        return 0.0
    points = np.unique(vector)
    gaps, away = np.diff(points), points - points[0]
    # Numbers that differ by rounding in single precision are one value.
    least = float(gaps[gaps > largest * _SINGLE].min(initial=math.inf))
    if math.isinf(least):
        return largest
    lengths = np.concatenate([gaps, away])
    for parts in (1, 2, 3):
        step = _refined(least / parts, lengths)
        steps = away / step
        # Numbers of no lattice lie anywhere between two of its points.
        if len(vector) >= _FEW and float(np.abs(steps - np.rint(steps)).max()) < _NEAR:
            return step
    return 0.0


def _refined(step: float, lengths: FloatArray) -> float:
    """The step of a lattice that fits ever longer distances between its points, from a guess by the shortest one."""
    reach = 8.0
    while reach < _LONGEST:
        counts = np.rint(lengths / step)
        near = (counts > 0) & (counts < reach)
        if near.any():
            step = float(lengths[near] @ counts[near] / (counts[near] @ counts[near]))
        reach *= 8
    return step
