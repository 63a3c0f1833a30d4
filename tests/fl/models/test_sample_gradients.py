"""Sample gradients of every kind of model and task, computed in every way: those of one backward pass per sample.

Networks: nothing depends on inert weights, and the module that computes is left as it was.
"""

import pytest
import torch
from fedassay.fl.models.network import Network
from fedassay.fl.models.sample_gradients import is_known, sample_gradients
from fedassay.fl.models.small_models import build_model, known_models
from fedassay.fl.streams import Streams, normal, uniform
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy, mse_loss, one_hot

SHAPES = {
    "logistic": (1, 5, 4),
    "mlp": (2, 3, 3),
    "lenet": (1, 13, 16),
    "lenet_dropout": (2, 7, 8),
    "cnn26k": (1, 15, 17),
    "convnet": (1, 9, 9),
}
"""Models whose gradients are computed layer by layer."""
OWN = {f"own_models:{name}": {"shape": (1, 4, 4)} for name in ("attentive", "recurrent", "dropping", "half_frozen")}
TEXT = {"shape": (1, 1, 6), "task": "next_token"}
EVERY = [
    *({"model": model, "shape": shape} for model, shape in SHAPES.items() if model != "convnet"),
    *({"model": model} | given for model, given in OWN.items()),
    *({"model": f"own_models:{name}", "shape": (1, 4, 4)} for name in ("branching", "group_normed")),
    {"model": "resnet18", "shape": (1, 4, 4), "options": {"width": 4, "groups": 2}},
    {"model": "transformer", "shape": (1, 4, 4), "options": {"width": 8, "heads": 2, "patch": 2}},
    {"model": "unet", "shape": (1, 16, 16), "classes": 2},
    {"model": "text_transformer", "options": {"width": 8, "heads": 2}, "classes": 9, **TEXT},
    {"model": "text_lora", "options": {"rank": 3}, "classes": 65, **TEXT},
    *(
        {"model": model, "shape": shape, "task": task, "classes": outputs}
        for task, outputs in (("regression", 1), ("multilabel", 3))
        for model, shape in (("logistic", (1, 8, 8)), ("lenet_dropout", (1, 8, 8)), ("own_models:attentive", (1, 4, 4)))
    ),
]
NAIVE = {
    "classification": cross_entropy,
    "next_token": lambda outputs, labels: cross_entropy(outputs[0], labels[0]),
    "regression": mse_loss,
}
SAMPLES, INERT = 4, 2


def case(fields, replicas=2):
    """A network in double precision, parameters, images and labels, and a dropout or None."""
    network = Network(**({"classes": 4, "inert": INERT} | fields))
    objective, rng = network.objective, Streams(8).generator("case")
    params = torch.stack([network.initial(rng) for _ in range(replicas)]).double()
    network.module.double()
    params[..., : -network.inert] += 0.05 * normal(rng, (replicas, network.layout.model_dim), dtype=torch.float64)
    images = uniform(rng, (replicas, SAMPLES, *network.shape), dtype=torch.float64)
    images[:, 0, :, :3] = 0  # Equal places, among which a pool chooses.
    if network.task == "next_token":
        images = (network.classes * images).floor()
    outputs = objective.output_shape(network.shape, network.classes)
    shape = outputs[:-1] if objective.name in ("classification", "next_token") else outputs
    if objective.name == "segmentation":
        labels = uniform(rng, (replicas, SAMPLES, *network.shape[1:])) < 0.3
    else:
        labels = objective.drawn(rng, (replicas, SAMPLES, *shape), network.classes)
    drawn = network.draw_dropout(rng, (replicas, SAMPLES))
    return network, params, images, labels, drawn if drawn is None or network.dropout_is_seeded else drawn.double()


