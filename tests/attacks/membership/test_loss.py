"""Loss threshold: minus the loss under the final model; it finds memorised samples, and none where none was."""

import numpy as np
import pytest
import torch
from fedassay.attacks.membership.loss import LossThreshold
from fedassay.audit.observer import FINAL_MODEL
from fedassay.defenses.without_dp.none import Undefended
from fedassay.fl.algorithms import FedAvg
from fedassay.fl.engine import run_federation
from fedassay.fl.probe import CandidateProbe, Candidates
from fedassay.fl.protection import Protection
from fedassay.fl.recorder import View
from fedassay.fl.streams import Streams
from fedassay.suites.scoring.membership_rows import auc

COUNT = 10


@pytest.fixture
def attacked(toy_plan, knowledge_of):
    """(task, final model, probe) -> the attack's scores."""

    def run(task, model, probe):
        plan = toy_plan(task)
        view = View(observer=FINAL_MODEL, plan=plan, rounds=(), final_model=model[None])
        knowledge = knowledge_of(task, plan, Protection(), candidates=probe.shown)
        return LossThreshold(count=COUNT).run(view, knowledge, np.random.default_rng(0))

    return run


def test_scores_are_minus_the_cross_entropy_by_hand(toy_task, attacked):
    task = toy_task((COUNT,), outsiders=COUNT)
    probe = LossThreshold(count=COUNT).plant(task, np.random.default_rng(1))
    model = task.network.initial(np.random.default_rng(2))
    layers = [layer.double().numpy() for layer in task.network.layout.unflatten(model).values()]
    logits = probe.shown.images.flatten(1).double().numpy() @ layers[0].T + layers[1]
    chances = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    expected = np.log(chances[np.arange(2 * COUNT), probe.shown.labels.numpy()])
    np.testing.assert_allclose(attacked(task, model, probe).values, expected, atol=1e-6)


def test_a_model_of_zero_loss_on_members_gives_them_all_away(toy_task, attacked):
    """Logistic on 9 pixels: pixel k alight is member k, and its weights point to the member's label."""
    task = toy_task((9,), side=3)
    images = torch.eye(9).view(9, 1, 3, 3)
    labels = torch.arange(9) % 3
    weight = 100.0 * torch.nn.functional.one_hot(labels, 3).float().T
    model = task.network.layout.flatten({"output.weight": weight, "output.bias": torch.zeros(3)})
    # The same pictures under another label: they differ only in that the model fits the members.
    shown = Candidates(images=torch.cat([images, images]), labels=torch.cat([labels, (labels + 1) % 3]), clients=(0,))
    places = np.r_[np.arange(9), np.full(9, -1)]
    probe = CandidateProbe(shown=shown, holder=np.minimum(places, 0), sample=places)
    scores = attacked(task, model, probe).against(probe.member)
    np.testing.assert_allclose(scores.member, 0, atol=1e-6)
    assert auc(scores) == 1.0


@pytest.mark.simulations
def test_members_of_an_overfitted_federation_are_found(toy_task, toy_plan, attacked):
    """Labels are coin flips, so only memory can be right: 60 rounds of 20 local steps. Observed AUC .99."""
    task = toy_task((COUNT, COUNT), model="mlp", side=6, outsiders=20)
    algorithm = FedAvg(learning_rate=0.5, local_steps=20)
    plan = toy_plan(task, rounds=60, algorithm=algorithm)
    model = run_federation(task, plan, Undefended().prepare(plan).protection, Streams(1))[0]
    probe = LossThreshold(count=COUNT).plant(task, np.random.default_rng(3))
    assert auc(attacked(task, model, probe).against(probe.member)) > 0.9


def test_without_candidates_there_is_nothing_to_score(toy_task, toy_plan, knowledge_of):
    task = toy_task()
    plan = toy_plan(task)
    view = View(observer=FINAL_MODEL, plan=plan, rounds=(), final_model=torch.zeros(1, plan.layout.dim))
    with pytest.raises(ValueError, match="LossThreshold needs candidates, which must be planted before training"):
        LossThreshold().run(view, knowledge_of(task, plan, Protection()), np.random.default_rng(0))
