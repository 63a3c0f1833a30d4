"""Test by trials everything that a preparation of the data publishes, together with everything that a training on the
prepared data releases.

Wherever prepared rows of other records, the first model or the plan follow a changed record, the training's release may
move by more than its claim allows for one record. Trainings on both prepared data sets show whether it does. What is
published before and after the training is joined to what is received, so that epsilons that add up are tried as their
sum.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..audit.arrays import FloatArray
from ..audit.check import JOINT_RELEASE, CheckResult
from ..audit.claim import Unit
from ..audit.curve import epsilon_from_mu
from ..audit.observer import FINAL_MODEL
from ..fl.canary import DataCanary
from ..fl.data.dataset import Dataset
from ..fl.engine import run_federation
from ..fl.models.network import Network
from ..fl.plan import Plan
from ..fl.preparation import Draw, Leaves, PreparedData
from ..fl.protection import Protection
from ..fl.recorder import RoundEvent
from ..fl.replay import ReplayedStreams
from ..fl.streams import Streams, normal
from ..fl.task import Task
from ..fl.training.local import Batch
from .neighbour_draws import SECONDS, DrawCounter, PreparationSetup, clock
from .published import PublishedVector, equal_values, first_difference
from .received import ReceivedNumbers
from .records import RecordPair, exact_pairs, without_rows

_PILOT, _SHORT = 1024, 128
"""Runs of each arm that teach scores, fix an event and choose one; fewer where a run takes long."""
_BATCH = 256
_EQUAL = 4
"""Equal draws in which the prepared data of neighbours are compared."""
_AGAIN = 16
"""Runs of a batch of those that show whether runs depend on each other."""
_ERRORS, _MOST_MU, _FURTHER = 5.0, 30.0, 4
"""Standard errors by which a measured move over noise is lowered, the largest of which an epsilon is computed, and by
which factor more runs measure it.
"""
_TRIED = 6
"""Pairs of data sets that are tried with few runs."""


class _Inputs(NamedTuple):
    """What one arm's federation is run on."""

    task: Task
    included: Tensor | None = None
    canary: DataCanary | None = None


@dataclass(kw_only=True, eq=False)
class _Models:
    """A recorder of the server's model after each round."""

    models: list[Tensor] = field(default_factory=list)

    def watch(self, event: RoundEvent) -> None:
        """Record a finished round."""
        self.models.append(event.model)


class _Run(NamedTuple):
    """What some runs of one arm gave: published values, received numbers ``(n, k)``, and scores of what is published
    after the training ``(n, 3)``.
    """

    leaves: list[Leaves]
    received: FloatArray
    finished: FloatArray


