"""Source inference: whose sample is it, with ties, chance and interval."""

import numpy as np
import pytest
import torch
from digits_federation import received
from fedassay.attacks.attack import Undefined
from fedassay.attacks.membership.random_source import RandomSource
from fedassay.attacks.membership.source import SourceInferenceAttack
from fedassay.audit.observer import AGGREGATE, SHUFFLED, UPLOADS
from fedassay.defenses.local.vectors.ldp_gaussian import LDPGaussianProtection
from fedassay.fl.algorithms import FedAvg
from fedassay.fl.protection import Protection
from fedassay.fl.sampling import Poisson
from fedassay.suites.scoring.label_rows import hits
from fedassay.suites.scoring.membership_rows import wilson
from scipy.stats import binomtest
from torch.nn.functional import cross_entropy


@pytest.fixture
def attacked(toy_task, toy_plan, knowledge_of):
    """(attack, observer, changes) -> evidence, view, planted and task of a federation of four clients."""

    def run(attack, observer=UPLOADS, *, protection=None, seed=0, **changes):
        task = toy_task((2, 2, 2, 2), outsiders=8, seed=seed, side=6)
        plan, protection = toy_plan(task, **changes), protection or Protection()
        planted = attack.plant(task, np.random.default_rng(seed))
        view = received(task, plan, protection, observer=observer, seed=seed)
        knowledge = knowledge_of(task, plan, protection, candidates=planted.shown)
        return attack.run(view, knowledge, np.random.default_rng(seed)), view, planted, task

    return run


def right(attacked, attack, **changes):
    """Mean credit over 25 federations of 8 samples."""
    values = []
    for seed in range(25):
        evidence, _, planted, _ = attacked(attack, seed=seed, **changes)
        held = planted.member
        values.append(hits(evidence.values[held], planted.holder[held]).mean())
    return np.mean(values)


@pytest.mark.simulations
@pytest.mark.parametrize("by", ["loss", "cosine"])
def test_uploads_without_noise_name_the_holder(by, attacked):
    """200 samples, chance .25: a coin is over .4 once in a million."""
    assert right(attacked, SourceInferenceAttack(count=2, by=by)) > 0.65
    local = FedAvg(learning_rate=0.3, local_steps=3)
    assert right(attacked, SourceInferenceAttack(count=2, by=by), algorithm=local) > 0.65


@pytest.mark.parametrize(
    "attack", [SourceInferenceAttack(count=2), SourceInferenceAttack(count=2, by="cosine"), RandomSource(count=2)]
)
@pytest.mark.simulations
def test_under_noise_or_by_chance_one_in_four_is_right(attack, attacked):
    """200 samples: .25 +- .031; four standard errors allowed."""
    loud = LDPGaussianProtection(clip_norm=1e-3, noise_std=10.0)
    assert right(attacked, attack, protection=loud) == pytest.approx(0.25, abs=0.125)


def test_the_loss_is_that_of_each_clients_own_model_against_the_rounds_mean(attacked):
    evidence, view, planted, task = attacked(SourceInferenceAttack(count=2), cohort=Poisson(0.8), rounds=5)
    shown, sums, rounds = planted.shown, np.zeros((4, 16)), np.zeros(4)
    for seen in view.rounds:
        here = [row for row, there in enumerate(seen.reports.present[0]) if there]
        models = [seen.broadcast[0] + 0.5 * seen.reports.values[0, row] for row in here]
        loss = torch.stack(
            [cross_entropy(task.network.logits(one, shown.images), shown.labels, reduction="none") for one in models]
        ).double()
        for row, lower in zip(here, (loss.mean(0) - loss).numpy(), strict=True):
            sums[seen.reports.senders[row]] += lower
            rounds[seen.reports.senders[row]] += 1
    assert rounds.min() < 5
    np.testing.assert_allclose(evidence.values.T, sums / rounds[:, None], rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("observer", [SHUFFLED, AGGREGATE])
def test_without_named_senders_there_is_no_source(observer, attacked):
    with pytest.raises(Undefined, match="cannot identify clients"):
        attacked(SourceInferenceAttack(count=2), observer)


def test_a_client_that_never_took_part_cannot_be_compared(attacked):
    with pytest.raises(Undefined, match=r"clients \[.*\] took part in no round"):
        attacked(SourceInferenceAttack(count=2), cohort=Poisson(0.2), rounds=1)


def test_ties_share_the_credit_by_hand():
    values = np.array([[3.0, 1, 1], [2, 2, 0], [1, 1, 1], [0, 5, 5]])
    assert hits(values, np.array([0, 1, 2, 0])).tolist() == [1, 0.5, 1 / 3, 0]


@pytest.mark.parametrize(("right", "n"), [(0, 8), (3, 10), (10, 10)])
def test_the_interval_is_wilsons(right, n):
    assert wilson(right / n, n) == pytest.approx(tuple(binomtest(right, n).proportion_ci(method="wilson")), abs=1e-12)
