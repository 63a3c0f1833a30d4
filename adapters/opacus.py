"""Runs an Opacus training as it is, with hooks on its instances, so that it can be watched, played back and audited."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from ..audit.claim import ONE_TRAINER, Claim, Unit
from ..audit.observer import GLOBAL_MODELS
from ..checks.training_record import AccountantHistory, Movement, Plant, TrainingRecord, equal_noise
from ..checks.watched_run import Watched, watched
from ..checks.watched_state import differing
from ..defenses.accounting.gaussian import LEAST_NOISE
from ..defenses.accounting.stated_laws import claim_from_accountant
from ..defenses.defense import check_delta
from ..fl.laws import GaussianLaw
from ..fl.layout import Layout
from ..fl.streams import seeded
from .logged_data import LoggedData
from .many_units import ManyUnits
from .opacus_hooks import OpacusHooks, OpacusParts, parts_of
from .play_back import PlayBack, Step
from .runner import is_replayable


class Training:
    """An Opacus training that can be run with and without one unit.

    Example::

        def build(data):
            model = nn.Linear(64, 10)
            engine = PrivacyEngine()
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            loader = DataLoader(data, batch_size=64)
            parts = engine.make_private(
                module=model, optimizer=optimizer, data_loader=loader, noise_multiplier=1.0, max_grad_norm=1.0
            )
            return (*parts, engine)


        print(*opacus.Training(build, train, data, delta=1e-5).watch().lines(), sep="\\n")

    Args:
        build: ``build(data)`` makes model, optimizer, loader and engine anew, and returns them as a tuple or mapping.
        train: ``train(*built)``, or ``train(**built)`` for a mapping, trains the model; what it returns is ignored.
        data: the training set, with a length and indices; ``build`` must read from the one that it is given.
        delta: in (0, 1), at which the accountant states its epsilon.
        epsilon: the epsilon that is claimed, where it is larger than the history implies.
        setting: ``unit``, ``observer`` and ``rounds`` of ``Claim.stated``; by default the adversary sees the model of
            every step.

    Raises:
        TypeError: for data without indices, and where ``build`` does not return the parts of an Opacus training.
    """

    def __init__(
        self,
        build: Callable[[Any], Any],
        train: Callable[..., Any],
        data: Any,
        *,
        delta: float,
        epsilon: float | None = None,
        unit: Unit | str = Unit.SAMPLE,
        **setting: Any,
    ) -> None:
        check_delta(delta)
        LoggedData(data)
        self._build, self._train, self._data = build, train, data
        self._delta, self._epsilon, self._unit, self._setting = (
            delta,
            epsilon,
            unit,
            {"observer": GLOBAL_MODELS} | setting,
        )
        self.interrupted: TrainingRecord | None = None
        self._ends: dict[str, Tensor] = {}
        self._begins: dict[str, Tensor] = {}

    def run(self, member: bool = False, seed: int = 0, *, plant: Plant | None = None) -> TrainingRecord:
        """Train once, under the seed of all global generators, and return what was seen.

        ``member``: whether the planted unit takes part; in a run without it, the vector of its record is zero, and all
        else is equal. The unit has the last index of the data, in place of the record there: the training draws,
        splits, clips and noises it like every other one.

        Ghost clipping never holds the vectors of records. There the loss of the unit's record is stretched until its
        gradient has the unit's length; its direction is the record's own, and is kept with each release.

        An exception of the training passes through, and what was seen before it is kept as ``interrupted``. Under
        ghost clipping, raises ValueError for a plant in one tensor.
        """

        def units(layout: Layout, index: range) -> dict[int, Tensor]:
            return {} if plant is None else {index[0]: plant.direction(layout) * (plant.weight * member)}

        own_vectors = plant is not None and plant.tensor is not None
        return self._run(seed, planted=int(plant is not None), units=units, own_vectors=own_vectors)

    def run_many_units(self, many: ManyUnits, seed: int = 0) -> TrainingRecord:
        """Train once with many planted units, each of which takes part by its coin; they have the last indices.

        Raises ValueError as ``run``, and for more units than records or coordinates.
        """

        def units(layout: Layout, index: range) -> dict[int, Tensor]:
            return dict(zip(index, many.vectors(layout), strict=True))

        return self._run(seed, planted=many.units, units=units, own_vectors=True)

    def _run(
        self,
        seed: int,
        *,
        planted: int = 0,
        own_vectors: bool = False,
        units: Callable[[Layout, range], dict[int, Tensor]] = lambda layout, index: {},
        account: bool = False,
        other: Collection[int] = (),
        forced: Sequence[Tensor] = (),
    ) -> TrainingRecord:
        """``own_vectors``: whether the units' directions matter; ``account``: whether the accountant is asked for its
        epsilon, which takes it long; ``other``: indices that have other records; ``forced``: noised sums of another
            run.
        """
        with seeded(seed):
            data = LoggedData(self._data, planted=planted, other=other)
            built = self._build(data)
            parts = parts_of(built)
            earlier = sum(int(steps) for _, _, steps in parts.accountant.history) if parts.accountant else 0
            if planted:
                _check_plant(parts, own_vectors=own_vectors)
            for loader in parts.loaders:
                data.follow(loader)
            vectors = units(parts.layout, data.units)
            hooks = OpacusHooks(parts=parts, data=data, planted=vectors, forced=forced)
            hooks.attach()
            try:
                self._call(built)
            except Exception as error:
                self.interrupted = self._recording(hooks, earlier, ended=False)
                error.add_note(f"raised by train after {len(hooks.releases)} releases, kept as Training.interrupted")
                raise
            finally:
                hooks.detach()
            recording = self._recording(hooks, earlier, ended=True)
            self._ends, self._drawn, self._begins = hooks.state.ends, hooks.drawn_until, hooks.state.start
            # Without history some accountants fail, and with hardly any noise they need all memory.
            if account and recording.ledger and min(noise for noise, _, _ in recording.ledger) >= LEAST_NOISE:
                epsilon = float(parts.accountant.get_epsilon(delta=self._delta))
                recording = replace(recording, accounted=epsilon)
            return recording

    def watch(self, seed: int = 0, *, again: bool = True) -> Watched:
        """Run the training once, unchanged, and check all that was seen.

        ``again``: run it a second time, on other records and with the noised sums of the first run in place of its own.
        All that is a function of noised sums then ends as it did: what ends otherwise, such as a step size that follows
        the loss, is moved by the data, if a third run on the first records ends as the first one. Without it, only what
        moved outside of updates is seen. Files that ``train`` writes are written by each run.
        """
        recording = self._run(seed, account=True)
        if again and recording.releases:
            moved = self._explained(recording, seed)
            explained = {"moved": "what moved without noise ended as it did on other records, in lots of equal sizes"}
            remarks = {**recording.remarks, **(explained if recording.moved and not moved else {})}
            recording = replace(recording, moved=moved, remarks=remarks)
        return watched(recording)

    def _explained(self, recording: TrainingRecord, seed: int) -> tuple[Movement, ...]:
        """What data move, by a second run on other records; as it was where the second run does not show it."""
        moved, ends, drawn = recording.moved or (), self._ends, self._drawn
        forced = [one.released for one in recording.releases]
        lots = [one.ids for one in recording.releases]
        # Records in no lot may be public, such as those that a training holds out.
        used = range(len(self._data)) if None in lots else {index for lot in lots for index in lot or ()}
        try:
            other = self._run(seed, other=used, forced=forced)
        except Exception as error:  # Such as a training that checks its data.
            how = f"ended with {type(error).__name__}, so that it does not show what data move"
            return (*moved, Movement(name="a run on other records", how=how, by_data=False))
        if not _comparable(recording, other, drawn, self._drawn):
            return moved
        if len(other.releases) != len(recording.releases):
            # Certain for no training: a limit of time, for one, ends each run at another step.
            how = f"is {len(other.releases)} in place of {len(recording.releases)} on other records"
            return (*moved, Movement(name="the number of steps", how=how, by_data=False))
        known = [one for one in moved if one.by_data]
        names = sorted(differing(ends, self._ends) - {one.name for one in known})
        if not names:
            return tuple(known)
        words = "ends with other values on other records, after equal noised sums"
        # A claim that is stated may pay for more numbers than the accountant knows.
        certain = self._epsilon is None and self._repeats(seed, forced, ends)
        return (*known, *(Movement(name=name, how=words, by_data=certain) for name in names))

    def _repeats(self, seed: int, forced: Sequence[Tensor], ends: Mapping[str, Tensor]) -> bool:
        """Whether a run on the same records ends as the first one: neither time nor what ``train`` keeps moves it."""
        first = self._begins
        again = self._run(seed, forced=forced)
        return len(again.releases) == len(forced) and not (
            differing(ends, self._ends) or differing(first, self._begins)
        )

    def step(self) -> Step:
        """Return clip and noise of the training, which ``build`` makes anew, as a step that takes rows of one's own.

        Raises ValueError for ghost clipping, which takes no rows.
        """
        with seeded(0):
            parts = parts_of(self._build(LoggedData(self._data)))
        if parts.ghost:
            raise ValueError("ghost clipping never holds the vectors of records, so that no rows can be played back")
        return Step(
            call=parts.play,
            layout=parts.layout,
            clip_norm=float(parts.optimizer.max_grad_norm),
            noise_multiplier=float(parts.optimizer.noise_multiplier),
            dtype=parts.narrowest,
        )

    def play_back(self, seed: int = 0) -> PlayBack:
        """Play frozen rows through clip and noise of the training, without training. Raises as ``step``."""
        return PlayBack(self.step(), seed)

    @cached_property
    def claim(self) -> Claim:
        """The claim that the accountant's history of a run implies, with its trade-off curve."""
        claim = claim_from_accountant(
            _History(self._first.ledger or ()),
            delta=self._delta,
            epsilon=self._epsilon,
            unit=self._unit,
            **self._setting,
        )
        return replace(claim, trust=ONE_TRAINER)

    @property
    def law(self) -> GaussianLaw | None:
        """The law of one release, where the accountant's history is of one noise multiplier and rate."""
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

    @cached_property
    def _first(self) -> TrainingRecord:
        return self.run(seed=0)

    def _call(self, built: Any) -> None:
        if isinstance(built, Mapping):
            self._train(**built)
        else:
            self._train(*built)

    def _recording(self, hooks: OpacusHooks, earlier: int, *, ended: bool) -> TrainingRecord:
        accountant = hooks.parts.accountant
        ledger: AccountantHistory | None = None
        if accountant is not None:
            ledger = tuple((float(noise), float(rate), int(steps)) for noise, rate, steps in accountant.history)
        moved = (*hooks.loose, *hooks.by_size(), *hooks.state.end()) if ended else tuple(hooks.loose)
        return TrainingRecord(
            layout=hooks.parts.layout,
            releases=tuple(hooks.releases),
            ledger=ledger,
            earlier=earlier,
            delta=self._delta,
            population=len(hooks.data),
            moved=moved,
            steps=hooks.steps,
            remarks=_remarks(hooks),
        )


