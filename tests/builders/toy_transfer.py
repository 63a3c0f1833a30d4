"""Transfers of random images: a test names only what it is about."""

import torch
from fedassay.fl.layout import Layout
from fedassay.fl.streams import Streams
from fedassay.fl.task import TrainingRule
from fedassay.fl.transfer.task import TransferPlan, transfer_task
from toy_federation import toy_task

RULE = TrainingRule(steps=3, learning_rate=0.1, optimizer="sgd")


def toy_transfer(sizes=(4, 6, 5), *, queries=5, **changes):
    """A toy task with 9 test images, of which ``queries`` are the student's public data."""
    return transfer_task(toy_task(sizes, **changes), queries=queries, streams=Streams(0))


def toy_transfer_plan(data, **changes):
    """The task's plan; by default three SGD steps on all samples for teachers and student."""
    return data.plan(**({"teacher": RULE, "student": RULE} | changes))


def votes_plan(teachers=50, queries=10, classes=3):
    """A plan without a task, for hooks that see votes alone."""
    layout = Layout(names=("weight",), shapes=((1,),))
    return TransferPlan(
        sizes=(1,) * teachers, queries=queries, classes=classes, teacher=RULE, student=RULE, layout=layout
    )


def logits_of(votes, classes):
    """Logits that vote for the given classes: ``votes (..., queries)`` give ``(..., queries, classes)``."""
    return torch.nn.functional.one_hot(votes, classes).float()
