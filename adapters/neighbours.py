"""A training that can be run on neighbouring data, in which each noised sum is replaced by the one that the first run
released.

On other records all that is a function of noised sums ends as it did: what ends otherwise is moved by the data.
"""

import math
import signal
import threading
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from numbers import Real
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from ..audit.check import ACCOUNTED, CLIPPED, MOVED, NEIGHBOUR, SIZE, CheckResult
from ..audit.claim import ONE_TRAINER, Adjacency, Claim, Unit
from ..audit.observer import GLOBAL_MODELS
from ..checks.neighbour_runs import (
    UNEQUAL,
    ReplacedRun,
    moved_setting,
    renamed,
    size_check,
    sums_on_neighbours,
    unit_moves,
)
from ..checks.training_record import AccountantHistory, Movement, Plant, TrainingRecord, equal_noise
from ..checks.watched_lots import left_out
from ..checks.watched_run import Watched, watched
from ..checks.watched_state import differing, first_difference
from ..defenses.accounting.stated_laws import claim_from_accountant, reported_claim
from ..defenses.defense import check_delta
from ..fl.laws import GaussianLaw
from .logged_data import UNREAD, LoggedData, reordered, whole_numbers
from .runner import is_replayable
from .unwatchable import WrongUse

_ALONE = "has one record, so it has no neighbouring data set: give two records or more"
_FACTORS = {2: 1 / 8, 3: 8.0}
"""Numbers of the runs on other records of which all numbers are multiplied, and by what."""
_TRIED = 32
"""Records that are read, at most, to find one with another label."""
_SURPLUS = 2e-3
"""Relative surplus of a stated epsilon over that of the history from which on it may pay for something else."""
LONG = Plant(weight=1e4)
"""A unit by which a clip of means, for one, is moved beyond one clip norm."""
_ROUNDING = 0.02
"""Relative difference of the epsilons of two accountants that is rounding."""
_REORDERED = "the order of records follows their contents, so that lots of equal draws differ"
_UNLOOKED = Movement(
    name="the training",
    how="made different lots or random draws in runs on other records, so that these runs do not show what the data "
    "change",
    by_data=False,
)
_PATIENCE = 10
"""How many times the CPU seconds of the first run, and two more, a further run may take."""


@contextmanager
def _ending_after(seconds: float) -> Iterator[None]:
    """Raise TimeoutError once so many CPU seconds have passed: a training may loop without end on data that its author
    never saw. Without effect outside of the main thread, and where there is no such clock.
    """
    known = math.isfinite(seconds) and hasattr(signal, "setitimer")
    if not known or threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, frame: object) -> None:
        raise TimeoutError(f"it took more than {seconds:.3g} CPU seconds, {_PATIENCE} times those of the first run")

    before = signal.signal(signal.SIGVTALRM, stop)
    # Again each second: the training may catch an error and go on.
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds, 1.0)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


@dataclass(frozen=True, kw_only=True, eq=False)
class Played:
    """One recorded run of a training.

    Args:
        record: the releases that were recorded.
        begins, ends: numbers of all that is trained, by name, at the start and at the end; empty where not seen.
        reads: how often each record was read, by its index.
        adaptive: whether the clip norm is moved by a noised count.
        printed: the epsilon that the accountant prints, where it was asked for.
        returned: further numbers that the function which trains returned, see ``returned_numbers``.
        placed: whether records of a data set that was made of the data are taken for those at their places.
        order: see ``LoggedData``.
    """

    record: TrainingRecord
    begins: Mapping[str, Tensor]
    ends: Mapping[str, Tensor]
    reads: Mapping[int, int]
    adaptive: bool = False
    printed: float | None = None
    returned: Mapping[str, Tensor] = field(default_factory=dict)
    placed: bool = False
    order: Mapping[int, int] = field(default_factory=dict)


def without_names(record: TrainingRecord) -> TrainingRecord:
    """Return a record in which it is not known which records the lots hold."""
    releases = tuple(replace(one, ids=None) for one in record.releases)
    return replace(record, releases=releases, remarks={**record.remarks, "lots": UNREAD})


