"""Recorders keep what one observer may see of each round, so that a run can be audited without being stored.

A view is what one observer saw of a run; an attack receives a view, never the run itself.

Traffic counts the bytes that clients send and receive in a training, from the messages of each round.

What is counted is the payload: the numbers of a message, without transport overhead, compression, encryption or the
exchange of keys and shares before a secure sum. A client's report counts in the shortest of three plain encodings:

1. every number at the size of its data type (float32: 32 bits), or at its word size in a secure sum;
2. only the numbers other than zero, each with an index of 32 bits;
3. one bit per number and the two values that they take, if a report takes at most two values.

An encoder made for one defense may need less. Arrays that accompany a report count at the size of their data type, a
boolean as one bit. The broadcast counts the model and what the algorithm shares with it (SCAFFOLD's control variate),
once for each client of the round; public numbers of the defense, such as a clip norm, are not counted.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

import torch
from torch import Tensor

from ..audit.observer import AGGREGATE, GLOBAL_MODELS, SHUFFLED, UPLOADS, Observer
from .fields import check_count
from .message import Message
from .plan import Plan
from .protection import Protection, State
from .task import Task
from .utility import Utility


@dataclass(frozen=True, kw_only=True)
class RoundView:
    """What one observer sees of one round; what is hidden from the observer is None.

    Args:
        round: number of the round, from 0.
        broadcast: (R, d), the model that clients received.
        reports: for UPLOADS what the clients sent, with senders; for SHUFFLED what arrived: a multiset without senders
            whose order carries no information.
        aggregate: (R, d).
        shared: what the algorithm broadcasts with the model (SCAFFOLD's control, ``(R, d)``), by name.
        masked_words: for an observer that sees the inputs of a secure sum: what each client sent, with senders, and
            what the observer learns about the masks; None where no client masks.
    """

    round: int
    broadcast: Tensor | None = None
    reports: Message | None = None
    aggregate: Tensor | None = None
    shared: Mapping[str, Tensor] = field(default_factory=dict)
    masked_words: Message | None = None


@dataclass(frozen=True, kw_only=True)
class View:
    """All that one observer saw of a run, together with the public plan.

    ``coordinates`` names the coordinates that were recorded, or is None when all were.
    """

    observer: Observer
    plan: Plan
    rounds: tuple[RoundView, ...]
    final_model: Tensor
    coordinates: slice | None = None


@dataclass(frozen=True, kw_only=True)
class RoundEvent:
    """All data of one training round, including what no observer may see; only recorders receive it.

    ``lots[client][step]`` is the mask ``(R, n)`` of the samples used, false where the client was absent; ``state`` is
    the protection's public state and ``shared`` the algorithm's, both broadcast with the model. ``cohort`` is the mask
    ``(R, rows)`` of the clients that received the broadcast; those that drop out afterwards are absent in ``reports``.
    Where reports were summed in blocks, because no recorder needs them, ``reports`` has rows without coordinates, and
    ``received`` is their sum or mean in one row.
    """

    round: int
    broadcast: Tensor
    cohort: Tensor
    reports: Message
    received: Message
    aggregate: Tensor
    model: Tensor
    lots: dict[int, list[Tensor]]
    state: State = field(default_factory=dict)
    shared: Mapping[str, Tensor] = field(default_factory=dict)


@dataclass(kw_only=True)
class ViewRecorder:
    """A recorder that keeps what one observer sees of each round.

    The view is restricted to ``coordinates`` and to uploads of ``senders`` where these are given.
    """

    observer: Observer
    coordinates: slice | None = None
    senders: tuple[int, ...] | None = None
    _rounds: list[RoundView] = field(default_factory=list)

    @property
    def needs_reports(self) -> bool:
        """Return whether the observer sees the reports of single clients, or the masked words of secure aggregation."""
        return self.observer.rank >= SHUFFLED.rank or self.observer.sees_masked_words

    def watch(self, event: RoundEvent) -> None:
        """Record a finished round. Raises ValueError if the recorder has recorded another run."""
        _check_order(event, len(self._rounds))
        sees = self.observer.rank
        self._rounds.append(
            RoundView(
                round=event.round,
                broadcast=self._cut(event.broadcast) if sees >= GLOBAL_MODELS.rank else None,
                reports=self._seen_reports(event) if sees >= SHUFFLED.rank else None,
                aggregate=self._cut(event.aggregate) if sees >= AGGREGATE.rank else None,
                shared={name: self._cut(value) for name, value in event.shared.items()}
                if sees >= GLOBAL_MODELS.rank
                else {},
                masked_words=self._seen_words(event) if self.observer.sees_masked_words else None,
            )
        )

    def view(self, plan: Plan, final_model: Tensor) -> View:
        """Return the observer's view of the whole run, once it has ended."""
        return View(
            observer=self.observer,
            plan=plan,
            rounds=tuple(self._rounds),
            final_model=self._cut(final_model),
            coordinates=self.coordinates,
        )

    def _seen_reports(self, event: RoundEvent) -> Message:
        return self._kept(
            self._chosen(event.reports) if self.observer.rank >= UPLOADS.rank else _multiset(event.received)
        )

    def _seen_words(self, event: RoundEvent) -> Message | None:
        # Unmasked reports are ordinary uploads, which the right to see masked words does not include.
        return self._kept(self._chosen(event.reports)) if event.reports.masked else None

    def _kept(self, seen: Message) -> Message:
        """A copy restricted to the wanted coordinates."""
        side = {name: array.detach().clone() for name, array in seen.side.items()}
        return replace(seen, values=self._cut(seen.values), present=seen.present.clone(), side=side)

    def _chosen(self, reports: Message) -> Message:
        """The rows of the wanted senders."""
        if self.senders is None or reports.senders is None:
            return reports
        return reports.of_rows([row for row, sender in enumerate(reports.senders) if sender in self.senders])

    def _cut(self, tensor: Tensor) -> Tensor:
        kept = tensor if self.coordinates is None else tensor[..., self.coordinates]
        # A clone: a view of a slice would keep the whole model of every round in memory.
        return kept.detach().clone()


@dataclass(kw_only=True)
class UtilityRecorder:
    """A recorder that keeps the utility of the server's model over the rounds, for the first of several independent
    runs.

    ``rows``: (rounds so far, value by metric), one per ``every`` rounds. The metrics are the first one of the task
    (see ``utility_of``), such as accuracy, and the loss; one that is not defined in a round is left out of its row.
    """

    task: Task
    every: int = 1
    rows: list[tuple[int, dict[str, float]]] = field(default_factory=list)
    needs_reports: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_count("every (rounds between two records)", self.every)

    def watch(self, event: RoundEvent) -> None:
        """Record the utility after a finished round."""
        if (event.round + 1) % self.every == 0:
            self.rows.append((event.round + 1, by_round(self.task.utility(event.model[0]))))


def by_round(found: Sequence[Utility]) -> dict[str, float]:
    """Return the metrics that are recorded round by round: the first metric of a model's utility, and its loss."""
    return {one.metric: one.value for one in (found[0], found[-1]) if one.value is not None}


@dataclass(kw_only=True)
class NumbersRecorder:
    """A recorder that keeps, round by round, the numbers that a defense publishes about its state by its method
    ``numbers``.

    ``rows``: (rounds so far, numbers by name), one per ``every`` rounds from the first on: the numbers with which that
    round was run.
    """

    protection: Protection
    plan: Plan
    every: int = 1
    rows: list[tuple[int, dict[str, float]]] = field(default_factory=list)
    needs_reports: ClassVar[bool] = False

    def watch(self, event: RoundEvent) -> None:
        """Record the defense's public numbers after a finished round."""
        if event.round % self.every == 0:
            self.rows.append((event.round, dict(self.protection.numbers(self.plan, event.state))))


@dataclass(kw_only=True)
class LotRecorder:
    """A recorder that keeps which samples one client used in each round, because a worst-case adversary knows them.

    ``lots[round][step]`` is a mask ``(R, n)`` over the client's samples, false in replicas where it did not take part;
    the list is empty for rounds in which it took part in no replica.
    """

    client: int
    lots: list[list[Tensor]] = field(default_factory=list)
    needs_reports: ClassVar[bool] = False

    def watch(self, event: RoundEvent) -> None:
        """Record the client's samples of a finished round.

        Raises ValueError if the recorder has recorded another run.
        """
        _check_order(event, len(self.lots))
        self.lots.append(event.lots.get(self.client, []))


def _multiset(message: Message) -> Message:
    """The rows without senders, in an order that only their content decides; absent rows are last."""
    # Even where no channel shuffled: rows in the clients' order would reveal the senders.
    columns = [array.unsqueeze(-1).flatten(2).double() for array in (message.values, *message.side.values())]
    rows = torch.cat(columns, dim=-1)
    # One sort key per row: cosines of the columns' numbers weigh all columns differently.
    key = rows @ torch.arange(rows.shape[-1], dtype=torch.float64).cos()
    order = key.masked_fill(~message.present, torch.inf).argsort(dim=1)
    replicas = torch.arange(len(order)).unsqueeze(-1)
    return Message(
        values=message.values[replicas, order],
        present=message.present[replicas, order],
        senders=None,
        side={name: array[replicas, order] for name, array in message.side.items()},
    )


def _check_order(event: RoundEvent, seen: int) -> None:
    if event.round != seen:
        raise ValueError(f"a recorder can record one run only, got round {event.round} after {seen} rounds")


INDEX_BITS = 32
"""Size of the index of a number in a sparse report."""
_FIRST = 64
# A copy of the reports of ten thousand clients would take as much memory as the reports.
_NUMBERS = 2**22


@dataclass(kw_only=True)
class TrafficRecorder:
    """A recorder that adds up the bytes that clients send and receive, in the first of several independent runs.

    ``rounds`` counts the rounds so far; ``reports`` the clients' reports, of ``up`` bytes in total; ``receipts`` the
    broadcast models that clients received, of ``down`` bytes in total.
    """

    rounds: int = 0
    reports: int = 0
    receipts: int = 0
    up: int = 0
    down: int = 0
    needs_reports: ClassVar[bool] = False

    def watch_reports(self, reports: Message) -> None:
        """Count the bytes of all reports of a round, or of a block of them."""
        self.reports += int(reports.present[0].sum())
        self.up += int(report_bytes(reports).sum())

    def watch(self, event: RoundEvent) -> None:
        """Count a finished round and the bytes of its broadcast."""
        receivers = int(event.cohort[0].sum())
        self.rounds += 1
        self.receipts += receivers
        self.down += receivers * broadcast_bytes(event.broadcast, event.shared)


def report_bytes(reports: Message) -> Tensor:
    """Return the bytes that each client's report needs, int64 of shape ``(rows,)``, in the first replica; clients that
    are absent send nothing.
    """
    rows = reports.values[0]
    size, dim = reports.word_bits or _bits(rows), rows.shape[1]
    bits = torch.full((len(rows),), dim * size)
    # Masked words are uniform: a short encoding of them would be an accident.
    if not reports.masked:
        bits = torch.minimum(bits, rows.count_nonzero(-1) * (size + INDEX_BITS))
        bits = torch.where(_takes_two_values(rows), bits.clamp_max(dim + 2 * size), bits)
    for name, array in reports.side.items():
        if name not in reports.unsent:
            bits = bits + array[0, 0].numel() * _bits(array) if len(rows) else bits
    return ((bits + 7) // 8).masked_fill(~reports.present[0], 0)


def broadcast_bytes(model: Tensor, shared: Mapping[str, Tensor]) -> int:
    """Return the bytes that one client receives in a round: the model ``(R, d)`` and what the algorithm shares."""
    return sum(part[0].numel() * part.element_size() for part in (model, *shared.values()))


def _bits(array: Tensor) -> int:
    return 1 if array.dtype is torch.bool else 8 * array.element_size()


def _takes_two_values(rows: Tensor) -> Tensor:
    """Which rows ``(rows, d)`` hold at most two different numbers."""
    found = _two_valued(rows[:, :_FIRST])
    # The first numbers of most reports already differ, so that the rest need not be looked at.
    for part in torch.split(found.nonzero().flatten(), max(1, _NUMBERS // rows.shape[1])):
        found[part] = _two_valued(rows[part])
    return found


def _two_valued(rows: Tensor) -> Tensor:
    if not len(rows):
        return torch.zeros(0, dtype=torch.bool)
    low, high = rows.aminmax(dim=1, keepdim=True)
    return ((rows == low) | (rows == high)).all(1)
