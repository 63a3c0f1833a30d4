"""Audits one mechanism, which may be any function of an input and a random generator; no federation is trained.

An event is fixed on a pilot; then fresh trials of both inputs are streamed and only counted. The bound (an exact test
of the odds of right guesses or of the ratio of two rates, or Clopper and Pearson 1934 in both directions) assumes
nothing about the mechanism except that its trials are independent.

With outputs of runs that were made before, such as trained models of two neighbouring inputs, every second output of
each input only learns what distinguishes the inputs and fixes a threshold; the rest is counted.
"""

import inspect
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..arrays import FloatArray
from ..binomial import ErrorCounts, check_number, check_positive
from ..claim import Adjacency, Claim, check_claim
from ..estimators.catalogue import Estimator
from ..estimators.clopper_pearson import clopper_pearson_of_counts
from ..estimators.event_ratio import event_ratio_of_counts
from ..estimators.guess_odds import EventGuesses, GuessCounts, guess_odds_of_counts
from ..estimators.hockey_stick import MechanismOutputs
from ..evidence import Design, Projections, Setting
from ..finding import Finding
from ..measurement import Measurement
from ..supplied.chosen import (
    Choice,
    EstimatorOptions,
    chosen,
    measure_runs,
    measured_by,
    options_of_runs,
    uses_threshold,
)
from ..supplied.given import check_alpha, check_copies, check_whole, detached
from ..supplied.power import judged_with_power
from ..threshold import CountingPlan
from ..wording import shortened
from .search import Event, Found, find_event
from .trial_stream import Mechanism, TrialPurpose, coins
from .trials import Counted, Trials, scored_events

DEFAULT_TRIALS = 100_000
"""Trials counted per arm by default."""


def audit_mechanism(
    mechanism: Mechanism,
    claim: Claim,
    *,
    inputs: tuple[Any, Any] | None = None,
    pairs: Sequence[tuple[Any, Any]] | None = None,
    trials: int = DEFAULT_TRIALS,
    pilot: int | None = None,
    seed: int = 0,
    alpha: float = 0.05,
    batched: bool = False,
    score: Callable[[NDArray[Any]], ArrayLike] | None = None,
    low_bits: bool = False,
    estimator: Choice | Sequence[Choice] | None = None,
    options: EstimatorOptions | None = None,
) -> Finding:
    """Judge a claim by running a mechanism many times on each of two neighbouring inputs.

    ``trials`` fresh runs on each input are counted. Of a claim without a curve, fair coins may choose the inputs of
    twice as many runs instead, where this is expected to show more (``guess_odds``).

    ``mechanism(x, rng)`` is called once per trial and must draw all noise from ``rng``. With ``batched`` it is
    called for many trials at once: x is a read-only array with one row per trial, ``(n, *shape)``, and n rows must
    be returned. Outputs are numbers or strings, all of one shape. Memory does not grow with ``trials``, and the
    same ``seed`` gives the same finding.

    ``inputs``: (x0, x1), neighbours in the claim's adjacency. Or ``pairs``: several such pairs, as ``ball_neighbours``
    makes them; pilots choose the most promising one, which is audited with fresh trials and named in the witness. Give
    only inputs for which the claim is stated, because every input of a pair counts as such. NaN is a value too: a
    mechanism that returns NaN for an input with NaN, as noise added to NaN does, reveals this input and is REFUTED.

    ``score``: ``(n, ...)`` outputs -> (n,) finite numbers, each computed from its output alone, higher means x1. None
    learns scores (``candidates``) and takes the one that fresh trials choose. ``pilot``: trials per input, on average
    over the pairs, that choose a pair, learn scores, choose among them and fix the threshold, and are never counted; by
    default half of ``trials``, from 40 to 2^20.

    ``low_bits``: whether the event is one of the lowest bits of floating-point outputs, which no other audit looks at:
    ``x + rng.laplace()`` itself fails this check (Mironov 2012).

    ``estimator``: a name of ``fedassay list estimators`` of independent runs; several share alpha, because the best of
    them is reported. It measures the scores of the counted trials (``hockey_stick``: their outputs) at the threshold
    that the pilot fixed. None uses ``guess_odds``, ``event_ratio`` or ``clopper_pearson``, which only count.
    ``options``: ``EstimatorOptions`` (``fedassay.audit.supplied.chosen``) with what some estimators need besides, such
    as the law of the noise; one that the estimators do not use is refused.

    The curve of the claim is tested too where it states one. The finding holds with probability 1 - ``alpha``, provided
    that trials are independent. It covers neither other inputs nor leaks that the chosen event does not separate.

    Raises ValueError for arguments out of range and for outputs that cannot be audited, TypeError for a mechanism
    or score that cannot be called, options of another type and a claim that is not a Claim. Exceptions of the mechanism
    pass through, with a note that names the input and the trial.
    """
    _check_functions(mechanism, score, low_bits)
    check_claim(claim)
    check_alpha(alpha)
    check_whole("trials", trials, least=2)
    check_whole("seed", seed, least=0)
    if pilot is not None:
        check_whole("pilot", pilot, least=4)
    candidates = _pairs(inputs, pairs)
    if not candidates:
        raise ValueError("pairs must hold at least one pair of inputs, got none")
    found = [] if estimator is None else chosen(estimator, Design.INDEPENDENT, ())
    stated = options_of_runs(options, found, seed=seed)
    plan = CountingPlan(trials=int(trials), delta=claim.delta, alpha=alpha, curve=claim.curve)
    best = find_event(
        mechanism,
        candidates,
        plan,
        seed=seed,
        batched=batched,
        pilot=pilot,
        score=score,
        low_bits=low_bits,
        coins=not found,
    )
    if not found:
        return judged_with_power(claim, _measured(best, plan, claim, seed))
    outputs = [list(side.draw(TrialPurpose.COUNTED, plan.trials)) for side in best.streams]
    return judged_with_power(
        claim, _measured_by(found, best.event, outputs, claim, alpha=alpha, options=stated, witness=_witness(best))
    )


