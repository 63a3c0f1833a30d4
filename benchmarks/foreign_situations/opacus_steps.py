"""Situations of Opacus trainings: lots, clipping, noise, accounting, and models of many kinds."""

from collections.abc import Callable
from functools import partial
from typing import Any

import opacus_runs
import torch
from opacus import PrivacyEngine
from opacus.layers import DPLSTM, DPMultiheadAttention
from opacus.schedulers import ExponentialGradClip, ExponentialNoise
from opacus.utils.batch_memory_manager import BatchMemoryManager
from opacus_parts import (
    CLASSES,
    DATA,
    FEATURES,
    LOT,
    RECORDS,
    Train,
    broken,
    built,
    clipping,
    network,
    noising,
    private,
    right,
    shortened,
    steps,
    tensors_of,
    train,
)
from opacus_runs import BROKEN, CORRECT, LOSS, HalfTheNoiseOfGhostClipping
from torch import nn
from torch.utils.data import DataLoader, RandomSampler, Subset, TensorDataset, WeightedRandomSampler


def train_on_the_plain_loader(model: Any, optimizer: Any, loader: Any, engine: Any) -> None:
    plain = DataLoader(loader.dataset, batch_size=LOT, shuffle=True)
    for _ in range(2):
        list(steps(model, optimizer, plain))


def with_replacement(data: Any) -> Any:
    sampler = RandomSampler(data, replacement=True, num_samples=len(data))
    return DataLoader(data, batch_size=LOT, sampler=sampler)


def balanced(data: Any) -> Any:
    """Every class equally often."""
    labels = tensors_of(data)[1]
    weights = 1 / torch.bincount(labels, minlength=CLASSES).clamp_min(1)[labels]
    return DataLoader(data, batch_size=LOT, sampler=WeightedRandomSampler(weights, len(data)))


def sorted_by_length(data: Any) -> Any:
    order = tensors_of(data)[0].norm(dim=1).argsort().tolist()
    lots = [order[start : start + LOT] for start in range(0, len(order), LOT)]
    return DataLoader(data, batch_sampler=lots)


def weighted(data: Any) -> Any:
    """``make_private`` takes the rate from this sampler's 60 draws, and replaces it."""
    return DataLoader(data, batch_size=LOT, sampler=WeightedRandomSampler(torch.ones(len(data)), 60))


def train_one_lot_twice(model: Any, optimizer: Any, loader: Any, engine: Any) -> None:
    for batch in loader:
        list(steps(model, optimizer, [batch, batch]))


def one_epoch(model: Any, optimizer: Any, loader: Any, engine: Any) -> None:
    list(steps(model, optimizer, loader))


def skip_empty(model: Any, optimizer: Any, loader: Any, engine: Any) -> None:
    """A lot without records makes no step."""
    list(steps(model, optimizer, (batch for batch in loader if len(batch[0]))))


def train_in_parts(*parts: Any, most: int = 7) -> None:
    """``parts`` as in ``train``; a lot comes in physical batches of seven records."""
    model, optimizer, loader = parts[0], parts[1], parts[-2]
    loss = parts[2] if len(parts) == 5 else LOSS
    with BatchMemoryManager(data_loader=loader, max_physical_batch_size=most, optimizer=optimizer) as batches:
        list(steps(model, optimizer, batches, loss=loss))


LOTS = [
    broken("shuffled lots of one size, accounted as Poisson", source="opacus#80", build=built(poisson_sampling=False)),
    broken(
        "the plain loader in place of the private one", source="Opacus, make_private", train=train_on_the_plain_loader
    ),
    broken(
        "lots drawn with replacement",
        source="own",
        build=built(poisson_sampling=False, loader=with_replacement),
    ),
    broken(
        "a sampler that balances classes",
        source="opacus#813",
        build=built(poisson_sampling=False, loader=balanced),
    ),
    broken(
        "lots of records of like length",
        source="own",
        build=built(poisson_sampling=False, loader=sorted_by_length),
    ),
    broken(
        "two lots for one step by hand",
        source="opacus#320",
        train=BROKEN["virtual steps by hand"][1],
    ),
    broken("empty lots make no step", source="FL4Health#114", build=built(lot=2), train=skip_empty),
    broken("each lot in two steps, accounted as two lots", source="own", train=train_one_lot_twice),
    right("plain", source="own"),
    right("a weighted sampler that make_private replaces", source="opacus#813", build=built(loader=weighted)),
    right("physical batches of seven records", source="opacus#320", train=train_in_parts),
    right("a worker process", source="Opacus tutorials", build=built(workers=1)),
    right("lots of two records, often empty", source="opacus#522", build=built(lot=2), train=one_epoch),
    right("lots of all records", source="own", build=built(lot=RECORDS)),
]


