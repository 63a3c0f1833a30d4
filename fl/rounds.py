"""Runs the hooks of a defense round by round, on client updates that are either trained or given.

Trainings, audits and checks all run their rounds here, so that they call the same hooks in the same order, with the
same streams and the same checks of what hooks return. No other package calls a hook. Who trains no model gives the rows
of the clients, or of their samples, in place of a training::

    rounds = Rounds(plan=plan, protection=protection, streams=Streams(0), rows=given_rows(rows))
    aggregates = [turn.aggregate for turn in rounds.each(plan.rounds)]

Each stage of a round is computed from those before it when it is first asked for. Who asks for the reports alone runs
no hook of the server.

The reports of many clients are summed block by block where a defense's aggregate needs nothing else of them: a matrix
of all reports of a thousand clients takes 4 GB for a model of a million parameters.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property, partial

import numpy as np
import torch
from torch import Tensor

from .hooks import check_returned, overrides
from .message import Message, clear_absent
from .plan import Plan
from .protection import BlockSum, Context, Protection, State
from .streams import Runs, Streams
from .task import Samples, Task

NUMBERS = 2**24
"""Cohorts whose reports hold no more numbers, 64 MiB, stay one matrix."""
# Numbers of the reports of one block. Larger ones are returned to the system after each block, and asked for anew.
_BLOCK = 2**21
_IN_BLOCKS = ("local_query", "report", "channel")
"""The hooks for which ``block_sum`` stands."""
_SAME = {
    *("initial_state", "open_round", "participates", "local_step", "sample_weights", "noised_sum"),
    *("broadcast", "close_round", "numbers", "law"),
}
"""The hooks that are called alike for blocks and for one matrix."""
_KNOWN = ("mean", "unweighted mean", "sum", None)


def check_sums(protection: Protection) -> None:
    """Raise ValueError unless the ``sums`` of a protection is a member of ``Sums``."""
    if protection.sums not in _KNOWN:
        raise ValueError(f"{type(protection).__name__}.sums must be one of {_KNOWN}, got {protection.sums!r}")


def sums_reports(protection: Protection) -> bool:
    """Return whether a protection's reports may be summed block by block. The protection must state ``sums``, and no
    method may be overridden that could make blocks differ from one matrix of all reports. This holds for classes below
    the one that states ``sums``, or that defines ``block_sum``, and for the object itself.

    That is any method, also one that hooks call, but the hooks that are called alike for both. ``block_sum`` stands for
    ``local_query``, ``report`` and ``channel``: a class below it that overrides one of these would have to define it
    anew.
    """
    below = _overridden(protection, "sums", "block_sum")
    if overrides(protection, "block_sum"):
        below |= _overridden(protection, "block_sum").intersection(_IN_BLOCKS)
    return protection.sums is not None and below <= _SAME


def _overridden(protection: Protection, *stated: str) -> set[str]:
    """The names of the methods that are overridden below the last class that states one of the names ``stated``, or on
    the object.
    """
    owners = (protection, *type(protection).__mro__)
    place = next(place for place, owner in enumerate(owners) if not vars(owner).keys().isdisjoint(stated))
    known = {name for owner in owners[place:] for name in vars(owner) if not name.startswith("__")}
    return {name for owner in owners[:place] for name in known & vars(owner).keys() if callable(getattr(owner, name))}


def blocks(senders: tuple[int, ...], dim: int) -> Iterator[slice]:
    """Yield the rows of each block of a cohort."""
    rows = max(1, _BLOCK // dim)
    return (slice(start, start + rows) for start in range(0, len(senders), rows))


def block_sum(
    protection: Protection, present: Tensor, context: Context, state: State, rng: np.random.Generator
) -> BlockSum:
    """Begin the sum of the reports of a cohort ``present (1, rows)`` in one run; ``rng``: the generator of the hook
    ``report``.
    """
    own = protection.block_sum(present, context, state, rng)
    if own is not None:
        return own
    total = torch.zeros(1, context.plan.layout.dim, dtype=torch.float64)
    return ReportSum(protection=protection, state=state, rng=rng, total=total)


@dataclass(kw_only=True)
class ReportSum:
    """A running sum of the reports of one run, each multiplied by its client's weight.

    ``total (1, d)`` and ``weight``, the sum of the weights of the clients that sent a report; ``side``, what was sent
    with each block of reports. The sum is in double precision and takes one report after the other, so that it does not
    depend on the size of the blocks.
    """

    protection: Protection
    state: State
    rng: np.random.Generator
    total: Tensor
    weight: float = 0.0
    side: dict[str, list[Tensor]] = field(default_factory=dict)

    def add(self, updates: Message, context: Context) -> Message:
        """Add the reports of a block of clients, and return them."""
        reports = self.protection.report(updates, context, self.state, self.rng)
        rows, present = reports.values[0], reports.present[0]
        for row, sent, weight in zip(rows, present.tolist(), self._weights(context), strict=True):
            if sent:
                self.total[0].add_(row, alpha=weight)
                self.weight += weight
        for name, array in reports.side.items():
            self.side.setdefault(name, []).append(array[:, present])
        return reports

    def received(self) -> Message:
        """Return a message with a single row and no sender: the sum or the mean of the reports, with the arrays that
        clients sent together with their reports.
        """
        whole = self.total if self.protection.sums == "sum" else self.total / max(self.weight, 1e-12)
        side = {name: torch.cat(arrays, dim=1).unsqueeze(1) for name, arrays in self.side.items()}
        present = torch.full((1, 1), self.weight > 0)
        return Message(values=whole.float().unsqueeze(1), present=present, senders=None, side=side)

    def _weights(self, context: Context) -> list[float]:
        """The clients' sizes for a mean weighted by them, else 1."""
        if self.protection.sums == "mean":
            return [context.plan.weight(client) for client in context.senders]
        return [1.0] * len(context.senders)


