"""How often DLG converges: the share of 20 starts, each on an image of its own, with a 95 % Clopper-Pearson interval.

    python benchmarks/dlg.py [--dataset digits] [--runs 20] [--iterations 1200] [--seed 0]

As in the paper: LeNet with sigmoid, weights from U(-.5, .5), one image an upload, no defense, one start each, L-BFGS
with step 1 and no line search. ``converged``: at least 20 dB; also the quartiles of PSNR, and CPU seconds.
"""

import argparse
import time
from functools import cached_property

import numpy as np
import torch
from fedassay.attacks.attack import Knowledge, Level
from fedassay.attacks.gradient.dlg import DLG
from fedassay.audit.observer import UPLOADS
from fedassay.fl.algorithms.algorithm import FedSGD
from fedassay.fl.data.datasets import load_dataset
from fedassay.fl.message import Message
from fedassay.fl.models.models import build_model
from fedassay.fl.models.network import Network
from fedassay.fl.partitions.sampling import Full
from fedassay.fl.plan import Plan
from fedassay.fl.streams import Streams, uniform
from fedassay.fl.view import RoundView, View
from fedassay.suites.scoring.images import score_images
from fedassay.suites.scoring.labels import rate_interval
from torch import nn

CONVERGED = 20.0
"""Decibels."""


class SmoothLeNet(Network):
    """The paper's activation."""

    @cached_property
    def module(self) -> nn.Module:
        return build_model(self.model, shape=self.shape, classes=self.classes, activation="sigmoid")


def converged(dataset: str, runs: int, iterations: int, seed: int) -> np.ndarray:
    """PSNR ``(runs,)`` of each image."""
    data, streams = load_dataset(dataset), Streams(seed)
    network = SmoothLeNet(model="lenet", shape=data.shape, classes=data.classes)
    weights = uniform(streams.generator("init"), (network.layout.dim,)) - 0.5
    chosen = torch.from_numpy(streams.generator("data").permutation(len(data.train_labels))[:runs])
    images, labels = data.train_images[chosen], data.train_labels[chosen]
    uploads = -network.sample_gradients(weights[None], images[None], labels[None])
    plan = Plan(
        sizes=(1,) * runs,
        rounds=1,
        cohort=Full(),
        lot=Full(),
        algorithm=FedSGD(learning_rate=1.0),
        layout=network.layout,
    )
    reports = Message(values=uploads, present=torch.ones(1, runs, dtype=torch.bool), senders=tuple(range(runs)))
    shown = RoundView(round=0, broadcast=weights[None], reports=reports)
    view = View(observer=UPLOADS, plan=plan, rounds=(shown,), final_model=weights[None])
    knowledge = Knowledge(
        level=Level.REALISTIC,
        network=network,
        plan=plan,
        law=lambda observer, client: None,
        public_images=data.test_images,
        public_labels=data.test_labels,
    )
    found = DLG(iterations=iterations, restarts=1).run(view, knowledge, streams.generator("attack"))
    return np.array([score.psnr for score in score_images(found.images, images.numpy())])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dataset", default="digits")
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--iterations", type=int, default=1200)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    started = time.process_time()
    psnr = np.asarray(converged(**vars(arguments)))
    rate = rate_interval(psnr >= CONVERGED)
    quartiles = ", ".join(f"{value:.1f}" for value in np.quantile(psnr, [0.25, 0.5, 0.75]))
    print(
        f"{arguments.dataset}: {sum(psnr >= CONVERGED)} of {len(psnr)} converged, "
        f"{rate.value:.2f} [{rate.low:.2f}, {rate.high:.2f}]; quartiles of PSNR {quartiles} dB; "
        f"{time.process_time() - started:.0f} CPU s"
    )


if __name__ == "__main__":
    main()