def means_of_four(rows: torch.Tensor, norm: float) -> torch.Tensor:
    return shortened(torch.stack([part.mean(0) for part in rows.split(4)]), norm).sum(0)


def by_tensor(rows: torch.Tensor, norm: float) -> torch.Tensor:
    sizes = [FEATURES * 16, 16, 16 * CLASSES, CLASSES]
    return torch.cat([shortened(part, norm) for part in rows.split(sizes, dim=1)], dim=1).sum(0)


def by_matrices(rows: torch.Tensor, norm: float) -> torch.Tensor:
    """The norm leaves the biases out."""
    lengths = torch.cat([rows[:, :320], rows[:, 336:400]], dim=1).norm(dim=1, keepdim=True)
    return (rows * (norm / lengths.clamp_min(1e-9)).clamp(max=1)).sum(0)


CLIPS = [
    broken("no clip", source="own", build=BROKEN["no clip"][0]),
    broken("microbatches of four, their means clipped", source="tensorflow/privacy#81", build=clipping(means_of_four)),
    broken(
        "the mean of the lot is clipped",
        source="tensorflow/privacy#135",
        build=clipping(lambda rows, norm: shortened(rows.mean(0)[None], norm)[0]),
    ),
    broken("each tensor clipped to the whole norm", source="own", build=clipping(by_tensor)),
    broken("the norm leaves biases out", source="own", build=clipping(by_matrices)),
    broken(
        "each number clamped to the norm",
        source="torch.nn.utils.clip_grad_value_",
        build=clipping(lambda rows, norm: rows.clamp(-norm, norm).sum(0)),
    ),
    broken(
        "the gradient holds the plain mean too",
        source="dayu11/Differentially-Private-Deep-Learning#7",
        build=clipping(lambda rows, norm: shortened(rows, norm).sum(0) + rows.mean(0)),
    ),
    broken("ghost clipping without its clip", source="own", build=opacus_runs.build_ghost_without_clip),
    right(
        "each row scaled to the norm (automatic clipping)",
        source="Bu et al. 2023",
        build=clipping(lambda rows, norm: (rows * norm / (rows.norm(dim=1, keepdim=True) + 0.01)).sum(0)),
    ),
    right(
        "clipped twice",
        source="own",
        build=clipping(lambda rows, norm: shortened(shortened(rows, norm), norm).sum(0)),
    ),
    right("clipping per layer", source="Opacus, make_private", build=CORRECT["per layer"][0]),
    right("ghost clipping", source="Opacus, make_private", build=built(grad_sample_mode="ghost")),
    right(
        "ghost clipping in physical batches",
        source="opacus#707",
        build=built(grad_sample_mode="ghost"),
        train=train_in_parts,
    ),
    right(
        "adaptive clipping with a noised count",
        source="Andrew et al. 2021",
        build=built(
            clipping="adaptive",
            target_unclipped_quantile=0.5,
            clipbound_learning_rate=0.2,
            max_clipbound=8.0,
            min_clipbound=0.1,
            unclipped_num_std=2.0,
        ),
    ),
    right("a clip that no gradient reaches", source="own", build=built(max_grad_norm=1e3)),
    right("a clip of a thousandth", source="own", build=built(max_grad_norm=1e-3)),
]


def in_four(noise: torch.Tensor, share: float) -> torch.Tensor:
    """The noise of four devices, each with this share of the standard deviation, of the same size as ``noise``."""
    return sum((share * torch.randn_like(noise) for _ in range(4)), torch.zeros_like(noise))


def the_same_in_pairs() -> Callable[..., Any]:
    """Each draw serves two steps."""

    def build(data: Any) -> Any:
        kept: dict[tuple[int, ...], torch.Tensor] = {}

        def rule(noise: torch.Tensor, number: int) -> torch.Tensor:
            if number % 2 == 0:
                kept[tuple(noise.shape)] = noise
            return kept[tuple(noise.shape)]

        return noising(rule)(data)

    return build


