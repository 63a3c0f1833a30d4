"""Norms of sample gradients by client and round, as Figure 1 of Adap DP-FL (Fu et al. 2022) draws them.

    python benchmarks/gradient_norms.py [--federation mnist_3] [--rounds 1000] [--seed 0] [--defense none]

A federation of the suite `papers/adap_dp_fl`, such as `mnist_3` or `fashion_2`: ten clients with label skew, the
small CNN, Adam; `reading_shards_40` has ten labels per client. The paper does not state whether its Figure 1 shows a
defended training; `--defense none` trains without a defense, `--defense constant` with the paper's constant noise.
Each figure is the mean norm of the gradients of 100 samples of one client at the model that the server broadcasts.
Norms of gradients are private: no observer receives them. The norms of three samples are compared with a loop over
samples. About 2 CPU minutes for a thousand rounds.
"""

import argparse
import time
from dataclasses import dataclass, field

import numpy as np
import torch
from fedassay.defenses.sample_level.adap_dp_fl import AdapDPFL
from fedassay.fl.engine import run_federation
from fedassay.fl.protection import Protection
from fedassay.fl.recorder import RoundEvent
from fedassay.fl.streams import Streams
from fedassay.fl.task import Task
from fedassay.suites.config.resolve import plan_of, task_of
from fedassay.suites.config.suite_file import load_suite
from fedassay.suites.config.tables.suite import PlanChange
from torch import Tensor

SAMPLES, NAIVE = 100, 3
NOISE = {"mnist": 3.0, "fashion_mnist": 2.0}
"""The paper's constant noise multiplier by data set."""


@dataclass(kw_only=True)
class NormRecorder:
    """A recorder that keeps, at the given rounds, the mean norm of each client's sample gradients."""

    task: Task
    at: frozenset[int]
    rows: dict[int, list[float]] = field(default_factory=dict)

    def watch(self, event: RoundEvent) -> None:
        """Record the norms at the model that this round broadcasts."""
        if event.round in self.at:
            self.rows[event.round] = [
                float(norms(self.task, event.broadcast, client).mean()) for client in range(self.task.clients)
            ]


def norms(task: Task, model: Tensor, client: int) -> Tensor:
    """The norms ``(n,)`` of the gradients of the client's first samples at ``model (1, d)``."""
    part = task.parts[client][:SAMPLES]
    gradients = task.network.sample_gradients(model, task.images[part][None], task.labels[part][None])
    return torch.linalg.vector_norm(gradients[0], dim=-1)


def naive(task: Task, model: Tensor, client: int) -> Tensor:
    """The same for three samples, one after the other."""
    found = []
    for sample in task.parts[client][:NAIVE].tolist():
        point = model[0].clone().requires_grad_(True)
        loss = task.network.losses(point, task.images[sample][None], task.labels[sample][None]).sum()
        (row,) = torch.autograd.grad(loss, point)
        found.append(row.norm())
    return torch.stack(found)


def main() -> None:
    """Train, and print one row per recorded round."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    federations = load_suite("papers/adap_dp_fl")[0].federations
    parser.add_argument("--federation", choices=tuple(federations), default="mnist_3")
    parser.add_argument("--rounds", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--defense", choices=("none", "constant"), default="none")
    given = parser.parse_args()
    torch.set_num_threads(1)
    federation = federations[given.federation]
    noise = NOISE[federation.dataset]
    task = task_of(federation, given.seed)
    plan = plan_of(federation, PlanChange(), task)
    protection = Protection()
    if given.defense == "constant":
        constant = AdapDPFL(epsilon=2.0, noise_multiplier=noise, decay=1.0, adapt_clip=False, conversion="mironov_2017")
        protection = constant.prepare(plan).protection
    at = frozenset(int(number) for number in np.unique(np.geomspace(1, given.rounds, 9).round() - 1))
    recorder, begun = NormRecorder(task=task, at=at), time.process_time()
    model = run_federation(task, plan, protection, Streams(given.seed), recorders=[recorder], stop_after=given.rounds)
    spent = time.process_time() - begun
    torch.testing.assert_close(norms(task, model, 0)[:NAIVE], naive(task, model, 0), rtol=1e-3, atol=1e-6)
    print(f"{given.federation}, seed {given.seed}, defense {given.defense}: mean norm of a sample's gradient")
    print("round  mean of clients  smallest  largest   by client")
    for number, row in recorder.rows.items():
        each = " ".join(f"{value:5.2f}" for value in row)
        print(f"{number + 1:5d}  {np.mean(row):15.3f}  {min(row):8.3f}  {max(row):7.3f}   {each}")
    print(f"labels by client: {' '.join(str(len(task.labels[part].unique())) for part in task.parts)}")
    print(f"{spent:.0f} CPU s")


if __name__ == "__main__":
    main()
