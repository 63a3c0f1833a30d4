"""Chooses estimators by name, refuses those that the design does not allow, and runs them on supplied evidence.

Several estimators share alpha (Bonferroni), because the best of them is reported.
"""

import inspect
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import wraps
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ..arrays import BoolArray, FloatArray
from ..binomial import check_number
from ..claim import Claim
from ..curve import GaussianCurve
from ..estimators.catalogue import Estimator, describe, estimators
from ..estimators.guess_odds import coin_runs
from ..estimators.hockey_stick import MechanismOutputs
from ..estimators.joint_point import best_of
from ..estimators.one_run import guess, one_run
from ..estimators.one_run_claim import measured_guesses, planned_guesses
from ..estimators.one_run_fdp import one_run_fdp
from ..estimators.pairwise_event import EventCounts
from ..estimators.release_tests import BrokenRelease, GaussianRelease, design_test
from ..evidence import CanaryScores, CandidateScores, Design, MembershipScores, Projections, Setting
from ..measurement import NEEDS_GAUSSIAN_CURVE, Kind, Measurement
from ..parts import Spec, find_outside, name_and_options
from ..threshold import CHOOSING, FixedThreshold, SplitThreshold, ThresholdPolicy, choosing
from ..wording import nearest
from .given import check_whole

Choice = Spec | Callable[..., Measurement]
"""An estimator's name, a table of its name and options, or a function of evidence that returns a ``Measurement``."""
_DIRECTED = (MembershipScores, EventCounts)
_LAW = ("sigma", "rate", "steps")
"""The options that state the claimed Gaussian law."""
_SHARES = (0.8, 0.5, 0.1)
"""The shares of the claimed noise for which ``release_tests`` designs a test, as the audits of suites do by default."""


@dataclass(frozen=True, kw_only=True)
class EstimatorOptions:
    """The arguments that estimators need besides evidence and claim; each is None if the user did not state it.

    ``threshold``: fixed before the scores were seen; ``deviation``: the true standard deviation of the scores;
    ``sigma``, ``rate``, ``steps``: the claimed Gaussian law (noise over sensitivity, Poisson sampling rate of the
    canary, noisy steps per round); ``dimension``: number of model parameters behind each cosine; ``seed``: of random
    splits and ties.

    Raises ValueError unless ``deviation`` and ``sigma`` are > 0, ``rate`` is in (0, 1], ``steps`` and ``dimension`` are
    whole numbers >= 1 and ``seed`` is one >= 0.
    """

    threshold: float | None = None
    deviation: float | None = None
    sigma: float | None = None
    rate: float | None = None
    steps: int | None = None
    dimension: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        for name, most in (("deviation", math.inf), ("sigma", math.inf), ("rate", 1)):
            if (value := getattr(self, name)) is not None:
                check_number(name, value)
                if not (math.isfinite(value) and 0 < value <= most):
                    raise ValueError(f"{name} must be {'in (0, 1]' if most == 1 else '> 0 and finite'}, got {value}")
        for name, least in (("steps", 1), ("dimension", 1), ("seed", 0)):
            if getattr(self, name) is not None:
                check_whole(name, getattr(self, name), least=least)

    def policy(self, claim: Claim) -> ThresholdPolicy:
        """Return the threshold policy: the fixed threshold if stated, otherwise a split in which a fifth of the scores
        chooses the threshold and the others are counted.
        """
        if self.threshold is not None:
            return FixedThreshold(self.threshold)
        return SplitThreshold(CHOOSING, self.seed, curve=claim.curve)


_STATED = frozenset(field.name for field in fields(EstimatorOptions))
_DETERMINED = _STATED | {"alpha", "curve", "delta", "epsilon", "release", "rounds", "tests"}
"""The arguments of estimators that follow from the evidence, the claim and the audit."""


def chosen(estimator: Choice | Sequence[Choice] | None, design: Design, default: Sequence[str]) -> list[Estimator]:
    """Return the estimators with these names, or the ``default`` ones if ``estimator`` is None.

    Raises ValueError for an unknown name, and for an estimator that does not cover the design; the message lists those
    that do.
    """
    wanted: Sequence[Choice] = default
    if isinstance(estimator, str | Mapping) or callable(estimator):
        wanted = [estimator]
    elif estimator is not None:
        if not isinstance(estimator, Sequence):
            raise ValueError(f"estimator must be a name, a table, a function or a list of them, got {estimator!r}")
        wanted = estimator
    if not wanted:
        raise ValueError("estimator must hold the name of at least one estimator, got none")
    found = [_estimator(one) for one in wanted]
    if len({one.name for one in found}) < len(found):
        raise ValueError(f"estimator must hold different names, got {', '.join(one.name for one in found)}")
    for one in found:
        if one.design is not design:
            fitting = [name for name, other in estimators().items() if other.design is design]
            raise ValueError(
                f"{one.name} covers evidence of the design {one.design.value}, and this evidence has the design "
                f"{design.value}; estimators that cover it: {', '.join(fitting)}"
            )
    return found


