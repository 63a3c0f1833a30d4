"""The transfer engine: teachers, votes, released labels and students, against plain loops and by what each may know.

Many models trained at once are the models that a plain loop trains one by one.
"""

import numpy as np
import pytest
import torch
from fedassay.audit.observer import AGGREGATE, ANSWERS, FINAL_MODEL, UPLOADS
from fedassay.fl.models.network import Network
from fedassay.fl.streams import Runs, Streams
from fedassay.fl.task import TrainingRule
from fedassay.fl.transfer.engine import run_transfer, teacher_logits
from fedassay.fl.transfer.protection import ReleasedLabels, TransferProtection, counts_of, votes_of
from fedassay.fl.transfer.recorder import AnswerRecorder
from fedassay.fl.transfer.task import ABSTAINED, Lessons, trained, transfer_task
from toy_federation import toy_task
from toy_transfer import RULE, logits_of, toy_transfer, toy_transfer_plan

STREAMS = Streams(3)


class Noisy(TransferProtection):
    """Releases random labels, and none for the last query."""

    def aggregate_votes(self, answers, context, state, rng):
        shape = (context.replicas, context.plan.queries)
        labels = torch.from_numpy(rng.integers(context.plan.classes, size=shape))
        labels[:, -1] = ABSTAINED
        return ReleasedLabels(labels=labels), state


@pytest.fixture
def data():
    return toy_transfer()


def test_queries_are_set_aside_from_what_measures_the_student_or_from_the_non_members():
    task = toy_task()
    for source, name in (("test", "test_images"), ("outsiders", "outsider_images")):
        data = transfer_task(task, queries=3, streams=Streams(1), source=source)
        rest, asked = getattr(data.task, name), data.public_images
        assert len(rest) + len(asked) == len(getattr(task, name))
        assert not any(torch.equal(one, other) for one in rest for other in asked)
        assert len(torch.cat([rest, asked]).unique(dim=0)) == len(getattr(task, name))
    with pytest.raises(ValueError, match=r"queries must be in 1\.\.8"):
        transfer_task(task, queries=9, streams=Streams(1))


@pytest.mark.parametrize("lot", [None, 2, 5])
def test_teachers_trained_at_once_are_those_of_a_plain_loop(data, lot):
    """With lots of 5 a teacher of 4 samples uses all, one of 6 draws."""
    rule = TrainingRule(steps=4, learning_rate=0.3, optimizer="sgd", lot=lot)
    plan, task = toy_transfer_plan(data, teacher=rule), data.task
    together = teacher_logits(data, plan, STREAMS)
    assert together.shape == (1, 3, 5, 3)
    for client, part in enumerate(task.parts):
        model = task.network.initial(STREAMS.generator("teacher init", client=client))
        lots = rule.draw(STREAMS.generator("teacher lots", client=client), 1, len(part))[0]
        for step in range(4):
            lot_of = part[lots[min(step, len(lots) - 1)]]
            weights = model.requires_grad_(True)
            loss = task.network.losses(weights, task.images[lot_of], task.labels[lot_of]).mean()
            model = (weights - 0.3 * torch.autograd.grad(loss, weights)[0]).detach()
        torch.testing.assert_close(together[0, client], task.network.logits(model, data.public_images).detach())


def test_leaving_a_sample_out_changes_the_answers_of_its_teacher_alone(data):
    plan = toy_transfer_plan(data)
    included = torch.ones(2, len(data.task.labels), dtype=torch.bool)
    included[1, data.task.parts[1][0]] = False
    whole, without = teacher_logits(data, plan, STREAMS, included=included)
    torch.testing.assert_close(whole, teacher_logits(data, plan, STREAMS)[0])
    assert torch.equal(whole[[0, 2]], without[[0, 2]])
    assert not torch.allclose(whole[1], without[1])


def test_without_protection_the_student_learns_the_label_with_most_votes(data):
    votes = torch.tensor([[0, 1, 2, 2, 0], [0, 1, 1, 2, 1], [1, 1, 2, 0, 2]])
    recorder = AnswerRecorder(observer=UPLOADS)
    final = run_transfer(
        data,
        toy_transfer_plan(data),
        TransferProtection(),
        STREAMS,
        logits=logits_of(votes, 3).unsqueeze(0),
        recorders=[recorder],
    )
    # In the last query all three have one vote: the first class counts.
    labels = torch.tensor([0, 1, 2, 2, 0])
    assert torch.equal(recorder.view.released.labels[0], labels)
    assert torch.equal(recorder.view.answers[0].argmax(-1), votes)
    weights, network = data.task.initial(STREAMS), data.task.network
    for _ in range(3):
        point = weights.requires_grad_(True)
        loss = network.losses(point, data.public_images, labels).mean()
        weights = (point - 0.1 * torch.autograd.grad(loss, point)[0]).detach()
    torch.testing.assert_close(final[0], weights)


