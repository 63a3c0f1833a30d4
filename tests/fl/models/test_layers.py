"""A model normalises its input by public constants; images, attacks and every kind of gradient agree about it.

Dropout in training: factors from a named stream that can be repeated, and never PyTorch's own draws.

Dropout with a seed per sample: rates, independence and equal masks in a batch, alone and mapped.

Imprint layer: what it measures, where its thresholds lie, and that a planted model trains like another.
"""

import numpy as np
import pytest
import torch
from digits_federation import UNDEFENDED, received
from fedassay.attacks.attack import Knowledge
from fedassay.attacks.gradient.analytic_linear import AnalyticLinear
from fedassay.fl.algorithms import FedAvg, FedSGD
from fedassay.fl.data.datasets import load_dataset
from fedassay.fl.models.layers import (
    Dropout,
    Normalisation,
    SeededDropout,
    SeededModel,
    direction,
    normalisation_from,
    planted,
    thresholds,
    with_seeded_dropout,
)
from fedassay.fl.models.network import Network
from fedassay.fl.models.small_models import build_model
from fedassay.fl.partitions import OneSample
from fedassay.fl.protection import Protection
from fedassay.fl.sampling import Full, Poisson, lot_indices
from fedassay.fl.streams import Streams, normal, uniform
from fedassay.fl.task import build_task
from torch import nn
from torch.func import functional_call, vmap
from torch.nn.functional import conv2d, cross_entropy, leaky_relu
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


SHAPE, CLASSES, FEATURES = (1, 8, 8), 3, 12 * 4 * 4
SEED = 3


class PerSample(Protection):
    """No protection, taken the long way: per-sample gradients and their mean."""

    per_sample = True


def naive_gradient(network, params, images, labels, factors):
    """Of the mean loss of one lot, written down: two convolutions, the features times their factors, a linear layer."""
    point = params.clone().requires_grad_(True)
    layers = network.layout.unflatten(point)
    maps = leaky_relu(conv2d(images, layers["conv1.weight"], layers["conv1.bias"], stride=2, padding=2))
    maps = leaky_relu(conv2d(maps, layers["conv2.weight"], layers["conv2.bias"], stride=1, padding=2))
    logits = (maps.flatten(1) * factors) @ layers["output.weight"].T + layers["output.bias"]
    (gradient,) = torch.autograd.grad(cross_entropy(logits, labels), point)
    return gradient


def factors_of(client, number, step, shape, *, block=0, arm=0):
    """From the stream's name alone: a uniform number of at least 1/2 keeps a feature, and doubles it."""
    rng = Streams(SEED).generator("dropout", replicate=block, arm=arm, round=number, client=client, step=step)
    return 2.0 * torch.from_numpy(rng.random((*shape, FEATURES), dtype=np.float32) >= 0.5)


def case(replicas, samples=4):
    network = Network(model="lenet_dropout", shape=SHAPE, classes=CLASSES, inert=2)
    rng = Streams(6).generator("case")
    params = 0.2 * normal(rng, (replicas, network.layout.dim), dtype=torch.float64)
    images = uniform(rng, (replicas, samples, *SHAPE), dtype=torch.float64)
    labels = torch.from_numpy(rng.integers(CLASSES, size=(replicas, samples)))
    return network, params, images, labels, network.draw_dropout(rng, (replicas, samples)).double()


@pytest.mark.parametrize("lot", [Full(), Poisson(0.4)], ids=str)
@pytest.mark.parametrize("protection", [Protection(), PerSample()], ids=["sum", "per_sample"])
def test_a_clients_round_is_repeated_from_the_names_of_its_streams(make_task, trained, lot, protection):
    """Two rounds of two local steps in two replicas: every update is that of the plain loop with the stream's draws."""
    task, algorithm = make_task((4, 6), model="lenet_dropout", side=8), FedAvg(learning_rate=0.1, local_steps=2)
    done = trained(protection, task=task, seed=SEED, replicas=2, rounds=2, lot=lot, algorithm=algorithm)
    for number, event in enumerate(done.events):
        for row, client in enumerate(event.reports.senders):
            local = start = event.broadcast
            for step, mask in enumerate(event.lots[client]):
                chosen, real = lot_indices(mask)
                factors = factors_of(client, number, step, tuple(chosen.shape))
                moved = []
                for r in range(2):
                    drawn = task.parts[client][chosen[r][real[r]]]
                    held = task.images[drawn], task.labels[drawn], factors[r][real[r]]
                    gradient = naive_gradient(task.network, local[r], *held) if len(drawn) else torch.zeros(1)
                    moved.append(local[r] - 0.1 * gradient)
                local = torch.stack(moved)
            torch.testing.assert_close(event.reports.values[:, row], local - start, rtol=1e-4, atol=1e-5)


