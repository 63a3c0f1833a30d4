"""What hooks of a transfer may return: anything else is refused in a training and in an audit, with the hook's name."""

import numpy as np
import pytest
import torch
from fedassay.defenses.transfer.worst_votes import answer_mechanism, label_mechanism, teachers_mechanism
from fedassay.fl.streams import Runs, Streams
from fedassay.fl.transfer.engine import run_transfer
from fedassay.fl.transfer.protection import ReleasedLabels, TransferProtection, counts_of
from toy_transfer import toy_transfer, toy_transfer_plan

REPLICAS = 2


class Own(TransferProtection):
    """Returns what functions make of right answers and right labels."""

    def __init__(self, *, answers=None, votes=None):
        self.answers, self.votes = answers, votes

    def teacher_answers(self, logits, context, state, rng):
        right = super().teacher_answers(logits, context, state, rng)
        return right if self.answers is None else self.answers(right)

    def aggregate_votes(self, answers, context, state, rng):
        labels = counts_of(answers).argmax(-1)
        return (ReleasedLabels(labels=labels), state) if self.votes is None else self.votes(labels)


def with_labels(change):
    return lambda labels: (ReleasedLabels(labels=change(labels)), {})


def with_number(number):
    return lambda labels: (ReleasedLabels(labels=labels, numbers={"x": number}), {})


ANSWERS = {
    "None": (lambda answers: None, "torch.Tensor of finite numbers.*got None"),
    "flat": (lambda answers: answers.flatten(2), r"\(2, 3, 5, m\), got torch.Tensor of torch.float32 and shape"),
    "numpy": (lambda answers: answers.numpy(), "got numpy.ndarray of float32"),
    "NaN": (lambda answers: answers * float("nan"), "finite numbers.*got NaN"),
    "one infinity": (lambda answers: answers.clone().index_fill(3, torch.tensor([0]), float("inf")), "infinity"),
}
VOTES = {
    "None": (lambda labels: None, "Released.*state.*got None"),
    "without state": (lambda labels: ReleasedLabels(labels=labels), r"state\), got Released"),
    "a tensor": (lambda labels: labels, "got torch.Tensor of torch.int64 and shape"),
    "a tensor and a state": (lambda labels: (labels, {}), r"got a tuple \(torch.Tensor .*, dict\)"),
    "other numbers": (
        with_labels(lambda labels: labels.float()),
        "torch.int64 and shape.*got torch.Tensor of torch.fl",
    ),
    "numpy": (with_labels(lambda labels: labels.numpy()), "as a torch.Tensor.*got numpy.ndarray of int64"),
    "one row": (with_labels(lambda labels: labels[:1]), r"= \(2, 5\), got .*shape \(1, 5\)"),
    "too large": (with_labels(lambda labels: labels + 10), r"in 0\.\.2, or -1"),
    "a plain number": (with_number(3.0), "number x as a torch.Tensor with one row.*got 3.0"),
    "a number without rows": (with_number(torch.tensor(3.0)), r"number x .*shape \(\)"),
}
CASES = [pytest.param("answers", *case, id=f"answers {name}") for name, case in ANSWERS.items()]
CASES += [pytest.param("votes", *case, id=f"votes {name}") for name, case in VOTES.items()]


@pytest.fixture(scope="module")
def data():
    return toy_transfer()


@pytest.mark.parametrize(("hook", "change", "words"), CASES)
def test_wrong_returns_are_refused_with_the_hooks_name_in_a_training_and_in_an_audit(data, hook, change, words):
    plan, wrong = toy_transfer_plan(data), Own(**{hook: change})
    name = {"answers": "teacher_answers", "votes": "aggregate_votes"}[hook]
    logits = torch.randn(REPLICAS, 3, 5, 3, generator=torch.Generator().manual_seed(0))
    with pytest.raises(ValueError, match=f"hook {name} must return .*{words}"):
        run_transfer(data, plan, wrong, Streams(0), logits=logits, runs=Runs(replicas=REPLICAS))
    of_one = answer_mechanism if hook == "answers" else label_mechanism
    for mechanism, shape in ((of_one, (5, 3)), (teachers_mechanism, (2, 5, 3))):
        with pytest.raises(ValueError, match=f"hook {name} must return"):
            mechanism(wrong, plan)(np.ones((REPLICAS, *shape)), np.random.default_rng(0))


def test_right_returns_are_accepted(data):
    plan = toy_transfer_plan(data)
    run_transfer(data, plan, Own(votes=with_number(torch.ones(REPLICAS, 2))), Streams(0), runs=Runs(replicas=REPLICAS))
    run_transfer(data, plan, Own(answers=lambda answers: torch.cat([answers, answers], -1)[..., :3]), Streams(0))