Tamper = Callable[[Tensor], Tensor]


@dataclass(frozen=True, kw_only=True, eq=False)
class Rounds:
    """A batch of replicas (independent runs) of a federation, which computes one round after the other.

    Args:
        rows: the clients' updates in a round: of a training, ``given_rows``, or ``given_lots``; zeros by default.
        runs: which replicas run together.
        candidates: clients from which cohorts are drawn; all clients of the plan by default.
        task: whose public loss and samples hooks may use; None: they get neither.
        included: whether replicas may leave samples out, so that no hook can use all samples of a client.
        invited: the cohort ``(R, candidates)`` of a round, in place of the one that the plan draws.
        all_rows: whether each candidate has a row in all messages, also where it is absent in every replica.
        moves: whether the model moves by the aggregates.
        closes: whether a round is closed before the next one is opened; else no hook of the server is called.
        tamper: what a malicious server sends instead of the broadcast ``(R, d)``. The server's own model is unchanged.
    """

    plan: Plan
    protection: Protection
    streams: Streams
    rows: "Rows | None" = None
    runs: Runs = field(default_factory=Runs)
    candidates: tuple[int, ...] | None = None
    task: Task | None = None
    included: bool = False
    invited: "Callable[[Round], Tensor] | None" = None
    all_rows: bool = False
    moves: bool = False
    closes: bool = True
    tamper: Tamper | None = None

    def each(
        self, stop: int, *, first: int = 0, model: Tensor | None = None, state: State | None = None
    ) -> Iterator["Round"]:
        """Yield the rounds from ``first`` up to ``stop``; each starts from the state and model of the previous one.

        ``model``: with which the first one starts, ``(R, d)``; by default the task's initial model, or zeros without a
        task. ``state``: the protection's public state before it; by default that before the first round.
        """
        model = self._initial() if model is None else model
        state = self.protection.initial_state(self.plan) if state is None else state
        for number in range(first, stop):
            turn = Round(run=self, opening=self.facts(number, model), before=state, model=model)
            yield turn
            model = turn.next_model
            state = turn.after if self.closes else turn.state

    def facts(self, number: int, model: Tensor) -> Context:
        """Return the public facts that a defense's hooks may use in a round besides the state, before the round's
        cohort is known.
        """
        context = Context(plan=self.plan, round=number, replicas=self.runs.replicas)
        if self.task is None:
            return context
        return replace(
            context, public_loss=partial(self.task.public_loss, model), samples=partial(self._samples, model)
        )

    def published(self, model: Tensor, state: State, number: int) -> Tensor:
        """Return the final model as the server publishes it; the broadcast hook may add noise to it.

        ``number``: of the round that would be next.
        """
        context = Context(plan=self.plan, round=number, replicas=self.runs.replicas)
        rng = self.generator("broadcast", round=number)
        return check_returned("broadcast", self.protection.broadcast(model, context, state, rng), model)

    def generator(self, purpose: str, *, round: int, client: int = 0, step: int = 0) -> np.random.Generator:
        """Return the random generator of this batch with this name."""
        return self.runs.draws(self.streams)(purpose, round=round, client=client, step=step)

    def _initial(self) -> Tensor:
        size = (self.runs.replicas, -1)
        if self.task is None:
            return torch.zeros(1, self.plan.layout.dim).expand(size).clone()
        return self.task.initial(self.streams).expand(size).clone()

    def _samples(self, model: Tensor, client: int | None) -> Samples:
        """Samples that a hook may use besides the lots: one set for all replicas, so no replica may leave samples
        out.
        """
        if client is not None and self.included:
            raise ValueError(
                "a defense that uses all of a client's samples needs the same included samples in every replica "
                "(independent run)"
            )
        assert self.task is not None
        return self.task.samples(model, client)


