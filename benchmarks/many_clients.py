"""One round of federations of 100 to 100,000 clients, cohorts of at most 1,000: CPU seconds and peak memory.

    python benchmarks/many_clients.py [--clients 100 1000 10000 100000] [--models logistic cnn26k] [--defenses none ...]

Each point is a process of its own, with one thread. The data are synthetic and of one size at every point: 112,000
images of 1x28x28, 335 MiB as float32, of which nine tenths are the pool of the task. Every client holds one image
(partition ``one_sample``) and takes one step of FedSGD on it. Cohorts are Poisson samples of 1,000 expected clients, or
all clients where there are at most 1,000. ``deal`` is the distribution of the data to the clients, ``prepare`` the plan
and the calibration of the defense, ``round`` the round with the recorders of a suite's training (utility, public
numbers, traffic) and the view of an observer: of global models, or of uploads with ``--uploads``. Memory is the peak of
the process, and the peak before the data are dealt.
"""

import argparse
import resource
import subprocess
import sys
import time
from itertools import pairwise

import torch
from fedassay.audit.observer import GLOBAL_MODELS, UPLOADS
from fedassay.defenses.client_level.dp_fedavg import DPFedAvg
from fedassay.defenses.defense import Defense
from fedassay.defenses.local.vectors.ldp_gaussian import LDPGaussian
from fedassay.defenses.sample_level.dp_sgd import DPSGD
from fedassay.defenses.secure.distributed_discrete_gaussian import DistributedDiscreteGaussian
from fedassay.defenses.shuffling.apes import APES
from fedassay.defenses.shuffling.cldp_sgd import CLDPSGD
from fedassay.defenses.without_dp.none import Undefended
from fedassay.fl.algorithms import FedSGD
from fedassay.fl.data.dataset import Dataset
from fedassay.fl.engine import run_federation
from fedassay.fl.hooks import Recorder
from fedassay.fl.partitions import OneSample
from fedassay.fl.plan import Plan
from fedassay.fl.recorder import NumbersRecorder, RoundEvent, TrafficRecorder, UtilityRecorder, ViewRecorder
from fedassay.fl.sampling import Full, Poisson
from fedassay.fl.streams import Streams
from fedassay.fl.task import Task, build_task

COHORT, IMAGES = 1000, 112_000
DEFENSES: dict[str, Defense] = {
    "none": Undefended(),
    "dp_fedavg": DPFedAvg(),
    "ldp_gaussian": LDPGaussian(),
    "dp_sgd": DPSGD(),
    "secure_sum": DistributedDiscreteGaussian(bits=28),
    # A local budget that is given needs no calibration, whose time would cover that of the round.
    "shuffled_rows": CLDPSGD(local_epsilon=1.0),
    "shuffled_coordinates": APES(budget_scale=1.0),
}


def synthetic() -> Dataset:
    """The data set of every point."""
    draw = Streams(0).generator("images")
    parts = {
        part: (torch.from_numpy(draw.random((n, 1, 28, 28), "float32")), torch.from_numpy(draw.integers(10, size=n)))
        for part, n in (("train", IMAGES), ("test", 1000))
    }
    return Dataset(
        name="synthetic",
        train_images=parts["train"][0],
        train_labels=parts["train"][1],
        test_images=parts["test"][0],
        test_labels=parts["test"][1],
        classes=10,
    )


def plan_of(task: Task) -> Plan:
    """One round, cohorts of at most 1,000 expected clients."""
    return Plan(
        sizes=task.sizes,
        rounds=1,
        cohort=Full() if task.clients <= COHORT else Poisson(COHORT / task.clients),
        lot=Full(),
        algorithm=FedSGD(learning_rate=0.1),
        layout=task.network.layout,
    )


def peak() -> float:
    """Return the process's peak memory in GiB."""
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return used / 2**30 if sys.platform == "darwin" else used / 2**20


def measure(clients: int, model: str, defense: str, uploads: bool) -> None:
    """Print one row of the table."""
    torch.set_num_threads(1)
    streams, dataset, before = Streams(0), synthetic(), peak()
    times = [time.process_time()]
    task = build_task(dataset, model=model, partition=OneSample(), clients=clients, streams=streams)
    times.append(time.process_time())
    plan = plan_of(task)
    protection = DEFENSES[defense].prepare(plan).protection
    times.append(time.process_time())
    recorders: list[Recorder[RoundEvent]] = [
        UtilityRecorder(task=task),
        NumbersRecorder(protection=protection, plan=plan),
        TrafficRecorder(),
        ViewRecorder(observer=UPLOADS if uploads else GLOBAL_MODELS),
    ]
    run_federation(task, plan, protection, streams, recorders=recorders)
    times.append(time.process_time())
    deal, prepare, turn = (f"{after - earlier:8.2f}" for earlier, after in pairwise(times))
    print(f"{defense:21}{model:10}{clients:8,}{deal}{prepare}{turn}{peak():8.2f} ({before:.2f})", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--clients", type=int, nargs="+", default=[100, 1000, 10_000, 100_000])
    parser.add_argument("--models", nargs="+", default=["logistic", "cnn26k"])
    parser.add_argument("--defenses", nargs="+", choices=list(DEFENSES), default=list(DEFENSES))
    parser.add_argument("--uploads", action="store_true", help="record the view of an observer of uploads")
    parser.add_argument("--point", action="store_true", help="measure the first point in this process")
    given = parser.parse_args()
    if given.point:
        measure(given.clients[0], given.models[0], given.defenses[0], given.uploads)
        return
    print(f"{'defense':21}{'model':10}{'clients':>8}{'deal':>8}{'prepare':>8}{'round':>8}  peak GiB (before dealing)")
    for defense in given.defenses:
        for model in given.models:
            for clients in given.clients:
                point = ["--clients", str(clients), "--models", model, "--defenses", defense, "--point"]
                watched = ["--uploads"] if given.uploads else []
                subprocess.run([sys.executable, __file__, *point, *watched], check=False)


if __name__ == "__main__":
    main()
