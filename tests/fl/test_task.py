"""Task: who holds what, who stays outside, and which seed decides it."""

from dataclasses import replace

import pytest
import torch
from fedassay.fl.partitions import IID, ByOwner, Dirichlet, OneSample
from fedassay.fl.streams import Streams
from fedassay.fl.task import build_task, noised, redrawn
from numbered_images import TRAIN, numbered_images


@pytest.fixture(scope="module")
def dataset():
    return numbered_images()


@pytest.fixture(scope="module")
def build(dataset):
    def make(seed=0, partition=None, clients=5, samples=None, **more):
        rule, streams = partition or IID(), Streams(seed)
        given = {"model": "logistic", "partition": rule, "clients": clients, "samples": samples, **more}
        return build_task(dataset, **given, streams=streams)

    return make


def names(images):
    """Which training images these are, by their first pixel."""
    return [round(float(pixel) * TRAIN) for pixel in images[:, 0, 0, 0]]


def held(task):
    return [names(task.images[part]) for part in task.parts]


def dealt(task):
    return names(task.images[torch.cat(task.parts)])


@pytest.mark.parametrize("partition", [IID(), Dirichlet(alpha=0.5), OneSample()])
@pytest.mark.parametrize("samples", [None, 20])
def test_no_outsider_is_ever_held_and_no_sample_is_held_twice(build, partition, samples):
    task = build(partition=partition, samples=samples)
    assert len(dealt(task)) == len(set(dealt(task)))
    assert len(task.outsider_labels) == TRAIN // 10
    assert not set(names(task.outsider_images)) & set(names(task.images))


def test_without_a_limit_pool_and_outsiders_are_all_there_is(build, dataset):
    task = build()
    assert sorted(names(task.images) + names(task.outsider_images)) == list(range(TRAIN))
    assert sorted(dealt(task)) == sorted(names(task.images))
    assert torch.equal(task.test_images, dataset.test_images)


def test_labels_stay_with_their_images(build):
    task = build(samples=30)
    assert task.labels.tolist() == [name % 3 for name in names(task.images)]
    assert task.outsider_labels.tolist() == [name % 3 for name in names(task.outsider_images)]


def test_masks_stay_with_their_images(dataset):
    """Each image's mask marks one pixel, which its first pixel numbers."""
    masks = torch.zeros(TRAIN, 16, dtype=torch.bool)
    masks[torch.arange(TRAIN), torch.arange(TRAIN) % 16] = True
    marked = numbered_images(train_masks=masks.reshape(TRAIN, 4, 4))
    task = build_task(marked, model="logistic", partition=IID(), clients=5, streams=Streams(0), samples=30)
    assert task.masks.flatten(1).int().argmax(1).tolist() == [name % 16 for name in names(task.images)]
    assert build_task(dataset, model="logistic", partition=IID(), clients=5, streams=Streams(0)).masks is None


@pytest.fixture(scope="module")
def marked(dataset):
    """The lower half of every image is sensitive, and of a middle grey that noise is not cut at."""
    masks = torch.zeros(TRAIN, 4, 4, dtype=torch.bool)
    masks[:, 2:] = True
    grey = torch.where(masks.unsqueeze(1), torch.tensor(0.5), dataset.train_images)
    return numbered_images(train_images=grey, train_masks=masks)


def test_pixel_noise_lies_on_sensitive_pixels_of_the_pool_and_of_outsiders(marked):
    task = build_task(
        marked, model="logistic", partition=IID(), clients=5, streams=Streams(0), samples=30, pixel_noise=0.05
    )
    clean = build_task(marked, model="logistic", partition=IID(), clients=5, streams=Streams(0), samples=30)
    for noisy, without in ((task.images, clean.images), (task.outsider_images, clean.outsider_images)):
        assert torch.equal(noisy[:, :, :2], without[:, :, :2])
        assert (noisy[:, :, 2:] != without[:, :, 2:]).all()
    assert torch.equal(task.test_images, clean.test_images)
    assert torch.equal(task.private_images, clean.images)
    assert torch.equal(clean.private_images, clean.images)
    assert clean.originals is None


def test_pixel_noise_has_its_size_and_is_cut_to_the_images_range(marked):
    small, huge = (noised(marked, scale, Streams(0))[:, :, 2:] for scale in (0.05, 50.0))
    assert float((small - 0.5).std()) == pytest.approx(0.05, rel=0.15)  # 480 draws: 4.6 standard errors.
    assert set(huge.unique().tolist()) >= {0.0, 1.0}
    assert 0 <= float(huge.min()) <= float(huge.max()) <= 1
    assert torch.equal(noised(marked, 0.05, Streams(0))[:, :, 2:], small)
    assert not torch.equal(noised(marked, 0.05, Streams(1))[:, :, 2:], small)


def test_pixel_noise_needs_a_scale_and_sensitive_pixels(dataset, marked):
    for wrong in (-0.1, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="pixel_noise must be a number >= 0, got"):
            noised(marked, wrong, Streams(0))
    with pytest.raises(ValueError, match="pixel_noise needs a data set that marks sensitive pixels, got toy"):
        noised(dataset, 0.1, Streams(0))


