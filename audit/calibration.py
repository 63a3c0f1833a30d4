"""Calibration: how often each estimator wrongly refutes true claims about known mechanisms, and what each estimator
returns for degenerate inputs.

All evidence is built from scores drawn with and without the canary, so that one law serves all estimators.

On degenerate inputs every estimator returns a finite answer or a clear error, never NaN or infinity.

A bound may err with chance alpha. ``limit`` is the 99.9 % quantile of that binomial: a correct bound that errs with
chance exactly alpha fails a row once in a thousand, a conservative one more rarely. Estimates guarantee
nothing; the table reports how often they lie above the truth.
"""

import math
import warnings
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
from scipy.special import ndtri
from scipy.stats import binom

from .arrays import FloatArray
from .claim import Adjacency, Unit
from .curve import GaussianCurve, epsilon_from_mu
from .estimators.catalogue import INPUTS, Estimator, estimators
from .estimators.one_run import guess
from .estimators.release_tests import BrokenRelease, GaussianRelease, design_test
from .evidence import CanaryScores, CandidateScores, Design, Guesses, Projections, Setting
from .measurement import FINITE, NEEDS_GAUSSIAN_CURVE, Kind, Measurement
from .observer import UPLOADS
from .supplied.chosen import evidence_of_runs
from .threshold import FixedThreshold
from .wording import nearest

MU, EPSILON = 1.0, 1.0
DIMENSION = 10_000
REVEALED = 20.0
"""The score of a canary whose membership is revealed outright; it lies beyond all other scores."""


@dataclass(frozen=True, kw_only=True)
class KnownMechanism:
    """A mechanism that is exactly (``epsilon``, ``delta``)-DP, observed through one score per trial.

    Gaussian: N(0, 1) against N(MU, 1), exactly MU-GDP. Otherwise membership is revealed with chance delta, and else the
    score is Laplace of scale 1 about 0 or EPSILON. Its hockey-stick divergence is delta at every cut beyond both
    centres, so that every such cut meets the claim exactly, and choosing the luckiest cut becomes visible.
    """

    gaussian: bool
    epsilon: float
    delta: float

    @property
    def threshold(self) -> float:
        """The score above which a trial of this mechanism counts as a guess of "member"; it is fixed before any score
        is drawn.

        It is halfway between both means for a Gaussian, else at the edge of the region in which every threshold meets
        the claim exactly.
        """
        return MU / 2 if self.gaussian else EPSILON

    def draw(self, arm: int, n: int, rng: np.random.Generator, *, leak: float = 1.0) -> FloatArray:
        """Draw the scores of ``n`` trials with the canary (``arm`` 1) or without it (``arm`` 0), as an array of
        shape ``(n,)``.

        ``leak`` sets how much the scores reveal: 0 nothing, 1 as much as the claim allows, 2 as with half the noise.
        """
        # A leak above 1 lowers the noise and moves no centre, as the usual bug does.
        noise = 1 / max(leak, 1.0)
        if self.gaussian:
            return rng.normal(MU * arm * (leak > 0), noise, n)
        scores = rng.laplace(EPSILON * arm * (leak > 0), noise, n)
        revealed = rng.random(n) < self.delta * (leak > 0)
        return np.asarray(np.where(revealed, REVEALED if arm else -REVEALED, scores), dtype=np.float64)


def known_mechanism_for(evidence: type[Any], *, gaussian: bool) -> KnownMechanism:
    """Return the mechanism of known privacy on which an estimator that takes this type of evidence is calibrated.

    ``gaussian``: whether the estimator or the evidence assumes a Gaussian mechanism.
    """
    if gaussian or evidence in (Projections, CandidateScores):
        return KnownMechanism(gaussian=True, epsilon=epsilon_from_mu(MU, 1e-5), delta=1e-5)
    # Trials tolerate a large delta, which a one-run theorem multiplies by twice the number of canaries.
    return KnownMechanism(gaussian=False, epsilon=EPSILON, delta=1e-5 if evidence is Guesses else 0.1)