def one_seed_for_all_tensors(noise: torch.Tensor, number: int) -> torch.Tensor:
    return torch.randn(noise.shape, generator=torch.Generator().manual_seed(number))


def with_generator(data: Any) -> Any:
    return private(data, noise_generator=torch.Generator().manual_seed(0))


def seeded_once(model: Any, optimizer: Any, loader: Any, engine: Any) -> None:
    torch.manual_seed(0)
    train(model, optimizer, loader, engine)


def half_of_ghost(data: Any) -> Any:
    made = private(data, grad_sample_mode="ghost")
    made[1].__class__ = HalfTheNoiseOfGhostClipping
    return made


NOISES = [
    broken("half of the noise", source="own", build=BROKEN["half of the noise"][0]),
    broken("half of the noise of ghost clipping", source="own", build=half_of_ghost),
    broken("noise divided by the lot twice", source="opacus#753", build=noising(lambda noise, _: noise / LOT)),
    broken(
        "noise times the learning rate",
        source="own",
        build=noising(lambda noise, _: 0.1 * noise),
    ),
    broken(
        "four devices, each a quarter of the noise", source="optax#148", build=noising(lambda n, _: in_four(n, 0.25))
    ),
    broken("one seed for all tensors", source="es-at-scale#46", build=noising(one_seed_for_all_tensors)),
    broken("one seed for every step", source="own", train=BROKEN["a seed per step"][1]),
    broken("each draw used in two steps", source="own", build=the_same_in_pairs()),
    broken("noise of a generator with a fixed seed", source="Opacus, noise_generator", build=with_generator),
    broken("torch.manual_seed(0) in the training", source="fedbiomed#794", train=seeded_once),
    broken("noise on matrices alone", source="own", build=BROKEN["noise on matrices alone"][0]),
    broken(
        "uniform noise of the same size",
        source="own",
        build=noising(lambda noise, _: (torch.rand_like(noise) - 0.5) * 12**0.5),
    ),
    right("four devices, each half of the noise", source="optax#148", build=noising(lambda n, _: in_four(n, 0.5))),
    right("noise of the sum on the mean, far too much", source="jax_privacy#383", build=noising(lambda n, _: 3 * n)),
    right("noise turned by a sign", source="own", build=noising(lambda noise, _: -noise)),
]


def without_accountant(model: Any, optimizer: Any, loader: Any, engine: Any) -> None:
    optimizer.attach_step_hook(lambda _: None)


def at_the_rate_of_parts(model: Any, optimizer: Any, loader: Any, engine: Any) -> None:
    optimizer.attach_step_hook(engine.accountant.get_optimizer_hook_fn(sample_rate=6 / RECORDS))


def history_restarts(model: Any, optimizer: Any, loader: Any, engine: Any) -> None:
    for _ in range(2):
        engine.accountant.history.clear()
        list(steps(model, optimizer, loader))


def noise_decays_unseen(data: Any) -> Any:
    return noising(lambda noise, number: noise * 0.9**number)(data)


def earlier_history(model: Any, optimizer: Any, loader: Any, engine: Any) -> None:
    engine.accountant.history.append((1.0, 0.2, 5))


def pays_for_more(model: Any, optimizer: Any, loader: Any, engine: Any) -> None:
    list(steps(model, optimizer, loader))
    for _ in range(3):
        engine.accountant.step(noise_multiplier=1.0, sample_rate=0.2)


def in_rounds(*, again: bool) -> Train:
    """``make_private`` in each of two rounds, with a new engine or the first one."""

    def train_in_rounds(model: Any, optimizer: Any, loader: Any, engine: Any) -> None:
        list(steps(model, optimizer, loader))
        plain = model.to_standard_module()
        used = PrivacyEngine() if again else engine
        parts = used.make_private(
            module=plain,
            optimizer=torch.optim.SGD(plain.parameters(), lr=0.1),
            data_loader=DataLoader(loader.dataset, batch_size=LOT),
            noise_multiplier=1.0,
            max_grad_norm=1.0,
        )
        list(steps(*parts))

    return train_in_rounds


def with_scheduler(kind: Any, **options: Any) -> Train:
    def train_with(model: Any, optimizer: Any, loader: Any, engine: Any) -> None:
        scheduler = kind(optimizer, **options)
        for _ in range(2):
            for _ in steps(model, optimizer, loader):
                scheduler.step()

    return train_with


