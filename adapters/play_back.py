"""Plays frozen rows through one noised step of a foreign system, without training, and compares neighbouring inputs.

Equal seeds give equal noise, so that the difference of two releases is what one unit adds; other seeds give the noise.
How far a unit moves the release, over the noise in each tensor, is compared with the claimed noise multiplier. It does
not matter by what constant the release was scaled. A release that is rounded or replaced by its signs after the noise
moves by jumps that depend on the noise, and is not compared where it takes few values.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from scipy.stats import chi2
from torch import Tensor

from ..audit.arrays import FloatArray
from ..audit.check import EFFECTIVE, FINITE, REPLAYED, Check, CheckResult
from ..audit.finite import finite_result
from ..audit.ledger import WATCHED
from ..checks.watched_run import Watched
from ..fl.fields import check_positive
from ..fl.layout import Layout

LENGTHS = (0.0, 1e-2, 1.0, 10.0, 1e4, 1e20)
"""Lengths of the unit's row, in clip norms."""
_DRAWS, _OTHERS = 64, 6
"""Draws of the noise, and rows that surround the unit."""
_LEVELS = 32
"""Different values of a coordinate among the draws, up to which the release counts as rounded after the noise."""
_SLACK = 5e-3
"""Relative shortfall of the multiplier that is rounding of single precision, as in a clip that adds 1e-6 to norms."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Step:
    """One noised step (clip, sum and noise) of a foreign system, which can be run on given rows.

    Args:
        call: ``call(rows, seed)``: rows ``(n, d)`` of single precision before clipping, n >= 0, and the seed of all
            noise; returns the release ``(d,)``, a tensor, array or list. It must be the sum with its noise, up to a
            constant factor: a release that was rounded, clamped or replaced by its signs afterwards is no linear
            function of the rows, so hand over what comes before that.
        layout: tensors of the rows.
        clip_norm: length of a row in the sum that is claimed, > 0; the rows are made in this unit.
        noise_multiplier: noise standard deviation over the sensitivity that is claimed, > 0.
        dtype: type in which the step holds rows. No unit is longer than it can hold: such a row would be infinite.
    """

    call: Callable[[Tensor, int], Any]
    layout: Layout
    clip_norm: float
    noise_multiplier: float
    dtype: torch.dtype = torch.float32

    def __post_init__(self) -> None:
        check_positive("clip_norm", self.clip_norm)
        if not self.dtype.is_floating_point:
            raise ValueError(f"dtype must be a type of floating-point numbers, got {self.dtype}")
        check_positive("noise_multiplier", self.noise_multiplier)


@dataclass(frozen=True, kw_only=True)
class Shift:
    """The distance by which one unit moved the release.

    Args:
        over_noise: L2 norm of the movement, in standard deviations of the noise of each tensor; infinite where a
            tensor without noise moved.
        witness: the unit and the rows around it, in words.
    """

    over_noise: float
    witness: str


@dataclass(frozen=True, eq=False)
class PlayBack:
    """One step of a foreign system, run again on many inputs. The outputs show the noise of the step in each tensor,
    and how far units with short to long rows move the release.

    Raises whatever the step raises, with a note that names the rows, and ValueError for a release of another shape,
    TypeError for one of other things than numbers.
    """

    step: Step
    seed: int = 0

    @cached_property
    def noise(self) -> dict[str, dict[str, FloatArray]]:
        """Draws of the noise, ``(draws, size)``, for each kind of surrounding rows and each tensor. They are the
        releases of equal rows, minus the mean of these releases.
        """
        return {around: self._noise(rows) for around, rows in self._surroundings()}

    @property
    def deviations(self) -> dict[str, float]:
        """The standard deviation of the noise of each tensor, among short and among long rows, in the unit of the
        release.
        """
        return {name: deviation_of(values) for name, values in self.noise["split"].items()}

    @cached_property
    def shifts(self) -> tuple[Shift, ...]:
        """The movements of the release that finite units cause, the largest first."""
        at = WATCHED.level("watched run", sum(len(tensors) for tensors in self.noise.values()))
        # The largest noise that these draws allow, so that a small sample accuses no correct system.
        found = [
            Shift(over_noise=self._over(moved, around, lambda values: largest_deviation(values, at)), witness=words)
            for words, around, moved in self._moves
        ]
        return tuple(sorted(found, key=lambda one: -one.over_noise))

    @property
    def effective_multiplier(self) -> float:
        """An estimate of the release's noise multiplier, biased low: 1 over the largest movement in units of its
        noise.
        """
        moved = max(self._over(moved, around, deviation_of) for _, around, moved in self._moves)
        return math.inf if moved == 0 else 1 / moved

    def results(self) -> Watched:
        """Return the results of all checks."""
        if not self._replayed():
            words = "two calls with the same seed differ: the noise cannot be seeded, or the step keeps state"
            names = (REPLAYED, EFFECTIVE, FINITE)
            return Watched(results=tuple(name.skipped(words) for name in names))
        words = "two calls with one seed give equal results" + (
            "" if self._takes_no_rows else "; the step does not accept an empty lot"
        )
        done = REPLAYED.passes(words)
        return Watched(results=(done, self._multiplier(), self._finite()))

    def _multiplier(self) -> CheckResult:
        certain, estimate = self.shifts[0].over_noise, self.effective_multiplier
        found = compared_multiplier(EFFECTIVE, self.shifts, certain, estimate, self.step.noise_multiplier)
        if found.passed is False and self._takes_few_values:
            words = f"the release takes at most {_LEVELS} values: after rounding it is no linear function of the sum"
            return EFFECTIVE.skipped(words)
        return found

    @property
    def _takes_few_values(self) -> bool:
        """Whether most coordinates that vary with the noise take few values; those without noise do not vary."""
        columns = np.concatenate(list(self.noise["split"].values()), axis=1)
        levels = 1 + np.count_nonzero(np.diff(np.sort(columns, axis=0), axis=0), axis=0)
        varying = levels[levels > 1]
        return bool(len(varying) and np.median(varying) <= _LEVELS)

    def _finite(self) -> CheckResult:
        """What rows that are no numbers do."""
        return finite_check(
            lambda rows: self._play(rows, self.seed),
            dict(self._surroundings())["quiet"],
            {"a gradient with a NaN entry": math.nan, "a gradient with an infinite entry": math.inf},
            where="release",
            whom="records",
        )

    def _replayed(self) -> bool:
        rows = dict(self._surroundings())["split"]
        return torch.equal(self._play(rows, self.seed), self._play(rows, self.seed))

    def _surroundings(self) -> Iterator[tuple[str, Tensor]]:
        """Other rows by name: none, far below the clip norm, far above it, and half of each."""
        drawn = np.random.default_rng(self.seed).standard_normal((_OTHERS, self.step.layout.dim))
        rows = torch.from_numpy(drawn / np.linalg.norm(drawn, axis=1, keepdims=True)).float() * self.step.clip_norm
        if self._takes_no_rows:
            yield "none", rows[:0]
        yield "quiet", 0.01 * rows
        yield "clipped", 100 * rows
        yield "split", torch.cat([0.01 * rows[: _OTHERS // 2], 100 * rows[_OTHERS // 2 :]])

    def _units(self) -> Iterator[tuple[str, Tensor]]:
        """Rows with norms from short to very long, in all tensors together and in each alone."""
        layout = self.step.layout
        places = {"all tensors": slice(0, layout.dim)}
        held = {name: place for name, place in layout.slices.items() if place.stop > place.start}
        places |= held if len(held) > 1 else {}
        for name, place in places.items():
            row = torch.zeros(1, layout.dim)
            row[0, place] = 1 / math.sqrt(place.stop - place.start)
            for length in held_lengths(LENGTHS, torch.finfo(self.step.dtype).max / self.step.clip_norm):
                yield f"a gradient of {length:g} clip norms in {name}", row * length * self.step.clip_norm

    @cached_property
    def _takes_no_rows(self) -> bool:
        try:
            self._play(torch.zeros(0, self.step.layout.dim), self.seed)
        except Exception:  # Foreign code may refuse an empty lot by any exception; Poisson lots may be empty.
            return False
        return True

    @cached_property
    def _moves(self) -> list[tuple[str, str, Tensor]]:
        """What each unit adds to the release: words, the rows around it, and the difference ``(d,)``."""
        found = []
        for around, rows in self._surroundings():
            without = self._play(rows, self.seed).double()
            for words, unit in self._units():
                with_unit = self._play(torch.cat([rows, unit]), self.seed).double()
                found.append((f"{words}, other gradients {around}", around, with_unit - without))
        return found

    def _noise(self, rows: Tensor) -> dict[str, FloatArray]:
        drawn = np.stack([self._play(rows, self.seed + 1 + n).double().numpy() for n in range(_DRAWS)])
        scaled = (drawn - drawn.mean(0)) * math.sqrt(_DRAWS / (_DRAWS - 1))
        return {name: scaled[:, place] for name, place in self.step.layout.slices.items()}

    def _play(self, rows: Tensor, seed: int) -> Tensor:
        try:
            release = self.step.call(rows.clone(), seed)
        except Exception as error:
            error.add_note(f"raised by the step on {len(rows)} gradients, the longest of {_longest(rows):g}")
            raise
        found = _tensor(release)
        if found.shape != (self.step.layout.dim,):
            raise ValueError(f"a release must have shape ({self.step.layout.dim},), got {tuple(found.shape)}")
        return found

    def _over(self, moved: Tensor, around: str, deviation: Callable[[FloatArray], float]) -> float:
        return over_noise(moved, self.step.layout, lambda name: deviation(self.noise[around][name]))


def over_noise(moved: Tensor, layout: Layout, deviation: Callable[[str], float]) -> float:
    """Return the length of a movement ``(d,)`` in standard deviations of each tensor's noise; infinite if it is not a
    number.
    """
    if not bool(moved.isfinite().all()):
        return math.inf
    total = 0.0
    for name, place in layout.slices.items():
        length = float(torch.linalg.vector_norm(moved[place]))
        if length > 0:
            noise = deviation(name)
            total += math.inf if noise == 0 else (length / noise) ** 2
    return math.sqrt(total)


def compared_multiplier(
    name: Check, shifts: Sequence[Shift], certain: float, estimate: float, claimed: float
) -> CheckResult:
    """Compare the measured noise multiplier of a release with the claimed one.

    Args:
        shifts: the furthest first.
        certain: the largest movement over the largest noise that the draws allow: a smaller multiplier is certain.
        estimate: the multiplier with the estimated noise.
    """
    bound = math.inf if certain == 0 else 1 / certain
    if bound < claimed * (1 - _SLACK):
        return name.at_least(min(estimate, bound), claimed, unit="", witness=shifts[0].witness)
    return name.passes(f"{len(shifts)} inputs were compared; estimated {estimate:.4g}, claimed {claimed:.4g}")


def held_lengths(lengths: Sequence[float], largest: float) -> tuple[float, ...]:
    """Return the lengths of a unit in clip norms, each limited to an eighth of the largest number that the system's
    data type can represent. That number is given in clip norms too, and no limit is below 1.
    """
    return tuple(dict.fromkeys(min(length, max(1.0, largest / 8)) for length in lengths))


def deviation_of(values: FloatArray) -> float:
    """Return the standard deviation of noise with mean 0."""
    return math.sqrt(float(np.mean(values**2)))


def largest_deviation(values: FloatArray, at: float) -> float:
    """Return the largest standard deviation that is compatible, at this significance level, with draws of noise
    ``(draws, d)`` minus the mean of the draws.
    """
    degrees = values.size * (len(values) - 1) / len(values)
    return math.sqrt(float((values**2).mean()) * degrees / float(chi2.ppf(at, degrees)))


def smallest_deviation(values: FloatArray, at: float) -> float:
    """Return the smallest standard deviation that is compatible, at this significance level, with draws of noise
    ``(draws, d)`` minus the mean of the draws.
    """
    degrees = values.size * (len(values) - 1) / len(values)
    return math.sqrt(float((values**2).mean()) * degrees / float(chi2.isf(at, degrees)))


def _tensor(release: Any) -> Tensor:
    try:
        return torch.as_tensor(release).detach().cpu()
    except (TypeError, ValueError, RuntimeError) as error:
        words = f"a release must be a tensor, an array or a list of numbers, got {type(release).__name__}"
        raise TypeError(words) from error


def _longest(rows: Tensor) -> float:
    return float(rows.norm(dim=1).max()) if len(rows) else 0.0


def finite_check(
    play: Callable[[Tensor], Tensor | None], around: Tensor, units: Mapping[str, float], *, where: str, whom: str
) -> CheckResult:
    """Report how the system treats NaN and infinite inputs, by the rule of ``audit.finite``.

    Args:
        play: of rows ``(n, d)``; returns what is released, or None.
        around: rows of others.
        units: what is sent, as in "a gradient with a NaN entry", -> its first entry; all others are 0.
        where: what a release is called.
        whom: who sends these inputs, such as "clients".
    """
    broken = []
    for words, value in units.items():
        row = around.new_zeros(1, around.shape[1])
        row[0, 0] = value
        try:
            released = play(torch.cat([around, row]))
        except Exception as error:  # Foreign code may refuse such inputs by any exception.
            broken.append(f"{words} raises {type(error).__name__}")
            continue
        if released is not None and not bool(released.isfinite().all()):
            broken.append(f"{words} makes the {where} NaN or infinite")
    return finite_result(list(units), broken, whom=whom)
