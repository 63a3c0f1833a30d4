"""Reduce everything that an observer receives in many runs to numbers, and find noise that takes only a few values.

Reduce everything that an observer receives in a batch of runs to numbers from which events can be learnt.

Find noise of few values in many independent runs: vectors or single numbers that repeat bit for bit.

A generator that is seeded with few bits, or a uniform number of few bits, gives noise that repeats among some thousand
draws (birthday paradox), while continuous noise of a float's own resolution does not.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..audit.arrays import FloatArray
from ..audit.check import NUMBERS, VECTORS, CheckResult
from ..audit.observer import AGGREGATE, FINAL_MODEL, GLOBAL_MODELS, SHUFFLED, UPLOADS, Observer
from ..fl.channels import changes_broadcast
from ..fl.message import Message
from ..fl.protection import Protection
from ..fl.recorder import RoundEvent
from .noise_sample import spacing

RAW = 8
"""Numbers of an array that are kept as they are, half of them from each end."""
_ROWS = 8
"""Rows behind a shuffler that are kept in an order of theirs."""
_ROUNDS = 24
"""Rounds whose numbers are kept one by one; of more, the first and the last ones."""
_MOST_ROUNDS = 512
"""Rounds whose projections are kept one by one, at most."""
_COMPARED = 64
"""Numbers of a vector whose least distance is measured."""
_POOLED = 2**12
"""Numbers of a round that are kept to be compared, at most."""
_DISTINCT = 8
"""Different numbers of a vector from which it cannot repeat by chance."""
_GRID_ROWS = 8
"""Rows from which the grid of a vector is measured."""
_DEEPEST = 4
"""Levels of nesting of a public state whose arrays are read."""
_LARGEST = 1e30


@dataclass(kw_only=True)
class ReceivedNumbers:
    """A recorder that keeps what ``observer`` receives in every run of a batch, reduced to some hundred numbers.

    Each vector becomes its projection on ``direction``, its sum, its length, its extremes and where they lie, the
    number of zeros, the step of its grid and the parity of its numbers on it, and some of its numbers. These stand for
    single rounds, and for all rounds by their sum, least and largest values, and the least and largest change from one
    round to the next.

    Args:
        holder: the client whose report is kept apart from those of others.
        direction: (d,), along which the unit's row lies.
        raw: numbers of an array that are kept as they are, half of them from each end.
        grids: distances of the grids on which vectors lie, by their names; filled by the first batch, and kept for
            later ones, whose numbers must mean the same.
        compares: whether ``vectors`` and ``pool`` are kept.
        only: the names of the parts of single rounds that ``numbers`` must give; None for all parts.
        widths: how many numbers a round has, by the names of those of single rounds; filled by ``numbers``.
        vectors: of each round one number ``(R, rows)`` for each vector that is released, which equal vectors share, by
            who sent them; NaN for vectors of few different numbers, which may repeat by chance.
        pool: numbers of the holder's report in each round, without zeros.
        lines: names of the vectors whose first number is their projection on ``direction``.
    """

    observer: Observer
    protection: Protection
    holder: int
    direction: Tensor
    raw: int = RAW
    compares: bool = False
    only: frozenset[str] | None = None
    grids: dict[str, float] = field(default_factory=dict)
    widths: dict[str, int] = field(default_factory=dict)
    rounds: list[dict[str, FloatArray]] = field(default_factory=list)
    vectors: list[dict[str, FloatArray]] = field(default_factory=list)
    pool: list[FloatArray] = field(default_factory=list)
    lines: set[str] = field(default_factory=set)

    def watch(self, event: RoundEvent) -> None:
        """Record a finished round."""
        self.rounds.append({name: _bounded(values) for name, values in self._of(event) if self._reads(name)})
        if not self.compares:
            return
        self.vectors.append({who: _named(rows) for who, rows in self._released(event)})
        for who, rows in self._released(event):
            if who == "holder":
                numbers = _flat(rows).ravel()
                self.pool.append(numbers[numbers != 0][:_POOLED])

    def _released(self, event: RoundEvent) -> Iterator[tuple[str, Tensor]]:
        """The noised vectors ``(R, rows, d)``: of the holder and of others, or the sum."""
        message, rank = event.reports, self.observer.rank
        if rank < SHUFFLED.rank:
            if rank > FINAL_MODEL.rank and event.aggregate.is_floating_point():
                yield "sum", event.aggregate.unsqueeze(1)
            return
        if message.senders is None or not message.values.is_floating_point():
            return
        places = {"holder": [row for row, sender in enumerate(message.senders) if sender == self.holder]}
        places["others"] = [row for row, sender in enumerate(message.senders) if sender != self.holder][:_ROWS]
        yield from ((who, message.values[:, rows]) for who, rows in places.items() if rows)

    def numbers(self, final: Tensor) -> dict[str, FloatArray]:
        """Return what each run received as numbers ``(R, k)``, keyed by their names.

        ``final``: the models ``(R, d)`` after the last round.
        """
        found: dict[str, FloatArray] = {}
        if self.observer.rank == FINAL_MODEL.rank:
            found = {name: _bounded(values) for name, values in self._vector("model", final)}
        kept = _kept_rounds(len(self.rounds))
        for name in dict.fromkeys(name for one in self.rounds for name in one):
            each = [one.get(name) for one in self.rounds]
            width = max(values.shape[1] for values in each if values is not None)
            zeros = np.zeros((len(final), width))
            # Rounds first: sums and extremes over them then pass through memory in its order.
            series = np.stack([zeros if values is None else _padded(values, width) for values in each])
            if len(each) > 1 and self.only is None:
                changes = np.diff(series, axis=0)
                summed = [series.sum(0), series.min(0), series.max(0), changes.min(0), changes.max(0)]
                found[f"{name}, of all rounds"] = np.concatenate(summed, axis=1)
            if not name.endswith(_REDUCED):
                found[name] = np.concatenate([series[turn] for turn in kept], axis=1)
                self.widths[name] = width
            if name in self.lines and _ROUNDS < len(series) <= _MOST_ROUNDS:
                # Noise that is correlated over rounds can be told from a unit by all of them together.
                found[f"{name}{ALL_ROUNDS}"] = series[:, :, 0].T
                self.widths[f"{name}{ALL_ROUNDS}"] = 1
        # In a batch in which nothing came, each run received nothing.
        return found or {name: np.zeros((len(final), 0)) for name in self.only or ()}

    def _reads(self, *names: str) -> bool:
        if self.only is None:
            return True
        return any(name in self.only or f"{name}{ALL_ROUNDS}" in self.only for name in names)

    def _of(self, event: RoundEvent) -> Iterator[tuple[str, FloatArray]]:
        observer, rank = self.observer, self.observer.rank
        masked = observer.sees_masked_words and event.reports.masked
        if rank >= UPLOADS.rank or masked:
            yield from self._reports("report", event.reports)
        passed_on = event.received is event.reports and rank >= UPLOADS.rank
        if (rank >= SHUFFLED.rank or masked) and not passed_on:
            yield from self._reports("arrived", event.received)
        if rank >= UPLOADS.rank or observer.sees_participation:
            yield "cohort", _flat(event.cohort.sum(1, keepdim=True))
        changed = changes_broadcast(self.protection)
        summed = rank >= AGGREGATE.rank or (rank == GLOBAL_MODELS.rank and not changed)
        if summed:
            yield from self._vector("aggregate", event.aggregate)
        if rank >= GLOBAL_MODELS.rank:
            if changed:
                yield from self._vector("broadcast", event.broadcast)
            for name, array in _arrays("state", event.state, len(event.aggregate), _DEEPEST):
                yield from self._array(name, array)
                if summed and array.numel() == event.aggregate.numel():
                    # Noise that was drawn before may be public by now.
                    yield f"aggregate without {name}", self._without(event.aggregate, array)
            for name, array in event.shared.items():
                yield from self._vector(f"shared {name}", array)

    def _reports(self, name: str, message: Message) -> Iterator[tuple[str, FloatArray]]:
        sent = {side: array for side, array in message.side.items() if side not in message.unsent}
        if not message.values.shape[1]:
            return
        if message.senders is None:
            yield from self._mixed(name, message, sent)
            return
        present = message.present.double()
        if self.holder in message.senders:
            row = message.senders.index(self.holder)
            yield f"{name} present", _flat(present[:, row : row + 1])
            yield from self._vector(name, message.values[:, row])
            for side, array in sent.items():
                yield from self._array(f"{name} {side}", array[:, row])
        others = [row for row, sender in enumerate(message.senders) if sender != self.holder]
        if others:
            yield f"{name} of others present", _flat(present[:, others].sum(1, keepdim=True))
            yield from self._vector(f"{name} of others", message.values[:, others].double().sum(1))
            for side, array in sent.items():
                yield from self._array(f"{name} {side} of others", array[:, others].double().sum(1))

    def _mixed(self, name: str, message: Message, sent: Mapping[str, Tensor]) -> Iterator[tuple[str, FloatArray]]:
        """Rows whose order should carry no information: in that order, and in that of each of their numbers."""
        there, values = message.present, message.values.double()
        along = (values @ self._unit(values.shape[-1])).masked_fill(~there, 0.0)
        yield f"{name} number", _flat(there.sum(1, keepdim=True))
        yield f"{name} sum", _flat(along.sum(1, keepdim=True))
        keys = {"projection": along, "length": torch.linalg.vector_norm(values, dim=-1)}
        travelling = {side: array for side, array in sent.items() if array.numel()}
        keys |= {side: array.double().reshape(*there.shape, -1)[..., 0] for side, array in travelling.items()}
        # A shuffler that is none leaves the unit's report at a place of its own.
        keys |= {"place": torch.arange(there.shape[1], dtype=torch.float64).expand(there.shape)}
        for key, by in keys.items():
            order = by.masked_fill(~there, math.inf).argsort(dim=1)
            half = _ROWS // 2
            ends = order if order.shape[1] <= _ROWS else torch.cat([order[:, :half], order[:, -half:]], dim=1)
            yield f"{name} by {key}", _flat(along.gather(1, ends))
            yield f"{name} {key} in order", _flat(by.gather(1, ends))

    def _vector(self, name: str, values: Tensor) -> Iterator[tuple[str, FloatArray]]:
        """A vector per run, ``(R, d)``."""
        if not self._reads(name, f"{name} numbers"):
            return
        self.lines.add(name)
        rows, unit = values.double(), self._unit(values.shape[-1])
        along = rows @ unit
        yield name, _flat(torch.stack([along, rows.sum(1)], dim=1))
        if not self._reads(f"{name}{_REDUCED}", f"{name} numbers"):
            return
        lengths = torch.linalg.vector_norm(rows, dim=1)
        # numpy sorts, counts and finds the largest of short rows several times as fast as PyTorch.
        zeros = torch.from_numpy((rows.numpy() == 0).sum(1)).double()
        place = torch.from_numpy(np.abs(rows.numpy()).argmax(1))
        if name not in self.grids:
            self.grids[name] = _grid(rows)
        parity = _parity(rows, unit, self.grids[name])
        summaries = [lengths, zeros, place.double(), unit[place], rows.amax(1), rows.amin(1), parity, _least_gap(rows)]
        yield f"{name}{_REDUCED}", _flat(torch.stack(summaries, dim=1))
        largest = unit.abs().topk(min(2, len(unit))).indices
        chosen = torch.from_numpy(np.unique(torch.cat([_ends(len(unit), RAW), largest]).numpy()))
        yield f"{name} numbers", _flat(rows[:, chosen])

    def _array(self, name: str, array: Tensor) -> Iterator[tuple[str, FloatArray]]:
        """An array of any shape per run, ``(R, ...)``."""
        rows = array.double().reshape(len(array), -1)
        if not rows.shape[1] or not self._reads(name, f"{name} along", f"{name} at"):
            return
        if rows.shape[1] > self.raw:
            yield f"{name}{_REDUCED}", _flat(torch.stack([rows.sum(1), rows.square().sum(1), rows.amax(1)], dim=1))
        yield name, _flat(rows[:, _ends(rows.shape[1], self.raw)])
        if rows.shape[1] == len(self.direction):
            yield f"{name} along", _flat((rows @ self._unit(rows.shape[1])).unsqueeze(1))
        elif not array.is_floating_point() and 0 <= float(rows.amin()) <= float(rows.amax()) < len(self.direction):
            # Places of a vector: what the unit's row holds there.
            yield f"{name} at", _flat(self.direction.double()[rows.long()].sum(1, keepdim=True))

    def _without(self, values: Tensor, held: Tensor) -> FloatArray:
        """The projection and length of each run's vector ``(R, d)``, less its part along another one of that run."""
        rows, other = values.double(), held.double().reshape(values.shape)
        squares = other.square().sum(1).clamp_min(1e-300)
        rest = rows - ((rows * other).sum(1) / squares).unsqueeze(1) * other
        return _flat(torch.stack([rest @ self._unit(rest.shape[1]), torch.linalg.vector_norm(rest, dim=1)], dim=1))

    def _unit(self, dim: int) -> Tensor:
        direction = self.direction.double()
        return direction if dim == len(direction) else torch.ones(dim, dtype=torch.float64) / max(1, dim) ** 0.5