@dataclass(kw_only=True, eq=False)
class JointRelease:
    """A comparison of trainings on prepared data of neighbouring records, by all that is published and received.

    Args:
        channel: where the numbers of one vector begin and end among those that are received.
        random: whether the preparation draws anything, so that its noise may be made for so many records.
        among: names of what is compared of all that is published after the training; None: everything.
    """

    setup: PreparationSetup
    grids: dict[str, float] = field(default_factory=dict)
    channel: tuple[int, int] = (0, 0)
    random: bool = False
    among: set[str] | None = None
    refused: list[str] = field(default_factory=list)

    def result(self) -> CheckResult:
        """Find the pair of data sets on which runs with equal draws differ most, and run trials on this pair."""
        setup = self.setup
        pairs = list(self._relevant())
        if self.refused and not pairs:
            return JOINT_RELEASE.skipped(f"not looked at: {self.refused[0]}")
        if not pairs:
            words = (
                "a changed record does not affect the prepared features of other records, the first model or the plan"
            )
            return JOINT_RELEASE.at_most(0.0, setup.claim.epsilon, unit="epsilon", witness=words)
        sides = [Sides(joint=self, pair=pair) for pair in pairs[:_TRIED]]
        best = max(sides, key=lambda one: one.apart)
        words = f"all that is published and received from {len(best.pair.records.train_labels)} records"
        counter = DrawCounter(setup=setup, apart=best.pair.apart, words=f"{words}, {best.pair.words}")
        result = best.tried(counter)
        if result.passed and self.refused:
            return JOINT_RELEASE.skipped(
                f"not looked at: {len(self.refused)} neighbouring data sets could not be prepared: {self.refused[0]}"
            )
        return result

    def pairs(self, unit: Tensor) -> Iterator[RecordPair]:
        """Pairs of neighbouring data sets that differ by the unit with these rows."""
        setup = self.setup
        removes = setup.pipeline.keeps_rows(setup.base) or self._parts_stay()
        held = torch.cat(setup.held_in(setup.base))
        # Records that are trained on show it where they follow the changed one.
        near = held if setup.pipeline.keeps_rows(setup.base) and setup.claim.unit is Unit.SAMPLE else None
        return exact_pairs(setup.claim, setup.pipeline.records, unit, setup.seed, removes=removes, near=near)

    def _relevant(self) -> Iterator[RecordPair]:
        pipeline = self.setup.pipeline
        for pair in self.pairs(self.setup.unit):
            try:
                within, without = ([*self._equal_draws(one)] for one in (pair.within, pair.without))
            except ValueError as error:
                self.refused.append(f"{pair.words}: {error}")
                continue
            varied = not _same(self.setup.published(within[0]), self.setup.published(within[-1]))
            follows = any(self._follows(pair, *both) for both in zip(within, without, strict=True))
            if pipeline.finishes or varied or follows:
                yield pair

    def _equal_draws(self, records: Dataset) -> Iterator[PreparedData]:
        """Some draws of prepared data, one where nothing is drawn."""
        for number in range(_EQUAL):
            one = self.setup.pipeline.draw(records, number=number)
            yield one.data
            if not one.random:
                return
            self.random = True

    def _parts_stay(self) -> bool:
        """Whether the clients that the preparation deals keep all other records where the unit is removed."""
        setup, unit = self.setup, self.setup.unit
        try:
            parts = setup.pipeline.draw(without_rows(setup.pipeline.records, unit)).data.parts or ()
        except ValueError:
            return False
        left = np.setdiff1d(np.arange(len(setup.pipeline.records.train_labels)), unit.numpy())
        before = [np.setdiff1d(part.numpy(), unit.numpy()) for part in setup.base.parts or ()]
        return len(parts) == len(before) and all(
            int(part.max()) < len(left) and np.array_equal(np.sort(left[part.numpy()]), one)
            for part, one in zip(parts, before, strict=True)
        )

    def _follows(self, pair: RecordPair, within: PreparedData, without: PreparedData) -> bool:
        """Whether anything but the unit's own rows differs."""
        own = self.setup.published
        if first_difference(own(within), own(without), set(own(within))):
            return True
        kept = torch.ones(len(pair.records.train_labels), dtype=torch.bool)
        kept[pair.rows] = False
        sets = [within.dataset, without.dataset]
        if len(sets[0].train_labels) != len(kept):
            return True
        parts = [data.parts or () for data in (within, without)]
        if not pair.removed and (len(parts[0]) != len(parts[1]) or any(map(_unlike, *parts))):
            return True
        others = [sets[0].train_images[kept], sets[0].train_labels[kept]]
        mask = torch.ones(len(sets[1].train_labels), dtype=torch.bool) if pair.removed else kept
        if len(mask) != len(sets[1].train_labels) or int(mask.sum()) != len(others[0]):
            return True
        return _unlike(others[0], sets[1].train_images[mask]) or _unlike(others[1], sets[1].train_labels[mask])


def _unlike(one: Tensor, other: Tensor) -> bool:
    return not torch.equal(one, other)


