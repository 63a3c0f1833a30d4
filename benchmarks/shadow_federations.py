"""64 shadow federations in one batch against the same ones trained one after the other.

    python benchmarks/shadow_federations.py [--count 64] [--loop 8] [--pairs 5]

Digits, 10 clients, 20 rounds, logistic regression, each sample in by a coin; undefended and under DP-SGD. Prints CPU
seconds of ``count`` federations, on one thread, in one process, taken in turn; the loop trains ``loop`` of them, and
its time is scaled to ``count``.
"""

import argparse
import statistics
import time
from collections.abc import Callable

import torch
from fedassay.defenses.sample_level.dp_sgd import DPSGDProtection
from fedassay.fl.algorithms.algorithm import FedSGD
from fedassay.fl.data.datasets import load_dataset
from fedassay.fl.engine import run_federation
from fedassay.fl.partitions.partitions import IID
from fedassay.fl.partitions.sampling import Full, Poisson
from fedassay.fl.plan import Plan
from fedassay.fl.protection import Protection
from fedassay.fl.streams import Streams
from fedassay.fl.task import Task, build_task
from fedassay.fl.training.local import Batch
from fedassay.suites.attacking.shadows import draw_membership, train_shadows


def federation() -> tuple[Task, Plan]:
    """Who trains on what, and how."""
    task = build_task(load_dataset("digits"), model="logistic", partition=IID(), clients=10, streams=Streams(0))
    plan = Plan(
        sizes=task.sizes,
        rounds=20,
        cohort=Full(),
        lot=Poisson(0.1),
        algorithm=FedSGD(learning_rate=1.0),
        layout=task.network.layout,
    )
    return task, plan


def spent(work: Callable[[], object]) -> float:
    """CPU seconds."""
    begun = time.process_time()
    work()
    return time.process_time() - begun


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=64)
    parser.add_argument("--loop", type=int, default=8)
    parser.add_argument("--pairs", type=int, default=5)
    given = parser.parse_args()
    torch.set_num_threads(1)
    task, plan = federation()
    included = draw_membership(Streams(0), given.count, len(task.labels))
    for name, protection in (
        ("undefended", Protection()),
        ("dp_sgd", DPSGDProtection(clip_norm=1.0, noise_multiplier=1.0)),
    ):

        def together(protection: Protection = protection) -> None:
            train_shadows(task, plan, protection, Streams(0), count=given.count)

        def one_by_one(protection: Protection = protection) -> None:
            for number in range(given.loop):
                run_federation(
                    task,
                    plan,
                    protection,
                    Streams(0),
                    batch=Batch(block=number, included=included[number : number + 1]),
                )

        taken = [(spent(together), spent(one_by_one) * given.count / given.loop) for _ in range(given.pairs)]
        batch, loop = (statistics.median(one) for one in zip(*taken, strict=True))
        ratios = sorted(alone / shared for shared, alone in taken)
        print(
            f"{name}: {given.count} federations {batch:.2f} CPU s together, {loop:.2f} one by one; "
            f"ratio {statistics.median(ratios):.1f} (pairs {ratios[0]:.1f} to {ratios[-1]:.1f})"
        )


if __name__ == "__main__":
    main()
