"""Lower bound on epsilon of pure differential privacy from how often guesses of the input are right, where each run's
input was drawn by a fair coin and a guess may be withheld.

An output y changes the odds of the two inputs by ``P1(y) / P0(y)``, which lies between ``e^-epsilon`` and ``e^epsilon``
(Kairouz, Oh, Viswanath 2015). So given all outputs, each guess is right with probability at most ``s = e^epsilon / (1 +
e^epsilon)``, independently of the others, because runs and coins are independent and the guess follows from the output.
Given the outputs, the number of right guesses is therefore stochastically at most Binomial(guesses made, s), whichever
guesses were withheld (as in Steinke, Nasr, Jagielski 2023, theorem 5.2, for one run). Hence the bound of Clopper and
Pearson (1934) on s holds at the whole of alpha: no unknown rate is left that a share of alpha would have to bound.

Outputs that point to the first input count like those that point to the second. With an event A on which the second
input is likelier and an event B on which the first one is, a violation in both directions is tested by the sum of their
counts; two bounds on the rates of A use none of B.
"""

import math
from dataclasses import dataclass

from ..binomial import upper_bound
from ..curve import Curve
from ..evidence import Setting, whole
from ..measurement import INDEPENDENT_TRIALS, Measurement
from ..power.detectable import minimum_detectable_epsilon
from .joint_point import check_independent_trials

_FEWEST = 64


@dataclass(frozen=True, kw_only=True)
class GuessCounts:
    """The numbers of guesses in runs whose input a fair coin chose, by guess and by true input.

    ``in_as_in``, ``in_as_out``: of ``n1`` runs on the second input, those guessed to be on the second and on the first;
    ``out_as_in``, ``out_as_out``: of ``n0`` runs on the first input likewise. In the others no guess was made.

    Raises ValueError unless all are whole numbers >= 0, n0 and n1 >= 1, and no more guesses than runs.
    """

    in_as_in: int
    in_as_out: int
    n1: int
    out_as_in: int
    out_as_out: int
    n0: int
    setting: Setting

    def __post_init__(self) -> None:
        for name in ("in_as_in", "in_as_out", "n1", "out_as_in", "out_as_out", "n0"):
            object.__setattr__(self, name, whole(name, getattr(self, name)))
        for side, n, both in (
            ("second", self.n1, (self.in_as_in, self.in_as_out)),
            ("first", self.n0, (self.out_as_in, self.out_as_out)),
        ):
            if n < 1 or min(both) < 0 or sum(both) > n:
                raise ValueError(
                    f"guesses on the {side} input must be >= 0 and no more than its n >= 1 runs, got {both} of {n}"
                )

    @property
    def right(self) -> int:
        """How many guesses were right."""
        return self.in_as_in + self.out_as_out

    @property
    def wrong(self) -> int:
        """How many guesses were wrong."""
        return self.in_as_out + self.out_as_in

    @property
    def false_positives(self) -> int:
        """The runs on the first input above the threshold of guesses of the second, or of the first if only that is
        guessed.
        """
        return self.out_as_in if self._guesses_second else self.n0 - self.out_as_out

    @property
    def false_negatives(self) -> int:
        """The runs on the second input that are not above this threshold."""
        return self.n1 - self.in_as_in if self._guesses_second else self.in_as_out

    @property
    def _guesses_second(self) -> bool:
        return self.in_as_in + self.out_as_in > 0


def guess_odds_of_counts(
    counts: GuessCounts,
    *,
    alpha: float,
    threshold: float | None = None,
    threshold_policy: str = "guesses",
    epsilon: float | None = None,
    witness: str = "",
) -> Measurement:
    """Compute a lower bound on epsilon at delta 0 from guesses of the inputs; it holds with probability 1 - ``alpha``.

    Assumes independent runs, inputs by independent fair coins, and guesses by a rule that was fixed before.
    ``epsilon``: the claimed one, from which ``detectable`` is computed, for an audit that bounds two rates, which has
    less power. Raises ValueError for an alpha out of range and for trials that are not independent.
    """
    check_independent_trials(counts.setting, "guess_odds", 0.0, alpha)
    return Measurement(
        estimator="guess_odds",
        assumption=INDEPENDENT_TRIALS,
        alpha=alpha,
        n0=counts.n0,
        n1=counts.n1,
        delta=0.0,
        threshold_policy=threshold_policy,
        threshold=threshold,
        false_positives=counts.false_positives,
        false_negatives=counts.false_negatives,
        epsilon_low=odds_low(counts.right, counts.wrong, alpha),
        estimate=math.log(counts.right / counts.wrong) if counts.right and counts.wrong else None,
        ceiling=odds_low(counts.n0 + counts.n1, 0, alpha),
        detectable=minimum_detectable_epsilon(
            n0=counts.n0,
            n1=counts.n1,
            alpha=alpha,
            delta=0.0,
            fpr=(counts.false_positives + 0.5) / (counts.n0 + 1),
            curve=None,
            epsilon=epsilon,
        ),
        witness=witness,
        setting=counts.setting,
    )


def fits_coins(*, delta: float, curve: Curve | None, trials: int) -> bool:
    """Return whether a claim of ``delta`` and ``curve`` is tested by guesses of ``trials`` runs per input on average.

    The bound holds for pure differential privacy; and of few runs, coins might leave an input none.
    """
    return delta == 0 and curve is None and trials >= _FEWEST


def odds_low(right: int, wrong: int, alpha: float) -> float:
    """Return the largest epsilon that so many right and wrong guesses refute at level ``alpha``, 0 where they refute
    none.
    """
    if right + wrong == 0:
        return 0.0
    mistaken = float(upper_bound(wrong, right + wrong, alpha))
    return max(0.0, math.log((1 - mistaken) / mistaken)) if mistaken < 1 else 0.0
