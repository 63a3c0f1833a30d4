"""The job of pfl-research's CIFAR-10 benchmark, with a plain PyTorch loop: FedAvg in cohorts of 50, lots of 10.

pfl-research/benchmarks/image_classification, configuration ``baseline``: clients of 50 images, one pass over them in
lots of 10 at learning rate .1, 50 clients per round, unweighted mean, 1,500 rounds, a test after every tenth. Here the
model has no dropout, so that all ways can be compared number by number. Clients share a pool of images (each has 50 of
it, drawn with replacement), because 100,000 clients with images of their own would take 61 GB.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property

import torch
from fedassay.fl.algorithms import FedAvg
from fedassay.fl.data.dataset import Dataset
from fedassay.fl.data.datasets import load_dataset
from fedassay.fl.models.network import Network
from fedassay.fl.models.small_models import build_model
from fedassay.fl.plan import Plan
from fedassay.fl.sampling import FixedSize
from fedassay.fl.streams import Streams
from fedassay.fl.task import Task
from torch import Tensor, nn
from torch.func import functional_call, grad
from torch.nn.functional import cross_entropy
from turns import TurnOver

SHAPE, CLASSES = (3, 32, 32), 10
ROUNDS, SAMPLES, LOT, STEPS, LEARNING_RATE = 1500, 50, 10, 5, 0.1
SMALL_CNN = "cifar_job:small_cnn"
EVERY = 10
"""Rounds between two tests of the server's model."""
_POOL, _TESTED = 10_000, 1000


def small_cnn(shape: tuple[int, int, int], classes: int) -> nn.Module:
    """Build two convolutions of 3x3, a pool and two linear layers: 1,626,442 parameters on 3x32x32."""
    side = (shape[1] - 4) // 2
    return nn.Sequential(
        nn.Conv2d(shape[0], 32, 3),
        nn.ReLU(),
        nn.Conv2d(32, 64, 3),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(64 * side * side, 128),
        nn.ReLU(),
        nn.Linear(128, classes),
    )


@dataclass(frozen=True, kw_only=True)
class Draws:
    """Cohorts and lots of a job, drawn as they are asked for; a round and a client always give the same lots.

    ``given``: lots ``(steps, lot)`` of (round, client) that are used instead, as indices into the client's samples.
    """

    clients: int
    cohort: int
    given: Mapping[tuple[int, int], Tensor] = field(default_factory=dict)

    def cohort_of(self, turn: int) -> list[int]:
        """Return the clients of a round."""
        order = torch.randperm(self.clients, generator=torch.Generator().manual_seed(turn))
        return order[: self.cohort].tolist()

    def lots(self, turn: int, client: int) -> Tensor:
        """Return one lot per local step ``(steps, lot)``."""
        if (turn, client) in self.given:
            return self.given[turn, client]
        rng = torch.Generator().manual_seed(turn * self.clients + client)
        return torch.stack([torch.randperm(SAMPLES, generator=rng)[:LOT] for _ in range(STEPS)])


