"""Warm start: which images are public, that the training is the stated one, and who starts from its model."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from fedassay.fl.algorithms import FedSGD
from fedassay.fl.data.datasets import load_dataset
from fedassay.fl.engine import run_federation
from fedassay.fl.partitions import IID
from fedassay.fl.plan import Plan
from fedassay.fl.protection import Protection
from fedassay.fl.replay import frozen_federation
from fedassay.fl.sampling import Full
from fedassay.fl.streams import Streams
from fedassay.fl.task import WarmStartRule, build_task, public_part
from fedassay.fl.training.local import Batch
from numbered_images import TRAIN, numbered_images

RULE = WarmStartRule(samples=12, steps=5, learning_rate=0.1, lot=4)


@pytest.fixture(scope="module")
def dataset():
    return numbered_images()


def build(dataset, seed=0, rule=RULE, **more):
    given = {"model": "logistic", "partition": IID(), "clients": 3, "samples": 20, **more}
    return build_task(dataset, **given, streams=Streams(seed), warm_start=rule)


def names(images):
    """Which training images these are, by their first pixel."""
    return {round(float(pixel) * TRAIN) for pixel in images[:, 0, 0, 0]}


@pytest.mark.parametrize("more", [{}, {"samples": None}, {"held_out": 2}])
def test_no_client_no_held_out_client_and_no_non_member_has_a_public_image(dataset, more):
    for seed in range(5):
        task = build(dataset, seed=seed, **more)
        public = names(task.warm_start.images)
        assert len(public) == RULE.samples
        assert not public & (names(task.images) | names(task.outsider_images))
        assert torch.equal(task.test_images, dataset.test_images)


def test_an_owner_of_a_public_image_has_no_other_image_in_the_federation():
    owned = numbered_images(train_owners=torch.arange(TRAIN) // 3)
    for seed in range(5):
        task = build(owned, seed=seed, samples=None)
        owners = {image // 3 for image in names(task.warm_start.images)}
        assert len(task.warm_start.images) == RULE.samples
        assert not owners & {image // 3 for image in names(task.images) | names(task.outsider_images)}


def test_clients_and_non_members_are_those_of_the_federation_without_a_warm_start(dataset):
    with_start, without = build(dataset), build(dataset, rule=None)
    assert torch.equal(with_start.images, without.images)
    assert torch.equal(with_start.outsider_images, without.outsider_images)
    assert all(torch.equal(a, b) for a, b in zip(with_start.parts, without.parts, strict=True))


@pytest.mark.parametrize("more", [{"label_noise": 1.0}, {}])
def test_public_images_have_the_true_labels(dataset, more):
    task = build(dataset, **more)
    order = [round(float(pixel) * TRAIN) for pixel in task.warm_start.images[:, 0, 0, 0]]
    assert task.warm_start.labels.tolist() == dataset.train_labels[order].tolist()


def test_pixel_noise_is_the_clients_and_not_the_servers():
    dataset = load_dataset("synthetic_receipts")
    given = {"model": "lenet", "partition": IID(), "clients": 2, "samples": 20, "streams": Streams(0)}
    rule = WarmStartRule(samples=12, steps=1, learning_rate=0.1, lot=4)
    clean, noisy = (build_task(dataset, **given, warm_start=rule, pixel_noise=noise) for noise in (0.0, 1.0))
    assert torch.equal(clean.warm_start.images, noisy.warm_start.images)
    assert not torch.equal(clean.images, noisy.images)


def naive(task, rule, seed):
    """The same training by torch's own modules, loss and optimiser."""
    network, module = task.network, torch.nn.Linear(16, 3, dtype=torch.float64)
    start = network.initial(Streams(seed).generator("init"))
    torch.nn.utils.vector_to_parameters(start, module.parameters())
    optimizer = {"adam": torch.optim.Adam, "sgd": torch.optim.SGD}[rule.optimizer](
        module.parameters(), rule.learning_rate
    )
    for step in range(rule.steps):
        rng = Streams(seed).generator("warm start", step=step)
        chosen = rng.permutation(rule.samples)[: rule.lot]
        optimizer.zero_grad()
        images, labels = task.warm_start.images[chosen], task.warm_start.labels[chosen]
        torch.nn.functional.cross_entropy(module(images.flatten(1)), labels).backward()
        optimizer.step()
    return torch.nn.utils.parameters_to_vector(module.parameters()).detach()


