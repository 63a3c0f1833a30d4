"""Tests that every estimator returns a finite answer or a clear error on degenerate inputs, never NaN or infinity."""

import math
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..estimators.catalogue import Estimator
from ..measurement import FINITE, Kind, Measurement
from .known_mechanisms import REVEALED, KnownMechanism, evidence_of, levels_of

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
    spread = np.linspace(-1, 1, 100)
    low, high = spread - REVEALED, spread + REVEALED
    yield "zero counts", _growing(call(high, low), call(np.tile(high, 10), np.tile(low, 10)), kind)
    yield "all wrong", _answered(call(low, high))
    yield "huge scores", _answered(call(np.full(100, 1e308), np.full(100, -1e308)))
    yield "constant scores", _showing_nothing(call(np.ones(100), np.ones(100)))
    yield "one trial per side", _answered(call([REVEALED], [-REVEALED]))
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
        yield "delta 0", _answered(call(high, low, delta=0))
    if "epsilon" in names:
        yield "epsilon out of range", _refused([call(high, low, epsilon=bad) for bad in (-1.0, math.nan, math.inf)])
        yield "epsilon 800", _answered(call(high, low, epsilon=800.0))


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


def _answered(answer: Answer) -> str:
    return _described(answer)


def _refused(answers: list[Answer]) -> str:
    for answer in answers:
        if answer.seen is not None or answer.fault:
            return _described(answer, "a measurement, where none can be made")
    return _described(answers[0])


def _showing_nothing(answer: Answer) -> str:
    """Uninformative scores must give the bound 0; a larger one would be the lower edge of a grid."""
    if answer.seen is not None and answer.seen.epsilon_low > 0:
        return _described(answer, f"epsilon {answer.seen.epsilon_low:.3g} proven by nothing")
    return _described(answer)


def _growing(some: Answer, more: Answer, kind: Kind) -> str:
    """Ten times as many errorless trials must prove more; otherwise the bound is the upper edge of a grid."""
    first, second = some.seen, more.seen
    if first is None or second is None or kind is not Kind.BOUND:
        return _described(some, more.fault)
    if not 0 < first.epsilon_low < second.epsilon_low:
        return _described(
            some, f"epsilon {first.epsilon_low:.3g}, but {second.epsilon_low:.3g} from ten times as many trials"
        )
    if first.ceiling is not None and first.epsilon_low > first.ceiling:
        return _described(some, f"epsilon {first.epsilon_low:.3g} above the certifiable {first.ceiling:.3g}")
    return _described(some)


def _more_careful(usual: Answer, careful: Answer) -> str:
    # Near these levels 1 - alpha loses its digits, and an estimator that computes it may state a larger bound.
    if usual.seen is not None and careful.seen is not None and careful.seen.epsilon_low > usual.seen.epsilon_low:
        return _described(careful, f"epsilon {careful.seen.epsilon_low:.3g}, more than at alpha {LEVEL}")
    return _described(careful)


def _same_of_all_types(call: Callable[..., Answer]) -> str:
    """Equal numbers given as float64, float32, integers, a list or with negative zeros must give equal results."""
    member, nonmember = np.tile([2.0, 0.0, 3.0, 2.0], 25), np.tile([0.0, 0.0, -1.0, 2.0], 25)
    usual = call(member, nonmember)
    # Whole numbers, because each of these types holds them exactly: any difference is an error of conversion.
    for convert in (np.float32, np.int64):
        other = call(member.astype(convert), nonmember.astype(convert))
        if other.fault or other.seen != usual.seen:
            return _described(other, f"{convert.__name__} and float64 scores give two answers")
    for other in (call(member.tolist(), nonmember.tolist()), call(member - 0.0, np.where(nonmember, nonmember, -0.0))):
        if other.fault or other.seen != usual.seen:
            return _described(other, "a list, or negative zeros, give another answer")
    return _described(usual)