def looped(network, params, images, labels, drawn):
    """Naive version: one backward pass per sample."""

    def row(run, sample):
        point, one = params[run].clone().requires_grad_(), slice(sample, sample + 1)
        outputs = network.logits(point, images[run, one], None if drawn is None else drawn[run, one])
        wanted = labels[run, one]
        loss = NAIVE.get(network.objective.name, lambda a, b: binary_cross_entropy_with_logits(a, b.double()))
        return torch.autograd.grad(loss(outputs, wanted if wanted.dtype == torch.int64 else wanted.double()), point)[0]

    return torch.stack([torch.stack([row(run, n) for n in range(SAMPLES)]) for run in range(len(params))])


@pytest.mark.filterwarnings("ignore:sample gradients of")
@pytest.mark.parametrize("fields", EVERY, ids=lambda fields: f"{fields['model']}-{fields.get('task', '')}")
def test_gradients_of_every_way_are_those_of_a_loop(fields, monkeypatch):
    """Of samples, of weighted lots, clipped by norms and of soft labels; of several replicas and of one."""
    network, params, images, labels, drawn = case(fields)
    wanted = looped(network, params, images, labels, drawn)
    assert not wanted[..., -INERT:].any()
    assert wanted.abs().amax(-1).min() > 1e-4

    def close(found, true):
        torch.testing.assert_close(found, true, rtol=1e-7, atol=1e-10)

    before = torch.get_rng_state()
    for large in (False, True):
        if large:
            monkeypatch.setattr("fedassay.fl.models.network._MANY", 0)
        rows = network.sample_gradients(params, images, labels, drawn)
        close(rows, wanted)
        assert not rows.requires_grad
        assert torch.equal(rows, network.sample_gradients(params, images, labels, drawn)), "the same bits"
    first = [None if part is None else part[:1] for part in (params, images, labels, drawn)]
    close(network.sample_gradients(*first), wanted[:1])
    weights = torch.tensor([[0.5, 0.0, -1.0, 2.0], [0.25, 0.25, 0.25, 0.25]], dtype=torch.float64)
    close(network.gradient(params, images, labels, weights, drawn), (wanted * weights.unsqueeze(-1)).sum(1))
    norms = wanted[0].norm(dim=1)
    clip = float(norms.median())
    found = network.clipped_gradients(
        params[0],
        images[0],
        labels[0],
        lambda parts: (clip / parts.norm(dim=1)).clamp_max(1),
        None if drawn is None else drawn[0],
    )
    close(found, (clip / norms).clamp_max(1) @ wanted[0])
    if drawn is None:
        soft = one_hot(labels[:1], network.classes) if labels.dtype == torch.int64 else labels[:1]
        for small in (2**30, 0):
            monkeypatch.setattr("fedassay.fl.models.network._SMALL", small)
            close(network.lot_gradients(params[0], images[:1], soft.double())[0], wanted[0].mean(0))
    assert torch.equal(torch.get_rng_state(), before)


def test_the_largest_known_model_has_the_gradient_of_its_one_sample():
    network = Network(model="convnet", shape=SHAPES["convnet"], classes=4)
    params = network.initial(Streams(8).generator("case"))[None]
    images, labels = uniform(Streams(8).generator("images"), (1, 1, *SHAPES["convnet"])), torch.tensor([[2]])
    by_layers, mean = network.sample_gradients(params, images, labels)[0], torch.ones(1, 1)
    torch.testing.assert_close(by_layers, network.gradient(params, images, labels, mean), rtol=1e-3, atol=2e-6)


@pytest.mark.parametrize("model", SHAPES)
def test_an_empty_lot_has_no_rows(model):
    network = Network(model=model, shape=SHAPES[model], classes=4)
    params = network.initial(Streams(8).generator("case"))[None]
    images, labels = torch.zeros(1, 0, *SHAPES[model]), torch.zeros(1, 0, dtype=torch.int64)
    drawn = network.draw_dropout(Streams(8).generator("dropout"), (1, 0))
    assert network.sample_gradients(params, images, labels, drawn).shape == (1, 0, network.layout.dim)


