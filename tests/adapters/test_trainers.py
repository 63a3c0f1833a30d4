"""Trainers that own their loop, and a NumPy mechanism with its own generator: audited as they are."""

import numpy as np
import pytest
import torch
from fedassay.adapters.function import Function
from fedassay.adapters.loop import LoopWatch
from fedassay.adapters.runner import probe
from fedassay.audit.claim import Claim
from torch import nn

RECORDS, RATE, STEPS = 200, 0.1, 40


class Module(nn.Module):
    """A Lightning-like module: the loss of a batch, and its optimizer."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(12))

    def training_rows(self, x, y):
        return 2 * (x @ self.weight - y).detach()[:, None] * x

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=0.01)


class Callback:
    """Hooks of a trainer that do nothing."""

    def on_start(self, trainer): ...

    def on_rows(self, ids, rows): ...

    def on_noise(self, total, noised): ...


class Trainer:
    """A trainer with callbacks, as Lightning has them; ``noise``: multiplier that it adds."""

    def __init__(self, callbacks, noise=1.0):
        self.callbacks, self.noise = callbacks, noise

    def _call(self, name, *values):
        for one in self.callbacks:
            getattr(one, name)(*values)

    def fit(self, module, x, y):
        self.optimizer = module.configure_optimizers()
        self._call("on_start", self)
        for _ in range(STEPS):
            ids = torch.nonzero(torch.rand(len(x)) < RATE).flatten()
            rows = module.training_rows(x[ids], y[ids])
            self._call("on_rows", ids, rows)
            total = (rows / rows.norm(dim=1, keepdim=True).clamp(min=1)).sum(0)
            noised = total + self.noise * torch.randn(12)
            self._call("on_noise", total, noised)
            module.weight.grad = noised / (RATE * len(x))
            self.optimizer.step()


class WatchCallback(Callback):
    """The audit of such a trainer: one callback of three lines."""

    def __init__(self, watch):
        self.watch = watch

    def on_start(self, trainer):
        self.watch.attach(trainer.optimizer)

    def on_rows(self, ids, rows):
        self.watch.lot(ids, rows)

    def on_noise(self, total, noised):
        self.watch.release(total, noised)


@pytest.mark.parametrize(("noise", "failed"), [(1.0, []), (0.5, ["noise scale"])])
def test_a_trainer_with_callbacks_is_watched_by_one_of_them(noise, failed):
    torch.manual_seed(0)
    module, x, y = Module(), torch.randn(RECORDS, 12), torch.randn(RECORDS)
    watch = LoopWatch(module, noise_multiplier=1.0, clip_norm=1.0, records=RECORDS, rate=RATE, steps=STEPS)
    Trainer([WatchCallback(watch)], noise).fit(module, x, y)
    assert [one.name for one in watch.results().failed] == failed


class Mechanism:
    """A mechanism of NumPy that owns its generator; ``scale``: of its noise."""

    def __init__(self, scale):
        self.scale, self.rng = scale, np.random.default_rng()

    def seed(self, word):
        self.rng = np.random.default_rng(word)

    def report(self, rows):
        return rows + self.rng.laplace(scale=self.scale, size=rows.shape)


@pytest.mark.parametrize(("scale", "verdict"), [(1.0, "NOT_REFUTED"), (0.5, "REFUTED")])
def test_a_mechanism_with_its_own_generator_is_audited(scale, verdict):
    mechanism = Mechanism(scale)
    claim = Claim.stated(epsilon=1.0, unit="report", adjacency="replace_one")
    found = Function(call=mechanism.report, reseed=mechanism.seed, batched=True)
    assert found.audit(claim, inputs=(0.0, 1.0), trials=20_000).verdict.value == verdict


def test_a_probe_takes_systems_without_play_back():
    from foreign_runner import GaussianRunner

    assert probe(GaussianRunner()).failed == ()
    assert [one.name for one in probe(GaussianRunner(share=0.1)).failed] == ["noise scale"]