@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
def test_the_initial_model_is_trained_as_stated(dataset, in_double, optimizer):
    rule = replace(RULE, optimizer=optimizer)
    task = in_double(build(dataset, seed=4, rule=rule))
    torch.testing.assert_close(task.initial(Streams(4)), naive(task, rule, 4))


def test_the_same_seed_gives_the_same_start_and_another_seed_another(dataset):
    first = build(dataset).initial(Streams(0))
    assert torch.equal(first, build(dataset).initial(Streams(0)))
    assert not torch.equal(first, build(dataset, seed=1).initial(Streams(1)))


def test_no_data_of_clients_or_non_members_enters_the_start(dataset):
    """The null case: other private data, the same start."""
    task = build(dataset)
    other = replace(task, images=1 - task.images, outsider_images=1 - task.outsider_images)
    assert torch.equal(task.initial(Streams(0)), other.initial(Streams(0)))
    public = replace(task.warm_start, images=1 - task.warm_start.images)
    assert not torch.equal(task.initial(Streams(0)), replace(task, warm_start=public).initial(Streams(0)))


def test_it_is_trained_once_for_all_federations_of_a_seed(dataset, monkeypatch):
    task = build(dataset, seed=77)
    trained = task.initial(Streams(77))
    monkeypatch.setattr(type(task.network), "gradient", lambda *_: pytest.fail("trained again"))
    audited = build(dataset, seed=77).restricted(clients=2, samples=3).with_inert(2)
    assert torch.equal(audited.initial(Streams(77)), torch.cat([trained, torch.zeros(2)]))


def still(task):
    """A plan of one round that hardly moves the model."""
    algorithm = FedSGD(learning_rate=1e-12)
    return Plan(sizes=task.sizes, rounds=1, cohort=Full(), lot=Full(), algorithm=algorithm, layout=task.network.layout)


def test_every_replica_and_both_arms_start_from_it(dataset):
    task = build(dataset)
    plan = still(task)
    for arm in (0, 1):
        final = run_federation(task, plan, Protection(), Streams(0), batch=Batch(replicas=2, arm=arm))
        torch.testing.assert_close(final, task.initial(Streams(0)).expand(2, -1))


def test_a_frozen_federation_stays_at_it(dataset):
    task = build(dataset)
    plan = still(task)
    frozen = frozen_federation(task, plan, rounds=1, steepness=1.0)
    assert torch.equal(frozen.task.network.point[:-1], task.initial(Streams(0)))


def test_a_segmentation_model_learns_from_the_targets():
    dataset = load_dataset("synthetic_receipts_tampered")
    rule = WarmStartRule(samples=16, steps=2, learning_rate=0.003, lot=4)
    given = {"model": "unet", "partition": IID(), "clients": 2, "samples": 20, "streams": Streams(0)}
    task = build_task(dataset, **given, warm_start=rule)
    start, cold = task.initial(Streams(0)), replace(task, warm_start=None).initial(Streams(0))
    held = task.warm_start
    loss = [float(task.network.losses(model, held.images, held.labels).mean()) for model in (cold, start)]
    assert loss[1] < loss[0]


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"samples": 0}, "samples"),
        ({"steps": 0}, "steps"),
        ({"lot": 13}, "at most warm_start.samples"),
        ({"learning_rate": -1.0}, "learning_rate"),
        ({"optimizer": "rmsprop"}, "optimizer"),
    ],
)
def test_bad_rules_are_refused(change, text):
    with pytest.raises(ValueError, match=rf"warm_start.*{text}"):
        replace(RULE, **change)


@pytest.mark.parametrize("samples", [54, 100])
def test_a_warm_start_that_leaves_nothing_to_the_clients_is_refused(dataset, samples):
    with pytest.raises(ValueError, match=r"warm_start\.samples must leave"):
        build(dataset, rule=replace(RULE, samples=samples), samples=None)


def test_the_clients_cannot_hold_what_is_public(dataset):
    with pytest.raises(ValueError, match="samples must be at most 42"):
        build(dataset, samples=43)
    assert len(build(dataset, samples=42).images) == 42


def test_an_order_without_owners_loses_exactly_its_end(dataset):
    public, withdrawn = public_part(dataset, np.arange(10, 50), 7)
    assert public.tolist() == withdrawn.tolist() == list(range(43, 50))
