"""U-Net and segmentation: sizes by hand, gradients as autograd gives them, pixels counted by hand."""

import pytest
import torch
from fedassay.fl.data.dataset import Dataset
from fedassay.fl.models.architectures.unet import _spread, doubled
from fedassay.fl.models.network import Network
from fedassay.fl.models.small_models import build_model
from fedassay.fl.partitions import IID
from fedassay.fl.streams import Streams, normal, uniform
from fedassay.fl.task import build_task
from fedassay.fl.utility import Outcomes, utility_of
from torch.func import functional_call, grad, jacfwd, jacrev
from torch.nn.functional import binary_cross_entropy_with_logits

SHAPE = (1, 16, 16)


def case(replicas=1, dtype=torch.float64):
    network = Network(model="unet", shape=SHAPE, classes=2, inert=3)
    rng = Streams(4).generator("case")
    params = 0.05 * normal(rng, (replicas, network.layout.dim), dtype=dtype)
    images = uniform(rng, (replicas, 4, *SHAPE), dtype=dtype)
    targets = uniform(rng, (replicas, 4, *SHAPE[1:])) < 0.3
    return network, params, images, targets


def dataset(**changes):
    rng = Streams(0).generator("pictures")
    fields = {
        "name": "pictures",
        "train_images": uniform(rng, (40, *SHAPE)),
        "train_labels": torch.arange(40) % 2,
        "test_images": uniform(rng, (6, *SHAPE)),
        "test_labels": torch.arange(6) % 2,
        "classes": 2,
        "train_targets": uniform(rng, (40, *SHAPE[1:])) < 0.3,
        "test_targets": uniform(rng, (6, *SHAPE[1:])) < 0.3,
    }
    return Dataset(**(fields | changes))


def task(given=None, **changes):
    fields = {"model": "unet", "partition": IID(), "clients": 3, "streams": Streams(0)}
    return build_task(given or dataset(), **(fields | changes))


def test_the_unet_has_its_parameters_and_a_logit_for_each_pixel():
    """4x4: 1 -> 16; 3x3: 16 -> 24 -> 32 -> 48, then 48 + 32 -> 32, 32 + 24 -> 24, 24 + 16 -> 16, and 16 -> 4."""
    pairs = [(16, 24), (24, 32), (32, 48), (80, 32), (56, 24), (40, 16), (16, 4)]
    model = build_model("unet", shape=(1, 64, 128), classes=2)
    assert (
        sum(p.numel() for p in model.parameters()) == (16 + 1) * 16 + sum((9 * a + 1) * b for a, b in pairs) == 66_116
    )
    assert model(torch.zeros(3, 1, 64, 128)).shape == (3, 64, 128)
    assert [name for name, _ in model.named_parameters()][-2:] == ["output.weight", "output.bias"]


def test_enlarging_repeats_each_pixel_twice_down_and_twice_across():
    features = uniform(Streams(0).generator("features"), (2, 3, 2, 5))
    assert torch.equal(doubled(features), features.repeat_interleave(2, 2).repeat_interleave(2, 3))


def test_the_four_logits_of_a_place_stand_at_its_four_pixels():
    features = torch.arange(24.0).view(1, 4, 2, 3)
    assert torch.equal(_spread(features), torch.nn.functional.pixel_shuffle(features, 2)[:, 0])


def test_the_loss_is_the_mean_cross_entropy_of_pixels_by_hand():
    network, params, images, targets = case()
    logits = network.logits(params[0], images[0])
    chances = torch.where(targets[0], torch.sigmoid(logits), 1 - torch.sigmoid(logits))
    expected = -chances.log().mean((1, 2))
    torch.testing.assert_close(network.losses(params[0], images[0], targets[0]), expected)
    lots = network.lot_gradients(params[0], images, targets.double())
    mean = network.sample_gradients(params, images, targets).mean(1)
    torch.testing.assert_close(lots, mean, rtol=1e-9, atol=1e-12)


@pytest.mark.simulations
def test_gradients_differentiate_by_the_image_forward_and_backward_alike():
    network, params, images, targets = case()

    def row(image):
        def loss(point):
            named = network.layout.unflatten(point)
            return binary_cross_entropy_with_logits(
                functional_call(network.module, named, (image.unsqueeze(0),)), targets[0, :1].double()
            )

        return grad(loss)(params[0])[:20]

    ahead, back = jacfwd(row)(images[0, 0]), jacrev(row)(images[0, 0])
    torch.testing.assert_close(ahead, back, rtol=1e-9, atol=1e-12)
    assert ahead.abs().max() > 1e-6


@pytest.mark.parametrize(
    ("shape", "classes", "words"), [((1, 16, 24), 2, "multiples of 16"), ((1, 16, 16), 3, "two classes")]
)
def test_images_that_cannot_be_halved_and_more_classes_are_refused(shape, classes, words):
    with pytest.raises(ValueError, match=words):
        build_model("unet", shape=shape, classes=classes)


def of_pixels(found, wanted):
    """The utility of these marked pixels without its last metric, the loss."""
    return utility_of(Outcomes(found=found, wanted=wanted, losses=torch.zeros(len(wanted)), task="segmentation"))[:-1]


def test_nothing_marked_has_no_precision_and_nothing_to_find_no_recall():
    none, some = torch.zeros(1, 2, 2, dtype=torch.bool), torch.tensor([[[True, False], [False, False]]])
    unmarked = {row.metric: row.value for row in of_pixels(none, some)}
    assert unmarked == {"iou": 0, "precision": None, "recall": 0, "f_score": 0}
    assert "marks no pixel" in of_pixels(none, some)[1].reason
    assert {row.metric: row.value for row in of_pixels(some, none)} == {
        "iou": 0,
        "precision": 0,
        "recall": None,
        "f_score": 0,
    }
    assert all(row.value is None and row.reason for row in of_pixels(none, none))
    with pytest.raises(ValueError, match=r"found .*must have the shape"):
        of_pixels(none, some[:, :1])


def test_a_segmenters_labels_are_the_targets_and_the_classifiers_stay_the_labels():
    given = dataset()
    pixels, classes = task(given), task(given, model="logistic")
    assert torch.equal(pixels.images, classes.images)
    assert [part.tolist() for part in pixels.parts] == [part.tolist() for part in classes.parts]
    assert classes.labels.shape == (36,)
    assert pixels.labels.shape == (36, *SHAPE[1:])
    for image, target in zip(pixels.images, pixels.labels, strict=True):
        place = (given.train_images == image).flatten(1).all(1).nonzero().item()
        assert torch.equal(target, given.train_targets[place])
    assert torch.equal(pixels.test_labels, given.test_targets)
    model = pixels.network.initial(Streams(0).generator("init"))
    found = pixels.network.logits(model, pixels.test_images) > 0
    *shares, loss = pixels.utility(model)
    assert tuple(shares) == of_pixels(found, given.test_targets)
    each = pixels.network.losses(model, pixels.test_images, given.test_targets)
    assert (loss.metric, loss.value) == ("loss", float(each.double().mean()))
    assert [row.metric for row in classes.utility(classes.network.initial(Streams(0).generator("init")))] == [
        "accuracy",
        "loss",
    ]


def test_a_segmenter_without_targets_or_with_noisy_labels_is_refused():
    with pytest.raises(ValueError, match="needs a data set with targets for each pixel, got pictures"):
        task(dataset(train_targets=None))
    with pytest.raises(ValueError, match="label_noise must be 0 for a segmentation, "):
        task(label_noise=0.1)
