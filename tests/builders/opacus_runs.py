"""Opacus trainings of a small network on made-up records: correct ones, and ways of breaking them."""

import torch
from opacus import PrivacyEngine
from opacus.optimizers import DPOptimizer, DPOptimizerFastGradientClipping
from opacus.utils.batch_memory_manager import BatchMemoryManager
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

RECORDS, EPOCHS = 240, 2
LOSS = nn.CrossEntropyLoss()


def records():
    rng = torch.Generator().manual_seed(0)
    x = torch.randn(RECORDS, 20, generator=rng)
    return TensorDataset(x, torch.randint(0, 4, (RECORDS,), generator=rng))


def network():
    return nn.Sequential(nn.Linear(20, 16), nn.ReLU(), nn.Linear(16, 4))


def build(data, *, model=None, batch_size=24, workers=0, **options):
    model = network() if model is None else model
    engine = PrivacyEngine()
    stated = {"noise_multiplier": 1.0, "max_grad_norm": 1.0} | options
    loader = DataLoader(data, batch_size=batch_size, num_workers=workers, shuffle=not stated.get("poisson_sampling", 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return (*engine.make_private(module=model, optimizer=optimizer, data_loader=loader, **stated), engine)


def steps(model, optimizer, batches, *, loss=LOSS, before=lambda *_: None):
    """Step on each batch, after ``before(optimizer, loss, x)``; yields number, batch and loss of each step."""
    for number, (x, y) in enumerate(batches):
        optimizer.zero_grad()
        found = loss(model(x), y)
        found.backward()
        before(optimizer, found, x)
        optimizer.step()
        yield number, x, y, found


def train(model, optimizer, *rest):
    """``rest``: (loss where ghost clipping has its own, loader, engine)."""
    loader, loss = rest[-2], rest[0] if len(rest) == 3 else LOSS
    for _ in range(EPOCHS):
        list(steps(model, optimizer, loader, loss=loss))


def train_in_parts(model, optimizer, loader, _):
    with BatchMemoryManager(data_loader=loader, max_physical_batch_size=7, optimizer=optimizer) as parts:
        for _ in range(EPOCHS):
            list(steps(model, optimizer, parts))


def built(**options):
    return lambda data: build(data, **options)


CORRECT = {
    "plain": (build, train),
    "batch memory manager": (build, train_in_parts),
    "ghost clipping": (built(grad_sample_mode="ghost"), train),
    "per layer": (built(clipping="per_layer", max_grad_norm=[0.5] * 4), train),
}


class HalfTheNoise(DPOptimizer):
    def add_noise(self):
        super().add_noise()
        for one in self.params:
            one.grad = (one.grad + one.summed_grad) / 2


class HalfTheNoiseOfGhostClipping(DPOptimizerFastGradientClipping):
    def add_noise(self):
        super().add_noise()
        for one in self.params:
            one.grad = (one.grad + one.summed_grad) / 2


def build_ghost_without_clip(data):
    built = build(data, grad_sample_mode="ghost")
    model = built[0]
    model.get_clipping_coef = lambda: torch.ones_like(model.get_norm_sample())
    return built


class NoClip(DPOptimizer):
    def clip_and_accumulate(self):
        for one in self.params:
            one.summed_grad = self._get_flat_grad_sample(one).sum(0)


class ClipOfTheSum(NoClip):
    def clip_and_accumulate(self):
        super().clip_and_accumulate()
        length = torch.stack([one.summed_grad.norm() for one in self.params]).norm() / self.max_grad_norm
        for one in self.params:
            one.summed_grad = one.summed_grad / length.clamp(min=1)


class _NoiseOnMatrices(DPOptimizer):
    def add_noise(self):
        super().add_noise()
        for one in self.params:
            if one.ndim != 2:
                one.grad = one.summed_grad.clone()


def with_class(kind, **options):
    def build_with(data):
        model, optimizer, loader, engine = build(data, **options)
        optimizer.__class__ = kind
        return model, optimizer, loader, engine

    return build_with


def train_with_a_seed_per_step(model, optimizer, loader, _):
    for _ in range(EPOCHS):
        for x, y in loader:
            optimizer.zero_grad()
            LOSS(model(x), y).backward()
            state = torch.get_rng_state()
            torch.manual_seed(0)
            optimizer.step()
            torch.set_rng_state(state)


def train_virtual_steps_by_hand(model, optimizer, loader, _):
    """Two lots for each step, each drawn anew, so that a record may be in both."""
    model.allow_grad_accumulation()
    for _ in range(2 * EPOCHS):
        for number, (x, y) in enumerate(loader):
            LOSS(model(x), y).backward()
            if number % 2:
                optimizer.step()
                optimizer.zero_grad()


def build_without_accountant(data):
    model, optimizer, loader, engine = build(data)
    optimizer.attach_step_hook(lambda _: None)  # A hook of one's own takes the accountant's place.
    return model, optimizer, loader, engine


class Centred(nn.Module):
    """Subtracts a running mean of the records, which is a buffer."""

    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(20))

    def forward(self, x):
        if self.training and len(x):
            self.mean.mul_(0.9).add_(0.1 * x.detach().mean(0))
        return x - self.mean


def build_with_buffer(data):
    return build(data, model=nn.Sequential(Centred(), network()))


BROKEN = {
    "half of the noise": (with_class(HalfTheNoise), train, "noise scale"),
    "no clip": (with_class(NoClip), train, "sum of clipped rows"),
    "clip of the sum": (with_class(ClipOfTheSum), train, "sums on neighbouring data"),
    "shuffled loader": (built(poisson_sampling=False), train, "sizes of lots"),
    "virtual steps by hand": (build, train_virtual_steps_by_hand, "records once in a lot"),
    "a seed per step": (build, train_with_a_seed_per_step, "noise fresh"),
    "noise on matrices alone": (with_class(_NoiseOnMatrices), train, "noise present"),
    "no accountant": (build_without_accountant, train, "steps accounted"),
    "a buffer that data move": (build_with_buffer, train, "state without noise"),
}
"""Name -> (build, train, the check that names the fault)."""
