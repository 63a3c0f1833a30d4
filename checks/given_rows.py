"""Run the hooks of a defense on given rows (client updates or sample gradients) in place of a training, in many small
surroundings of one unit.

Draw the surroundings of one unit: who holds it, what it holds in each round, and what all others hold.

Run the hooks of a defense on given rows, round by round, with cohorts and lots as the plan samples them.

No model is trained: rows of clients and of samples are given, so that hundreds of runs cost no more than their noise.
Runs with equal streams share every draw, and differ only in the unit, in the data or in the hooks' noise.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..audit.claim import Claim, Unit
from ..audit.observer import AGGREGATE, SHUFFLED
from ..fl.channels import changes_broadcast, state_channels, state_numbers
from ..fl.hooks import overrides
from ..fl.message import Message, clear_absent
from ..fl.protection import State
from ..fl.recorder import RoundEvent
from ..fl.replay import Consumed, DrawAll, ReplayedStreams
from ..fl.rounds import Round, Rounds, Rows, given_lots
from ..fl.sampling import lot_indices
from ..fl.streams import Runs, Streams, normal
from .canaries import JOINT
from .noise_sample import equal_states
from .setup import ClaimSetup

_SHORTEST, _LONGEST = 0.3, 1e3
"""Lengths of rows in clip norms, from those that no clip shortens to those that outweigh all others. Bands whose ends
differ by one factor hold equally many: a bug may only exist for some lengths between.
"""
_LONG = 10.0
"""Clip norms from which every clip shortens a row."""
_SMALLEST = 1e-3
"""The smallest entries of a row, as a share of the largest."""

COSINES = tuple(2.0 ** -(0.5**step) for step in range(10))
"""Cosines of the others' rows to the unit's row in a star, from 1/2 to nearly 1. Two rows of one star have the square
of it, which is the next smaller cosine: a filter by similarity has its threshold between them at one of these cosines.
"""
LEVELS = ((0.01, 1.0), (0.5, 5.0), (1.0, 100.0))
"""Pairs of lengths in clip norms that the others' rows have, some the one and some the other."""
GROUPS = 3
"""How many of the constellations have groups: the size of the group changes from run to run."""
CONSTELLATIONS = (
    *(f"all vectors have cosine {cosine:.3g} to the unit's" for cosine in COSINES),
    *(
        f"half of the vectors have cosine {cosine:.3g} to the unit's and half to its opposite"
        for cosine in COSINES[1::2]
    ),
    "two opposite groups of equal vectors",
    "all vectors equal the unit's",
    "all vectors are opposite to the unit's",
    *("some vectors equal the unit's, and others are orthogonal to it" for _ in range(GROUPS)),
    *(
        f"vectors in the unit's direction have {low:g} or {high:g} clip norms, and the unit's has {own:g}"
        for low, high in LEVELS
        for own in (low, high)
    ),
)
"""What all others hold, relative to the unit's row. A filter of similar rows may act from any number of them on. A
median of lengths changes where half of the rows have one length and half another, and one row more has one of them.
"""