@dataclass(kw_only=True, eq=False)
class Sides:
    """The runs on a pair of neighbouring data sets."""

    joint: JointRelease
    pair: RecordPair
    made: list[int] = field(default_factory=lambda: [0, 0])

    @property
    def setup(self) -> PreparationSetup:
        return self.joint.setup

    @cached_property
    def records(self) -> tuple[Dataset, Dataset]:
        """The data sets without and with the unit."""
        return self.pair.without, self.pair.within

    @cached_property
    def equal_draws(self) -> tuple[Draw, Draw]:
        """Both data sets, prepared with equal random draws."""
        pipeline = self.setup.pipeline
        return pipeline.draw(self.records[0]), pipeline.draw(self.records[1])

    @cached_property
    def steady(self) -> bool:
        """Whether the preparation's random draws leave the training data unchanged, so that all runs share one
        preparation.
        """
        pipeline = self.setup.pipeline
        for records, first in zip(self.records, self.equal_draws, strict=True):
            again = [pipeline.draw(records, number=number).data for number in (1, 2)] if first.random else []
            if any(trains_otherwise(first.data, one) for one in again):
                return False
        return True

    @cached_property
    def direction(self) -> Tensor:
        """The unit vector along which the unit moves what is received, in runs with equal draws."""
        drawn = [self._trained(arm) for arm in (0, 1)]
        ended = self.setup.claim.observer.rank == FINAL_MODEL.rank
        moves = [(final if ended else final - models[0]).double().mean(0) for models, final in drawn]
        apart = moves[1] - moves[0]
        length = float(torch.linalg.vector_norm(apart))
        if not math.isfinite(length) or length == 0:
            apart = normal(Streams(self.setup.seed).generator("trial direction"), tuple(apart.shape)).double()
            length = float(torch.linalg.vector_norm(apart))
        return (apart / length).float()

    @cached_property
    def equal_runs(self) -> list[_Run]:
        """A few runs of each arm with equal draws."""
        return [self._runs(arm, 8 if self.steady else 4, block=1, equal=True) for arm in (0, 1)]

    @cached_property
    def apart(self) -> float:
        """The distance, in runs with equal draws, by which the unit moves what is published and received, relative to
        its spread over runs.
        """
        vector = PublishedVector.of([one for run in self.equal_runs for one in run.leaves])
        total = 0.0
        for name in ("numbers", "received", "finished"):
            sides = [vector.numbers(run.leaves) if name == "numbers" else getattr(run, name) for run in self.equal_runs]
            gap, spread = np.abs(sides[1].mean(0) - sides[0].mean(0)), np.sqrt((sides[0].var(0) + sides[1].var(0)) / 2)
            clear = gap > 1e-9 * np.abs(np.concatenate(sides)).max(initial=0.0)
            sizes = np.divide(gap, spread, out=np.where(clear, 100.0, 0.0), where=spread > 1e-12)
            total += float(np.minimum(sizes, 100.0).max(initial=0.0))
        return total / self.pair.apart

    def tried(self, counter: DrawCounter) -> CheckResult:
        """The result of trials on this pair."""
        started, few = clock(), 32 if self.steady else 8
        self._runs(0, few, block=2)
        seconds = (clock() - started) / few
        pilot = _PILOT if 2 * _PILOT * seconds <= SECONDS else _SHORT
        both = [list(self.drawn(arm, pilot)) for arm in (0, 1)]
        leaves = [[one for run in side for one in run.leaves] for side in both]
        vector = PublishedVector.learnt(leaves, [run.leaves for run in self.equal_runs])
        weights = self._weights(both)
        rows = partial(self._rows, vector=vector, weights=weights)

        def draw(arm: int, runs: int) -> Iterator[FloatArray]:
            yield from (rows(run) for run in self.drawn(arm, runs))

        def again(arm: int, batch: int) -> FloatArray:
            return rows(self.again(arm, batch))

        pilots = [np.concatenate([rows(run) for run in side]) for side in both]
        found = counter.result(JOINT_RELEASE, pilots, draw, again, seconds)
        return found if found.passed is False else self._held(found, both, weights)

    def _held(self, found: CheckResult, both: Sequence[Sequence[_Run]], weights: FloatArray) -> CheckResult:
        """The result; a failed one where the pilot's move over its noise implies more than the claim, as it would with
        Gaussian noise, although so many runs do not show it.
        """
        claim, steps = self.setup.claim, self.pair.apart
        if claim.delta == 0:
            return found
        mu, n = _move_over_noise(both, weights)
        if not claim.epsilon < _implied(mu / steps, claim.delta):
            return found
        # Fresh runs measure what the pilot suspects.
        mu, n = _move_over_noise([list(self.drawn(arm, _FURTHER * n)) for arm in (0, 1)], weights)
        implied = _implied((mu - _ERRORS * math.sqrt(2 / n + mu**2 / (4 * n))) / steps, claim.delta)
        if implied <= claim.epsilon:
            return found
        words = f"what is received changes by {mu:.3g} of its standard deviations, {self.pair.words}; {found.witness}"
        return JOINT_RELEASE.failed(words, implied, claim.epsilon, unit="epsilon")

    def _weights(self, both: Sequence[Sequence[_Run]]) -> FloatArray:
        """The weights of received numbers along the unit's move, one channel in all rounds."""
        received = [np.concatenate([run.received for run in side]) for side in both]
        spread = np.sqrt((received[0].var(0) + received[1].var(0)) / 2)
        shift = self.equal_runs[1].received.mean(0) - self.equal_runs[0].received.mean(0)
        places = np.arange(*self.joint.channel)[::2]
        weights = np.zeros(received[0].shape[1])
        weights[places] = np.divide(
            shift[places], spread[places] ** 2, out=np.zeros(len(places)), where=spread[places] > 0
        )
        return weights

    def _rows(self, run: _Run, vector: PublishedVector, weights: FloatArray) -> FloatArray:
        published = vector.rows(run.leaves)
        along = run.received @ weights[:, None]
        total = published[:, :1] + along
        return np.concatenate([total, run.finished, published, along, run.received], axis=1)

    def again(self, arm: int, batch: int) -> _Run:
        """One batch of runs; equal arm and batch numbers give the same runs."""
        return self._runs(arm, _AGAIN, block=2**18 + batch)

    def models(self, runs: int) -> tuple[Network, Tensor]:
        """The network, and the server's models ``(rounds + 1, runs, d)`` in runs without the unit that are not
        counted.
        """
        inputs, plan, protection = self._inputs(0, self.equal_draws[0].data)
        return inputs.task.network, self._run(inputs, plan, protection, 0, runs, 3, False, [])[0]

    def drawn(self, arm: int, runs: int) -> Iterator[_Run]:
        """Fresh runs of one arm, in batches."""
        for start in range(0, runs, _BATCH):
            self.made[arm] += 1
            yield self._runs(arm, min(_BATCH, runs - start), block=16 + self.made[arm])

    def _runs(self, arm: int, runs: int, *, block: int, equal: bool = False) -> _Run:
        """Fresh runs of one arm; ``equal``: with the draws that the other arm has as well."""
        pipeline, drawn = self.setup.pipeline, 0 if equal else arm
        numbers = range(2**24 + block * _BATCH, 2**24 + block * _BATCH + runs)
        facts: dict[str, Any] = {"equal": equal}
        if self.steady:
            first = self.equal_draws[arm]
            data = [
                pipeline.draw(self.records[arm], number=one, arm=drawn).data if first.random else first.data
                for one in numbers
            ]
            return self._of(arm, data[0], data, numbers, block=block, **facts)
        made = []
        for number in numbers:
            one = pipeline.draw(self.records[arm], number=number, arm=drawn).data
            made.append(self._of(arm, one, [one], [number], block=2**20 + number, **facts))
        received = np.concatenate([run.received for run in made])
        finished = np.concatenate([run.finished for run in made])
        return _Run([leaves for run in made for leaves in run.leaves], received, finished)

    def _of(
        self,
        arm: int,
        trained_on: PreparedData,
        data: Sequence[PreparedData],
        numbers: Sequence[int],
        *,
        block: int,
        equal: bool,
    ) -> _Run:
        inputs, plan, protection = self._inputs(arm, trained_on)
        recorder = ReceivedNumbers(
            observer=self.setup.claim.observer,
            protection=protection,
            holder=plan.clients if inputs.canary is not None else 0,
            direction=self.direction,
            grids=self.joint.grids,
        )
        models, final = self._run(inputs, plan, protection, arm, len(numbers), block, equal, [recorder])
        finished = [
            self._finished(inputs.task, models[:, run], final[run], arm, number, 0 if equal else arm)
            for run, number in enumerate(numbers)
        ]
        leaves = [self.setup.published(one) for one in data]
        received = recorder.numbers(final)
        self.joint.channel = _channel(received)
        scores = np.array(finished, dtype=np.float64).reshape(len(numbers), 3)
        return _Run(leaves, np.concatenate([*received.values()], axis=1), scores)

    def _trained(self, arm: int) -> tuple[Tensor, Tensor]:
        """A few trainings with equal draws."""
        inputs, plan, protection = self._inputs(arm, self.equal_draws[arm].data)
        return self._run(inputs, plan, protection, arm, 4, 0, True, [])

    def _run(
        self,
        inputs: _Inputs,
        plan: Plan,
        protection: Protection,
        arm: int,
        runs: int,
        block: int,
        equal: bool,
        recorders: Sequence[Any],
    ) -> tuple[Tensor, Tensor]:
        """The server's models ``(rounds + 1, R, d)`` and the published final ones ``(R, d)``."""
        setup, models = self.setup, _Models()
        streams = ReplayedStreams(setup.seed) if equal else Streams(setup.seed)
        included = None if inputs.included is None else inputs.included.repeat(runs, 1)
        final = run_federation(
            inputs.task,
            plan,
            protection,
            streams,
            # Blocks of their own: no run shares a draw with the claim's other runs.
            batch=Batch(replicas=runs, arm=arm, block=2**30 + block, included=included),
            canary=inputs.canary,
            recorders=[models, *recorders],
            stop_after=setup.claim.rounds,
        )
        first = inputs.task.initial(streams).expand(runs, -1)
        return torch.stack([first, *models.models]), final

    def _inputs(self, arm: int, data: PreparedData) -> tuple[_Inputs, Plan, Protection]:
        inputs = self._federation(arm, data)
        plan = self.setup.plan(inputs.task)
        protection = self.setup.protection(plan)
        if isinstance(protection, str):
            raise ValueError(protection)
        return inputs, plan, protection

    def _federation(self, arm: int, data: PreparedData) -> _Inputs:
        setup, pair = self.setup, self.pair
        pipeline = replace(setup.pipeline, held_out=0)
        if not pair.removed:
            return _Inputs(pipeline.task(data, setup.held_in(data)))
        within = self.equal_draws[1].data
        rows, like = setup.held_in(within), within.dataset
        if not arm:
            data = replace(data, dataset=_reinserted(data.dataset, pair.rows, like), published={}, parts=None)
        if setup.claim.unit in (Unit.CLIENT, Unit.REPORT):
            others = tuple(part[: setup.samples] for part in setup.held[1 : setup.clients + 1])
            if not others:
                raise ValueError("the only client of a federation cannot be removed")
            own = data.dataset if arm else like
            canary = DataCanary(unit=Unit.CLIENT, images=own.train_images[rows[0]], present=own.train_labels[rows[0]])
            return _Inputs(pipeline.task(data, others), canary=canary)
        task = pipeline.task(data, rows)
        if arm:
            return _Inputs(task)
        pool = torch.from_numpy(np.unique(torch.cat(rows).numpy()))
        return _Inputs(task, included=torch.isin(pool, pair.rows, invert=True).unsqueeze(0))

    def _finished(
        self, task: Task, models: Tensor, final: Tensor, arm: int, number: int, arm_of_draws: int
    ) -> tuple[float, float, float]:
        """How much what is published after a training looks like that of arm 1 and not of arm 0, by what the observer
        itself could compute from the models that it receives.
        """
        pipeline = self.setup.pipeline
        if not pipeline.finishes:
            return 0.0, 0.0, 0.0
        found, random = pipeline.finish(models, task.network, self.records[arm], number=number, arm=arm_of_draws)
        self.joint.random = self.joint.random or random
        ended = self.setup.claim.observer.rank == FINAL_MODEL.rank
        seen = final.expand_as(models) if ended else models
        # What draws nothing is the same again.
        known = [
            found
            if side == arm and not random and not ended
            else pipeline.finish(seen, task.network, one, number=0, arm=0)[0]
            for side, one in enumerate(self.records)
        ]
        alike = [float(_same(found, one, self.joint.among)) for one in known]
        match = alike[1] - alike[0]
        own, out, within = (_joined(one) for one in (found, *known))
        if not len(own) == len(out) == len(within):
            return match, 0.0, 0.0
        nearer = float(np.linalg.norm(own - out) - np.linalg.norm(own - within))
        return match, nearer, float((own - (out + within) / 2) @ (within - out))


