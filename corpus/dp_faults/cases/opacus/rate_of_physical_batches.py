"""The accountant gets the rate of the physical batches in which a lot is computed, and not that of the lot.

The stated epsilon is that of four lots at rate .15 with noise multiplier 2: .46 at delta 1e-3. The correct version
draws lots at that rate.
"""

from functools import partial

import torch
from opacus import PrivacyEngine
from opacus.utils.batch_memory_manager import BatchMemoryManager
from torch.utils.data import DataLoader, TensorDataset

from dp_faults import Case, Claim, Program


def build(data, lot):
    model = torch.nn.Linear(3, 1, bias=False)
    torch.nn.init.zeros_(model.weight)
    engine = PrivacyEngine()
    model, optimizer, loader = engine.make_private(
        module=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
        data_loader=DataLoader(data, batch_size=lot),
        noise_multiplier=2.0,
        max_grad_norm=1.0,
    )
    optimizer.attach_step_hook(engine.accountant.get_optimizer_hook_fn(sample_rate=3 / len(data)))
    return model, optimizer, loader, engine


def train(model, optimizer, loader, engine):
    while sum(steps for *_, steps in engine.accountant.history) < 4:
        with BatchMemoryManager(data_loader=loader, max_physical_batch_size=3, optimizer=optimizer) as batches:
            for x, y in batches:
                optimizer.zero_grad()
                torch.nn.functional.mse_loss(model(x)[:, 0], y).backward()
                optimizer.step()
                if sum(steps for *_, steps in engine.accountant.history) == 4:
                    return


def program(lot):
    def release(data, rng):
        torch.manual_seed(int(rng.integers(2**31)))
        model, *rest = build(data, lot)
        train(model, *rest)
        return next(model.parameters()).detach().numpy().ravel().astype(float)

    return Program(
        claim=Claim(epsilon=0.46, delta=1e-3, adjacency="zero_out", observer="whoever receives the last model"),
        release=release,
        parts={"opacus": {"build": partial(build, lot=lot), "train": train, "delta": 1e-3}},
    )


x, y = torch.randn(20, 3, generator=torch.Generator().manual_seed(16)), torch.ones(20)
x[:, 2], x[19], y[19] = 0, torch.tensor([0.0, 0.0, 5.0]), -5
kept = torch.ones(20).index_fill(0, torch.tensor(19), 0)
CASE = Case(
    fault="accounting",
    correct=program(lot=3),
    broken=program(lot=10),
    neighbours=(TensorDataset(x, y), TensorDataset(x * kept[:, None], y * kept)),
    source="https://github.com/meta-pytorch/opacus/pull/219",
    ideal="records are drawn at rate .5 and accounted at .15",
    event=None,
    proof="four lots at rate .5 with noise multiplier 2: epsilon 1.62 at delta 1e-3",
)
