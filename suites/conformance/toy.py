"""Small federations of random images or texts, on which conformance checks try parts."""

from typing import Any

import numpy as np
import torch

from ...audit.parts import Spec, name_and_options
from ...fl.algorithms.algorithm import FedSGD
from ...fl.data.dataset import Dataset
from ...fl.data.secrets import CODES, LETTERS, PREFIX
from ...fl.data.shakespeare import ALPHABET, tokens_of
from ...fl.objective import NEXT_TOKEN
from ...fl.partitions.partitions import IID
from ...fl.partitions.sampling import Full
from ...fl.plan import Plan
from ...fl.streams import Streams, uniform
from ...fl.task import Task, build_task


def toy_dataset(count: int = 200, *, side: int = 3, classes: int = 3, seed: int = 0) -> Dataset:
    """Return random images ``(1, side, side)`` with random labels; two images of each owner."""
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
    """Return texts that each hold a secret of its own; two texts of each owner."""
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
    """Return a task on such images, or on such texts for a model of texts, dealt evenly."""
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
