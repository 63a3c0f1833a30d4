"""Degenerate inputs: an estimator owes each a finite answer or a clear error, never NaN, infinity or a grid's edge."""

import math
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..estimators.catalogue import Estimator
from ..measurement import FINITE, Kind, Measurement
from .known_mechanisms import REVEALED, KnownMechanism, design_of, evidence_of, levels_of

LEVEL = 0.05
FINITE_ANSWER, FAILED = "finite", "FAILS"


@dataclass(frozen=True, kw_only=True)
class Answer:
    """A measurement, or the words of the error; ``fault``: what is wrong with either, empty where nothing is."""

    seen: Measurement | None
    words: str
    fault: str = ""


def degenerate_inputs(estimator: Estimator, law: KnownMechanism, kind: Kind) -> Iterator[tuple[str, str]]:
    """(name, outcome) of each: "finite", "error: reason", or "FAILS: what is wrong"."""
    ask = _asker(estimator, law)
    spread = np.linspace(-1, 1, 100)
    low, high = spread - REVEALED, spread + REVEALED
    yield "zero counts", _growing(ask(high, low), ask(np.tile(high, 10), np.tile(low, 10)), kind)
    yield "all wrong", _answered(ask(low, high))
    yield "huge scores", _answered(ask(np.full(100, 1e308), np.full(100, -1e308)))
    yield "constant scores", _showing_nothing(ask(np.ones(100), np.ones(100)))
    yield "one trial a side", _answered(ask([REVEALED], [-REVEALED]))
    yield "no trial", _refused([ask([], [])])
    yield "NaN", _refused([ask(_spoilt(math.nan), low), ask(_spoilt(math.nan), _spoilt(math.nan))])
    yield "infinite", _refused([ask(_spoilt(bad), low) for bad in (math.inf, -math.inf)])
    yield "number types", _same_of_all_types(ask)
    names = estimator.required | estimator.optional
    if "alpha" in names:
        yield "alpha out of (0, 1)", _refused([ask(high, low, alpha=bad) for bad in (0.0, 1.0, -0.1, 2, math.nan)])
        yield "alpha 1e-12", _more_careful(ask(high, low), ask(high, low, alpha=1e-12))
        yield "alpha 1e-300", _more_careful(ask(high, low), ask(high, low, alpha=1e-300))
    if "delta" in names:
        bad_deltas = (-1e-9, 1.0, 2, math.nan, -math.inf, math.inf)
        yield "delta out of [0, 1)", _refused([ask(high, low, delta=bad) for bad in bad_deltas])
        yield "delta 0", _answered(ask(high, low, delta=0))
    if "epsilon" in names:
        yield "epsilon out of range", _refused([ask(high, low, epsilon=bad) for bad in (-1.0, math.nan, math.inf)])
        yield "epsilon 800", _answered(ask(high, low, epsilon=800.0))


def _asker(estimator: Estimator, law: KnownMechanism) -> Callable[..., Answer]:
    plain = levels_of(estimator, law, alpha=LEVEL)

    def ask(member: Any, nonmember: Any, **changes: Any) -> Answer:
        rng, trials = np.random.default_rng(0), design_of(estimator.evidence)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                evidence = evidence_of(estimator, member, nonmember, law, rng=rng, trials=trials)
                seen = estimator.measure(*evidence, **(plain | changes))
        except ValueError as error:
            # That a number of its own is not finite is no word about the input.
            own = str(error).partition(" ")[0] in FINITE
            return Answer(seen=None, words=f"error: {error}", fault=str(error) if own else "")
        except (ArithmeticError, TypeError, Warning, np.linalg.LinAlgError) as error:
            return Answer(seen=None, words="", fault=f"{type(error).__name__}: {error}")
        # Measurement itself refuses what is not finite.
        return Answer(seen=seen, words=FINITE_ANSWER)

    return ask


def _spoilt(bad: float) -> Any:
    return np.r_[np.ones(99), bad]


def _told(answer: Answer, fault: str = "") -> str:
    wrong = answer.fault or fault
    return f"{FAILED}: {wrong}" if wrong else answer.words


def _answered(answer: Answer) -> str:
    return _told(answer)


def _refused(answers: list[Answer]) -> str:
    for answer in answers:
        if answer.seen is not None or answer.fault:
            return _told(answer, "an answer, where none can be given")
    return _told(answers[0])


def _showing_nothing(answer: Answer) -> str:
    """What tells nothing must prove 0: more would be the lower edge of a grid."""
    if answer.seen is not None and answer.seen.epsilon_low > 0:
        return _told(answer, f"epsilon {answer.seen.epsilon_low:.3g} proven by nothing")
    return _told(answer)


def _growing(some: Answer, more: Answer, kind: Kind) -> str:
    """Ten times as many trials without an error must show more: else the bound is the upper edge of a grid."""
    first, second = some.seen, more.seen
    if first is None or second is None or kind is not Kind.BOUND:
        return _told(some, more.fault)
    if not 0 < first.epsilon_low < second.epsilon_low:
        return _told(some, f"epsilon {first.epsilon_low:.3g}, and {second.epsilon_low:.3g} of ten times the trials")
    if first.ceiling is not None and first.epsilon_low > first.ceiling:
        return _told(some, f"epsilon {first.epsilon_low:.3g} above its ceiling {first.ceiling:.3g}")
    return _told(some)


def _more_careful(usual: Answer, careful: Answer) -> str:
    if usual.seen is not None and careful.seen is not None and careful.seen.epsilon_low > usual.seen.epsilon_low:
        return _told(careful, f"epsilon {careful.seen.epsilon_low:.3g}, more than at alpha {LEVEL}")
    return _told(careful)


def _same_of_all_types(ask: Callable[..., Answer]) -> str:
    """Whole numbers as float64, float32, integers, a list, with negative zeros: one answer."""
    member, nonmember = np.tile([2.0, 0.0, 3.0, 2.0], 25), np.tile([0.0, 0.0, -1.0, 2.0], 25)
    usual = ask(member, nonmember)
    for convert in (np.float32, np.int64):
        other = ask(member.astype(convert), nonmember.astype(convert))
        if other.fault or other.seen != usual.seen:
            return _told(other, f"{convert.__name__} and float64 scores give two answers")
    for other in (ask(member.tolist(), nonmember.tolist()), ask(member - 0.0, np.where(nonmember, nonmember, -0.0))):
        if other.fault or other.seen != usual.seen:
            return _told(other, "a list, or negative zeros, give another answer")
    return _told(usual)