def options_of(found: Iterable[Estimator]) -> frozenset[str]:
    """Return which of ``threshold``, ``deviation``, ``sigma``, ``rate``, ``steps`` and ``dimension`` these estimators
    use.
    """
    used = {name for one in found for name in one.required | one.optional}
    used |= {"threshold"} if any(map(uses_threshold, found)) else set()
    used |= set(_LAW) if any(one.evidence is Projections for one in found) else set()
    return _STATED & used


def check_used(found: Sequence[Estimator], options: EstimatorOptions) -> None:
    """Raise ValueError for a stated option that none of these estimators uses.

    ``seed`` has a default, and audits that use no threshold refuse one themselves.
    """
    stated = {name for name in _STATED - {"threshold", "seed"} if getattr(options, name) is not None}
    if unused := sorted(stated - options_of(found)):
        names = ", ".join(one.name for one in found) or "the default estimator"
        raise ValueError(f"{names} does not use the option {unused[0]}: leave it out")


def options_of_runs(options: EstimatorOptions | None, found: Sequence[Estimator], *, seed: int = 0) -> EstimatorOptions:
    """Return the options of an audit that fixes the threshold itself, on runs that it does not count.

    Raises TypeError for anything else than ``EstimatorOptions``, ValueError for a threshold and as ``check_used``.
    """
    if options is None:
        return EstimatorOptions(seed=seed)
    if not isinstance(options, EstimatorOptions):
        raise TypeError(
            "options must be EstimatorOptions (from fedassay.audit.supplied.chosen), such as "
            f"EstimatorOptions(sigma=1.0), got {options!r}"
        )
    if options.threshold is not None:
        raise ValueError(f"options must hold no threshold, because this audit chooses it, got {options.threshold}")
    check_used(found, options)
    return options


def is_directed(estimator: Estimator) -> bool:
    """Whether the estimator compares scores with a threshold or by their means, so that their direction matters."""
    return estimator.evidence in _DIRECTED


def uses_threshold(estimator: Estimator) -> bool:
    """Whether the estimator counts scores above a threshold."""
    return "threshold" in estimator.required | estimator.optional or estimator.evidence is EventCounts


def splits(estimator: Estimator, options: EstimatorOptions) -> bool:
    """Whether a part of the scores only chooses the threshold; this part can then also test the direction of the
    scores.
    """
    return uses_threshold(estimator) and options.threshold is None


def measured_by(
    found: Sequence[Estimator], measure: Callable[[Estimator, float], Measurement], claim: Claim, alpha: float
) -> Measurement:
    """Return the only measurement, or the best of several, each measured at its share of alpha.

    ``measure(estimator, alpha)`` computes one. Raises ValueError where several estimators are named and one is no
    bound, or assumes a Gaussian mechanism that the claim does not state.
    """
    if len(found) == 1:
        return measure(found[0], alpha)

    def checked(estimator: Estimator, share: float) -> Measurement:
        one = measure(estimator, share)
        if one.kind is not Kind.BOUND:
            raise ValueError(
                f"{one.estimator} does not give a bound (it gives: {one.kind.value}), so it must be the only estimator"
            )
        if one.assumption in NEEDS_GAUSSIAN_CURVE and not isinstance(claim.curve, GaussianCurve):
            raise ValueError(
                f"{one.estimator} assumes the {one.assumption}, which the claim does not state: leave this "
                "estimator out, or state mu (--mu)"
            )
        return one

    return best_of(found, alpha, checked)


