"""A vertical federation of drawn people, what one observer saw of it, and how well scores fit the truth."""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from fedassay.attacks.attack import Level
from fedassay.attacks.vertical.attack import VerticalKnowledge
from fedassay.audit.metrics import ScoresByRun, area
from fedassay.audit.observer import PASSIVE_PARTY
from fedassay.fl.streams import Streams, normal
from fedassay.fl.vertical.engine import run_vertical
from fedassay.fl.vertical.network import VerticalModels, VerticalNetwork
from fedassay.fl.vertical.protection import VerticalPlan, VerticalProtection
from fedassay.fl.vertical.task import People, VerticalTask
from fedassay.fl.vertical.view import VerticalRecorder, VerticalView

LOGISTIC = VerticalNetwork(widths=(5, 4), classes=2, embedding=2, summed=True)
LINEAR = VerticalNetwork(widths=(5, 4), classes=2, embedding=4)
SPLIT = VerticalNetwork(widths=(5, 4), classes=2, embedding=4, hidden=(8,), top_hidden=(6,))


@dataclass(frozen=True, kw_only=True)
class Observed:
    """What an adversary saw and knows, and the truth."""

    view: VerticalView
    knowledge: VerticalKnowledge
    task: VerticalTask
    final: VerticalModels


def drawn_people(count, network, shares, signal, rng):
    """People whose columns are a class's centre times ``signal`` plus standard normal noise: at 0 they are independent
    of the labels. The centres are the same for all people.
    """
    labels = torch.from_numpy(rng.choice(network.classes, size=count, p=shares))
    centres = normal(np.random.default_rng(99), (network.classes, sum(network.widths)))
    rows = signal * centres[labels] + normal(rng, (count, sum(network.widths)))
    return People(columns=tuple(torch.split(rows, list(network.widths), dim=1)), labels=labels)


def drawn_task(network, people=200, *, shares=(), signal=1.0, public=300, seed=0, **plan):
    """A task and its plan; classes are equally frequent unless ``shares`` are given."""
    rng, shares = np.random.default_rng(seed), shares or (1 / network.classes,) * network.classes
    edges = np.cumsum([0, *network.widths])
    taking, others, test = (drawn_people(count, network, shares, signal, rng) for count in (people, public, 50))
    task = VerticalTask(
        network=network,
        people=taking,
        public=others,
        test=test,
        groups=tuple(tuple(range(low, high)) for low, high in pairwise(edges)),
        shape=(1, 1, sum(network.widths)),
    )
    settings = {"epochs": 2, "batch": 50, "learning_rate": 0.1} | plan
    return task, VerticalPlan(people=people, network=network, **settings)


def observed(
    task, plan, protection=None, *, observer=PASSIVE_PARTY, party=0, seed=0, known=20, speeds=None, **knowledge
):
    """Train once; the labels of the first ``known`` people are known."""
    streams, recorder = Streams(seed), VerticalRecorder(observer=observer, party=party)
    protection = protection or VerticalProtection()
    final = run_vertical(task, plan, protection, streams, speeds=speeds, recorders=[recorder])
    counts = torch.bincount(task.public.labels, minlength=task.network.classes).double()
    fields = {
        "level": Level.REALISTIC,
        "plan": plan,
        "public": task.public,
        "prior": counts / counts.sum(),
        "known": torch.arange(known),
        "known_labels": task.people.labels[:known].clone(),
        "initial": task.network.initial(streams),
    }
    view = recorder.view(plan, final, columns=task.people.columns, labels=task.people.labels)
    return Observed(view=view, knowledge=VerticalKnowledge(**(fields | knowledge)), task=task, final=final)


def auc(evidence, labels):
    """Area under the ROC curve of the second of two classes."""
    truth, margin = labels.numpy()[evidence.people], evidence.scores[:, 1] - evidence.scores[:, 0]
    return area(ScoresByRun.of(margin[truth == 1], margin[truth == 0]))


def auc_deviations(evidence, labels):
    """How many standard deviations the area is from 1/2, if scores are independent of labels (Mann-Whitney)."""
    ones = int((labels.numpy()[evidence.people] == 1).sum())
    zeros = len(evidence.people) - ones
    return (auc(evidence, labels) - 0.5) / np.sqrt((ones + zeros + 1) / (12 * ones * zeros))


def accuracy(evidence, labels):
    """Share of people whose label has the highest score."""
    return float((evidence.scores.argmax(1) == labels.numpy()[evidence.people]).mean())


def squared_error(evidence, task):
    """Mean squared error of all columns."""
    truth = task.people.columns[evidence.party].double().numpy()[evidence.people]
    return float(np.square(evidence.rows - truth).mean())
