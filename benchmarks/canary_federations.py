"""Canary federations: CPU seconds per thousand, in batches of replicas and one by one.

    python benchmarks/canary_federations.py [--federations 1000] [--batch 250] [--single 5]

Digits, logistic regression, 20 rounds, 10 clients with 129 or 130 images each, in lots of rate .1. Once with a sample
canary under DP-SGD (per-sample gradients, noise at every client), once with a client canary under DP-FedAvg; half of
the federations with the canary. One by one is measured on a few and scaled.
"""

import argparse
import time
from functools import cache

import torch
from fedassay.attacks.attack import Knowledge, Level
from fedassay.attacks.canary import CanaryProjections, canary_sender
from fedassay.audit.claim import Unit
from fedassay.audit.observer import GLOBAL_MODELS, UPLOADS, Observer
from fedassay.defenses.client_level.dp_fedavg import DPFedAvgProtection
from fedassay.defenses.sample_level.dp_sgd import DPSGDProtection
from fedassay.fl.algorithms import FedSGD
from fedassay.fl.canary import Canary
from fedassay.fl.data.datasets import load_dataset
from fedassay.fl.engine import run_federation
from fedassay.fl.partitions import partition_from
from fedassay.fl.plan import Plan
from fedassay.fl.protection import Protection
from fedassay.fl.recorder import ViewRecorder
from fedassay.fl.sampling import Full, Poisson
from fedassay.fl.streams import Streams
from fedassay.fl.task import Task, build_task
from fedassay.fl.training.local import Batch

CASES: dict[str, tuple[Protection, Unit, Observer]] = {
    "DP-SGD, sample": (DPSGDProtection(clip_norm=1.0, noise_multiplier=1.0), Unit.SAMPLE, UPLOADS),
    "DP-FedAvg, client": (DPFedAvgProtection(clip_norm=1.0, noise_multiplier=1.0), Unit.CLIENT, GLOBAL_MODELS),
}


@cache
def federation() -> tuple[Task, Plan]:
    """Ten clients of digits and one unused weight."""
    task = build_task(
        load_dataset("digits"), model="logistic", partition=partition_from("iid"), clients=10, streams=Streams(0)
    ).with_inert(1)
    algorithm = FedSGD(learning_rate=1.0)
    layout = task.network.layout
    return task, Plan(sizes=task.sizes, rounds=20, cohort=Full(), lot=Poisson(0.1), algorithm=algorithm, layout=layout)


def scored(case: str, batch: Batch) -> None:
    """Run and score one batch of one arm."""
    protection, unit, observer = CASES[case]
    task, plan = federation()
    row = torch.zeros(plan.layout.dim)
    row[-1] = 10.0
    canary = Canary(unit=unit, present=row)
    inert = slice(plan.layout.model_dim, plan.layout.dim)
    recorder = ViewRecorder(observer=observer, coordinates=inert, senders=(canary_sender(canary, plan),))
    final = run_federation(task, plan, protection, Streams(0), batch=batch, canary=canary, recorders=[recorder])
    knowledge = Knowledge.of(task, plan, protection, level=Level.WORST_CASE, canary=canary)
    seen = CanaryProjections().run(recorder.view(plan, final), knowledge, Streams(0).generator("attack canary"))
    assert seen.values.shape == (batch.replicas, plan.rounds)


def seconds_per_thousand(case: str, *, federations: int, batch: int) -> float:
    """CPU seconds per thousand federations, half with and half without the canary, ``batch`` replicas at a time."""
    begun, arm = time.process_time(), federations // 2
    for start in range(0, arm, batch):
        for side in (0, 1):
            replicas = min(batch, arm - start)
            scored(case, Batch(replicas=replicas, block=1 + start // batch, arm=side))
    return (time.process_time() - begun) * 1000 / (2 * arm)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--federations", type=int, default=1000, help="of each case, half in each arm")
    parser.add_argument("--batch", type=int, default=250, help="replicas of one batch")
    parser.add_argument("--single", type=int, default=10, help="federations to run one by one")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    federation()  # Loading the digits is paid once.
    print(f"{'CPU s a thousand':18} {'batched':>9} {'one by one':>11}")
    for case in CASES:
        together = seconds_per_thousand(case, federations=arguments.federations, batch=arguments.batch)
        alone = seconds_per_thousand(case, federations=arguments.single, batch=1)
        print(f"{case:18} {together:9.1f} {alone:11.1f}")


if __name__ == "__main__":
    main()
