"""Measures how often each estimator wrongly refutes true claims about known mechanisms; compares the rate with alpha.

A bound may err with chance alpha. ``limit`` is the 99.9 % quantile of that binomial: a correct bound that errs with
chance exactly alpha fails a row once in a thousand, a conservative one more rarely. Credible intervals and estimates
guarantee nothing; the table reports how often they lie above the truth.
"""

import math
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
from scipy.stats import binom

from ..estimators.catalogue import Estimator, estimators
from ..evidence import Design, Guesses
from ..measurement import NEEDS_GAUSSIAN_CURVE, Kind, Measurement
from .degenerate import degenerate_inputs
from .known_mechanisms import REVEALED, KnownMechanism, evidence_of, known_mechanism_for, levels_of

ALPHA = 0.05
TRIALS = 500
CANARIES = 200
FEWER = 10
"""Estimators that are no bound are repeated this many times less often, because their share decides nothing."""
HOLDS, FAILS = "holds", "FAILS"

Scores = tuple[Any, Any]


@dataclass(frozen=True, kw_only=True)
class CalibrationRow:
    """One table row of the calibration: how often an estimator wrongly refuted a true claim about a mechanism of known
    privacy.

    ``refuted`` of ``repeats`` audits refuted; at most ``limit`` are allowed (None: no limit).

    ``degenerate``: whether the row is one degenerate input rather than a mechanism. ``outcome``: "holds", "FAILS" with
    what failed, "refused: reason", "finite", "error: reason", or a share in words.
    """

    estimator: str
    kind: Kind
    situation: str
    repeats: int
    refuted: int | None
    alpha: float
    limit: int | None
    outcome: str
    degenerate: bool = False

    @property
    def fails(self) -> bool:
        return self.outcome.startswith(FAILS)


@dataclass(frozen=True, kw_only=True)
class Situation:
    """A way of drawing attack scores from a mechanism of known privacy, to count how often estimators refute true
    claims.

    ``draw(law, rng)`` gives the scores with and without the canary under the claimed ``law``; ``null``: epsilon 0 is
    claimed.

    ``trials``: the design stated with the evidence, its true one where None; ``counted``: whether a bound must hold;
    ``delta``: replaces that of a law that is not Gaussian; ``curve``: the Gaussian curve is stated too; ``stream``:
    name of the random stream, the situation's own where empty.
    """

    draw: Callable[[KnownMechanism, np.random.Generator], Scores]
    null: bool = False
    curve: bool = False
    trials: Design | None = None
    counted: bool = True
    delta: float | None = None
    stream: str = ""


def calibrate(
    *, repeats: int, seed: int = 0, only: Iterable[Estimator] | None = None, done: Callable[[str], None] | None = None
) -> Iterator[CalibrationRow]:
    """Count how often each estimator wrongly refutes true claims; yield one table row per estimator and way of drawing
    scores.

    Only the estimators in ``only`` are run if it is given; each situation is repeated ``repeats`` times.

    ``seed``: of all random streams; ``done`` is called with the name of each estimator that is finished. Raises
    ValueError for repeats < 1.
    """
    if repeats < 1:
        raise ValueError(f"repeats must be >= 1, got {repeats}")
    for estimator in estimators().values() if only is None else only:
        yield from _rows(estimator, repeats, seed)
        if done is not None:
            done(estimator.name)


def null_measurement(estimator: Estimator) -> Measurement:
    """Run the estimator once on scores that carry no information about membership, and return its result.

    The kind and the assumption of the estimator are read from the result.
    """
    law, rng = known_mechanism_for(estimator.evidence, gaussian=True), np.random.default_rng(0)
    member, nonmember = (law.draw(0, 40, rng) for _ in range(2))
    evidence = evidence_of(estimator, member, nonmember, law, rng=rng, trials=estimator.design)
    return estimator.measure(*evidence, **levels_of(estimator, law, alpha=ALPHA))


def _rows(estimator: Estimator, repeats: int, seed: int) -> Iterator[CalibrationRow]:
    seen = null_measurement(estimator)
    law = known_mechanism_for(estimator.evidence, gaussian=seen.assumption in NEEDS_GAUSSIAN_CURVE)
    times = repeats if seen.kind is Kind.BOUND else math.ceil(repeats / FEWER)
    # Kind and assumption are read from a measurement, so that no list of estimators has to be kept up to date.
    for name, situation in _situations(estimator, law).items():
        # Every row has its own random stream, so that a new situation or estimator changes no other row.
        stream = situation.stream or name
        rng = np.random.default_rng([seed, zlib.crc32(estimator.name.encode()), zlib.crc32(stream.encode())])
        yield _repeated(estimator, seen.kind, name, situation, law, times, rng)
    for name, outcome in degenerate_inputs(estimator, law, seen.kind):
        yield CalibrationRow(
            estimator=estimator.name,
            kind=seen.kind,
            situation=name,
            repeats=1,
            refuted=None,
            alpha=seen.alpha,
            limit=None,
            outcome=outcome,
            degenerate=True,
        )


