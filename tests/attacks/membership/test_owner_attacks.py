"""Who ever took part: clients and writers, against those that were dealt samples and never came."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from digits_federation import received
from fedassay.attacks.attack import Undefined
from fedassay.attacks.membership.client_loss import ClientLoss
from fedassay.attacks.membership.client_membership import ClientMembership
from fedassay.attacks.membership.random_people import RandomPeople
from fedassay.attacks.membership.writer_membership import WriterMembership
from fedassay.audit.observer import AGGREGATE, FINAL_MODEL, GLOBAL_MODELS, SHUFFLED, UPLOADS, Observer
from fedassay.defenses.client_level.dp_fedavg import DPFedAvgProtection
from fedassay.fl.candidates import plant_clients, plant_users
from fedassay.fl.protection import Protection
from fedassay.suites.scoring.membership_rows import auc
from torch.nn.functional import cross_entropy


@pytest.fixture
def attacked(toy_task, toy_plan, knowledge_of):
    """(attack, observer, changes) -> evidence, view, planted and task: four clients take part, four are held out."""

    def run(attack, observer=AGGREGATE, *, protection=None, seed=0, **changes):
        task = toy_task((4,) * 8, held_out=4, seed=seed, side=6)
        plan, protection = toy_plan(task, **changes), protection or Protection()
        planted = attack.plant(task, np.random.default_rng(seed))
        view = received(task, plan, protection, observer=observer, seed=seed)
        knowledge = knowledge_of(task, plan, protection, candidates=planted.shown)
        return attack.run(view, knowledge, np.random.default_rng(seed)), view, planted, task

    return run


def mean_area(attacked, attack, *args, **changes):
    """Over 20 federations."""
    found = [attacked(attack, *args, seed=seed, **changes) for seed in range(20)]
    return np.mean([auc(evidence.against(planted.member)) for evidence, _, planted, _ in found])


@pytest.mark.simulations
@pytest.mark.parametrize("attack", [ClientMembership(), WriterMembership()])
@pytest.mark.parametrize("observer", [AGGREGATE, GLOBAL_MODELS, SHUFFLED])
def test_without_noise_participation_is_found(attack, observer, attacked):
    """20 federations of four and four clients, or eight and eight writers: a coin's mean is below .7."""
    assert mean_area(attacked, attack, observer) > 0.7


@pytest.mark.simulations
def test_who_took_part_is_fitted_better_by_the_last_model(attacked):
    """As above, of many rounds."""
    assert mean_area(attacked, ClientLoss(), FINAL_MODEL, rounds=40) > 0.7


@pytest.mark.parametrize("attack", [ClientMembership(), WriterMembership(), ClientLoss(), RandomPeople()])
def test_under_noise_or_by_chance_it_is_a_coin(attack, attacked):
    """20 areas of four and four: their mean deviates by .05 at most; four standard errors."""
    loud = DPFedAvgProtection(clip_norm=1e-3, noise_multiplier=1000.0)
    assert mean_area(attacked, attack, protection=loud) == pytest.approx(0.5, abs=0.2)


def test_scores_are_cosines_with_each_ones_mean_gradient(attacked):
    evidence, view, planted, task = attacked(ClientMembership())
    expected = np.zeros(8)
    for seen in view.rounds:
        for person in range(8):
            mine = planted.shown.owner == person
            point = seen.broadcast[0].clone().requires_grad_(True)
            loss = cross_entropy(task.network.logits(point, planted.shown.images[mine]), planted.shown.labels[mine])
            (gradient,) = torch.autograd.grad(loss, point)
            expected[person] += float(torch.cosine_similarity(-seen.aggregate[0], gradient, dim=0)) / 3
    np.testing.assert_allclose(evidence.values, expected, rtol=1e-4, atol=1e-6)


def test_a_clients_loss_is_the_mean_of_its_samples_at_the_last_model(attacked):
    evidence, view, planted, task = attacked(ClientLoss(), FINAL_MODEL)
    for person, score in enumerate(evidence.values):
        mine = planted.shown.owner == person
        loss = cross_entropy(
            task.network.logits(view.final_model[0], planted.shown.images[mine]), planted.shown.labels[mine]
        )
        assert score == pytest.approx(-float(loss), rel=1e-5)


def test_the_server_that_sees_names_has_nothing_to_infer_about_clients(attacked):
    for observer in (UPLOADS, Observer("aggregate", sees_participation=True)):
        with pytest.raises(Undefined, match="observes which clients take part"):
            attacked(ClientMembership(), observer)


def test_a_writer_may_be_with_any_client(attacked):
    evidence, _view, planted, _ = attacked(WriterMembership(), UPLOADS, rounds=1)
    shuffled = attacked(WriterMembership(), SHUFFLED, rounds=1)[0]
    np.testing.assert_allclose(evidence.values, shuffled.values, rtol=1e-5)
    assert auc(evidence.against(planted.member)) > 0.8


def counts(planted):
    return torch.bincount(planted.shown.owner).tolist()


@pytest.mark.parametrize("seed", range(5))
def test_an_owners_number_of_samples_does_not_show(seed, toy_task):
    """The plan publishes sizes: another number of samples would reveal a non-member, at AUC .9 under label skew."""
    task = toy_task((3, 4, 5, 6, 7), held_out=2)
    planted = plant_clients(task, count=9, rng=np.random.default_rng(seed))
    # All owners that are held out, and two of three that take part: the least number is of those shown.
    assert counts(planted) in ([3] * 4, [4] * 4)
    sides = {True: task.parts, False: task.held_out}
    for person, member in enumerate(planted.member):
        images = planted.shown.images[planted.shown.owner == person]
        homes = [
            [bool((task.images[part] == image).flatten(1).all(1).any()) for image in images]
            for part in sides[bool(member)]
        ]
        assert sum(all(home) for home in homes) == 1
        assert len(torch.unique(images, dim=0)) == len(images)
    owned = replace(task, owners=torch.tensor([0] * 3 + [1] * 9 + [2] * 6 + [3] * 7))
    assert counts(plant_users(owned, count=2, rng=np.random.default_rng(seed))) == [3] * 4


def test_a_writer_of_whom_anything_trained_is_no_non_member(toy_task):
    task = replace(toy_task((4, 4, 4, 4), held_out=2), owners=torch.arange(16) % 6)
    with pytest.raises(ValueError, match="at least 2 users must take part and 2 be held out, got 6 and 0"):
        plant_users(task, count=2, rng=np.random.default_rng(0))


def test_owners_that_cannot_be_scored_are_refused(toy_task):
    rng = np.random.default_rng(0)
    with pytest.raises(
        ValueError, match=r"at least 2 clients must take part .* got 3 and 0: raise the federation's held_out"
    ):
        plant_clients(toy_task(), count=2, rng=rng)
    with pytest.raises(ValueError, match="names the owners of its images"):
        plant_users(replace(toy_task(), owners=None), count=2, rng=rng)
