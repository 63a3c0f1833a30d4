"""Compare what a preparation of data publishes, and what it does to other records, with a privacy claim.

The claim covers preparation, training and what is published after it together. Neighbouring data sets go through the
user's own preparation. What differs without any noise has no finite epsilon, and is counted in independent draws. What
has noise is one mechanism of the records, which is tried alone; all of it together with the training is for
``joint_release``.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..audit.arrays import FloatArray
from ..audit.check import JOINT_RELEASE, PREPARATION, Check, CheckResult
from ..audit.claim import Adjacency, Unit
from ..audit.evidence import Setting
from ..audit.finding import beyond_all
from ..fl.data.dataset import Dataset
from ..fl.preparation import Leaves
from .finished import FinishedRelease
from .joint_release import JointRelease, trains_otherwise
from .neighbour_draws import SECONDS, DrawCounter, PreparationSetup, clock
from .published import PublishedVector, equal_values, first_difference
from .records import (
    CONTENTS,
    RecordPair,
    changed_sets,
    equal_records,
    exact_pairs,
    extreme_rows,
    few_records,
    uneven_records,
    without_rows,
)

_LARGEST = 2**26
"""Numbers of the training records, at most."""
_SEARCHED, _FEWEST = 8, 16
"""Records that are changed in the search for differences without noise, and of one data set on which a training is
tried, at least.
"""
_FEW, _MOST_OF_LABEL = 40, 10
"""Records of small data sets that are searched as well, and of one label, at most, in one of uneven labels."""
_PILOT, _SHORT = 2048, 64
"""Draws of each arm that teach scores, and as many again that fix and choose an event; fewer where a draw takes long.
"""
_STEADY = 16
"""Draws in which a published value must be the same before it is counted as one without noise."""
_BATCH = 256
_CONTENTS, _DRAWS = 3, 64
"""Contents of a unit, and draws of each, by which it is seen whether the preparation may leave it out."""


class _Made(NamedTuple):
    """Published values of one draw, and whether anything was drawn."""

    leaves: Leaves
    random: bool


def preparation_checks(setup: PreparationSetup) -> tuple[CheckResult, ...]:
    """Return the results of all checks of a preparation; the ``evidence`` of these results may refute the claim."""
    if reason := _why_not(setup):
        return (PREPARATION.skipped(reason),)
    try:
        unit = setup.unit
    except ValueError as error:
        return (PREPARATION.skipped(f"not looked at: {error}"),)
    search = _Search(setup=setup, unit=unit)
    found = _guarded(PREPARATION, search.result)
    if found.passed is False:
        return (found,)
    return found, _joint(setup, search.data_sets())


def why_amplified(setup: PreparationSetup) -> str:
    """Return why runs of the training alone are no evidence about the claim: by some random draws of the preparation,
    clients train on the same data whatever the unit holds, so that the whole may show less of it. Empty otherwise.
    """
    draw, records = setup.pipeline.draw, setup.pipeline.records
    try:
        if _why_not(setup) or not draw(records).random:
            return ""
        for pair in islice(changed_sets(setup.claim, records, setup.unit, setup.seed), _CONTENTS):
            ends, made, same = clock() + SECONDS / _CONTENTS, 0, 0
            while made < _DRAWS and clock() < ends:
                same += not trains_otherwise(draw(records, number=made).data, draw(pair.within, number=made).data)
                made += 1
            if same == 0:
                return ""
    except ValueError:
        return ""
    return (
        "in some random draws of the preparation clients train on the same data whatever one "
        f"{setup.claim.unit} holds, which may amplify privacy: runs of the training alone may show more than the whole"
    )


def _joint(setup: PreparationSetup, data_sets: Iterable[tuple[Dataset, list[Tensor]]]) -> CheckResult:
    """What is published given the models, and trials with the training on the records, and on a few of them where no
    noise may be made for their number.
    """
    if not setup.pipeline.finishes:
        return _trained(setup)
    given = _guarded(JOINT_RELEASE, FinishedRelease(setup=setup, data_sets=data_sets).result)
    found = given if given.passed is False else _trained(setup)
    return given if found.passed and not given.passed else found


def _trained(setup: PreparationSetup) -> CheckResult:
    joint, pipeline = JointRelease(setup=setup), setup.pipeline
    found = _guarded(JOINT_RELEASE, joint.result)
    few = few_records(pipeline.records, max(_FEWEST, 2 * pipeline.clients))
    if not found.passed or joint.random or few is pipeline.records or setup.claim.unit is not Unit.SAMPLE:
        return found
    # A claim holds for every data set, and in a small one a record moves more.
    smaller = replace(setup, pipeline=replace(pipeline, records=few, samples=None, held_out=0))
    again = _guarded(JOINT_RELEASE, JointRelease(setup=smaller).result)
    return again if again.passed is False else found


def _why_not(setup: PreparationSetup) -> str:
    claim = setup.claim
    if reason := beyond_all(claim, Setting.claimed(claim)):
        return f"not looked at: {reason}"
    numbers = setup.pipeline.records.train_images.numel()
    return f"not looked at: the records hold {numbers:,} numbers, which are too many" if numbers > _LARGEST else ""


def _guarded(check: Check, made: Callable[[], CheckResult]) -> CheckResult:
    try:
        return made()
    except Exception as error:  # A user's own preparation or defense may raise anything, and other checks still apply.
        return check.skipped(f"not looked at: {error}")


@dataclass(kw_only=True, eq=False)
class _Search:
    """What a preparation publishes before the training, on neighbouring records.

    ``refused``: why the preparation of some neighbours could not be run.
    """

    setup: PreparationSetup
    unit: Tensor
    refused: list[str] = field(default_factory=list)
    tried: int = 0

    def result(self) -> CheckResult:
        """Differences without noise first, then trials of those with noise."""
        setup, started = self.setup, clock()
        for records, rows in self.data_sets():
            found = self._without_noise(records, rows, started)
            if found is not None and found.passed is False:
                return found
            if found is not None:
                # One count is all that its level allows.
                break
        if self.tried + len(self.refused) < len(CONTENTS):
            seconds = f"{SECONDS:g} seconds were enough for {self.tried}"
            return PREPARATION.skipped(f"not looked at: {seconds} of {len(CONTENTS)} kinds of a changed unit")
        if self.tried == 0:
            return PREPARATION.skipped(f"not looked at: {self.refused[0]}")
        if not self._made(setup.pipeline.records, 0, 0).random:
            return self._passed("the same values are published on all of them")
        return self._with_noise()

    def _passed(self, words: str, **also: Any) -> CheckResult:
        if self.refused:
            words += f"; {len(self.refused)} others could not be prepared: {self.refused[0]}"
            # What was not run may have shown anything.
            return PREPARATION.skipped(f"not looked at: {words}", **also)
        return PREPARATION.at_most(
            0.0,
            self.setup.claim.epsilon,
            unit="epsilon",
            witness=f"{self.tried} neighbouring data sets, {words}",
            compared=("what the preparation of neighbouring data sets publishes",),
            **also,
        )

    def data_sets(self) -> Iterator[tuple[Dataset, list[Tensor]]]:
        """Data sets to search, with the units that are changed in turn: the records, and a few of them."""
        setup, records = self.setup, self.setup.pipeline.records
        if setup.claim.unit is not Unit.SAMPLE:
            yield records, [self.unit]
            return
        held = self.unit
        yield records, [held, *(row.reshape(1) for row in extreme_rows(records, held, _SEARCHED)[1:])]
        # A claim holds for every data set: one in which a record moves more, counts near any threshold, and noise for a
        # spread that is none.
        even, uneven = few_records(records, _FEW), uneven_records(records, _MOST_OF_LABEL)
        for few, searched in ((even, _SEARCHED), (uneven, 2 * _MOST_OF_LABEL), (equal_records(records, _FEW), 2)):
            if few is not records:
                yield few, [row.reshape(1) for row in extreme_rows(few, torch.zeros(1, dtype=torch.int64), searched)]

    def _made(self, records: Dataset, number: int, arm: int) -> _Made:
        draw = self.setup.pipeline.draw(records, number=number, arm=arm)
        return _Made(self.setup.published(draw.data), draw.random)

    def _without_noise(self, records: Dataset, units: list[Tensor], started: float) -> CheckResult | None:
        """The first difference that no noise hides, counted; None where there is none."""
        setup, own = self.setup, records is self.setup.pipeline.records
        try:
            base = [self._made(records, number, 0) for number in range(3)]
        except ValueError as error:
            # Fewer records than the preparation needs are no neighbours of the claim's own.
            if own:
                self.refused.append(str(error))
            return None
        for rows in units:
            for pair in changed_sets(setup.claim, records, rows, setup.seed):
                words, other = pair.words, pair.within
                if clock() - started > SECONDS:
                    return None
                try:
                    changed = self._made(other, 0, 0)
                    name = first_difference(base[0].leaves, changed.leaves, _constant(base))
                except ValueError as error:
                    if own:
                        self.refused.append(f"{words}: {error}")
                    continue
                self.tried += own
                if name and self._always_differs(records, other, name):
                    return self._refuting(records, other, rows, words, name)
        return None

    def _always_differs(self, records: Dataset, other: Dataset, name: str) -> bool:
        """Whether a published value is one and the same in further draws of the records, which are not counted, and
        another in all of their neighbours'.
        """
        value, *again = (self._made(records, number, 0).leaves.get(name) for number in range(_STEADY))
        others = (self._made(other, number, 0).leaves.get(name) for number in range(_STEADY))
        return all(equal_values(value, one) for one in again) and not any(equal_values(value, one) for one in others)

    def _refuting(self, records: Dataset, other: Dataset, rows: Tensor, words: str, name: str) -> CheckResult:
        """Count the value that no draw of the records changes, in draws of two data sets that are neighbours by the
        claim.
        """
        sides, apart = [other, records], 1
        if self.setup.claim.adjacency is not Adjacency.REPLACE_ONE:
            # Two different values cannot both be that of the records without the unit.
            try:
                removed = without_rows(records, rows)
                gone = self._made(removed, 0, 0).leaves.get(name)
                before = self._made(records, 0, 0).leaves.get(name)
                sides = [other, removed] if equal_values(gone, before) else [removed, records]
                changed = words.replace("replaced by", "changed to", 1)
                words = changed if equal_values(gone, before) else words.split(" replaced")[0]
                words += ", compared with the data set without it"
            except ValueError:
                apart = 2
        expected = self._made(sides[1], 0, 0).leaves.get(name)
        size = "" if records is self.setup.pipeline.records else f" among {len(records.train_labels)} records"
        words = f"{name} differs between two neighbouring data sets in every draw{size}: {words}"
        counter = DrawCounter(setup=self.setup, apart=apart, words=words)

        def hits(arm: int, draws: int) -> int:
            found = 0
            for number in range(2**20, 2**20 + draws):
                one = self._made(sides[arm], number, arm)
                equal = equal_values(one.leaves.get(name), expected)
                # Without randomness every further draw is this one.
                if not one.random:
                    return draws * equal
                found += equal
            return found

        drawn = any(self._made(side, 0, 0).random for side in sides)
        return counter.certain(hits, drawn, self._seconds)

    @cached_property
    def _seconds(self) -> float:
        """Time of one draw."""
        started = clock()
        for number in range(4):
            self._made(self.setup.pipeline.records, number, 0)
        return (clock() - started) / 4

    def _with_noise(self) -> CheckResult:
        """Trials of the pair of data sets whose published values differ most, in units of their noise."""
        setup = self.setup
        pairs = list(self._pairs())
        base = [self._made(setup.pipeline.records, number, 0) for number in range(_STEADY)]
        spread = PublishedVector.of([one.leaves for one in base])
        # Fewer draws where they take long.
        draws = int(np.clip(SECONDS / (8 * max(1, len(pairs)) * self._seconds), 2, _STEADY))
        apart = [self._apart(pair, spread, draws) for pair in pairs]
        # A choice by noise may be the same in all equal draws, and depend on the records all the same.
        if not pairs or (max(apart) == 0 and _constant(base) == set(base[0].leaves)):
            return self._passed("with equal random draws, the same values are published on all of them")
        pair = pairs[int(np.argmax(apart))]
        counter = DrawCounter(setup=setup, apart=pair.apart, words=f"all that is published, {pair.words}")
        sides = (pair.without, pair.within)

        def leaves(arm: int, first: int, runs: int) -> list[Leaves]:
            return [self._made(sides[arm], number, arm).leaves for number in range(first, first + runs)]

        pilot = 2 ** int(np.log2(np.clip(SECONDS / (4 * self._seconds), _SHORT, _PILOT)))
        taught = [leaves(arm, 2**20, pilot) for arm in (0, 1)]
        equal = [[self._made(side, number, 0).leaves for number in range(_STEADY)] for side in sides]
        vector = PublishedVector.learnt(taught, equal)
        position = [2**21, 2**21]

        def draw(arm: int, runs: int) -> Iterator[FloatArray]:
            for start in range(0, runs, _BATCH):
                size = min(_BATCH, runs - start)
                yield vector.rows(leaves(arm, position[arm], size))
                position[arm] += size

        chosen = [np.concatenate(list(draw(arm, pilot))) for arm in (0, 1)]
        both = [np.concatenate([vector.rows(one), two]) for one, two in zip(taught, chosen, strict=True)]

        def again(arm: int, batch: int) -> FloatArray:
            return vector.rows(leaves(arm, 2**23 + _STEADY * batch, _STEADY))

        result = counter.result(PREPARATION, both, draw, again, self._seconds)
        if result.passed is not True:
            return result
        words = f"the published values have enough noise; {result.witness}"
        return self._passed(words, detects=result.detects, evidence=result.evidence)

    def _pairs(self) -> Iterator[RecordPair]:
        claim, records = self.setup.claim, self.setup.pipeline.records
        try:
            self._made(without_rows(records, self.unit), 0, 0)
            removes = self.setup.base.parts is None
        except ValueError:
            removes = False
        for pair in exact_pairs(claim, records, self.unit, self.setup.seed, removes=removes):
            try:
                self._made(pair.within, 0, 0)
            except ValueError:
                continue
            yield pair

    def _apart(self, pair: RecordPair, spread: "PublishedVector", draws: int) -> float:
        """How far published values move by equal draws, in units of their noise; far for texts and shapes."""
        sides = pair.without, pair.within
        moves = [spread.move(*(self._made(side, number, 0).leaves for side in sides)) for number in range(draws)]
        return float(np.mean(moves)) / pair.apart


def _constant(made: Sequence[_Made]) -> set[str]:
    """The published values that no draw changes."""
    first = made[0].leaves
    if not made[0].random:
        return set(first)
    return {name for name in first if all(equal_values(first[name], one.leaves.get(name)) for one in made[1:])}