def measure_runs(
    estimator: Estimator,
    member: FloatArray,
    nonmember: FloatArray,
    setting: Setting,
    claim: Claim,
    *,
    alpha: float,
    options: EstimatorOptions,
    witness: str,
) -> Measurement:
    """Measure independent runs by one estimator.

    ``member``: (n1,) scores or (n1, d) rows with the canary, ``nonmember``: (n0,) or (n0, d) without it.
    """
    policy = options.policy(claim)
    evidence = evidence_of_runs(estimator, member, nonmember, setting, policy=policy, delta=claim.delta, alpha=alpha)
    arguments = _arguments(estimator, setting, claim, alpha, options, len(nonmember), witness)
    # Release tests count errors by another estimator's rule, and would carry its name.
    return replace(estimator.measure(*evidence, **arguments), estimator=estimator.name)


_EVEN = 2
"""Scores of one arm per score of the other, up to which guesses of both inputs prove more than two bounds."""


def default_estimators(
    claim: Claim, members: int, nonmembers: int, *, threshold: float | None = None
) -> tuple[str, ...]:
    """Return the names of the estimators that are used, for this number of scores of independent runs, if the user
    names none.

    ``guess_odds`` proves a larger epsilon. Two bounds are read for a claim with a curve, which they test too, at a
    threshold that was fixed before, where one arm has more than twice as many scores as the other, and of very few.
    """
    even = max(members, nonmembers) <= _EVEN * min(members, nonmembers)
    even = even and coin_runs(*(n - choosing(n) for n in (nonmembers, members))) > 0
    return ("guess_odds",) if claim.curve is None and threshold is None and even else ("clopper_pearson",)


def measure_scores(scores: MembershipScores, claim: Claim, *, alpha: float, witness: str, seed: int = 0) -> Measurement:
    """Measure many independent runs with one score each by the default estimator; a fifth of the scores chooses a
    threshold.
    """
    names = default_estimators(claim, len(scores.member), len(scores.nonmember))
    (one,) = chosen(names, Design.INDEPENDENT, ())
    sides, options = (scores.member, scores.nonmember), EstimatorOptions(seed=seed)
    return measure_runs(one, *sides, scores.setting, claim, alpha=alpha, options=options, witness=witness)


def evidence_of_runs(
    estimator: Estimator,
    member: Any,
    nonmember: Any,
    setting: Setting,
    *,
    policy: ThresholdPolicy,
    delta: float,
    alpha: float,
) -> tuple[Any, ...]:
    """Return the evidence of independent runs that an estimator takes, from scores (n,) or rows (n, d) of both arms.

    ``policy``: of estimators that count one event, with the ``delta`` and ``alpha`` by which it chooses a threshold.
    """
    if estimator.evidence is MechanismOutputs:
        return (MechanismOutputs(_rows(member), _rows(nonmember), setting),)
    if estimator.evidence is Projections:
        return _projections(member, setting), _projections(nonmember, setting)
    scores = MembershipScores(member, nonmember, setting)
    if estimator.evidence is EventCounts:
        (point,) = policy.counts(scores.member, scores.nonmember, delta=delta, alpha=alpha)
        return (EventCounts.of_errors(point, setting),)
    return (scores,)


