"""Compare the noise of many runs with the published Gaussian law: in every margin, at all lags and along public
vectors.

Hold the noise of many runs against the published Gaussian law: every number, given all others, in every margin.

One principle: given all other numbers of a release, each number must still scatter as much as the law states.
Noise that is missing, small, shared, repeated, of few dimensions, or that cancels in a sum leaves a number that does
not. All tests are one-sided and exact for Gaussian noise, also if anything independent was added to it: more noise than
the law's is no fault, and neither is noise of another kind on top of it.

Look for noise that two rows share at different positions: overlapping parts of one table, or a repeated pattern.

A regression on equal positions does not see it. Within each run every noise vector is compared with every other one,
and with itself, at all lags, forwards and backwards: where a number is explained by another vector's, less is left than
the law states.

Check each round's noise along what is public before the round: aggregates, their sums, and the public state.

Noise that is projected off such a direction has full rank over many runs, in which the direction is another one each
time. Along the direction of its own run it is missing.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import NamedTuple

import numpy as np
from scipy.fft import irfft, next_fast_len, rfft
from scipy.stats import beta, binom, chi2, norm

from ..audit.arrays import BoolArray, FloatArray, IntArray
from ..audit.check import DISTRIBUTION, EVERY_DIRECTION, GIVEN_CLIENTS, GIVEN_ROUNDS, OTHER_DATA, SCALE, CheckResult
from ..audit.claim import Claim
from ..audit.curve import delta_from_mu
from ..fl.laws import GaussianLaw
from .false_alarms import NOISE, Level, Shortfall, least_result, least_scale, share_found
from .noise_sample import NoiseSample

_BOUNDS = (0.25, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0)
"""Distances from the centre, in standard deviations, within which no more noise may lie than the law states."""
_BOUNDS_OF_ONE = (0.25, 1.0, 2.0)
"""The same for a single weight, of which there are few numbers."""
_BOUNDS_OF_SIDES = (1.0, 1.5, 2.0)
"""The same to one side, of noise on a grid."""
_FINE, _NEARLY = 0.25, 0.005
"""Steps of a grid in standard deviations of its noise, at most, and how far shares of such noise are from a Gaussian's,
at most.
"""
_SHARES_OF_LENGTHS = (0.5, 0.84, 0.975)
"""Shares of noise vectors that are shorter than a bound under the law; no more may be."""
_RIDGE = 1e-9
"""Share of the law's variance that is added where columns are exactly dependent."""
_COLUMNS = 512
"""Rows and rounds that are compared with each other, at most."""
_MANY = 1024
"""Numbers on a fine grid of which the sum of squares is as good as continuous."""
_LAGGED = 24
"""Runs, and rows of rounds, whose noise is compared at all lags."""
_PARTNERS = 2048
"""Weights among which each one's nearest relative is looked for, where there are too few runs for all together."""


@dataclass(frozen=True, kw_only=True)
class LawOfDraws:
    """The noise that the published law states for each row of a release.

    ``laws``: one per row; ``stds``: ``(rows, d)`` or ``(rows, 1)``; ``layers``: coordinates of each layer.
    """

    laws: Sequence[GaussianLaw]
    layers: Mapping[str, slice]

    @property
    def stds(self) -> FloatArray:
        """The standard deviation of each row's noise, ``(rows,)``."""
        return np.array([law.noise_std for law in self.laws])