@dataclass(frozen=True, kw_only=True)
class Job:
    """The federation: ``clients`` in all, ``rounds`` that are run, ``cohort`` per round.

    ``data``: "synthetic", or the name of a data set of 3x32x32 images. ``network``: a model of the catalogue, or that
    of this file.
    """

    clients: int
    rounds: int
    cohort: int = 50
    data: str = "synthetic"
    network: str = SMALL_CNN

    @cached_property
    def dataset(self) -> Dataset:
        """The pool of the clients and the test images."""
        if self.data != "synthetic":
            return load_dataset(self.data)
        rng = torch.Generator().manual_seed(0)
        images = {n: torch.rand(n, *SHAPE, generator=rng) for n in (_POOL, _TESTED)}
        labels = {n: torch.randint(CLASSES, (n,), generator=rng) for n in images}
        return Dataset(
            name="synthetic",
            train_images=images[_POOL],
            train_labels=labels[_POOL],
            test_images=images[_TESTED],
            test_labels=labels[_TESTED],
            classes=CLASSES,
        )

    @cached_property
    def parts(self) -> Tensor:
        """The samples of each client ``(clients, 50)``, as indices into the pool."""
        pool = len(self.dataset.train_labels)
        return torch.randint(pool, (self.clients, SAMPLES), generator=torch.Generator().manual_seed(1))

    @cached_property
    def task(self) -> Task:
        """The federation as the engine takes it."""
        data = self.dataset
        return Task(
            network=Network(model=self.network, shape=SHAPE, classes=CLASSES),
            images=data.train_images,
            labels=data.train_labels,
            parts=self.parts.unbind(),
            outsider_images=data.test_images,
            outsider_labels=data.test_labels,
            test_images=data.test_images[:_TESTED],
            test_labels=data.test_labels[:_TESTED],
        )

    @cached_property
    def plan(self) -> Plan:
        """The plan of all 1,500 rounds, or of more where more are run."""
        return Plan(
            sizes=self.task.sizes,
            rounds=max(ROUNDS, self.rounds),
            cohort=FixedSize(self.cohort),
            lot=FixedSize(LOT),
            algorithm=FedAvg(learning_rate=LEARNING_RATE, local_steps=STEPS),
            layout=self.task.network.layout,
        )

    @cached_property
    def draws(self) -> Draws:
        """Cohorts and lots for the ways that draw none themselves."""
        return Draws(clients=self.clients, cohort=self.cohort)

    def model(self) -> nn.Module:
        """Return a new model with the engine's initial weights."""
        model = build_model(self.network, shape=SHAPE, classes=CLASSES)
        with torch.no_grad():
            nn.utils.vector_to_parameters(self.task.initial(Streams(0)), model.parameters())
        return model

    def lot_data(self, draws: Draws, turn: int, client: int) -> tuple[Tensor, Tensor]:
        """Return images ``(steps * lot, 3, 32, 32)`` and labels of a client's lots in a round, lot by lot."""
        places = self.parts[client][draws.lots(turn, client).flatten()]
        return self.dataset.train_images[places], self.dataset.train_labels[places]

    def tested(self, model: nn.Module) -> tuple[float, float]:
        """Return loss and accuracy of a model on the test images."""
        images, labels = self.task.test_images, self.task.test_labels
        with torch.no_grad():
            logits = torch.cat([model(part) for part in images.split(250)])
        return float(cross_entropy(logits, labels)), float((logits.argmax(1) == labels).float().mean())


def local_steps(model: nn.Module, images: Tensor, labels: Tensor) -> None:
    """Take one step of SGD on each lot of a client; ``images`` holds one lot after the other."""
    optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE)
    for lot, classes in zip(images.split(LOT), labels.split(LOT), strict=True):
        optimizer.zero_grad()
        cross_entropy(model(lot), classes).backward()
        optimizer.step()


@cache
def _compiled_step(model: nn.Module) -> Callable[..., tuple[Tensor, ...]]:
    """The layers of a model after a step, from its layers, images and labels, as one compiled program."""
    names = [name for name, _ in model.named_parameters()]

    def loss(layers: tuple[Tensor, ...], images: Tensor, labels: Tensor) -> Tensor:
        return cross_entropy(functional_call(model, dict(zip(names, layers, strict=True)), (images,)), labels)

    def step(layers: tuple[Tensor, ...], images: Tensor, labels: Tensor) -> tuple[Tensor, ...]:
        slopes = grad(loss)(layers, images, labels)
        return tuple(layer - LEARNING_RATE * slope for layer, slope in zip(layers, slopes, strict=True))

    return torch.compile(step, fullgraph=True, dynamic=False)


def compiled_steps(model: nn.Module, images: Tensor, labels: Tensor) -> None:
    """Take the steps of ``local_steps`` by one compiled program each."""
    layers = tuple(layer.detach() for layer in model.parameters())
    for lot, classes in zip(images.split(LOT), labels.split(LOT), strict=True):
        layers = _compiled_step(model)(layers, lot, classes)
    with torch.no_grad():
        for own, stepped in zip(model.parameters(), layers, strict=True):
            own.copy_(stepped)


def plain_loop(
    job: Job, turn_over: TurnOver, *, draws: Draws | None = None, steps: Callable[..., None] = local_steps
) -> Tensor:
    """FedAvg in PyTorch alone, whose clients take ``steps``; returns the last model ``(d,)``."""
    draws, model, server = draws or job.draws, job.model(), job.model()
    for turn in range(job.rounds):
        sums = [torch.zeros_like(weights) for weights in server.parameters()]
        for client in draws.cohort_of(turn):
            with torch.no_grad():
                for own, sent in zip(model.parameters(), server.parameters(), strict=True):
                    own.copy_(sent)
            steps(model, *job.lot_data(draws, turn, client))
            for total, own in zip(sums, model.parameters(), strict=True):
                total.add_(own.detach())
        with torch.no_grad():
            for own, total in zip(server.parameters(), sums, strict=True):
                own.copy_(total / job.cohort)
        if (turn + 1) % EVERY == 0:
            job.tested(server)
        turn_over()
    return nn.utils.parameters_to_vector(server.parameters()).detach()