ALL_ROUNDS = ", projections of all rounds"
"""How the names of projections end that are kept for more rounds than other numbers."""
_REDUCED = " over all rounds"
"""How the names of numbers end that are kept for all rounds together, and not one by one."""


def _arrays(name: str, value: Any, runs: int, depth: int) -> Iterator[tuple[str, Tensor]]:
    """The arrays of a public state, however nested, that have one row per run."""
    if isinstance(value, np.ndarray) and value.dtype.kind in "biuf":
        value = torch.from_numpy(value)
    if isinstance(value, Tensor):
        if value.ndim and len(value) == runs and not value.is_complex():
            yield name, value
    elif isinstance(value, Mapping) and depth:
        for key, item in value.items():
            yield from _arrays(f"{name}.{key}", item, runs, depth - 1)
    elif isinstance(value, list | tuple) and depth:
        for place, item in enumerate(value[:_ROWS]):
            yield from _arrays(f"{name}[{place}]", item, runs, depth - 1)


def _grid(rows: Tensor) -> float:
    """The distance of the grid of some rows' numbers; 0 without one."""
    return min((spacing(row.numpy()) for row in rows[:_GRID_ROWS]), default=0.0)


def _parity(rows: Tensor, unit: Tensor, grid: float) -> Tensor:
    """The parity of numbers in units of their grid, summed up with the signs of ``unit``, ``(R,)``; 0 without one."""
    if grid <= 0:
        return torch.zeros(len(rows), dtype=torch.float64)
    return ((rows / grid).round().remainder(2) * unit.sign()).sum(1)


