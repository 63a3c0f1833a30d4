"""Situations of functions, audited by trials on two neighbouring inputs, as ``fedassay audit FILE:NAME --inputs`` does.

Each is a function of an input and a generator. Where ``batched``, the input has one row for each trial. The level of an
audit is .05: of a claim that is exactly true, so many are refuted at most.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from fedassay.audit.claim import Claim
from fedassay.audit.finding import Finding
from fedassay.audit.mechanism.mechanism import audit_mechanism
from situation import Situation, named

Rng = np.random.Generator
Array = np.ndarray[Any, Any]
_TRIALS = 40_000


def row(
    name: str,
    right: bool,
    source: str,
    function: Callable[[Any, Rng], Any],
    inputs: tuple[Any, Any],
    *,
    epsilon: float = 1.0,
    delta: float = 0.0,
    batched: bool = True,
    **options: Any,
) -> Situation:
    """Return the situation of a function that claims ``(epsilon, delta)`` of these inputs."""
    pair = tuple(np.array(one) if isinstance(one, list) else one for one in inputs)

    def look(function: Any, seed: int) -> Finding:
        claim = Claim.stated(epsilon, delta=delta, unit="report", adjacency="replace_one")
        given = {"inputs": pair, "trials": _TRIALS if batched else _TRIALS // 4, "seed": seed, "batched": batched}
        return audit_mechanism(function, claim, **(given | options))

    return Situation(
        name=name, kind="function", right=right, source=source, make=lambda: function, look=look, trials=None
    )


right, broken = (partial(row, right=one) for one in (True, False))


def laplace(scale: float) -> Callable[[Array, Rng], Array]:
    return lambda x, rng: x + rng.laplace(scale=scale, size=x.shape)


def gaussian(scale: float) -> Callable[[Array, Rng], Array]:
    return lambda x, rng: x + rng.normal(scale=scale, size=x.shape)


def in_own_range(x: Array, rng: Rng) -> Array:
    """The noised mean of four values, clamped to their own range."""
    noised = x.mean(1) + rng.laplace(scale=1 / 4, size=len(x))
    return np.clip(noised, x.min(1), x.max(1))


def mean_of_any_number(x: Array, rng: Rng) -> float:
    """The noised sum over the true number of values."""
    return float(x.sum() + rng.laplace()) / len(x)


def known_categories(x: Array, rng: Rng) -> Array:
    """A histogram whose empty bins have no noise."""
    counts = np.stack([(x == one).sum(1) for one in range(4)], axis=1).astype(float)
    return np.where(counts > 0, counts + rng.laplace(scale=2, size=counts.shape), 0)


def all_categories(x: Array, rng: Rng) -> Array:
    counts = np.stack([(x == one).sum(1) for one in range(4)], axis=1)
    return counts + rng.laplace(scale=2, size=counts.shape)


def within_by_trying(x: Array, rng: Rng) -> Array:
    """Noise is drawn until the result is in [0, 1]."""
    found = np.full(len(x), np.nan)
    while (left := np.isnan(found)).any():
        drawn = x[left] + rng.laplace(scale=0.5, size=left.sum())
        found[left] = np.where((drawn >= 0) & (drawn <= 1), drawn, np.nan)
    return found


def within_by_clamping(x: Array, rng: Rng) -> Array:
    return np.clip(x + rng.laplace(scale=0.5, size=len(x)), 0, 1)


def nan_passes(x: Array, rng: Rng) -> Array:
    return np.clip(x, 0, 1) + rng.laplace(size=x.shape)


def nan_is_zero(x: Array, rng: Rng) -> Array:
    return np.clip(np.nan_to_num(x), 0, 1) + rng.laplace(size=x.shape)


def eight_bit_sum(x: Array, rng: Rng) -> Array:
    """The sum of small whole numbers overflows."""
    total = x.astype(np.int8).sum(axis=1, dtype=np.int8).astype(int)
    return total + geometric(rng, 1.0, len(x))


def wide_sum(x: Array, rng: Rng) -> Array:
    return x.sum(axis=1).astype(int) + geometric(rng, 1.0, len(x))


def geometric(rng: Rng, epsilon: float, size: int) -> Array:
    chance = 1 - math.exp(-epsilon)
    return rng.geometric(chance, size) - rng.geometric(chance, size)


def seeded_by_input(x: Array, rng: Rng) -> Array:
    """The noise follows the input."""
    noise = rng.laplace(size=x.shape)
    return x + np.where(x > 0.5, noise, np.abs(noise))


def unary(chance: float, size: int = 8) -> Callable[[Array, Rng], Array]:
    """Each bit of a one-hot vector is kept with this probability."""

    def report(x: Array, rng: Rng) -> Array:
        bits = x[:, None].astype(int) == np.arange(size)
        return np.where(rng.random(bits.shape) < chance, bits, ~bits).astype(int)

    return report


def responses(chance: float, size: int = 10) -> Callable[[Array, Rng], Array]:
    """The true one of ``size`` values with this probability, else any other one."""

    def respond(x: Array, rng: Rng) -> Array:
        others = (x.astype(int) + rng.integers(1, size, size=len(x))) % size
        return np.where(rng.random(len(x)) < chance, x.astype(int), others)

    return respond


def noisy_max(*, value: bool, scale: float) -> Callable[[Array, Rng], Array]:
    def report(x: Array, rng: Rng) -> Array:
        noised = x + rng.laplace(scale=scale, size=x.shape)
        return noised.max(1) if value else noised.argmax(1)

    return report


def exponential(factor: float) -> Callable[[Array, Rng], Array]:
    """The exponential mechanism, by the largest of scores with Gumbel noise."""
    return lambda x, rng: (factor * x + rng.gumbel(size=x.shape)).argmax(1)


def above_threshold(*, reused: bool, query_scale: float) -> Callable[[Array, Rng], Array]:
    """The sparse vector technique on six queries; ``reused``: it goes on after the first one above."""

    def answer(x: Array, rng: Rng) -> Array:
        threshold = rng.laplace(scale=2.0, size=(len(x), 1))
        noise = rng.laplace(scale=query_scale, size=x.shape) if query_scale else np.zeros(x.shape)
        above = x + noise >= threshold
        return above.astype(int) if reused else np.where(above.any(1), above.argmax(1), x.shape[1])

    return answer


def bits_of_words(x: Array, rng: Rng) -> str:
    return "yes" if (rng.random() < math.e / (1 + math.e)) == bool(x) else "no"


def staircase(x: Array, rng: Rng) -> Array:
    """The staircase mechanism of epsilon 1 (Geng et al. 2015)."""
    share = 1 / (1 + math.exp(0.5))
    sign, steps = rng.choice([-1, 1], size=len(x)), rng.geometric(1 - math.exp(-1), size=len(x)) - 1
    low = rng.random(len(x)) < share / (share + (1 - share) * math.exp(-1))
    inside = rng.random(len(x))
    return x + sign * np.where(low, (steps + share * inside), (steps + share + (1 - share) * inside))


def subset_sum(x: Array, rng: Rng) -> Array:
    """The sum of a random half, with noise for the amplified epsilon."""
    amplified = math.log(1 + 2 * (math.e - 1))
    return np.where(rng.random(len(x)) < 0.5, x, 0) + rng.laplace(scale=1 / amplified, size=len(x))


CLASSIC = math.sqrt(2 * math.log(1.25e5))
"""Standard deviation of the classic Gaussian mechanism times epsilon, at delta 1e-5; stated for epsilon below 1."""
ROWS = named(
    [
        broken(
            "noise for half of the sensitivity", source="own", function=laplace(1.0), inputs=([0.0, 0.0], [1.0, 1.0])
        ),
        broken(
            "scale epsilon in place of its inverse", source="own", function=laplace(0.5), inputs=(0.0, 1.0), epsilon=0.5
        ),
        broken("standard deviation in place of the scale", source="own", function=laplace(0.5**0.5), inputs=(0.0, 1.0)),
        broken(
            "clamped to the range of the data",
            source="diffprivlib, PrivacyLeakWarning",
            function=in_own_range,
            inputs=([0.0, 0, 0, 0], [0.0, 0, 0, 1]),
        ),
        broken(
            "a mean over the true number",
            source="Casacuberta et al. 2022",
            function=mean_of_any_number,
            inputs=([0.5], [0.5, 0.5]),
            batched=False,
        ),
        broken(
            "empty categories without noise",
            source="OpenDP, then_count_by",
            function=known_categories,
            inputs=([0, 1, 1], [0, 1, 2]),
        ),
        broken(
            "drawn until the result is in range",
            source="Holohan et al. 2020",
            function=within_by_trying,
            inputs=(0.0, 0.5),
        ),
        broken("NaN passes the clip", source="own", function=nan_passes, inputs=(0.0, math.nan)),
        broken(
            "a sum that overflows",
            source="Casacuberta et al. 2022",
            function=eight_bit_sum,
            inputs=([100, 27], [100, 28]),
        ),
        broken("noise that follows the input", source="own", function=seeded_by_input, inputs=(0.0, 1.0)),
        broken(
            "randomised response of ten values as of two",
            source="own",
            function=responses(math.e / (1 + math.e)),
            inputs=(0, 1),
        ),
        broken(
            "unary encoding with epsilon for each bit",
            source="Wang et al. 2017",
            function=unary(math.e / (1 + math.e)),
            inputs=(0, 1),
        ),
        broken(
            "the noisy maximum's value",
            source="Lyu et al. 2017",
            function=noisy_max(value=True, scale=1.0),
            inputs=([0.0] * 6, [1.0] * 6),
        ),
        broken(
            "an exponential mechanism without the half",
            source="own",
            function=exponential(1.0),
            inputs=([0.0] * 5 + [1.0], [1.0] * 5 + [0.0]),
        ),
        broken(
            "a sparse vector that goes on",
            source="Lyu et al. 2017",
            function=above_threshold(reused=True, query_scale=4.0),
            inputs=([0.0] * 12, [1.0, -1.0] * 6),
        ),
        broken(
            "a sparse vector without noise of queries",
            source="Lyu et al. 2017",
            function=above_threshold(reused=True, query_scale=0.0),
            inputs=([0.0] * 6, [1.0, -1.0] * 3),
        ),
        broken(
            "the classic Gaussian formula at epsilon 10",
            source="Balle and Wang 2018",
            function=gaussian(CLASSIC / 10),
            inputs=(0.0, 1.0),
            epsilon=10.0,
            delta=1e-5,
        ),
        broken(
            "the lowest bits of floating-point Laplace noise",
            source="diffprivlib#19",
            function=laplace(1.0),
            inputs=(0.0, 1.0),
            low_bits=True,
        ),
        right("Laplace noise", source="own", function=laplace(1.0), inputs=(0.0, 1.0)),
        right(
            "a vector, by the sum of its sensitivities",
            source="own",
            function=laplace(2.0),
            inputs=([0.0, 0.0], [1.0, 1.0]),
        ),
        right(
            "all categories with noise",
            source="OpenDP, then_count_by_categories",
            function=all_categories,
            inputs=([0, 1, 1], [0, 1, 2]),
        ),
        right(
            "the result is clamped to its range",
            source="Holohan et al. 2020",
            function=within_by_clamping,
            inputs=(0.0, 0.5),
        ),
        right("NaN counts as zero", source="own", function=nan_is_zero, inputs=(1.0, math.nan)),
        right(
            "a sum of whole numbers that are wide enough",
            source="Casacuberta et al. 2022",
            function=wide_sum,
            inputs=([100, 27], [100, 28]),
        ),
        right(
            "randomised response of ten values", source="own", function=responses(math.e / (9 + math.e)), inputs=(0, 1)
        ),
        right(
            "unary encoding, half of epsilon for each bit",
            source="Wang et al. 2017",
            function=unary(math.exp(0.5) / (1 + math.exp(0.5))),
            inputs=(0, 1),
        ),
        right(
            "the noisy maximum's index",
            source="Dwork and Roth 2014",
            function=noisy_max(value=False, scale=2.0),
            inputs=([0.0] * 5 + [1.0], [1.0] * 5 + [0.0]),
        ),
        right(
            "the exponential mechanism",
            source="own",
            function=exponential(0.5),
            inputs=([0.0] * 5 + [1.0], [1.0] * 5 + [0.0]),
        ),
        right(
            "the sparse vector technique",
            source="Lyu et al. 2017",
            function=above_threshold(reused=False, query_scale=4.0),
            inputs=([0.0] * 6, [1.0] * 6),
        ),
        right(
            "the analytic Gaussian at epsilon 10",
            source="Balle and Wang 2018",
            function=gaussian(0.51),
            inputs=(0.0, 1.0),
            epsilon=10.0,
            delta=1e-5,
        ),
        right("words in place of numbers", source="own", function=bits_of_words, inputs=(0, 1), batched=False),
        right("the staircase mechanism", source="Geng et al. 2015", function=staircase, inputs=(0.0, 1.0)),
        right(
            "a random half, with the amplified epsilon",
            source="Balle et al. 2018",
            function=subset_sum,
            inputs=(0.0, 1.0),
        ),
        right(
            "an output without any information",
            source="own",
            function=lambda x, rng: np.zeros(len(x)),
            inputs=(0.0, 1.0),
        ),
    ]
)
