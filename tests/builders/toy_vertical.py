"""A small vertical federation of random people, and all that is sent in a run of it."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from fedassay.audit.claim import Claim
from fedassay.audit.observer import ACTIVE_PARTY, PASSIVE_PARTY
from fedassay.fl.streams import Runs, Streams, normal
from fedassay.fl.vertical.engine import Planted, StepEvent, run_vertical
from fedassay.fl.vertical.network import VerticalNetwork
from fedassay.fl.vertical.protection import VerticalContext, VerticalPlan, VerticalProtection
from fedassay.fl.vertical.task import People, VerticalTask
from fedassay.suites.vertical.case import VerticalCase
from torch import Tensor

LOGISTIC = VerticalNetwork(widths=(3, 2), classes=3, embedding=3, summed=True)
"""Vertical logistic regression: one passive party, and an active party with two columns."""
SPLIT = VerticalNetwork(widths=(3, 4, 0), classes=3, embedding=2, top_hidden=(6,))
"""Two passive parties, and an active party with labels and a top model alone."""
BINARY = VerticalNetwork(widths=(3, 2), classes=2, embedding=4, top_hidden=(5,))


def toy_people(network, n, purpose, streams):
    rng = streams.generator(purpose)
    labels = torch.from_numpy(rng.integers(network.classes, size=n))
    rows = normal(rng, (n, sum(network.widths))) + labels.unsqueeze(1)
    return People(columns=tuple(torch.split(rows, list(network.widths), dim=1)), labels=labels)


def toy_vertical(network, n=12, **plan):
    """A federation of ``n`` people, by default for two epochs of batches of four."""
    edges = np.cumsum([0, *network.widths])
    streams = Streams(7)
    task = VerticalTask(
        network=network,
        people=toy_people(network, n, "people", streams),
        public=toy_people(network, 6, "public", streams),
        test=toy_people(network, 30, "test", streams),
        groups=tuple(tuple(range(edges[i], edges[i + 1])) for i in range(len(network.widths))),
        shape=(1, 1, sum(network.widths)),
    )
    settings = {"epochs": 2, "batch": 4, "learning_rate": 0.5} | plan
    return task, VerticalPlan(people=n, network=network, **settings)


def label_case(protection, *, epsilon=1.0, delta=0.0, seed=0, **facts):
    """A claim about one label; by default against a passive party, of all epochs of a federation as ``toy_vertical``
    makes it of SPLIT.
    """
    task, plan = facts.pop("federation", None) or toy_vertical(SPLIT)
    stated = {"unit": "label", "observer": PASSIVE_PARTY, "rounds": plan.epochs}
    stated |= {key: facts.pop(key) for key in ("observer", "rounds", "adjacency", "unit") if key in facts}
    claim = Claim.stated(epsilon, delta, **stated)
    return VerticalCase(claim=claim, task=task, plan=plan, protection=protection, streams=Streams(seed), **facts)


def row_case(protection, **facts):
    """A claim about one person's columns against the active party, else as ``label_case``."""
    return label_case(protection, **({"unit": "sample", "observer": ACTIVE_PARTY} | facts))


class OnResiduals(VerticalProtection):
    """Residuals as a function returns them, of the raw ones and of independent Gaussian noise of a scale."""

    def __init__(self, function: Callable[[Tensor, Tensor], Tensor], scale: float) -> None:
        self.function, self.scale = function, scale

    def residuals(self, values, context, rng):
        return self.function(values, self.scale * normal(rng, tuple(values.shape)))


@dataclass
class Events:
    """A recorder that keeps every step."""

    steps: list[StepEvent] = field(default_factory=list)

    def watch(self, event: StepEvent) -> None:
        self.steps.append(event)


def steps_of(task, plan, protection, *, seed=3, planted=None, replicas=1):
    """All steps of a run; the draws hang on the seed alone."""
    kept = Events()
    runs = Runs(replicas=replicas)
    run_vertical(task, plan, protection, Streams(seed), runs=runs, planted=planted, recorders=[kept])
    return kept.steps


def with_label(task, person, label, replicas=1):
    """One label is another one."""
    labels = task.people.labels.repeat(replicas, 1)
    labels[:, person] = label
    return Planted(labels=labels)


def with_rows(person, rows, replicas=1):
    """One person's columns are others, at some parties."""
    return Planted(person=person, rows={party: torch.tensor(row).repeat(replicas, 1) for party, row in rows.items()})


def context_of(plan, **facts):
    """The facts of the first step, of all people."""
    settings = {"epoch": 0, "step": 0, "replicas": 1, "people": torch.arange(plan.people)} | facts
    return VerticalContext(plan=plan, **settings)


def relabelled(task, labels):
    """The same federation with other labels."""
    return replace(task, people=replace(task.people, labels=labels))


class Taped(VerticalProtection):
    """Another protection, whose inputs and releases by (hook, step, party) are kept. Given the releases of another run
    it releases those, so that a run shows what one unit moves while all that was released stays the same.
    """

    def __init__(self, inner: VerticalProtection, released: dict[tuple[str, int, int], Tensor] | None = None) -> None:
        self.inner, self.released = inner, released
        self.redraws, self.sends_once = inner.redraws, inner.sends_once
        self.inputs: dict[tuple[str, int, int], Tensor] = {}
        self.outputs: dict[tuple[str, int, int], Tensor] = {}

    def embeddings(self, values, party, context, rng):
        return self._kept("embeddings", values, self.inner.embeddings(values, party, context, rng), context, party)

    def residuals(self, values, context, rng):
        return self._kept("residuals", values, self.inner.residuals(values, context, rng), context)

    def gradients(self, values, party, context, rng):
        return self._kept("gradients", values, self.inner.gradients(values, party, context, rng), context, party)

    def bottom_weights(self, norms, party, context):
        return self.inner.bottom_weights(norms, party, context)

    def bottom_sum(self, total, party, context, rng):
        return self._kept("bottom_sum", total, self.inner.bottom_sum(total, party, context, rng), context, party)

    def targets(self, one_hot, context, rng):
        return self.inner.targets(one_hot, context, rng)

    def _kept(self, hook, values, out, context, party=-1):
        key = (hook, context.step, party)
        self.inputs[key] = values.detach()
        if self.released is not None and key in self.released:
            # Its value is the other run's, its derivative this run's.
            out = self.released[key] + torch.nan_to_num(out - out.detach())
        self.outputs[key] = out.detach()
        return out


def moved_by(task, plan, protection, hooks, planted, *, of=lambda values: values, seed=3):
    """The two runs' steps, and for each release of ``hooks`` how far the planted unit moves its input, ``(b, d)``, if
    all releases of these hooks are those of the run without it. ``of``: what is done with the input before the noise.
    """
    without = Taped(protection)
    first = steps_of(task, plan, without, seed=seed)
    kept = {key: out for key, out in without.outputs.items() if key[0] in hooks}
    replayed = Taped(protection, kept)
    second = steps_of(task, plan, replayed, seed=seed, planted=planted)
    return first, second, {key: (of(replayed.inputs[key]) - of(without.inputs[key]))[0] for key in kept}