def _named(vectors: Tensor) -> FloatArray:
    """One number for each vector ``(R, rows, d)``, which equal vectors share; NaN where few numbers are different."""
    rows = vectors.double()
    weights = torch.arange(1, rows.shape[-1] + 1, dtype=torch.float64).cos()
    # Row by row: a product of matrices rounds its last rows in another way.
    names = (rows * weights).sum(-1)
    # Of the first run: whether a vector has many different numbers does not depend on the run.
    few = [len(np.unique(row[row != 0].numpy())) < _DISTINCT for row in rows[0]]
    names[:, few] = math.nan
    names[(rows == 0).all(-1)] = math.nan
    return np.asarray(names.numpy(), dtype=np.float64)


def _least_gap(rows: Tensor) -> Tensor:
    """The least distance of two different numbers of each row, ``(R,)``: the step of a grid that depends on the row."""
    if rows.shape[1] < 2:
        return torch.zeros(len(rows), dtype=torch.float64)
    # Some numbers are enough: on a grid two of them are neighbours almost surely.
    with np.errstate(invalid="ignore"):
        gaps = np.diff(np.sort(rows[:, :_COMPARED].numpy(), axis=1), axis=1)
    return torch.from_numpy(np.where(gaps > 0, gaps, math.inf).min(1))