def setting(trials: Design) -> Setting:
    """Return the setting of the calibration's trials: one round, observed by a server that receives
    individual updates.
    """
    return Setting(unit=Unit.SAMPLE, adjacency=Adjacency.ADD_REMOVE, observer=UPLOADS, rounds=1, design=trials)


def evidence_of(
    estimator: Estimator, member: Any, nonmember: Any, law: KnownMechanism, *, rng: np.random.Generator, trials: Design
) -> tuple[Any, ...]:
    """Convert scores drawn with and without the canary to the type of evidence that the estimator takes, such as
    guesses.

    Raises TypeError for an unknown type of evidence.
    """
    where = setting(trials)
    if estimator.evidence is Guesses:
        return (_guesses(member, nonmember, rng, where),)
    if estimator.evidence is CanaryScores:
        included = np.arange(len(member) + len(nonmember)) < len(member)
        return (CanaryScores(np.r_[member, nonmember], included, where),)
    if estimator.evidence is CandidateScores:
        return (CandidateScores(np.asarray(member, dtype=np.float64) / math.sqrt(DIMENSION), where),)
    if estimator.evidence not in INPUTS:
        known = nearest(estimator.evidence.__name__, [kind.__name__ for kind in INPUTS])
        raise TypeError(
            f"estimator {estimator.name} takes evidence of type {estimator.evidence.__name__}, which the "
            f"calibration cannot simulate; it can simulate: {known}"
        )
    fixed = FixedThreshold(law.threshold)
    return evidence_of_runs(estimator, member, nonmember, where, policy=fixed, delta=law.delta, alpha=LEVEL)


def levels_of(
    estimator: Estimator, law: KnownMechanism, *, alpha: float, null: bool = False, curve: bool = False
) -> dict[str, Any]:
    """Return the keyword arguments (such as alpha, delta and epsilon) with which the calibration calls an estimator.

    They are those of a true claim, or of a mechanism without any leak (``null``).

    ``curve``: also the stated curve. Raises TypeError if an estimator requires an argument for
    which the calibration has no value.
    """
    known: dict[str, Callable[[], Any]] = {
        "delta": lambda: law.delta,
        "alpha": lambda: alpha,
        "threshold": lambda: FixedThreshold(law.threshold),
        "curve": lambda: GaussianCurve(0.0 if null else MU) if law.gaussian else None,
        "epsilon": lambda: 0.0 if null else law.epsilon,
        "sigma": lambda: 1 / MU,
        "rate": lambda: 1.0,
        "steps": lambda: 1,
        "rounds": lambda: 1,
        "dimension": lambda: DIMENSION,
        "release": lambda: _release(),
        "tests": lambda: [_test_of_half_the_noise(law)],
    }
    wanted = estimator.required | ({"curve"} if curve else set())
    for name in wanted - set(known):
        raise TypeError(
            f"estimator {estimator.name} requires argument {name!r}, for which the calibration has no value; it has "
            f"values for {nearest(name, known)}"
        )
    return {name: known[name]() for name in wanted}


def _release() -> GaussianRelease:
    return GaussianRelease(sigma=1 / MU)


def _test_of_half_the_noise(law: KnownMechanism) -> Any:
    # A seed of its own: the test must be fixed before any counted score is drawn.
    broken, rng = BrokenRelease(noise=0.5), np.random.default_rng(0)
    return design_test(
        _release(), broken, n=500, delta=law.delta, curve=GaussianCurve(MU), epsilon=law.epsilon, rng=rng
    )