def test_draws_differ_between_rounds_clients_steps_blocks_arms_and_replicas():
    """With the test above, which ties the engine to these names."""
    names = [(client, number, step, block, arm) for client in (0, 1) for number in (0, 1) for step in (0, 1)
             for block in (0, 1) for arm in (0, 1)]  # fmt: skip
    drawn = [factors_of(c, n, s, (2, 3), block=b, arm=w) for c, n, s, b, w in names]
    rows = torch.cat(drawn).flatten(1)
    assert len(rows.unique(dim=0)) == len(rows) == 64


def test_half_of_the_features_are_dropped_and_the_others_doubled():
    """20,000 coins: the share is within 4 standard deviations, .0141, of one half; missed once in 16,000 seeds."""
    drawn = Dropout(100).draw(np.random.default_rng(0), (4, 50))
    assert drawn.shape == (4, 50, 100)
    assert drawn.unique().tolist() == [0, 2]
    assert float((drawn == 0).float().mean()) == pytest.approx(0.5, abs=0.0142)


def test_without_factors_nothing_is_dropped():
    network, params, images, *_ = case(1)
    plain = Network(model="lenet", shape=SHAPE, classes=CLASSES, inert=2)
    assert torch.equal(network.logits(params[0], images[0]), plain.logits(params[0], images[0]))


def test_neither_training_nor_evaluation_moves_the_global_generators(make_task, trained):
    task = make_task((4, 6), model="lenet_dropout", side=8)
    before, numpy_before = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    task.utility(trained(PerSample(), task=task, seed=SEED).final[0])
    assert torch.equal(torch.get_rng_state(), before)
    np.testing.assert_array_equal(np.random.get_state()[1], numpy_before)  # noqa: NPY002


def seeds(count):
    return torch.from_numpy(Streams(4).generator("dropout").integers(2**63, size=(count, 1)))


def dropped(layer, features, given):
    layer.begin(given)
    return layer(features)


def test_masks_are_the_same_in_a_batch_alone_and_mapped():
    layer, features, given = SeededDropout(0.3, 0), torch.rand(5, 4, 6), seeds(5)
    batch = dropped(layer, features, given)
    alone = torch.cat([dropped(layer, features[i : i + 1], given[i : i + 1]) for i in range(5)])
    mapped = vmap(lambda x, seed: dropped(layer, x[None], seed[None])[0])(features, given)
    assert torch.equal(batch, alone)
    assert torch.equal(batch, mapped)


def test_a_feature_is_dropped_with_the_rate_and_the_mean_is_kept():
    layer = SeededDropout(0.3, 0)
    kept = dropped(layer, torch.ones(400, 250), seeds(400))
    assert kept.unique().tolist() == pytest.approx([0.0, 1 / 0.7])
    # A hundred thousand coins: five standard deviations.
    assert float((kept == 0).float().mean()) == pytest.approx(0.3, abs=5 * (0.21 / 1e5) ** 0.5)


def test_samples_layers_calls_and_neighbouring_places_draw_independently():
    given, ones = seeds(400), torch.ones(400, 250)
    first, second = SeededDropout(0.5, 0), SeededDropout(0.5, 1)
    one = dropped(first, ones, given)
    again = first(ones)
    masks = [mask.sub(1) for mask in (one, again, dropped(second, ones, given))]
    masks += [masks[0].roll(1, 0), masks[0].roll(1, 1)]
    for number, mask in enumerate(masks):
        for other in masks[:number]:
            # The mean of a hundred thousand products of +-1.
            assert abs(float((mask * other).mean())) < 5 / 1e5**0.5


def test_whole_channels_are_dropped_where_pytorch_would():
    model = with_seeded_dropout(nn.Sequential(nn.Dropout2d(0.5)))
    found = model(torch.ones(50, 8, 3, 3), seeds(50)).flatten(2)
    assert torch.equal(found.amin(2), found.amax(2))
    assert 0.3 < float((found[..., 0] == 0).float().mean()) < 0.7


def test_without_seeds_nothing_is_dropped_and_a_model_without_dropout_is_unchanged():
    model = with_seeded_dropout(nn.Sequential(nn.Linear(3, 2), nn.Dropout(0.9)))
    images = torch.rand(4, 3)
    assert torch.equal(model(images), model.model[0](images))
    model(images, seeds(4))
    assert torch.equal(model(images), model.model[0](images))
    plain = nn.Sequential(nn.Linear(3, 2))
    assert with_seeded_dropout(plain) is plain