def test_a_query_without_a_label_enters_no_step_of_the_student(data):
    plan, seen = toy_transfer_plan(data), AnswerRecorder(observer=ANSWERS)
    first = run_transfer(data, plan, Noisy(), STREAMS, runs=Runs(replicas=4), recorders=[seen])
    data.public_images[-1] = 100.0
    assert torch.equal(
        first, run_transfer(data, plan, Noisy(), STREAMS, runs=Runs(replicas=4), logits=torch.zeros(1, 3, 5, 3))
    )
    assert data.answered(seen.view.released.labels).tolist() == [0.8] * 4
    assert len(first.unique(dim=0)) == 4


class Silent(TransferProtection):
    def aggregate_votes(self, answers, context, state, rng):
        return ReleasedLabels(labels=torch.full((context.replicas, context.plan.queries), ABSTAINED)), state


def test_a_student_without_labels_stays_the_initial_model(data):
    final = run_transfer(data, toy_transfer_plan(data), Silent(), STREAMS)
    assert torch.equal(final[0], data.task.initial(STREAMS))
    assert data.accuracy(torch.full((1, 5), ABSTAINED)).isnan().all()


def test_runs_differ_in_noise_and_repeat_with_their_names(data):
    plan, logits = toy_transfer_plan(data), torch.zeros(1, 3, 5, 3)

    def run(**named):
        return run_transfer(data, plan, Noisy(), STREAMS, logits=logits, runs=Runs(replicas=3, **named))

    state = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    assert torch.equal(run(), run())
    for named in ({"block": 1}, {"arm": 1}):
        assert not torch.equal(run(), run(**named))
    assert torch.equal(torch.get_rng_state(), state[0])
    assert (np.random.get_state()[1] == state[1]).all()  # noqa: NPY002


def test_each_observer_receives_what_its_name_says(data):
    recorders = {observer: AnswerRecorder(observer=observer) for observer in (UPLOADS, ANSWERS, FINAL_MODEL)}
    final = run_transfer(data, toy_transfer_plan(data), Noisy(), STREAMS, recorders=list(recorders.values()))
    views = {observer: recorder.view for observer, recorder in recorders.items()}
    assert all(torch.equal(view.final_model, final) for view in views.values())
    assert (views[UPLOADS].answers is None, views[ANSWERS].answers is None) == (False, True)
    assert (views[ANSWERS].released is None, views[FINAL_MODEL].released is None) == (False, True)
    assert torch.equal(views[UPLOADS].released.labels, views[ANSWERS].released.labels)
    with pytest.raises(ValueError, match="uploads, answers or final_model"):
        AnswerRecorder(observer=AGGREGATE)
    with pytest.raises(ValueError, match="one transfer only"):
        run_transfer(data, toy_transfer_plan(data), Noisy(), STREAMS, recorders=[recorders[UPLOADS]])


def test_equal_runs_are_counted_once_and_give_what_counting_each_gives():
    logits = torch.randn(1, 4, 3, 5, generator=torch.Generator().manual_seed(0))
    shared, apart = logits.expand(6, -1, -1, -1), logits.repeat(6, 1, 1, 1)
    assert torch.equal(votes_of(shared), votes_of(apart))
    assert torch.equal(counts_of(votes_of(shared)), counts_of(votes_of(apart)))
    assert (counts_of(votes_of(shared)).sum(-1) == 4).all()


def test_a_misspelled_hook_and_logits_of_another_task_are_refused(data):
    with pytest.raises(TypeError, match="did you mean aggregate_votes"):
        type("Wrong", (TransferProtection,), {"agregate_votes": lambda self: None})
    with pytest.raises(ValueError, match="logits must have shape"):
        run_transfer(data, toy_transfer_plan(data), TransferProtection(), STREAMS, logits=torch.zeros(1, 3, 4, 3))


