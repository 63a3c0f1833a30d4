"""Runs an Opacus training as it is; hooks on its objects allow an audit to watch it, to play inputs back and to plant
canaries.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from torch import Tensor

from ..audit.claim import Adjacency, Unit
from ..checks.training_record import Plant, TrainingRecord
from ..checks.watched_state import mixing_layers
from ..defenses.accounting.gaussian import LEAST_NOISE
from ..fl.layout import Layout
from ..fl.streams import seeded
from .logged_data import UNREAD, LoggedData
from .many_units import ManyUnits
from .neighbours import LONG, Played, TrainingOnData, ended, returned_numbers, without_names
from .opacus_hooks import OpacusParts, modules_of, parts_of
from .opacus_run import OpacusRun
from .play_back import PlayBack, Step
from .unwatchable import Unwatchable, check_call, takes


class Training(TrainingOnData):
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
        epsilon: the epsilon that is reported; by default the one that the accountant prints. It may be larger than the
            history implies.
        setting: ``unit``, ``adjacency``, ``observer`` and ``rounds`` of ``Claim.stated``; by default the adversary sees
            the model of every step, and neighbours are zero-out: the number of records is public, as Opacus divides by
            it. With ``add_remove`` a run with one record less must show nothing of their number.

    Raises:
        TypeError: for data without indices, where ``build`` does not return the parts of an Opacus training, and for
            functions that do not take what they are called with.
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
        adjacency: Adjacency | str = Adjacency.ZERO_OUT,
        **setting: Any,
    ) -> None:
        swapped = "are build and train swapped?" if takes(train, 1) and not takes(build, 1) else ""
        check_call("build", build, [data], what="one argument, the data", also=swapped)
        super().__init__(data, delta=delta, epsilon=epsilon, unit=unit, adjacency=adjacency, setting=setting)
        self._build, self._train = build, train
        self.interrupted: TrainingRecord | None = None
        self._calibrated: dict[str, float] = {}

    def run(self, member: bool = False, seed: int = 0, *, plant: Plant | None = None) -> TrainingRecord:
        """Train once with the seed set in all global generators, and return what was recorded.

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
        return self._play(seed, planted=int(plant is not None), units=units, own_vectors=own_vectors).record

    def run_many_units(self, many: ManyUnits, seed: int = 0) -> TrainingRecord:
        """Train once with many canaries, each included by an independent coin; they have the last indices.

        Raises ValueError as ``run``, and for more units than records or coordinates.
        """

        def units(layout: Layout, index: range) -> dict[int, Tensor]:
            return dict(zip(index, many.vectors(layout), strict=True))

        return self._play(seed, planted=many.units, units=units, own_vectors=True).record

    def _play(  # type: ignore[override]
        self,
        seed: int,
        *,
        planted: int = 0,
        own_vectors: bool = False,
        units: Callable[[Layout, range], dict[int, Tensor]] = lambda layout, index: {},
        account: bool = False,
        changes: Mapping[str, Any] = MappingProxyType({}),
        forced: Sequence[Tensor] = (),
        apart: Collection[int] = (),
    ) -> Played:
        """``own_vectors``: whether the units' directions matter; ``account``: whether the accountant is asked for its
        epsilon, which takes it long; ``changes``: of ``LoggedData``; ``forced``: noised sums of another run;
        ``apart``: records that the rest of a sum is without.
        """
        with seeded(seed):
            data = LoggedData(self._data, planted=planted, **changes)
            built = self._built(data)
            parts = parts_of(built)
            if isinstance(built, tuple | list):
                check_call("train", self._train, [*built], what=f"the {len(built)} values that build returns")
            if planted:
                _check_plant(parts, own_vectors=own_vectors)
            vectors = units(parts.layout, data.units)
            run = OpacusRun(
                parts=parts,
                data=data,
                modules=modules_of(built, parts),
                planted=vectors,
                forced=forced,
                apart=apart,
            )
            with run.watching():
                try:
                    with ended("train"):
                        returned = self._call(built)
                except Unwatchable:
                    raise
                except Exception as error:
                    self.interrupted = self._recording(run, ended=False)
                    error.add_note(
                        f"raised by train after {len(run.releases)} releases, which are kept as Training.interrupted"
                    )
                    raise
            record = self._recording(run, ended=True)
            printed = self._printed(record, parts) if account else None
            accounted = printed if self._epsilon is None else self._epsilon
            return Played(
                record=replace(record, accounted=accounted if account and record.ledger else None),
                printed=printed,
                begins=run.begins,
                ends=run.ends,
                reads=data.reads,
                order=data.order,
                returned=returned_numbers(returned),
                adaptive=parts.adaptive,
                placed=data.placed,
            )

    def _with_and_without(self, seed: int, forced: Sequence[Tensor]) -> tuple[TrainingRecord, TrainingRecord]:
        def record(member: bool) -> TrainingRecord:
            def units(layout: Layout, index: range) -> dict[int, Tensor]:
                return {index[0]: LONG.direction(layout) * (LONG.weight * member)}

            return self._again(seed, planted=1, units=units, own_vectors=True, forced=forced).record

        return record(True), record(False)

    def _printed(self, recording: TrainingRecord, parts: OpacusParts) -> float | None:
        """The epsilon that the accountant prints; None where it cannot print one."""
        # Without history some accountants fail, and with hardly any noise they need all memory.
        if not recording.ledger or min(noise for noise, _, _ in recording.ledger) < LEAST_NOISE:
            return None
        return float(parts.accountant.get_epsilon(delta=self._delta))

    def _built(self, data: LoggedData) -> Any:
        """What ``build`` makes; noise is calibrated once for equal arguments, as this may take longer than training."""
        from opacus import privacy_engine  # Here, after opacus_hooks has named what is not installed.

        calibrate = privacy_engine.get_noise_multiplier

        def calibrated(**given: Any) -> float:
            key = repr(sorted(given.items()))
            if key not in self._calibrated:
                self._calibrated[key] = calibrate(**given)
            return self._calibrated[key]

        privacy_engine.get_noise_multiplier = calibrated
        try:
            return self._build(data)
        finally:
            privacy_engine.get_noise_multiplier = calibrate

    def step(self) -> Step:
        """Return the training's clip and noise, built anew by ``build``, as a step that can be run on given rows.

        Raises ValueError for ghost clipping, which takes no rows.
        """
        with seeded(0):
            parts = parts_of(self._built(LoggedData(self._data)))
        if parts.ghost:
            raise ValueError("ghost clipping never computes per-sample gradients, so none can be played back")
        return Step(
            call=parts.play,
            layout=parts.layout,
            clip_norm=float(parts.optimizer.max_grad_norm),
            noise_multiplier=float(parts.optimizer.noise_multiplier),
            dtype=parts.narrowest,
        )

    def play_back(self, seed: int = 0) -> PlayBack:
        """Return a play-back of frozen rows through the training's clip and noise, without training. Raises as
        ``step``.
        """
        return PlayBack(self.step(), seed)

    def _call(self, built: Any) -> object:
        return self._train(**built) if isinstance(built, Mapping) else self._train(*built)

    def _recording(self, run: OpacusRun, *, ended: bool) -> TrainingRecord:
        if len(run.accountants) > 1 and not run.shared:
            raise ValueError(
                "several accountants count steps on different records, for example of several clients: watch each "
                "client as a separate training"
            )
        moved = run.end() if ended else tuple(one for hooks in run.hooks for one in hooks.loose)
        found = TrainingRecord(
            layout=run.parts.layout,
            releases=tuple(run.releases),
            ledger=run.ledger,
            earlier=run.accountants[0].earlier if run.accountants else 0,
            delta=self._delta,
            population=len(run.data),
            moved=moved,
            steps=run.steps,
            factors=tuple(run.factors.get(number) for number in range(len(run.releases))),
            rates=tuple(run.rates),
            drawn=tuple(run.drawn),
            held=tuple(run.models),
            mixing=mixing_layers(run.parts.model),
            remarks=_remarks(run),
        )
        return without_names(found) if run.data.misplaced else found


def _check_plant(parts: OpacusParts, *, own_vectors: bool) -> None:
    if parts.ghost and own_vectors:
        raise ValueError(
            "ghost clipping never computes per-sample gradients, so a canary always has the direction of its "
            "record's own gradient, in all tensors"
        )


def _remarks(run: OpacusRun) -> dict[str, str]:
    """What cannot be seen of this training, and why."""
    parts, found = run.parts, {}
    if parts.accountant is None:
        found["ledger"] = "build returns neither a PrivacyEngine nor an accountant"
    if any(one.ids is None for one in run.releases):
        late = "it was not seen which records a data loader with worker processes put into its lots"
        found["lots"] = late if run.data.ahead else UNREAD
    if parts.ghost and any(one.expected is None for one in run.releases):
        found["rows"] = (
            "ghost clipping computes no per-sample gradients, and the loss function of make_private was not used"
        )
    if parts.half:
        kinds = sorted({str(one.dtype).removeprefix("torch.") for one in parts.optimizer.params})
        found["noise"] = found["rows"] = f"sums of {', '.join(kinds)} are rounded too coarsely to be compared"
    return found
