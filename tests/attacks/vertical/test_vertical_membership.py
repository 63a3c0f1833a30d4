"""Membership by losses under the final models: what overfitting shows, and that it alone shows something."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from fedassay.attacks.vertical.random_membership import RandomMembership
from fedassay.attacks.vertical.vertical_membership import VerticalMembership
from fedassay.audit.metrics import ScoresByRun, area
from fedassay.audit.observer import FINAL_MODEL
from fedassay.fl.vertical.network import VerticalNetwork
from fedassay.fl.vertical.task import People
from torch.nn.functional import cross_entropy
from vertical_adversary import drawn_task, observed

RNG = np.random.default_rng(11)
NETWORK = VerticalNetwork(widths=(20, 20), classes=2, embedding=6, hidden=(10,))
BOTH = [VerticalMembership(), VerticalMembership(calibration="public")]
COUNT = 60


def federation(epochs):
    """60 members, 60 people who are not, and 140 other public people; labels are independent of columns."""
    task, plan = drawn_task(NETWORK, COUNT, signal=0.0, public=200, epochs=epochs, batch=20, learning_rate=0.5)
    outside, public = task.public.chosen(torch.arange(COUNT)), task.public.chosen(torch.arange(COUNT, 200))
    columns = tuple(torch.cat(pair) for pair in zip(task.people.columns, outside.columns, strict=True))
    both = People(columns=columns, labels=torch.cat([task.people.labels, outside.labels]))
    return observed(task, plan, observer=FINAL_MODEL, candidates=both, public=public)


def area_of(attack, seen, member=slice(0, COUNT), nonmember=slice(COUNT, None)):
    values = attack.run(seen.view, seen.knowledge, RNG).values
    return area(ScoresByRun.of(values[member], values[nonmember]))


@pytest.mark.parametrize("attack", BOTH)
def test_members_of_an_overfitted_federation_have_low_losses(attack):
    assert area_of(attack, federation(60)) > 0.9


@pytest.mark.parametrize("attack", [*BOTH, RandomMembership()])
def test_people_of_whom_none_took_part_are_alike(attack):
    """The halves of those outside: the area of 30 and 30 scores is within 4 standard deviations, .3, of 1/2 (6e-5)."""
    found = area_of(attack, federation(60), slice(COUNT, COUNT + 30), slice(COUNT + 30, None))
    assert abs(found - 0.5) < 4 * np.sqrt(61 / (12 * 30 * 30))


def test_the_score_is_the_loss_of_all_parties_models():
    seen = federation(2)
    shown = seen.knowledge.candidates
    values = VerticalMembership().run(seen.view, seen.knowledge, RNG).values
    outputs = [
        bottom.forward(layers, rows.unsqueeze(0))[0]
        for bottom, layers, rows in zip(NETWORK.bottoms, seen.final.bottoms, shown.columns, strict=True)
    ]
    logits, _ = NETWORK.logits(seen.final.top, tuple(outputs))
    np.testing.assert_allclose(-values, cross_entropy(logits[0], shown.labels, reduction="none").numpy(), atol=1e-5)


def test_calibrated_scores_are_ranks_among_public_people_of_the_class():
    seen = federation(5)
    found = VerticalMembership(calibration="public").run(seen.view, seen.knowledge, RNG).values
    losses = -VerticalMembership().run(seen.view, seen.knowledge, RNG).values
    asked = replace(seen.knowledge, candidates=seen.knowledge.public)
    public, labels = -VerticalMembership().run(seen.view, asked, RNG).values, seen.knowledge.public.labels.numpy()
    for person in (0, 50, 100):
        same = public[labels == int(seen.knowledge.candidates.labels[person])]
        assert found[person] == pytest.approx((same > losses[person]).mean())


def test_a_class_without_public_people_is_ranked_among_all():
    seen = federation(5)
    zeros = seen.knowledge.public.chosen(seen.knowledge.public.labels == 0)
    found = VerticalMembership(calibration="public").run(seen.view, replace(seen.knowledge, public=zeros), RNG)
    assert ((found.values >= 0) & (found.values <= 1)).all()


@pytest.mark.parametrize("attack", [*BOTH, RandomMembership()])
def test_without_candidates_there_is_nothing_to_score(attack):
    seen = federation(1)
    with pytest.raises(ValueError, match="needs candidates"):
        attack.run(seen.view, replace(seen.knowledge, candidates=None), RNG)


def test_an_unknown_calibration_is_refused():
    with pytest.raises(ValueError, match='"none" or "public"'):
        VerticalMembership(calibration="all")
