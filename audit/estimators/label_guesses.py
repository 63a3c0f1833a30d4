"""Bound epsilon of a claim about labels from guesses of labels that are not planted.

The labels' own randomness takes the place of the coins of Steinke, Nasr and Jagielski (2023). Let the labels be
independent of each other given the columns, and let label c have at most probability b_c given any columns. Under
label DP with epsilon and delta 0, what is released and all other labels raise the odds of a label by at most e^epsilon,
so that each guess of c is right with probability at most b_c e^eps / (b_c e^eps + 1 - b_c), whatever the other guesses
were. The number of right guesses is therefore at most that of independent guesses which are right with these
probabilities. Which people are guessed about may depend on the release, because the bound holds given the release.

Where the labels' probabilities are not known, the same number of right guesses may come from the columns alone, and
nothing is bounded.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.special import expit, logit
from scipy.stats import binom

from ..arrays import FloatArray
from ..binomial import check_level
from ..bisection import crossing
from ..evidence import Design, Guesses, Setting
from ..measurement import OBSERVED_LABELS, UNKNOWN_LABELS, Kind, Measurement
from .one_run import guesses_measured

_MOST = 50.0
"""Largest epsilon that is looked at: beyond it every guess may be right."""


@dataclass(frozen=True, kw_only=True)
class LabelGuesses:
    """The guesses of an attack about people's labels, counted by the guessed label.

    Args:
        made: (classes,), guesses of each label.
        right: of all guesses together.
        people: about whom guesses could have been made.

    Raises:
        ValueError: for counts that contradict each other, or a design other than one run.
    """

    made: tuple[int, ...]
    right: int
    people: int
    setting: Setting

    def __post_init__(self) -> None:
        if min(self.made, default=-1) < 0 or not 0 <= self.right <= sum(self.made) <= self.people:
            raise ValueError(
                f"numbers of guesses must satisfy 0 <= right <= made <= people, got {self.right} right of "
                f"{self.made} made, {self.people} people"
            )
        if self.setting.design is not Design.ONE_RUN:
            raise ValueError(
                f"guesses of labels must come from one run, got evidence of the design {self.setting.design.value}"
            )


def p_value(guesses: LabelGuesses, prior: Sequence[float], *, epsilon: float) -> float:
    """Return the largest probability of at least this many right guesses under label DP with ``epsilon``.

    ``prior``: (classes,), the largest probability of each label given any columns, in (0, 1].

    Raises:
        ValueError: for another number of classes, or probabilities that no labels can have.
    """
    return float(_distribution(guesses.made, _checked(prior, guesses), epsilon)[guesses.right :].sum())


def label_guesses_measured(
    guesses: LabelGuesses, prior: Sequence[float], *, alpha: float, known: bool, epsilon: float, witness: str = ""
) -> Measurement:
    """Return a lower bound on epsilon at delta 0; it is only an estimate if the labels' probabilities are not
    ``known``.

    Args:
        prior: (classes,), the largest probability of each label given any columns; where they are not known, the share
            of each label.
        epsilon: the claimed one, from which the detectable epsilon is computed, for a mechanism under which each guess
            is right with the largest probability that its epsilon allows.

    Raises:
        ValueError: as ``p_value``, and for alpha outside (0, 1).
    """
    check_level("alpha", alpha)
    bounds, made = _checked(prior, guesses), sum(guesses.made)
    estimate = _last(lambda eps: float(_chances(guesses.made, bounds, eps).sum()) < guesses.right)
    about_people = Guesses(guesses.right, made, guesses.people, guesses.setting)
    found: dict[str, Any] = {"estimator": "label_guesses", "delta": 0.0, "witness": witness}
    found["estimate"] = estimate if estimate < _MOST else None
    if not known:
        nothing: dict[str, Any] = {"kind": Kind.ESTIMATE, "assumption": UNKNOWN_LABELS, "alpha": 1.0}
        return guesses_measured(about_people, lambda right: 0.0, **nothing, **found)

    def bound(right: int) -> float:
        return _last(lambda eps: p_value(replace(guesses, right=right), prior, epsilon=eps) < alpha)

    detectable = _detectable(guesses.made, bounds, alpha=alpha, epsilon=epsilon)
    return guesses_measured(
        about_people, bound, assumption=OBSERVED_LABELS, alpha=alpha, detectable=detectable, **found
    )


def _checked(prior: Sequence[float], guesses: LabelGuesses) -> FloatArray:
    bounds = np.asarray(prior, dtype=np.float64)
    if bounds.shape != (len(guesses.made),):
        raise ValueError(
            f"prior must have one probability for each of the {len(guesses.made)} labels, got shape {bounds.shape}"
        )
    check_prior(prior)
    return bounds


def check_prior(prior: Sequence[float]) -> None:
    """Raise ValueError unless the labels can have these upper limits on their probabilities: each in (0, 1], with a sum
    of at least 1.
    """
    if not all(0 < one <= 1 for one in prior) or math.fsum(prior) < 1 - 1e-6:
        raise ValueError(
            "prior must hold an upper bound on the probability of each label, in (0, 1] and with sum "
            f">= 1, got {list(prior)}"
        )


def _chances(made: Sequence[int], bounds: FloatArray, epsilon: float) -> FloatArray:
    """The expected number of right guesses of each label at most."""
    return np.asarray(np.asarray(made) * expit(logit(bounds) + epsilon))


def _distribution(made: Sequence[int], bounds: FloatArray, epsilon: float) -> FloatArray:
    """The probabilities of 0, 1, ... right guesses: a sum of one binomial number for each label."""
    total = np.ones(1)
    for count, chance in zip(made, expit(logit(bounds) + epsilon), strict=True):
        if count:
            total = np.convolve(total, binom.pmf(np.arange(count + 1), count, chance))
    return total


def _detectable(made: Sequence[int], bounds: FloatArray, *, alpha: float, epsilon: float) -> float | None:
    """The smallest epsilon that is refuted with probability 0.9; None where not even right guesses alone refute."""
    tails = np.cumsum(_distribution(made, bounds, epsilon)[::-1])[::-1]
    refuting = np.flatnonzero(tails < alpha)
    if not len(refuting):
        return None
    return _last(lambda eps: float(_distribution(made, bounds, eps)[refuting[0] :].sum()) < 0.9)


def _last(holds: Callable[[float], bool]) -> float:
    return crossing(holds, high=_MOST)[0]