def draw_checks(sample: NoiseSample, law: LawOfDraws, claim: Claim) -> list[CheckResult]:
    """Check the scale of the noise in every margin, its conditional scale given other noise, and its distribution.

    The law is published for the public state of the first round, so that only rounds with this state are checked.
    """
    tested = _table(sample, law, silent=sample.silent)
    if not tested.there.any():
        reason = "no sender took part in all runs of a round with the same public state as the first round"
        return [SCALE.skipped(reason)]
    paired, scales = _table(sample, law, sample.paired, silent=sample.silent), list[Shortfall]()
    depend = _rounds_depend(tested)
    lagged = _lagged(sample, tested.of_one_round() if depend else tested, law)
    between = [
        *_between_clients(tested, lagged.get("rows")),
        *_between_rounds(tested, law, claim, lagged.get("rounds")),
    ]
    public = [] if depend else _public(sample, tested, law)
    if depend:
        # Sums over dependent rounds have other distributions: each round is tested alone, and the first in all ways.
        scales = [*margins(tested, each_round=True), *map(_in_pairs, margins(paired, each_round=True))]
        tested, paired = tested.of_one_round(), paired.of_one_round()
    scales += [*margins(tested), *map(_in_pairs, margins(paired))]
    degrees = float(len(tested.noise) * tested.there.sum() * tested.noise.shape[-1])
    return [
        replace(least_result(SCALE, scales), detects=share_found(degrees, tested.slack)),
        least_result(EVERY_DIRECTION, [*_directions(tested), *_of_kind(lagged, "itself"), *public]),
        *between,
        *_distribution(sample, tested, law),
    ]


def other_data_check(samples: Mapping[str, NoiseSample], law: LawOfDraws, silent: BoolArray) -> CheckResult:
    """Check the scale of the noise in runs on other data; the keys describe the data.

    ``silent``: ``(rows, rounds)``, where nothing is released on the usual data either.
    """
    found = []
    for words, sample in samples.items():
        # Zeros that only such data give are noise that is missing.
        tested = _table(sample, law, silent=silent[:, : sample.values.shape[2]])
        if tested.there.any():
            found += [one._replace(witness=f"{words}: {one.witness}") for one in margins(tested)]
    if not found:
        return OTHER_DATA.skipped("no sender took part in all runs")
    return least_result(OTHER_DATA, found)


@dataclass(frozen=True, kw_only=True)
class NoiseTable:
    """Noise in standard deviations of the stated law: from many runs, or from one run whose sums are known.

    ``noise``: ``(m, rows, rounds, d)`` independent vectors; ``there``: ``(rows, rounds)``, which of them are tested;
    ``layers``: coordinates of each layer; ``rows``, ``rounds``: their names; ``weight``: the name of a coordinate;
    ``slack``: rounding; ``coarse``: rounding of numbers on a fine grid, from which sums of many squares are free;
    ``level``: of the tests of a family.
    """

    noise: FloatArray
    there: BoolArray
    layers: Mapping[str, slice]
    rows: Sequence[str]
    rounds: Sequence[str]
    weight: Callable[[int], str] = "weight {}".format
    slack: float = 0.0
    coarse: float = 0.0
    level: Level = NOISE

    def of_one_round(self) -> "NoiseTable":
        """The noise of the first testable round alone."""
        there = np.zeros_like(self.there)
        first = int(np.flatnonzero(self.there.any(0))[0])
        there[:, first] = self.there[:, first]
        return replace(self, noise=np.where(there[:, :, None], self.noise, 0.0), there=there)

    def vectors(self) -> FloatArray:
        """The noise vectors of all rows and rounds, ``(n, d)``."""
        return np.asarray(self.noise[:, self.there].reshape(-1, self.noise.shape[-1]))

    def least(self, squares: FloatArray, degrees: FloatArray, names: Sequence[str]) -> tuple[Shortfall, int]:
        """Return the sum of squares that falls furthest below its degrees of freedom, and its place."""
        slack = np.maximum(self.slack, np.where(degrees < _MANY, self.coarse, 0.0))
        return least_scale(squares, degrees, names, slack=slack, level=self.level)


def _table(sample: NoiseSample, law: LawOfDraws, noise: FloatArray | None = None, *, silent: BoolArray) -> NoiseTable:
    """The noise of many runs, whose contrasts show it; ``noise``: other ones than these."""
    stds = law.stds
    there = sample.present & ~silent & sample.steady & (stds > 0)[:, None]
    noise = (sample.contrasts if noise is None else noise) / np.where(stds > 0, stds, 1.0)[:, None, None]
    noise[:, ~there] = 0.0
    slack = float((sample.rounding / np.where(stds > 0, stds, 1.0)).max())
    rounds = [f"round {turn}" for turn in range(there.shape[1])]
    return NoiseTable(noise=noise, there=there, layers=law.layers, rows=sample.row_names, rounds=rounds, slack=slack)


