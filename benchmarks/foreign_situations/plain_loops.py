"""Situations of loops in plain PyTorch, which run on neighbouring data too (``loop_system.Loop``)."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import torch
from fedassay.adapters.loop_system import Loop
from situation import Situation, named
from torch import Tensor, nn
from torch.utils.data import TensorDataset

RECORDS, FEATURES, RATE, STEPS = 80, 6, 0.2, 12
SIZES = (2 * FEATURES, 2)
Rule = Callable[..., Any]


def poisson(rng: np.random.Generator, records: int) -> Iterator[Any]:
    while True:
        yield np.flatnonzero(rng.random(records) < RATE)


def epochs(rng: np.random.Generator, records: int) -> Iterator[Any]:
    """Shuffled lots of one size."""
    while True:
        yield from np.array_split(rng.permutation(records), round(1 / RATE))


def windows(rng: np.random.Generator, records: int) -> Iterator[Any]:
    """Neighbouring records, from a random place on."""
    while True:
        start = rng.integers(records)
        yield (start + np.arange(round(RATE * RECORDS))) % records


def twice_as_often(rng: np.random.Generator, records: int) -> Iterator[Any]:
    while True:
        yield np.flatnonzero(rng.random(records) < 2 * RATE)


def shortened(rows: Tensor, norm: float) -> Tensor:
    return rows * (norm / rows.norm(dim=1, keepdim=True).clamp_min(1e-9)).clamp(max=1)


def clipped_sum(rows: Tensor, norm: float) -> Tensor:
    return shortened(rows, norm).sum(0)


def gaussian(total: Tensor, scale: float, draw: Callable[[Any], Tensor], step: int) -> Tensor:
    return scale * draw(total.shape).to(total)


@dataclass(frozen=True, kw_only=True)
class DpSgd:
    """DP-SGD of a linear model by hand, of which each situation changes a part.

    Args:
        lots: of a generator and the number of records, indices of each lot.
        total: ``(rows (n, d), clip norm)`` -> the sum ``(d,)`` that is noised.
        noise: ``(sum, standard deviation, draw, step)`` -> the noise.
        before, after: ``(model, sum, step)``, before and after each step of the optimizer.
        stated: of ``Loop``.
        features: of all records -> those that the loop trains on.
        divisor: of the number of records, between the noised sum and the gradient.
        parts: records of a lot that are clipped at a time.
        seeded: whether the loop seeds its draws itself.
        schedule: noise multiplier and clip norm of a step, which the loop states too.
        stop: ``(loss, step)`` ends the loop.
        optimizer: of the model's parameters; None moves the parameters by hand.
    """

    lots: Rule = poisson
    total: Rule = clipped_sum
    noise: Rule = gaussian
    before: Rule = lambda model, total, step: None
    after: Rule = lambda model, total, step: None
    stated: dict[str, Any] = field(default_factory=dict)
    schedule: Callable[[int], tuple[float, float]] = lambda step: (1.0, 1.0)
    stop: Callable[[float, int], bool] = lambda loss, step: False
    model: Callable[[], nn.Module] = lambda: nn.Linear(FEATURES, 2)
    optimizer: Callable[..., Any] | None = lambda tensors: torch.optim.SGD(tensors, lr=0.1)
    dtype: torch.dtype = torch.float32
    features: Callable[[Tensor], Tensor] = lambda x: x
    divisor: Callable[[int], float] = lambda records: RATE * RECORDS
    parts: int = RECORDS
    seeded: bool = False

    def system(self) -> Loop:
        """Return the loop as a system on records of its own."""
        x = torch.from_numpy(np.random.default_rng(0).standard_normal((RECORDS, FEATURES))).to(self.dtype)
        stated = {"noise_multiplier": 1.0, "clip_norm": 1.0, "rate": RATE, "steps": STEPS, "delta": 1e-5}
        return Loop(self, TensorDataset(x), **(stated | self.stated))

    def __call__(self, data: Any, watch: Any) -> None:
        rng = np.random.default_rng(0 if self.seeded else torch.initial_seed())
        x, model = self.features(data.tensors[0]), self.model().to(self.dtype)
        watch = watch(model)
        optimizer = None if self.optimizer is None else self.optimizer(model.parameters())
        linear = next(one for one in reversed(list(model.modules())) if isinstance(one, nn.Linear))

        def draw(shape: Any) -> Tensor:
            return torch.from_numpy(rng.standard_normal(tuple(shape)))

        with watch:
            if optimizer is not None:
                watch.attach(optimizer)
            for step, lot in zip(range(STEPS), self.lots(rng, len(data)), strict=False):
                multiplier, norm = self.schedule(step)
                total, errors = torch.zeros(sum(SIZES), dtype=self.dtype), torch.zeros(0, 2)
                for part in np.array_split(lot, max(1, math.ceil(len(lot) / self.parts))):
                    errors = (model(x[part]) - 3).detach()
                    rows = torch.cat([(errors[:, :, None] * x[part][:, None, :]).flatten(1), errors], dim=1)
                    watch.lot(part, rows)
                    total += self.total(rows, norm)
                noised = total + self.noise(total, multiplier * norm, draw, step)
                watch.release(total, noised, noise_multiplier=multiplier, clip_norm=norm)
                for parameter, part in zip(linear.parameters(), noised.split(SIZES), strict=True):
                    parameter.grad = part.reshape(parameter.shape) / self.divisor(len(data))
                self.before(linear, total, step)
                self._move(linear, optimizer)
                self.after(model, total, step)
                if self.stop(float(errors.square().mean()), step):
                    break

    def _move(self, linear: nn.Module, optimizer: Any) -> None:
        if optimizer is not None:
            optimizer.step()
            return
        with torch.no_grad():
            for one in linear.parameters():
                one -= 0.1 * one.grad


def row(name: str, right: bool, source: str, **changes: Any) -> Situation:
    """Return the situation of a loop with these changes."""
    return Situation(
        name=name,
        kind="loop",
        right=right,
        source=source,
        make=lambda: DpSgd(**changes).system(),
    )


right, broken = (partial(row, right=one) for one in (True, False))


def by_microbatches(rows: Tensor, norm: float) -> Tensor:
    means = [part.mean(0) for part in rows.split(4) if len(part)]
    return shortened(torch.stack(means), norm).sum(0) if means else rows.sum(0)


def of_the_mean(rows: Tensor, norm: float) -> Tensor:
    return shortened(rows.sum(0)[None] / max(1, len(rows)), norm)[0]


def by_tensor(rows: Tensor, norm: float) -> Tensor:
    return torch.cat([shortened(part, norm) for part in rows.split(SIZES, dim=1)], dim=1).sum(0)


def mostly(rows: Tensor, norm: float) -> Tensor:
    return torch.cat([shortened(rows[:-1], norm), rows[-1:]]).sum(0)


def shows_the_mean(model: Any, total: Tensor, step: int) -> None:
    """A coordinate of the weights shows the mean sum."""
    with torch.no_grad():
        next(model.parameters())[0, 0] = float(total.mean())


def padded(rows: Tensor, norm: float) -> Tensor:
    return clipped_sum(rows[torch.arange(32) % max(1, len(rows))], norm) if len(rows) else rows.sum(0)


def in_devices(share: float) -> Rule:
    return lambda total, scale, draw, step: sum(share * scale * draw(total.shape).to(total) for _ in range(4))


def held_noise() -> Rule:
    kept: list[Tensor] = []

    def noise(total: Tensor, scale: float, draw: Any, step: int) -> Tensor:
        if not kept:
            kept.append(draw(total.shape).to(total))
        return scale * kept[0]

    return noise


def less(factor: float) -> Rule:
    return lambda total, scale, draw, step: factor * gaussian(total, scale, draw, step)


def uniform(total: Tensor, scale: float, draw: Any, step: int) -> Tensor:
    return scale * math.sqrt(3) * (2 * torch.special.ndtr(draw(total.shape)) - 1).to(total)


def anticorrelated() -> Rule:
    """Each draw less the last one, as in DP-FTRL, accounted as independent noise of a larger variance."""
    last = [torch.zeros(sum(SIZES))]

    def noise(total: Tensor, scale: float, draw: Any, step: int) -> Tensor:
        fresh = scale * draw(total.shape).to(total)
        found, last[0] = fresh - last[0].to(total), fresh
        return found

    return noise


def on_a_grid(total: Tensor, scale: float, draw: Any, step: int) -> Tensor:
    return (64 * gaussian(total, scale, draw, step)).round() / 64


def rounded(rows: Tensor, norm: float) -> Tensor:
    """The sum of rows that are clipped a little shorter and rounded to a grid of 1/64."""
    return (64 * shortened(rows, norm - 0.06)).round().sum(0) / 64


def adds_the_sum(model: Any, total: Tensor, step: int) -> None:
    model.weight.grad += 0.1 * total[:12].reshape(2, 6)


def is_the_sum(model: Any, total: Tensor, step: int) -> None:
    model.weight.grad = total[:12].reshape(2, 6).clone() / 16


def leaks(model: Any, total: Tensor, step: int) -> None:
    with torch.no_grad():
        next(model.parameters()).add_(0.01 * total[:12].reshape(2, 6))


def average(model: Any, total: Tensor, step: int) -> None:
    """The noised models are averaged in place: a function of noised numbers."""
    held = model.__dict__.setdefault("kept", [one.detach().clone() for one in model.parameters()])
    with torch.no_grad():
        for one, old in zip(model.parameters(), held, strict=True):
            one.mul_(0.5).add_(0.5 * old)


def clips_the_update(model: Any, total: Tensor, step: int) -> None:
    torch.nn.utils.clip_grad_norm_(model.parameters(), 0.05)


def with_batch_norm() -> nn.Module:
    return nn.Sequential(nn.BatchNorm1d(FEATURES, affine=False), nn.Linear(FEATURES, 2))


def with_frozen_layer() -> nn.Module:
    first = nn.Linear(FEATURES, FEATURES).requires_grad_(False)
    return nn.Sequential(first, nn.Linear(FEATURES, 2))


def rate_of_the_loss(model: Any, total: Tensor, step: int) -> None:
    """The step gets longer with the length of the plain sum."""
    for one in model.parameters():
        one.grad *= float(total.norm())


def decaying(start: float) -> Callable[[int], tuple[float, float]]:
    return lambda step: (start * 0.95**step, 1.0)


def shrinking(step: int) -> tuple[float, float]:
    return 1.0, 0.9**step


ROWS = named(
    [
        broken("half of the noise", source="own", noise=less(0.5)),
        broken("noise times the learning rate", source="own", noise=less(0.1)),
        broken("noise without the clip norm", source="own", noise=less(1 / 3), schedule=lambda step: (1.0, 3.0)),
        broken("four devices, each a quarter of the noise", source="optax#148", noise=in_devices(0.25)),
        broken("one draw for all steps", source="own", noise=held_noise()),
        broken("uniform noise of the same size", source="own", noise=uniform),
        broken("noise that is taken back in the next step", source="own", noise=anticorrelated()),
        broken(
            "noise that decays, stated as constant",
            source="own",
            noise=lambda total, scale, draw, step: 0.93**step * gaussian(total, scale, draw, step),
        ),
        broken("noise that decays, accounted at its start", source="own", schedule=decaying(1.0)),
        broken("no clip", source="own", total=lambda rows, norm: rows.sum(0)),
        broken("microbatches of four, their means clipped", source="tensorflow/privacy#81", total=by_microbatches),
        broken("the mean of the lot is clipped", source="tensorflow/privacy#135", total=of_the_mean),
        broken("each tensor clipped to the whole norm", source="own", total=by_tensor),
        broken("a clip that misses the last row", source="own", total=mostly),
        broken("a weight holds the mean of the plain sum", source="own", after=shows_the_mean),
        broken("features less their mean", source="own", features=lambda x: x - x.mean(0)),
        broken("features by their largest number", source="own", features=lambda x: x / x.abs().max()),
        broken(
            "updates divided by int(n * rate), and n not public",
            source="opacus#819",
            divisor=lambda records: int(records * RATE),
            stated={"adjacency": "add_remove"},
        ),
        broken("a seed of its own", source="own", seeded=True),
        broken("lots padded by their own records", source="own", total=padded),
        broken("shuffled lots of one size", source="tensorflow/privacy#483", lots=epochs),
        broken("lots of neighbouring records", source="own", lots=windows),
        broken("twice the accounted rate", source="own", lots=twice_as_often),
        broken("half of the steps accounted", source="own", stated={"steps": STEPS // 2}),
        broken("batch normalisation", source="Opacus FAQ", model=with_batch_norm),
        broken("the gradient holds the plain sum too", source="own", before=adds_the_sum),
        broken("the gradient is the plain sum", source="own", before=is_the_sum),
        broken("the weights move by the plain sum", source="own", after=leaks),
        broken("a step size that follows the plain sum", source="own", before=rate_of_the_loss),
        broken("early stopping on the training loss", source="own", stop=lambda loss, step: step > 3 and loss < 8.5),
        right("plain", source="own"),
        right("four devices, each half of the noise", source="optax#148", noise=in_devices(0.5)),
        right("three times the noise", source="jax_privacy#383", noise=less(3.0)),
        right("noise and sums on a grid", source="Kairouz et al. 2021", noise=on_a_grid, total=rounded),
        right("noise that decays, accounted at its smallest", source="own", schedule=decaying(2.0)),
        right("a clip that shrinks, as stated", source="own", schedule=shrinking),
        right(
            "each row scaled to the norm (automatic clipping)",
            source="Bu et al. 2023",
            total=lambda rows, norm: (rows * norm / (rows.norm(dim=1, keepdim=True) + 0.01)).sum(0),
        ),
        right("updates divided by int(n * rate), n public", source="own", divisor=lambda records: int(records * RATE)),
        right("a constant divisor, and n not public", source="own", stated={"adjacency": "add_remove"}),
        right("lots that are clipped in parts of seven", source="own", parts=7),
        right("weight decay", source="own", optimizer=partial(torch.optim.SGD, lr=0.1, weight_decay=0.1)),
        right("Adam", source="own", optimizer=partial(torch.optim.Adam, lr=0.01)),
        right("momentum", source="own", optimizer=partial(torch.optim.SGD, lr=0.1, momentum=0.9)),
        right("updates by hand", source="own", optimizer=None),
        right("double precision", source="own", dtype=torch.float64),
        right("a frozen layer", source="own", model=with_frozen_layer),
        right("an average of the noised models", source="De et al. 2022", after=average),
        right("noised gradients are shortened", source="own", before=clips_the_update),
        right("more steps accounted than made", source="own", stated={"steps": 2 * STEPS}),
        right("a public number of steps", source="own", stop=lambda loss, step: step == 7),
    ]
)