@dataclass(kw_only=True, eq=False)
class Round:
    """One round of a federation; the result of each hook of the defense is computed when it is first requested.

    Args:
        opening: the context in which the round is opened.
        before: the public state after the round before.
        model: the server's model ``(R, d)``, with which the round starts.
    """

    run: Rounds
    opening: Context
    before: State
    model: Tensor

    @property
    def number(self) -> int:
        """The number of the round."""
        return self.opening.round

    @cached_property
    def state(self) -> State:
        """The defense's public state during the round."""
        return self.run.protection.open_round(self.opening, self.before)

    @cached_property
    def candidates(self) -> Context:
        """The public facts of the round, with all clients from which its cohort is drawn."""
        clients = self.run.candidates
        return replace(self.opening, senders=tuple(range(self.run.plan.clients)) if clients is None else clients)

    @cached_property
    def thinned(self) -> Tensor | None:
        """The clients that the hook ``participates`` keeps, of all clients from which the cohort is drawn, as a mask
        ``(R, candidates)``; None if it keeps all.
        """
        kept = self.run.protection.participates(self.candidates, self.state, self.generator("participation"))
        shape = (self.opening.replicas, len(self.candidates.senders))
        if kept is not None and (kept.shape != shape or kept.dtype is not torch.bool):
            raise ValueError(
                f"hook participates must return booleans of shape (replicas, clients) = {shape}, "
                f"got {tuple(kept.shape)} of {kept.dtype}"
            )
        return kept

    @cached_property
    def drawn(self) -> Tensor:
        """The cohort before any client drops out: ``(R, candidates)``. Canary clients are drawn like other clients."""
        if self.run.invited is not None:
            return self.run.invited(self)
        return self.run.plan.draw_cohort(
            self.run.generator, self.opening.replicas, len(self.candidates.senders), round=self.number
        )

    @cached_property
    def cohort(self) -> Tensor:
        """The clients that take part, as a mask ``(R, rows)`` with one column for each of ``context.senders``."""
        present = self._taking_part
        return present if self.run.all_rows else present[:, self._came]

    @cached_property
    def context(self) -> Context:
        """The public facts of the round, with the clients that have a row in the round's messages."""
        candidates = self.candidates
        if self.run.all_rows:
            return candidates
        return replace(candidates, senders=tuple(candidates.senders[row] for row in self._came))

    @cached_property
    def sent(self) -> Tensor:
        """The model that clients receive, ``(R, d)``."""
        rng = self.generator("broadcast")
        sent = check_returned(
            "broadcast",
            self.run.protection.broadcast(self.model, self.context, self.state, rng),
            self.model,
            of_type=False,
        )
        # Applied to what is sent only: the server goes on from its own model, whatever it made the clients train on.
        return sent if self.run.tamper is None else check_returned("tamper", self.run.tamper(sent), self.model)

    @cached_property
    def updates(self) -> Message:
        """The clients' updates, before the defense's hook ``report`` turns them into reports."""
        return (self.run.rows or given_rows(torch.zeros(1)))(self)

    @cached_property
    def reports(self) -> Message:
        """The reports that the clients send; rows without coordinates if the reports were summed in blocks."""
        return self.run.protection.report(self.updates, self.context, self.state, self.generator("report"))

    @cached_property
    def received(self) -> Message:
        """The message that arrives at the server."""
        return self.run.protection.channel(self.reports, self.context, self.state, self.generator("channel"))

    @cached_property
    def aggregate(self) -> Tensor:
        """The aggregate that the server computes from what arrived, ``(R, d)``."""
        context = replace(self.context, draws=lambda number: self.run.generator("aggregate", round=number))
        rng = self.generator("aggregate")
        aggregate = self.run.protection.aggregate(self.received, context, self.state, rng)
        return check_returned("aggregate", aggregate, self.model)

    @cached_property
    def next_model(self) -> Tensor:
        """The server's model after the round."""
        return self.run.plan.algorithm.combine(self.model, self.aggregate) if self.run.moves else self.model

    @cached_property
    def after(self) -> State:
        """The defense's public state after the round."""
        # A round that is closed has called every hook, also where nothing asked for the broadcast.
        _, aggregate = self.sent, self.aggregate
        state = self.run.protection.query(self.received, self.context, self.state, self.generator("query"))
        return self.run.protection.close_round(aggregate, self.context, state)

    def generator(self, purpose: str, *, client: int = 0, step: int = 0) -> np.random.Generator:
        """Return the random generator of this round with this name."""
        return self.run.generator(purpose, round=self.number, client=client, step=step)

    def sum_in_blocks(
        self, blocks: Iterable[tuple[Message, Context]], show: Callable[[Message], None] | None = None
    ) -> None:
        """Run ``report`` and ``channel`` on the cohort's updates block by block, and keep only the sum of the reports.

        Args:
            blocks: updates of the clients of one context, in order.
            show: receives the reports of each block.
        """
        run, sent = self.run, list[Tensor]()
        total = block_sum(run.protection, self.cohort, self.context, self.state, self.generator("report"))
        for updates, context in blocks:
            reports = total.add(updates, context)
            if show is not None:
                show(reports)
            sent.append(reports.present)
        present = torch.cat(sent, dim=1)
        values = self.model.new_zeros(*present.shape, 0)
        self.reports = Message(values=values, present=present, senders=self.context.senders)
        self.received = total.received()

    def local_step(self, rows: Tensor, real: Tensor, client: int, step: int) -> "Released":
        """Return what a client releases from the gradients ``rows (R, n, d)`` of a lot, of which only those in the mask
        ``real (R, n)`` count; the release is their mean if the protection needs no per-sample gradients.
        """
        protection = self.run.protection
        if not protection.per_sample:
            weights = real / real.sum(1, keepdim=True).clamp_min(1)
            return Released(direction=torch.einsum("rl,rld->rd", weights, rows))
        draws = partial(self.generator, client=client, step=step)
        return released(protection, rows, real, client, self.context, self.state, draws)

    @cached_property
    def _taking_part(self) -> Tensor:
        drawn = self.drawn
        return drawn if self.thinned is None else drawn & self.thinned

    @cached_property
    def _came(self) -> list[int]:
        # Clients that are absent in every replica need no training: most clients, in a small cohort.
        found: list[int] = self._taking_part.any(0).nonzero().flatten().tolist()
        return found