def _ends(size: int, most: int) -> Tensor:
    places = torch.arange(size)
    return places if size <= most else torch.cat([places[: most // 2], places[-most // 2 :]])


def _kept_rounds(rounds: int) -> list[int]:
    half = _ROUNDS // 2
    return list(range(rounds)) if rounds <= _ROUNDS else [*range(half), *range(rounds - half, rounds)]


def _padded(values: FloatArray, width: int) -> FloatArray:
    return values if values.shape[1] == width else np.pad(values, ((0, 0), (0, width - values.shape[1])))


def _flat(values: Tensor) -> FloatArray:
    return np.asarray(values.double().reshape(len(values), -1).numpy(), dtype=np.float64)


def _bounded(values: FloatArray) -> FloatArray:
    if np.abs(values).max(initial=0.0) <= _LARGEST:
        return values
    # No number and infinity are values too, which may show the unit.
    return np.clip(np.nan_to_num(values, nan=-2 * _LARGEST, posinf=_LARGEST, neginf=-_LARGEST), -2 * _LARGEST, _LARGEST)


_CONSTANT = 0.6
"""Share of the runs of a round that hold one vector, from which it is a public constant and no noise."""
_FEWEST_VECTORS = 3
"""Different vectors that repeat, from which noise is seeded with few bits."""
_ROUNDING = 1e-5
"""Relative difference up to which numbers of single precision may come from one."""
_POOL = 2**17
"""Numbers that are compared at most."""
_DISCRETE, _ATOM = 512, 0.002
"""Different numbers up to which they are discrete, and share of the numbers from which one is an atom of its own."""
_VALUES, _COARSER = 2.0**18, 64.0
"""Different values below which noise has few, and factor by which a float's own resolution must be finer."""
_LEAST = 4096
"""Numbers from which anything is compared."""


@dataclass(kw_only=True)
class RepeatedNoise:
    """Checks for repeated noise: vectors and numbers from runs on equal data, in which only cohorts, lots and noise
    differ.
    """

    names: dict[tuple[str, int], list[tuple[int, FloatArray]]] = field(default_factory=dict)
    runs: int = 0
    pool: list[FloatArray] = field(default_factory=list)
    pooled: int = 0

    def add(self, rounds: list[dict[str, FloatArray]], numbers: FloatArray | None) -> None:
        """Add a batch.

        Args:
            rounds: of each round the names ``(R, rows)`` of the vectors, which equal vectors share, by who sent them.
            numbers: of reports on one and the same input; None where inputs differ.
        """
        for turn, named in enumerate(rounds):
            for who, names in named.items():
                self.names.setdefault((who, turn), []).append((self.runs, names))
        self.runs += max((len(names) for named in rounds for names in named.values()), default=0)
        if numbers is not None and self.pooled < _POOL:
            self.pool.append(numbers[: _POOL - self.pooled])
            self.pooled += len(self.pool[-1])

    def results(self) -> Iterator[CheckResult]:
        """Yield the checks for which there were enough vectors or numbers."""
        counts = [self._of(who) for who in dict.fromkeys(who for who, _ in self.names)]
        total, repeated, pairs = (sum(column) for column in zip(*counts, strict=True)) if counts else (0, 0, 0)
        if total >= _LEAST:
            words = f"{total} vectors of independent runs"
            if pairs:
                words += f", as many as if the noise took about {total**2 / (2 * len(counts) * pairs):.1g} values"
            passed = repeated < _FEWEST_VECTORS
            # One or two that come again are constants of few runs.
            repeated = 0 if passed else repeated
            yield CheckResult(
                name=VECTORS,
                passed=passed,
                measured=float(repeated),
                allowed=0.0,
                unit="vectors",
                witness=f"vectors that equal one of another run bit for bit; {words}",
            )
        yield from self._numbers()

    def _of(self, who: str) -> tuple[int, int, int]:
        """How many vectors there are, how many different ones repeat in another run, and in how many pairs."""
        found: list[FloatArray] = []
        for (sender, _), batches in self.names.items():
            if sender != who:
                continue
            # Not every batch has such a vector in this round: a client may come in other rounds than another one.
            names = np.full((self.runs, max(batch.shape[1] for _, batch in batches)), np.nan)
            for first, batch in batches:
                names[first : first + len(batch), : batch.shape[1]] = _without_shared(batch)
            values, counts = np.unique(names[~np.isnan(names)], return_counts=True)
            constant = values[counts > _CONSTANT * sum(len(batch) for _, batch in batches)]
            found.append(np.where(np.isin(names, constant), np.nan, names))
        runs = np.concatenate(found, axis=1)
        # Within a run a vector may come again, as when a round is skipped.
        each = np.concatenate([np.unique(run[~np.isnan(run)]) for run in runs])
        _, counts = np.unique(each, return_counts=True)
        again = counts[counts > 1].astype(float)
        return len(each), len(again), int((again * (again - 1) / 2).sum())

    def _numbers(self) -> Iterator[CheckResult]:
        if self.pooled < _LEAST:
            return
        numbers = np.concatenate(self.pool)
        values, counts = np.unique(numbers[numbers != 0], return_counts=True)
        few = counts < max(2, _ATOM * len(numbers))
        values, counts = values[few], counts[few].astype(float)
        total = float(counts.sum())
        if total < _LEAST or len(values) <= _DISCRETE or spacing(numbers[:_LEAST]) > 0:
            return
        pairs = float((counts * (counts - 1) / 2).sum())
        seen = total**2 / (2 * pairs) if pairs else math.inf
        low, high = (float(one) for one in np.quantile(values, [0.1, 0.9]))
        # Single precision resolves no more, where most of the numbers lie.
        resolved = (high - low) / float(np.spacing(np.float32(max(abs(low), abs(high)))))
        limit = min(_VALUES, resolved / _COARSER)
        yield NUMBERS.at_least(
            min(seen, 2.0**53),
            limit,
            unit="values",
            witness=f"number of different values of {int(total)} numbers on one input, estimated from how many are "
            "equal",
        )


def _without_shared(names: FloatArray) -> FloatArray:
    """The names of a batch; of a vector that all its runs share, as where a hook draws it once, that of one run.

    Equal up to rounding: what the noise is added to may be a product whose last rows are rounded in another way.
    """
    shared = np.isclose(names, names[:1], rtol=_ROUNDING, atol=0.0).all(0) & (np.arange(len(names)) > 0)[:, None]
    return np.where(shared, np.nan, names)