def margins(table: NoiseTable, *, each_round: bool = False) -> Iterator[Shortfall]:
    """Return the smallest scale of the noise in every margin (over rows, rounds, weights and layers).

    ``each_round``: only of margins of one round.
    """
    squares = np.einsum("m...,m...->...", table.noise, table.noise)
    rows, rounds, dim = squares.shape
    degrees = np.broadcast_to(len(table.noise) * table.there[:, :, None].astype(float), squares.shape)
    names = (table.rows.__getitem__, table.rounds.__getitem__, table.weight)
    sizes = (rows, rounds, dim)
    for count in range(4):
        for kept in combinations(range(3), count):
            # A margin over an axis of length one is another margin.
            gone = tuple(axis for axis in range(3) if axis not in kept)
            if any(sizes[axis] == 1 for axis in kept) or (each_round and 1 not in kept):
                continue
            # A single number may be as small as it likes.
            if len(table.noise) * math.prod(sizes[axis] for axis in gone) == 1 and kept:
                continue
            found, place = table.least(
                squares.sum(gone).reshape(-1),
                degrees.sum(gone).reshape(-1),
                ["all releases" if not kept else "one number of the release"],
            )
            if kept:
                where = np.unravel_index(place, [sizes[axis] for axis in kept])
                words = ", ".join(names[axis](int(one)) for axis, one in zip(kept, where, strict=True))
                found = found._replace(witness=words + found.witness.removeprefix("one number of the release"))
            yield found
    if not each_round:
        yield from _layers(table, squares, degrees)


def _in_pairs(found: Shortfall) -> Shortfall:
    return found._replace(witness=f"{found.witness}, in differences of runs at the same position of two batches")


def _layers(table: NoiseTable, squares: FloatArray, degrees: FloatArray) -> Iterator[Shortfall]:
    layers = {name: place for name, place in table.layers.items() if squares[..., place].size}
    each = {name: (squares[..., place], degrees[..., place]) for name, place in layers.items()}
    for axes, words in (((0, 1, 2), "{layer}"), ((1, 2), "{layer}, {row}"), ((2,), "{layer}, {row}, {turn}")):
        sums = np.concatenate([part.sum(axes).reshape(-1) for part, _ in each.values()])
        counts = np.concatenate([part.sum(axes).reshape(-1) for _, part in each.values()])
        found, place = table.least(sums, counts, ["layer"])
        shape = squares.shape[: 3 - len(axes)]
        layer, *where = np.unravel_index(place, (len(layers), *shape))
        row, turn = [*map(int, where), 0, 0][:2]
        name = words.format(layer=list(layers)[int(layer)], row=table.rows[row], turn=table.rounds[turn])
        yield found._replace(witness=name + found.witness.removeprefix("layer"))