def _check_functions(mechanism: object, score: object, low_bits: bool) -> None:
    if not callable(mechanism):
        raise TypeError(f"mechanism must be a function mechanism(x, rng), got {mechanism!r}")
    if inspect.iscoroutinefunction(mechanism) or inspect.isgeneratorfunction(mechanism):
        raise TypeError(
            "mechanism must be a plain function that returns its output, not async and without yield, "
            f"got {mechanism!r}"
        )
    if score is not None and not callable(score):
        raise TypeError(f"score must be a function score(outputs), got {score!r}")
    if score is not None and low_bits:
        raise ValueError("give either score or low_bits, got both")


def _measured(best: Found, plan: CountingPlan, claim: Claim, seed: int) -> Measurement:
    """The bound from fresh trials; the search costs no alpha, because it used pilots only."""
    # Coins decide how many of all trials each input gets where guesses are tested.
    n1 = plan.trials if best.event.rule is None else int(coins(seed, str(best.event)).binomial(2 * plan.trials, 0.5))
    trials = Trials(
        draw=lambda arm, runs: best.streams[arm].draw(TrialPurpose.COUNTED, runs),
        looks=((2 * plan.trials - n1, n1),),
        alpha=plan.alpha,
    )
    return trials.count(best.event, lambda counted: _bound(best, counted, claim, seed))


def _bound(best: Found, counted: Counted[EventGuesses], claim: Claim, seed: int) -> Measurement:
    event, out, within, setting = best.event, counted.out, counted.within, Setting.claimed(claim)
    shown: dict[str, Any] = {
        "threshold_policy": f"event fixed on pilot trials, seed {seed}",
        "epsilon": claim.epsilon,
        "witness": _witness(best),
    }
    sizes, threshold = {"n1": counted.n1, "n0": counted.n0}, event.cut.threshold
    if event.rule is not None:
        sides = {"in_as_in": within.second, "in_as_out": within.first, "out_as_in": out.second, "out_as_out": out.first}
        guesses = GuessCounts(**sides, **sizes, setting=setting)
        shown |= {"delta": claim.delta, "sides": event.rule.sides}
        return guess_odds_of_counts(guesses, alpha=counted.alpha, threshold=threshold, **shown)
    errors = {"false_positives": out.second, "false_negatives": counted.n1 - within.second}
    counts = ErrorCounts(threshold=threshold, **errors, **sizes, alpha=counted.alpha)
    shown |= {"setting": setting, "delta": claim.delta}
    if event.contrast is not None:
        return event_ratio_of_counts(counts, contrast=event.contrast, **shown)
    return clopper_pearson_of_counts(counts, curve=claim.curve, **shown)


