"""Check what is published after the training, as a separate release given the models.

The models differ from run to run, so that a threshold of private scores never looks as if it had no noise. Given the
same models it has none: an observer computes from the models that it receives what one data set would have published.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..audit.check import JOINT_RELEASE, CheckResult
from ..fl.data.dataset import Dataset
from ..fl.models.network import Network
from ..fl.preparation import Leaves
from .arms import dependent
from .joint_release import JointRelease, Sides
from .neighbour_draws import SECONDS, DrawCounter, PreparationSetup, Summary, clock
from .published import equal_values
from .records import RecordPair

_MODELS, _FIRST = 24, 4
"""Trained models for which published values are compared, and those of them that are tried first."""
_DRAWS = 8
"""Draws in which a published value must be the same for the same models, before it is counted as one without noise."""


@dataclass(kw_only=True, eq=False)
class FinishedRelease:
    """A comparison, on neighbouring records, of the values that are published after training for the same models.

    Args:
        data_sets: data sets to search, the claim's own first, with the units that are changed in turn.
    """

    setup: PreparationSetup
    data_sets: Iterable[tuple[Dataset, Sequence[Tensor]]]
    refused: list[str] = field(default_factory=list)

    def result(self) -> CheckResult:
        """Return the result of the check; if a difference has no noise, trials count how often it occurs."""
        own, started = self.setup.pipeline.records, clock()
        for records, units in self.data_sets:
            pipeline, setup = self.setup.pipeline, self.setup
            if records is not own:
                setup = replace(setup, pipeline=replace(pipeline, records=records, samples=None, held_out=0))
            given = _GivenModels(joint=JointRelease(setup=setup))
            if best := min(given.differences(units, started + SECONDS), key=lambda one: one.equal, default=None):
                return given.counted(best)
            # Fewer records than the code needs are no neighbours of the claim's own.
            self.refused += given.refused if records is own else []
            if given.joint.random or pipeline.draw(records).random:
                # Noise may be made for a number of records.
                break
        if self.refused:
            return JOINT_RELEASE.skipped(
                f"not looked at: what is published after the training could not be computed on {len(self.refused)} "
                f"neighbouring data sets: {self.refused[0]}"
            )
        words = "given equal models, what is published after the training is equal on neighbouring data or has noise"
        return JOINT_RELEASE.at_most(0.0, self.setup.claim.epsilon, unit="epsilon", witness=words)


class _Difference(NamedTuple):
    """Neighbours, the name of a value that differs between them, and the share of models that make it equal."""

    pair: RecordPair
    name: str
    equal: float


@dataclass(kw_only=True, eq=False)
class _GivenModels:
    """Published values of one data set and its neighbours for the same models."""

    joint: JointRelease
    refused: list[str] = field(default_factory=list)
    network: Network = field(init=False)
    models: Tensor = field(init=False)

    def differences(self, units: Iterable[Tensor], until: float) -> Iterator[_Difference]:
        """Yield neighbours on which a value without noise differs for most models, up to one that none makes equal."""
        records, units = self.joint.setup.pipeline.records, list(units)
        try:
            self.network, self.models = Sides(joint=self.joint, pair=next(self.joint.pairs(units[0]))).models(_MODELS)
            names = self._constant(records)
        except ValueError as error:
            self.refused.append(str(error))
            return
        if len(torch.unique(self.models[-1], dim=0)) < _MODELS:
            # Trainings that give the same model again and again count as one.
            return
        for unit in units:
            first = next(self.joint.pairs(unit))
            for pair in self.joint.pairs(unit):
                if not names or clock() > until:
                    return
                try:
                    for found in self._found(pair, first, names):
                        yield found
                        if found.equal == 0:
                            return
                except ValueError as error:
                    self.refused.append(f"{pair.words}: {error}")

    def _found(self, pair: RecordPair, first: RecordPair, names: list[str]) -> Iterator[_Difference]:
        """The pair and a name, if its values differ, and not for the number of records alone, which is public."""
        for name in names:
            if self._equal(pair.within, pair.records if pair.removed else pair.without, name) < 0.5:
                for one in (pair, first) if pair.removed else (pair,):
                    equal = self._equal(one.within, one.without, name)
                    if equal < 0.5 and name in self._constant(one.within):
                        yield _Difference(one, name, equal)

    def _equal(self, one: Dataset, other: Dataset, name: str) -> float:
        """The share of models that give equal values; of the first ones where it is large."""
        share = 1.0
        for models in (range(_FIRST), range(_MODELS)):
            both = [[self._value(data, model, model).get(name) for model in models] for data in (one, other)]
            share = float(np.mean([equal_values(*values) for values in zip(*both, strict=True)]))
            if share >= 0.5:
                break
        return share

    def _constant(self, records: Dataset) -> list[str]:
        """The values that no draw changes for the same models."""
        first = [self._value(records, model, 0) for model in range(_FIRST)]
        pairs = [
            (first[model], self._value(records, model, draw)) for model in range(_FIRST) for draw in range(1, _DRAWS)
        ]
        return [name for name in first[0] if all(equal_values(one.get(name), two.get(name)) for one, two in pairs)]

    def _value(self, records: Dataset, model: int, number: int) -> Leaves:
        pipeline = self.joint.setup.pipeline
        found, random = pipeline.finish(self.models[:, model], self.network, records, number=number)
        self.joint.random = self.joint.random or random
        return found

    def counted(self, found: _Difference) -> CheckResult:
        """Count fresh trainings in which the value is what the models give of the data set of arm 1, and not of arm 0.

        An observer who receives the models sees this, and in arm 0 it never happens.
        """
        setup, (pair, name, equal) = self.joint.setup, found
        joint = JointRelease(setup=setup, among={name})
        sides = Sides(joint=joint, pair=pair)
        size = len(pair.records.train_labels)
        words = f"{name}, which is computed from the models without random draws, with {size} records, {pair.words}"
        counter = DrawCounter(setup=setup, apart=pair.apart, words=words)
        sides.again(0, 0)
        started = clock()
        timed = len(sides.again(1, 0).finished)
        seconds = (clock() - started) / timed
        # Models that make both equal are no evidence: twice as many runs, and a margin.
        needed = counter.needed() * (4 if equal else 1)
        if 2 * needed * seconds > 4 * SECONDS:
            return JOINT_RELEASE.skipped(
                f"not looked at: to count {words}, {needed:,} trainings are needed in each arm"
            )
        out, within = (sum(int((run.finished[:, 0] > 0).sum()) for run in sides.drawn(arm, needed)) for arm in (0, 1))
        result = counter.of_counts(JOINT_RELEASE, out, within, needed)
        if result.passed is False and dependent(Summary(2, 1), lambda arm, batch: sides.again(arm, batch).finished):
            return JOINT_RELEASE.skipped("not looked at: runs of one batch depend on each other")
        return result
