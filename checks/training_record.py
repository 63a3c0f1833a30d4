"""What is kept of one run of a foreign training: noised releases, what went into them, and the accountant's history.

A release is the noised sum as the system computes it, before it is averaged and multiplied by a learning rate, because
only this sum can be compared with the claim. Tensors of a model are slices of one flat vector (``Layout``).
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from ..audit.arrays import FloatArray
from ..fl.layout import Layout

_SAME_NOISE = 1e-2
"""Relative distance of two noise vectors that counts as rounding; that of independent ones is about 1.4."""

AccountantHistory = tuple[tuple[float, float, int], ...]
"""An accountant's history: (noise multiplier, sampling rate, steps)."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Release:
    """One noised vector of a run.

    Args:
        step: number of the release in the run, from 0.
        released: ``(d,)``, the sum with noise.
        received: ``(d,)``, the sum before the noise, as the system computed it; None where it was not seen.
        expected: ``(d,)``, the same sum computed again from the rows that came in; None without rows.
        rest: ``(d,)``, ``expected`` without the planted unit; None without a plant.
        direction: ``(d,)``, the unit vector along which the planted unit lies in this step, where the system gives it;
            None where it is the plant's own.
        clip_norm: the L2 bound of a row that the system states for this step, > 0.
        noise_multiplier: noise standard deviation over ``clip_norm`` that the system states for this step, >= 0.
        rows: number of rows in the sum; None where it was not seen.
        longest: the largest L2 norm with which a row entered the sum, in clip norms; None where it is not known.
        ids: indices of the records in the lot, in the order of reading them; None where they were not seen.
        rounding: relative rounding of the numbers from which norms are computed, that of single precision by default.
        coarseness: absolute rounding of one coordinate, where the vectors are differences of larger numbers, >= 0.
    """

    step: int
    released: Tensor
    received: Tensor | None = None
    expected: Tensor | None = None
    rest: Tensor | None = None
    direction: Tensor | None = None
    clip_norm: float
    noise_multiplier: float
    rows: int | None = None
    longest: float | None = None
    ids: tuple[int, ...] | None = None
    rounding: float = 2.0**-23
    coarseness: float = 0.0

    def __post_init__(self) -> None:
        if not 0 < self.clip_norm < math.inf:
            raise ValueError(f"clip_norm of step {self.step} must be > 0 and finite, got {self.clip_norm}")
        if not 0 <= self.noise_multiplier < math.inf:
            raise ValueError(f"noise_multiplier of step {self.step} must be >= 0, got {self.noise_multiplier}")
        for name in ("released", "received", "expected", "rest", "direction"):
            one = getattr(self, name)
            if one is None and name != "released":
                continue
            if not isinstance(one, Tensor):
                raise ValueError(f"{name} of step {self.step} must be a tensor (d,), got {type(one).__name__}")
            if one.shape != self.released.shape:
                raise ValueError(f"{name} of step {self.step} must have shape {tuple(self.released.shape)}")

    @property
    def noise_std(self) -> float:
        """Standard deviation of one coordinate's noise that the system states."""
        return self.noise_multiplier * self.clip_norm


@dataclass(frozen=True, kw_only=True)
class Plant:
    """The unit that an audit puts into a run: one record whose vector, before clipping, is of the audit's choice.

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
    """Something of the trained system that changed and was not noised.

    Args:
        name: of the parameter or buffer.
        how: what was seen, in words.
        by_data: whether it is certain that data move it; False where it only was not explained.
    """

    name: str
    how: str
    by_data: bool


@dataclass(frozen=True, kw_only=True, eq=False)
class TrainingRecord:
    """All that was seen of one run.

    Args:
        layout: tensors of the released vectors.
        releases: in the order of the run.
        ledger: the accountant's history at the end of the run; None where there is no accountant.
        earlier: steps that the history held at the start of the run, such as those of a training that goes on.
        accounted: epsilon that the accountant prints at ``delta``; None where it was not asked.
        population: number of records that lots are drawn from; None where it is not known.
        moved: parameters and buffers that changed without noise; None where they were not looked at.
        steps: updates of the model that were seen, noised or not.
        remarks: what could not be seen, and why, by the name of the check.
    """

    layout: Layout
    releases: tuple[Release, ...]
    ledger: AccountantHistory | None = None
    earlier: int = 0
    accounted: float | None = None
    delta: float | None = None
    population: int | None = None
    moved: tuple[Movement, ...] | None = None
    steps: int | None = None
    remarks: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for one in self.releases:
            if one.released.shape != (self.layout.dim,):
                raise ValueError(
                    f"released of step {one.step} must have shape ({self.layout.dim},), as the layout has, got "
                    f"{tuple(one.released.shape)}"
                )

    @property
    def accounted_steps(self) -> list[tuple[float, float]]:
        """Noise multiplier and sampling rate of each step that the history holds since the start of the run."""
        return [(noise, rate) for noise, rate, count in self.ledger or () for _ in range(count)][self.earlier :]

    def projections(self, plant: Plant) -> FloatArray:
        """Return each release less the known rest, projected on the plant's direction, in clip norms: ``(steps,)``.

        Apart from the noise it is 0 in a step without the unit, and the length with which the unit entered in others.
        Raises ValueError where the rest of a release is not known.
        """
        planned = plant.direction(self.layout)
        found = np.zeros(len(self.releases))
        for number, release in enumerate(self.releases):
            if release.rest is None:
                raise ValueError(f"step {release.step} holds no sum without the planted unit: its rows were not seen")
            direction = planned if release.direction is None else release.direction
            found[number] = float(direction @ (release.released.double() - release.rest.double())) / release.clip_norm
        return found


def equal_releases(one: TrainingRecord, other: TrainingRecord) -> bool:
    """Whether two runs released the same numbers."""
    pairs = list(zip(one.releases, other.releases, strict=False))
    same = all(torch.equal(first.released, second.released) for first, second in pairs)
    return len(one.releases) == len(other.releases) and same


def equal_noise(one: TrainingRecord, other: TrainingRecord) -> bool:
    """Whether the noise of two runs is the same in all steps that both have, apart from rounding."""
    pairs = list(zip(one.releases, other.releases, strict=False))
    return bool(pairs) and all(_equal_noise(first, second) for first, second in pairs)


def _equal_noise(one: Release, other: Release) -> bool:
    if one.received is None or other.received is None:
        return torch.equal(one.released, other.released)
    noise, again = one.released.double() - one.received.double(), other.released.double() - other.received.double()
    return 0 < float(noise.norm()) < math.inf and float((noise - again).norm()) < _SAME_NOISE * float(noise.norm())