def _comparable(one: TrainingRecord, other: TrainingRecord, drawn: Sequence[int], again: Sequence[int]) -> bool:
    """Whether a run on other records differs from the first in its records alone.

    Not where the data were not read from what ``build`` received, where other records took other numbers of random
    draws, or where clip norm or noise follow further noised numbers, which are those of each run.
    """
    pairs = list(zip(one.releases, other.releases, strict=False))
    settings = all(
        (first.clip_norm, first.noise_multiplier, first.ids) == (second.clip_norm, second.noise_multiplier, second.ids)
        for first, second in pairs
    )
    sums = [(first.received, second.received) for first, second in pairs]
    read = any(a is not None and b is not None and not torch.equal(a, b) for a, b in sums)
    # Steps that were accounted without a sum may pay for other numbers, which are those of each run too.
    more = any(sum(n for _, _, n in run.ledger or ()) - run.earlier > len(run.releases) for run in (one, other))
    return settings and read and not more and all(a == b for a, b in zip(drawn, again, strict=False))


class _History:
    """A history as an accountant holds it."""

    def __init__(self, history: AccountantHistory) -> None:
        self.history = list(history)


def _check_plant(parts: OpacusParts, *, own_vectors: bool) -> None:
    if parts.ghost and own_vectors:
        raise ValueError(
            "ghost clipping never holds the vectors of records: a planted unit has the direction of its record's own "
            "gradient, in all tensors"
        )


def _remarks(hooks: OpacusHooks) -> dict[str, str]:
    """What cannot be seen of this training, and why."""
    parts, found = hooks.parts, {}
    if parts.accountant is None:
        found["ledger"] = "build returns neither a PrivacyEngine nor an accountant"
    if any(one.ids is None for one in hooks.releases):
        late = "batches of a loader with workers were left out"
        found["lots"] = late if hooks.data.ahead else "records were not read from the data that build received"
    if parts.ghost and any(one.expected is None for one in hooks.releases):
        found["rows"] = "ghost clipping holds no rows, and no loss of make_private was differentiated"
    if parts.half:
        kinds = sorted({str(one.dtype).removeprefix("torch.") for one in parts.optimizer.params})
        found["noise"] = found["rows"] = f"sums of {', '.join(kinds)} are rounded too coarsely to be compared"
    return found
