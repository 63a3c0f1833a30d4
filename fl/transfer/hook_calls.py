"""Calls the hooks of a defense of transfers and checks what they return, in trainings and in audits alike."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..protection import State
from ..wrong_return import wrong_return
from .protection import Released, TransferContext, TransferProtection
from .transfer_task import ABSTAINED


def sent_answers(
    protection: TransferProtection, logits: Tensor, context: TransferContext, state: State, rng: np.random.Generator
) -> Tensor:
    """Return what the teachers send: ``logits (R, teachers, queries, classes)`` give ``(R, teachers, queries, m)``.

    Raises:
        ValueError: if the hook ``teacher_answers`` returns anything but finite numbers of this shape.
    """
    found: Any = protection.teacher_answers(logits, context, state, rng)
    words = f"finite numbers of shape (replicas, teachers, queries, m) = ({', '.join(map(str, logits.shape[:3]))}, m)"
    right = isinstance(found, Tensor) and found.ndim == 4 and found.shape[:3] == logits.shape[:3]
    _require("teacher_answers", right, f"a torch.Tensor of {words}", found)
    answers: Tensor = found
    # Equal runs share their memory, and one of them shows what all hold.
    once = answers[:1] if answers.stride(0) == 0 else answers
    # A NaN would win every comparison of sums, and one teacher would choose the label.
    _require("teacher_answers", bool(once.isfinite().all()), words, "NaN or infinity")
    return answers


def released_labels(
    protection: TransferProtection, answers: Tensor, context: TransferContext, state: State, rng: np.random.Generator
) -> Released:
    """Return what the student is given, from answers ``(R, teachers, queries, m)``.

    Raises:
        ValueError: if the hook ``aggregate_votes`` returns anything but one label or none for each query of each run,
            numbers with one row per run, and a state.
    """
    found: Any = protection.aggregate_votes(answers, context, state, rng)
    right = isinstance(found, tuple) and len(found) == 2 and isinstance(found[0], Released)
    _require("aggregate_votes", right, "a tuple (Released(labels=...), state)", found)
    released: Released = found[0]
    _check_labels(released.labels, context)
    for name, number in released.numbers.items():
        right = isinstance(number, Tensor) and number.ndim >= 1 and len(number) == context.replicas
        words = f"number {name} as a torch.Tensor with one row per replica, ({context.replicas}, ...)"
        _require("aggregate_votes", right, words, number)
    return released


def _check_labels(labels: Any, context: TransferContext) -> None:
    wanted, last = (context.replicas, context.plan.queries), context.plan.classes - 1
    # Torch would broadcast a single row to all replicas silently, and they would share their noise.
    right = isinstance(labels, Tensor) and tuple(labels.shape) == wanted and labels.dtype is torch.int64
    words = f"labels as a torch.Tensor of torch.int64 and shape (replicas, queries) = {wanted}"
    _require("aggregate_votes", right, words, labels)
    low, high = int(labels.min()), int(labels.max())
    words = f"labels in 0..{last}, or {ABSTAINED} for a query without a label"
    _require("aggregate_votes", ABSTAINED <= low <= high <= last, words, f"{low} to {high}")


def _require(hook: str, right: bool, allowed: str, returned: Any) -> None:
    if not right:
        raise wrong_return(hook, allowed, returned)
