"""Small Opacus trainings: data, models, and what the situations change of them."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import opacus_runs
import torch
from fedassay.adapters.opacus import Training
from opacus import PrivacyEngine
from opacus.optimizers import DPOptimizer
from situation import Situation
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

RECORDS, FEATURES, CLASSES, LOT = 120, 20, 4, 24
DATA = TensorDataset(*(one[:RECORDS] for one in opacus_runs.records().tensors))
PUBLIC = tuple(one[RECORDS:] for one in opacus_runs.records().tensors)
"""Records of the same distribution that no training set holds: ``(120, 20)`` and ``(120,)``."""
Built = tuple[Any, ...]
Train = Callable[..., None]


def network(*first: nn.Module, hidden: int = 16) -> nn.Sequential:
    """Return a perceptron with one hidden layer, after the modules ``first``."""
    return nn.Sequential(*first, nn.Linear(FEATURES, hidden), nn.ReLU(), nn.Linear(hidden, CLASSES))


def private(
    data: Any,
    *,
    model: Callable[[], nn.Module] = network,
    optimizer: Callable[..., Any] = lambda tensors: torch.optim.SGD(tensors, lr=0.1),
    loader: Callable[[Any], Any] | None = None,
    lot: int = LOT,
    workers: int = 0,
    accountant: str = "rdp",
    after: Callable[..., None] = lambda *_: None,
    **options: Any,
) -> Built:
    """Make a training private; ``after(model, optimizer, loader, engine)`` changes what was made."""
    made, engine = model(), PrivacyEngine(accountant=accountant)
    batches = DataLoader(data, batch_size=lot, num_workers=workers) if loader is None else loader(data)
    stated = {"noise_multiplier": 1.0, "max_grad_norm": 1.0} | options
    parts = engine.make_private(module=made, optimizer=optimizer(made.parameters()), data_loader=batches, **stated)
    after(parts[0], parts[1], parts[-1], engine)
    return (*parts, engine)


def built(**options: Any) -> Callable[[Any], Built]:
    """Return a function that builds with these options."""
    return lambda data: private(data, **options)


def steps(model: Any, optimizer: Any, batches: Any, *, loss: Any = opacus_runs.LOSS) -> Iterator[tuple[Any, ...]]:
    """Step on each batch; yields number, batch and loss."""
    return opacus_runs.steps(model, optimizer, batches, loss=loss)


def train(*parts: Any) -> None:
    """Train for two epochs, which are ten steps."""
    opacus_runs.train(*parts)


def on_batches(change: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]) -> Callable[..., None]:
    """Return a training whose batches are changed."""

    def train_on(model: Any, optimizer: Any, loader: Any, engine: Any) -> None:
        for _ in range(2):
            list(steps(model, optimizer, (change(x, y) if len(x) else (x, y) for x, y in loader)))

    return train_on


def with_class(kind: type) -> Callable[[Any], Built]:
    """Return a function that builds with another class of optimizer."""

    def after(model: Any, optimizer: Any, loader: Any, engine: Any) -> None:
        optimizer.__class__ = kind

    return built(after=after)


def clipping(rule: Callable[[Tensor, float], Tensor]) -> Callable[[Any], Built]:
    """Return a function that builds with a sum of one's own: ``rule(rows (n, d), clip norm)`` gives ``(d,)``."""

    class OwnSum(DPOptimizer):
        def clip_and_accumulate(self) -> None:
            rows = torch.cat([one.flatten(1) for one in self.grad_samples], dim=1)
            total = rule(rows, self.max_grad_norm) if len(rows) else torch.zeros(rows.shape[1])
            parts = torch.split(total, [one.numel() for one in self.params])
            for one, part in zip(self.params, parts, strict=True):
                shaped = part.reshape(one.shape)
                one.summed_grad = shaped if one.summed_grad is None else one.summed_grad + shaped

    return with_class(OwnSum)


def noising(rule: Callable[[Tensor, int], Tensor]) -> Callable[[Any], Built]:
    """Return a function that builds with noise of one's own: ``rule(noise, number)`` replaces the noise of a tensor,
    whose standard deviation is the stated one, in the call of this number.
    """

    class OwnNoise(DPOptimizer):
        def add_noise(self) -> None:
            super().add_noise()
            number = self.__dict__["calls"] = self.__dict__.get("calls", -1) + 1
            for one in self.params:
                one.grad = one.summed_grad + rule(one.grad - one.summed_grad, number).reshape(one.shape)

    return with_class(OwnNoise)


def shortened(rows: Tensor, norm: float) -> Tensor:
    """Clip rows ``(n, d)`` to a norm."""
    return rows * (norm / rows.norm(dim=1, keepdim=True).clamp_min(1e-9)).clamp(max=1)


def accuracy(model: Any, data: Any) -> float:
    """Return the share of right answers; ``data``: two tensors, or a data set that holds them."""
    x, y = data if isinstance(data, tuple) else data.tensors
    with torch.no_grad():
        return float((model(x).argmax(1) == y).float().mean())


def loss_of(model: Any, data: Any) -> float:
    """Return the mean loss, as ``accuracy``."""
    x, y = data if isinstance(data, tuple) else data.tensors
    with torch.no_grad():
        return float(opacus_runs.LOSS(model(x), y))


class Changed(TensorDataset):
    """Features of one's own in the place of a data set's; reads it, as a data set with a transform does."""

    def __init__(self, data: Any, x: Tensor, y: Tensor | None = None) -> None:
        super().__init__(x, tensors_of(data)[1] if y is None else y)
        self.data = data

    def __getitem__(self, index: int) -> Any:
        self.data[index]
        return super().__getitem__(index)


def tensors_of(data: Any) -> tuple[Tensor, Tensor]:
    """Read all records: ``(n, 20)`` and ``(n,)``."""
    held = [data[index] for index in range(len(data))]
    return torch.stack([x for x, _ in held]), torch.stack([y for _, y in held])


def row(
    name: str, right: bool, source: str, build: Any = private, train: Train = train, data: Any = DATA, **options: Any
) -> Situation:
    """Return the situation of a training; ``options`` of ``Training``."""
    make = partial(Training, build, train, data, **({"delta": 1e-5} | options))
    return Situation(name=name, kind="Opacus", right=right, source=source, make=make)


right, broken = (partial(row, right=one) for one in (True, False))
