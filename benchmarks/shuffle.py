"""Shuffling at scale: seconds and memory of ten thousand clients; training; and a shuffler whose leak is known.

    python benchmarks/shuffle.py clients              # APES, 10,000 clients, logistic regression on MNIST, one round
    python benchmarks/shuffle.py training             # UniS at epsilon 8, 1,000 clients, cnn26k on Fashion-MNIST
    python benchmarks/shuffle.py truth                # shuffled binary randomised response, 4e6 trials a world

Reads the data from FEDASSAY_DATA. ``resident`` is the largest resident set of the process (getrusage). Measured on one
core of a busy two-core machine: ``clients`` calibrates in 2 s, trains in 5 CPU seconds in 2.2 GiB (S-APES 9.5 in 2.3;
FLAME, before clients went in blocks, 17 in 3.3); ``training``: 340 s beside seven busy processes, 1.7 GiB, finite,
accuracy .20; ``truth``: .187 of .272.
"""

import argparse
import resource
import time

import numpy as np
import torch
from fedassay.audit.claim import Adjacency, Unit
from fedassay.audit.estimators.pairwise_event import EventCounts, best_event, pairwise_event
from fedassay.audit.evidence import Design, Setting
from fedassay.audit.observer import SHUFFLED
from fedassay.defenses.accounting.clones import shuffled, shuffled_bits
from fedassay.defenses.accounting.counts import binomial
from fedassay.defenses.defense import Defense
from fedassay.defenses.shuffling.apes import APES
from fedassay.defenses.shuffling.flame import FLAME
from fedassay.defenses.shuffling.s_apes import SAPES
from fedassay.defenses.shuffling.unis import UniS
from fedassay.fl.algorithms.algorithm import FedSGD
from fedassay.fl.data.datasets import load_dataset
from fedassay.fl.engine import run_federation
from fedassay.fl.partitions.partitions import IID
from fedassay.fl.partitions.sampling import FixedSize, Full, Sampling
from fedassay.fl.plan import Plan
from fedassay.fl.streams import Streams
from fedassay.fl.task import build_task
from scipy.special import expit

DEFENSES = {
    "apes": APES(budget_scale=1.0, delta=3.6e-5),
    "s_apes": SAPES(budget_scale=1.0, delta=3.6e-5),
    "flame": FLAME(local_epsilon=1.0, delta=3.6e-5),
    "unis": UniS(epsilon=8.0),
}


def resident() -> float:
    """GiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def train(
    defense: Defense, *, dataset: str, model: str, clients: int, rounds: int, lot: Sampling, learning_rate: float
) -> None:
    """One defended federation, with what it took."""
    streams = Streams(0)
    task = build_task(load_dataset(dataset), model=model, partition=IID(), clients=clients, streams=streams)
    plan = Plan(
        sizes=task.sizes,
        rounds=rounds,
        cohort=Full(),
        lot=lot,
        algorithm=FedSGD(learning_rate=learning_rate),
        layout=task.network.layout,
    )
    begun, loaded = time.perf_counter(), resident()
    prepared = defense.prepare(plan)
    calibrated = time.perf_counter()
    final = run_federation(task, plan, prepared.protection, streams)[0]
    done = time.perf_counter()
    name = type(defense).__name__
    print(f"{name}, {clients} clients of {dataset}, {model} with d = {plan.layout.dim}, {rounds} rounds")
    for claim in prepared.claims:
        print(f"  claims {claim.describe()}")
    print(f"  calibrated in {calibrated - begun:.1f} s, trained in {done - calibrated:.1f} s")
    print(f"  resident {resident():.2f} GiB at most, {loaded:.2f} with the data alone")
    print(f"  finite {bool(final.isfinite().all())}, accuracy {task.accuracy(final):.3f}")


def judge_truth(*, clients: int, epsilon0: float, delta: float, trials: int) -> None:
    """What counts of ones show of shuffled randomised response, by the best event of its exact law."""
    pair = shuffled_bits(clients=clients, epsilon0=epsilon0)
    inside = best_event(pair.p / pair.p.sum(), pair.q / pair.q.sum(), trials=trials, delta=delta)
    lie, rng = float(expit(-epsilon0)), np.random.default_rng(0)
    first, hits = binomial(clients - 1, lie).first, list[int]()
    for own in (1 - lie, lie):
        ones = rng.binomial(clients - 1, lie, trials) + (rng.random(trials) < own)
        hits.append(int(inside[np.clip(ones - first, 0, inside.size - 1)].sum()))
    setting = Setting(
        unit=Unit.CLIENT, adjacency=Adjacency.REPLACE_ONE, observer=SHUFFLED, rounds=1, design=Design.INDEPENDENT
    )
    counts = EventCounts(hits_in=hits[0], n1=trials, hits_out=hits[1], n0=trials, setting=setting)
    shown = pairwise_event(counts, delta=delta, alpha=0.05).epsilon_low
    print(f"{clients} clients, eps0 {epsilon0:g}, delta {delta:g}, {trials} trials a world")
    above = shuffled(clients=clients, epsilon0=epsilon0).epsilon(delta)
    print(f"  exact {pair.epsilon(delta):.4f}, shown {shown:.4f}, clones {above:.4f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("clients", "training", "truth"))
    parser.add_argument("--defense", choices=DEFENSES)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if arguments.what == "truth":
        judge_truth(clients=1000, epsilon0=2.0, delta=1e-5, trials=4_000_000)
    elif arguments.what == "training":
        train(
            DEFENSES[arguments.defense or "unis"],
            dataset="fashion_mnist",
            model="cnn26k",
            clients=1000,
            rounds=20,
            lot=FixedSize(8),
            learning_rate=0.1,
        )
    else:
        train(
            DEFENSES[arguments.defense or "apes"],
            dataset="mnist",
            model="logistic",
            clients=10_000,
            rounds=1,
            lot=Full(),
            learning_rate=1.0,
        )


if __name__ == "__main__":
    main()
