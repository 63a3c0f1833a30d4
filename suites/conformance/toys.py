"""Small federations in which parts are checked, of every kind: clients with random images or texts, digits at the
parties of a vertical federation, and teachers that hold digits.
"""

import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import torch

from ...audit.parts import Spec, name_and_options
from ...fl.algorithms import Algorithm, BoundedUpdate, FedAvg, FedSGD, Scaffold
from ...fl.data.dataset import Dataset
from ...fl.data.datasets import load_dataset
from ...fl.data.shakespeare import ALPHABET, CODES, LETTERS, PREFIX, tokens_of
from ...fl.objective import NEXT_TOKEN
from ...fl.partitions import IID
from ...fl.plan import Plan
from ...fl.sampling import FixedSize, Full, Poisson
from ...fl.streams import Streams, uniform
from ...fl.task import Task, TrainingRule, build_task
from ...fl.transfer.task import TransferPlan, TransferTask, transfer_task
from ...fl.vertical.protection import VerticalPlan
from ...fl.vertical.task import VerticalTask, build_vertical_task

_ALGORITHMS = (
    FedSGD(learning_rate=0.5),
    FedAvg(learning_rate=0.2, local_steps=2),
    BoundedUpdate(learning_rate=0.2, local_steps=2, mu=0.1, radius=1.0),
    Scaffold(learning_rate=0.2, local_steps=2),
)
USUAL: dict[str, Any] = {
    "learning_rate": 0.1,
    "local_steps": 2,
    "mu": 0.1,
    "radius": 1.0,
    "alpha": 0.5,
    "per_client": 2,
}
"""Values of fields without a default at which algorithms and partitions are checked."""
_LOTS = (Full(), Poisson(0.3), FixedSize(1))
_PEOPLE, _TEACHERS, _QUERIES = 24, 10, 6


def toy_dataset(count: int = 200, *, side: int = 3, classes: int = 3, seed: int = 0) -> Dataset:
    """Return random images ``(1, side, side)`` with random labels, two images per owner."""
    rng = Streams(seed).generator("conformance data")
    images = uniform(rng, (count + 30, 1, side, side))
    labels = torch.from_numpy(rng.integers(classes, size=count + 30))
    return Dataset(
        name=f"toy{seed}",
        train_images=images[:count],
        train_labels=labels[:count],
        test_images=images[count:],
        test_labels=labels[count:],
        classes=classes,
        train_owners=torch.arange(count) // 2,
    )


def toy_texts(count: int = 8, *, seed: int = 0) -> Dataset:
    """Return texts, each of which holds its own secret, two texts per owner."""
    rng = Streams(seed).generator("conformance texts")
    words = tokens_of(CODES)[rng.integers(len(CODES), size=(count + 60, LETTERS))]
    drawn = torch.from_numpy(np.hstack([np.tile(tokens_of(PREFIX), (len(words), 1)), words]))
    images, labels = drawn[:, None, None, :-1].float(), drawn[:, 1:].contiguous()
    return Dataset(
        name=f"toy texts {seed}",
        train_images=images[:count],
        train_labels=labels[:count],
        test_images=images[count:],
        test_labels=labels[count:],
        classes=len(ALPHABET),
        train_owners=torch.arange(count) // 2,
        rows=True,
        task=NEXT_TOKEN,
    )


def toy_task(*, clients: int = 4, model: Spec = "logistic", seed: int = 0, held_out: int = 0, **data: Any) -> Task:
    """Return a task on such random images, or on such texts for a model of texts, distributed evenly to the clients."""
    of_texts = name_and_options("model", model)[0] in ("text_transformer", "text_lora")
    return build_task(
        toy_texts(seed=seed) if of_texts else toy_dataset(seed=seed, **data),
        model=model,
        partition=IID(),
        clients=clients,
        held_out=held_out,
        streams=Streams(seed),
    )