def _measured_by(
    found: Sequence[Estimator],
    event: Event,
    outputs: Sequence[Sequence[NDArray[Any]]],
    claim: Claim,
    *,
    alpha: float,
    options: EstimatorOptions,
    witness: str,
) -> Measurement:
    """The bound that named estimators find in the chunks of counted outputs of the first and of the second input."""

    def measure(one: Estimator, share: float) -> Measurement:
        if one.evidence in (MechanismOutputs, Projections):
            out, within = (np.concatenate(side).reshape(sum(map(len, side)), -1) for side in outputs)
        else:
            out, within = (np.concatenate([event.score.score(chunk) for chunk in side]) for side in outputs)
        fixed = replace(options, threshold=event.cut.threshold if uses_threshold(one) else None)
        setting = Setting.claimed(claim)
        return measure_runs(one, within, out, setting, claim, alpha=share, options=fixed, witness=witness)

    return measured_by(found, measure, claim, alpha)


def _witness(found: Found) -> str:
    x0, x1 = (side.input for side in found.streams)
    several = "" if found.pairs == 1 else f", chosen from {found.pairs} pairs on pilot trials"
    return f"inputs {x0} and {x1}{several}; event {found.event}"


def _pairs(inputs: tuple[Any, Any] | None, pairs: Sequence[tuple[Any, Any]] | None) -> list[tuple[Any, Any]]:
    if (inputs is None) == (pairs is None):
        raise ValueError(f"give either inputs or pairs, got {'neither' if inputs is None else 'both'}")
    found = []
    for both in [inputs] if pairs is None else pairs:
        if not isinstance(both, Sequence | np.ndarray) or isinstance(both, str) or len(both) != 2:
            raise ValueError(f"a pair must be two inputs (x0, x1), got {shortened(both)}")
        if _equal(both[0], both[1]):
            raise ValueError(
                f"a pair must be two different inputs, got {shortened(both[0])} twice, which cannot refute any claim"
            )
        found.append((both[0], both[1]))
    return found


def _equal(x0: Any, x1: Any) -> bool:
    if isinstance(x0, dict) and isinstance(x1, dict):
        return x0.keys() == x1.keys() and all(_equal(x0[key], x1[key]) for key in x0)
    if isinstance(x0, list | tuple) and isinstance(x1, list | tuple):
        return len(x0) == len(x1) and all(map(_equal, x0, x1))
    if isinstance(x0, np.ndarray) or isinstance(x1, np.ndarray):
        return np.array_equal(x0, x1)
    try:
        same = x0 is x1 or x0 == x1
        return bool(np.all(np.asarray(same)))
    # Inputs that cannot be compared may differ, so they are not refused.
    except (TypeError, ValueError, RuntimeError):
        return False


Pair = tuple[FloatArray, FloatArray]


