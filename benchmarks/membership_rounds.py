"""Scoring rounds: all clients' uploads against all candidates in one product, against one client after the other.

    python benchmarks/membership_rounds.py [--clients 10] [--candidates 400] [--pairs 7]

Prints CPU seconds a round of three ways to the same numbers, on one thread, in one process, taken in turn: the shared
product; a loop over clients that each take the candidates' gradients (what running an attack once a client costs); and
a loop over clients and candidates on gradients that are there already (what the product itself saves).
"""

import argparse
import statistics
import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch
from fedassay.attacks.attack import Knowledge
from fedassay.attacks.membership.alignment import RoundRows, align, candidate_gradients
from fedassay.fl.algorithms.algorithm import FedSGD
from fedassay.fl.models.network import Network
from fedassay.fl.partitions.sampling import Full
from fedassay.fl.plan import Plan
from fedassay.fl.probe import Candidates
from fedassay.fl.protection import Protection
from fedassay.fl.streams import Streams, normal, uniform
from fedassay.fl.task import Task
from torch import Tensor


class Round:
    """Random uploads and candidates at a random model: MLP 64-256-10."""

    def __init__(self, clients: int, candidates: int) -> None:
        rng = Streams(0).generator("benchmark")
        network = Network(model="mlp", shape=(1, 8, 8), classes=10)
        images, labels = uniform(rng, (candidates, 1, 8, 8)), torch.from_numpy(rng.integers(10, size=candidates))
        task = Task(
            network=network,
            images=images,
            labels=labels,
            parts=torch.arange(candidates).split(-(-candidates // clients)),
            outsider_images=images,
            outsider_labels=labels,
            test_images=images,
            test_labels=labels,
        )
        plan = Plan(
            sizes=task.sizes,
            rounds=1,
            cohort=Full(),
            lot=Full(),
            algorithm=FedSGD(learning_rate=1.0),
            layout=network.layout,
        )
        self.shown = Candidates(images=images, labels=labels, clients=tuple(range(clients)))
        self.knowledge = Knowledge.of(task, plan, Protection(), candidates=self.shown)
        uploads = normal(rng, (clients, network.layout.dim))
        self.rows = RoundRows(
            round=0, values=uploads, gradients=-uploads, model=network.initial(rng), senders=tuple(range(clients))
        )
        self.gradients = torch.cat([rows for _, rows in candidate_gradients(network, self.rows.model, self.shown)])

    def shared(self) -> Tensor:
        """All at once."""
        return align(self.rows, self.knowledge, self.shown).dots

    def by_client(self) -> Tensor:
        """Each client by itself, gradients and all."""
        each = [
            replace(self.rows, values=self.rows.values[[k]], gradients=self.rows.gradients[[k]], senders=(k,))
            for k in self.rows.senders
        ]
        return torch.cat([align(row, self.knowledge, self.shown).dots for row in each])

    def product(self) -> Tensor:
        """The product alone."""
        return (self.gradients @ self.rows.gradients.T).T.double()

    def by_pair(self) -> Tensor:
        """Each client and candidate by itself, on gradients that are there already."""
        dots = [torch.stack([row.dot(one) for one in self.gradients]) for row in self.rows.gradients]
        return torch.stack(dots).double()


def seconds(work: Callable[[], Tensor]) -> float:
    """CPU time of one call."""
    begun = time.process_time()
    work()
    return time.process_time() - begun


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=10)
    parser.add_argument("--candidates", type=int, default=400)
    parser.add_argument("--pairs", type=int, default=7)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    one = Round(arguments.clients, arguments.candidates)
    ways = {
        "shared": one.shared,
        "client by client": one.by_client,
        "product": one.product,
        "pair by pair": one.by_pair,
    }
    found = [way() for way in ways.values()]
    for other in found[1:]:
        np.testing.assert_allclose(found[0], other, rtol=1e-3, atol=1e-3)
    times = [{name: seconds(way) for name, way in ways.items()} for _ in range(arguments.pairs)]
    for name in ways:
        print(f"{name:18} {1000 * statistics.median(row[name] for row in times):8.1f} ms a round")
    for slow, fast in (("client by client", "shared"), ("pair by pair", "product")):
        ratios = [row[slow] / row[fast] for row in times]
        print(f"{slow} / {fast}: {statistics.median(ratios):.1f} (pairs {min(ratios):.1f} to {max(ratios):.1f})")


if __name__ == "__main__":
    main()