def returned_numbers(found: object, name: str = "returned") -> dict[str, Tensor]:
    """Return copies of all numbers, arrays and tensors in what a function returned, keyed by their place in it."""
    if isinstance(found, Tensor):
        return {name: found.detach().clone()}
    numbers = isinstance(found, np.ndarray) and found.dtype.kind in "biuf"
    if numbers or isinstance(found, bool | int | float | np.number):
        return {name: torch.as_tensor(np.array(found))}
    parts: Iterable[tuple[object, object]] = found.items() if isinstance(found, Mapping) else ()
    parts = enumerate(found) if isinstance(found, list | tuple) else parts
    return {key: one for place, part in parts for key, one in returned_numbers(part, f"{name} {place}").items()}


class TrainingOnData(ABC):
    """A training on a data set, which can be repeated on other records, and with and without one unit.

    Args:
        data: the training set, with a length and indices.
        delta: in (0, 1), at which epsilon is stated.
        epsilon: the epsilon that is reported; None for the one that the history implies.
        setting: further facts of ``Claim.stated``.

    Raises TypeError for data without indices, ValueError for data without records and arguments out of range.
    """

    _limit = math.inf
    all_seen: ClassVar[bool] = False
    """Whether each noised number of a run is in its releases: then accounted steps pay for no others, and what runs on
    other records cannot explain is left open, also where nothing was seen to move."""
    weighted: ClassVar[bool] = False
    """Whether a library may weight what units send: then only a sum that was solved for the weight of each unit shows
    how much one can add."""

    def __init__(
        self,
        data: Any,
        *,
        delta: float,
        epsilon: float | None,
        unit: Unit | str,
        adjacency: Adjacency | str,
        setting: Mapping[str, Any],
    ) -> None:
        check_delta(delta)
        if epsilon is not None and not (isinstance(epsilon, Real) and 0 <= epsilon < math.inf):
            raise ValueError(f"epsilon must be a finite number >= 0, got {epsilon!r}")
        if _is_columns(data):
            shapes = " and ".join(str(tuple(one.shape)) for one in data)
            raise WrongUse(
                f"data must be a data set of records, got a {type(data).__name__} of arrays of the shapes {shapes}: "
                "wrap it in a data set, as TensorDataset(X, y) does"
            )
        if not len(LoggedData(data)):
            raise ValueError("data must hold at least one record, got none")
        self._data, self._delta, self._epsilon, self._unit = data, delta, epsilon, unit
        self._adjacency, self._setting = Adjacency(adjacency), {"observer": GLOBAL_MODELS} | dict(setting)
        Claim.stated(1.0, delta, unit=unit, adjacency=adjacency, **self._setting)

    @abstractmethod
    def run(self, member: bool = False, seed: int = 0, *, plant: Plant | None = None) -> TrainingRecord:
        """Train once with the seed set in all global generators, and return what was recorded."""

    @abstractmethod
    def _play(self, seed: int, **changed: Any) -> Played:
        """Train once. ``changed``: ``account``, whether the reported epsilon is asked; ``changes``: of ``LoggedData``;
        ``forced``: noised sums of another run; ``apart``: records that the rest of a sum is without.
        """

    def _again(self, seed: int, **changed: Any) -> Played:
        """``_play``, ended by TimeoutError where it takes many times as long as the first run."""
        with _ending_after(self._limit):
            return self._play(seed, **changed)

    def _why_not_forced(self, first: Played, seed: int) -> str:
        """Why noised sums of another run cannot take the place of the training's own; empty where they can."""
        return ""

    def watch(self, seed: int = 0, *, again: bool = True) -> Watched:
        """Run the training once, unchanged, and check everything that was recorded.

        ``again``: run it several times more, with the noised sums of the first run in place of its own. On other
        records all that is a function of noised sums ends as it did: what ends otherwise, such as a step size that
        follows the loss, is moved by the data, if a further run on the first records ends as the first one. With
        another record in the place of one, a sum moves by two clip norms at most; with one record less, steps, rates
        and divisors are compared; a run with another seed has other noise. Without it, only what moved outside of
        updates is seen. Files that the training writes are written by each run.
        """
        began = time.process_time()
        first = self._play(seed, account=True)
        self._limit = _PATIENCE * (time.process_time() - began) + 2
        recording = first.record
        if not again or not recording.releases:
            recording = without_names(recording) if first.placed else recording
            return self._of_replaced(watched(recording), recording)
        seeded = self._seeded_by_itself(recording, seed)
        if reason := _ALONE if len(self._data) == 1 else self._why_not_forced(first, seed):
            moved = (*(recording.moved or ()), Movement(name="the training", how=reason, by_data=False), *seeded)
            found = self._of_replaced(watched(replace(recording, moved=moved)), recording)
            skipped = [one.skipped(f"the training {reason}") for one in (NEIGHBOUR, SIZE)]
            return replace(found, results=(*found.results, *skipped))
        sums, size, named = self._on_neighbours(first, seed)
        if first.placed and (not named or sums.passed is None):  # No run showed that records are at their places.
            recording = without_names(recording)
            first = replace(first, record=recording)
        following = set[str]()
        moved = self._explained(first, seed, following)
        if not named:  # Then it is not known which records are in no lot, and may be public.
            moved = tuple(replace(one, by_data=False) for one in moved)
        moved = (*moved, *seeded)
        explained = {
            "moved": "what changed without noise had the same final values on other records, in lots of equal sizes"
        }
        remarks = {**recording.remarks, **(explained if recording.moved and not moved else {})}
        seen = None if recording.moved is None and not moved else moved
        found = self._of_replaced(watched(replace(recording, moved=seen, remarks=remarks)), recording)
        # Under add/remove the claim is about data of another size, on which nothing was then seen.
        unseen = size.words if size.passed is None and self._adjacency is Adjacency.ADD_REMOVE else ""
        unseen = sums.words if sums.passed is None and (self.all_seen or UNEQUAL in sums.witness) else unseen
        unseen = unseen or ("" if sums.passed else left_out(recording, sum(first.reads.values())))
        clip = next((one for one in found.results if one.name == CLIPPED), None)
        if self.weighted and clip is not None and clip.passed is None:
            unseen = "; ".join(filter(None, (unseen, f"the weight of each unit in a sum: {clip.witness}")))
        names = ", ".join(sorted(following)[:3])
        words = (
            f"what train returns depends on the data without noise ({names}): the claim holds only if nobody "
            "else receives it"
        )
        leaves = [MOVED.skipped(words)] if following else []
        return replace(
            found,
            results=(*leaves, *found.results, sums, size),
            unexplained="; ".join(filter(None, (found.unexplained, unseen))),
        )

    def _of_replaced(self, found: Watched, recording: TrainingRecord) -> Watched:
        """The results with the epsilon of replaced records, where the claim is about these: accountants state that of
        added and removed ones.
        """
        if self._adjacency is not Adjacency.REPLACE_ONE or recording.accounted is None:
            return found
        facts: dict[str, Any] = {"delta": self._delta, "adjacency": self._adjacency}
        try:
            implied = claim_from_accountant(_History(recording.ledger or ()), **facts).epsilon
            words = f"under replace-one at delta {self._delta:g}; the accountant's history implies {implied:.4g}"
        except ValueError as error:
            implied, words = math.inf, f"under replace-one: {error}"
        result = ACCOUNTED.at_least(recording.accounted, implied * (1 - _ROUNDING), unit="epsilon", witness=words)
        if self._epsilon is None or not math.isfinite(implied):
            result = ACCOUNTED.skipped(f"the accountant states no epsilon {words}")
        return replace(found, results=tuple(result if one.name == ACCOUNTED else one for one in found.results))

    def _on_neighbours(self, first: Played, seed: int) -> tuple[CheckResult, CheckResult, bool]:
        """Compare the first run with runs on neighbouring data; and whether lots name records by their indices."""
        recording = first.record
        forced, records = [one.released for one in recording.releases], len(self._data)
        chosen = _replaced(recording, first.reads, seed)
        control: Played | None = None
        words = ""
        try:
            control = self._again(seed, forced=forced, apart=chosen)
            runs, order = [], False
            for replaced in chosen:
                places = list(range(records))
                places[replaced] = self._another(replaced)
                again = self._with_another(seed, {"places": places}, replaced, forced=forced, apart=chosen)
                runs.append(ReplacedRun(replaced=replaced, record=again.record))
                order = order or reordered(control.order, again.order)
            # In another order equal draws make lots of other records, of the same distribution.
            words = _REORDERED if order else renamed(control.record, runs, first=recording)
            sums = NEIGHBOUR.skipped(words) if words else sums_on_neighbours(control.record, runs, first=recording)
            # Where runs on equal data differ, so may these two.
            sums = (self._long_unit(seed, forced) or sums) if sums.passed else sums
        except Exception as error:  # Such as a training that checks its data.
            sums = NEIGHBOUR.skipped(f"a run with another record ended with {type(error).__name__}: {error}")
        try:
            smaller = self._again(seed, changes={"places": range(records - 1)}, forced=forced)
        except Exception as error:
            less = f"a run without one record ended with {type(error).__name__}: {error}"
            return sums, SIZE.skipped(less), not words
        repeated = control is not None and not differing(first.ends, control.ends)
        ends = differing(first.ends, smaller.ends) if repeated else frozenset[str]()
        return sums, size_check(recording, smaller.record, self._adjacency, ends=ends), not words

    def _another(self, replaced: int) -> int:
        """The record that takes the place of one: one with another label, if some are tried."""
        size, data = len(self._data), LoggedData(self._data)
        tried = [(replaced + size // 2 + further) % size for further in range(min(size - 1, _TRIED))]
        others = [one for one in tried if one != replaced]
        own = whole_numbers(data[replaced])
        return next((one for one in others if whole_numbers(data[one]) != own), others[0])

    def _long_unit(self, seed: int, forced: Sequence[Tensor]) -> CheckResult | None:
        try:
            pair = self._with_and_without(seed, forced)
        except Exception:  # A training may refuse such a row.
            return None
        return None if pair is None else unit_moves(*pair)

    def _with_and_without(self, seed: int, forced: Sequence[Tensor]) -> tuple[TrainingRecord, TrainingRecord] | None:
        """Runs with and without a long unit, whose row the training clips itself; None where it is not planted so."""
        return None

    def _with_another(self, seed: int, changes: Mapping[str, Any], replaced: int, **given: Any) -> Played:
        """Run with another record in the place of one, stretched where the training takes such numbers."""
        try:
            found = self._again(seed, changes={**changes, "stretched": (replaced,)}, **given)
            if all(one.received is None or bool(one.received.isfinite().all()) for one in found.record.releases):
                return found
        except Exception:
            # A training may refuse such numbers; one that fails on others too raises below.
            pass
        return self._again(seed, changes=changes, **given)

    def _explained(self, first: Played, seed: int, following: set[str]) -> tuple[Movement, ...]:
        """What data move, by runs on other records; as it was where these do not show it. The names of returned
        numbers that they move are added to ``following``.
        """
        recording = first.record
        moved = recording.moved or ()
        forced = [one.released for one in recording.releases]
        lots = [one.ids for one in recording.releases]
        size = len(self._data)
        # Records in no lot may be public, such as those that a training holds out.
        used = range(size) if None in lots else {index for lot in lots for index in lot or ()}
        names, looked, course, counts = set[str](), False, ("", ""), set[int]()
        # No permutation, under which statistics of all records would stay as they are; one record alone, for which any
        # statistic is extreme; small numbers, whose losses hardly move; and large ones, whose losses rise and fall.
        half = [(size + index) // 2 % size for index in range(size)]
        for number, others in enumerate((half, [size // 2] * size, half, half)):
            changes: dict[str, Any] = {"places": [others[n] if n in used else n for n in range(size)]}
            if number in _FACTORS:
                changes |= {"stretched": used, "factor": _FACTORS[number]}
            try:
                again = self._again(seed, changes=changes, forced=forced)
            except Exception as error:
                if number:
                    continue
                how = f"ended with {type(error).__name__}, so that it does not show what the data change"
                return (*moved, Movement(name="a run on other records", how=how, by_data=False))
            if not _comparable(recording, again.record, all_seen=self.all_seen):
                how = moved_setting(recording, again.record)
                if how and not first.adaptive:
                    return (*moved, Movement(name="the training", how=how, by_data=False))
                counts.add(len(again.record.releases))
                continue
            looked = True
            if (steps := len(again.record.releases)) != len(recording.releases):
                remedy = self._remedy(first)
                how = f"is {steps} instead of {len(recording.releases)} on other records{remedy}"
                # A limit of time, for one, ends each run at another step.
                # A claim that is stated may pay for more numbers than the accountant knows.
                certain = not remedy and self._ends_at(seed, changes, forced, steps)
                certain = certain and self._ends_at(seed, {}, forced, len(recording.releases))
                return (*moved, Movement(name="the number of steps", how=how, by_data=certain))
            if (ends := differing(first.ends, again.ends)) and not names:
                course = first_difference(recording, again.record)
            names |= ends
            following |= differing(first.returned, again.returned)
        if following:  # Of which times, for one, differ on the same records too.
            following -= differing(first.returned, self._again(seed, forced=forced).returned)
        own = len(recording.releases)
        # A step that is skipped draws no noise, so that later lots differ and show nothing else.
        if (other := sorted(counts - {own})) and self._ends_at(seed, {}, forced, own):
            how = f"is {other[0]} instead of {own} on other records"
            return (*moved, Movement(name="the number of steps", how=how, by_data=False))
        if not looked:
            return (*moved, _UNLOOKED) if self.all_seen else moved
        known = [one for one in moved if one.by_data]
        names -= {one.name for one in known}
        return (*known, *(self._ending_otherwise(first, names, course, seed) if names else ()))

    def _ending_otherwise(
        self, first: Played, names: Collection[str], course: tuple[str, str], seed: int
    ) -> list[Movement]:
        """The numbers of these names, with the cause that was seen in the first run, or in its ``course``."""
        forced, remedy = [one.released for one in first.record.releases], self._remedy(first)
        certain = not remedy and self._repeats(first, forced, seed)
        how = f"ends with different values on different records, although all noised sums were equal{remedy}"
        why = {one.name: (one.cause, one.mend) for one in first.record.moved or () if one.cause}
        found = [(one, *why.get(one, course)) for one in sorted(names)]
        return [Movement(name=one, how=how, by_data=certain, cause=cause, mend=mend) for one, cause, mend in found]

    def _remedy(self, first: Played) -> str:
        """How a check can decide that a stated epsilon leaves open, as it may pay for more than the history; empty if
        it does not.
        """
        if self._epsilon is None:
            return ""
        known = [first.printed or 0.0]
        with suppress(ValueError):  # A history without a finite epsilon.
            history = _History(first.record.ledger or ())
            known.append(claim_from_accountant(history, delta=self._delta, adjacency=self._adjacency).epsilon)
        if self._epsilon <= max(known) * (1 + _SURPLUS):
            return ""
        return (
            f" (the stated epsilon {self._epsilon:g} may pay for more than the accountant's history, which implies "
            f"{max(known):.4g}: leave out epsilon=, so that the claim is that of the history, and this check can "
            "decide)"
        )

    def _seeded_by_itself(self, recording: TrainingRecord, seed: int) -> tuple[Movement, ...]:
        """The noise, where a run with another seed has the same."""
        try:
            other = self._again((seed + 1) % 2**32).record
        except Exception:  # Such as a training that runs once.
            return ()
        how = (
            "is the same in runs with two seeds, because the training sets its own seed: whoever knows this seed "
            "can remove the noise"
        )
        return (Movement(name="the noise", how=how, by_data=False),) if equal_noise(recording, other) else ()

    def _ends_at(self, seed: int, changes: Mapping[str, Any], forced: Sequence[Tensor], steps: int) -> bool:
        """Whether two further runs have so many steps."""
        return all(len(self._again(seed, changes=changes, forced=forced).record.releases) == steps for _ in range(2))

    def _repeats(self, first: Played, forced: Sequence[Tensor], seed: int) -> bool:
        """Whether a run on the same records ends as the first: neither time nor what the training keeps moves it."""
        again = self._again(seed, forced=forced)
        return len(again.record.releases) == len(forced) and not (
            differing(first.ends, again.ends) or differing(first.begins, again.begins)
        )

    @cached_property
    def claim(self) -> Claim:
        """The claim that the history of a run implies, with its trade-off curve; it states ``epsilon`` if that was
        given.
        """
        claim = reported_claim(
            claim_from_accountant,
            _History(self._first.ledger or ()),
            delta=self._delta,
            epsilon=self._epsilon,
            unit=self._unit,
            adjacency=self._adjacency,
            **self._setting,
        )
        return replace(claim, trust=ONE_TRAINER)

    @property
    def law(self) -> GaussianLaw | None:
        """The noise distribution (law) of one release, if the history has a single noise multiplier and rate."""
        ledger, releases = self._first.ledger or (), self._first.releases
        norms = {one.clip_norm for one in releases}
        if len(ledger) != 1 or len(norms) != 1:
            return None
        noise, rate, _ = ledger[0]
        norm = norms.pop()
        return GaussianLaw(clip_norm=norm, scale=1.0, noise_std=noise * norm, rate=rate)

    @cached_property
    def replayable(self) -> bool:
        """Whether two runs with one seed release the same numbers. Raises ValueError as ``is_replayable``."""
        return is_replayable(self._first, self.run, same=equal_noise)

    @property
    def unplantable(self) -> str:
        """Why no unit can be planted; empty if one can."""
        return f"the training {_ALONE}" if len(self._data) == 1 else ""

    @cached_property
    def _first(self) -> TrainingRecord:
        return self.run(seed=0)


def _is_columns(data: Any) -> bool:
    """Whether data are a few arrays of equal lengths, such as (X, y), and no list of records."""
    if not isinstance(data, tuple | list) or not all(isinstance(one, Tensor | np.ndarray) and one.ndim for one in data):
        return False
    return len({len(one) for one in data}) == 1 and len({tuple(one.shape) for one in data}) > 1


@contextmanager
def ended(name: str) -> Iterator[None]:
    """Raise RuntimeError if the code inside the context, called ``name``, ends the process."""
    try:
        yield
    except SystemExit as error:
        raise RuntimeError(f"{name} ends the process by sys.exit({error.code!r})") from error


def _replaced(recording: TrainingRecord, reads: Mapping[int, int], seed: int) -> list[int]:
    """The records that are replaced, of those in some lot, or of those that were read where lots are not known: the one
    in most lots, and one by the seed, if possible of those that some lot is without. Where records are read that enter
    no sum, also the one that is left out most often.
    """
    held = Counter(index for one in recording.releases for index in one.ids or ())
    drawn, left = held or Counter(reads), (Counter(reads) - held if held else Counter[int]())
    some = [index for index, count in drawn.items() if count < len(recording.releases)] or drawn
    chosen = np.random.default_rng(seed).choice(sorted(some)) if drawn else 0
    # A loader may read one record for its shapes.
    most = [index for one in (drawn, left if len(left) > 1 else Counter[int]()) for index, _ in one.most_common(1)]
    return list(dict.fromkeys([*most, int(chosen)]))


def _comparable(one: TrainingRecord, other: TrainingRecord, *, all_seen: bool) -> bool:
    """Whether a run on other records differs from the first in its records alone.

    Not where the data were not read from what the training received, where other records took other numbers of random
    draws, or where clip norm or noise follow further noised numbers, which are those of each run.
    """
    pairs = list(zip(one.releases, other.releases, strict=False))
    settings = all(
        (first.clip_norm, first.noise_multiplier) == (second.clip_norm, second.noise_multiplier)
        and (first.ids is None or second.ids is None or sorted(first.ids) == sorted(second.ids))
        for first, second in pairs
    )
    sums = [(first.received, second.received) for first, second in pairs]
    read = any(a is not None and b is not None and not torch.equal(a, b) for a, b in sums)
    # Steps that were accounted without a sum may pay for other numbers, which are those of each run too.
    more = not all_seen and any(len(run.accounted_steps) > len(run.releases) for run in (one, other))
    return settings and read and not more and all(a == b for a, b in zip(one.drawn, other.drawn, strict=False))


class _History:
    """A history as an accountant holds it."""

    def __init__(self, history: AccountantHistory) -> None:
        self.history = list(history)
