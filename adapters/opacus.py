"""Runs an Opacus training as it is, with hooks on its instances, so that it can be watched, played back and audited."""

import math
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from numbers import Real
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..audit.check import ACCOUNTED, NEIGHBOUR, SIZE, CheckResult
from ..audit.claim import ONE_TRAINER, Adjacency, Claim, Unit
from ..audit.observer import GLOBAL_MODELS
from ..checks.neighbour_runs import ReplacedRun, moved_setting, size_check, sums_on_neighbours
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
from .opacus_hooks import OpacusParts, modules_of, parts_of
from .opacus_run import OpacusRun
from .play_back import PlayBack, Step
from .runner import is_replayable
from .unwatchable import Unwatchable

_ROUNDING = 0.02
"""Relative difference of the epsilons of two accountants that is rounding."""


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
        epsilon: the epsilon that is reported; by default the one that the accountant prints. It may be larger than the
            history implies.
        setting: ``unit``, ``adjacency``, ``observer`` and ``rounds`` of ``Claim.stated``; by default the adversary sees
            the model of every step, and neighbours are zero-out: the number of records is public, as Opacus divides by
            it. With ``add_remove`` a run with one record less must show nothing of their number.

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
        adjacency: Adjacency | str = Adjacency.ZERO_OUT,
        **setting: Any,
    ) -> None:
        check_delta(delta)
        if epsilon is not None and not (isinstance(epsilon, Real) and 0 <= epsilon < math.inf):
            raise ValueError(f"epsilon must be a finite number >= 0, got {epsilon!r}")
        LoggedData(data)
        self._adjacency = Adjacency(adjacency)
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
        self._reads: Mapping[int, int] = {}
        self._adaptive = False

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
        places: Sequence[int] | None = None,
        stretched: int | None = None,
        forced: Sequence[Tensor] = (),
        apart: Collection[int] = (),
    ) -> TrainingRecord:
        """``own_vectors``: whether the units' directions matter; ``account``: whether the accountant is asked for its
        epsilon, which takes it long; ``places``, ``stretched``: as in ``LoggedData``; ``forced``: noised sums of
            another run; ``apart``: records that the rest of a sum is without.
        """
        with seeded(seed):
            data = LoggedData(self._data, planted=planted, places=places, stretched=stretched)
            built = self._build(data)
            parts = parts_of(built)
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
                    self._call(built)
                except Unwatchable:
                    raise
                except SystemExit as error:
                    raise RuntimeError(f"train ends the process by sys.exit({error.code!r})") from error
                except Exception as error:
                    self.interrupted = self._recording(run, ended=False)
                    error.add_note(f"raised by train after {len(run.releases)} releases, kept as Training.interrupted")
                    raise
            recording = self._recording(run, ended=True)
            self._ends, self._begins, self._reads = run.ends, run.begins, data.reads
            self._adaptive = parts.adaptive
            if account and recording.ledger and self._epsilon is not None:
                return replace(recording, accounted=self._epsilon)
            # Without history some accountants fail, and with hardly any noise they need all memory.
            if account and recording.ledger and min(noise for noise, _, _ in recording.ledger) >= LEAST_NOISE:
                return replace(recording, accounted=float(parts.accountant.get_epsilon(delta=self._delta)))
            return recording

    def watch(self, seed: int = 0, *, again: bool = True) -> Watched:
        """Run the training once, unchanged, and check all that was seen.

        ``again``: run it several times more, with the noised sums of the first run in place of its own. On other
        records all that is a function of noised sums ends as it did: what ends otherwise, such as a step size that
        follows the loss, is moved by the data, if a further run on the first records ends as the first one. With
        another record in the place of one, a sum moves by two clip norms at most; with one record less, steps, rates
        and divisors are compared; a run with another seed has other noise. Without it, only what moved outside of
        updates is seen. Files that ``train`` writes are written by each run.
        """
        recording = self._run(seed, account=True)
        reads = self._reads
        if not again or not recording.releases:
            return self._of_replaced(watched(recording), recording)
        moved = (*self._explained(recording, seed), *self._seeded_by_itself(recording, seed))
        explained = {"moved": "what moved without noise ended as it did on other records, in lots of equal sizes"}
        remarks = {**recording.remarks, **(explained if recording.moved and not moved else {})}
        found = self._of_replaced(watched(replace(recording, moved=moved, remarks=remarks)), recording)
        return replace(found, results=(*found.results, *self._on_neighbours(recording, reads, seed)))

    def _of_replaced(self, found: Watched, recording: TrainingRecord) -> Watched:
        """The results with the epsilon of replaced records, where the claim is about these: accountants state that of
        added and removed ones.
        """
        if self._adjacency is not Adjacency.REPLACE_ONE or recording.accounted is None:
            return found
        facts: dict[str, Any] = {"delta": self._delta, "adjacency": self._adjacency}
        try:
            implied = claim_from_accountant(_History(recording.ledger or ()), **facts).epsilon
            words = f"of replaced records, at delta {self._delta:g}; the history gives {implied:.4g}"
        except ValueError as error:
            implied, words = math.inf, f"of replaced records: {error}"
        result = ACCOUNTED.at_least(recording.accounted, implied * (1 - _ROUNDING), unit="epsilon", witness=words)
        if self._epsilon is None or not math.isfinite(implied):
            result = ACCOUNTED.skipped(f"the accountant states no epsilon {words}")
        return replace(found, results=tuple(result if one.name == ACCOUNTED else one for one in found.results))

    def _on_neighbours(
        self, recording: TrainingRecord, reads: Mapping[int, int], seed: int
    ) -> tuple[CheckResult, CheckResult]:
        """Compare the first run, which read each record so often, with runs on neighbouring data."""
        forced, records = [one.released for one in recording.releases], len(self._data)
        chosen = _replaced(recording, reads, seed)
        try:
            control = self._run(seed, forced=forced, apart=chosen)
            runs = []
            for replaced in chosen:
                places = list(range(records))
                places[replaced] = (replaced + records // 2) % records
                again = self._with_another(seed, places, replaced, forced=forced, apart=chosen)
                runs.append(ReplacedRun(replaced=replaced, record=again))
            sums = sums_on_neighbours(control, runs, first=recording)
        except Exception as error:  # Such as a training that checks its data.
            sums = NEIGHBOUR.skipped(f"a run with another record ended with {type(error).__name__}: {error}")
        try:
            smaller = self._run(seed, places=range(records - 1), forced=forced)
        except Exception as error:
            return sums, SIZE.skipped(f"a run with one record less ended with {type(error).__name__}: {error}")
        return sums, size_check(recording, smaller, self._adjacency)

    def _with_another(self, seed: int, places: Sequence[int], replaced: int, **given: Any) -> TrainingRecord:
        """Run with another record in the place of one, stretched where the training takes such numbers."""
        try:
            found = self._run(seed, places=places, stretched=replaced, **given)
            if all(one.received is None or bool(one.received.isfinite().all()) for one in found.releases):
                return found
        except Exception:
            # A training may refuse such numbers; one that fails on others too raises below.
            pass
        return self._run(seed, places=places, **given)

    def _explained(self, recording: TrainingRecord, seed: int) -> tuple[Movement, ...]:
        """What data move, by runs on other records; as it was where these do not show it."""
        moved, first = recording.moved or (), (self._begins, self._ends)
        forced = [one.released for one in recording.releases]
        lots = [one.ids for one in recording.releases]
        size = len(self._data)
        # Records in no lot may be public, such as those that a training holds out.
        used = range(size) if None in lots else {index for lot in lots for index in lot or ()}
        names, looked = set[str](), False
        # No permutation, under which statistics of all records would stay as they are; and one record alone, for which
        # any statistic is extreme.
        for number, others in enumerate(([(size + index) // 2 % size for index in range(size)], [size // 2] * size)):
            places = [others[index] if index in used else index for index in range(size)]
            try:
                again = self._run(seed, places=places, forced=forced)
            except Exception as error:
                if number:
                    continue
                how = f"ended with {type(error).__name__}, so that it does not show what data move"
                return (*moved, Movement(name="a run on other records", how=how, by_data=False))
            if not _comparable(recording, again):
                how = moved_setting(recording, again)
                if how and not self._adaptive:
                    return (*moved, Movement(name="the training", how=how, by_data=False))
                continue
            looked = True
            if len(again.releases) != len(recording.releases):
                how = f"is {len(again.releases)} in place of {len(recording.releases)} on other records"
                # A limit of time, for one, ends each run at another step.
                certain = self._ends_at(seed, places, forced, len(again.releases))
                certain = certain and self._ends_at(seed, None, forced, len(recording.releases))
                return (*moved, Movement(name="the number of steps", how=how, by_data=certain))
            names |= differing(first[1], self._ends)
        if not looked:
            return moved
        known = [one for one in moved if one.by_data]
        names -= {one.name for one in known}
        if not names:
            return tuple(known)
        words = "ends with other values on other records, after equal noised sums"
        # A claim that is stated may pay for more numbers than the accountant knows.
        certain = self._epsilon is None and self._repeats(seed, forced, *first)
        return (*known, *(Movement(name=name, how=words, by_data=certain) for name in sorted(names)))

    def _seeded_by_itself(self, recording: TrainingRecord, seed: int) -> tuple[Movement, ...]:
        """The noise, where a run with another seed has the same."""
        try:
            other = self._run((seed + 1) % 2**32)
        except Exception:  # Such as a training that runs once.
            return ()
        how = (
            "is the same in runs with two seeds, as the training seeds its generators itself: who knows them removes it"
        )
        return (Movement(name="the noise", how=how, by_data=False),) if equal_noise(recording, other) else ()

    def _ends_at(self, seed: int, places: Sequence[int] | None, forced: Sequence[Tensor], steps: int) -> bool:
        """Whether two further runs have so many steps."""
        return all(len(self._run(seed, places=places, forced=forced).releases) == steps for _ in range(2))

    def _repeats(
        self, seed: int, forced: Sequence[Tensor], begins: Mapping[str, Tensor], ends: Mapping[str, Tensor]
    ) -> bool:
        """Whether a run on the same records ends as the first one: neither time nor what ``train`` keeps moves it."""
        again = self._run(seed, forced=forced)
        return len(again.releases) == len(forced) and not (
            differing(ends, self._ends) or differing(begins, self._begins)
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
            adjacency=self._adjacency,
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

    def _recording(self, run: OpacusRun, *, ended: bool) -> TrainingRecord:
        if len(run.accountants) > 1 and not run.shared:
            raise ValueError(
                "several accountants count steps on different records, such as those of several clients: watch one "
                "client as a training of its own"
            )
        moved = run.end() if ended else tuple(one for hooks in run.hooks for one in hooks.loose)
        return TrainingRecord(
            layout=run.parts.layout,
            releases=tuple(run.releases),
            ledger=run.ledger,
            earlier=run.accountants[0].earlier if run.accountants else 0,
            delta=self._delta,
            population=len(run.data),
            moved=moved,
            steps=run.steps,
            factors=tuple(run.factors.get(number) for number in range(len(run.releases))),
            drawn=tuple(run.drawn),
            held=tuple(run.models),
            remarks=_remarks(run),
        )


def _replaced(recording: TrainingRecord, reads: Mapping[int, int], seed: int) -> list[int]:
    """The records that are replaced, of those in some lot, or of those that were read where lots are not known: the one
    in most lots, and one by the seed.
    """
    drawn = Counter(index for one in recording.releases for index in one.ids or ()) or Counter(reads)
    chosen = np.random.default_rng(seed).choice(sorted(drawn)) if drawn else 0
    return list(dict.fromkeys([*(index for index, _ in drawn.most_common(1)), int(chosen)]))


def _comparable(one: TrainingRecord, other: TrainingRecord) -> bool:
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
    return settings and read and not more and all(a == b for a, b in zip(one.drawn, other.drawn, strict=False))


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


def _remarks(run: OpacusRun) -> dict[str, str]:
    """What cannot be seen of this training, and why."""
    parts, found = run.parts, {}
    if parts.accountant is None:
        found["ledger"] = "build returns neither a PrivacyEngine nor an accountant"
    if any(one.ids is None for one in run.releases):
        late = "batches of a loader with workers were left out"
        found["lots"] = late if run.data.ahead else "records were not read from the data that build received"
    if parts.ghost and any(one.expected is None for one in run.releases):
        found["rows"] = "ghost clipping holds no rows, and no loss of make_private was differentiated"
    if parts.half:
        kinds = sorted({str(one.dtype).removeprefix("torch.") for one in parts.optimizer.params})
        found["noise"] = found["rows"] = f"sums of {', '.join(kinds)} are rounded too coarsely to be compared"
    return found
