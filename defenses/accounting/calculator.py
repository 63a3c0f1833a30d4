"""Compute the epsilons of a federation from its public numbers, by unit and adversary, compared with other ways of
accounting.

A client's noise hides its update from the server only if the server sees no other form of it, and a random choice of
clients helps only against those who do not know the choice. So each number is for one adversary (``Trust``).
Other clients know their own noise and whether they were drawn. Where each client adds noise, a random choice helps only
if the number of noises does not depend on it.

A drawn client brings all its records at once, and the others of them show whether it was drawn. So the choice of
clients does not lower the rate of a single record.

Where clients add noise for single records (DP-SGD), a client of many records may move every sum by as many clip norms
as records were drawn. Their number exceeds a bound k in any step with probability at most delta / 2;
given that it does not, the steps are Gaussian releases that move by at most k clip norms.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from numbers import Integral, Real
from typing import Any

import numpy as np
from dp_accounting.dp_event import DpEvent, GaussianDpEvent, SampledWithoutReplacementDpEvent, SelfComposedDpEvent
from scipy.stats import binom

from ...audit.claim import Adjacency, Unit
from ...audit.curve import epsilon_from_mu
from ...audit.observer import Observer
from ...audit.wording import NamedEnum, counted, plain
from ..defense import check_delta
from .accountant import ORDERS, Method, epsilon_of, renyi_divergences, sensitivity
from .gaussian import FixedSizeGaussian
from .pld import many_epsilon
from .stated_laws import event_of

_ROUNDED = 1e-13
"""Rounding of a Renyi divergence of one step, in all and relative."""
_LARGEST = 600.0
"""Epsilon of which e^epsilon is a number."""
_INTERVAL, _SAME, _LEAST, _TIGHT_DELTA = 1e-3, 1e-3, 1e-9, 1e-12
_MOST_STEPS, _MOST_SQUARE, _LEAST_SIGMA = 10**7, 2e6, 0.05
_DELTAS, _NOISES, _RATES, _COUNTS, _PARTS = (1e-300, 1.0), (1e-6, 1e6), (1e-9, 1.0), (1, 10**12), (1e-6, 1e12)
_SERVER, _SUM, _OTHERS = Observer("uploads"), Observer("aggregate"), Observer("global_models")


class Trust(NamedEnum):
    """Who adds the noise: the server to the sum (``central``), each client to its own report (``local``), or each
    client to a report that the server sees only as part of a sum (``distributed``).
    """

    CENTRAL = "central"
    LOCAL = "local"
    DISTRIBUTED = "distributed"


class Drawing(NamedEnum):
    """How lots, or cohorts of clients, are drawn: each item by its own coin (``poisson``), a uniform subset of fixed
    size (``fixed_size``), or each item once per pass over all items (``epoch``).
    """

    POISSON = "poisson"
    FIXED_SIZE = "fixed_size"
    EPOCH = "epoch"


@dataclass(frozen=True)
class Guarantee:
    """An epsilon of one ``unit`` at ``delta`` against one ``observer``; ``law`` states in words what is released."""

    epsilon: float
    delta: float
    unit: Unit
    adjacency: Adjacency
    observer: Observer
    law: str

    def line(self) -> str:
        """Return the guarantee on one line, with all the facts on which it depends."""
        return (
            f"eps {plain(self.epsilon)}, delta {plain(self.delta)}, one {self.unit} ({self.adjacency.phrase}), "
            f"adversary: {self.observer.phrase}: {self.law}"
        )


@dataclass(frozen=True)
class Way:
    """Another way of accounting, with its mistake in ``words``; ``factor``: its epsilon divided by ours. The other way
    is ``loose`` if its epsilon is far above the smallest valid one.
    """

    name: str
    epsilon: float
    factor: float
    words: str
    loose: bool = False

    def line(self) -> str:
        """Return the other way's epsilon, whether it is below or above ours, and why."""
        wrong = "above it" if self.factor >= 1 else "below our bound" if self.loose else "too small"
        return f"eps {plain(self.epsilon)} ({wrong}, times {self.factor:.3g}) {self.name}: {self.words}"