def _repeated(
    estimator: Estimator,
    kind: Kind,
    name: str,
    situation: Situation,
    law: KnownMechanism,
    times: int,
    rng: np.random.Generator,
) -> CalibrationRow:
    if situation.curve:
        law = known_mechanism_for(estimator.evidence, gaussian=True)
    law = law if situation.delta is None or law.gaussian else replace(law, delta=situation.delta)
    levels = levels_of(estimator, law, alpha=ALPHA, null=situation.null, curve=situation.curve)
    # Guesses and counts recur among the repeats, and some estimators take long for each.
    measure = lru_cache(maxsize=512)(lambda *evidence: estimator.measure(*evidence, **levels))
    own, refuted, repeats = estimator.design, 0, 0
    trials, outcome = situation.trials or own, ""
    for repeats in range(1, times + 1):
        try:
            evidence = evidence_of(estimator, *situation.draw(law, rng), law, rng=rng, trials=trials)
            seen = measure(*evidence)
        except ValueError as error:
            # A refusal concerns the design and so comes at once; a later error depends on the data and is a failure.
            outcome = f"refused: {error}" if repeats == 1 else f"{FAILS}: repeat {repeats}: {error}"
            break
        refuted += _above(seen, 0.0 if situation.null else law.epsilon)
        if trials is not own:
            outcome = f"{FAILS}: {trials.value} trials were not refused"
            break
    # No limit for a row that was refused or failed, which has its outcome already.
    limit = int(binom.ppf(0.999, times, ALPHA)) if kind is Kind.BOUND and situation.counted and not outcome else None
    return CalibrationRow(
        estimator=estimator.name,
        kind=kind,
        situation=name,
        repeats=repeats,
        refuted=None if outcome else refuted,
        alpha=1.0 if kind is Kind.ESTIMATE else ALPHA,
        limit=limit,
        outcome=outcome or _outcome(kind, refuted, times, limit),
    )


def _outcome(kind: Kind, refuted: int, times: int, limit: int | None) -> str:
    if kind is not Kind.BOUND:
        return f"no bound: {refuted / times:.0%} above the claim"
    if limit is None:
        return f"caught {refuted / times:.0%}"
    return HOLDS if refuted <= limit else FAILS


def _above(seen: Measurement, epsilon: float) -> bool:
    """Whether this measurement exceeds ``epsilon``, by any of its numbers."""
    if seen.kind is Kind.ESTIMATE:
        return seen.estimate is not None and seen.estimate > epsilon
    if seen.credible is not None:
        return seen.credible[0] > epsilon
    return seen.epsilon_low > epsilon or bool(seen.below_curve)


def _situations(estimator: Estimator, law: KnownMechanism) -> dict[str, Situation]:
    one_run = estimator.design is Design.ONE_RUN
    sides = _coins if one_run else _trials
    found = {
        "null": Situation(draw=sides(0.0), null=True),
        "boundary": Situation(draw=sides(1.0)),
        "ties": Situation(draw=_tied(sides(0.0)), null=True),
    }
    if one_run:
        # All canaries fail together with probability delta, which the theorem's term in delta must cover; a large
        # delta lets it happen within few repeats.
        found["shared coin"] = Situation(draw=_one_coin_for_all, delta=0.2 if estimator.evidence is Guesses else None)
        found["shared noise"] = Situation(draw=_one_offset_for_all)
        found["trials of another design"] = Situation(draw=sides(0.0), trials=Design.INDEPENDENT)
    else:
        found["unequal sides"] = Situation(draw=_trials(1.0, member=4 * TRIALS, nonmember=TRIALS // 5))
        found["shared coin"] = Situation(draw=sides(0.0), trials=Design.CLUSTERED)
    # Streams keep their first names, because new ones would change the numbers of earlier tables.
    if "curve" in estimator.required | estimator.optional:
        found["boundary, stated curve"] = Situation(draw=sides(1.0), curve=True, stream="boundary, signed curve")
    if not law.gaussian:
        found["boundary, delta 0"] = Situation(draw=sides(1.0), delta=0.0)
    broken = Situation(draw=sides(2.0), counted=False, stream="broken twin (half the noise)")
    return found | {"broken version (half the noise)": broken}


def _trials(leak: float, *, member: int = TRIALS, nonmember: int = TRIALS) -> Callable[..., Scores]:
    return lambda law, rng: (law.draw(1, member, rng, leak=leak), law.draw(0, nonmember, rng, leak=leak))


def _coins(leak: float) -> Callable[..., Scores]:
    """Each canary of one run in or out by a fair coin of its own."""

    def draw(law: KnownMechanism, rng: np.random.Generator) -> Scores:
        taken = int(rng.binomial(CANARIES, 0.5))
        return law.draw(1, taken, rng, leak=leak), law.draw(0, CANARIES - taken, rng, leak=leak)

    return draw


def _tied(draw: Callable[..., Scores]) -> Callable[..., Scores]:
    """Scores rounded to halves: many are equal, and some are equal to the threshold."""

    def tied(law: KnownMechanism, rng: np.random.Generator) -> Scores:
        member, nonmember = draw(law, rng)
        return np.round(2 * member) / 2, np.round(2 * nonmember) / 2

    return tied


def _one_coin_for_all(law: KnownMechanism, rng: np.random.Generator) -> Scores:
    """One coin for all canaries: with probability delta all are revealed; under a Gaussian law all leak or none."""
    if law.gaussian:
        return _coins(float(rng.random() < 0.5))(law, rng)
    member, nonmember = _coins(1.0)(replace(law, delta=0.0), rng)
    if rng.random() < law.delta:
        return np.full(len(member), REVEALED), np.full(len(nonmember), -REVEALED)
    return member, nonmember


def _one_offset_for_all(law: KnownMechanism, rng: np.random.Generator) -> Scores:
    member, nonmember = _coins(1.0)(law, rng)
    # Noise that all canaries share moves no score against another, so a one-run bound must survive it.
    offset = 3 * rng.standard_normal()
    return member + offset, nonmember + offset
