"""What is kept of one run of a foreign training: noised releases, what went into them, and the accountant's history.

A release is the noised sum as the system computes it, before it is averaged and multiplied by a learning rate, because
only this sum can be compared with the claim. Tensors of a model are slices of one flat vector (``Layout``).
"""

import math
import reprlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from numbers import Integral, Real
from typing import Annotated, Any

import numpy as np
import torch
from torch import Tensor

from ..audit.arrays import FloatArray
from ..fl.fields import Index, Positive, Weight, check_fields
from ..fl.layout import Layout

_SAME_NOISE = 1e-2
"""Relative distance of two noise vectors that counts as rounding; that of independent ones is about 1.4."""

AccountantHistory = tuple[tuple[float, float, int], ...]
"""An accountant's history: (noise multiplier, sampling rate, steps)."""


class RecordError(ValueError):
    """An error for a field of a release, or of a run's record, whose content has the wrong type."""


@contextmanager
def _record_errors(where: str) -> Iterator[None]:
    try:
        yield
    except ValueError as error:
        raise RecordError(f"{where}: {error}") from None


def _must_be(words: str, fits: Callable[[Any], bool], *, none: bool = True) -> Callable[[str, Any], None]:
    """Return the check of a field that refuses what does not fit; ``none``: whether it may be None."""

    def check(name: str, value: Any) -> None:
        if (value is None and none) or fits(value):
            return
        shown = f"{type(value).__name__} {tuple(value.shape)}" if hasattr(value, "shape") else reprlib.repr(value)
        raise ValueError(f"{name} must be {words}{' or None' if none else ''}, got {shown}")

    return check


def _is_vector(value: Any) -> bool:
    return isinstance(value, Tensor) and value.ndim == 1


def _are(values: Any, kind: type[Any]) -> bool:
    # By their types, as lots may be long; bool is an Integral to Python.
    types = set(map(type, values)) if isinstance(values, tuple | list) else {object}
    return all(issubclass(one, kind) and one is not bool for one in types)


def _is_history(value: Any) -> bool:
    if not isinstance(value, tuple | list) or not all(_are(one, Real) and len(one) == 3 for one in value):
        return False
    return all(noise >= 0 and 0 <= rate <= 1 and _are([steps], Integral) and steps >= 0 for noise, rate, steps in value)


_Vector = Annotated[Tensor | None, _must_be("a tensor (d,)", _is_vector)]
_Whole = Annotated[int | None, _must_be("a whole number", lambda value: _are([value], Integral))]
_Number = Annotated[float | None, _must_be("a number", lambda value: _are([value], Real))]
_Indices = Annotated[tuple[int, ...] | None, _must_be("a tuple of whole numbers", lambda value: _are(value, Integral))]
_History = Annotated[
    AccountantHistory | None,
    _must_be("a tuple (noise multiplier, sampling rate, steps) for each group of equal steps", _is_history),
]


