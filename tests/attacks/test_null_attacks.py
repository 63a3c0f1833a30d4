"""Null attacks of gradients and labels: their results do not depend on the view."""

import numpy as np
import pytest
import torch
from fedassay.attacks.attack import Knowledge, Level
from fedassay.attacks.gradient.mean_image import MeanImage
from fedassay.attacks.gradient.noise_image import NoiseImage
from fedassay.attacks.gradient.random_image import RandomImage
from fedassay.attacks.labels.random_labels import RandomLabels
from fedassay.audit.evidence import LabelCounts, Reconstructions
from fedassay.audit.observer import UPLOADS
from fedassay.fl.algorithms import FedSGD
from fedassay.fl.message import Message
from fedassay.fl.models.network import Network
from fedassay.fl.recorder import RoundView, View
from toy_federation import flat_plan

NETWORK = Network(model="logistic", shape=(1, 3, 3), classes=4)
RNG = np.random.default_rng(5)
PUBLIC = torch.from_numpy(RNG.random((30, 1, 3, 3), dtype=np.float32))


def seen(values, sizes=None):
    clients = len(values)
    fields = {"algorithm": FedSGD(learning_rate=0.1), "layout": NETWORK.layout}
    plan = flat_plan(clients, sizes=sizes or (1,) * clients, **fields)
    reports = Message(values=values[None], present=torch.ones(1, clients).bool(), senders=tuple(range(clients)))
    model = torch.zeros(1, NETWORK.layout.dim)
    view = View(
        observer=UPLOADS,
        plan=plan,
        rounds=(RoundView(round=0, broadcast=model, reports=reports),),
        final_model=model,
    )
    knowledge = Knowledge(
        level=Level.REALISTIC,
        network=NETWORK,
        plan=plan,
        law=lambda observer, client: None,
        public_images=PUBLIC,
        public_labels=torch.arange(30) % 4,
    )
    return view, knowledge


def run_null(null, values, seed=0):
    evidence = null.run(*seen(values), np.random.default_rng(seed))
    if isinstance(evidence, LabelCounts):
        return [evidence.counts]
    assert isinstance(evidence, Reconstructions)
    return [evidence.images, np.zeros(0) if evidence.labels is None else evidence.labels]


@pytest.mark.parametrize("null", [MeanImage(), RandomImage(), NoiseImage()], ids=lambda null: type(null).__name__)
def test_each_sample_of_a_lot_gets_an_image(null):
    view, knowledge = seen(torch.ones(3, NETWORK.layout.dim), sizes=(2, 1, 3))
    evidence = null.run(view, knowledge, np.random.default_rng(0))
    assert isinstance(evidence, Reconstructions)
    assert evidence.uploads.tolist() == [0, 0, 1, 2, 2, 2]
    assert len(evidence.images) == 6


def test_the_mean_image_is_the_mean_of_the_public_images():
    images = run_null(MeanImage(), torch.ones(2, NETWORK.layout.dim))[0]
    np.testing.assert_allclose(images[0], PUBLIC.numpy().mean(0), atol=1e-6)
    np.testing.assert_array_equal(images[0], images[1])


def test_a_random_image_is_a_public_one_with_its_own_label():
    images, labels = run_null(RandomImage(), torch.ones(25, NETWORK.layout.dim))
    for image, label in zip(images, labels, strict=True):
        equal = (PUBLIC.numpy() == image.astype(np.float32)).all((1, 2, 3))
        assert equal.sum() == 1
        assert equal.argmax() % 4 == label


def test_random_labels_are_uniform():
    """4,000 draws over 4 classes: each count within 5 standard deviations (137) of 1,000."""
    counts = run_null(RandomLabels(), torch.ones(4000, NETWORK.layout.dim))[0]
    assert (counts.sum(1) == 1).all()
    assert (np.abs(counts.sum(0) - 1000) < 137).all()