def test_known_are_plain_chains_that_keep_samples_apart():
    of_images = set(known_models()) - {"text_transformer", "text_lora"}
    known = {name for name in of_images if is_known(build_model(name, shape=(1, 32, 32), classes=2))}
    assert known == set(SHAPES)
    chain = type(build_model("mlp", shape=(1, 4, 4), classes=3))
    for layer in (
        nn.Conv2d(2, 2, 3, groups=2),
        nn.Conv2d(1, 1, 3, dilation=2),
        nn.Conv2d(1, 1, 3, padding="same"),
        nn.Conv2d(1, 1, 3, padding=1, padding_mode="reflect"),
        nn.BatchNorm2d(1, track_running_stats=False),
    ):
        assert not is_known(chain(layer)), layer
    assert not is_known(nn.Sequential(nn.Linear(2, 2)))


def test_a_linear_layers_gradient_is_the_hand_computed_one():
    """Zero weights, two classes: label 0 has the residual (-1/2, 1/2), times the image (1, 3)."""
    network = Network(model="logistic", shape=(1, 1, 2), classes=2)
    rows = torch.empty(1, network.layout.dim)
    image, label = torch.tensor([[[[1.0, 3.0]]]]), torch.tensor([0])
    sample_gradients(network.module, network.layout, network.objective, torch.zeros(6), image, label, out=rows)
    assert rows.tolist() == [[-0.5, -1.5, 0.5, 1.5, -0.5, 0.5]]
    assert torch.equal(network.sample_gradients(torch.zeros(1, 6), image[None], label[None])[0], rows)