def toy_plan(task: Task, **changes: Any) -> Plan:
    """Return the task's plan: by default two rounds of FedSGD with all clients and all samples."""
    fields: dict[str, Any] = {"rounds": 2, "cohort": Full(), "lot": Full(), "algorithm": FedSGD(learning_rate=0.5)}
    fields |= {"sizes": task.sizes, "layout": task.network.layout, "clients_per_user": task.clients_per_user}
    return Plan(**(fields | changes))


def usual_values(part: Callable[..., Any], usual: Mapping[str, Any] = USUAL) -> dict[str, Any]:
    """Return typical values for those fields of a part that have no default."""
    needed = [one.name for one in inspect.signature(part).parameters.values() if one.default is one.empty]
    return {one: usual[one] for one in needed if one in usual}


def algorithms_for(defense: Any) -> Iterator[Algorithm]:
    """Yield algorithms to try with a defense: first the package's, with updates bounded by the defense's clip norm,
    then those that the defense's file defines or imports. A field that has the name of a field of the defense gets its
    value.
    """
    values = USUAL | {"radius": getattr(defense, "clip_norm", USUAL["radius"])} | defense.fields()
    for one in _ALGORITHMS:
        with suppress(TypeError, ValueError):  # A clip norm that is refused is no radius.
            yield replace(one, radius=values["radius"]) if isinstance(one, BoundedUpdate) else one
    members = [name for name in vars(Algorithm) if not name.startswith("_")]
    for one in list(vars(sys.modules[type(defense).__module__]).values()):
        own = isinstance(one, type) and one.__module__ != Algorithm.__module__
        if own and all(hasattr(one, name) for name in members):
            with suppress(TypeError, ValueError):  # A field has no usual value.
                yield one(**usual_values(one, values))


def client_plans(defense: Any, *, inert: int = 0, count: int = 24) -> Iterator[tuple[Task, Plan]]:
    """Yield plans of federations of four clients, to be tried in turn until a defense accepts one."""
    task = toy_task(clients=4, count=count).with_inert(inert)
    for algorithm in algorithms_for(defense):
        for lot in _LOTS:
            yield task, toy_plan(task, algorithm=algorithm, lot=lot, rounds=3)


@cache
def _vertical_task(*, summed: bool) -> VerticalTask:
    """Digits, even or odd, in two halves at two parties; a third party holds the labels."""
    digits = load_dataset("digits")
    halves = replace(
        digits,
        train_labels=digits.train_labels % 2,
        test_labels=digits.test_labels % 2,
        classes=2,
        train_masks=None,
        test_masks=None,
        strokes=False,
    )
    hidden = () if summed else (6,)
    streams = Streams(3)
    return build_vertical_task(halves, streams=streams, people=_PEOPLE, public=30, hidden=hidden, summed=summed)


def vertical_plans(_: Any = None) -> Iterator[tuple[VerticalTask, VerticalPlan]]:
    """Yield plans of vertical federations, to be tried in turn until a defense accepts one."""
    for summed, frozen, batch in ((False, False, 8), (False, True, 8), (True, False, 8), (True, True, _PEOPLE)):
        task = _vertical_task(summed=summed)
        settings = {"epochs": 1 if batch == _PEOPLE else 2, "batch": batch}
        plan = VerticalPlan(people=_PEOPLE, network=task.network, learning_rate=0.1, frozen=frozen, **settings)
        yield task, plan


@cache
def toy_transfer() -> tuple[TransferTask, TransferPlan]:
    """Return a transfer with ten teachers that hold five digits each, and its plan."""
    task = build_task(
        load_dataset("digits"),
        model="logistic",
        partition=IID(),
        clients=_TEACHERS,
        samples=5 * _TEACHERS,
        streams=Streams(3),
    )
    data, rule = transfer_task(task, queries=_QUERIES, streams=Streams(3)), TrainingRule(steps=3, learning_rate=0.1)
    return data, data.plan(teacher=rule, student=rule)