@dataclass(frozen=True)
class Accounted:
    """The epsilons of a federation; the first one is compared with other ways of accounting."""

    counts: tuple[Guarantee, ...]
    ways: tuple[Way, ...]
    notes: tuple[str, ...] = ()

    @property
    def epsilon(self) -> float:
        """Return the first of the epsilons."""
        return self.counts[0].epsilon

    def lines(self) -> list[str]:
        """Return the result as lines of text: first the epsilons, then notes, then other ways of accounting that give
        another number.
        """
        notes = [f"note   {note}" for note in self.notes]
        head = [f"other ways to compute the epsilon of the first line, {plain(self.epsilon)}:"] if self.ways else []
        return [*(one.line() for one in self.counts), *notes, *head, *(way.line() for way in self.ways)]


@dataclass(frozen=True)
class _Law:
    """Releases that one unit moves by at most a clip norm (two where it is replaced): ``steps`` in each of ``rounds``
    rounds, each on ``taken`` of ``size`` items at ``rate``; ``fixed``: so many exactly.
    """

    noise: float
    rounds: int
    delta: float
    adjacency: Adjacency
    steps: int = 1
    rate: float = 1.0
    size: int = 1
    taken: float = 1
    fixed: bool = False

    @property
    def sigma(self) -> float:
        return self.noise / sensitivity(1.0, self.adjacency)

    def epsilon(self) -> float:
        return _together([self], fixed=self.fixed and self.rate < 1)

    def __str__(self) -> str:
        times = counted(self.rounds, "round") + (f" of {counted(self.steps, 'step')}" if self.steps > 1 else "")
        drawn = f", sampled at rate {plain(self.rate)}{' (fixed size)' if self.fixed else ''}" if self.rate < 1 else ""
        return f"{times}, noise {plain(self.noise)} clip norms{drawn}"


_Unnamed = tuple[str, float, str]
"""A way of counting: its name, its epsilon and what it gets wrong."""