ACCOUNTS = [
    broken("no accountant", source="own", build=built(after=without_accountant)),
    broken("the rate of physical batches is accounted", source="opacus#219", build=built(after=at_the_rate_of_parts)),
    broken("the history starts again in each epoch", source="opacus#254", train=history_restarts),
    broken("noise that decays, accounted as constant", source="own", build=noise_decays_unseen),
    broken("an epsilon of 1 is stated", source="own", epsilon=1.0),
    broken("the epsilon of one epoch is stated for two", source="own", epsilon=3.5),
    broken("a new engine in each round", source="opacus#688", train=in_rounds(again=True)),
    right("one engine, make_private in each round", source="opacus#688", train=in_rounds(again=False)),
    right("two engines, their composed epsilon stated", source="opacus#688", train=in_rounds(again=True), epsilon=12.0),
    right("an epsilon of 50 is stated", source="own", epsilon=50.0),
    right("a training that goes on from a checkpoint", source="opacus#254", build=built(after=earlier_history)),
    right("more steps accounted than made", source="own", train=pays_for_more),
    right(
        "noise that decays, as accounted",
        source="Opacus, ExponentialNoise",
        train=with_scheduler(ExponentialNoise, gamma=0.9),
    ),
    right(
        "a clip that decays", source="Opacus, ExponentialGradClip", train=with_scheduler(ExponentialGradClip, gamma=0.9)
    ),
    right("the PRV accountant", source="Opacus, PRVAccountant", build=built(accountant="prv")),
    right("a learning rate by plan", source="own", train=with_scheduler(torch.optim.lr_scheduler.StepLR, step_size=3)),
]


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cells, self.last = DPLSTM(5, 6, batch_first=True), nn.Linear(6, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.cells(x.reshape(-1, 4, 5))[0][:, -1])


class Attentive(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.heads, self.last = DPMultiheadAttention(4, 2, batch_first=True), nn.Linear(FEATURES, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.reshape(-1, 5, 4)
        return self.last(self.heads(x, x, x, need_weights=False)[0].flatten(1))


class Shared(nn.Module):
    """One layer that is used twice."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.last = nn.Linear(FEATURES, FEATURES), nn.Linear(FEATURES, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.inner(self.inner(x).tanh()).tanh())


def convolutions() -> nn.Sequential:
    layers = nn.Unflatten(1, (1, 4, 5)), nn.Conv2d(1, 4, 3, padding=1), nn.GroupNorm(2, 4), nn.ReLU(), nn.Flatten()
    return nn.Sequential(*layers, nn.Linear(80, CLASSES))


DOUBLE = TensorDataset(DATA.tensors[0].double(), DATA.tensors[1])


def summed(found: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return nn.functional.cross_entropy(found, y, reduction="sum")


def train_summed(model: Any, optimizer: Any, loader: Any, engine: Any) -> None:
    list(steps(model, optimizer, loader, loss=summed))


MODELS = [
    right("an LSTM of DP layers", source="Opacus tutorials", build=built(model=Recurrent)),
    right("attention of DP layers", source="Opacus tutorials", build=built(model=Attentive)),
    right("convolutions with group normalisation", source="Opacus tutorials", build=built(model=convolutions)),
    right("a layer that is used twice", source="opacus#219", build=built(model=Shared)),
    right("double precision", source="own", build=built(model=lambda: network().double()), data=DOUBLE),
    right("gradients by functorch", source="Opacus, make_private", build=built(grad_sample_mode="functorch")),
    right("gradients by expanded weights", source="Opacus, make_private", build=built(grad_sample_mode="ew")),
    right(
        "a loss that is summed", source="Opacus, make_private", build=built(loss_reduction="sum"), train=train_summed
    ),
    right(
        "Adam with weight decay",
        source="own",
        build=built(optimizer=partial(torch.optim.AdamW, lr=0.01, weight_decay=0.1)),
    ),
    right(
        "momentum of Nesterov",
        source="own",
        build=built(optimizer=partial(torch.optim.SGD, lr=0.1, momentum=0.9, nesterov=True)),
    ),
    right("ten times the noise", source="own", build=built(noise_multiplier=10.0)),
    right("a small noise multiplier", source="own", build=built(noise_multiplier=0.4)),
    right("a part of a larger data set", source="own", build=lambda data: private(Subset(data, range(96)))),
]


ROWS = [*LOTS, *CLIPS, *NOISES, *ACCOUNTS, *MODELS]
