"""CPU seconds of vertical federations with a planted label: a thousand replicas in batches, against one run at a time.

    python benchmarks/vertical_runs.py

Digits in two halves at two parties, 300 people, 5 epochs in
batches of 50, a hidden layer of 16 at each party, label randomised response at epsilon 1; one person's label planted.
"""

import time

import torch
from fedassay.defenses.vertical.labels.label_randomised_response import LabelRandomisedResponse
from fedassay.fl.data.datasets import load_dataset
from fedassay.fl.streams import Runs, Streams
from fedassay.fl.vertical.engine import Planted, run_vertical
from fedassay.fl.vertical.protection import VerticalPlan, VerticalProtection
from fedassay.fl.vertical.task import VerticalTask, build_vertical_task

REPLICAS, BATCH, ALONE, ROUNDS = 1000, 250, 20, 5


def main() -> None:
    """Print the medians of paired measurements, and their ratio."""
    torch.set_num_threads(1)
    streams = Streams(0)
    task = build_vertical_task(load_dataset("digits"), streams=streams, people=300, embedding=4, hidden=(16,))
    plan = VerticalPlan(people=300, network=task.network, epochs=5, batch=50, learning_rate=0.5)
    protection = LabelRandomisedResponse(epsilon=1.0).prepare(plan).protection
    pairs = []
    for turn in range(ROUNDS):
        batched = _seconds(task, plan, protection, streams, BATCH, REPLICAS // BATCH, 100 * turn)
        alone = _seconds(task, plan, protection, streams, 1, ALONE, 1000 + 100 * turn)
        pairs.append((batched / REPLICAS, alone / ALONE))
    batched, alone, ratio = (
        sorted(found)[ROUNDS // 2] for found in zip(*((one, two, two / one) for one, two in pairs), strict=True)
    )
    print(f"1,000 runs in batches of {BATCH}: {1000 * batched:.2f} CPU s; one at a time: {1000 * alone:.1f} CPU s")
    print(f"ratio {ratio:.1f} (median of {ROUNDS} pairs)")


def _seconds(
    task: VerticalTask,
    plan: VerticalPlan,
    protection: VerticalProtection,
    streams: Streams,
    replicas: int,
    calls: int,
    first: int,
) -> float:
    """CPU seconds of so many calls of so many replicas each."""
    labels = task.people.labels.clone()
    labels[0] = (labels[0] + 1) % task.network.classes
    planted = Planted(labels=labels.expand(replicas, -1).clone())
    begun = time.process_time()
    for call in range(calls):
        run_vertical(
            task, plan, protection, streams, runs=Runs(replicas=replicas, block=first + call, arm=1), planted=planted
        )
    return time.process_time() - begun


if __name__ == "__main__":
    main()