def ball_neighbours(
    dimension: int,
    *,
    radius: float,
    norm: int = 2,
    adjacency: Adjacency | str = Adjacency.REPLACE_ONE,
    directions: int = 2,
    seed: int = 0,
) -> list[Pair]:
    """Return pairs of neighbouring vectors (x0, x1) to pass to ``audit_mechanism`` as ``pairs``.

    Each vector has shape ``(dimension,)`` and an L2 or L1 norm of ``radius`` or 0.

    The vectors point along the first coordinate, the last, all coordinates equally, and ``directions`` random ones.
    Each is paired with zero, and under replace-one adjacency also with its opposite, which is twice as far away.
    Add/remove and zero-out pairs start at zero, because an absent unit contributes nothing. No list of pairs is
    guaranteed to contain the worst one.

    Raises ValueError unless dimension >= 1, radius > 0 and finite, norm is 1 or 2, directions >= 0.
    """
    for name, value in (("dimension", dimension), ("directions", directions)):
        check_number(name, value)
    check_positive("radius", radius)
    if dimension < 1 or directions < 0:
        raise ValueError(
            f"dimension must be >= 1 and the number of random directions >= 0, got {dimension} and {directions}"
        )
    if norm not in (1, 2):
        raise ValueError(f"norm must be 1 (for L1) or 2 (for L2), got {norm}")
    # Both ends, because a slice that is off by one leaves out the first or the last coordinate.
    corners = np.zeros((3 if dimension > 1 else 1, dimension))
    corners[0, 0] = 1.0
    corners[1:, -1] = 1.0
    corners[2:] = 1.0
    random = np.random.default_rng(seed).standard_normal((directions if dimension > 1 else 0, dimension))
    vectors = [radius * ray / np.linalg.norm(ray, norm) for ray in chain(corners, random)]
    zero = np.zeros(dimension)
    pairs = [(zero, vector) for vector in vectors]
    if Adjacency(adjacency) is Adjacency.REPLACE_ONE:
        pairs += [(zero - vector, vector) for vector in vectors]
    return pairs


FEWEST = 8
"""The fewest outputs of an input: with fewer, there is nothing to learn from and to count."""


def audit_outputs(
    nonmember: ArrayLike,
    member: ArrayLike,
    claim: Claim,
    *,
    inputs: tuple[Any, Any] = (0, 1),
    alpha: float = 0.05,
    estimator: Choice | Sequence[Choice] | None = None,
    options: EstimatorOptions | None = None,
) -> Finding:
    """Judge a claim by the outputs of independent runs on two neighbouring inputs that the user supplies.

    ``nonmember``: (n0, ...) outputs on the first input, ``member``: (n1, ...) on the second: numbers (NaN and
    infinities are values) or strings, all of one shape, n0, n1 >= 8. ``inputs``: the two inputs themselves, if they are
    vectors that help to score the outputs. ``estimator``, ``options``: as for ``audit_mechanism``, by default
    ``clopper_pearson``.

    The finding holds with probability 1 - ``alpha`` if the runs are independent. It is UNDERPOWERED where no violation,
    or only one of more than ten times the claimed epsilon, would be refuted with 90 % power.

    Raises ValueError for outputs of other shapes or types, outputs that both sides share or that are all repeated, and
    alpha outside (0, 0.5]; TypeError for a claim that is not a Claim.
    """
    check_claim(claim)
    check_alpha(alpha)
    found = chosen(estimator, Design.INDEPENDENT, ("clopper_pearson",))
    given = options_of_runs(options, found)
    sides = _outputs("nonmember", nonmember), _outputs("member", member)
    if sides[0].shape[1:] != sides[1].shape[1:] or (sides[0].dtype.kind in "US") != (sides[1].dtype.kind in "US"):
        raise ValueError(
            f"outputs on both inputs must have the same type and shape, got {sides[0].dtype} of {sides[0].shape[1:]} "
            f"and {sides[1].dtype} of {sides[1].shape[1:]}"
        )
    check_copies(*sides, design=Design.INDEPENDENT)
    pilots, counted = [side[::2] for side in sides], [[side[1::2]] for side in sides]
    plan = CountingPlan(trials=min(len(side) // 2 for side in sides), delta=claim.delta, alpha=alpha, curve=claim.curve)
    events = (one.event for one in scored_events(pilots[0], pilots[1], plan, inputs))
    event = max(events, key=lambda event: event.cut.promise)
    words = f"every second output was counted; event {event}"
    return judged_with_power(
        claim, _measured_by(found, event, counted, claim, alpha=alpha, options=given, witness=words)
    )


def _outputs(name: str, values: ArrayLike) -> NDArray[Any]:
    array = np.asarray(detached(values))
    if array.dtype.kind not in "biufUS" or array.ndim == 0 or array.size == 0:
        raise ValueError(
            f"{name} must be an array (n, ...) of n outputs, numbers or strings, got {array.dtype} of {array.shape}"
        )
    if len(array) < FEWEST:
        raise ValueError(f"{name} must hold at least {FEWEST} outputs, got {len(array)}")
    return array
