"""Candidates of membership attacks: their truth is kept apart, and canaries can be planted."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from fedassay.fl.candidates import Candidates, plant_candidates
from fedassay.fl.streams import Streams


def rng(seed=0):
    return Streams(seed).generator("candidates")


def test_members_are_the_clients_own_samples_and_nonmembers_are_outsiders(make_task):
    task = make_task((6, 10, 3, 5))
    planted = plant_candidates(task, count=5, clients=[1], rng=rng())
    assert planted.member.sum() == 5
    assert len(set(planted.sample[planted.member])) == 5
    assert planted.shown.clients == (1,)
    for image, label, sample in zip(planted.shown.images, planted.shown.labels, planted.sample, strict=True):
        outside = bool((task.outsider_images == image).flatten(1).all(1).any())
        assert outside == (sample < 0)
        if sample >= 0:
            place = task.parts[1][sample]
            assert torch.equal(task.images[place], image)
            assert task.labels[place] == label


def test_the_order_of_the_candidates_reveals_nothing(make_task):
    task = make_task((6, 10, 3, 5))
    places = np.stack([plant_candidates(task, count=2, clients=[0], rng=rng(seed)).member for seed in range(400)])
    # Each place is a member's half of the time: 400 draws, four places, five standard errors.
    assert np.abs(places.mean(0) - 0.5).max() < 5 * 0.5 / 20


@pytest.mark.parametrize("within", ["all", "label"])
def test_what_is_shown_holds_no_truth(make_task, within):
    task = replace(make_task(), exchangeable=within)
    shown = plant_candidates(task, count=2, clients=[1], rng=rng()).shown
    assert set(vars(shown)) == {"images", "labels", "clients"}


@pytest.mark.parametrize(
    ("count", "client", "message"),
    [
        (4, 2, r"must be in 1\.\.3, got 4; client 2 has 3 samples"),
        (8, 1, r"must be in 1\.\.7, got 8; .* there are 7 non-members"),
        (0, 1, "got 0"),
        (1, 4, r"client must be in 0\.\.3, got 4"),
        (1, -1, r"client must be in 0\.\.3, got -1"),
    ],
)
def test_more_candidates_than_there_are_or_no_such_client_is_refused(make_task, count, client, message):
    with pytest.raises(ValueError, match=message):
        plant_candidates(make_task((6, 10, 3, 5)), count=count, clients=[client], rng=rng())


def test_outsiders_are_drawn_once_for_all_clients(make_task):
    """If drawn anew for each client they would be recognisable by that alone: AUC .775 became .879 in a public code."""
    task = make_task((6, 10, 4, 5))
    planted = plant_candidates(task, count=3, clients=[0, 1, 3], rng=rng())
    assert planted.shown.clients == (0, 1, 3)
    assert np.bincount(planted.holder[planted.member]).tolist() == [3, 3, 0, 3]
    assert (~planted.member).sum() == min(9, len(task.outsider_labels))
    for image, holder, sample in zip(planted.shown.images, planted.holder, planted.sample, strict=True):
        home = task.outsider_images if holder < 0 else task.images[task.parts[holder][sample : sample + 1]]
        assert (home == image).flatten(1).all(1).any()


def skewed(make_task, sizes=(6, 10, 3, 5)):
    return replace(make_task(sizes), exchangeable="label")


def test_under_label_skew_each_outsider_stands_in_for_a_member_of_its_label(make_task):
    task = skewed(make_task)
    planted = plant_candidates(task, count=2, clients=[0, 1], rng=rng())
    labels, member = planted.shown.labels.numpy(), planted.member
    assert planted.stands_for[member].tolist() == [-1] * 4
    for client in (0, 1):
        ours, theirs = labels[planted.holder == client], labels[planted.stands_for == client]
        assert sorted(ours.tolist()) == sorted(theirs.tolist())
        assert len(ours) == 2
    places = [
        int((task.outsider_images == image).flatten(1).all(1).nonzero()) for image in planted.shown.images[~member]
    ]
    assert len(set(places)) == 4
    assert (task.outsider_labels[places].numpy() == labels[~member]).all()


def test_any_outsider_of_the_label_stands_in_equally_often(make_task):
    task = skewed(make_task)
    label = int(task.labels[task.parts[0]][0])
    there = np.flatnonzero(task.outsider_labels.numpy() == label)
    assert len(there) > 1
    drawn = np.zeros(len(task.outsider_labels))
    for seed in range(600):
        shown = plant_candidates(task, count=1, clients=[0], rng=rng(seed))
        image = shown.shown.images[~shown.member]
        drawn[(task.outsider_images == image).flatten(1).all(1).numpy()] += 1
    # Of about 200 draws and more each; five standard errors of a share.
    shares = drawn[there] / drawn[there].sum()
    assert np.abs(shares - 1 / len(there)).max() < 5 * 0.5 / drawn[there].sum() ** 0.5


def test_too_few_outsiders_of_a_label_are_refused(make_task):
    task = skewed(make_task)
    task = replace(task, labels=torch.zeros_like(task.labels), outsider_labels=torch.tensor([0, 0, 0, 1, 1, 1, 2]))
    message = "at least 4 non-members must have label 0, one per member with this label, got 3: lower count"
    with pytest.raises(ValueError, match=message):
        plant_candidates(task, count=2, clients=[0, 1], rng=rng())
    assert plant_candidates(task, count=3, clients=[0], rng=rng()).member.sum() == 3


def test_without_exchangeable_outsiders_there_is_nothing_to_plant(make_task):
    with pytest.raises(ValueError, match="no non-members comparable to a client's samples"):
        plant_candidates(replace(make_task(), exchangeable="none"), count=2, clients=[0], rng=rng())


def test_without_skew_outsiders_are_what_they_were(make_task):
    """Known draws: the choice of candidates must not change with what other partitions need."""
    planted = plant_candidates(make_task((6, 10, 3, 5)), count=2, clients=[0, 1], rng=rng())
    assert planted.stands_for is None
    assert planted.holder.tolist() == [-1, -1, -1, 1, -1, 1, 0, 0]
    assert planted.sample.tolist() == [-1, -1, -1, 3, -1, 8, 4, 5]


@pytest.mark.parametrize("clients", [(), (1, 1)])
def test_clients_in_question_are_named_once(clients):
    with pytest.raises(ValueError, match="clients must list at least one client, and none twice"):
        Candidates(images=torch.zeros(2, 1, 1, 1), labels=torch.zeros(2).long(), clients=clients)
