"""Compare everything that an observer receives, channel by channel, in runs with equal draws that differ by a unit.

A channel is a finding if the unit moves it, if noise does not also move it comparably, and if no published law covers
it. A first comparison with a few runs of other noise only selects suspects. A suspect becomes a finding if it persists
when both runs are repeated with other noise several times: then neither run may be moved by noise. A channel of few
values is repeated until noise shows, or would have shown under the claim but for a small chance.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from math import ceil, exp, inf, log, log1p
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..audit.check import MESSAGE, PUBLIC_STATE, Check, CheckResult
from ..audit.ledger import SUITE
from ..audit.observer import AGGREGATE, SHUFFLED, UPLOADS
from ..fl.channels import STATE, Channel, Channels
from ..fl.replay import Recording
from .neighbours import ReplaySetup, RunPair
from .noise_sample import lattice

HIDES = 1000.0
"""A few draws estimate a spread badly: a number fails where a unit moves it a thousand times as far as noise does."""
_REPEATS = 4
"""Repetitions of a suspicious pair with other noise; of ten runs none may show noise."""
_CONFIRMED, _TRIES = 12, 4
"""Pairs of a claim that are repeated at most, and those of one family of channels."""
_MOST, _NUMBERS, _ONE_BY_ONE = 1024, 2**22, 32
"""Runs of other noise at most for a channel of few values, numbers of rows of clients or samples of all these runs, and
runs where several at once are not possible.
"""
_LOW_BITS = {4: 0xFFF, 8: 0xFFFFFFFF}
"""Bits at the end of a float of 4 or 8 bytes that noise alone decides."""
_POOLED = 12
"""Numbers of an array whose low bits are compared: each bit is equal in three draws of all of them once in 10^7."""
_PART, _RESOLVED = 0.2, 2.0**-16
"""Share of the step of noise that is a part of it, and step that single precision resolves, as a share of the numbers.
"""
_COARSE, _FEWEST, _SAMPLE = 0.9, 8, 2000
"""An array is coarse if less than this share of the numbers that noise moves are distinct, of so many at least."""
_SMALL = 64
"""Numbers of an array of which the different values over all pairs are counted."""
_SINGLE, _DOUBLE = 2.0**-22, 2.0**-40
"""Rounding as a share of the largest number of an array, in single and in double precision."""
_END = -1
"""The place of what is received after the last round."""


class _Suspect(NamedTuple):
    place: int
    name: str


@dataclass(kw_only=True)
class MessageComparison:
    """A comparison of all message channels over many pairs of runs; ``results`` returns its checks.

    Args:
        covered: whether a published law covers the values that the claim's observer receives: their sensitivity and
            noise are compared with it elsewhere, and only their types and low bits are compared here.
    """

    setup: ReplaySetup
    covered: bool
    pairs: int = 0
    confirmed: int = 0
    compared: set[str] = field(default_factory=set)
    missing: dict[str, str] = field(default_factory=dict)
    found: list[CheckResult] = field(default_factory=list)
    _moved: tuple[float, float, str] | None = None
    _reached: set[str] = field(default_factory=set)
    _coarse: dict[str, bool] = field(default_factory=dict)
    _values: dict[tuple[str, int], set[float]] = field(default_factory=dict)
    _spreads: dict[tuple[int, int, str], NDArray[Any] | None] = field(default_factory=dict)
    _tries: dict[str, int] = field(default_factory=dict)
    _needed: int = 0

    def add(self, pair: RunPair) -> None:
        """Compare one more pair of runs."""
        self.pairs += 1
        self.missing |= pair.before.missing | pair.after.missing
        suspects = [suspect for suspect in self._suspects(pair) if _family(suspect.name) not in self._reached]
        families = {_family(suspect.name) for suspect in suspects}
        # Families that were repeated often leave the runs to others.
        new = {family for family in families if self._tries.get(family, 0) < _TRIES}
        if self.confirmed >= _CONFIRMED:
            new = set()
        for family in families - new:
            self.missing.setdefault(
                family, f"units changed it in more pairs of runs than the {_TRIES} that were repeated"
            )
        if new:
            self.confirmed += 1
            self._tries |= {family: self._tries.get(family, 0) + 1 for family in new}
            self._repeat(pair, [suspect for suspect in suspects if _family(suspect.name) in new])

    def _repeat(self, pair: RunPair, suspects: list[_Suspect]) -> None:
        """Repeat a pair with other noise, a channel of few values as often as its findings need."""
        runs = [pair.again(number) for number in range(_REPEATS + 1)]
        before, after = [run[0] for run in runs], [run[1] for run in runs]
        needed = self._confirm_all(pair, suspects, before, after)
        if needed <= len(runs):
            return
        most = min(_MOST, _NUMBERS // self.setup.numbers)
        if needed > most:
            return
        try:
            further = pair.replicas(_REPEATS + 1, needed - len(runs))
        except Exception:  # A user's own hooks may raise anything in several runs at once.
            if needed > _ONE_BY_ONE:
                return
            single = [pair.again(number) for number in range(_REPEATS + 1, needed)]
            further = [run[0] for run in single], [run[1] for run in single]
        self._confirm_all(pair, suspects, [*before, *further[0]], [*after, *further[1]])

    def _confirm_all(
        self, pair: RunPair, suspects: list[_Suspect], before: list[Recording], after: list[Recording]
    ) -> int:
        """Make findings of the suspects that persist; return how many runs the first undecided one needs."""
        self._needed = 0
        for suspect in suspects:
            if _family(suspect.name) not in self._reached:
                self._confirm(pair, suspect, before, after)
        return self._needed

    def results(self) -> list[CheckResult]:
        """Return the checks of the message and, if there is one, of the public state."""
        return [*self._result(MESSAGE), *self._result(PUBLIC_STATE)]

    def _result(self, name: Check) -> Iterator[CheckResult]:
        own = [found for found in self.found if found.name == name]
        of_state = name == PUBLIC_STATE
        compared = tuple(sorted(one for one in self.compared if one.startswith(STATE) == of_state))
        missing = sorted(item for item in self.missing.items() if item[0].startswith(STATE) == of_state)
        not_compared = tuple(f"{one}: {why}" for one, why in missing)
        # A federation without a public state has nothing to check; its keys are always compared.
        if of_state and not own and not not_compared and {*compared} <= {f"{STATE}: keys", f"{STATE}: numbers: keys"}:
            return
        told = f"{self.pairs} pairs of runs were compared, in these parts: {', '.join(compared) or 'nothing'}"
        told += f"; not compared: {'; '.join(not_compared)}" if not_compared else ""
        if not compared and not own:
            if not of_state:
                reason = (
                    f"no canary for one {self.setup.claim.unit} under {self.setup.claim.adjacency.phrase} adjacency "
                    "is possible"
                )
                yield name.skipped(reason, not_compared=not_compared)
            return
        proposal = None
        if own:
            result = max(own, key=lambda result: result.measured or 0.0)
            rest = sorted({found.witness.split(",")[0] for found in own} - {result.witness.split(",")[0]})
            witness = result.witness + (f"; also {', '.join(rest)}" if rest else "")
            measured, allowed, unit, passed = result.measured, result.allowed, result.unit, False
            proposal = result.proposal
        elif of_state and self._moved is not None:
            (measured, allowed, witness), unit, passed = self._moved, "the state's own", True
        else:
            measured, allowed, witness, unit, passed = (
                0.0,
                0.0,
                told,
                ("parts of the message that the unit changes and noise does not"),
                True,
            )
        yield CheckResult(
            name=name,
            passed=passed,
            measured=measured,
            allowed=allowed,
            unit=unit,
            witness=witness,
            compared=compared,
            not_compared=not_compared,
            proposal=proposal,
        )

    def _suspects(self, pair: RunPair) -> Iterator[_Suspect]:
        """Channels that the unit moves and a few runs of other noise do not."""
        for place in _places(pair.before, pair.after):
            before, after = _at(pair.before, place), _at(pair.after, place)
            self.compared |= {_family(name) for name in before}
            for name in [*before, *(name for name in after if name not in before)]:
                one, other = before.get(name), after.get(name)
                if _same(one, other):
                    continue
                noisy = [_at(run, place).get(name) for run in pair.others]
                if isinstance(one, np.ndarray) and _alike([one, other]):
                    if self._moves_alone(pair, place, name, one, other):
                        yield _Suspect(place, name)
                elif (one is None or other is None) and (isinstance(one, np.ndarray) or isinstance(other, np.ndarray)):
                    # That an array is there or not shows in the texts that list senders, keys and arrays.
                    continue
                elif not (isinstance(one, np.ndarray) or isinstance(other, np.ndarray)) and len(set(noisy)) <= 1:
                    yield _Suspect(place, name)

    def _moves_alone(self, pair: RunPair, place: int, name: str, one: NDArray[Any], other: Any) -> bool:
        """Whether the unit moves any number of an array that noise hardly moves."""
        held = (_at(run, place).get(name) for run in pair.others)
        noisy = [array for array in held if isinstance(array, np.ndarray) and _alike([one, array])]
        if self._values_covered(name):
            return self._moves_hidden_digits(pair, name, noisy, one, other)
        key = (id(pair.others), place, name)
        if key not in self._spreads:
            self._spreads[key] = _spread(noisy) if len(noisy) > 1 else None
        spread = self._spreads[key]
        moved, slack = _moved(one, other), _slack(one, other)
        if one.size <= _SMALL:
            for where in np.flatnonzero(moved).tolist():
                self._values.setdefault((name, where), set()).update((float(one.flat[where]), float(other.flat[where])))
        allowed = HIDES * spread if spread is not None else np.zeros(one.shape)
        kinds = _kinds(one) != _kinds(other)
        for array in noisy[1:]:
            kinds &= _kinds(noisy[0]) == _kinds(array)
        if bool((kinds | ((moved > slack) & (moved > allowed))).any()):
            return True
        if name.startswith(STATE) and (self._moved is None or float(moved.max()) > self._moved[0]):
            where = int(moved.argmax())
            witness = f"{name}, {_words(place)}, {pair.witness}; allowed: {HIDES:g} times the spread of its noise"
            self._moved = (float(moved.max()), float(allowed.flat[where]), witness)
        return self._moves_hidden_digits(pair, name, noisy, one, other)

    def _moves_hidden_digits(
        self, pair: RunPair, name: str, noisy: list[NDArray[Any]], one: NDArray[Any], other: NDArray[Any]
    ) -> bool:
        """Whether the unit moves last digits of numbers that noise does not: low bits, or parts of the noise's step."""
        if len(noisy) < 2:
            return False
        if self._is_coarse(pair, name):
            return _off_grid(_step(noisy), one, other)
        return bool(_stuck(noisy) & _differing([one], [other]))

    def _confirm(self, pair: RunPair, suspect: _Suspect, before: list[Recording], after: list[Recording]) -> None:
        """Make a finding of a suspect that persists under other noise."""
        place, name = suspect
        one, other = ([_at(run, place).get(name) for run in runs] for runs in (before, after))
        here = f"{name}, {_words(place)}, {pair.witness}"
        if not all(isinstance(item, np.ndarray) for item in [*one, *other]):
            if len(set(map(_text, one))) == len(set(map(_text, other))) == 1 and not _same(one[0], other[0]):
                steady = self._steady_text(name, before, after, pair.others)
                changes = sum(
                    not _same(_at(before[0], p).get(name), _at(after[0], p).get(name)) for p in _all(before[0])
                )
                if steady and self._shown(name, changes, 1, len(before)):
                    self._find(
                        pair, name, 1.0, 0.0, f"{here}: {_short(one[0])} became {_short(other[0])}, whatever the noise"
                    )
            return
        arrays = [item for item in [*one, *other] if isinstance(item, np.ndarray)]
        if _alike(arrays):
            self._confirm_numbers(pair, name, here, arrays[: len(one)], arrays[len(one) :], before, after)

    def _confirm_numbers(
        self,
        pair: RunPair,
        name: str,
        here: str,
        one: list[NDArray[Any]],
        other: list[NDArray[Any]],
        before: list[Recording],
        after: list[Recording],
    ) -> None:
        where = None if self._values_covered(name) else self._persistent(pair, name, before, after, one, other)
        if where is not None:
            moved = np.min([_moved(a, b) for a, b in zip(one, other, strict=True)], axis=0)
            noise = float(max(_spread(one).flat[where], _spread(other).flat[where]))
            words = (
                f"{one[0].flat[where]:.6g} became {other[0].flat[where]:.6g}, and other noise changes it by {noise:.3g}"
            )
            total = f" (number {where + 1} of {moved.size})" if moved.size > 1 else ""
            # A number that became infinite has no distance.
            size = float(moved.flat[where]) or 1.0
            self._find(pair, name, size, HIDES * noise if size > HIDES * noise else 0.0, f"{here}{total}: {words}")
            return
        if self._is_coarse(pair, name):
            step = max(_step(one), _step(other)) if _step(one) and _step(other) else 0.0
            if all(_off_grid(step, a, b) for a, b in zip(one, other, strict=True)):
                self._find(
                    pair,
                    name,
                    1.0,
                    0.0,
                    f"{here}: the unit changes it by a fraction of {step:.4g}, and all "
                    "its noise is a multiple of this step",
                )
            return
        bits = _stuck(one) & _stuck(other) & _differing(one, other)
        if bits and all(_differing([a], [b]) & bits for a, b in zip(one, other, strict=True)):
            self._find(
                pair,
                name,
                float(bits.bit_count()),
                0.0,
                f"{here}: the unit changes {bits.bit_count()} low bits that noise does not change",
            )

    def _persistent(
        self,
        pair: RunPair,
        name: str,
        before: list[Recording],
        after: list[Recording],
        one: list[NDArray[Any]],
        other: list[NDArray[Any]],
    ) -> int | None:
        """The index of a number that every repetition moves and no noise does; None without one."""
        spread = np.maximum(_spread(one), _spread(other))
        least = np.min([_moved(a, b) for a, b in zip(one, other, strict=True)], axis=0)
        slack = _slack(*one, *other)
        kinds = [_kinds(array) for array in [*one, *other]]
        half = len(one)
        kept = np.logical_and.reduce([kind == kinds[0] for kind in kinds[:half]])
        kept &= np.logical_and.reduce([kind == kinds[half] for kind in kinds[half:]])
        kind_moved = kept & (kinds[0] != kinds[half])
        value_moved = (least > slack) & (least > HIDES * spread)
        # Numbers on a grid stay equal by chance: they must be without noise in every round.
        whole = np.logical_and.reduce([np.isfinite(array) & (array == np.rint(array)) for array in [*one, *other]])
        coarse = whole | self._is_coarse(pair, name)
        suspicious = np.flatnonzero(kind_moved | value_moved)
        steady, changes = self._steady(name, before, after, pair.others, one[0], _real)
        kinds_steady, kinds_changes = self._steady(name, before, after, pair.others, one[0], _kinds)
        order: list[int] = suspicious[np.argsort(-least.flat[suspicious], kind="stable")].tolist()
        for where in order:
            if value_moved.flat[where] and not coarse.flat[where]:
                return where
            answers = len(self._values.get((name, where), ()))
            by_value = value_moved.flat[where] and steady.flat[where]
            runs = len(before)
            if by_value and self._shown(name, int(changes.flat[where]), least.size, runs, answers):
                return where
            # Noise may move a number and never whether it is zero.
            by_kind = kind_moved.flat[where] and kinds_steady.flat[where]
            if by_kind and self._shown(name, int(kinds_changes.flat[where]), least.size, runs):
                return where
        return None

    def _steady(
        self,
        name: str,
        before: list[Recording],
        after: list[Recording],
        others: Sequence[Recording],
        like: NDArray[Any],
        what: Callable[[NDArray[Any]], NDArray[Any]],
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        """Which numbers of an array noise moves in no round, and the number of rounds in which the unit moves them."""
        steady, changes = np.ones(like.shape, dtype=bool), np.zeros(like.shape, dtype=int)
        for place in _all(before[0]):
            for runs in (before, after, others):
                held = (_at(run, place).get(name) for run in runs)
                arrays = [what(array) for array in held if isinstance(array, np.ndarray) and _alike([like, array])]
                for array in arrays[1:]:
                    steady &= _equal(arrays[0], array)
            one, other = _at(before[0], place).get(name), _at(after[0], place).get(name)
            if isinstance(one, np.ndarray) and isinstance(other, np.ndarray) and _alike([like, one, other]):
                changes += ~_equal(what(one), what(other))
        return steady, changes

    def _steady_text(self, name: str, *groups: Sequence[Recording]) -> bool:
        """Whether other noise changes a text in no round of any group of runs."""
        return all(
            len({_text(_at(run, place).get(name)) for run in group if _has(run, place)}) <= 1
            for place in _all(groups[0][0])
            for group in groups
        )

    def _shown(self, name: str, changes: int, numbers: int, runs: int, answers: int = 2) -> bool:
        """Whether coarse noise of the claim's budget would have shown in so many rounds of so many runs of each kind.

        A randomiser of budget e per round that has k answers keeps the true one with probability exp(e) / (exp(e) + k -
        1) at most.
        """
        changes = max(1, changes)
        rest = max(2, answers) - 1
        unseen = 2 * changes * log1p(-rest / (rest + exp(self.setup.local_epsilon(changes))))
        needed = ceil(log(SUITE.level("few values", numbers)) / unseen)
        if runs >= needed:
            self.missing.pop(_family(name), None)
            return True
        self._needed = min(self._needed or needed, needed)
        reason = (
            "the unit changes it, but it takes few different values, and these few rounds cannot rule out "
            "noise that meets the claimed epsilon"
        )
        self.missing[_family(name)] = reason
        return False

    def _find(self, pair: RunPair, name: str, measured: float, allowed: float, witness: str) -> None:
        self._reached.add(_family(name))
        kind = PUBLIC_STATE if name.startswith(STATE) else MESSAGE
        failed = kind.failed(witness, measured, allowed, unit="the channel's own", proposal=pair.proposal)
        self.found.append(failed)

    def _values_covered(self, name: str) -> bool:
        """Whether the values of this channel follow a published law."""
        if not self.covered:
            return False
        rank = self.setup.claim.observer.rank
        if rank >= UPLOADS.rank:
            return name.startswith("report values")
        if rank >= SHUFFLED.rank:
            return name.startswith("arrived report values")
        sums = ("aggregate", "sum of the aggregates") + (("arrived report values",) if rank == AGGREGATE.rank else ())
        return name in sums

    def _is_coarse(self, pair: RunPair, name: str) -> bool:
        """Whether the numbers of a channel that noise moves take few values, as coins or grids do, or are too few to
        tell. In a public state in which noise moves nothing, fractions are not coarse.
        """
        family = _family(name)
        if family not in self._coarse and len(pair.others) > 1:
            values: list[NDArray[Any]] = []
            for place in _all(pair.others[0]):
                for key, array in _at(pair.others[0], place).items():
                    other = _at(pair.others[1], place).get(key)
                    if _family(key) != family or not isinstance(array, np.ndarray) or not isinstance(other, np.ndarray):
                        continue
                    if _alike([array, other]):
                        changed = ~_equal(array, other)
                        values.append(np.concatenate([array[changed], other[changed]])[:_SAMPLE])
                if sum(map(len, values)) >= _SAMPLE:
                    break
            moved = np.concatenate(values) if values else np.zeros(0)
            # Zeros are what a mask or a threshold leaves of continuous noise.
            seen = moved[moved != 0]
            few = len(seen) < _FEWEST or len(np.unique(seen)) < _COARSE * len(seen)
            self._coarse[family] = few and (bool(len(moved)) or not family.startswith(STATE))
        return self._coarse.get(family, False)


def _family(name: str) -> str:
    """A channel's name without the numbers of clients and places."""
    return re.sub(r"(client |\[|\.)\d+", r"\1#", name).removesuffix(": type")


def _all(run: Recording) -> list[int]:
    return [*range(len(run.channels)), _END]


def _places(before: Recording, after: Recording) -> list[int]:
    """The rounds that both runs have, and the end if both ended together."""
    rounds = min(len(before.channels), len(after.channels))
    return [*range(rounds), *([_END] if len(before.channels) == len(after.channels) else [])]


def _at(run: Recording, place: int) -> Channels:
    if place == _END:
        return run.ending
    return run.channels[place] if place < len(run.channels) else {}


def _has(run: Recording, place: int) -> bool:
    """Whether a run has a round, or the end."""
    return place < len(run.channels)


def _words(place: int) -> str:
    return "after the last round" if place == _END else f"round {place}"


def _same(one: Channel | None, other: Channel | None) -> bool:
    if isinstance(one, np.ndarray) and isinstance(other, np.ndarray):
        return one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes()
    return type(one) is type(other) and not isinstance(one, np.ndarray) and one == other


def _alike(arrays: Sequence[Any]) -> bool:
    """Whether all are arrays of one type and shape."""
    first = arrays[0]
    return all(
        isinstance(array, np.ndarray) and array.dtype == first.dtype and array.shape == first.shape for array in arrays
    )


def _text(value: Channel | None) -> str:
    return f"array {value.shape}" if isinstance(value, np.ndarray) else repr(value)


def _short(value: Channel | None) -> str:
    words = "absent" if value is None else _text(value)
    return words if len(words) <= 60 else f"{words[:57]}..."


def _real(array: NDArray[Any]) -> NDArray[np.float64]:
    return array.astype(np.float64)


def _equal(one: NDArray[Any], other: NDArray[Any]) -> NDArray[np.bool_]:
    same: NDArray[np.bool_] = (one == other) | ((one != one) & (other != other))
    return same


def _moved(one: NDArray[Any], other: NDArray[Any]) -> NDArray[np.float64]:
    """How far each number moved; 0 where either is not finite, which ``_kinds`` compares."""
    left, right = _real(one), _real(other)
    with np.errstate(invalid="ignore", over="ignore"):
        moved = np.abs(left - right)
    return np.where(np.isfinite(left) & np.isfinite(right), np.nan_to_num(moved, posinf=np.finfo(float).max), 0.0)


def _spread(arrays: Sequence[NDArray[Any]]) -> NDArray[np.float64]:
    """How far other noise moves each number, at most; infinite where it changes whether the number is finite."""
    first = arrays[0]
    spread = np.zeros(first.shape)
    for array in arrays[1:]:
        spread = np.maximum(spread, _moved(first, array))
        spread[np.isfinite(_real(first)) != np.isfinite(_real(array))] = inf
    return spread


def _slack(*arrays: NDArray[Any]) -> float:
    """Rounding of the numbers of arrays; 0 for integers."""
    if arrays[0].dtype.kind != "f" or not arrays[0].size:
        return 0.0
    real = [_real(array) for array in arrays]
    largest = max(float(np.abs(array[np.isfinite(array)]).max(initial=0.0)) for array in real)
    with np.errstate(over="ignore"):
        single = all(bool(((array.astype(np.float32) == array) | np.isnan(array)).all()) for array in real)
    return (_SINGLE if single else _DOUBLE) * largest


def _kinds(array: NDArray[Any]) -> NDArray[np.int8]:
    """Of each number whether it is zero, not a number, or infinite."""
    real = _real(array)
    kinds = 1 * (real == 0) + 2 * np.isnan(real) + 3 * np.isposinf(real) + 4 * np.isneginf(real)
    return np.asarray(kinds, dtype=np.int8)


def _bits(array: NDArray[Any]) -> NDArray[Any]:
    return np.ascontiguousarray(array).view(f"u{array.dtype.itemsize}")


def _compares_bits(array: NDArray[Any]) -> bool:
    return array.dtype.kind == "f" and array.dtype.itemsize in _LOW_BITS and array.size >= _POOLED


def _stuck(arrays: Sequence[NDArray[Any]]) -> int:
    """The low bits that noise moves in no number of an array, of those numbers that it moves."""
    first = arrays[0]
    if len(arrays) < 2 or not _compares_bits(first):
        return 0
    changed = [_bits(first) ^ _bits(array) for array in arrays[1:]]
    # Few moved numbers would leave bits equal by chance.
    if np.count_nonzero(np.bitwise_or.reduce(changed)) < _POOLED:
        return 0
    return _LOW_BITS[first.dtype.itemsize] & ~int(np.bitwise_or.reduce(changed, axis=None))


def _step(arrays: Sequence[NDArray[Any]]) -> float:
    """The step of which noise moves all numbers by multiples; 0 where there is none, or too few numbers to tell."""
    real = [_real(array) for array in arrays]
    if not all(bool(np.isfinite(array).all()) for array in real):
        return 0.0
    moves = np.concatenate([(array - real[0]).ravel() for array in real[1:]])
    moves = moves[moves != 0]
    # Few moved numbers would all be moved by multiples of two steps by chance.
    if len(moves) < 2 * _POOLED:
        return 0.0
    largest = float(max(np.abs(array).max() for array in real))
    step = lattice(np.append(moves, 0.0), largest)
    return step if step > _RESOLVED * largest else 0.0


def _off_grid(step: float, one: NDArray[Any], other: NDArray[Any]) -> bool:
    """Whether a unit moves any number of an array by a part of the step by which noise moves it."""
    if not step:
        return False
    steps = _moved(one, other) / step
    return bool((np.abs(steps - np.rint(steps)) > _PART).any())


def _differing(one: Sequence[NDArray[Any]], other: Sequence[NDArray[Any]]) -> int:
    """The bits in which any number of the first two arrays differs."""
    if not _compares_bits(one[0]):
        return 0
    return int(np.bitwise_or.reduce(_bits(one[0]) ^ _bits(other[0]), axis=None))