@dataclass(frozen=True)
class Federation:
    """The public numbers of a federation, as the arguments of ``epsilon`` state them."""

    noise: Any
    delta: float
    rounds: int
    clients: int
    cohort: float
    local_steps: int
    records: int
    lot: float | None
    adjacency: Adjacency
    trust: Trust
    drawing: Drawing
    participations: int

    def __post_init__(self) -> None:
        _check("noise_multiplier", self.noise, _NOISES)
        for name in ("rounds", "clients", "local_steps", "records", "participations"):
            _check(name, getattr(self, name), _COUNTS, whole=True)
        lot = self.records if self.lot is None else self.lot
        for name, value, whole in (("cohort", self.cohort, "clients"), ("lot", lot, "records")):
            _check(name, value, _PARTS)
            if value > getattr(self, whole):
                raise ValueError(f"{name} must be <= {whole} ({getattr(self, whole)}), got {value}")
            if self.drawing is not Drawing.POISSON and value != int(value):
                raise ValueError(f"{name} must be a whole number for {self.drawing} sampling, got {value}")
            _check(f"{name} / {whole}", value / getattr(self, whole), _RATES)
        if not self.rounds * self.cohort / self.clients <= self.participations <= self.rounds:
            rule = f"<= rounds ({self.rounds}) and >= rounds * cohort / clients"
            raise ValueError(f"participations must be {rule}, got {self.participations}")
        if self.trust is Trust.DISTRIBUTED and not self._known_cohort:
            raise ValueError(
                "drawing must be fixed_size if the noise is the sum of all clients' noise in a "
                f"cohort, got {self.drawing}"
            )
        seen = self.lot is None and self.trust is not Trust.CENTRAL
        if self.adjacency is Adjacency.ADD_REMOVE and (seen or self.drawing is not Drawing.POISSON):
            why = (
                "the server sees which clients report"
                if seen
                else f"{self.drawing} sampling depends on the number of clients"
            )
            raise ValueError(f"adjacency must be replace_one or zero_out, because {why}, got add_remove")
        if self.lot is not None and self.trust is not Trust.LOCAL and self.local_steps > 1 < self.clients:
            why = f"clients clip records and trust is {self.trust}"
            raise ValueError(
                f"local_steps must be 1 if {why}, because noise is added to a single sum, got {self.local_steps}"
            )

    @property
    def _known_cohort(self) -> bool:
        return self.drawing is Drawing.FIXED_SIZE or self.cohort == self.clients

    @property
    def loose(self) -> bool:
        """Whether the first epsilon may be far above the smallest valid one."""
        law, few = next(self.laws())[2], self.cohort < self.clients and self.trust is Trust.CENTRAL
        capped, epoch = self.lot is not None or self.participations < self.rounds, self.drawing is Drawing.EPOCH
        far = self.delta < _TIGHT_DELTA or not _countable([law]) or (law.fixed and law.rate < 1) or (few and capped)
        return far or (epoch and (few or (self.lot is not None and self.lot < self.records)))

    def _drawn(self, law: _Law, taken: float, size: int, **times: Any) -> _Law:
        """The law of an item where ``taken`` of ``size`` are drawn, in so many rounds or steps."""
        ((name, number),) = times.items()
        if self.drawing is Drawing.EPOCH:  # In one pass, a single draw depends on an item; it may leave a rest out.
            return replace(law, **{name: -(-number // (size // int(taken)))})
        fixed = self.drawing is Drawing.FIXED_SIZE
        return replace(law, **times, rate=taken / size, size=size, taken=taken, fixed=fixed)

    def _shown(self, law: _Law) -> Iterator[_Law]:
        """The law of a client against other clients, where there is one that is not the server's."""
        if self.trust is not Trust.CENTRAL and self._known_cohort:
            law = replace(law, noise=self.noise * math.sqrt(max(self.cohort - 1, 1)))
        elif self.trust is not Trust.CENTRAL and self.drawing is Drawing.POISSON:
            return  # The number of noises may show who was drawn.
        most, fixed = self.participations, self.drawing is Drawing.FIXED_SIZE
        # Clients that are not drawn know that the cohort is one of the others.
        drawn = self._drawn(law, self.cohort, max(self.clients - fixed, math.ceil(self.cohort)), rounds=self.rounds)
        # With a cap, the draws of one round depend on those of the rounds before.
        yield replace(law, rounds=min(most, drawn.rounds)) if most < self.rounds else drawn

    def laws(self) -> Iterator[tuple[Unit, Observer, _Law]]:
        """Yield the releases of each unit to each adversary, beginning with the unit whose contribution is clipped."""
        own = _Law(self.noise, self.participations, self.delta, self.adjacency)
        joint = replace(own, noise=self.noise * math.sqrt(self.cohort))
        seen = {Trust.LOCAL: [(_SERVER, own)], Trust.DISTRIBUTED: [(_SUM, joint)]}.get(self.trust, [])
        if self.lot is None:
            for observer, law in [*seen, *((_OTHERS, law) for law in self._shown(own))]:
                yield Unit.CLIENT, observer, law
                # Another record may turn its client's update into any other one: that is a client replaced.
                yield Unit.SAMPLE, observer, replace(law, adjacency=Adjacency.REPLACE_ONE)
            return
        for observer, law in seen or [(_OTHERS, own)]:
            yield Unit.SAMPLE, observer, self._drawn(law, self.lot, self.records, steps=self.local_steps)

    def counts(self) -> Iterator[Guarantee]:
        """Yield the epsilon of each unit against each adversary."""
        laws = list(self.laws())
        for unit, observer, law in laws:
            yield Guarantee(law.epsilon(), self.delta, unit, law.adjacency, observer, str(law))
        _, observer, law = laws[0]
        if self.lot is not None and self.clients > 1:
            # A client's records move every lot together (see this module's docstring).
            rare, steps = self.delta / 2, law.rounds * law.steps
            likely = float(binom.isf(rare / steps, self.records, law.rate))
            sure = law.rate < 1 and binom.sf(likely, self.records, law.rate) <= rare / steps
            most = law.taken if law.fixed else likely if sure else self.records
            epsilon = epsilon_from_mu(most * math.sqrt(steps) / law.noise, self.delta - rare) - math.log1p(-rare)
            words = f"{law}; at most {most:.0f} of the client's {self.records} records in one step"
            yield Guarantee(epsilon, self.delta, Unit.CLIENT, Adjacency.ZERO_OUT, observer, words)

    def notes(self) -> Iterator[str]:
        """Yield notes about what the epsilons assume, and against which adversaries there is no guarantee."""
        if self.trust is Trust.CENTRAL:
            yield "no epsilon against the party that adds the noise, because it sees everything without noise"
        elif self._known_cohort and (self.lot is None or self.trust is Trust.DISTRIBUTED):
            yield (
                f"noise above {plain(self.noise)} assumes that all clients of a cohort add noise and none "
                "colludes (with k that collude: k fewer)"
            )

    def ways(self) -> Iterator[_Unnamed]:
        """Yield other ways of accounting for the first unit: name, epsilon, and the mistake."""
        _, _, law = next(self.laws())
        if not law.fixed and _countable([law]):
            yield from _by_other_accountants([law])
        if law.fixed:
            yield "Poisson", replace(law, fixed=False).epsilon(), "wrong; sampling with a fixed size is not Poisson "
            "sampling"
        for applies, name, words, times, changes in self._changes(law):
            if applies and (times != 1 or replace(law, **changes) != law):
                yield name, times * replace(law, **changes).epsilon(), words

    def _changes(self, law: _Law) -> Iterator[tuple[bool, str, str, int, dict[str, Any]]]:
        """Whether a way applies, its name, what it gets wrong, and what it changes of the law."""
        records, coins, rounds = self.lot is not None, self.drawing is Drawing.POISSON, law.rounds
        once, delta, replaced = {"rounds": 1}, self.delta / rounds, law.adjacency is Adjacency.REPLACE_ONE
        yield True, "one round", "wrong; with a new accountant in every round, earlier rounds do not count", 1, once
        yield (
            True,
            "rounds added",
            "valid, but larger than composition of the rounds gives",
            rounds,
            once | {"delta": delta},
        )
        yield records, "rounds for steps", "wrong; each local step is a separate release", 1, {"steps": 1}
        half, steps = {"adjacency": Adjacency.ZERO_OUT}, {"steps": self.local_steps}
        yield not records, "steps counted", "valid, but noise is added once per round, not in local steps", 1, steps
        yield (
            replaced and not law.fixed,
            "one clip norm",
            ("wrong; replacing one record changes a sum by two clip norms"),
            1,
            half,
        )
        yield True, "all in all", "valid, but ignores sampling", 1, {"rate": 1.0, "fixed": False}
        part = {"rate": law.rate / self.clients}
        known = {"rate": law.rate * self.cohort / self.clients, "rounds": self.rounds}
        yield (
            records and coins,
            "rate of all data",
            ("wrong; a lot is sampled from one client's records, not from all"),
            1,
            part,
        )
        shared, joint = self.trust is not Trust.CENTRAL, {"noise": self.noise * math.sqrt(self.cohort)}
        yield shared and coins, "rate of clients", "wrong; the server knows which clients it sampled", 1, known
        yield shared, "noise of all", "wrong; the server sees a report with only its own noise", 1, joint
        yield shared, "own noise", "valid, even if the server sees single reports", 1, {"noise": self.noise}
        yield records, "clients added", "valid, but each record is held by only one client", self.clients, {}


def _by_other_accountants(laws: Sequence[_Law]) -> Iterator[_Unnamed]:
    delta, adjacency = laws[0].delta, laws[0].adjacency
    event = _composed(laws)
    with suppress(ValueError):
        renyi = epsilon_of(event, delta=delta, adjacency=adjacency, method=Method.RDP)
        yield "Renyi", renyi, "valid; Renyi accountants"
        orders = np.concatenate([1 + np.arange(1, 100) / 10, ORDERS])
        older = renyi_divergences(event, orders=orders.tolist(), adjacency=adjacency) - math.log(delta) / (orders - 1)
        yield "Renyi 2017", float(older.min()), "valid; Renyi accountants before 2021 (Mironov 2017, Proposition 3)"
    if adjacency is not Adjacency.REPLACE_ONE:
        squares = (law.rate**2 * law.rounds * law.steps * math.expm1(min(law.sigma**-2, 700.0)) for law in laws)
        limit = epsilon_from_mu(math.sqrt(sum(squares)), delta)
        yield "central limit", limit, "not a bound; the Gaussian limit for infinitely many steps"


def _together(laws: Sequence[_Law], *, fixed: bool = False) -> float:
    """The least proved epsilon: by all items in all lots, or by their draws."""
    first, most = laws[0], epsilon_from_mu(math.sqrt(_square(laws)), laws[0].delta)
    if all(law.rate == 1 for law in laws):
        return most
    event, adjacency, method = _composed(laws), first.adjacency, Method.PLD
    if fixed:
        # A lot without an item holds another one in its place, so that the sum moves by two clip norms (Wang et al.).
        adjacency, method = Adjacency.REPLACE_ONE, Method.RDP
        lots = SampledWithoutReplacementDpEvent(first.size, int(first.taken), GaussianDpEvent(first.noise / 2))
        event = SelfComposedDpEvent(lots, first.steps * first.rounds)
    if not _countable(laws):
        steps = sum(law.rounds * law.steps for law in laws)
        least = _of_pairs if adjacency is Adjacency.REPLACE_ONE and not fixed else _by_whole_orders
        return min(most, least(event, steps, first.delta, adjacency))
    if fixed:
        # Where delta is too small, or the steps are too many, for the losses of the profile, Renyi divergences remain.
        with suppress(ValueError):
            lot = FixedSizeGaussian(first.noise / 2, first.rate)
            most = min(most, many_epsilon(lot, releases=first.steps * first.rounds, delta=first.delta))
    return min(most, epsilon_of(event, delta=first.delta, adjacency=adjacency, method=method, interval=_INTERVAL))


def _of_pairs(event: DpEvent, steps: int, delta: float, adjacency: Adjacency) -> float:
    """The epsilon of a replaced item, which is one removed and one added: twice the epsilon of either, at a delta that
    is smaller by 1 + e^epsilon: P(S) <= e^epsilon P'(S) + delta, applied twice.
    """
    half = 0.0
    for _ in range(50):
        found = _by_whole_orders(event, steps, delta / (1 + math.exp(half)), Adjacency.ADD_REMOVE)
        if found <= half or not found < _LARGEST:
            return 2 * half if found <= half else math.inf
        half = found + 1e-6
    return math.inf


def _by_whole_orders(event: DpEvent, steps: int, delta: float, adjacency: Adjacency) -> float:
    """The epsilon of Renyi divergences of whole orders, sums of positive numbers, with their rounding added; infinite
    where there is none.

    From Mironov, Talwar and Zhang (2019), section 3.3, and Canonne, Kamath and Steinke (2020), proposition 12.
    """
    orders = np.unique(np.round(2 ** (np.arange(8, 81) / 8)))
    with suppress(ValueError):
        found = renyi_divergences(event, orders=orders.tolist(), adjacency=adjacency)
        found = found * (1 + _ROUNDED) + steps * _ROUNDED
        values = found + np.log1p(-1 / orders) - (math.log(delta) + np.log(orders)) / (orders - 1)
        return max(0.0, float(np.nanmin(values, initial=math.inf)))
    return math.inf


def _countable(laws: Sequence[_Law]) -> bool:
    """Whether arrays of privacy losses, and the rounding of Renyi divergences, stay small enough."""
    steps, sigma = sum(law.rounds * law.steps for law in laws), min(law.sigma for law in laws)
    return steps <= _MOST_STEPS and _square(laws) <= _MOST_SQUARE and sigma >= _LEAST_SIGMA


def _square(laws: Sequence[_Law]) -> float:
    return sum(law.rounds * law.steps / law.sigma**2 for law in laws)


def _composed(laws: Sequence[_Law]) -> DpEvent:
    return event_of([(law.sigma, law.rate, law.rounds * law.steps) for law in laws])


def epsilon(
    noise_multiplier: float | None = None,
    *,
    delta: float,
    rounds: int = 1,
    clients: int = 1,
    cohort: float | None = None,
    local_steps: int = 1,
    records: int | None = None,
    lot: float | None = None,
    unit: Unit | str | None = None,
    adjacency: Adjacency | str | None = None,
    trust: Trust | str = Trust.CENTRAL,
    drawing: Drawing | str = Drawing.POISSON,
    participations: int | None = None,
    history: Iterable[Any] | None = None,
) -> Accounted:
    """Compute the epsilon of each unit against each adversary, and compare it with other ways of accounting.

    Args:
        noise_multiplier: standard deviation of the noise over the clip norm: of the
            noise on the sum of a cohort under trust ``central``, and of the noise of each client otherwise.
        clients, cohort: all clients, and how many a round draws on average; by default all.
        local_steps: steps of a client in a round.
        records, lot: of a client, where it clips each record (DP-SGD), and how many a step draws; by default all
            records. Without them a client clips its update.
        unit: gives the epsilons of this unit alone.
        adjacency: by default ``add_remove``, or ``replace_one`` where that cannot hold.
        participations: most rounds that one client takes part in; by default all.
        history: (noise multiplier, sampling rate, steps) of an accountant, instead of all numbers but ``delta``.

    Raises:
        ValueError: for numbers that are out of range or contradict each other.
    """
    check_delta(delta)
    _check("delta", delta, _DELTAS)
    if history is not None:
        others = (noise_multiplier, cohort, records, lot, participations)
        stated = (rounds, clients, local_steps, trust, drawing) != (1, 1, 1, Trust.CENTRAL, Drawing.POISSON)
        if stated or any(one is not None for one in others):
            raise ValueError(
                "a history already states noise, rates and steps: give only delta, unit and adjacency with it"
            )
        return _of_history(list(history), delta, Unit(unit or "sample"), Adjacency(adjacency or "add_remove"))
    if lot is not None and records is None:
        raise ValueError("the argument lot also needs records, the number of records of one client")
    who, draws = Trust(trust), Drawing(drawing)
    hides = draws is Drawing.POISSON and (who is Trust.CENTRAL or records is not None)
    near = Adjacency(adjacency or ("add_remove" if hides else "replace_one"))
    size, most = 1 if records is None else records, rounds if participations is None else participations
    taken, lot = clients if cohort is None else cohort, records if lot is None else lot
    it = Federation(noise_multiplier, delta, rounds, clients, taken, local_steps, size, lot, near, who, draws, most)
    counts = list(it.counts())
    kept = tuple(one for one in counts if unit is None or one.unit is Unit(unit))
    if not kept:
        raise ValueError(f"unit must be sample, or client if there are several clients, got {unit}")
    # The ways count the unit that is clipped.
    ways = _compared(kept[0].epsilon, it.ways(), it.loose) if kept[0] is counts[0] else ()
    return Accounted(kept, ways, tuple(it.notes()))


def _of_history(history: list[Any], delta: float, unit: Unit, adjacency: Adjacency) -> Accounted:
    stages: dict[tuple[float, float], int] = {}
    if not history or any(not isinstance(entry, list | tuple) or len(entry) != 3 for entry in history):
        event_of(history)  # Raises the error.
    for noise, rate, steps in history:
        _check("noise multiplier of the history", noise, _NOISES)
        _check("sampling rate of the history", rate, _RATES)
        _check("steps of the history", steps, _COUNTS, whole=True)
        stages[noise, rate] = stages.get((noise, rate), 0) + int(steps)
    laws = [_Law(noise, steps, delta, adjacency, rate=rate) for (noise, rate), steps in stages.items()]
    right = _together(laws)
    ways = list(_by_other_accountants(laws) if _countable(laws) else ())
    if len(laws) > 1:
        # The loop ended with the last stage.
        ways.append(("last stage", _Law(noise, steps, delta, adjacency, rate=rate).epsilon(), "forgets those before"))
    words = f"{counted(sum(law.rounds for law in laws), 'step')} in {counted(len(laws), 'stage')}"
    count = Guarantee(right, delta, unit, adjacency, _OTHERS, words)
    return Accounted((count,), _compared(right, ways, loose=delta < _TIGHT_DELTA or not _countable(laws)))


def _compared(right: float, ways: Iterable[_Unnamed], loose: bool) -> tuple[Way, ...]:
    """The ways that give another finite number than the right one."""
    return tuple(
        Way(name, found, found / max(right, _LEAST), words, loose)
        for name, found, words in ways
        if math.isfinite(found) and not math.isclose(found, right, rel_tol=_SAME, abs_tol=_LEAST)
    )


def _check(name: str, value: Any, limits: tuple[Any, Any], *, whole: bool = False) -> None:
    """Raise ValueError unless ``value`` is a number, or a whole number, within ``limits``; no boolean is one."""
    kind, number = (Integral, "whole number") if whole else (Real, "number")
    if isinstance(value, bool) or not isinstance(value, kind) or not limits[0] <= value <= limits[1]:
        raise ValueError(f"{name} must be a {number} from {limits[0]:.4g} to {limits[1]:.4g}, got {value!r:.40}")
