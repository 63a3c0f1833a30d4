"""Check that every number that depends on one unit or its record has independent noise, in all rounds and model weights
that a claim covers.

Four runs of given rows, of two inputs that differ in one unit under two draws of noise each, show in one pass through
all rounds which numbers of all that the observer receives move with the unit and not with the noise. Only two clients
hold rows, and no model is trained, so that a thousand rounds and the claim's own layout cost seconds. What is found is
confirmed in runs of fresh noise: a number that honest noise leaves alone in some runs is left alone in all of them with
a chance that the claim's epsilon bounds.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, fields, replace
from math import exp, log, log1p

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..audit.arrays import BoolArray, FloatArray
from ..audit.check import EVERY_NUMBER, NOT_CLAIMED, CheckResult
from ..audit.claim import Adjacency, Unit
from ..audit.ledger import SUITE
from ..audit.observer import FINAL_MODEL, GLOBAL_MODELS, SHUFFLED, UPLOADS
from ..fl.channels import Channels, received_channels, state_channels
from ..fl.message import Message, clear_absent
from ..fl.replay import ReplayedStreams
from ..fl.rounds import Round, Rows, given_lots
from ..fl.sampling import lot_indices
from ..fl.streams import Streams
from ..fl.task import Samples, Task
from .arms import Arms, Parts
from .given_rows import HookSetup, event_of
from .neighbours import other_inputs, other_labels
from .noise_sample import lattice, spacing

_LONG = 10.0
"""Length of the unit's row in clip norms."""
_NUMBERS, _ROUNDS = 2**26, 2000
"""Numbers of the rows of all rounds of one run, and rounds, at most."""
_ALL_CLIENTS = 2**24
"""Numbers of the rows of all rounds up to which all clients hold rows."""
UNSEEN_ROUNDS = "rounds after round"
"""How the statement begins that the last rounds were not looked at."""
_FRESH = 2**40
"""The first seed of runs that share no draw."""
_DECIDING, _NUMBERS_OF_RUNS = 2**13, 2**29
"""Runs of each input on which trials decide, and numbers of all of them, at most."""
_NOISE = 10_000
"""Number of the noise of the first run; the runs of other checks have lower ones."""
_SHOWN, _ROUNDING = 6.0, 2.0**-20
"""Epsilon that so many runs can show, and rounding of single precision with a margin."""
_BATCH = 64
"""Runs of one batch."""
_KEPT = 32
"""Arrays that are confirmed at most, in the earliest rounds in which anything was found."""
_DRAWS = 512
"""Runs of fresh noise of each input, at most."""
_VECTOR, _DRAWS_OF_VECTOR = 32, 4
"""Numbers of one array that have no noise together, and runs that are enough for so many: noise of an epsilon that all
of them share would move one of them.
"""
_SAMPLES, _STEPS, _HALVINGS = 16, 20, 24
"""Clients, and samples of each, to which a model is fitted, its steps, and halvings that find where a decision changes.
"""
_CLASSES = 10
"""Classes of which a first record is compared with none, at most."""
_COMPARED = 1 + 3 * (2 + _CLASSES)
"""Pairs of inputs that are compared, at most: the unit's row, and records at three models."""
_BRIEF = 2
"""Rounds in which other records are compared."""
_SHARED = 0.5
"""Share of distinct numbers of a noise vector from which its weights count as sharing their noise."""


