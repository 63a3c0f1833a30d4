"""Peak memory of every inversion attack: 20 uploads of 64 images each, LeNet at 28x28, 8 restarts, a process each.

    FEDASSAY_DATA=... python benchmarks/inversion_memory.py [--dataset fashion_mnist] [--batch 64] [--iterations 3]

The peak is the process's resident set, with Python, torch, the data set and the federation in it; how much that is
before the attack starts stands beside it. More iterations hold no more.
"""

import argparse
import resource
import subprocess
import sys

import numpy as np
import torch
from fedassay.attacks.attack import Knowledge
from fedassay.attacks.gradient.objectives.search_attack import SearchAttack
from fedassay.audit.observer import UPLOADS
from fedassay.defenses.local.vectors.ldp_gaussian import LDPGaussianProtection
from fedassay.defenses.sample_level.dp_sgd import DPSGDProtection
from fedassay.fl.algorithms.algorithm import FedAvg, FedSGD
from fedassay.fl.data.datasets import load_dataset
from fedassay.fl.engine import run_federation
from fedassay.fl.partitions.partitions import IID
from fedassay.fl.partitions.sampling import FixedSize, Full
from fedassay.fl.plan import Plan
from fedassay.fl.protection import Protection
from fedassay.fl.recorder import ViewRecorder
from fedassay.fl.streams import Streams
from fedassay.fl.task import build_task
from fedassay.suites.config.catalogue import parts_by_name
from fedassay.suites.execution.memory import keep_freed_memory

UPLOADED = 20
PROTECTIONS: dict[str, Protection] = {
    "none": Protection(),
    "dp_sgd": DPSGDProtection(clip_norm=1.0, noise_multiplier=0.01),
    "ldp_gaussian": LDPGaussianProtection(clip_norm=1.0, noise_std=0.01),
}
"""Laws of samples and of reports are held differently; cosine attacks take no law."""


def peak() -> float:
    """GiB of this process so far."""
    return float(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20)


def measure(attack: type[SearchAttack], dataset: str, batch: int, iterations: int, steps: int, defense: str) -> str:
    """One attack, here and now."""
    task = build_task(
        load_dataset(dataset),
        model="lenet",
        partition=IID(),
        clients=UPLOADED,
        samples=UPLOADED * batch,
        streams=Streams(0),
    )
    plan = Plan(
        sizes=task.sizes,
        rounds=1,
        cohort=Full(),
        lot=Full() if steps == 1 else FixedSize(batch // steps),
        algorithm=FedSGD(learning_rate=1.0) if steps == 1 else FedAvg(learning_rate=0.1, local_steps=steps),
        layout=task.network.layout,
    )
    protection, recorder = PROTECTIONS[defense], ViewRecorder(observer=UPLOADS)
    view = recorder.view(plan, run_federation(task, plan, protection, Streams(0), recorders=[recorder]))
    before = peak()
    attack(iterations=iterations, restarts=8).run(view, Knowledge.of(task, plan, protection), np.random.default_rng(0))
    return f"{peak():.2f} GiB, {before:.2f} before the attack"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dataset", default="fashion_mnist")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--iterations", type=int, default=3)
    parser.add_argument("--only", nargs=3, metavar=("ATTACK", "STEPS", "DEFENSE"), help="this one, in this process")
    given = parser.parse_args()
    attacks = {name: part for name, part in parts_by_name("attack").items() if issubclass(part, SearchAttack)}
    if given.only:
        torch.set_num_threads(1)
        keep_freed_memory()
        name, steps, defense = given.only
        print(measure(attacks[name], given.dataset, given.batch, given.iterations, int(steps), defense))
        return
    for name in attacks:
        for steps in ("1", "4"):
            lawful = ("ldp_gaussian",) if steps == "4" else ("dp_sgd", "ldp_gaussian")
            for defense in lawful if name == "map_inversion" else ("none",):
                arguments = [*sys.argv[1:], "--only", name, steps, defense]
                done = subprocess.run(
                    [sys.executable, __file__, *arguments], check=True, capture_output=True, text=True
                )
                print(f"{name:18}{steps} local steps, {defense:13}{done.stdout.strip()}", flush=True)


if __name__ == "__main__":
    main()
