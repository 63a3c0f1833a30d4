"""Digits dealt to clients and trained, what an observer received of it, and what a realistic attacker knows."""

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from fedassay.attacks.attack import Knowledge
from fedassay.audit.observer import UPLOADS, Observer
from fedassay.fl.algorithms import FedSGD
from fedassay.fl.data.datasets import load_dataset
from fedassay.fl.engine import run_federation
from fedassay.fl.partitions import IID, OneSample, Partition
from fedassay.fl.plan import Plan
from fedassay.fl.protection import Protection
from fedassay.fl.recorder import View, ViewRecorder
from fedassay.fl.streams import Streams
from fedassay.fl.task import Task, build_task
from fedassay.suites.scoring.images import match
from torch import Tensor
from toy_federation import toy_plan

UNDEFENDED = Protection()


def received(
    task: Task, plan: Plan, protection: Protection = UNDEFENDED, *, observer: Observer = UPLOADS, seed: int = 0
) -> View:
    """What the observer receives of a run of this plan."""
    recorder = ViewRecorder(observer=observer)
    return recorder.view(plan, run_federation(task, plan, protection, Streams(seed), recorders=[recorder]))


def dealt_digits(
    model: str, clients: int, samples: int | None = None, *, partition: Partition | None = None, seed: int = 0
) -> Task:
    """``samples`` digits dealt to clients: one to each if there are no more, otherwise evenly."""
    partition = partition or (OneSample() if samples in (None, clients) else IID())
    digits, streams = load_dataset("digits"), Streams(seed)
    return build_task(digits, model=model, partition=partition, clients=clients, samples=samples, streams=streams)


def digits_run(
    model: str,
    clients: int,
    samples: int | None = None,
    *,
    protection: Protection = UNDEFENDED,
    observer: Observer = UPLOADS,
    partition: Partition | None = None,
    inert: int = 0,
    seed: int = 0,
    **changes: Any,
) -> tuple[Task, View, Knowledge]:
    """The task, the observer's view and an attacker's knowledge of one round of FedSGD, unless changed."""
    task = dealt_digits(model, clients, samples, partition=partition, seed=seed).with_inert(inert)
    plan = toy_plan(task, **({"rounds": 1, "algorithm": FedSGD(learning_rate=1.0)} | changes))
    view = received(task, plan, protection, observer=observer, seed=seed)
    return task, view, Knowledge.of(task, plan, protection)


def psnr(images: np.ndarray, task: Task) -> np.ndarray:
    """Of each image, in the order of the clients' samples."""
    truth = task.images[torch.cat(list(task.parts))].numpy()
    decibels: np.ndarray = -10 * np.log10(((images - truth) ** 2).mean((1, 2, 3)) + 1e-10)
    return decibels


def matched_psnr(images: np.ndarray, task: Task) -> np.ndarray:
    """Of each client's images, matched to its samples."""
    found, low = [], 0
    for part in task.parts:
        mine = images[low : low + len(part)]
        found += [mine[match(mine, task.images[part].numpy())]]
        low += len(part)
    return psnr(np.concatenate(found), task)


def with_uploads(view: View, values: Tensor) -> View:
    """The view with these values in place of the first round's reports."""
    seen = view.rounds[0]
    assert seen.reports is not None
    return replace(view, rounds=(replace(seen, reports=replace(seen.reports, values=values)),))