@dataclass(frozen=True, kw_only=True, eq=False)
class Release:
    """One noised vector (sum) that a run released, with everything recorded about it.

    Args:
        step: number of the release in the run, from 0.
        released: ``(d,)``, the sum with noise.
        received: ``(d,)``, the sum before the noise, as the system computed it; None where it was not seen.
        own: ``(d,)``, what the run itself would have released, where another run's release took its place.
        expected: ``(d,)``, the same sum computed again from the rows that came in; None without rows.
        rest: ``(d,)``, ``expected`` without the planted unit; None without a plant.
        direction: ``(d,)``, the unit vector along which the planted unit lies in this step, where the system gives it;
            None where it is the plant's own.
        clip_norm: the L2 bound of a row that the system states for this step, > 0.
        noise_multiplier: noise standard deviation over ``clip_norm`` that the system states for this step, >= 0.
        rows: number of rows in the sum; None where it was not seen.
        longest: the largest L2 norm with which a row entered the sum, in clip norms; None where it is not known.
        rule: what the sum is instead of that of the stated clipping, in words; empty where it is that, or not known.
        marks: ``(2, rows, 3)``, projections of each row before and after the clip on fixed directions, by which rows of
            two runs are compared; None where they were not asked for.
        inputs: hashes of what the model was called on, one of each row; None where they were not asked for.
        ids: indices of the records in the lot, in the order of reading them; None where they were not seen.
        rounding: relative rounding of the numbers from which norms are computed, that of single precision by default.
        coarseness: absolute rounding of one coordinate, where the vectors are differences of larger numbers, >= 0.
    """

    step: int
    released: Annotated[Tensor, _must_be("a tensor (d,)", _is_vector, none=False)]
    received: _Vector = None
    own: _Vector = None
    expected: _Vector = None
    rest: _Vector = None
    direction: _Vector = None
    clip_norm: Positive
    noise_multiplier: Weight
    rows: _Whole = None
    longest: _Number = None
    rule: str = ""
    marks: Tensor | None = None
    inputs: tuple[int, ...] | None = None
    ids: _Indices = None
    rounding: Weight = 2.0**-23
    coarseness: Weight = 0.0

    def __post_init__(self) -> None:
        with _record_errors(f"release of step {self.step}"):
            check_fields(self)
            shape = tuple(self.released.shape)
            for name in ("received", "expected", "rest", "direction"):
                one = getattr(self, name)
                if one is not None and one.shape != shape:
                    raise ValueError(f"{name} must have the shape of released, {shape}, got {tuple(one.shape)}")

    @property
    def noise_std(self) -> float:
        """The stated standard deviation of the noise on one coordinate."""
        return self.noise_multiplier * self.clip_norm


@dataclass(frozen=True, kw_only=True)
class Plant:
    """The unit that an audit adds to a run: one record, whose vector before clipping the audit chooses.

    Args:
        tensor: name of the tensor that the vector lies in; None for all tensors.
        weight: L2 norm of the vector in clip norms, > 0; a weight of 10 or more makes a missing clip visible.
        seed: of the vector's direction, a random one.
    """

    tensor: str | None = None
    weight: float = 10.0
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.weight < math.inf:
            raise ValueError(f"weight (of the plant, in clip norms) must be > 0 and finite, got {self.weight}")

    def direction(self, layout: Layout) -> Tensor:
        """Return the unit vector ``(d,)`` along which the unit lies. Raises ValueError for an empty tensor."""
        slices = layout.slices
        if self.tensor is not None and self.tensor not in slices:
            raise ValueError(f"tensor must be one of {', '.join(slices)}, got {self.tensor!r}")
        place = slice(0, layout.dim) if self.tensor is None else slices[self.tensor]
        if place.stop == place.start:
            raise ValueError(f"tensor must hold numbers, and {self.tensor or 'the whole model'} holds none")
        vector = torch.zeros(layout.dim, dtype=torch.float64)
        drawn = np.random.default_rng(self.seed).standard_normal(place.stop - place.start)
        vector[place] = torch.from_numpy(drawn)
        unit: Tensor = vector / torch.linalg.vector_norm(vector)
        return unit


@dataclass(frozen=True, kw_only=True)
class Movement:
    """A part of the trained system, such as a weight, that changed without noise.

    Args:
        name: of the parameter or buffer.
        how: what was seen, in words.
        by_data: whether it is certain that data move it; False where it only was not explained.
        cause, mend: what caused it, as the runs show it, and what mends it; empty where they do not.
    """

    name: str
    how: str
    by_data: bool
    cause: str = ""
    mend: str = ""