PLACES = ("the first sample of a client", "its last sample", "any of its samples")
"""Where the unit lies among its holder's samples, by the number in ``Surroundings.kinds``."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Surroundings:
    """The inputs of independent runs (replicas): each run has a unit and the rows of all other participants.

    Args:
        holders: ``(R,)``, the client that is the unit, or that holds it.
        places: ``(R,)`` numbers in [0, 1), the place of the unit among the holder's samples as a share of them.
        kinds: ``(R,)``, numbers of ``PLACES``.
        units: ``(R, T, d)``, the unit's row in each round.
        others: ``(R, clients, d)``, the rows of all clients; a client's samples are multiples of its row.
        parts: one slice of coordinates per round, in which the unit's row of this round lies as ``draw_surroundings``
            makes it, and one more in which no such row ever lies.
        long: ``(R,)``, whether the unit's rows have 10 published clip norms or more (10, where none is published), so
            that every clip is expected to shorten them.
    """

    holders: Tensor
    places: Tensor
    kinds: Tensor
    units: Tensor
    others: Tensor
    parts: tuple[slice, ...]
    long: Tensor
    neighbours: Tensor | None = None
    """``(R, n, d)``, the rows of the holder's first n samples, where they are no multiples of its row."""

    @property
    def replicas(self) -> int:
        """The number of runs."""
        return len(self.holders)

    @property
    def rounds(self) -> int:
        """The number of rounds."""
        return self.units.shape[1]

    @cached_property
    def directions(self) -> Tensor:
        """The unit vectors along the unit's rows, ``(R, T, d)`` in double precision; zeros where a row is zero."""
        return unit_vectors(self.units.double())

    def alone(self, units: Tensor, holders: Tensor) -> "Surroundings":
        """Return other runs, in which one unit holds rows ``(R, T, d)`` that are longer than every clip norm, and all
        other rows are zeros.
        """
        runs, _, dim = units.shape
        return replace(
            self,
            holders=holders.repeat(-(-runs // len(holders)))[:runs],
            places=torch.zeros(runs),
            kinds=torch.zeros(runs, dtype=torch.long),
            units=units,
            others=torch.zeros(runs, self.others.shape[1], dim),
            long=torch.ones(runs, dtype=torch.bool),
        )

    def repeated(self, run: int, runs: int) -> "Surroundings":
        """Return the given number of runs, all with the inputs of one of these runs."""

        def of(values: Tensor) -> Tensor:
            return values[run : run + 1].expand(runs, *values.shape[1:])

        return replace(
            self,
            holders=of(self.holders),
            places=of(self.places),
            kinds=of(self.kinds),
            units=of(self.units),
            others=of(self.others),
            long=of(self.long),
            neighbours=None if self.neighbours is None else of(self.neighbours),
        )


def draw_surroundings(
    *, holders: list[int], clients: int, dim: int, rounds: int, replicas: int, clip_norm: float, seed: int
) -> Surroundings:
    """Draw the surroundings of ``replicas`` runs; each of the clients ``holders`` holds the unit in equally many runs.

    The rows of all other clients are zero, random, along the unit's row, against it, or along one coordinate. Each run
    has lengths of its own, of the unit's rows and of all others, and most runs have rows of unequal entries.
    """
    rng = Streams(seed).generator("surroundings")
    held = torch.tensor(holders).repeat(replicas)[:replicas]
    edges = torch.linspace(0, dim, rounds + 2).long().tolist()
    parts = tuple(slice(low, high) for low, high in pairwise(edges))
    signs = torch.from_numpy(rng.choice([-1.0, 1.0], size=(replicas, dim))).float()
    units = torch.zeros(replicas, rounds, dim)
    for turn, part in enumerate(parts[:rounds]):
        units[:, turn, part] = signs[:, part] / max(1, part.stop - part.start) ** 0.5
    lengths = torch.stack([_lengths(rng, replicas) for _ in range(2)])
    random = normal(rng, (replicas, clients, dim))
    random /= torch.linalg.vector_norm(random, dim=-1, keepdim=True).clamp_min(1e-12)
    along = (signs / dim**0.5).unsqueeze(1).expand_as(random)
    single = torch.zeros_like(random)
    single[..., -1] = 1.0
    kinds = torch.stack([torch.zeros_like(random), random, along, -along, single])
    chosen = kinds[torch.from_numpy(rng.integers(len(kinds), size=replicas)), torch.arange(replicas)]
    places = torch.from_numpy(rng.random(replicas))
    sorts = torch.from_numpy(rng.integers(len(PLACES), size=replicas))
    units = _shaped(units, parts[:rounds], rng)
    return Surroundings(
        holders=held,
        places=torch.where(sorts == 0, 0.0, torch.where(sorts == 1, 1 - 1e-9, places)),
        kinds=sorts,
        units=clip_norm * lengths[0].view(-1, 1, 1) * units,
        others=clip_norm * lengths[1].view(-1, 1, 1) * chosen,
        parts=parts,
        long=lengths[0] >= _LONG,
    )


def _shaped(units: Tensor, parts: tuple[slice, ...], rng: np.random.Generator) -> Tensor:
    """Rows of the same length and other shapes, because a clip may treat them in another way: half of the runs keep
    some entries alone, from one to all, an eighth has one large entry and many small ones, and an eighth has entries
    that fall from the largest to the smallest by one factor.
    """
    replicas = len(units)
    shares = torch.from_numpy(rng.permutation(np.arange(replicas) / replicas)).float()
    shaped, order = units.clone(), torch.from_numpy(rng.random(units.shape[::2]))
    for turn, part in enumerate(parts):
        size = part.stop - part.start
        ranks = order[:, part].argsort(dim=1).argsort(dim=1)
        kept = torch.where(shares < 0.5, (size + 1) ** (2 * shares), float(size)).long().clamp(1, max(1, size))
        sizes = (ranks < kept.unsqueeze(1)).float()
        # From equal entries to those of a thousandth.
        small = _SMALLEST ** (8 * shares).fmod(1).unsqueeze(1)
        spiked, falling = (shares >= 0.75) & (shares < 0.875), shares >= 0.875
        sizes = torch.where(spiked.unsqueeze(1), torch.where(ranks == 0, 1.0, small), sizes)
        sizes = torch.where(falling.unsqueeze(1), small ** (ranks / max(1, size - 1)), sizes)
        lengths = torch.linalg.vector_norm(sizes, dim=1, keepdim=True).clamp_min(1e-30)
        shaped[:, turn, part] *= sizes * size**0.5 / lengths
    return shaped


def in_constellations(around: Surroundings, chosen: Tensor, *, clip_norm: float, seed: int) -> Surroundings:
    """Return the same runs, with the other rows placed around the unit's row or opposite to it.

    The unit's rows are the same in all rounds and fill all coordinates. Where the lengths are not those of the
    constellation, every clip shortens them and the others'.

    Args:
        chosen: ``(R,)`` numbers of ``CONSTELLATIONS``. How many rows belong to a group, or have the shorter length,
            changes from run to run of one constellation.
    """
    clients = around.others.shape[1]
    order = (torch.arange(clients) - around.holders.unsqueeze(1)) % clients
    units, others, long = _constellations(around, chosen, order, clip_norm=clip_norm, seed=seed)
    return replace(around, units=units, others=others, long=long)


def among_samples(around: Surroundings, chosen: Tensor, *, samples: int, clip_norm: float, seed: int) -> Surroundings:
    """Return the same runs, with the holder's first samples placed around the unit, which is itself the first sample.

    All other clients hold zeros. ``chosen`` is that of ``in_constellations``.
    """
    order = torch.arange(samples).expand(around.replicas, -1)
    units, rows, long = _constellations(around, chosen, order, clip_norm=clip_norm, seed=seed)
    others = torch.zeros_like(around.others)
    return replace(
        around, units=units, others=others, long=long, neighbours=rows, places=torch.zeros_like(around.places)
    )


def _constellations(
    around: Surroundings, chosen: Tensor, order: Tensor, *, clip_norm: float, seed: int
) -> tuple[Tensor, Tensor, Tensor]:
    """The unit's rows ``(R, T, d)``, the rows around it ``(R, n, d)``, and whether every clip shortens the unit.

    Args:
        order: ``(R, n)``, the places of the rows as seen from the unit, which has place 0.
    """
    rng = Streams(seed).generator("constellations")
    (replicas, count), dim = order.shape, around.others.shape[2]
    units = torch.from_numpy(rng.choice([-1.0, 1.0], size=(replicas, dim))).float() / dim**0.5
    apart = normal(rng, (replicas, count, dim))
    apart -= (apart @ units.unsqueeze(-1)) * units.unsqueeze(1)
    apart /= torch.linalg.vector_norm(apart, dim=-1, keepdim=True).clamp_min(1e-12)
    # The unit stands with its own half, which is the larger one where their sizes differ.
    halves = torch.where(order < (count + 1) // 2, 1.0, -1.0)
    stars, pairs, ones = len(COSINES), len(COSINES[1::2]), torch.ones_like(halves)
    groups = stars + pairs + 3
    levels = groups + GROUPS
    turns = _turns(chosen)
    first = chosen.clamp_max(groups)
    cosines = torch.tensor([*COSINES, *COSINES[1::2], 1.0, 1.0, 1.0, 1.0])[first].view(-1, 1).expand(-1, count)
    sizes = _sizes(count)[(turns * GROUPS + (chosen - groups).clamp(0, GROUPS - 1)) % len(_sizes(count))]
    grouped = ((chosen >= groups) & (chosen < levels)).unsqueeze(1)
    cosines = torch.where(grouped & (order > sizes.unsqueeze(1)), 0.0, cosines).unsqueeze(-1)
    signs = torch.where((chosen < stars).unsqueeze(1), ones, halves)
    signs = torch.where((chosen == stars + pairs + 1).unsqueeze(1) | (chosen >= groups).unsqueeze(1), ones, signs)
    signs = torch.where((chosen == stars + pairs + 2).unsqueeze(1), -ones, signs)
    rows = cosines * signs.unsqueeze(-1) * units.unsqueeze(1) + (1 - cosines.square()).sqrt() * apart
    lengths = _LONG * (_LONGEST / _LONG) ** torch.from_numpy(rng.random((replicas, 1))).float()
    own, short = lengths.expand(-1, count), _halves(count)[turns % len(_halves(count))].unsqueeze(1)
    pair = torch.tensor(LEVELS)[((chosen - levels) // 2).clamp_min(0)]
    level = (chosen >= levels).unsqueeze(1)
    own = torch.where(level, torch.where(order <= short, pair[:, :1], pair[:, 1:]), own)
    lengths = torch.where(level, pair.gather(1, ((chosen - levels) % 2).unsqueeze(1)), lengths)
    along = clip_norm * (lengths * units).unsqueeze(1).expand(-1, around.rounds, -1)
    return along, clip_norm * own.unsqueeze(-1) * rows, lengths[:, 0] >= _LONG


def _turns(chosen: Tensor) -> Tensor:
    """How many earlier runs have the same constellation, ``(R,)``."""
    same = chosen.unsqueeze(0) == chosen.unsqueeze(1)
    return same.tril(-1).sum(1)


def _sizes(clients: int) -> Tensor:
    """Sizes of a group among all others: small ones, from which filters act, and those next to shares of them."""
    near = [*range(1, 9), *_halves(clients).tolist(), clients - 2]
    return torch.tensor(sorted({min(max(1, size), max(1, clients - 1)) for size in near}))


def _halves(clients: int) -> Tensor:
    """Numbers of rows next to which the median and other quantiles of all change."""
    half, quarter = clients // 2, clients // 4
    near = [half, half - 1, half + 1, quarter, 3 * quarter, 1, clients - 1, 2]
    return torch.tensor(list(dict.fromkeys(min(max(1, size), max(1, clients - 1)) for size in near)))


def _lengths(rng: np.random.Generator, replicas: int) -> Tensor:
    """Lengths ``(R,)`` whose logarithms are evenly spread, in random order: no band is empty by chance."""
    shares = (torch.arange(replicas) + torch.from_numpy(rng.random(replicas))) / replicas
    lengths = _SHORTEST * (_LONGEST / _SHORTEST) ** shares
    return lengths[torch.from_numpy(rng.permutation(replicas))].float()


def unit_vectors(rows: Tensor) -> Tensor:
    """Return the rows ``(..., d)`` scaled to length 1; zeros stay zeros."""
    units: Tensor = rows / torch.linalg.vector_norm(rows, dim=-1, keepdim=True).clamp_min(1e-300)
    return units


ABSENT, ZERO, PRESENT, OPPOSITE = "absent", "zero", "present", "opposite"
"""What a run holds in the unit's place: nothing, a row of zeros, the unit's row, or its opposite."""
_FEW_SAMPLES = 2
"""Samples of a client that does not hold the unit."""


@dataclass(frozen=True, kw_only=True, eq=False)
class ProposedRows:
    """Given rows, with and without the unit, for trials that decide whether a failed comparison refutes the claim.

    ``run``: the replica of ``around`` that the comparison names. ``other``: the unit's rows ``(T, d)`` in the runs
    without it; None where nothing, zeros or the opposite row stand there, by the claim's adjacency.
    """

    setup: "HookSetup"
    around: Surroundings
    run: int
    words: str
    other: Tensor | None = None


def event_of(turn: Round, state: State | None = None) -> RoundEvent:
    """Return the round event that a recorder receives for a round of given rows, in which the model does not change.

    ``state``: the public one; by default that with which the round runs.
    """
    return RoundEvent(
        round=turn.number,
        broadcast=turn.sent,
        cohort=turn.cohort,
        reports=turn.reports,
        received=turn.received,
        aggregate=turn.aggregate,
        model=turn.model,
        lots={},
        state=turn.state if state is None else state,
    )


class CannotRun(ValueError):
    """A defense's hooks cannot be run on given rows; the message is the reason."""


@dataclass(frozen=True, kw_only=True, eq=False)
class HookRun:
    """The outputs of the hooks in one run of each replica, one entry per round.

    Args:
        cohort: ``(R, clients)``, who took part, as the plan and the hook ``participates`` drew it.
        updates, reports, received: the messages before and after the hooks ``report`` and ``channel``.
        aggregates: ``(R, d)``.
        states: the public states after the rounds.
        first_state: whether the round's public state is that of the first round, for which a law is published.
        consumed: how far the hooks' streams were used.
    """

    cohort: Sequence[Tensor]
    updates: Sequence[Message]
    reports: Sequence[Message]
    received: Sequence[Message]
    aggregates: Sequence[Tensor]
    states: Sequence[State]
    first_state: Sequence[bool]
    consumed: Sequence[Consumed]

    def releases(self, claim: Claim, holders: Tensor) -> Tensor:
        """Return what the claim's observer receives from the holder, ``(R, T, d)`` in double precision: the holder's
        report if the observer receives reports, otherwise the aggregate.
        """
        if claim.observer.rank < SHUFFLED.rank:
            return torch.stack(list(self.aggregates), dim=1).double()
        found, replicas = list[Tensor](), torch.arange(len(holders))
        for message in self.reports:
            if message.senders is None or set(holders.tolist()) - {*message.senders}:
                raise CannotRun("the reports do not say which client sent them")
            rows = torch.tensor([message.senders.index(one) for one in holders.tolist()])
            found.append(message.values[replicas, rows].double())
        return torch.stack(found, dim=1)

    def rows(self, claim: Claim, clients: int) -> Tensor:
        """Return what the claim's observer receives, ``(R, T, clients, d)`` in double precision, with zeros for clients
        that sent nothing; for an observer of sums, ``(R, T, 1, d)``.
        """
        if claim.observer.rank < SHUFFLED.rank:
            return torch.stack(list(self.aggregates), dim=1).double().unsqueeze(2)
        found = list[Tensor]()
        for message in self.reports:
            if message.senders is None or set(range(clients)) - {*message.senders}:
                raise CannotRun("the reports do not say which client sent them")
            order = torch.tensor([message.senders.index(one) for one in range(clients)])
            found.append(message.values[:, order].double() * message.present[:, order].unsqueeze(-1))
        return torch.stack(found, dim=1)


class HookSetup(ClaimSetup):
    """A federation whose hooks are run on given rows."""

    @property
    def as_sampled(self) -> "HookSetup":
        """The same hooks, with cohorts and lots drawn as in the claim's plan."""
        cohort, lot = (rule.rule if isinstance(rule, DrawAll) else rule for rule in (self.plan.cohort, self.plan.lot))
        return replace(self, plan=replace(self.plan, cohort=cohort, lot=lot))

    def surroundings(self, holders: Sequence[int], *, rounds: int, runs: int, further: int = 0) -> Surroundings:
        """Return drawn surroundings for the given number of runs; each number ``further`` gives different
        surroundings.
        """
        return draw_surroundings(
            holders=list(holders),
            clients=self.plan.clients,
            dim=self.plan.layout.dim,
            rounds=rounds,
            replicas=runs,
            clip_norm=self.length,
            seed=self.seed + further,
        )

    @property
    def everyone(self) -> "HookSetup":
        """The same hooks, with all clients in every cohort; how often a unit takes part is left to other checks."""
        return replace(self, plan=replace(self.plan, cohort=DrawAll(self.plan.cohort)))

    def released(self, around: Surroundings, arm: str, **changes: Any) -> Tensor:
        """Return the releases of one run in all replicas; arguments as for ``run``, result as of
        ``HookRun.releases``.
        """
        return self.run(around, arm, **changes).releases(self.claim, around.holders)

    def rounds(self, streams: Streams, rows: Rows | None, runs: int, senders: tuple[int, ...] | None = None) -> Rounds:
        """Return the rounds of the given number of runs; the rounds are opened one after the other, and never
        closed.
        """
        return Rounds(
            plan=self.plan,
            protection=self.protection,
            streams=streams,
            rows=rows,
            runs=Runs(replicas=runs),
            candidates=senders,
            task=self.task,
            all_rows=True,
            closes=False,
        )

    def model(self, runs: int) -> Tensor:
        """Return the initial model of the given number of runs, which share the model's memory."""
        return self.task.initial(ReplayedStreams(self.seed)).expand(runs, -1)

    def why_not(self, *, lots: bool = False) -> str:
        """Return why the hooks cannot be run on given rows; empty if they can. ``lots``: whether the hooks are given
        the samples of lots, about which clients may answer queries.
        """
        unit = self.claim.unit
        if unit not in (Unit.SAMPLE, Unit.CLIENT, Unit.REPORT):
            return f"this check can give hooks the vector of a sample, a client or a report, but not of one {unit}"
        if self.claim.part != JOINT:
            return f"the claim covers only {self.claim.part}"
        if overrides(self.protection, "local_query") and not (lots and unit is Unit.SAMPLE):
            return "clients answer queries about their lots, but this check gives hooks vectors that belong to no lot"
        if unit is not Unit.SAMPLE and self.protection.per_sample:
            return "clients protect single samples, but this check gives hooks vectors of whole clients"
        if self.claim.observer.rank < AGGREGATE.rank and changes_broadcast(self.protection):
            return "noise may be added to the model that is broadcast"
        return ""

    def run(
        self, around: Surroundings, arm: str, *, noise: int = 0, data: bool = True, garbage: float = 0.0
    ) -> HookRun:
        """Run all replicas once.

        Args:
            arm: what is in the unit's place.
            noise: another number gives the hooks other noise.
            data: whether all others hold their rows, or rows of zeros.
            garbage: length of the rows of samples that are in no lot, which must not matter.
        """
        around = around if data else replace(around, neighbours=None)
        streams = ReplayedStreams(self.seed, noise, watched=True)
        others = around.others if data else torch.zeros_like(around.others)
        rounds = replace(self.rounds(streams, self.rows(around, arm, others, garbage), around.replicas), closes=True)
        first, found = None, {name: list[Any]() for name in HookRun.__dataclass_fields__}
        for turn in rounds.each(around.rounds):
            numbers = state_numbers(state_channels(turn.state)[0])
            first = numbers if first is None else first
            for name, value in (
                ("first_state", equal_states(first, numbers)),
                ("cohort", turn.cohort),
                ("updates", turn.updates),
                ("reports", turn.reports),
                ("received", turn.received),
                ("aggregates", turn.aggregate),
                ("states", turn.after),
                ("consumed", streams.consumed()),
            ):
                found[name].append(value)
        return HookRun(**found)

    def rows(self, around: Surroundings, arm: str, others: Tensor, garbage: float = 0.0) -> Rows:
        """Return the clients' updates: for a claim about samples the sums over their lots, otherwise their rows.

        The arguments are those of ``run``.
        """

        def lot(turn: Round, client: int, step: int) -> tuple[Tensor, Tensor]:
            rng = turn.generator("lot", client=client, step=step)
            unit, here = _row(around.units[:, turn.number], arm), around.holders == client
            return self._lot(around, arm, others[:, client], unit, here, client, rng, garbage)

        def updates(turn: Round) -> Message:
            values, there = others.clone(), turn.cohort.clone()
            replicas = torch.arange(around.replicas)
            values[replicas, around.holders] = _row(around.units[:, turn.number], arm)
            if arm == ABSENT:
                there[replicas, around.holders] = False
            return Message(values=clear_absent(values, there), present=there, senders=turn.context.senders)

        return given_lots(lot) if self.claim.unit is Unit.SAMPLE else updates

    def _lot(
        self,
        around: Surroundings,
        arm: str,
        base: Tensor,
        unit: Tensor,
        here: Tensor,
        client: int,
        rng: np.random.Generator,
        garbage: float,
    ) -> tuple[Tensor, Tensor]:
        """The rows of a client's lot ``(R, L, d)`` and which of them count, ``(R, L)``."""
        size = self.plan.sizes[client] if bool(here.any()) else min(_FEW_SAMPLES, self.plan.sizes[client])
        mask = self.plan.lot.draw(rng, around.replicas, size)
        chosen, real = lot_indices(mask)
        # A client's samples point to both sides, so that their sum is neither zero nor as long as it can be.
        rows = base.unsqueeze(1) * (1 - 0.75 * (chosen % 3)).unsqueeze(-1)
        if around.neighbours is not None:
            near = around.neighbours[torch.arange(len(rows)).unsqueeze(1), chosen % around.neighbours.shape[1]]
            rows = torch.where(here.view(-1, 1, 1), near, rows)
        if garbage:
            rows = torch.where(real.unsqueeze(-1), rows, garbage * (1 + chosen).unsqueeze(-1))
        places = (around.places * size).long()
        units = (chosen == places.unsqueeze(1)) & here.unsqueeze(1) & real
        rows = rows.to(torch.promote_types(rows.dtype, unit.dtype))
        run, place = units.nonzero(as_tuple=True)
        rows[run, place] = unit[run].to(rows.dtype)
        return rows, real & ~units if arm == ABSENT else real


def _row(unit: Tensor, arm: str) -> Tensor:
    return {PRESENT: unit, OPPOSITE: -unit}.get(arm, torch.zeros_like(unit))
