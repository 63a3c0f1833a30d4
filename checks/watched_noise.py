"""Compares the noise of a run's releases with the Gaussian law that the system states, in every tensor and step.

The noise of a release is what left less what came in, and its scale is held against the law in the margins in which
that of many runs is (``noise_law``). All tests are one-sided where more noise than stated is no fault, and exact or
conservative for Gaussian noise. Noise that is larger than stated is scaled down to the stated size before its shape is
looked at.

Noise on a grid, as of the discrete Gaussian law, is compared with the Gaussian law rounded to this grid, where the sums
lie on the same grid. Sums between the grid's points would show through the noise, which is then a fault of its shape.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial

import numpy as np
from scipy.special import betainc, gammaln, ndtr
from scipy.stats import binom, chi2, kstwo, norm

from ..audit.arrays import FloatArray
from ..audit.check import FRESH_NOISE, IN_WITNESS, INDEPENDENT, PRESENT, SCALE, SHAPE, Check, CheckResult
from ..audit.ledger import WATCHED
from .false_alarms import least_result, least_scale
from .noise_law import NoiseTable, margins
from .training_record import Release, TrainingRecord

_SINGLE = 2.0**-22
"""Rounding of sums in single precision, with a reserve."""
_STEPS, _NUMBERS = 128, 2**21
"""Steps of which every pair is compared, and numbers of which every lag is, at most."""
_SAMPLE, _NEAR = 4096, 1e-5
"""Numbers that are compared for equality, and the distance, in standard deviations, at which they count as equal."""
_POINTS, _TRIES, _CLEAR = 2, 16, 32.0
"""Numbers that show a grid, at least; common divisors that are tried; and the smallest step, in roundings."""
_COARSE, _COARSER, _COARSEST = 0.5, 2.0, 8.0
"""Steps of a grid, in standard deviations: up to the first all is checked, up to the second presence and scale, and up
to the third nothing. Of a longer step less than 1e-4 of correct noise is not 0, and such noise is missing.
"""
_FEW = 32
"""Numbers on a grid of which a cosine is as good as continuous, at least."""
_TELLING, _OWN_SCALE = 430, 3
"""Numbers of one scale of which Laplace noise is found with probability .9 (simulated), and those that each further
scale costs.
"""
_level = partial(WATCHED.level, "watched run")
"""Of the number of tests of a family to the level of each."""


@dataclass(frozen=True, eq=False)
class RunNoise:
    """The noise of a run, in units of its stated standard deviation.

    ``values``: ``(steps, d)``; ``sums``: ``(steps, d)``, what came in; ``tensors``: name -> slice of the coordinates;
    ``numbers``: the step of each row; ``rounding``: of one value, in the same units; ``grid``: the step of the grid on
    which values and sums lie, in the same units, 0 where there is none.
    """

    values: FloatArray
    sums: FloatArray
    tensors: dict[str, slice]
    numbers: tuple[int, ...]
    rounding: float
    grid: float = 0.0

    @cached_property
    def standard(self) -> FloatArray:
        """The noise values, scaled down where they are certainly larger than stated: in a tensor, in a step, or in all.

        Values of the stated size stay as they are, because scaling them would change their distribution.
        """
        scaled = self.values.copy()
        parts = [(slice(None), place) for place in self.tensors.values()]
        parts += [(slice(row, row + 1), slice(None)) for row in range(len(scaled))]
        # All together last: scaled first, tensors of the stated size would become too small.
        parts += [(slice(None), slice(None))]
        for rows, place in parts:
            inside = scaled[rows, place]
            squares = float((inside**2).sum())
            if squares > inside.size and chi2.sf(squares, inside.size) < _level(len(parts)):
                scaled[rows, place] /= math.sqrt(squares / inside.size)
        return scaled


def noise_of(recording: TrainingRecord) -> RunNoise | None:
    """Return the noise of all releases for which the sum before the noise is known; None if there is no such release,
    or if none states any noise.
    """
    pairs = [(one, _sum(one)) for one in recording.releases if one.noise_std > 0]
    known = [one for one, total in pairs if total is not None]
    if not known:
        return None
    sums = np.stack([total for _, total in pairs if total is not None])
    released = np.stack([one.released.double().numpy() for one in known])
    scale = np.array([[one.noise_std] for one in known])
    largest = np.maximum(np.abs(sums), np.abs(released)).max(initial=0.0, where=np.isfinite(released))
    coarseness = max(one.coarseness for one in known)
    return RunNoise(
        values=(released - sums) / scale,
        sums=sums,
        tensors={name: place for name, place in recording.layout.slices.items() if place.stop > place.start},
        numbers=tuple(one.step for one in known),
        rounding=float(_SINGLE * largest / scale.min()) + max(one.coarseness / one.noise_std for one in known),
        grid=_grid(np.stack([released - sums, sums]), float(_SINGLE * largest) + coarseness, float(scale.min())),
    )


def _grid(numbers: FloatArray, near: float, std: float) -> float:
    """The step, in standard deviations, of which noise and sums are multiples; 0 where they are on no grid."""
    rows = np.abs(numbers).reshape(2, -1)
    flat = rows[:, :: max(1, rows.shape[1] // _SAMPLE)].ravel()
    step = _common_step(np.sort(flat[flat > 4 * near]), near)
    return step / std if step <= _COARSEST * std else 0.0


def _common_step(numbers: FloatArray, near: float) -> float:
    """The largest common divisor of sorted positive numbers that are rounded by ``near``, 0 where there is none.

    Numbers of a continuous law are all within ``4 * near`` of a multiple with probability 4^-n at most.
    """
    gaps = np.diff(numbers, prepend=0.0)
    gaps = gaps[gaps > 4 * near]
    if len(numbers) < _POINTS or not np.isfinite(numbers).all():
        return 0.0
    step = float(gaps.min())
    for _ in range(_TRIES):
        if step < _CLEAR * near:
            return 0.0
        # Over all gaps, so that the rounding of one is not multiplied.
        step = float(gaps.sum() / np.rint(gaps / step).sum())
        rest = np.abs(numbers - step * np.rint(numbers / step))
        if not (rest > 4 * near).any():
            return step
        step = float(rest[rest > 4 * near].min())
    return 0.0


def noise_checks(recording: TrainingRecord) -> list[CheckResult]:
    """Check the presence, scale, freshness and distribution of the noise, and that it does not depend on the data."""
    names = (PRESENT, SCALE, FRESH_NOISE, SHAPE, INDEPENDENT)
    silent = [one for one in recording.releases if one.noise_std == 0]
    if silent:
        words = f"the system states a noise multiplier of 0 in step {silent[0].step}"
        return [PRESENT.failed(words)]
    noise = noise_of(recording)
    if noise is None:
        reason = recording.remarks.get("noise", "no release was seen together with its sum before the noise")
        return [name.skipped(reason) for name in names]
    if not np.isfinite(noise.values).all():
        return [PRESENT.failed("a release is not finite")]
    words = f"the noise lies on a grid of {noise.grid:.2g} standard deviations, which is too coarse to be compared"
    if noise.grid > _COARSER:
        return [name.skipped(words) for name in names]
    found = [_present(noise), _scale(noise)]
    if noise.grid > _COARSE:
        return found + [name.skipped(words) for name in (FRESH_NOISE, SHAPE, INDEPENDENT)]
    if any(one.passed is False for one in found):
        # Of noise that is missing or small in places, the other tests would only repeat the same fault.
        fresh = _fresh(noise)
        if fresh.passed is False:
            # The test of the scale takes steps for independent: of noise that is used again it is that of one step.
            found[1] = _scale(replace(noise, values=noise.values[:1], sums=noise.sums[:1], numbers=noise.numbers[:1]))
        found.insert(1, fresh)
        return found + [_unlooked(name) for name in (SHAPE, INDEPENDENT)]
    return [*found, _fresh(noise), _shape(noise), _independent(noise)]


def _sum(release: Release) -> FloatArray | None:
    seen = release.received if release.received is not None else release.expected
    return None if seen is None else np.asarray(seen.double().numpy())


def _unlooked(name: Check) -> CheckResult:
    return name.skipped("not looked at, because noise is missing, too small or used again, as another check shows")


def _present(noise: RunNoise) -> CheckResult:
    """Check that no tensor and no coordinate holds more exact zeros than Gaussian noise would."""
    near = max(noise.rounding, 1e-12)
    zero, chance = np.abs(noise.values) <= near, min(1.0, 2 * near / math.sqrt(2 * math.pi)) + _at_zero(noise.grid)
    counts = [(name, int(zero[:, place].sum()), zero[:, place].size) for name, place in noise.tensors.items()]
    tests = len(counts) + zero.shape[1]
    for name, count, size in counts:
        if binom.sf(count - 1, size, chance) < _level(tests):
            witness = f"{count} of {size} numbers of {name} have no noise"
            return PRESENT.failed(witness, count, _most(size, chance, tests), unit=IN_WITNESS)
    each = zero.sum(0)
    worst, steps = int(each.argmax()), len(zero)
    if binom.sf(int(each[worst]) - 1, steps, chance) < _level(tests):
        witness = f"coordinate {_where(noise, worst)} has no noise in {int(each[worst])} of {steps} steps"
        allowed = _most(steps, chance, tests)
        return PRESENT.failed(witness, int(each[worst]), allowed, unit=IN_WITNESS)
    witness = f"numbers without noise, among {zero.size} in {len(counts)} tensors"
    return PRESENT.passes(witness, int(zero.sum()), _most(zero.size, chance, 1))


def _at_zero(step: float) -> float:
    """The probability of 0 under the normal law on a grid: rounded, or discrete, whichever is larger."""
    if step == 0:
        return 0.0
    points = step * np.arange(1, 1 + math.ceil(10 / step))
    return max(float(2 * ndtr(step / 2) - 1), 1 / (1 + 2 * float(np.exp(-(points**2) / 2).sum())))


def _most(size: int, chance: float, tests: int) -> float:
    return float(binom.isf(_level(tests), size, chance))


def _where(noise: RunNoise, coordinate: int) -> str:
    name, place = next((n, p) for n, p in noise.tensors.items() if p.start <= coordinate < p.stop)
    return f"{coordinate - place.start} of {name}"


def _scale(noise: RunNoise) -> CheckResult:
    """Check the scale of all noise, of each tensor, step, tensor in a step, and coordinate."""
    fine = 0 < noise.grid <= _COARSE
    table = NoiseTable(
        noise=noise.values[None, None],
        there=np.ones((1, len(noise.values)), dtype=bool),
        layers=noise.tensors,
        rows=("the sum",),
        rounds=[f"step {number}" for number in noise.numbers],
        weight=lambda place: f"coordinate {_where(noise, place)}",
        # A rounded number lies half a step from one that is on no grid.
        slack=0.0 if fine else noise.grid / 2,
        coarse=noise.grid / 2,
        level=_level,
    )
    return least_result(SCALE, list(margins(table)))


def _fresh(noise: RunNoise) -> CheckResult:
    """Check that no noise is used twice: in two steps, in two tensors of a step, or at any other distance."""
    for found in (_between_steps(noise), _along_steps(noise), _between_tensors(noise), _at_lags(noise)):
        if found is not None:
            return found
    witness = (
        f"{len(noise.numbers)} steps and {len(noise.tensors)} tensors were compared with each other, at all distances"
    )
    return FRESH_NOISE.passes(witness)


def _between_steps(noise: RunNoise) -> CheckResult | None:
    steps = min(len(noise.values), _STEPS)
    if steps < 2:
        return None
    tests, rows, columns = len(noise.tensors) * steps * (steps - 1) // 2, *np.triu_indices(steps, 1)
    for name, place in noise.tensors.items():
        if noise.grid and place.stop - place.start < _FEW:
            continue
        cosines = _cosines(noise.values[:steps, place])[rows, columns]
        chances = _chance(cosines, place.stop - place.start)
        worst = int(np.argmin(chances))
        if chances[worst] < _level(3 * tests):
            pair = f"steps {noise.numbers[rows[worst]]} and {noise.numbers[columns[worst]]}"
            return _repeated(f"cosine between the noise of {name} in {pair}", cosines[worst])
    return None


def _along_steps(noise: RunNoise) -> CheckResult | None:
    """All pairs of steps that are equally far apart together, which shows noise that is taken back in part.

    The cosines of independent Gaussian vectors along such chains are independent, and sub-Gaussian of variance 1/d
    (Marchal and Arbel 2017, of the Beta law), so that P(|sum of d cosines| >= t) <= 2 exp(-t^2 / 2 sum of d).
    """
    steps, sizes = min(len(noise.values), _STEPS), [place.stop - place.start for place in noise.tensors.values()]
    if steps < 3 or (noise.grid and sum(sizes) < _FEW):
        return None
    every = [_cosines(noise.values[:steps, place]) for place in noise.tensors.values()]
    together = sum(size * cosines for size, cosines in zip(sizes, every, strict=True))
    sums = np.array([np.trace(together, offset=lag) for lag in range(1, steps)])
    counts = sum(sizes) * np.arange(steps - 1, 0, -1)
    chances = 2 * np.exp(-(sums**2) / (2 * counts))
    worst = int(np.argmin(chances))
    if chances[worst] >= _level(3 * len(chances)):
        return None
    return _repeated(f"mean cosine between the noise of steps that are {worst + 1} apart", sums[worst] / counts[worst])


def _between_tensors(noise: RunNoise) -> CheckResult | None:
    names = list(noise.tensors)
    pairs = [(one, other) for n, one in enumerate(names) for other in names[n + 1 :]][: 64 * _STEPS]
    for one, other in pairs:
        first, second = (noise.values[:, noise.tensors[name]] for name in (one, other))
        shared = min(first.shape[1], second.shape[1])
        if noise.grid and shared < _FEW:
            continue
        first, second = first[:, :shared], second[:, :shared]
        lengths = np.linalg.norm(first, axis=1) * np.linalg.norm(second, axis=1)
        cosines = (first * second).sum(1) / np.maximum(lengths, 1e-300)
        chances = _chance(cosines, shared)
        worst = int(np.argmin(chances))
        if chances[worst] < _level(3 * len(pairs) * len(noise.values)):
            step = noise.numbers[worst]
            return _repeated(
                f"cosine between the noise of {one} and the first numbers of the noise of {other} in step {step}",
                cosines[worst],
            )
    return None


def _at_lags(noise: RunNoise) -> CheckResult | None:
    """All lags of all numbers in the order of drawing them.

    For independent Gaussian numbers P(|sum of products| >= sqrt(2 n x) + 2 x) <= 2 e^-x (Laurent and Massart 2000,
    Lemma 1, for the quadratic form of one lag, whose eigenvalues lie in [-1, 1]).
    """
    flat = noise.standard.ravel()[:_NUMBERS]
    if len(flat) < 3:
        return None
    size = 1 << (2 * len(flat) - 1).bit_length()
    spectrum = np.fft.rfft(flat, size)
    products = np.fft.irfft(spectrum * spectrum.conj(), size)[1 : len(flat)]
    counts = len(flat) - np.arange(1, len(flat))
    root = (np.sqrt(2 * counts + 8 * np.abs(products)) - np.sqrt(2 * counts)) / 4
    chances = 2 * np.exp(-(root**2))
    worst = int(np.argmin(chances))
    if chances[worst] >= _level(3 * len(products)):
        return None
    return _repeated(f"correlation of noise numbers that are drawn {worst + 1} apart", products[worst] / counts[worst])


def _cosines(rows: FloatArray) -> FloatArray:
    lengths = np.maximum(np.linalg.norm(rows, axis=1), 1e-150)
    return np.asarray((rows @ rows.T) / np.outer(lengths, lengths))


def _chance(cosines: FloatArray, size: int) -> FloatArray:
    """Probability of so large an absolute cosine of two independent Gaussian vectors, by the Beta law of its square."""
    if size < 2:
        return np.ones_like(cosines)
    rest = np.clip(1 - cosines**2, 0.0, 1.0)
    return np.asarray(betainc((size - 1) / 2, 0.5, rest))


def _repeated(witness: str, measured: float) -> CheckResult:
    return FRESH_NOISE.failed(f"the {witness} is {float(measured):.4g}", abs(float(measured)), 0.0, unit=IN_WITNESS)


def _shape(noise: RunNoise) -> CheckResult:
    """Check the whole distribution, the largest number, other laws, and that numbers take more than a few values."""
    scaled = not np.array_equal(noise.standard, noise.values)
    if noise.grid and scaled:
        return SHAPE.skipped("the noise is larger than stated and lies on a grid")
    flat = np.sort(noise.standard.ravel()[:_NUMBERS])
    count, half = len(flat), noise.grid / 2
    low = norm.cdf(flat - half)
    # On a grid, a uniform place between the ends of each number's cell makes places of a rounded normal law uniform.
    places = np.sort(low + (norm.cdf(flat + half) - low) * np.random.default_rng(0).random(count)) if half else low
    distance = float(max((np.arange(1, count + 1) / count - places).max(), (places - np.arange(count) / count).max()))
    # The discrete law differs from the rounded one by step^2 max|x phi(x)| / 24, to second order.
    allowed = float(kstwo.isf(_level(5), count)) + noise.grid**2 / 96
    if distance > allowed:
        witness = f"largest distance between the distribution of {count} numbers and the normal distribution"
        return SHAPE.at_most(distance, allowed, unit="probability", witness=witness)
    largest = float(np.abs(flat).max()) + half
    # Probability that the largest of so many normal numbers is so small.
    if count * math.log1p(-2 * norm.sf(largest)) < math.log(_level(5)):
        least = float(norm.isf(-math.expm1(math.log(_level(5)) / count) / 2))
        words = f"the largest of {count} numbers has {largest:.4g} standard deviations, at least {least:.4g} required"
        return SHAPE.failed(words, cause="the noise has no tails, as where it is clamped or bounded")
    # Steps of noise that is larger than stated may each have a scale of their own.
    groups = list(noise.standard) if scaled else [norm.ppf(places.clip(1e-300, 1 - 1e-16)) if half else flat]
    for law, ratio in _other_laws(groups):
        if ratio > (most := -math.log(_level(5))):
            words = f"{count} numbers look like {law} noise, by {ratio:.4g} nats, at most {most:.4g} allowed"
            return SHAPE.failed(words, cause=f"the noise follows the {law} law")
    if (found := _few_values(noise)) is not None:
        return found
    if count < _TELLING + _OWN_SCALE * (len(groups) - 1):
        return SHAPE.skipped(f"{count} numbers are too few to tell Gaussian noise from Laplace noise")
    witness = f"distance between the distribution of {count} numbers and the normal distribution"
    return SHAPE.at_most(distance, allowed, unit="probability", witness=witness)


def _other_laws(groups: Sequence[FloatArray]) -> list[tuple[str, float]]:
    """Logs of the likelihood ratios of other laws to the Gaussian law, where each group has a scale of its own.

    They are those of the most powerful scale-invariant tests (Uthoff 1970, 1973), with mean 1 under Gaussian noise of
    any scales, so that a ratio is above x with probability 1/x at most (Markov's inequality).
    """
    laplace = uniform = 0.0
    for one in groups:
        count, size = len(one), np.maximum(np.abs(one), 1e-150)
        squares = math.log(math.pi * float(size @ size))
        gaussian = float(gammaln(count / 2)) - math.log(2) - count / 2 * squares
        laplace += float(gammaln(count)) - count * math.log(2 * float(size.sum())) - gaussian
        uniform += -count * math.log(2 * float(size.max())) - math.log(count) - gaussian
    return [("Laplace", laplace), ("uniform", uniform)]


def _few_values(noise: RunNoise) -> CheckResult | None:
    flat = noise.values.ravel()
    chosen = np.sort(flat[:: max(1, len(flat) // _SAMPLE)][:_SAMPLE])
    near, count = max(_NEAR, 4 * noise.rounding), len(chosen)
    equal = int((np.diff(chosen) < near).sum())
    # Expected for the normal distribution; a half of all numbers is far beyond any chance fluctuation.
    expected = count**2 * near / (2 * math.sqrt(math.pi))
    if noise.grid or count < 64 or expected > count / 8 or equal <= count / 2:
        return None
    words = f"{equal} of {count} numbers equal another one, at most {count // 2} allowed"
    return SHAPE.failed(words, cause="the noise takes few different values, as where it is rounded or drawn once")


def _independent(noise: RunNoise) -> CheckResult:
    """Check the noise along what came in: standard normal in each step, if the noise does not depend on it.

    It is neither off, in one step or in all together, nor smaller than elsewhere. A dependence in other directions is
    not seen.
    """
    lengths = np.linalg.norm(noise.sums, axis=1)
    there = lengths > 0
    if not there.any():
        return INDEPENDENT.skipped("all sums before the noise are zero")
    units = noise.sums[there] / lengths[there, None]
    along, plain = ((values[there] * units).sum(1) for values in (noise.standard, noise.values))
    steps, words = len(along), "noise in the direction of the sum to which it is added"
    off = (
        (float(np.abs(along).max()), steps, f"{words}, in the step with the most, in standard deviations"),
        (abs(float(along.sum())) / math.sqrt(steps), 1, f"{words}, summed over all steps, in standard deviations"),
    )
    for measured, tests, witness in off:
        allowed = float(norm.isf(_level(3 * tests) / 2)) + noise.grid
        if measured > allowed:
            return INDEPENDENT.at_most(measured, allowed, unit="standard deviations", witness=witness)
    squares, degrees = np.array([float(plain @ plain)]), np.array([float(steps)])
    return least_result(INDEPENDENT, [least_scale(squares, degrees, [words], 3, slack=noise.grid, level=_level)[0]])
