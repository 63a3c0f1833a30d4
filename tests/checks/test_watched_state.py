"""State that moves outside of the noised updates: which buffers data move, and parameters between updates."""

import torch
from fedassay.checks.watched_state import StateWatch, mixing_layers, moved_by_inputs
from torch import nn


class Counting(nn.Module):
    """A model with a counter, a running mean as a buffer, and one as a plain attribute."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(3, 2)
        self.register_buffer("calls", torch.zeros(()))
        self.register_buffer("mean", torch.zeros(3))
        self.hidden = torch.zeros(3)

    def forward(self, x):
        self.calls += 1
        self.mean = 0.9 * self.mean + 0.1 * x.mean(0)
        self.hidden = x[0].detach()
        return self.inner(x)


def run(model, moves):
    watch = StateWatch(model=model, stepped=frozenset(id(one) for one in model.parameters()))
    watch.begin()
    x = torch.arange(6.0).reshape(2, 3)
    watch.inputs = (x,)
    for _ in range(3):
        model(x)
        watch.before_update()
        with torch.no_grad():
            model.inner.weight += 1
        watch.after_update()
        moves(model)
    return {one.name: one for one in watch.end()}


def test_a_buffer_that_data_move_is_told_from_a_counter():
    found = run(Counting(), lambda model: None)
    assert set(found) == {"mean", "hidden"}
    assert found["mean"].by_data
    assert "the model (Counting)" in found["mean"].cause


def test_layers_that_mix_records_are_named_and_others_are_not():
    model = nn.Sequential(nn.Linear(3, 3), nn.GroupNorm(1, 3), nn.BatchNorm1d(3))
    assert mixing_layers(model) == ("2 (BatchNorm1d)",)


def test_the_models_state_is_restored():
    model = Counting()
    model(torch.ones(2, 3))
    before = {name: one.clone() for name, one in model.named_buffers()}
    assert moved_by_inputs(model, (torch.ones(2, 3),)) == {"mean", "hidden"}
    assert all(torch.equal(one, before[name]) for name, one in model.named_buffers())
    assert torch.equal(model.hidden, torch.ones(3))


def test_a_parameter_that_moves_between_updates_is_found():
    def average(model):
        with torch.no_grad():
            model.inner.bias += 0.1

    assert "changed between two updates" in run(Counting(), average)["inner.bias"].how


def test_a_parameter_of_no_noised_optimizer_is_found():
    model = nn.Linear(3, 2)
    watch = StateWatch(model=model, stepped=frozenset([id(model.weight)]))
    watch.begin()
    watch.before_update()
    with torch.no_grad():
        model.bias += 1
    watch.after_update()
    assert [one.how for one in watch.end()] == ["changed, although no optimizer that adds noise updates it"]