def test_seeds_are_repeated_by_their_stream():
    model = with_seeded_dropout(nn.Sequential(nn.Dropout(0.25), nn.Dropout(0.5)))
    assert isinstance(model, SeededModel)
    assert model.rate == 0.5
    draws = [model.draw(Streams(1).generator("dropout"), (2, 3)) for _ in range(2)]
    assert torch.equal(*draws)
    assert draws[0].shape == (2, 3, 1)
    assert len(draws[0].unique()) == 6


def test_a_layer_that_does_not_see_the_batch_first_is_refused():
    layer = SeededDropout(0.5, 0)
    with pytest.raises(ValueError, match=r"first dimension .* got input \(7, 2\) for 3 samples"):
        dropped(layer, torch.ones(7, 2), seeds(3))


IMPRINTED = (1, 3, 3)


@pytest.fixture
def public() -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(0).random((80, *IMPRINTED), dtype=np.float32))


def test_bins_hold_equal_shares_of_the_public_images(public: torch.Tensor) -> None:
    measured = public.flatten(1).double() @ direction(9)
    held = torch.bucketize(measured, torch.tensor(thresholds(public, 8), dtype=torch.float64))
    assert torch.bincount(held).tolist() == [0] + [10] * 8  # Nothing lies below the first threshold.


def test_no_image_measures_less_than_the_first_threshold(public: torch.Tensor) -> None:
    darkest = (direction(9) < 0).double()
    assert -1 < float(darkest @ direction(9)) < 0
    assert thresholds(public, 8)[0] == -1.0


def test_two_digits_measure_alike_in_brightness_and_not_by_the_direction() -> None:
    images = load_dataset("digits").train_images.flatten(1).double()
    brightness = images.sum(1).mul(16).round()
    assert len(brightness.unique()) < len(images) / 4
    assert len((images @ direction(64)).unique()) > 0.99 * len(images)


def test_rows_are_lit_above_their_threshold_and_brighten_the_image_by_their_mean(public: torch.Tensor) -> None:
    """Hand-computed: (sum over rows of relu(h - t)) / rows is added to each pixel."""
    limits = thresholds(public, 4)
    module = build_model("imprint", shape=IMPRINTED, classes=3, bins=4).get_submodule("imprint")
    own = {name.removeprefix("imprint."): value for name, value in planted(IMPRINTED, limits).items()}
    seen = functional_call(module, own, (public,))
    measured = public.flatten(1).double() @ direction(9)
    added = (measured[:, None] - torch.tensor(limits, dtype=torch.float64)).clamp_min(0).mean(1)
    torch.testing.assert_close(seen.double(), public.double() + added.view(-1, 1, 1, 1), atol=1e-6, rtol=0)


def test_a_sample_moves_every_row_that_it_lights_alike_and_no_other(public: torch.Tensor) -> None:
    network = Network(model="imprint", shape=IMPRINTED, classes=3, bins=thresholds(public, 8))
    model = network.initial(np.random.default_rng(1))
    rows = network.sample_gradients(model[None], public[None, :5], torch.tensor([[0, 1, 2, 0, 1]]))[0]
    biases = network.layout.unflatten(rows)["imprint.bins.bias"]
    lit = (public[:5].flatten(1).double() @ direction(9))[:, None] > torch.tensor(network.bins, dtype=torch.float64)
    assert torch.equal(biases != 0, lit)
    for row, mask in zip(biases, lit, strict=True):
        torch.testing.assert_close(row[mask], row[mask][:1].expand(int(mask.sum())), atol=0, rtol=1e-5)


def test_the_model_behind_starts_where_it_would_without_a_trap(public: torch.Tensor) -> None:
    """Only the trap is the server's choice: the rest is drawn as every model's is."""
    network = Network(model="imprint", shape=IMPRINTED, classes=3, bins=thresholds(public, 8))
    first, other = (network.layout.unflatten(network.initial(np.random.default_rng(seed))) for seed in (1, 2))
    same = {name for name in first if torch.equal(first[name], other[name])}
    assert same == set(planted(IMPRINTED, network.bins))


@pytest.mark.parametrize(("model", "bins"), [("imprint", ()), ("mlp", (-1.0, 0.0))])
def test_thresholds_belong_to_a_model_with_an_imprint_layer(model: str, bins: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match=f"must be given for model imprint and no other, got {len(bins)} for {model}"):
        Network(model=model, shape=IMPRINTED, classes=3, bins=bins)