def _directions(tested: NoiseTable) -> Iterator[Shortfall]:
    """The scale of each weight's noise given that of other weights, and of sums over the weights of a layer."""
    vectors = tested.vectors()
    count, dim = vectors.shape
    yield _sums(tested, vectors)
    if count >= dim + max(16, dim // 8):
        yield _given_others(vectors, [np.arange(dim)], tested.slack)
        return
    # Too few vectors for all weights together: blocks of neighbours, of weights far apart, and of random ones.
    size = max(2, count // 2)
    parts = math.ceil(dim / size)
    order = np.random.default_rng(0).permutation(dim)
    orders = (np.arange(dim), _strided(dim, parts), order)
    yield _given_others(vectors, [part for one in orders for part in np.array_split(one, parts)], tested.slack)
    if count >= 8:
        yield _given_nearest(vectors, tested.slack)


def _strided(dim: int, parts: int) -> IntArray:
    return np.concatenate([np.arange(start, dim, parts) for start in range(parts)])


def _sums(tested: NoiseTable, vectors: FloatArray) -> Shortfall:
    """Sums over all weights and over each layer, and sums of alternating sign: noise could cancel in them."""
    dim = vectors.shape[1]
    signs = (np.ones(dim), np.where(np.arange(dim) % 2, -1.0, 1.0))
    places = {"all weights": slice(0, dim), **tested.layers}
    names, columns = [], []
    for name, place in places.items():
        for sign, words in zip(signs, ("the sum over", "the alternating sum over"), strict=True):
            part = np.zeros(dim)
            part[place] = sign[place]
            if part.any():
                names.append(f"{words} {name}")
                columns.append(part / np.linalg.norm(part))
    found = vectors @ np.stack(columns, axis=1)
    degrees = np.full(len(names), float(len(vectors)))
    return least_scale((found**2).sum(0), degrees, names, slack=tested.slack)[0]


def _given_others(vectors: FloatArray, blocks: Sequence[IntArray], slack: float) -> Shortfall:
    """Each weight's noise given the others of its block: residual sums of squares of a regression on them.

    They are chi-squared with n - k + 1 degrees of freedom, whatever the distribution of the others.
    """
    squares, degrees, names = [], [], []
    for block in blocks:
        part = vectors[:, block]
        gram = part.T @ part
        gram[np.diag_indices_from(gram)] += _RIDGE * len(part)
        squares.append(1 / np.diag(np.linalg.inv(gram)))
        degrees.append(np.full(len(block), float(len(part) - len(block) + 1)))
        names += [f"noise of weight {weight} given that of {len(block) - 1} other weights" for weight in block]
    found, _ = least_scale(np.concatenate(squares), np.concatenate(degrees), names, slack=slack)
    return found


def _given_nearest(vectors: FloatArray, slack: float) -> Shortfall:
    """Each weight's noise given that of the weight to which it is the most similar in the other half of the vectors."""
    rng = np.random.default_rng(1)
    dim = vectors.shape[1]
    chosen = np.sort(rng.permutation(dim)[:_PARTNERS])
    # Vectors of one run lie far apart: each half holds every run.
    search, test = vectors[::2][:, chosen], vectors[1::2][:, chosen]
    lengths = np.sqrt((search**2).sum(0)) + 1e-300
    similar = np.abs(search.T @ search) / lengths / lengths[:, None]
    np.fill_diagonal(similar, -1.0)
    partner = similar.argmax(1)
    own, other = (test**2).sum(0), (test * test[:, partner]).sum(0)
    left = own - other**2 / ((test[:, partner] ** 2).sum(0) + _RIDGE * len(test))
    names = [f"noise of weight {w} given that of weight {chosen[p]}" for w, p in zip(chosen, partner, strict=True)]
    return least_scale(left, np.full(len(chosen), float(len(test) - 1)), names, slack=slack)[0]


def _between_clients(tested: NoiseTable, lagged: Shortfall | None) -> Iterator[CheckResult]:
    """The scale of a row's noise given the same weights of other rows, or other weights of one of them."""
    rows = tested.noise.shape[1]
    turns = np.flatnonzero(tested.there.all(0))
    if rows > 1 and len(turns):
        columns = tested.noise[:, :, turns].transpose(1, 0, 2, 3).reshape(rows, -1)
        found = [_given_columns(columns, tested.rows, tested.slack)]
        yield least_result(GIVEN_CLIENTS, found if lagged is None else [*found, lagged])


def _lagged(sample: NoiseSample, tested: NoiseTable, law: LawOfDraws) -> dict[str, Shortfall]:
    """What is left of noise given a vector at another lag in the same run."""
    places = np.argwhere(tested.there.T)[: 2 * len(tested.rows) + _LAGGED]
    turns, rows = places[:, 0], places[:, 1]
    noise = sample.residuals[:_LAGGED, rows, turns] / law.stds[rows][:, None]
    columns = NoiseColumns(noise, rows.tolist(), turns.tolist())
    return dict(lagged_noise(columns, tested.rows, tested.slack))


def _of_kind(lagged: Mapping[str, Shortfall], kind: str) -> list[Shortfall]:
    return [found for name, found in lagged.items() if name == kind]


def _public(sample: NoiseSample, tested: NoiseTable, law: LawOfDraws) -> list[Shortfall]:
    """The scale of the noise along public vectors, in rounds of any public state."""
    stds = law.stds
    there = sample.present & ~sample.silent & (stds > 0)[:, None]
    noise = sample.residuals / np.where(stds > 0, stds, 1.0)[:, None, None]
    return list(along_public(noise, there, sample.public, tested.slack))


def _between_rounds(
    tested: NoiseTable, law: LawOfDraws, claim: Claim, lagged: Shortfall | None
) -> Iterator[CheckResult]:
    """The scale of a row's noise given the same weights of other rounds and rows, or other weights of one of them."""
    if tested.there.any(0).sum() < 2:
        return
    found = _given_columns(*_of_rounds(tested), tested.slack)
    if lagged is not None and found.measured >= found.allowed and lagged.measured < lagged.allowed:
        found = lagged
    result = least_result(GIVEN_ROUNDS, [found])
    # Correlated noise is a mechanism of its own: it is a fault only if one round alone would break the claim.
    if result.passed is False and not _breaks(claim, law.laws[0], found.measured / max(found.allowed, 1e-300)):
        reason = f"noise depends on other rounds, but one round alone does not violate the claim: {found.witness}"
        result = GIVEN_ROUNDS.skipped(reason)
    yield result


def _of_rounds(tested: NoiseTable) -> tuple[FloatArray, list[str]]:
    """The noise of each row and round as a column ``(k, n)``, and their names."""
    most = max(2, min(_COLUMNS, tested.noise.shape[0] * tested.noise.shape[-1] // 4))
    pairs = [(int(row), int(turn)) for turn, row in np.argwhere(tested.there.T)][:most]
    columns = np.stack([tested.noise[:, row, turn].reshape(-1) for row, turn in pairs])
    return columns, [f"{tested.rows[row]}, round {turn}" for row, turn in pairs]


def _rounds_depend(tested: NoiseTable) -> bool:
    """Whether the noise of any row and round depends on others, whatever its scale."""
    columns, _ = _of_rounds(tested)
    count, size = columns.shape
    own = (columns**2).sum(1)
    share = np.divide(_left(columns), own, out=np.ones(count), where=own > 0)
    level = NOISE(count)
    return count > 1 and bool(share.min() < beta.ppf(level, (size - count + 1) / 2, (count - 1) / 2))


def _given_columns(columns: FloatArray, names: Sequence[str], slack: float) -> Shortfall:
    """Each column's scale given the others, ``columns (k, n)``."""
    squares = _left(columns)
    degrees = np.full(len(columns), float(columns.shape[1] - len(columns) + 1))
    return least_scale(squares, degrees, [f"{name} given the others" for name in names], slack=slack)[0]


def _left(columns: FloatArray) -> FloatArray:
    """Residual sums of squares of each column given the others, ``(k,)``."""
    gram = columns @ columns.T
    gram[np.diag_indices_from(gram)] += _RIDGE * columns.shape[1]
    return np.asarray(1 / np.diag(np.linalg.inv(gram)))


def _breaks(claim: Claim, law: GaussianLaw, share: float) -> bool:
    """Whether one step with this share of the law's noise, or less, exceeds the whole claim."""
    if law.noise_std <= 0 or share <= 0:
        return True
    mu = abs(law.scale) * law.clip_norm / (law.noise_std * min(1.0, share))
    # A sampled row: the hockey-stick divergence of the mixture (Balle, Barthe and Gaboardi 2018, theorem 2).
    epsilon = math.log1p((math.expm1(min(claim.epsilon, 500.0))) / law.rate) if law.rate > 0 else math.inf
    return law.rate > 0 and law.rate * delta_from_mu(mu, epsilon) > claim.delta


def _distribution(sample: NoiseSample, tested: NoiseTable, law: LawOfDraws) -> Iterator[CheckResult]:
    """Check that no more noise lies near its centre than under the law, within several distances.

    The centre comes from other runs: around any point that does not depend on it, Gaussian noise lies within a distance
    no more often than around zero.
    """
    stds = law.stds[:, None, None]
    steps = float((2 * sample.rounding / np.where(law.stds > 0, law.stds, np.inf)).max())
    if steps > _FINE:
        yield DISTRIBUTION.skipped("released numbers lie on a coarse grid, so that the noise is not close to Gaussian")
        return
    if steps > 0 and (sides := _sides(sample, tested, stds, steps)).passed is False:
        yield sides
        return
    half = sample.runs // 2
    values = np.where(tested.there[:, :, None], sample.values / np.where(stds > 0, stds, 1.0), 0.0)
    centre = values[:half].mean(0)
    weights = tested.there[:, :, None].sum(1, keepdims=True)
    common = centre.sum(1, keepdims=True) / np.maximum(weights, 1)
    apart = float(np.square(centre - common)[tested.there].mean()) * half
    # Equal data give all rounds one centre, unless the defense adds up rounds.
    centre = np.broadcast_to(common, centre.shape) if apart < 2 else centre
    away = np.abs(values[half:] - centre)[:, tested.there].reshape(-1, values.shape[-1])
    found = []
    for bound in _BOUNDS:
        counts = (away <= bound - tested.slack).sum(0)
        found.append(_most_within(counts.sum(keepdims=True), away.size, bound, ["all weights"], 1))
        if bound in _BOUNDS_OF_ONE:
            names = [f"weight {weight}" for weight in range(len(counts))]
            found.append(_most_within(counts, len(away), bound, names, len(counts)))
        layers = [name for name, place in tested.layers.items() if counts[place].size]
        for name in layers:
            part = counts[tested.layers[name]]
            found.append(_most_within(part.sum(keepdims=True), part.size * len(away), bound, [name], len(layers)))
    found += _lengths(tested)
    # Of all weights together a shortfall is the clearest.
    worst = min(found, key=lambda one: (one[1] <= one[2], one[0]))
    yield DISTRIBUTION.at_most(worst[1], worst[2], unit="share of the noise", witness=worst[3])


def _sides(sample: NoiseSample, tested: NoiseTable, stds: FloatArray, steps: float) -> CheckResult:
    """Check that noise on a fine grid reaches as far to either side as the law's: in sums of two runs less twice a
    third, in which the centre cancels and a noise that has one side alone stays lopsided.

    Args:
        stds: ``(rows, 1, 1)``, of the law.
        steps: of the grid, in standard deviations.
    """
    third = sample.runs // 3
    parts = sample.values[: 3 * third].reshape(3, third, *sample.values.shape[1:])
    apart = (parts[0] + parts[1] - 2 * parts[2]) / math.sqrt(6) / np.where(stds > 0, stds, 1.0)
    numbers = apart[:, tested.there]
    found = []
    for bound in _BOUNDS_OF_SIDES:
        chance = float(norm.cdf(bound)) + _NEARLY
        allowed = float(binom.isf(NOISE(2 * len(_BOUNDS_OF_SIDES)), numbers.size, chance))
        for sign, side in ((1, "above"), (-1, "below")):
            count = int((sign * numbers <= bound - steps - tested.slack).sum())
            words = f"numbers at most {bound:g} stated standard deviations {side} the centre"
            found.append((float(binom.logsf(count - 1, numbers.size, chance)), count, allowed, words))
    _, count, allowed, words = min(found)
    return DISTRIBUTION.at_most(count / numbers.size, allowed / numbers.size, unit="share of the noise", witness=words)


def _lengths(tested: NoiseTable) -> Iterator[tuple[float, float, float, str]]:
    """Check that no more noise vectors are short than under the law: those of a bounded length hide no unit at all.

    Independent noise on top of the law's makes no length smaller, in distribution.
    """
    squares = np.square(tested.vectors()).sum(axis=1)
    for share in _SHARES_OF_LENGTHS:
        bound = float(chi2.ppf(share, tested.noise.shape[-1]))
        count = int((squares <= bound).sum())
        allowed = float(binom.isf(NOISE(len(_SHARES_OF_LENGTHS)), len(squares), share))
        surprise = float(binom.logsf(count - 1, len(squares), share))
        words = (
            f"share of {len(squares)} noise vectors that are as short as the shortest {share:g} of the stated "
            "distribution"
        )
        yield surprise, count / len(squares), allowed / len(squares), words


def _most_within(
    counts: FloatArray, total: int, bound: float, names: Sequence[str], tests: int
) -> tuple[float, float, float, str]:
    """The largest count of numbers within a distance, with the logarithm of its probability and its limit as shares."""
    chance = float(2 * norm.cdf(bound) - 1)
    worst = int(np.argmax(counts))
    allowed = float(binom.isf(NOISE(tests), total, chance))
    surprise = float(binom.logsf(counts[worst] - 1, total, chance)) + math.log(tests)
    words = f"{names[worst]}: share of {total} numbers within {bound:g} stated standard deviations"
    return surprise, float(counts[worst]) / total, allowed / total, words


_LEAST = 32
"""Numbers that two vectors must have in common, at least."""
_VECTORS, _NUMBERS = 24, 2**22
"""Vectors of a run that are compared with each other, and numbers of all lags of all pairs, at most."""
_LONGEST = 2**14
"""Weights that are compared, at most."""
_CHUNK = 2**20
"""Numbers of all lags that are computed at once."""


class NoiseColumns(NamedTuple):
    """The noise of several runs, ``(runs, k, d)`` in standard deviations of the law, with the row and the round of each
    column.
    """

    noise: FloatArray
    rows: Sequence[int]
    rounds: Sequence[int]


def lagged_noise(columns: NoiseColumns, names: Sequence[str], slack: float) -> Iterator[tuple[str, Shortfall]]:
    """Return the noise that remains after regression on a noise vector at another lag: within one vector, between two
    rows, or between two rounds; the kind is ``itself``, ``rows`` or ``rounds``.

    Sums of squares that a regression on one other vector leaves are chi-squared, whatever the other vector holds. Parts
    of one vector are compared in blocks that do not overlap.

    Args:
        names: of the rows.
        slack: rounding of the released values, in standard deviations of the law.
    """
    noise = columns.noise[..., :_LONGEST]
    dim = noise.shape[-1]
    count = min(noise.shape[1], _VECTORS)
    if dim <= _LEAST:
        return
    every = [(one, other) for one in range(count) for other in range(one + 1)]
    kinds = {
        "itself": [pair for pair in every if pair[0] == pair[1]],
        "rows": [(a, b) for a, b in every if columns.rows[a] != columns.rows[b]],
        "rounds": [(a, b) for a, b in every if a != b and columns.rows[a] == columns.rows[b]],
    }
    for kind, pairs in kinds.items():
        most = max(1, _NUMBERS // (3 * 4 * dim))
        runs = min(len(noise), max(1, most // max(1, len(pairs))))
        if not pairs:
            continue
        found = [
            one
            for backwards in ((False,) if kind == "itself" else (False, True))
            for one in _best(noise[:runs], pairs[:most], backwards)
        ]
        tests = len(found) * 2 * dim
        squares, degrees = (np.array([getattr(one, name) for one in found]) for name in ("squares", "degrees"))
        words = [_words(columns, names, one) for one in found]
        yield kind, least_scale(squares, degrees, words, tests=tests, slack=slack)[0]


class _Left(NamedTuple):
    """What is left of a vector given another one at a lag: of ``degrees`` of freedom."""

    squares: float
    degrees: float
    pair: tuple[int, int]
    lag: int
    backwards: bool


def _words(columns: NoiseColumns, names: Sequence[str], left: _Left) -> str:
    one, other = (f"{names[columns.rows[place]]}, round {columns.rounds[place]}" for place in left.pair)
    way = " in reverse order" if left.backwards else ""
    return f"{one}, given {'itself' if one == other else other}{way} shifted by {left.lag} weights"


def _best(noise: FloatArray, pairs: list[tuple[int, int]], backwards: bool) -> Iterator[_Left]:
    """The lag of each pair and run that explains the most."""
    dim = noise.shape[-1]
    lags = np.arange(-(dim - _LEAST), dim - _LEAST + 1)
    # A vector lies on itself at lag 0.
    lags = lags[lags > 0] if pairs[0][0] == pairs[0][1] else lags
    overlap = dim - np.abs(lags)
    allowed = chi2.ppf(NOISE(len(pairs) * len(noise) * 2 * dim), np.arange(dim + 1).clip(2) - 1)[overlap]
    size, step = next_fast_len(2 * dim, real=True), max(1, _CHUNK // (4 * dim))
    chosen = [(run, *pair) for run in range(len(noise)) for pair in pairs]
    for start in range(0, len(chosen), step):
        part = np.array(chosen[start : start + step])
        one, other = noise[part[:, 0], part[:, 1]], noise[part[:, 0], part[:, 2]]
        other = other[:, ::-1] if backwards else other
        product = irfft(rfft(one, size) * np.conj(rfft(other, size)), size)[:, lags % size]
        squares = [np.concatenate([np.zeros((len(part), 1)), np.cumsum(v**2, axis=1)], axis=1) for v in (one, other)]
        # Numbers of ``one`` from ``lag`` on lie on those of ``other`` from 0 on.
        low, high = np.maximum(lags, 0), np.minimum(dim + lags, dim)
        own = squares[0][:, high] - squares[0][:, low]
        given = squares[1][:, high - lags] - squares[1][:, low - lags]
        share = (own - product**2 / np.maximum(given, 1e-300)) / np.maximum(allowed, 1e-300)
        best = share.argmin(1)
        for number, (_, first, second) in enumerate(part.tolist()):
            lag = int(lags[best[number]])
            if first == second:
                left, degrees = _of_itself(one[number], lag)
            else:
                left, degrees = float(share[number, best[number]] * allowed[best[number]]), overlap[best[number]] - 1.0
            yield _Left(max(0.0, left), float(degrees), (first, second), lag, backwards)


def _of_itself(vector: FloatArray, lag: int) -> tuple[float, float]:
    """What is left of every second block of ``lag`` numbers given the blocks between them, and its degrees."""
    places = np.arange(len(vector) - lag)
    places = places[places // lag % 2 == 0]
    one, other = vector[places], vector[places + lag]
    return float(one @ one - (one @ other) ** 2 / max(float(other @ other), 1e-300)), max(0.0, len(places) - 1.0)


_MARGIN = 2.0
"""Factor by which the squares may fall short of chance besides, where a law of another public state is unknown."""
_FEWEST = 64
"""Projections from which their scale is tested."""


def along_public(
    noise: FloatArray, there: BoolArray, public: Mapping[str, FloatArray], slack: float
) -> Iterator[Shortfall]:
    """Return the scale of the noise along each public vector; the vectors differ between the runs.

    Squares are compared with those of the same weights in all runs, or with the law's where it states less: the law of
    a later round, with another public state, is not published.

    Args:
        noise: ``(runs, rows, rounds, d)`` in standard deviations of the law, of mean zero over the runs.
        there: ``(rows, rounds)``, which of it is tested.
        slack: rounding of the released values, in standard deviations of the law.
    """
    there = there.copy()
    there[:, 0] = False
    scales = np.minimum(np.square(noise).mean(0), 1.0)
    squares, degrees, names = [], [], []
    for name, vectors in public.items():
        # A vector that is the same in all runs is seen in the covariance of the noise.
        moving = (vectors != vectors[:1]).any((0, 2)) & (np.square(vectors).sum(-1) > 0).all(0)
        tested = there & moving
        if not tested.any():
            continue
        rows, turns = np.nonzero(tested)
        units = vectors[:, turns] / np.linalg.norm(vectors[:, turns], axis=-1, keepdims=True)
        along = np.einsum("rkd,rkd->rk", noise[:, rows, turns], units)
        expected = np.einsum("kd,rkd->rk", scales[rows, turns], np.square(units))
        known = expected > 0
        if known.sum() >= _FEWEST:
            squares.append(_MARGIN * float((along[known] ** 2 / expected[known]).sum()))
            degrees.append(float(known.sum()))
            names.append(f"along the {name} before the round")
    if names:
        yield least_scale(np.array(squares), np.array(degrees), names, slack=slack)[0]