@dataclass(frozen=True, kw_only=True, eq=False)
class TrainingRecord:
    """Everything that was recorded during one run of a training.

    Args:
        layout: tensors of the released vectors.
        releases: in the order of the run.
        ledger: the accountant's history at the end of the run; None where there is no accountant.
        earlier: steps that the history held at the start of the run, such as those of a training that goes on.
        accounted: epsilon that is reported at ``delta``, as the accountant prints it; None where it was not asked.
        population: number of records that lots are drawn from; None where it is not known.
        moved: parameters and buffers that changed without noise; None where they were not looked at.
        steps: updates of the model that were seen, noised or not.
        factors: what lies between each noised sum and the gradient of its update; None where it was not seen.
        rates: learning rates of each update; empty where they were not seen.
        drawn, held: hashes of the states of the global generators, and of the model's numbers, at each release; empty
            where they were not seen.
        mixing: layers of the model that compute with all records of a batch.
        remarks: what could not be seen, and why, by the name of the check.
    """

    layout: Annotated[Layout, _must_be("a Layout", lambda value: isinstance(value, Layout), none=False)]
    releases: Annotated[
        tuple[Release, ...], _must_be("a tuple of Release", lambda value: _are(value, Release), none=False)
    ]
    ledger: _History = None
    earlier: Index = 0
    accounted: _Number = None
    delta: _Number = None
    population: _Whole = None
    moved: Annotated[
        tuple[Movement, ...] | None, _must_be("a tuple of Movement", lambda value: _are(value, Movement))
    ] = None
    steps: _Whole = None
    factors: tuple[float | None, ...] = ()
    rates: tuple[tuple[float, ...], ...] = ()
    drawn: tuple[int, ...] = ()
    held: tuple[int, ...] = ()
    mixing: tuple[str, ...] = ()
    remarks: Annotated[
        Mapping[str, str], _must_be("a mapping", lambda value: isinstance(value, Mapping), none=False)
    ] = field(default_factory=dict)

    def __post_init__(self) -> None:
        with _record_errors("record of a run"):
            check_fields(self)
            for one in self.releases:
                if one.released.shape != (self.layout.dim,):
                    raise ValueError(
                        f"released of step {one.step} must have shape ({self.layout.dim},), as the layout has, got "
                        f"{tuple(one.released.shape)}"
                    )
                if one.ids and self.population is not None and max(one.ids) >= self.population:
                    raise ValueError(
                        f"ids of step {one.step} must be below population = {self.population}, got {max(one.ids)}"
                    )

    @property
    def accounted_steps(self) -> list[tuple[float, float]]:
        """The noise multiplier and sampling rate of each step that the accountant's history contains since the start of
        the run.
        """
        return [(noise, rate) for noise, rate, count in self.ledger or () for _ in range(count)][self.earlier :]

    def projections(self, plant: Plant) -> FloatArray:
        """Return each release minus the known contribution of all other rows, projected on the direction of the planted
        unit.

        ``(steps,)``, in clip norms. Apart from noise it is 0 in a step without the unit, else the norm with which it
        entered.
        Raises ValueError where the contribution of the other rows is not known.
        """
        planned = plant.direction(self.layout)
        found = np.zeros(len(self.releases))
        for number, release in enumerate(self.releases):
            if release.rest is None:
                raise ValueError(
                    f"in step {release.step} the sum without the canary is unknown, because its gradients were not seen"
                )
            direction = planned if release.direction is None else release.direction
            found[number] = float(direction @ (release.released.double() - release.rest.double())) / release.clip_norm
        return found


def plain_name(name: str) -> str:
    """Return the name of a parameter without those of wrappers, of Opacus and of ``torch.compile``."""
    return ".".join(part for part in name.split(".") if part not in ("_module", "_orig_mod"))


def equal_releases(one: TrainingRecord, other: TrainingRecord) -> bool:
    """Whether two runs released the same numbers."""
    pairs = list(zip(one.releases, other.releases, strict=False))
    same = all(torch.equal(first.released, second.released) for first, second in pairs)
    return len(one.releases) == len(other.releases) and same


def equal_noise(one: TrainingRecord, other: TrainingRecord) -> bool:
    """Whether the noise of two runs is the same, apart from rounding, in all steps that both runs have."""
    pairs = list(zip(one.releases, other.releases, strict=False))
    return bool(pairs) and all(_equal_noise(first, second) for first, second in pairs)


def _equal_noise(one: Release, other: Release) -> bool:
    if one.received is None or other.received is None:
        return torch.equal(one.released, other.released)
    noise, again = one.released.double() - one.received.double(), other.released.double() - other.received.double()
    return 0 < float(noise.norm()) < math.inf and float((noise - again).norm()) < _SAME_NOISE * float(noise.norm())