@dataclass(frozen=True, kw_only=True, eq=False)
class _Inputs:
    """What one run is given: the unit's row or zeros, and the records that hooks may ask for."""

    setup: HookSetup
    sign: float
    model: Tensor | None = None
    """``(1, d)``, the model of all rounds; the initial one by default."""

    drawn: bool = False
    """Whether cohorts and lots are drawn by the plan's rules, with other draws for each number of the noise."""
    absent: bool = False
    """Whether the unit is not there, in place of a row of zeros."""

    def rounds(self, noise: int, stop: int, *, own: bool = False) -> Iterator[Channels]:
        """Yield what the observer receives in each round; ``own``: of a copy of the protection, because runs that take
        turns must not share what it keeps between rounds.
        """
        setup = self.setup.as_sampled if self.drawn else self.setup
        streams = Streams(_FRESH + noise) if self.drawn else ReplayedStreams(setup.seed, _NOISE + noise)
        rounds = replace(
            setup.rounds(streams, self._rows(), 1, _senders(setup)),
            protection=deepcopy(setup.protection) if own else setup.protection,
            closes=True,
        )
        missing = dict[str, str]()
        for turn in rounds.each(stop, model=self.model):
            observer = setup.claim.observer
            state = state_channels(turn.after)[0] if observer.rank >= GLOBAL_MODELS.rank else {}
            event = event_of(turn, turn.after)
            yield received_channels(event, state, observer, setup.protection, setup.plan, missing)

    def _rows(self) -> Rows:
        holder, plan = _holder(self.setup), self.setup.as_sampled.plan

        def lot(turn: Round, client: int, step: int) -> tuple[Tensor, Tensor]:
            chosen, real = torch.arange(2).unsqueeze(0), torch.ones(1, 2, dtype=torch.bool)
            if self.drawn:
                rng = turn.generator("lot", client=client, step=step)
                chosen, real = lot_indices(plan.lot.draw(rng, 1, plan.sizes[client]))
            unit = (chosen == 0) & (client == holder)
            return unit.unsqueeze(-1) * self._unit(turn), real & ~(unit & self.absent)

        def updates(turn: Round) -> Message:
            values, there = torch.zeros(*turn.cohort.shape, turn.model.shape[1]), turn.cohort.clone()
            place = turn.context.senders.index(holder)
            values[0, place] = self._unit(turn)
            there[0, place] &= not self.absent
            return Message(values=clear_absent(values, there), present=there, senders=turn.context.senders)

        return given_lots(lot) if self.setup.claim.unit is Unit.SAMPLE else updates

    def _unit(self, turn: Round) -> Tensor:
        """The unit's row, which has another direction in every round."""
        dim = turn.model.shape[1]
        rng = Streams(self.setup.seed).generator("signs", round=turn.number)
        signs: Tensor = torch.from_numpy(rng.integers(0, 2, size=dim, dtype=np.int8)).float() * 2 - 1
        unit: Tensor = signs * (self.sign * _LONG * self.setup.length / dim**0.5)
        return unit


def _holder(setup: HookSetup) -> int:
    """The client that is or holds the unit: the largest one, or the claim's own."""
    client = setup.claim.parameters.get("client", 0) if setup.claim.subjects != "all" else None
    known = isinstance(client, int) and 0 <= client < len(setup.plan.sizes)
    return client if known and isinstance(client, int) else int(np.argmax(setup.plan.sizes))


def _senders(setup: HookSetup) -> tuple[int, ...]:
    """All clients, or, where these hold too many numbers, the one of the unit and the smallest one."""
    plan, holder = setup.plan, _holder(setup)
    if plan.clients * plan.layout.dim * min(_ROUNDS, plan.rounds) <= _ALL_CLIENTS:
        return tuple(range(plan.clients))
    others = [client for client in np.argsort(plan.sizes, kind="stable").tolist() if client != holder]
    return tuple(sorted({holder, *others[:1]}))