def test_owners_keep_their_images_together(dataset):
    """Image i is of writer i // 4: each of three clients holds five of fifteen writers."""
    known = numbered_images(train_owners=torch.arange(TRAIN) // 4)
    task = build_task(known, model="logistic", partition=ByOwner(), clients=3, streams=Streams(0))
    writers = [{name // 4 for name in names(task.images[part])} for part in task.parts]
    assert [len(group) for group in writers] == [5, 5, 5]
    assert len(set.union(*writers)) == 15
    with pytest.raises(ValueError, match="by_owner needs a data set that names its images' owners, got toy"):
        build_task(dataset, model="logistic", partition=ByOwner(), clients=3, streams=Streams(0))


@pytest.mark.parametrize(("partition", "within"), [(IID(), "all"), (Dirichlet(alpha=0.5), "label")])
def test_a_task_carries_what_its_partition_is_exchangeable_within(build, partition, within):
    assert build(partition=partition).exchangeable == within


def test_samples_limit_the_pool_to_a_random_part_and_leave_the_outsiders_alone(build):
    whole, part = build(), build(samples=20)
    assert len(part.labels) == 20
    assert set(names(part.images)) < set(names(whole.images))
    assert names(part.images) != names(whole.images)[:20]
    assert names(part.outsider_images) == names(whole.outsider_images)


def test_each_client_of_a_one_sample_partition_holds_one_of_the_limited_pool(build):
    task = build(partition=OneSample(), clients=8, samples=8)
    assert task.sizes == (1,) * 8
    assert sorted(dealt(task)) == sorted(names(task.images))


def test_the_seed_decides_outsiders_and_parts_and_nothing_else_does(build):
    first, again, other = build(seed=1), build(seed=1), build(seed=2)
    assert (held(first), names(first.outsider_images)) == (held(again), names(again.outsider_images))
    assert held(first) != held(other)
    assert names(first.outsider_images) != names(other.outsider_images)
    assert names(build(seed=1, clients=3, partition=OneSample()).outsider_images) == names(first.outsider_images)


@pytest.mark.parametrize(
    ("samples", "clients", "message"),
    [
        (55, 5, "samples must be at most 54, the number that toy.* offers, got 55"),
        (4, 5, "clients must be at most 4, the number of samples, got clients 5"),
        (None, 55, "clients must be at most 54, the number of samples, got clients 55"),
        (None, 0, "clients must be >= 1, got 0"),
    ],
)
def test_more_samples_than_exist_are_refused(build, samples, clients, message):
    with pytest.raises(ValueError, match=message):
        build(samples=samples, clients=clients)


def test_restricted_keeps_the_first_clients_and_their_first_samples(build):
    task = build()
    small = task.restricted(clients=2, samples=4)
    assert held(small) == [names[:4] for names in held(task)[:2]]
    assert names(small.outsider_images) == names(task.outsider_images)
    assert task.restricted(clients=99, samples=999).sizes == task.sizes
    assert task.sizes == (11, 11, 11, 11, 10)


@pytest.mark.parametrize(("clients", "samples"), [(0, 4), (2, 0), (-1, 4)])
def test_a_restriction_to_no_client_is_refused(build, clients, samples):
    with pytest.raises(ValueError, match="clients and samples must be >= 1"):
        build().restricted(clients=clients, samples=samples)


def test_inert_weights_stand_behind_the_model_and_change_no_prediction(build):
    task = build()
    audited = task.with_inert(2)
    assert audited.network.layout.dim == task.network.layout.dim + 2 == 4 * 4 * 3 + 3 + 2
    model = audited.network.initial(Streams(0).generator("init"))
    moved = model + torch.tensor([0.0] * 51 + [9.0, -9.0])
    assert audited.utility(moved) == audited.utility(model) == task.utility(model[:-2])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"images": torch.zeros(54, 1, 4, 4, dtype=torch.float64)}, r"images must be .* float32, got .* torch.float64"),
        ({"test_images": torch.zeros(9, 1, 5, 4)}, r"test_images must be \(n, 1, 4, 4\)"),
        ({"outsider_images": torch.zeros(6, 16)}, r"outsider_images must be .*, got \(6, 16\)"),
        ({"labels": torch.zeros(53, dtype=torch.int64)}, r"labels must be int64 of shape \(54,\), got \(53,\)"),
        ({"test_labels": torch.zeros(9)}, "test_labels must be .*, got .* torch.float32"),
        (
            {"masks": torch.ones(54, 4, 4)},
            r"masks must be booleans of shape \(54, 4, 4\), got \(54, 4, 4\) of torch.float32",
        ),
        (
            {"masks": torch.ones(54, 1, 4, 4).bool()},
            r"masks must be booleans of shape \(54, 4, 4\), got \(54, 1, 4, 4\)",
        ),
        ({"parts": (torch.tensor([0, 54]),)}, r"sample indices .*must be in 0\.\.53, got 0 to 54"),
        ({"parts": (torch.tensor([-1]),)}, "got -1 to -1"),
    ],
)
def test_data_that_does_not_fit_the_network_is_refused_before_training(build, change, message):
    with pytest.raises(ValueError, match=message):
        replace(build(), **change)


