"""Turn a recording of a deployment into a federation of a suite: its task, its plan, and the attacks that fit it.

The clients are those of the recording, and their rows, where the truth names them, are rows of the data set. All other
training rows are then non-members, and the test rows are what an adversary has.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ...attacks.attack import Attack, Undefined
from ...attacks.gradient.image_attack import simulated_updates, soft
from ...audit.observer import AGGREGATE, UPLOADS, Observer
from ...audit.parts import Spec
from ...audit.wording import counted
from ...fl.algorithms import LocalTraining, algorithm_from
from ...fl.data.datasets import load_dataset
from ...fl.models.layers import normalisation_from
from ...fl.objective import CLASSIFICATION
from ...fl.partitions import partition_from
from ...fl.plan import Plan
from ...fl.recording import MessageRecording
from ...fl.sampling import Full
from ...fl.streams import Streams
from ...fl.task import Task, build_task, network_of
from .catalogue import build
from .source import config_errors
from .tables.suite import FederationSpec

FEDERATION = DEFENSE = "recorded"
_SEARCH: dict[str, Any] = {"iterations": 500, "restarts": 4}
_SIDES = 3
"""Pixels per side of data that are images."""
_RECOMPUTED, _SAME = 10, 0.02
"""The number of updates that are computed again, and the share of their length by which rounding may move them."""


def recording_of(spec: FederationSpec) -> MessageRecording:
    """Read the recording of a federation's settings. Raises ValueError for one that cannot be read, that is another
    than the settings were made for, or that contradicts them.
    """
    assert spec.recording is not None
    path = Path(spec.folder, spec.recording.path)
    if (found := MessageRecording.read(path)).digest != spec.recording.sha256:
        raise ValueError(f"recording {path} has another content than this suite names: its sha256 is {found.digest}")
    facts = {"clients": len(found.clients), "rounds": len(found.sums), "algorithm": found.algorithm}
    for key, value in facts.items():
        if getattr(spec, key) != value:
            raise ValueError(f"{key} must be that of the recording, {value!r}, got {getattr(spec, key)!r}")
    return found


def recorded_task(spec: FederationSpec, seed: int) -> Task:
    """Build the data and model of a recorded federation.

    Without a truth the clients' samples are unknown: test samples then stand in their places, so that the numbers of
    samples are right, and nothing may be scored against them. Raises ValueError for a truth that names other rows than
    the data set has, and for a model that was not recorded.
    """
    recording, dataset = recording_of(spec), load_dataset(spec.data)
    normalisation = None if spec.normalise is None else normalisation_from(spec.normalise)
    if recording.truth is None:
        parts = torch.split(torch.arange(sum(recording.sizes)), list(recording.sizes))
        known = torch.arange(sum(recording.sizes)) % len(dataset.test_labels)
        network = network_of(dataset, spec.model, normalisation)
        images, labels = dataset.test_images, dataset.test_labels
        task = Task(
            network=network,
            images=images[known],
            labels=labels[known],
            parts=tuple(parts),
            outsider_images=images[:0],
            outsider_labels=labels[:0],
            test_images=images,
            test_labels=labels,
            columns=dataset.columns,
        )
    else:
        there = len(dataset.train_labels)
        for client, rows in zip(recording.clients, recording.truth, strict=True):
            if int(rows.max()) >= there:
                raise ValueError(
                    f"the truth of client {client} names row {int(rows.max())}, but data set {dataset.name} has "
                    f"{there} training rows"
                )
        task = build_task(
            dataset,
            model=spec.model,
            partition=partition_from(spec.partition),
            clients=spec.clients,
            streams=Streams(seed),
            normalisation=normalisation,
            rows=recording.truth,
            # How a deployment's samples came to its clients is not known: a non-member must have a member's label.
            exchangeable="label" if dataset.task == CLASSIFICATION else "all",
        )
    recording.unused(task.network.layout)
    return task


def recorded_suite(
    folder: str | Path,
    *,
    model: Spec,
    data: Spec,
    attacks: Iterable[str] = (),
    column: int | str | None = None,
    normalise: Mapping[str, Any] | None = None,
) -> tuple[dict[str, Any], list[str]]:
    """Return a suite of attacks on a recording, as a dictionary, and lines on what is attacked and what is not.

    ``attacks``: their names; by default those that fit what was recorded. ``column``: the sensitive column of attribute
    attacks, which are left out without it.

    Raises ConfigError for a recording, model or data that cannot be used, and for unknown attacks.
    """
    with config_errors():
        recording = MessageRecording.read(folder)
        if not recording.clients:
            raise ValueError(
                f"{folder} names no clients (record_rows), so that nothing can be inferred from its models"
            )
        table: dict[str, Any] = {
            "dataset": data,
            "model": model,
            "clients": len(recording.clients),
            "rounds": len(recording.sums),
            "cohort": recording.cohort,
            "algorithm": recording.algorithm,
            "recording": {"path": str(folder), "sha256": recording.digest},
            **({"normalise": dict(normalise)} if normalise else {}),
        }
        task = recorded_task(FederationSpec.model_validate(table).reading(str(Path.cwd()), {}), 0)
        names = list(attacks) or _fitting(recording, task, column)
        chosen = {re.sub(r"\W", "_", name)[:40]: _attack(name, recording, task, column) for name in names}
        if column is not None and not any("column" in one for one in chosen.values()):
            raise ValueError(
                f"column {column!r} was given, but none of the attacks infers a column: {', '.join(names)}"
            )
        lines = [*_facts(recording, task), *([] if column is not None else [_NO_COLUMN])]
    suite = {
        "name": "recording",
        "description": "".join(f"{line[0].upper()}{line[1:]}. " for line in lines).rstrip(),
        "seeds": 1,
        "federations": {FEDERATION: table},
        "defenses": {DEFENSE: {"part": "none"}},
        "attacks": chosen,
    }
    return suite, lines


_NO_COLUMN = "attributes: not attacked, because no column was named (--column)"


def _facts(recording: MessageRecording, task: Task) -> list[str]:
    """Lines on what was recorded, how attacks read it, and which of it no attack looks at."""
    algorithm = algorithm_from(recording.algorithm)
    lines = [
        f"adversary: {recording.observer.phrase}; {counted(len(recording.sums), 'round')}, "
        f"{counted(len(recording.clients), 'client')} with {min(task.sizes)} to {max(task.sizes)} samples"
    ]
    if isinstance(algorithm, LocalTraining):
        step = "the local step" if algorithm.local_steps == 1 else "the local steps, on average and to first order"
        lines.append(
            f"gradient: minus the update / ({algorithm.local_steps} * learning rate {algorithm.learning_rate:g}), that "
            f"of {step}, if each used all samples of the client and plain gradient descent"
        )
    if any(not one.clients for one in recording.rounds()):
        lines.append("not recorded: who took part in a round; every client is taken to have done so")
    if unused := recording.unused(task.network.layout):
        lines.append(f"not looked at: {', '.join(unused)}, which the model does not train")
    if metrics := sorted({name for one in recording.rounds() for found in one.metrics.values() for name in found}):
        lines.append(f"not looked at: numbers that came with the messages, {', '.join(metrics)}")
    if recording.truth is None:
        lines.append("not scored: the recording names no rows of its clients (record_rows)")
    elif recording.observer == UPLOADS and task.network.objective.name == CLASSIFICATION:
        lines.append(_recomputed(recording, task))
    return lines


def _recomputed(recording: MessageRecording, task: Task) -> str:
    """How far the first updates are from those that the stated algorithm computes from the clients' rows.

    Attacks assume this algorithm: where another one made the updates, they fail without showing that anything is safe.
    """
    plan = Plan(
        sizes=task.sizes,
        rounds=1,
        cohort=Full(),
        lot=Full(),
        algorithm=algorithm_from(recording.algorithm),
        layout=task.network.layout,
    )
    apart = []
    event = next(recording.events(plan))
    for client, sent in list(zip(event.reports.senders or (), event.reports.values[0], strict=True))[:_RECOMPUTED]:
        images, labels = task.images[task.parts[client]], task.labels[task.parts[client]]
        given = images[None], soft(labels, task.network, images)[None]
        try:
            own = simulated_updates(task.network, plan, client, event.broadcast[0], *given)[0]
        except Undefined as error:
            return f"not recomputed: {error}"
        apart.append(float((sent - own.detach()).norm() / own.detach().norm().clamp_min(1e-30)))
    share = float(np.median(apart))
    words = f"recomputed: updates of the first round differ from those of plain steps by {share:.3g} of their length"
    causes = "noise, clipping, other lots, dropout, another mode of batch norm, or a wrong learning rate"
    return words if share <= _SAME else f"{words} ({causes}), so an attack that fails shows little"


def _fitting(recording: MessageRecording, task: Task, column: int | str | None) -> list[str]:
    """The default attacks on what was recorded, each kind with its null attacks."""
    single, steps = max(task.sizes) == 1, algorithm_from(recording.algorithm).local_steps
    images = "inversion" if single else "grad_inversion" if steps == 1 else "fedavg_inversion"
    names = []
    if min(task.network.shape[1:]) >= _SIDES and task.network.objective.classifies:
        names += [images, "analytic_linear", "class_mean_image", "random_image"]
    if task.network.objective.classifies:
        names += ["idlg" if single else "bias_corrected", "llg_star", "equal_counts", "random_labels"]
    names += ["loss", "loss_series", "gradient_cosine", "random_scores"]
    if len(recording.clients) > 1:
        names += ["source", "random_source"]
    if column is not None:
        names += ["attribute_likelihood", "attribute_loss", "imputed_attribute"]
    return names


def _attack(name: str, recording: MessageRecording, task: Task, column: int | str | None) -> dict[str, Any]:
    """The table of one attack: for all clients, with as many candidates as there are, on what was recorded."""
    attack: Attack = build("attack", name, {}).instance
    table: dict[str, Any] = {"part": name, "federation": FEDERATION}
    fields = attack.fields()
    if "iterations" in fields:
        table |= {key: value for key, value in _SEARCH.items() if key in fields}
    if "client" in fields:
        table["client"] = "all"
    if "column" in fields and column is not None:
        table["column"] = column
    if "count" in fields and recording.truth is not None:
        table["count"] = _count(replace(attack, **{key: table[key] for key in fields if key in table}), task)
    if attack.observer.rank > recording.observer.rank and (seen := _reduced(attack, recording.observer)):
        table["observer"] = str(seen)
    return table


def _reduced(attack: Attack, seen: Observer) -> Observer | None:
    """The recorded observer, if an attack can use its view instead of its own observer's."""
    on_uploads = attack.observer == UPLOADS and type(attack).plant is Attack.plant
    return seen if attack.handles_reduced_views or (on_uploads and seen == AGGREGATE) else None


def _count(attack: Any, task: Task) -> int:
    """The largest number of candidates per client, at most the attack's default, for which the data suffice."""
    for count in range(attack.count, 0, -1):
        try:
            replace(attack, count=count).plant(task, Streams(0).generator("candidates"))
        except ValueError:  # Too few samples or non-members.
            continue
        return count
    return 1
