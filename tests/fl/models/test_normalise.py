"""A model normalises its input by public constants; images, attacks and every kind of gradient agree about it."""

import numpy as np
import pytest
import torch
from digits_federation import UNDEFENDED, received
from fedassay.attacks.attack import Knowledge
from fedassay.attacks.gradient.analytic_linear import AnalyticLinear
from fedassay.fl.algorithms import FedSGD
from fedassay.fl.data.datasets import load_dataset
from fedassay.fl.models.layers import Normalisation, normalisation_from
from fedassay.fl.models.network import Network
from fedassay.fl.partitions import OneSample
from fedassay.fl.streams import Streams
from fedassay.fl.task import build_task
from toy_federation import toy_plan

THIRDS = Normalisation(mean=(0.5, 0.25, 0.0), std=(0.25, 2.0, 1.0))


def network(model: str, constants: Normalisation | None = THIRDS) -> Network:
    bins = (-1.0, 0.1, 0.2) if model == "imprint" else ()
    return Network(model=model, shape=(3, 32, 32), classes=2, bins=bins, normalisation=constants)


def images(n: int, seed: int = 0) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(seed).random((n, 3, 32, 32), dtype=np.float32))


def test_the_naive_formula_gives_the_normalised_image():
    assert torch.equal(THIRDS.apply(torch.full((1, 3, 1, 1), 0.5)).flatten(), torch.tensor([0.0, 0.125, 0.5]))


@pytest.mark.long
@pytest.mark.parametrize("model", ["convnet", "lenet", "lenet_bn", "lenet_dropout", "logistic", "mlp"])
def test_a_model_with_normalisation_is_the_plain_model_on_normalised_images(model):
    ours, plain = network(model), network(model, None)
    assert ours.layout == plain.layout
    params = plain.initial(np.random.default_rng(1))
    inputs = THIRDS.apply(images(4))
    torch.testing.assert_close(ours.logits(params, images(4)), plain.logits(params, inputs))
    torch.testing.assert_close(ours.evaluated(params, images(4)), plain.evaluated(params, inputs))
    labels, weights = torch.tensor([[0, 1, 1, 0]]), torch.full((1, 4), 0.25)
    for left, right in (
        (
            ours.gradient(params[None], images(4)[None], labels, weights),
            plain.gradient(params[None], inputs[None], labels, weights),
        ),
        *(
            []
            if ours.mixes
            else [
                (
                    ours.sample_gradients(params[None], images(4)[None], labels),
                    plain.sample_gradients(params[None], inputs[None], labels),
                )
            ]
        ),
    ):
        torch.testing.assert_close(left, right, rtol=1e-4, atol=1e-6)


def test_a_segmentation_model_is_normalised_too():
    one = Normalisation(mean=(0.5,), std=(0.25,))
    ours, plain = (Network(model="unet", shape=(1, 32, 32), classes=2, normalisation=given) for given in (one, None))
    params = plain.initial(np.random.default_rng(1))
    gray = images(2)[:, :1]
    torch.testing.assert_close(ours.logits(params, gray), plain.logits(params, one.apply(gray)))
    assert ours.layout.shapes == plain.layout.shapes


def test_an_imprint_layer_reads_the_images_before_they_are_normalised():
    names = [name for name, _ in network("imprint").module.named_children()]
    assert names[:2] == ["imprint", "normalise"]


@pytest.mark.parametrize("model", ["logistic", "mlp"])
def test_the_closed_form_attack_finds_the_image_and_not_its_normalised_form(model):
    task = build_task(
        load_dataset("digits"),
        model=model,
        partition=OneSample(),
        clients=2,
        samples=2,
        streams=Streams(0),
        normalisation=Normalisation(mean=(0.3,), std=(0.4,)),
    )
    plan = toy_plan(task, rounds=1, algorithm=FedSGD(learning_rate=1.0))
    view = received(task, plan)
    found = AnalyticLinear().run(view, Knowledge.of(task, plan, UNDEFENDED), np.random.default_rng(0)).images
    truth = torch.cat([task.images[part] for part in task.parts])
    assert float((torch.as_tensor(found).view(truth.shape) - truth).abs().max()) < 1e-3


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"mean": 0.1}, "normalise must be { mean"),
        ({"mean": 0.1, "std": 0}, "std > 0 and finite"),
        ({"mean": [0.1, 0.2], "std": [1.0]}, "as many values of mean as of std"),
        ({"mean": "0.1", "std": 1}, "mean of normalise must be a number"),
        ({"mean": True, "std": 1}, "mean of normalise must be a number"),
        ({"mean": float("nan"), "std": 1}, "finite values of mean"),
        ({"mean": [], "std": []}, "at least one"),
        ([0.1, 0.3], "normalise must be { mean"),
    ],
)
def test_other_specifications_are_refused(spec, message):
    with pytest.raises(ValueError, match=message):
        normalisation_from(spec)


def test_the_number_of_channels_must_fit():
    with pytest.raises(ValueError, match="one mean and std, or one for each of the 1 channels, got 3"):
        _ = Network(model="mlp", shape=(1, 8, 8), classes=10, normalisation=THIRDS).module