def test_no_label_noise_leaves_every_label():
    labels = torch.arange(60) % 3
    assert torch.equal(redrawn(labels, 3, 0.0, Streams(0)), labels)


def test_label_noise_redraws_its_share_uniformly():
    labels = torch.zeros(100_000, dtype=torch.int64)
    noisy = redrawn(labels, 10, 0.15, Streams(0))
    assert noisy.dtype == torch.int64
    # One redrawn label in ten is the old one; sd of the share is .0011, of a class's share .0004.
    assert float((noisy != 0).double().mean()) == pytest.approx(0.15 * 0.9, abs=0.005)
    counts = torch.bincount(noisy, minlength=10)[1:] / len(labels)
    assert counts == pytest.approx(0.015 * torch.ones(9).numpy(), abs=0.002)


def test_more_label_noise_keeps_what_less_of_it_drew():
    labels = torch.arange(3000) % 3
    some, more = (redrawn(labels, 3, share, Streams(0)) for share in (0.1, 0.3))
    moved = some != labels
    assert torch.equal(more[moved], some[moved])
    assert int((more != labels).sum()) > int(moved.sum())


def test_members_and_outsiders_share_the_label_noise_and_test_labels_stay(build, dataset):
    clean, noisy = build(), build(label_noise=1.0)
    assert torch.equal(noisy.test_labels, dataset.test_labels)
    assert torch.equal(noisy.images, clean.images)
    assert torch.equal(noisy.outsider_images, clean.outsider_images)
    assert not torch.equal(noisy.labels, clean.labels)
    assert not torch.equal(noisy.outsider_labels, clean.outsider_labels)
    # IID dealing ignores labels: label noise moves no sample to another client.
    assert [part.tolist() for part in noisy.parts] == [part.tolist() for part in clean.parts]


def test_a_smaller_pool_has_the_labels_of_the_larger(build):
    whole, part = build(label_noise=0.5), build(label_noise=0.5, samples=20)
    named = dict(zip(names(whole.images), whole.labels.tolist(), strict=True))
    assert [named[image] for image in names(part.images)] == part.labels.tolist()


def test_seeds_have_label_noise_of_their_own():
    labels = torch.zeros(1000, dtype=torch.int64)
    assert torch.equal(redrawn(labels, 5, 0.5, Streams(0)), redrawn(labels, 5, 0.5, Streams(0)))
    assert not torch.equal(redrawn(labels, 5, 0.5, Streams(0)), redrawn(labels, 5, 0.5, Streams(1)))


@pytest.mark.parametrize("share", [-0.1, 1.1, float("nan")])
def test_label_noise_is_a_probability(build, share):
    with pytest.raises(ValueError, match="label_noise must be a number in"):
        build(label_noise=share)


@pytest.mark.parametrize("partition", [IID(), Dirichlet(alpha=0.5)])
def test_held_out_clients_are_dealt_samples_like_others(dataset, partition):
    """Six hands dealt, two of them kept aside by a stream of its own."""
    kept, all_in = (
        build_task(dataset, model="logistic", partition=partition, clients=6 - out, streams=Streams(0), held_out=out)
        for out in (2, 0)
    )
    assert (len(kept.parts), len(kept.held_out), len(all_in.held_out)) == (4, 2, 0)
    hands = {tuple(part.tolist()) for part in (*kept.parts, *kept.held_out)}
    assert hands == {tuple(part.tolist()) for part in all_in.parts}


@pytest.mark.simulations
def test_each_client_is_held_out_as_often_as_any(dataset):
    """400 seeds, two of five: each 160 +- 10 times; five standard deviations."""
    counts = torch.zeros(5)
    for seed in range(400):
        streams, fields = Streams(seed), {"model": "logistic", "partition": IID()}
        everybody = build_task(dataset, clients=5, streams=streams, **fields).parts
        out = build_task(dataset, clients=3, held_out=2, streams=streams, **fields).held_out
        counts += torch.tensor([any(torch.equal(part, one) for one in out) for part in everybody])
    assert (counts - 160).abs().max() < 50


def test_too_many_held_out_or_fewer_than_none_are_refused(dataset):
    fields = {"model": "logistic", "partition": IID(), "clients": 3, "streams": Streams(0)}
    with pytest.raises(ValueError, match=r"clients \+ held_out must be at most 7, .* got clients 3 and held_out 5"):
        build_task(dataset, samples=7, held_out=5, **fields)
    with pytest.raises(ValueError, match=r"held_out .*must be a whole number >= 0, got -1"):
        build_task(dataset, held_out=-1, **fields)