def _move_over_noise(both: Sequence[Sequence[_Run]], weights: FloatArray) -> tuple[float, int]:
    """How far apart the arms are along the weights, in standard deviations, and the runs of each."""
    out, within = (np.concatenate([run.received @ weights for run in side]) for side in both)
    spread = math.sqrt((out.var() + within.var()) / 2)
    return (abs(float(within.mean() - out.mean())) / spread if spread > 0 else 0.0), len(out)


def _implied(mu: float, delta: float) -> float:
    return float(epsilon_from_mu(mu, delta)) if 0 < mu < _MOST_MU else 0.0


def _channel(received: Mapping[str, FloatArray]) -> tuple[int, int]:
    """Where the numbers of one vector in all rounds begin and end: its projection and its sum in each."""
    name = next((one for one in ("aggregate", "model", "broadcast", "report", "arrived") if one in received), "")
    before = 0
    for each, numbers in received.items():
        if each == name:
            return before, before + numbers.shape[1]
        before += numbers.shape[1]
    return 0, 0


def _same(one: Leaves, other: Leaves, among: set[str] | None = None) -> bool:
    if among is not None:
        return all(equal_values(one.get(name), other.get(name)) for name in among)
    return not first_difference(one, other, set(one))


def _joined(leaves: Leaves) -> FloatArray:
    numbers = [leaf.ravel() for leaf in leaves.values() if leaf.dtype.kind == "f"]
    return np.concatenate(numbers) if numbers else np.zeros(0)


def trains_otherwise(one: PreparedData, other: PreparedData) -> bool:
    """Return whether two draws of a preparation give other data, models, plans or clients' rows."""
    sets = one.dataset, other.dataset
    if any(_unlike(*(getattr(data, name) for data in sets)) for name in ("train_images", "train_labels")):
        return True
    if any(map(_unlike, one.parts or (), other.parts or ())):
        return True
    public = [
        {name: leaf for name, leaf in data.leaves().items() if name.startswith(("initial", "algorithm"))}
        for data in (one, other)
    ]
    return not _same(public[0], public[1])


def _reinserted(data: Dataset, rows: Tensor, like: Dataset) -> Dataset:
    """The prepared data without a unit, with places for its rows again, which no run uses."""
    count = len(like.train_labels)
    if len(data.train_labels) != count - len(rows):
        raise ValueError("the preparation does not return one prepared record for each record")
    keep = torch.ones(count, dtype=torch.bool)
    keep[rows] = False
    images, labels = like.train_images.clone(), like.train_labels.clone()
    images[keep], labels[keep] = data.train_images, data.train_labels
    derived: dict[str, Any] = {"train_masks": None, "test_masks": None} if like.strokes else {}
    return replace(like, train_images=images, train_labels=labels, **derived)