def test_the_plan_as_a_training_of_one_round_keeps_the_public_facts(data):
    plan = toy_transfer_plan(data)
    training = plan.as_training()
    assert (training.sizes, training.rounds, training.layout) == (plan.sizes, 1, plan.layout)
    assert training.algorithm == RULE.algorithm()


NETWORK = Network(model="mlp", shape=(1, 3, 3), classes=3, options={"hidden": 4})


def lessons_of(present, lots, seed=0):
    rng = torch.Generator().manual_seed(seed)
    models, samples = present.shape
    return Lessons(
        images=torch.rand(20, 1, 3, 3, generator=rng, dtype=torch.float64),
        places=torch.randint(20, (models, samples), generator=rng),
        labels=torch.randint(3, (models, samples), generator=rng),
        present=present,
        lots=lots,
    )


def alone(start, lessons, rule, model):
    """PyTorch's own optimiser on the samples of one model."""
    weights = start[model].clone().requires_grad_(True)
    kind = torch.optim.SGD if rule.optimizer == "sgd" else torch.optim.Adam
    optimizer = kind([weights], lr=rule.learning_rate)
    for step in range(rule.steps):
        lot = lessons.lots[model, min(step, lessons.lots.shape[1] - 1)]
        lot = lot[lessons.present[model, lot]]
        images, labels = lessons.images[lessons.places[model, lot]], lessons.labels[model, lot]
        optimizer.zero_grad()
        NETWORK.losses(weights, images, labels).mean().backward()
        optimizer.step()
    return weights.detach()


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
@pytest.mark.parametrize("lot", [None, 3])
def test_models_trained_together_are_those_of_a_plain_loop(optimizer, lot, monkeypatch):
    rule = TrainingRule(steps=4, learning_rate=0.05, optimizer=optimizer, lot=lot)
    present = torch.ones(3, 6, dtype=torch.bool)
    present[1, 2:4] = False
    lots = rule.draw(np.random.default_rng(0), 3, 6)
    # At least one of the first model's lots must hold an absent sample, or the mask would go untested.
    lots = torch.cat([lots[:1], torch.arange(6)[-lots.shape[2] :].expand_as(lots[1:2]), lots[2:]])
    start = torch.randn(3, NETWORK.layout.dim, generator=torch.Generator(), dtype=torch.float64)
    lessons = lessons_of(present, lots)
    together = trained(NETWORK, start, lessons, rule)
    for model in range(3):
        torch.testing.assert_close(together[model], alone(start, lessons, rule, model), atol=1e-6, rtol=1e-6)
    monkeypatch.setattr("fedassay.fl.transfer.task._IMAGE_BYTES", 1)
    torch.testing.assert_close(trained(NETWORK, start, lessons, rule), together)


def test_a_model_without_samples_stays_where_it_starts():
    rule = TrainingRule(steps=2, learning_rate=0.1)
    present = torch.tensor([[True, True], [False, False]])
    start = torch.ones(2, NETWORK.layout.dim, dtype=torch.float64)
    after = trained(NETWORK, start, lessons_of(present, rule.draw(np.random.default_rng(0), 2, 2)), rule)
    assert not torch.equal(after[0], start[0])
    assert torch.equal(after[1], start[1])


def test_lots_are_drawn_without_replacement_and_uniformly():
    lots = TrainingRule(steps=500, learning_rate=0.1, lot=2).draw(Streams(0).generator("lots"), 3, 5)
    assert lots.shape == (3, 500, 2)
    assert (lots[..., 0] != lots[..., 1]).all()
    # Five standard errors of 3000 draws at a fifth.
    share = np.bincount(lots.flatten().numpy(), minlength=5) / lots.numel()
    assert np.abs(share - 0.2).max() < 5 * (0.2 * 0.8 / 3000) ** 0.5


def test_wrong_rules_and_models_are_refused():
    with pytest.raises(ValueError, match="steps must be"):
        TrainingRule(steps=0, learning_rate=0.1)
    with pytest.raises(ValueError, match="lot must be"):
        TrainingRule(steps=1, learning_rate=0.1, lot=0)
    rule = TrainingRule(steps=1, learning_rate=0.1)
    lessons = lessons_of(torch.ones(1, 2, dtype=torch.bool), rule.draw(np.random.default_rng(0), 1, 2))
    with pytest.raises(ValueError, match="neither dropout nor batch norm, got model lenet_dropout"):
        trained(Network(model="lenet_dropout", shape=(1, 28, 28), classes=3), torch.zeros(1, 1), lessons, rule)