@dataclass(kw_only=True)
class _Suspect:
    """An array of one round in which something moves with the unit alone.

    Args:
        bare: ``(numbers,)``, which numbers have no noise; with ``steady``, all of the array together: it never changes
            under this input, and never equals that under the other one.
        threshold: where the array's size is meant (the root of the mean square), the number on whose sides it lies.
    """

    turn: int
    name: str
    bare: BoolArray
    steady: int | None = None
    threshold: float | None = None
    first: dict[int, NDArray[np.generic]] = field(default_factory=dict)
    seen: list[bytes] = field(default_factory=list)

    def shown(self, received: Channels) -> FloatArray:
        """Return what a run shows of it: its size, or how many of its numbers have the value that they had without the
        unit and with it.
        """
        array = received.get(self.name)
        array = array.reshape(-1) if isinstance(array, np.ndarray) else np.zeros(0)
        if self.threshold is not None:
            return np.array([_size(array)])
        return np.array([self._alike(array, one) for one in self.first.values()])

    def _alike(self, array: NDArray[np.generic], one: NDArray[np.generic]) -> float:
        """How many of the numbers without noise equal those of another array, up to rounding in single precision."""
        if array.shape != one.shape:
            return -1.0
        numbers = one[self.bare].astype(np.float64)
        apart = np.abs(array[self.bare].astype(np.float64) - numbers)
        return float((apart <= _ROUNDING * np.abs(numbers).max(initial=0.0)).sum())

    @property
    def words(self) -> str:
        """What moves, in words."""
        what = f"{int(self.bare.sum())} numbers" if len(self.bare) > 1 else "a number"
        what = "all numbers" if self.steady is not None else what if self.threshold is None else "the size"
        return f"{what} of {self.name}, round {self.turn}"

    def add(self, arm: int, received: Channels) -> None:
        """Leave only what one more run of an input agrees with."""
        array = received.get(self.name)
        array = array.reshape(-1) if isinstance(array, np.ndarray) else np.zeros(0)
        if self.threshold is not None:
            array = np.array([_size(array) > self.threshold])
        if len(array) != len(self.bare):
            self.bare = np.zeros_like(self.bare)
        elif self.steady is None:
            self.bare = self.bare & (array == self.first.setdefault(arm, array)) & (array != self.first.get(1 - arm))
        elif arm == self.steady:
            self.bare = self.bare & bool((array == self.first.setdefault(arm, array)).all())
        else:
            self.seen.append(array.tobytes())
        if self.steady in self.first and self.first[self.steady].tobytes() in self.seen:
            self.bare = np.zeros_like(self.bare)


