"""A training loop in plain PyTorch as a system to audit: it can be run on neighbouring data, with other noised sums,
and with a planted unit.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ..audit.claim import Adjacency, Unit
from ..audit.supplied.given import check_whole
from ..checks.training_record import Plant, TrainingRecord
from ..checks.watched_sums import contributions, marks_of
from ..fl.laws import clip
from ..fl.streams import global_states, seeded
from .logged_data import LoggedData
from .loop import Array, LoopWatch, Vectors, _indices
from .neighbours import LONG, Played, TrainingOnData, ended, returned_numbers
from .unwatchable import Unwatchable, check_call


class Loop(TrainingOnData):
    """A loop that can be run on neighbouring data, and with and without one unit.

    Example::

        def train(data, watch):
            x, y = data.tensors
            model = nn.Linear(5, 1)
            watch = watch(model)  # a LoopWatch; all else stays
            ...
                watch.lot(lot, rows)
                total = clip(rows).sum(0)
                noised = total + noise()
                watch.release(total, noised)
                ...


        system = Loop(train, data, noise_multiplier=1.0, clip_norm=1.0, rate=0.1, steps=30, delta=1e-5)
        print(*system.watch().lines(), sep="\\n")

    In a run with the noised sums of another one, ``watch.release`` writes them into ``noised``, in place: the loop must
    go on with this very tensor or array, or with what ``watch.release`` returns. A planted unit is written into its row
    by ``watch.lot``, before the loop clips it. A loop that goes on with copies is named as not looked at.

    Args:
        train: ``train(data, watch)`` makes and trains a model; ``watch(model)`` returns its ``LoopWatch``, and takes
            ``rate`` and ``steps`` that differ in this run, such as ``rate=64 / len(data)``. Modules and their states
            that ``train`` returns are released with the model; it must leave the seeds of the global generators alone.
        data: the training set, with a length and indices; ``train`` must read from the one that it is given, and name
            records in ``watch.lot`` by their indices in it.
        noise_multiplier, clip_norm, rate, steps: of ``LoopWatch``; together they are the claim.
        delta: in (0, 1), at which epsilon is stated.
        epsilon: the epsilon that is reported; by default the one that noise, rate and steps imply.
        setting: ``unit``, ``adjacency``, ``observer`` and ``rounds`` of ``Claim.stated``; by default the adversary sees
            the model of every step, and neighbours are zero-out, with a public number of records. With ``add_remove`` a
            run with one record less must show nothing of their number.

    Raises:
        TypeError: for data without indices.
        ValueError: for arguments out of range and data without records.
    """

    all_seen = True

    def __init__(
        self,
        train: Callable[[Any, Any], Any],
        data: Any,
        *,
        noise_multiplier: float | Sequence[float],
        clip_norm: float,
        rate: float,
        steps: int,
        delta: float,
        epsilon: float | None = None,
        unit: Unit | str = Unit.SAMPLE,
        adjacency: Adjacency | str = Adjacency.ZERO_OUT,
        **setting: Any,
    ) -> None:
        super().__init__(data, delta=delta, epsilon=epsilon, unit=unit, adjacency=adjacency, setting=setting)
        check_whole("steps", steps, least=1)
        if not callable(train):
            raise TypeError(f"train must be a function train(data, watch), got {train!r}")
        check_call("train", train, [data, None], what="two arguments, data and watch")
        self._stated = {"noise_multiplier": noise_multiplier, "clip_norm": clip_norm, "rate": rate, "steps": steps}
        # Refuses what is out of range before the first run.
        LoopWatch({"weight": (1,)}, **self._stated)  # type: ignore[arg-type]
        self._train = train

    def run(self, member: bool = False, seed: int = 0, *, plant: Plant | None = None) -> TrainingRecord:
        """Run the loop once with the seed set in all global generators, and return what was recorded.

        ``member``: whether the planted unit takes part; in a run without it, its row is zero. The unit has the last
        index of the data, in place of the record there: the loop draws, clips and noises it like every other one.
        """
        return self._play(seed, plant=plant, member=member).record

    def _play(  # type: ignore[override]
        self,
        seed: int,
        *,
        account: bool = False,
        changes: Mapping[str, Any] = MappingProxyType({}),
        plant: Plant | None = None,
        member: bool = False,
        forced: Sequence[Tensor] = (),
        apart: Collection[int] = (),
    ) -> Played:
        with seeded(seed):
            data = LoggedData(self._data, planted=int(plant is not None), **changes)
            made = _Watches(
                stated=self._stated | {"records": len(data)},
                data=data,
                plant=plant,
                member=member,
                forced=forced,
                apart=apart,
            )
            try:
                with ended("train"):
                    returned = self._train(data, made)
            except Unwatchable:
                raise
            except Exception as error:
                error.add_note(f"raised by train after {sum(len(one.drawn) for one in made.watches)} releases")
                raise
            if len(made.watches) != 1:
                raise ValueError(f"train must call watch(model) once, but called it {len(made.watches)} times")
            return self._played(made.watches[0], data, returned, account=account)

    def _played(self, watch: "_PlayedWatch", data: LoggedData, returned: object, *, account: bool) -> Played:
        state, record, states = watch.state, watch.recording(), _tensors(returned)
        record = replace(
            record,
            releases=tuple(
                replace(one, rest=rest, marks=marks)
                for one, (rest, marks) in zip(record.releases, watch.rests, strict=True)
            ),
            accounted=self._epsilon if account else None,
            delta=self._delta,
            drawn=tuple(watch.drawn),
            held=tuple(watch.held),
        )
        numbers = ({}, {}) if state is None else (state.start, state.ends)
        others = {name: one for name, one in returned_numbers(returned).items() if name not in states}
        ends = {**numbers[1], **states}
        return Played(record=record, begins=numbers[0], ends=ends, reads=data.reads, returned=others, order=data.order)

    def _why_not_forced(self, first: Played, seed: int) -> str:
        """Why the loop does not go on with what ``watch.release`` wrote; by a run with other noise."""
        rng, releases = np.random.default_rng(seed), first.record.releases
        other = [
            one.released + one.noise_std * torch.from_numpy(rng.standard_normal(len(one.released))).to(one.released)
            for one in releases
        ]
        try:
            again = self._again(seed, forced=other)
        except Exception as error:
            return f"a run in which other noised sums were released ended with {type(error).__name__}: {error}"
        names = [n for n in first.record.layout.names if n in first.ends and n in first.begins]
        ends = [n for n in names if torch.equal(first.ends[n], again.ends[n])]
        kept = [n for n in ends if not torch.equal(first.begins[n], first.ends[n])]
        sums = [(one.received, two.received) for one, two in zip(releases[1:], again.record.releases[1:], strict=False)]
        same = all(a is not None and b is not None and torch.equal(a, b) for a, b in sums)
        if not kept and (names or not same):
            return ""
        words = f"changes {', '.join(kept[:3]) or 'the model'} by a copy of the tensor that watch.release overwrites"
        return f"{words}, so that no run on neighbouring data was possible: continue the step with that tensor itself"

    def _with_and_without(self, seed: int, forced: Sequence[Tensor]) -> tuple[TrainingRecord, TrainingRecord]:
        within, out = (self._again(seed, plant=LONG, member=one, forced=forced).record for one in (True, False))
        return within, out

    @cached_property
    def unplantable(self) -> str:
        """Why no unit can be planted; empty if one can."""
        missing = any(one.ids is None or one.expected is None for one in self._first.releases)
        words = "no canary can be inserted, because watch.lot was not called or got no ids or rows"
        if found := super().unplantable or (words if missing else ""):
            return found
        pairs = [(one.expected, one.received) for one in self._first.releases]
        if not all(a is not None and b is not None and torch.allclose(a, b.to(a), 1e-3, 1e-3) for a, b in pairs):
            return ""  # Rows that the loop does not clip are a fault, which a unit shows.
        long = self._long_unit(0, ())
        return f"no canary can be inserted: {long.witness}" if long is not None and long.passed is None else ""


def _tensors(returned: object, name: str = "returned") -> dict[str, Tensor]:
    """Copies of the numbers of all modules and states that ``train`` returned, alone or in lists and tuples."""
    if isinstance(returned, nn.Module):
        returned = returned.state_dict()
    if isinstance(returned, Mapping):
        return {f"{name} {key}": one.detach().clone() for key, one in returned.items() if isinstance(one, Tensor)}
    parts = enumerate(returned) if isinstance(returned, list | tuple) else ()
    return {key: one for number, part in parts for key, one in _tensors(part, f"{name} {number}").items()}


@dataclass(kw_only=True, eq=False)
class _Watches:
    """What ``train`` receives as ``watch``; arguments as of ``Loop`` and its runs."""

    stated: Mapping[str, Any]
    data: LoggedData
    plant: Plant | None
    member: bool
    forced: Sequence[Tensor]
    apart: Collection[int]
    watches: "list[_PlayedWatch]" = field(default_factory=list)

    def __call__(self, model: Any, **stated: Any) -> "_PlayedWatch":
        """Return the watch of a model."""
        if others := sorted(stated.keys() - {"rate", "steps"}):
            words = "watch(model) takes only rate and steps (if they differ in this run), got "
            words += f"{', '.join(others)}: set noise_multiplier and clip_norm in Loop, and give it the records as data"
            raise Unwatchable(words)
        made = _PlayedWatch(model, self, **{**self.stated, **stated})
        self.watches.append(made)
        return made

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"watch has no {name} yet: begin train with watch = watch(model)")


class _PlayedWatch(LoopWatch):
    """A watch that writes planted rows and the noised sums of another run into the loop's own tensors."""

    def __init__(self, model: Any, of: _Watches, **stated: Any) -> None:
        super().__init__(model, **stated)
        self._of, self._units = of, of.data.units
        self.drawn: list[int] = []
        self.held: list[int] = []
        self.rests: list[tuple[Tensor | None, Tensor | None]] = []

    @property
    def state(self) -> Any:
        """The watch of the model's numbers; None for a model of names and shapes."""
        return self._state

    def lot(self, ids: Iterable[int] | None, rows: Vectors | None) -> None:
        """As in ``LoopWatch``; the row of the planted unit is written first."""
        names = None if ids is None else _indices(ids)
        if self._of.plant is not None and names is not None and rows is not None:
            vector = self._of.plant.direction(self.layout) * (self._of.plant.weight * self._clip_norm * self._of.member)
            for place, one in enumerate(names):
                if one in self._units:
                    for array, part in self._parts(rows, rows=True):
                        _write(array[place], vector[part])
        super().lot(names, rows)

    def release(self, total: Vectors | None, noised: Vectors, **stated: Any) -> Vectors:
        """As in ``LoopWatch``; the noised sum of another run is written into ``noised`` first."""
        number, (ids, rows) = len(self._releases), self._lot or (None, None)
        if number < len(self._of.forced):
            for array, part in self._parts(noised, rows=False):
                _write(array, self._of.forced[number][part])
        found = super().release(total, noised, **stated)
        left = {*self._of.apart, *(self._units if self._of.plant is not None else ())}
        rest = marks = None
        if self._of.apart and rows is not None:
            marks = marks_of(rows, clip(rows.double(), self._releases[-1].clip_norm))
        if left and ids is not None and rows is not None:
            others = [place for place, one in enumerate(ids) if one not in left]
            rest = contributions(rows[others], None, self._releases[-1].clip_norm).expected
        self.rests.append((rest, marks))
        self.held.append(0 if self._state is None else self._state.digest())
        self.drawn.append(hash((self._of.data.states, tuple(sorted(global_states().items())))))
        return found

    def _parts(self, values: Vectors, *, rows: bool) -> list[tuple[Array, slice]]:
        """The arrays of a vector or of rows, with their slices of the flat one."""
        if isinstance(values, Tensor | np.ndarray):
            return [(values, slice(0, self.layout.dim))]
        given = values if isinstance(values, Mapping) else self._named(values)
        return [(given[name], part) for name, part in self.layout.slices.items() if name in given]


def _write(array: Array, vector: Tensor) -> None:
    """Write a flat vector into an array, in place."""
    if isinstance(array, np.ndarray):
        array[...] = vector.reshape(array.shape).numpy()
    else:
        array.detach().copy_(vector.reshape(array.shape))
