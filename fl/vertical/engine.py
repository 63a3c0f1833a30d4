"""Trains a vertical federation for a batch of replicas (independent runs), and passes each step to recorders."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from ..fields import check_positive
from ..hooks import Recorder, check_returned, overrides
from ..streams import Runs, Streams
from .network import Layers, VerticalModels, moved, row_norms, weighted_sum
from .protection import VerticalContext, VerticalPlan, VerticalProtection
from .task import VerticalTask


@dataclass(frozen=True, kw_only=True, eq=False)
class Planted:
    """The change that an audit makes to the data of the people that take part.

    Args:
        labels: (R, n), the labels of all people in each replica; None: those of the task.
        person, rows: by passive party: the rows (R, width) that take the place of this person's columns.
    """

    labels: Tensor | None = None
    person: int = 0
    rows: Mapping[int, Tensor] | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class StepEvent:
    """All data of one step, including what no party may see; only recorders receive it.

    Args:
        people: (b,), the people of the batch.
        embeddings: by passive party, what it sent: (R, b, embedding).
        sent: whether these embeddings were sent in this step, and not in an earlier epoch.
        gradients: by passive party, what it was sent back: (R, b, embedding).
        models: of all parties, before the step.
        targets: (R, b, classes), what the active party trained on.
    """

    step: int
    epoch: int
    people: Tensor
    embeddings: tuple[Tensor, ...]
    sent: bool
    gradients: tuple[Tensor, ...]
    models: VerticalModels
    targets: Tensor


def public_order(streams: Streams, people: int, epoch: int) -> Tensor:
    """Return the order of the people in an epoch, (people,). All parties know this order, because they align their rows
    by it.

    Replicas share it, which leaves them independent given it.
    """
    return torch.from_numpy(streams.generator("order", round=epoch).permutation(people))


def run_vertical(
    task: VerticalTask,
    plan: VerticalPlan,
    protection: VerticalProtection,
    streams: Streams,
    *,
    runs: Runs | None = None,
    planted: Planted | None = None,
    speeds: Mapping[int, float] | None = None,
    recorders: Sequence[Recorder[StepEvent]] = (),
    stop_after: int | None = None,
) -> VerticalModels:
    """Train a batch of replicas (independent runs) at once and return all parties' final models.

    Replicas share data, initial models and the public order of the people, and have their own noise.

    Args:
        runs: which replicas run together; one replica by default.
        planted: what an audit changes in the data.
        speeds: by passive party, a factor on its learning rate, where it deviates from the protocol; 1 for others.
        recorders: receive every step.
        stop_after: epochs to run; all epochs of the plan by default.

    Raises:
        ValueError: if a hook returns no tensor of the right shape and type, embeddings are to be sent once by parties
            whose models are trained, or a speed is no number > 0 of a passive party.
    """
    training = _Training(task, plan, protection, streams, runs or Runs(), planted or Planted(), speeds or {}, recorders)
    return training.run(stop_after)


@dataclass
class _Training:
    """One training; its methods are the parties' turns in a step.

    ``kept``: what each passive party sent about each person, for parties that send it once.
    """

    task: VerticalTask
    plan: VerticalPlan
    protection: VerticalProtection
    streams: Streams
    runs: Runs
    planted: Planted
    speeds: Mapping[int, float]
    recorders: Sequence[Recorder[StepEvent]]
    kept: list[Tensor] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.protection.sends_once and not self.plan.frozen:
            raise ValueError(
                "embeddings that are sent once need bottom models that are not trained: set frozen = true in the plan"
            )
        for party, speed in self.speeds.items():
            if party not in range(self.task.network.passive):
                raise ValueError(f"speeds belong to a passive party, 0..{self.task.network.passive - 1}, got {party}")
            check_positive("speed", speed)
        self.network, self.draws = self.task.network, self.runs.draws(self.streams)
        # Of all people, where a defense changes them before the training; else only the rows of a batch are copied.
        changed = range(self.task.network.passive) if overrides(self.protection, "columns") else ()
        self.released = [self._released(party) for party in changed]

    def run(self, stop_after: int | None) -> VerticalModels:
        epochs = self.plan.epochs if stop_after is None else stop_after
        if not 1 <= epochs <= self.plan.epochs:
            raise ValueError(f"stop_after must be in 1..{self.plan.epochs} (epochs of the plan), got {epochs}")
        models = _expanded(self.network.initial(self.streams), self.runs.replicas)
        targets = self._targets(0)
        for epoch in range(epochs):
            if epoch and self.protection.redraws:
                targets = self._targets(epoch)
            order = public_order(self.streams, self.plan.people, epoch)
            for turn, people in enumerate(torch.split(order, self.plan.batch)):
                models = self._step(models, epoch, epoch * self.plan.steps_per_epoch + turn, people, targets)
        return models

    def _targets(self, epoch: int) -> Tensor:
        labels = self.planted.labels
        labels = self.task.people.labels.expand(self.runs.replicas, -1) if labels is None else labels
        values = one_hot(labels, self.network.classes).to(torch.float32)
        step = epoch * self.plan.steps_per_epoch
        context = self._context(epoch, step, torch.arange(self.plan.people))
        return self._hook("targets", values, context, round=epoch)

    def _hook(self, hook: str, values: Tensor, *given: object, round: int = 0, client: int = 0) -> Tensor:
        """What a hook makes of values, with the stream of its name."""
        rng = self.draws(hook, round=round, client=client)
        return check_returned(hook, getattr(self.protection, hook)(values, *given, rng), values, of_type=True)

    def _context(self, epoch: int, step: int, people: Tensor) -> VerticalContext:
        return VerticalContext(plan=self.plan, epoch=epoch, step=step, replicas=self.runs.replicas, people=people)

    def _step(self, models: VerticalModels, epoch: int, step: int, people: Tensor, targets: Tensor) -> VerticalModels:
        context = self._context(epoch, step, people)
        outputs = [
            bottom.forward(layers, self._rows(party, people))
            for party, (bottom, layers) in enumerate(zip(self.network.bottoms, models.bottoms, strict=True))
        ]
        computed = [values for values, _ in outputs]
        passive = range(self.network.passive)
        leaves = [computed[party].detach().requires_grad_() for party in passive]
        messages = [self._embeddings(leaves[party], party, context) for party in passive]
        sent = tuple(message.detach() for message in messages)
        wanted = targets[:, people]
        down, by_top, by_own = self._active(models, (*sent, computed[-1]), wanted, replace(context, targets=wanted))
        self._record(context, embeddings=sent, gradients=down, models=models, targets=wanted)
        steps = list(models.bottoms)
        if not self.plan.frozen:
            for party, back in enumerate(down):
                back = _through(messages[party], leaves[party], back)
                steps[party] = self._bottom(models, party, outputs[party][1], back, context)
        steps[-1] = self._bottom(models, self.network.passive, outputs[-1][1], by_own, context)
        top = moved(models.top, self._rate(people) * by_top) if models.top else ()
        return VerticalModels(bottoms=tuple(steps), top=top)

    def _released(self, party: int) -> Tensor:
        """A passive party's columns of all people as the protection's hook returns them, ``(R, n, width)``."""
        values = self._held(party, torch.arange(self.plan.people))
        return self._hook("columns", values, party, self.plan, client=party)

    def _rows(self, party: int, people: Tensor) -> Tensor:
        """A party's rows of the batch from which it computes, ``(R, b, width)``."""
        return self.released[party][:, people] if party < len(self.released) else self._held(party, people)

    def _held(self, party: int, people: Tensor) -> Tensor:
        """A party's own rows of some people, ``(R, b, width)``, with what is planted."""
        rows = self.task.people.columns[party][people].expand(self.runs.replicas, -1, -1)
        crafted = (self.planted.rows or {}).get(party)
        if crafted is None:
            return rows
        here = (people == self.planted.person).view(1, -1, 1)
        return torch.where(here, crafted.unsqueeze(1), rows)

    def _embeddings(self, values: Tensor, party: int, context: VerticalContext) -> Tensor:
        if self.protection.sends_once and context.epoch:
            return self.kept[party][:, context.people]
        sent = self._hook("embeddings", values, party, context, round=context.step, client=party)
        if self.protection.sends_once:
            if len(self.kept) <= party:
                self.kept.append(sent.new_zeros(len(sent), self.plan.people, sent.shape[2]))
            self.kept[party][:, context.people] = sent.detach()
        return sent

    def _active(
        self, models: VerticalModels, embeddings: tuple[Tensor, ...], targets: Tensor, context: VerticalContext
    ) -> tuple[tuple[Tensor, ...], Tensor, Tensor]:
        """The active party's turn: the gradients that it sends, the sum for its top model, and its own embeddings'
        gradients.
        """
        logits, held = self.network.logits(models.top, embeddings)
        values = torch.softmax(logits, dim=-1) - targets
        residuals = self._hook("residuals", values, context, round=context.step)
        by_layers, by_embeddings = self.network.by_embeddings(models.top, held, residuals)
        equal = residuals.new_ones(residuals.shape[:2])
        by_top = weighted_sum(held, by_layers, equal) if models.top else residuals.new_zeros(len(residuals), 0)
        down = tuple(
            self._hook("gradients", values, party, context, round=context.step, client=party)
            for party, values in enumerate(by_embeddings[:-1])
        )
        return down, by_top, by_embeddings[-1]

    def _record(self, context: VerticalContext, **seen: Any) -> None:
        sent = not (self.protection.sends_once and context.epoch)
        event = StepEvent(step=context.step, epoch=context.epoch, people=context.people, sent=sent, **seen)
        for recorder in self.recorders:
            recorder.watch(event)

    def _bottom(
        self, models: VerticalModels, party: int, held: Layers, back: Tensor, context: VerticalContext
    ) -> Layers:
        """A party's updated bottom model, from the gradients by its embeddings."""
        layers = models.bottoms[party]
        gradients, _ = self.network.bottoms[party].backward(layers, held, back)
        if party < self.network.passive:
            total = self._protected_sum(party, held, gradients, context)
        else:
            # Without any hook: no other party receives gradients of the active party's own model.
            total = weighted_sum(held, gradients, back.new_ones(back.shape[:2]))
        return moved(layers, self.speeds.get(party, 1.0) * self._rate(context.people) * total)

    def _protected_sum(self, party: int, held: Layers, gradients: Layers, context: VerticalContext) -> Tensor:
        norms = row_norms(held, gradients)
        weights = self.protection.bottom_weights(norms, party, context)
        weights = torch.ones_like(norms) if weights is None else weights
        weights = check_returned("bottom_weights", weights, norms, of_type=True)
        total = weighted_sum(held, gradients, weights)
        rng = self.draws("bottom", round=context.step, client=party)
        found = self.protection.bottom_sum(total, party, context, rng)
        return check_returned("bottom_sum", found, total, of_type=True)

    def _rate(self, people: Tensor) -> float:
        return self.plan.learning_rate / len(people)


def _expanded(models: VerticalModels, replicas: int) -> VerticalModels:
    def many(layers: Layers) -> Layers:
        return tuple(layer.expand(replicas, -1, -1) for layer in layers)

    return VerticalModels(bottoms=tuple(many(one) for one in models.bottoms), top=many(models.top))


def _through(message: Tensor, values: Tensor, back: Tensor) -> Tensor:
    """The gradient by a party's own embeddings, of the gradient by what it sent of them."""
    if message is values or not message.requires_grad:
        return back
    (found,) = torch.autograd.grad(message, values, back)
    return found
