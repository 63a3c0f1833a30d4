"""Digits dealt to clients and trained, what an observer received of it, and what a realistic attacker knows."""

from dataclasses import replace

import numpy as np
import torch
from fedassay.attacks.attack import Knowledge
from fedassay.audit.observer import UPLOADS
from fedassay.fl.algorithms import FedSGD
from fedassay.fl.data.datasets import load_dataset
from fedassay.fl.engine import run_federation
from fedassay.fl.partitions import IID, OneSample
from fedassay.fl.protection import Protection
from fedassay.fl.recorder import ViewRecorder
from fedassay.fl.streams import Streams
from fedassay.fl.task import build_task
from fedassay.suites.scoring.images import match
from toy_federation import toy_plan

UNDEFENDED = Protection()


def received(task, plan, protection=UNDEFENDED, *, observer=UPLOADS, seed=0):
    """What the observer receives of a run of this plan."""
    recorder = ViewRecorder(observer=observer)
    return recorder.view(plan, run_federation(task, plan, protection, Streams(seed), recorders=[recorder]))


def dealt_digits(model, clients, samples=None, *, partition=None, seed=0):
    """``samples`` digits dealt to clients: one to each if there are no more, otherwise evenly."""
    partition = partition or (OneSample() if samples in (None, clients) else IID())
    digits, streams = load_dataset("digits"), Streams(seed)
    return build_task(digits, model=model, partition=partition, clients=clients, samples=samples, streams=streams)


def digits_run(
    model, clients, samples=None, *, protection=UNDEFENDED, observer=UPLOADS, partition=None, inert=0, seed=0, **changes
):
    """The task, the observer's view and an attacker's knowledge of one round of FedSGD, unless changed."""
    task = dealt_digits(model, clients, samples, partition=partition, seed=seed).with_inert(inert)
    plan = toy_plan(task, **({"rounds": 1, "algorithm": FedSGD(learning_rate=1.0)} | changes))
    view = received(task, plan, protection, observer=observer, seed=seed)
    return task, view, Knowledge.of(task, plan, protection)


def psnr(images, task):
    """Of each image, in the order of the clients' samples."""
    truth = task.images[torch.cat(list(task.parts))].numpy()
    return -10 * np.log10(((images - truth) ** 2).mean((1, 2, 3)) + 1e-10)


def matched_psnr(images, task):
    """Of each client's images, matched to its samples."""
    found, low = [], 0
    for part in task.parts:
        mine = images[low : low + len(part)]
        found += [mine[match(mine, task.images[part].numpy())]]
        low += len(part)
    return psnr(np.concatenate(found), task)


def with_uploads(view, values):
    """The view with these values in place of the first round's reports."""
    seen = view.rounds[0]
    assert seen.reports is not None
    return replace(view, rounds=(replace(seen, reports=replace(seen.reports, values=values)),))