Rows = Callable[[Round], Message]
"""Gives the clients' updates in a round, with a row for each of its ``context.senders``."""


def given_rows(rows: Tensor | Callable[[Round], Tensor], present: Tensor | None = None) -> Rows:
    """Return a function that gives fixed updates for a round: the same ones in every round, or different ones in each.

    Args:
        rows: ``(R, candidates, d)``, of which those of the round's senders are taken.
        present: which candidates send their rows, ``(R, candidates)``; by default the round's cohort.
    """

    def updates(turn: Round) -> Message:
        senders, candidates = turn.context.senders, turn.candidates.senders
        known = {sender: place for place, sender in enumerate(candidates)}
        places = [known[sender] for sender in senders]
        there = turn.cohort if present is None else present[:, places]
        values = rows if isinstance(rows, Tensor) else rows(turn)
        values = values.expand(turn.opening.replicas, len(candidates), turn.model.shape[1])[:, places]
        return Message(values=clear_absent(values, there), present=there, senders=senders)

    return updates


def given_lots(lot: Callable[[Round, int, int], tuple[Tensor, Tensor]]) -> Rows:
    """Return updates computed from given gradients of samples. An update is the algorithm's scale times the sum of the
    directions of all local steps, or minus this sum if the algorithm is not linear.

    Args:
        lot: gives the gradients ``(R, n, d)`` of a client's samples, and which of them are in its lot, ``(R, n)``, by
            round, client and local step.
    """

    def updates(turn: Round) -> Message:
        algorithm, senders, present = turn.run.plan.algorithm, turn.context.senders, turn.cohort
        scale, values = algorithm.linear_scale or -1.0, torch.zeros(*present.shape, turn.model.shape[1])
        answers = list[list[Tensor]]()
        for row, client in enumerate(senders):
            steps = [turn.local_step(*lot(turn, client, step), client, step) for step in range(algorithm.local_steps)]
            for step in steps:
                values[:, row] += scale * step.direction
            answers.append([step.answer for step in steps if step.answer is not None])
        side = dict[str, Tensor]()
        if any(answers):
            queried = torch.stack([torch.stack(one, dim=1) for one in answers], dim=1)
            side["query"] = queried.masked_fill(~present[..., None, None], 0)
        return Message(values=clear_absent(values, present), present=present, senders=senders, side=side)

    return updates


@dataclass(frozen=True, kw_only=True)
class Released:
    """The release of a client about one lot: the direction ``(R, d)`` of its step, and the answer ``(R, k)`` to a
    query.
    """

    direction: Tensor
    answer: Tensor | None = None


def released(
    protection: Protection,
    rows: Tensor,
    real: Tensor,
    client: int,
    context: Context,
    state: State,
    draws: Callable[[str], np.random.Generator],
) -> Released:
    """Return what a client releases about a lot with these gradients: the results of the hooks ``local_step`` and
    ``local_query``.

    ``rows (R, n, d)``, of which those in ``real (R, n)`` count.
    """
    direction = protection.local_step(rows, real, client, context, state, draws("local noise"))
    direction = check_returned("local_step", direction, rows[:, 0] if rows.shape[1] else rows.sum(1))
    # Only if overridden: the default has no answer to send.
    if not overrides(protection, "local_query"):
        return Released(direction=direction)
    answer = protection.local_query(rows, real, client, context, state, draws("local query"))
    return Released(direction=direction, answer=answer)
