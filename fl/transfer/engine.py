"""Runs a transfer: trains the teachers, collects their answers, releases labels, and trains the student on these.

The teachers are the costly part and hold all private data; the noise and the student are cheap. So the teachers'
outputs can be computed once (``teacher_logits``) and the rest run in many replicas.
"""

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad
from torch.nn.utils.rnn import pad_sequence

from ..hooks import Recorder
from ..streams import Runs, Streams
from .protection import ReleasedLabels, TransferContext, TransferProtection, released_labels, sent_answers
from .recorder import TransferEvent
from .task import ABSTAINED, Lessons, TransferPlan, TransferTask, trained


def run_transfer(
    data: TransferTask,
    plan: TransferPlan,
    protection: TransferProtection,
    streams: Streams,
    *,
    logits: Tensor | None = None,
    runs: Runs | None = None,
    recorders: Sequence[Recorder[TransferEvent]] = (),
) -> Tensor:
    """Run independent transfers at once and return the published students, ``(R, d)`` with one row per run.

    The runs share the students' initial model. Each has its own noise and its own lots.

    Args:
        logits: the teachers' outputs, ``(1, teachers, queries, classes)`` for all runs or ``(R, ...)``; by default
            ``teacher_logits`` of this task, which all runs share.
        runs: how many run together, R, and with which draws; one by default.
        recorders: receive the transfer when it has ended.

    Raises:
        ValueError: if the logits do not fit the plan, or a hook returns a wrong shape.
    """
    outputs, runs = teacher_logits(data, plan, streams) if logits is None else logits, runs or Runs()
    wanted = (plan.teachers, plan.queries, plan.classes)
    if tuple(outputs.shape[1:]) != wanted or len(outputs) not in (1, runs.replicas):
        raise ValueError(f"logits must have shape (1 or {runs.replicas}, {wanted}), got {tuple(outputs.shape)}")
    outputs, draws = outputs.expand(runs.replicas, *wanted), runs.draws(streams)
    answers, released = answered(outputs, plan, protection, draws)
    model = students(data, plan, released, draws("student lots"), streams)
    event = TransferEvent(
        plan=plan,
        public_images=data.public_images,
        logits=outputs,
        answers=answers,
        released=released,
        final_model=model,
    )
    for recorder in recorders:
        recorder.watch(event)
    return model


def teacher_logits(
    data: TransferTask, plan: TransferPlan, streams: Streams, *, included: Tensor | None = None, block: int = 0
) -> Tensor:
    """Train every teacher on its own samples and return the logits of the public samples, ``(R, teachers, queries,
    classes)``.

    Every teacher starts from a model of its own, or all from the task's warm start. The R sets of teachers share the
    initial models; each has lots of its own.

    Args:
        included: (R, pool) booleans, which of the task's samples the teachers hold in each run; None: all, in one run.
        block: of the ``Runs`` whose teachers these are.
    """
    task = data.task
    held = torch.ones(1, len(task.labels), dtype=torch.bool) if included is None else included
    count = len(held)
    places = pad_sequence(list(task.parts), batch_first=True)
    places = torch.cat([places, places[:, :1]], dim=1)
    draws = partial(streams.generator, "teacher lots", replicate=block)
    lots = [plan.teacher.draw(draws(client=number), count, size) for number, size in enumerate(task.sizes)]
    own = torch.arange(places.shape[1]) < torch.tensor(task.sizes).unsqueeze(1)
    lessons = Lessons(
        images=task.images,
        places=places.repeat(count, 1),
        labels=task.labels[places].repeat(count, 1),
        present=(held[:, places] & own).flatten(0, 1),
        lots=_stacked(lots, padding=places.shape[1] - 1).flatten(0, 1),
    )
    models = trained(task.network, _begun(data, streams).repeat(count, 1), lessons, plan.teacher)
    found = torch.stack([task.network.evaluated(model, data.public_images) for model in models])
    return found.view(count, plan.teachers, plan.queries, plan.classes)


def answered(
    logits: Tensor,
    plan: TransferPlan,
    protection: TransferProtection,
    draws: Callable[[str], np.random.Generator],
) -> tuple[Tensor, ReleasedLabels]:
    """Return the answers that the teachers send, ``(R, teachers, queries, m)``, and the labels that the student
    receives.

    ``logits``: (R, teachers, queries, classes); ``draws`` gives the generator of a purpose.
    """
    context = TransferContext(plan=plan, replicas=len(logits))
    state = protection.initial_state(plan)
    answers = sent_answers(protection, logits, context, state, draws("teacher answers"))
    released = released_labels(protection, answers, context, state, draws("aggregate votes"))
    return answers, released


def students(
    data: TransferTask, plan: TransferPlan, released: ReleasedLabels, rng: np.random.Generator, streams: Streams
) -> Tensor:
    """Train one student per run on the released labels and return them, ``(R, d)``.

    A query without a label enters no step; a student without labels stays the initial model. ``rng`` draws the lots.
    """
    count, queries = released.labels.shape
    start = data.task.initial(streams).expand(count, -1)
    lessons = Lessons(
        images=data.public_images,
        places=torch.arange(queries).expand(count, -1),
        labels=released.labels.clamp_min(0),
        present=released.labels != ABSTAINED,
        lots=plan.student.draw(rng, count, queries),
    )
    return trained(data.task.network, start, lessons, plan.student)


def _begun(data: TransferTask, streams: Streams) -> Tensor:
    """The models with which the teachers start, ``(teachers, d)``."""
    task = data.task
    if task.warm_start is not None:
        return task.initial(streams).expand(task.clients, -1)
    return torch.stack([task.network.initial(streams.generator("teacher init", client=k)) for k in range(task.clients)])


def _stacked(lots: Sequence[Tensor], *, padding: int) -> Tensor:
    """The lots of all teachers, ``(R, teachers, steps, lot)``; shorter ones are filled up with a column that no sample
    is present in.
    """
    steps, longest = (max(one.shape[axis] for one in lots) for axis in (1, 2))
    alike = [pad(one, (0, longest - one.shape[2]), value=padding).expand(-1, steps, -1) for one in lots]
    return torch.stack(alike, dim=1)