def measure_canaries(
    estimator: Estimator,
    scores: CandidateScores,
    included: BoolArray,
    claim: Claim,
    *,
    alpha: float,
    options: EstimatorOptions,
    guesses: int | None,
    witness: str,
) -> Measurement:
    """Measure the canaries of one run by one estimator; ``guesses``: the number of guesses, None to plan it from the
    claim.
    """
    if estimator.evidence is CandidateScores:
        if not included.any():
            raise ValueError(f"{estimator.name} needs the cosines of included canaries, got none")
        shown = CandidateScores(scores.values[included], scores.setting)
        arguments = _arguments(estimator, scores.setting, claim, alpha, options, len(included), witness)
        return estimator.measure(shown, **arguments)
    if estimator.evidence is CanaryScores:
        arguments = _arguments(estimator, scores.setting, claim, alpha, options, len(included), witness)
        return estimator.measure(CanaryScores(scores.values, included, scores.setting), **arguments)
    made = guesses
    if made is None:
        made = planned_guesses(
            len(included),
            epsilon=claim.epsilon,
            delta=claim.delta,
            alpha=alpha,
            gaussian=estimator.measure is one_run_fdp,
        )
    rng = np.random.default_rng(options.seed)
    found = guess(scores, included, highest=made - made // 2, lowest=made // 2, rng=rng)
    words = f"{witness}; {found.right} of {found.made} guesses were right"
    # By the function: an estimator of the user's own may have the same name.
    if estimator.measure in (one_run, one_run_fdp):
        return measured_guesses(found, estimator.name, claim, alpha=alpha, witness=words)
    return estimator.measure(found, **_arguments(estimator, scores.setting, claim, alpha, options, made, words))


def _estimator(choice: Choice) -> Estimator:
    if callable(choice):
        return _described(choice)
    known = estimators()
    name, options = name_and_options("estimator", choice)
    found = known[name] if name in known else _described(find_outside("estimator", name, known))
    return _with_options(found, options) if options else found


def _with_options(estimator: Estimator, options: Mapping[str, Any]) -> Estimator:
    """The estimator with these arguments fixed; none of them may be one that evidence, claim or audit determine."""
    # An option alpha = 0.5 would otherwise refute true claims.
    own = (estimator.required | estimator.optional) - _DETERMINED
    for key in options:
        if key not in own:
            has = nearest(key, sorted(own)) if own else "none"
            fixed = " that you can set, because the audit determines it" if key in _DETERMINED else ""
            raise ValueError(f"estimator {estimator.name} has no option {key!r}{fixed}; it has: {has}")

    @wraps(estimator.measure)
    def measure(*evidence: Any, **arguments: Any) -> Measurement:
        return estimator.measure(*evidence, **arguments, **options)

    fixed_names = frozenset(options)
    return replace(
        estimator, measure=measure, required=estimator.required - fixed_names, optional=estimator.optional - fixed_names
    )


def _described(function: Callable[..., Any]) -> Estimator:
    found = describe(getattr(function, "__name__", str(function)), function) if callable(function) else None
    if found is None:
        raise ValueError(
            "an estimator must be a function of one evidence type of fedassay, annotated to return a Measurement, "
            f"got {function!r}"
        )
    return found


def _arguments(
    estimator: Estimator, setting: Setting, claim: Claim, alpha: float, options: EstimatorOptions, n: int, witness: str
) -> dict[str, Any]:
    wanted = estimator.required | estimator.optional
    known: dict[str, Any] = {name: getattr(options, name) for name in _STATED}
    known |= {"delta": claim.delta, "alpha": alpha, "curve": claim.curve, "epsilon": claim.epsilon}
    known["rounds"] = setting.rounds
    if "threshold" in wanted:
        known["threshold"] = options.policy(claim)
    elif options.threshold is not None and estimator.evidence is not EventCounts:
        raise ValueError(f"{estimator.name} does not use a threshold: leave out --threshold")
    if estimator.evidence is Projections:
        known |= _release(setting, claim, options, n)
    missing = sorted(name for name in estimator.required if known.get(name) is None)
    if missing:
        asked = [name for name in missing if name not in ("release", "tests")] or ["sigma"]
        raise ValueError(f"{estimator.name} needs {', '.join(_STATED_BY.get(name, name) for name in asked)}")
    given = {name: known[name] for name in wanted if known.get(name) is not None}
    # An estimator of the user's own may have no witness.
    return given | ({"witness": witness} if "witness" in inspect.signature(estimator.measure).parameters else {})


_STATED_BY = {
    "sigma": "sigma (--noise-multiplier)",
    "rate": "rate (--sampling-rate)",
    "steps": "steps (--steps)",
    "dimension": "dimension (--dimension), the number of model parameters",
}


def _release(setting: Setting, claim: Claim, options: EstimatorOptions, n: int) -> dict[str, Any]:
    if options.sigma is None:
        return {}
    release = GaussianRelease(
        sigma=options.sigma, rate=options.rate or 1.0, steps=options.steps or 1, rounds=setting.rounds
    )
    # Seeds of their own, so that every threshold is fixed before any counted score is seen.
    tests = [
        design_test(
            release,
            BrokenRelease(noise=share),
            n=n,
            delta=claim.delta,
            curve=claim.curve,
            epsilon=claim.epsilon,
            rng=np.random.default_rng([options.seed, at]),
        )
        for at, share in enumerate(_SHARES)
    ]
    return {"release": release, "tests": tests}


def _rows(values: ArrayLike) -> FloatArray:
    array = np.asarray(values, dtype=np.float64)
    return array[:, np.newaxis] if array.ndim == 1 else array


def _projections(values: ArrayLike, setting: Setting) -> Projections:
    rows = _rows(values)
    if rows.shape[1] != setting.rounds:
        raise ValueError(
            "each row must hold one projection for each round of the claim (--rounds), of which there are "
            f"{setting.rounds}, "
            f"got {rows.shape[1]}"
        )
    return Projections(rows, np.ones(rows.shape, dtype=np.bool_), setting)