@dataclass(frozen=True, kw_only=True, eq=False)
class SuspectedNumbers:
    """Two inputs for trials, one of which changed numbers that noise does not change; see ``checks.decide``.

    ``steps``: how many steps of the claim's adjacency they are apart.
    """

    one: _Inputs
    other: _Inputs
    suspect: _Suspect
    words: str
    steps: int

    @property
    def arms(self) -> Arms:
        """The two inputs for trials; only the suspected numbers of each run are kept."""
        plan, rounds = self.one.setup.plan, 1 + self.suspect.turn
        cost = rounds * plan.clients * plan.layout.dim
        return Arms(draw=self._draw, words=self.words, batch=_BATCH, most=min(_DECIDING, _NUMBERS_OF_RUNS // cost))

    def _draw(self, arm: int, runs: int, block: int) -> Parts:
        inputs, found = (self.other, self.one)[arm], list[FloatArray]()
        for number in range(runs):
            *_, last = inputs.rounds((2 * block + arm) * _BATCH + number, 1 + self.suspect.turn)
            found.append(self.suspect.shown(last))
        return {self.suspect.name: np.stack(found)}


def _proposed(one: _Inputs, other: _Inputs, suspect: _Suspect, words: str) -> SuspectedNumbers | None:
    """What trials need to decide; None where clients are left out of these runs, or too few runs are possible."""
    setup, plan = one.setup, one.setup.as_sampled.plan
    added = setup.claim.adjacency is Adjacency.ADD_REMOVE
    seen = setup.claim.observer.rank >= SHUFFLED.rank and setup.claim.unit is not Unit.SAMPLE
    rows = one.sign != other.sign
    steps = 2 if added and (seen or not rows) else 1
    if len(_senders(setup)) < plan.clients or steps * setup.claim.epsilon > _SHOWN:
        return None
    return SuspectedNumbers(
        one=replace(one, drawn=True),
        other=replace(other, drawn=True, absent=rows and added and not seen),
        suspect=suspect,
        words=words,
        steps=steps,
    )


def every_number_checks(setup: HookSetup) -> Iterator[CheckResult]:
    """Compare the unit's row with a row of zeros, in all rounds of the claim; compare real records with the records
    that the defense's hooks request.
    """
    reason, setup = setup.why_not(lots=True), setup.everyone
    if reason:
        yield EVERY_NUMBER.skipped(reason)
        return
    left_out = _beyond_claim(setup)
    if setup.claim.observer.rank == FINAL_MODEL.rank:
        yield EVERY_NUMBER.skipped("the adversary receives nothing from single rounds", not_compared=tuple(left_out))
        return
    dim, rounds = setup.plan.layout.dim, setup.claim.rounds
    rows = 2 * len(_senders(setup)) * setup.plan.algorithm.local_steps
    # Masks, and noise that is drawn number by number, cost eight times as much.
    rows *= 8 if setup.claim.observer.sees_masked_words else 1
    stop = min(rounds, _ROUNDS, max(1, _NUMBERS // (rows * dim)))
    unit, zeros = _Inputs(setup=setup, sign=1.0), _Inputs(setup=setup, sign=0.0)
    left_out += [f"{UNSEEN_ROUNDS} {stop - 1}, because the claim's model has too many numbers"] if stop < rounds else []
    failed = _compared(unit, zeros, stop, "one unit's vector", left_out)
    pairs = _records(setup) if failed is None and _asks(setup) else iter(())
    for one, other, words in pairs:
        failed = failed or _compared(one, other, min(_BRIEF, stop), words, left_out)
    words = f"all numbers of {stop} of {rounds} rounds were compared, for {dim} weights"
    yield failed or EVERY_NUMBER.at_most(0.0, 0.0, unit="numbers", witness=words, not_compared=tuple(left_out))


def _beyond_claim(setup: HookSetup) -> list[str]:
    """What the claim is not about, although a unit moves it: later rounds, models of single rounds, or single reports
    without noise.
    """
    claim, plan, found = setup.claim, setup.plan, list[str]()
    sees = claim.observer if claim.observer.rank >= GLOBAL_MODELS.rank else GLOBAL_MODELS
    models = replace(setup, claim=replace(claim, observer=sees))
    later = range(claim.rounds, min(plan.rounds, claim.rounds + _BRIEF, _ROUNDS))
    if later and _moved(models, later):
        words = f"they also release something about each unit, but {NOT_CLAIMED} {claim.rounds} of {plan.rounds} rounds"
        found.append(f"rounds from {claim.rounds} on: {words}")
    if claim.observer.rank == FINAL_MODEL.rank and _moved(models, range(1)):
        found.append(f"models of single rounds: they also depend on each unit, but {NOT_CLAIMED} the final model alone")
    if claim.observer.rank < UPLOADS.rank and not claim.observer.sees_masked_words:
        bare = _moved(replace(setup, claim=replace(claim, observer=UPLOADS)), range(1))
        if any(one.all() for name, one in bare.items() if name.startswith("report values")):
            words = f"they have no noise, but {NOT_CLAIMED} another adversary ({claim.observer.phrase})"
            found.append(f"single reports: {words}")
    return found


def _moved(setup: HookSetup, turns: range) -> dict[str, BoolArray]:
    """Which of the numbers that the unit moves in some rounds have no noise, by array."""
    found = dict[str, BoolArray]()
    runs = [
        _Inputs(setup=setup, sign=sign).rounds(noise, turns.stop, own=True) for sign in (1.0, 0.0) for noise in (0, 1)
    ]
    for turn, received in enumerate(zip(*runs, strict=True)):
        for name, (within, again, without, later) in _arrays(received):
            moved = within != without
            if turn in turns and moved.any():
                found[name] = ((within == again) & (without == later))[moved]
    return found


def _asks(setup: HookSetup) -> bool:
    """Whether hooks ask for a client's samples, which no row holds."""
    asked = list[int]()

    @dataclass(frozen=True, kw_only=True)
    class Asked(Task):
        def samples(self, models: Tensor, client: int | None) -> Samples:
            asked.extend([] if client is None else [client])
            return super().samples(models, client)

    task = Asked(**{one.name: getattr(setup.task, one.name) for one in fields(Task)})
    for _ in _Inputs(setup=replace(setup, task=task), sign=0.0).rounds(0, _BRIEF):
        pass
    return bool(asked)


def _records(setup: HookSetup) -> Iterator[tuple[_Inputs, _Inputs, str]]:
    """Pairs of inputs whose rows are zeros, and whose records differ in one unit of the holder."""
    task, client = setup.task, _holder(setup)
    held = task.parts[client]
    where = held[:1] if setup.claim.unit is Unit.SAMPLE else held
    pairs = [(task, other_labels(task, where), "another label"), (task, other_inputs(task, where), "other inputs")]
    for kind in range(min(_CLASSES, task.network.classes)) if task.network.objective.classifies else ():
        without, rare = task.labels.clone(), task.labels.clone()
        without[held] = rare[held] = (kind + 1) % task.network.classes
        rare[where[:1]] = kind
        pairs.append((replace(task, labels=without), replace(task, labels=rare), f"the first record of class {kind}"))
    for model in _models(setup):
        for one, other, words in pairs:
            inputs = [_Inputs(setup=replace(setup, task=held), sign=0.0, model=model) for held in (one, other)]
            yield inputs[0], inputs[1], words


def _models(setup: HookSetup) -> Iterator[Tensor | None]:
    """The initial model, and two neighbouring ones between which a decision of the hooks changes, where one changes on
    the way from the initial model to one that fits the clients' samples.
    """
    yield None
    initial = setup.model(1).clone()
    fitted = _fitted(setup, initial)
    shares, kinds = [0.0, 1.0], [_decision(setup, one) for one in (initial, fitted)]
    if kinds[0] == kinds[1]:
        return
    for _ in range(_HALVINGS):
        middle = sum(shares) / 2
        shares[int(_decision(setup, initial.lerp(fitted, middle)) != kinds[0])] = middle
    yield from (initial.lerp(fitted, share) for share in shares)


def _fitted(setup: HookSetup, model: Tensor) -> Tensor:
    task = setup.task
    places = torch.cat([part[:_SAMPLES] for part in task.parts[:_SAMPLES]])
    images, labels = task.images[places].unsqueeze(0), task.labels[places].unsqueeze(0)
    weights = torch.full((1, len(places)), 1 / len(places))
    for _ in range(_STEPS):
        model = model - task.network.gradient(model, images, labels, weights)
    return model


def _decision(setup: HookSetup, model: Tensor) -> tuple[str, ...]:
    """The arrays of the first round that noise changes."""
    runs = [_Inputs(setup=setup, sign=0.0, model=model).rounds(noise, 1) for noise in (0, 1)]
    (received,) = zip(*runs, strict=True)
    return tuple(name for name, (one, other) in _arrays(received) if (one != other).any())


def _compared(one: _Inputs, other: _Inputs, stop: int, words: str, left_out: list[str]) -> CheckResult | None:
    """The failed check of two inputs; None where fresh noise moves all that seemed to have none."""
    suspects, moving, shared = _suspects(one, other, stop)
    if one.sign != other.sign and not shared and not sum(moving.values()):
        return EVERY_NUMBER.skipped("one unit's vector changes nothing that the adversary receives")
    if shared:
        return EVERY_NUMBER.failed(f"{words}: {shared}", 1.0, 0.0, unit="noise vectors")
    if not suspects:
        return None
    tests = sum(len(suspect.bare) for suspect in suspects)
    for draw in range(_DRAWS):
        for arm, inputs in enumerate((one, other)):
            _narrow(suspects, arm, inputs.rounds(2 + draw, 1 + suspects[-1].turn))
        suspects = [suspect for suspect in suspects if suspect.bare.any()]
        for suspect in suspects:
            if _decided(one.setup, suspect, moving[suspect.name], 1 + draw, tests):
                what = f"{words} changes {suspect.words}, and noise does not change it in {2 * draw + 2} runs"
                proposal = _proposed(one, other, suspect, what)
                return EVERY_NUMBER.failed(what, float(suspect.bare.sum()), 0.0, unit="numbers", proposal=proposal)
        if not suspects:
            return None
    left_out.append(
        f"{suspects[0].words}: the unit changes it, and these few runs cannot rule out noise that meets "
        "the claimed epsilon"
    )
    return None


def _narrow(suspects: Sequence[_Suspect], arm: int, rounds: Iterator[Channels]) -> None:
    for turn, received in enumerate(rounds):
        for suspect in suspects:
            if suspect.turn == turn:
                suspect.add(arm, received)


def _decided(setup: HookSetup, suspect: _Suspect, rounds: int, draws: int, tests: int) -> bool:
    """Whether noise of the claim's epsilon would have moved what never moved in so many runs of each input."""
    if len(suspect.bare) >= _VECTOR and suspect.bare.sum() >= _VECTOR and draws >= _DRAWS_OF_VECTOR:
        return True
    local = setup.local_epsilon(rounds)
    steady = log1p(-1 / (1 + exp(local)))
    return 2 * draws * steady < log(SUITE.level("hooks", _COMPARED * tests))


def _suspects(one: _Inputs, other: _Inputs, stop: int) -> tuple[list[_Suspect], Counter[str], str]:
    """What moves with the unit and not with two draws of noise, in the earliest rounds in which anything does; in how
    many rounds arrays move; and which noise is not drawn for its numbers alone, in words.
    """
    runs = [inputs.rounds(noise, stop, own=True) for inputs in (one, other) for noise in (0, 1)]
    found, moving, known = list[_Suspect](), Counter[str](), dict[bytes, tuple[int, bytes]]()
    for turn, received in enumerate(zip(*runs, strict=True)):
        for name, arrays in _arrays(received):
            within, _, without, _ = arrays
            if shared := _shared(turn, name, within, without, known):
                return [], moving, shared
            moving[name] += bool((within != without).any())
            found += _suspected(turn, name, arrays, sized=one.sign == 0)
        if len(found) >= _KEPT:
            break
    return found[:_KEPT], moving, ""


def _suspected(turn: int, name: str, arrays: Sequence[NDArray[np.generic]], *, sized: bool) -> Iterator[_Suspect]:
    within, again, without, later = arrays
    bare = (within != without) & (within == again) & (without == later)
    if bare.any():
        yield _Suspect(turn=turn, name=name, bare=bare)
        return
    for steady, (same, copy, moved, other) in enumerate((arrays, (without, later, within, again))):
        if len(same) and (same == copy).all() and all((same != one).any() for one in (moved, other)):
            yield _Suspect(turn=turn, name=name, bare=np.ones(len(same), dtype=bool), steady=steady)
            return
    if sized and len(within) >= _VECTOR:
        low, high = sorted((sorted(map(_size, arrays[:2])), sorted(map(_size, arrays[2:]))))
        if low[-1] < high[0]:
            middle = (low[-1] + high[0]) / 2
            yield _Suspect(turn=turn, name=name, bare=np.ones(1, dtype=bool), threshold=middle)


def _size(array: NDArray[np.generic]) -> float:
    return float(np.sqrt(np.square(array.astype(np.float64)).mean())) if len(array) else 0.0


def _arrays(received: Sequence[Channels]) -> Iterator[tuple[str, list[NDArray[np.generic]]]]:
    """The flat arrays that all runs received, in one shape."""
    for name, first in received[0].items():
        arrays = [one[name] for one in received if name in one]
        same = [one for one in arrays if isinstance(one, np.ndarray) and one.shape == np.shape(first)]
        if len(same) == len(received):
            yield name, [one.reshape(-1) for one in same]


def _shared(
    turn: int,
    name: str,
    within: NDArray[np.generic],
    without: NDArray[np.generic],
    known: dict[bytes, tuple[int, bytes]],
) -> str:
    """Which noise on zeros comes twice where the unit's numbers differ: in other weights, or in another round."""
    noise = np.asarray(without[without != 0], dtype=np.float64)
    values = np.unique(noise)
    if len(values) < _VECTOR or (within == without).all():
        return ""
    if lattice(noise[:4096], float(np.abs(noise).max())) or spacing(noise):
        return ""
    if len(values) <= _SHARED * len(noise) and len(np.unique(within)) > 1.5 * len(values):
        return f"{len(noise)} numbers of {name} in round {turn} have only {len(values)} different values of noise"
    earlier = known.setdefault(without.tobytes(), (turn, within.tobytes()))
    if earlier[0] < turn and earlier[1] != within.tobytes():
        return f"the noise of {name} in round {turn} equals that of round {earlier[0]}"
    return ""
