"""iDLG's rule: exact on one undefended sample, worse than chance on the wrong sign."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from digits_federation import dealt_digits, received, with_uploads
from fedassay.attacks.attack import Knowledge
from fedassay.attacks.labels.idlg import IDLG, inferred_labels
from fedassay.fl.algorithms import FedAvg, FedSGD
from fedassay.fl.data.datasets import load_dataset
from fedassay.fl.layout import Layout
from fedassay.fl.models.network import Network
from fedassay.fl.protection import Protection
from fedassay.fl.recorder import RoundView
from toy_federation import toy_plan

N = 60


def one_sample_task(model, clients=N):
    return dealt_digits(model, clients, seed=3)


def seen_by_the_server(task, algorithm, rounds=1):
    plan = toy_plan(task, rounds=rounds, algorithm=algorithm)
    return received(task, plan, seed=3), Knowledge.of(task, plan, Protection())


def named(view, knowledge, round=0):
    evidence = IDLG(round=round).run(view, knowledge, np.random.default_rng(0))
    assert (evidence.counts.sum(1) == 1).all()
    return evidence.counts.argmax(1)


def true_labels(task):
    return task.labels[torch.cat(task.parts)].numpy()


@pytest.mark.parametrize("model", ["lenet", "logistic"])
def test_every_undefended_one_sample_upload_gives_its_label_away(model):
    task = one_sample_task(model)
    np.testing.assert_array_equal(named(*seen_by_the_server(task, FedSGD(learning_rate=0.1))), true_labels(task))


def test_so_does_an_upload_of_five_local_steps():
    task = one_sample_task("mlp")
    algorithm = FedAvg(learning_rate=0.05, local_steps=5)
    np.testing.assert_array_equal(named(*seen_by_the_server(task, algorithm)), true_labels(task))


def test_an_upload_of_the_wrong_sign_is_never_read_right():
    """The trap: reading a weight delta as a gradient is not a little worse, it is wrong every time."""
    task = one_sample_task("lenet")
    view, knowledge = seen_by_the_server(task, FedSGD(learning_rate=0.1))
    flipped = with_uploads(view, -view.rounds[0].reports.values)
    assert not (named(flipped, knowledge) == true_labels(task)).any()


def test_of_a_larger_lot_it_names_the_label_that_most_samples_have():
    network = Network(model="lenet", shape=(1, 8, 8), classes=10)
    digits = load_dataset("digits")
    threes, sevens = (digits.train_images[digits.train_labels == label] for label in (3, 7))
    images, labels = torch.cat([threes[:3], sevens[:1]]), torch.tensor([3, 3, 3, 7])
    params = network.initial(np.random.default_rng(0)).unsqueeze(0)
    mean = network.gradient(params, images[None], labels[None], torch.full((1, 4), 0.25))
    assert inferred_labels(mean, network.layout).tolist() == [3]


def test_without_a_bias_the_inner_products_of_rows_tell_the_label_where_row_sums_do_not():
    rng = np.random.default_rng(1)
    labels = torch.from_numpy(rng.integers(5, size=200))
    probabilities = torch.from_numpy(rng.dirichlet(np.ones(5), size=200))
    features = torch.from_numpy(rng.normal(size=(200, 7)))  # Of both signs, as after a leaky ReLU.
    residual = probabilities - torch.eye(5, dtype=torch.float64)[labels]
    gradients = torch.einsum("nc,nf->ncf", residual, features)
    layout = Layout(names=("output.weight",), shapes=((5, 7),))
    assert torch.equal(inferred_labels(gradients.flatten(1), layout), labels)
    assert not torch.equal(gradients.sum(2).argmin(1), labels)


def test_a_view_without_uploads_is_refused():
    view, knowledge = seen_by_the_server(one_sample_task("logistic", clients=3), FedSGD(learning_rate=0.1))
    blind = replace(view, rounds=(RoundView(round=0, broadcast=view.rounds[0].broadcast),))
    with pytest.raises(ValueError, match="must hold uploads"):
        named(blind, knowledge)
    with pytest.raises(ValueError, match=r"must hold the attacked round 7, got rounds \[0\]"):
        named(view, knowledge, round=7)
