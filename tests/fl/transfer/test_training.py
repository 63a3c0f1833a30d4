"""Many models trained at once are the models that a plain loop trains one by one."""

import numpy as np
import pytest
import torch
from fedassay.fl.models.network import Network
from fedassay.fl.streams import Streams
from fedassay.fl.transfer.task import Lessons, TrainingRule, trained

NETWORK = Network(model="mlp", shape=(1, 3, 3), classes=3, options={"hidden": 4})


def lessons_of(present, lots, seed=0):
    rng = torch.Generator().manual_seed(seed)
    models, samples = present.shape
    return Lessons(
        images=torch.rand(20, 1, 3, 3, generator=rng, dtype=torch.float64),
        places=torch.randint(20, (models, samples), generator=rng),
        labels=torch.randint(3, (models, samples), generator=rng),
        present=present,
        lots=lots,
    )


def alone(start, lessons, rule, model):
    """PyTorch's own optimiser on the samples of one model."""
    weights = start[model].clone().requires_grad_(True)
    kind = torch.optim.SGD if rule.optimizer == "sgd" else torch.optim.Adam
    optimizer = kind([weights], lr=rule.learning_rate)
    for step in range(rule.steps):
        lot = lessons.lots[model, min(step, lessons.lots.shape[1] - 1)]
        lot = lot[lessons.present[model, lot]]
        images, labels = lessons.images[lessons.places[model, lot]], lessons.labels[model, lot]
        optimizer.zero_grad()
        NETWORK.losses(weights, images, labels).mean().backward()
        optimizer.step()
    return weights.detach()


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
@pytest.mark.parametrize("lot", [None, 3])
def test_models_trained_together_are_those_of_a_plain_loop(optimizer, lot, monkeypatch):
    rule = TrainingRule(steps=4, learning_rate=0.05, optimizer=optimizer, lot=lot)
    present = torch.ones(3, 6, dtype=torch.bool)
    present[1, 2:4] = False
    lots = rule.draw(np.random.default_rng(0), 3, 6)
    # At least one of the first model's lots must hold an absent sample, or the mask would go untested.
    lots = torch.cat([lots[:1], torch.arange(6)[-lots.shape[2] :].expand_as(lots[1:2]), lots[2:]])
    start = torch.randn(3, NETWORK.layout.dim, generator=torch.Generator(), dtype=torch.float64)
    lessons = lessons_of(present, lots)
    together = trained(NETWORK, start, lessons, rule)
    for model in range(3):
        torch.testing.assert_close(together[model], alone(start, lessons, rule, model), atol=1e-6, rtol=1e-6)
    monkeypatch.setattr("fedassay.fl.transfer.task._IMAGE_BYTES", 1)
    torch.testing.assert_close(trained(NETWORK, start, lessons, rule), together)


def test_a_model_without_samples_stays_where_it_starts():
    rule = TrainingRule(steps=2, learning_rate=0.1)
    present = torch.tensor([[True, True], [False, False]])
    start = torch.ones(2, NETWORK.layout.dim, dtype=torch.float64)
    after = trained(NETWORK, start, lessons_of(present, rule.draw(np.random.default_rng(0), 2, 2)), rule)
    assert not torch.equal(after[0], start[0])
    assert torch.equal(after[1], start[1])


def test_lots_are_drawn_without_replacement_and_uniformly():
    lots = TrainingRule(steps=500, learning_rate=0.1, lot=2).draw(Streams(0).generator("lots"), 3, 5)
    assert lots.shape == (3, 500, 2)
    assert (lots[..., 0] != lots[..., 1]).all()
    # Five standard errors of 3000 draws at a fifth.
    share = np.bincount(lots.flatten().numpy(), minlength=5) / lots.numel()
    assert np.abs(share - 0.2).max() < 5 * (0.2 * 0.8 / 3000) ** 0.5


def test_wrong_rules_and_models_are_refused():
    with pytest.raises(ValueError, match="steps must be"):
        TrainingRule(steps=0, learning_rate=0.1)
    with pytest.raises(ValueError, match="lot must be"):
        TrainingRule(steps=1, learning_rate=0.1, lot=0)
    rule = TrainingRule(steps=1, learning_rate=0.1)
    lessons = lessons_of(torch.ones(1, 2, dtype=torch.bool), rule.draw(np.random.default_rng(0), 1, 2))
    with pytest.raises(ValueError, match="neither dropout nor batch norm, got model lenet_dropout"):
        trained(Network(model="lenet_dropout", shape=(1, 28, 28), classes=3), torch.zeros(1, 1), lessons, rule)