def _guesses(member: Any, nonmember: Any, rng: np.random.Generator, of: Setting) -> Guesses:
    scores = CandidateScores(np.r_[member, nonmember], of)
    truth = np.r_[np.ones(len(member), dtype=np.bool_), np.zeros(len(nonmember), dtype=np.bool_)]
    # The number depends on the canaries alone, because the theorem needs it fixed before any score.
    side = max(1, len(truth) // 10)
    return guess(scores, truth, highest=side, lowest=side, rng=rng)


LEVEL = 0.05
FINITE_ANSWER, FAILED = "finite", "FAILS"


@dataclass(frozen=True, kw_only=True)
class Answer:
    """The result of calling an estimator on a degenerate input (such as constant scores): a measurement or an error
    message.

    ``fault`` states what is wrong with the result, and is empty if nothing is.
    """

    seen: Measurement | None
    words: str
    fault: str = ""


def degenerate_inputs(estimator: Estimator, law: KnownMechanism, kind: Kind) -> Iterator[tuple[str, str]]:
    """Call the estimator on degenerate inputs such as constant scores; yield the name of each input with the outcome.

    An outcome is "finite", "error: reason", or "FAILS: what is wrong".
    """
    call = _caller(estimator, law)
    # Two sides of distinct scores that do not overlap, so that "without an error" holds at every threshold between.
    spread = ndtri(np.linspace(0.005, 0.995, 100)) / 2.6
    low, high = spread - REVEALED, spread + REVEALED
    yield "zero counts", _growing(call(high, low), call(np.tile(high, 10), np.tile(low, 10)), kind)
    yield "all wrong", _described(call(low, high))
    yield "huge scores", _described(call(np.full(100, 1e308), np.full(100, -1e308)))
    yield "constant scores", _showing_nothing(call(np.ones(100), np.ones(100)))
    yield "one trial per side", _described(call([REVEALED], [-REVEALED]))
    yield "no trial", _refused([call([], [])])
    yield "NaN", _refused([call(_spoilt(math.nan), low), call(_spoilt(math.nan), _spoilt(math.nan))])
    yield "infinite", _refused([call(_spoilt(bad), low) for bad in (math.inf, -math.inf)])
    yield "number types", _same_of_all_types(call)
    names = estimator.required | estimator.optional
    if "alpha" in names:
        yield "alpha out of (0, 1)", _refused([call(high, low, alpha=bad) for bad in (0.0, 1.0, -0.1, 2, math.nan)])
        yield "alpha 1e-12", _more_careful(call(high, low), call(high, low, alpha=1e-12))
        yield "alpha 1e-300", _more_careful(call(high, low), call(high, low, alpha=1e-300))
    if "delta" in names:
        bad_deltas = (-1e-9, 1.0, 2, math.nan, -math.inf, math.inf)
        yield "delta out of [0, 1)", _refused([call(high, low, delta=bad) for bad in bad_deltas])
        yield "delta 0", _described(call(high, low, delta=0))
    if "epsilon" in names:
        yield "epsilon out of range", _refused([call(high, low, epsilon=bad) for bad in (-1.0, math.nan, math.inf)])
        yield "epsilon 800", _described(call(high, low, epsilon=800.0))


def _caller(estimator: Estimator, law: KnownMechanism) -> Callable[..., Answer]:
    plain = levels_of(estimator, law, alpha=LEVEL)

    def call(member: Any, nonmember: Any, **changes: Any) -> Answer:
        rng, trials = np.random.default_rng(0), estimator.design
        try:
            # A warning (overflow, division by zero) is where a NaN begins, so it counts as a failure.
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                evidence = evidence_of(estimator, member, nonmember, law, rng=rng, trials=trials)
                seen = estimator.measure(*evidence, **(plain | changes))
        except ValueError as error:
            # An error about the estimator's own result, such as an infinite bound, is no refusal of the input.
            own = str(error).partition(" ")[0] in FINITE
            return Answer(seen=None, words=f"error: {error}", fault=str(error) if own else "")
        except (ArithmeticError, TypeError, Warning, np.linalg.LinAlgError) as error:
            return Answer(seen=None, words="", fault=f"{type(error).__name__}: {error}")
        # No check for NaN here, because Measurement itself refuses numbers that are not finite.
        return Answer(seen=seen, words=FINITE_ANSWER)

    return call


def _spoilt(bad: float) -> Any:
    return np.r_[np.ones(99), bad]


def _described(answer: Answer, fault: str = "") -> str:
    wrong = answer.fault or fault
    return f"{FAILED}: {wrong}" if wrong else answer.words


def _refused(answers: list[Answer]) -> str:
    for answer in answers:
        if answer.seen is not None or answer.fault:
            return _described(answer, "the estimator returned a measurement where none is possible")
    return _described(answers[0])


def _showing_nothing(answer: Answer) -> str:
    """Uninformative scores must give the bound 0; a larger one would be the lower edge of a grid."""
    if answer.seen is not None and answer.seen.epsilon_low > 0:
        return _described(answer, f"uninformative scores gave the lower bound {answer.seen.epsilon_low:.3g} on epsilon")
    return _described(answer)


def _growing(some: Answer, more: Answer, kind: Kind) -> str:
    """Ten times as many errorless trials must prove more; otherwise the bound is the upper edge of a grid."""
    first, second = some.seen, more.seen
    if first is None or second is None or kind is not Kind.BOUND:
        return _described(some, more.fault)
    if not 0 < first.epsilon_low < second.epsilon_low:
        return _described(
            some, f"epsilon >= {first.epsilon_low:.3g}, but >= {second.epsilon_low:.3g} from ten times as many trials"
        )
    if first.ceiling is not None and first.epsilon_low > first.ceiling:
        return _described(
            some,
            f"the lower bound {first.epsilon_low:.3g} is above the largest certifiable epsilon, {first.ceiling:.3g}",
        )
    return _described(some)


def _more_careful(usual: Answer, careful: Answer) -> str:
    # Near these levels 1 - alpha loses its digits, and an estimator that computes it may state a larger bound.
    if usual.seen is not None and careful.seen is not None and careful.seen.epsilon_low > usual.seen.epsilon_low:
        return _described(
            careful, f"the lower bound {careful.seen.epsilon_low:.3g} is above that at the larger alpha {LEVEL}"
        )
    return _described(careful)


def _same_of_all_types(call: Callable[..., Answer]) -> str:
    """Equal numbers given as float64, float32, integers, a list or with negative zeros must give equal results."""
    member, nonmember = np.tile([2.0, 0.0, 3.0, 2.0], 25), np.tile([0.0, 0.0, -1.0, 2.0], 25)
    usual = call(member, nonmember)
    # Whole numbers, because each of these types holds them exactly: any difference is an error of conversion.
    for convert in (np.float32, np.int64):
        other = call(member.astype(convert), nonmember.astype(convert))
        if other.fault or other.seen != usual.seen:
            return _described(other, f"equal scores as {convert.__name__} and as float64 give different results")
    for other in (call(member.tolist(), nonmember.tolist()), call(member - 0.0, np.where(nonmember, nonmember, -0.0))):
        if other.fault or other.seen != usual.seen:
            return _described(other, "equal scores as a list, or with negative zeros, give a different result")
    return _described(usual)


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
    alpha: float
    outcome: str
    refuted: int | None = None
    limit: int | None = None
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


def calibrate(*, repeats: int, seed: int = 0, only: Iterable[Estimator] | None = None) -> Iterator[CalibrationRow]:
    """Count how often each estimator wrongly refutes true claims; yield one table row per estimator and way of drawing
    scores.

    Only the estimators in ``only`` are run if it is given; each situation is repeated ``repeats`` times.

    ``seed``: of all random streams. Raises ValueError for repeats < 1.
    """
    if repeats < 1:
        raise ValueError(f"repeats must be >= 1, got {repeats}")
    for estimator in estimators().values() if only is None else only:
        yield from _rows(estimator, repeats, seed)


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
            alpha=seen.alpha,
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
            outcome = f"refused: {error}" if repeats == 1 else f"{FAILS}: in repetition {repeats}: {error}"
            break
        refuted += _above(seen, 0.0 if situation.null else law.epsilon)
        if trials is not own:
            outcome = f"{FAILS}: the estimator accepted {trials.value} trials, which its theorem does not cover"
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
        return f"not a bound: above the claim in {refuted / times:.0%} of the runs"
    if limit is None:
        return f"caught {refuted / times:.0%}"
    return HOLDS if refuted <= limit else FAILS


def _above(seen: Measurement, epsilon: float) -> bool:
    """Whether this measurement exceeds ``epsilon``, by any of its numbers."""
    if seen.kind is Kind.ESTIMATE:
        return seen.estimate is not None and seen.estimate > epsilon
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