@pytest.mark.parametrize(
    ("model", "count"), [("lenet", 0), ("mlp", 1), ("cnn26k", 250), ("logistic", 251), ("lenet", 600)]
)
def test_logits_in_several_passes_are_those_of_each_image(model, count):
    network, params, *_ = case({"model": model, "shape": SHAPES[model]}, 1)
    images = uniform(Streams(9).generator("images"), (count, *SHAPES[model]), dtype=torch.float64)
    found = network.evaluated(params[0].requires_grad_(True), images)
    assert found.shape == (count, 4)
    assert not found.requires_grad
    torch.testing.assert_close(found, network.logits(params[0], images).detach(), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("model", ["logistic", "mlp", "lenet", "cnn26k"])
def test_inert_weights_change_neither_logits_nor_losses(model):
    network, params, images, labels, _ = case({"model": model, "shape": SHAPES[model]}, 1)
    moved = params[0].clone()
    moved[-INERT:] += 100
    assert torch.equal(network.logits(moved, images[0]), network.logits(params[0], images[0]))
    assert torch.equal(network.losses(moved, images[0], labels[0]), network.losses(params[0], images[0], labels[0]))


def test_losses_are_cross_entropies():
    network, params, images, labels, _ = case({"model": "mlp", "shape": SHAPES["mlp"]}, 1)
    logits = network.logits(params[0], images[0])
    expected = logits.logsumexp(-1) - logits.gather(1, labels[0].unsqueeze(-1)).squeeze(-1)
    losses = network.losses(params[0], images[0], labels[0])
    torch.testing.assert_close(losses, expected)


@pytest.mark.parametrize("model", ["logistic", "mlp"])
def test_a_lots_gradient_is_the_mean_of_its_samples_and_of_its_labels(model):
    """Lots of two samples; a label of halves is the mean of the two labels; each lot at a model of its own or not."""
    network, params, images, labels, _ = case({"model": model, "shape": SHAPES[model]})
    hot = one_hot(labels[0], 4).double()
    rows, pairs = network.sample_gradients(params[:1], images[:1], labels[:1])[0], torch.tensor([[0, 1], [2, 0]])
    lots = network.lot_gradients(params[0], images[0][pairs], hot[pairs])
    torch.testing.assert_close(lots, torch.stack([rows[:2].mean(0), rows[[2, 0]].mean(0)]))
    own = network.lot_gradients(params, images[:, :1], hot[None, :1].expand(2, -1, -1))
    ones = network.sample_gradients(params, images[:, :1], labels[:1, :1].expand(2, 1))
    torch.testing.assert_close(own, ones[:, 0])
    halves, other = (hot[:1] + torch.eye(4, dtype=torch.float64)[:1]) / 2, torch.tensor([[0]])
    zero = network.sample_gradients(params[:1], images[:1, :1], other)[0, 0]
    torch.testing.assert_close(network.lot_gradients(params[0], images[:1, :1], halves[None])[0], (rows[0] + zero) / 2)


@pytest.mark.parametrize("model", ["mlp", "lenet"])
@pytest.mark.parametrize("of", [0, 1, 2])
def test_gradients_of_lots_have_the_same_slopes_layer_by_layer_and_mapped(monkeypatch, model, of):
    """By the model, the images and the labels of two lots of two samples."""
    network, params, images, labels, _ = case({"model": model, "shape": SHAPES[model]})
    pairs, hot = torch.tensor([[0, 1], [2, 0]]), one_hot(labels[0], 4).double()
    given = [params[0], images[0][pairs], hot[pairs]]
    slopes = []
    for small in (2**30, 0):
        monkeypatch.setattr("fedassay.fl.models.network._SMALL", small)
        point = given[of].clone().requires_grad_(True)
        rows = network.lot_gradients(*given[:of], point, *given[of + 1 :])
        slopes.append(torch.autograd.grad(rows.square().sum(), point)[0])
        assert not network.lot_gradients(*given).requires_grad
    torch.testing.assert_close(*slopes)


def test_initial_weights_come_from_the_stream_alone_and_inert_ones_start_at_zero():
    plain, audited = (Network(model="lenet", shape=(1, 8, 8), classes=4, inert=inert) for inert in (0, 2))
    first = audited.initial(Streams(1).generator("init"))
    assert first.shape == (audited.layout.dim,)
    assert torch.equal(first[:-2], plain.initial(Streams(1).generator("init")))
    assert first[-2:].tolist() == [0, 0]
    assert not torch.equal(first, audited.initial(Streams(2).generator("init")))


def test_a_network_that_shares_a_module_is_the_one_that_builds_its_own():
    network = Network(model="mlp", shape=SHAPES["mlp"], classes=5)
    assert network.objective.classifies
    own = Network(model="mlp", shape=SHAPES["mlp"], classes=5, inert=2)
    shared = Network(model="mlp", shape=SHAPES["mlp"], classes=5, inert=2).sharing(network)
    assert shared.module is network.module
    assert (shared, shared.layout, shared.objective) == (own, own.layout, own.objective)


def test_the_modules_own_weights_return_after_an_error():
    network = Network(model="mlp", shape=(1, 4, 4), classes=3)
    own = dict(network.module.named_parameters())
    params = network.initial(Streams(0).generator("init"))
    with pytest.raises(RuntimeError):
        network.logits(params, torch.zeros(2, 1, 5, 5))
    assert all(value is own[name] for name, value in network.module.named_parameters())
    assert network.logits(params, torch.zeros(2, 1, 4, 4)).shape == (2, 3)


def test_a_tensor_that_a_model_uses_twice_gets_both_gradients():
    network = Network(model="mlp", shape=(1, 4, 4), classes=16, options={"hidden": 16})
    network.module.hidden.weight = network.module.output.weight
    assert len(network.layout.names) == 3
    params = torch.linspace(-1, 1, network.layout.dim)
    images, labels = torch.rand(1, 5, 1, 4, 4, generator=torch.Generator().manual_seed(0)), torch.arange(5)[None]
    found = network.gradient(params[None], images, labels, torch.full((1, 5), 0.2))[0]
    point = params.clone().requires_grad_()
    (wanted,) = torch.autograd.grad(network.losses(point, images[0], labels[0]).mean(), point)
    torch.testing.assert_close(found, wanted)
