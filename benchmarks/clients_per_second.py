"""Clients per second on the job of pfl-research's CIFAR-10 benchmark: this engine, pfl, Flower and a plain loop.

    OMP_NUM_THREADS=1 python benchmarks/clients_per_second.py [--clients 1000 10000 100000] [--rounds 20] [--only ...]
    OMP_NUM_THREADS=1 python benchmarks/clients_per_second.py --model cnn26k    # a model of 26,010 weights
    python benchmarks/clients_per_second.py --check      # that all ways compute the same models

The job is that of ``cifar_job.py``. Each way is a process of its own with one thread; the processes take turns, a round
each, after a first round that is not counted. The engine keeps the view of an observer of global models and the utility
after every tenth round; the others test their models as often. Seconds are CPU seconds of a way's processes.

``plain loop``, ``pfl`` and ``Flower`` get cohorts and lots from one function, except that pfl draws its cohorts and
Flower on Ray lets its strategy draw them; the engine draws its own. ``Flower in process`` is a strategy of Flower that
trains client apps by direct calls, without Ray and without its servers: what Flower takes at least. A step of ``plain
loop, compiled`` is one program of ``torch.compile``: what compiling gains on this model at most. A library that is not
installed has a row that says so:

    pip install pfl 'flwr[simulation]'
"""

import argparse
import os
from collections.abc import Callable
from functools import partial
from itertools import count
from typing import Any

import torch
from cifar_flower import flower_in_process, flower_on_ray
from cifar_job import EVERY, LOT, SAMPLES, SMALL_CNN, Draws, Job, compiled_steps, plain_loop
from fedassay.audit.observer import GLOBAL_MODELS
from fedassay.fl.engine import run_federation
from fedassay.fl.protection import Protection
from fedassay.fl.recorder import RoundEvent, UtilityRecorder, ViewRecorder
from fedassay.fl.streams import Streams
from fedassay.fl.training.executor_choice import executor_named, known_executors
from torch import Tensor
from torch.nn.functional import cross_entropy
from turns import Taken, TurnOver, take_turns

PLAIN = "plain loop"


class _RoundEnd:
    """A recorder that keeps the lots of each client, and calls ``turn_over`` after each round."""

    needs_reports = False

    def __init__(self, turn_over: TurnOver, *, keep_lots: bool = False) -> None:
        self.given = dict[tuple[int, int], Tensor]()
        self._turn_over, self._keeps = turn_over, keep_lots

    def watch(self, event: RoundEvent) -> None:
        if self._keeps:
            for client, lots in event.lots.items():
                self.given[event.round, client] = torch.stack([mask[0].nonzero().flatten() for mask in lots])
        self._turn_over()


def engine(job: Job, turn_over: TurnOver, *, executor: str | None = None) -> Tensor:
    """This package's engine with the recorders of a run; returns the last model ``(d,)``."""
    return _watched(job, _RoundEnd(turn_over), executor)


def _watched(job: Job, end: _RoundEnd, executor: str | None = None) -> Tensor:
    recorders = [UtilityRecorder(task=job.task, every=EVERY), ViewRecorder(observer=GLOBAL_MODELS), end]
    options = {"recorders": recorders, "stop_after": job.rounds, "executor": executor and executor_named(executor)}
    return run_federation(job.task, job.plan, Protection(), Streams(0), **options)[0]


def pfl_simulation(job: Job, turn_over: TurnOver, *, draws: Draws | None = None) -> Tensor:
    """pfl's FederatedAveraging on its simulated backend; returns the last model ``(d,)``."""
    from pfl.aggregate.simulate import SimulatedBackend
    from pfl.aggregate.weighting import WeightByUser
    from pfl.algorithm.base import NNAlgorithmParams
    from pfl.algorithm.federated_averaging import FederatedAveraging
    from pfl.callback.base import TrainingProcessCallback
    from pfl.callback.central_evaluation import CentralEvaluationCallback
    from pfl.data import FederatedDataset
    from pfl.data.dataset import Dataset
    from pfl.hyperparam import NNEvalHyperParams, NNTrainHyperParams
    from pfl.metrics import Metrics, Weighted
    from pfl.model.pytorch import PyTorchModel

    class End(TrainingProcessCallback):
        def after_central_iteration(self, *_: Any, **__: Any) -> tuple[bool, Any]:
            turn_over()
            return False, Metrics()

    def metrics(images: Tensor, labels: Tensor) -> dict[str, Any]:
        with torch.no_grad():
            logits = module(images)
        loss, right = cross_entropy(logits, labels, reduction="sum"), (logits.argmax(1) == labels).sum()
        return {"loss": Weighted(float(loss), len(labels)), "accuracy": Weighted(int(right), len(labels))}

    draws, module, taken = draws or job.draws, job.model(), count()
    module.loss = lambda images, labels: cross_entropy(module(images), labels)
    module.metrics = metrics

    def client_data(client: int) -> Dataset:
        # pfl makes the data of one client after the other, a cohort per round.
        return Dataset(raw_data=list(job.lot_data(draws, next(taken) // job.cohort, client)), user_id=str(client))

    cohorts = iter(client for turn in count() for client in draws.cohort_of(turn))
    clients = FederatedDataset(client_data, partial(next, cohorts))
    tests = CentralEvaluationCallback(
        Dataset(raw_data=[job.task.test_images, job.task.test_labels]),
        model_eval_params=NNEvalHyperParams(local_batch_size=250),
        frequency=EVERY,
    )
    server = torch.optim.SGD(module.parameters(), lr=1.0)
    FederatedAveraging().run(
        algorithm_params=NNAlgorithmParams(
            central_num_iterations=job.rounds,
            # Clients' own data are not tested, except before the first round.
            evaluation_frequency=job.rounds + 1,
            train_cohort_size=job.cohort,
            val_cohort_size=0,
        ),
        backend=SimulatedBackend(training_data=clients, val_data=clients, postprocessors=[WeightByUser()]),
        model=PyTorchModel(module, local_optimizer_create=torch.optim.SGD, central_optimizer=server),
        model_train_params=NNTrainHyperParams(local_learning_rate=0.1, local_num_epochs=1, local_batch_size=LOT),
        model_eval_params=NNEvalHyperParams(local_batch_size=SAMPLES),
        callbacks=[tests, End()],
        send_metrics_to_platform=False,
    )
    return torch.nn.utils.parameters_to_vector(module.parameters()).detach()


Run = Callable[..., Any]


def ways(job: Job) -> dict[str, Run]:
    """Return every way of running the job, by name."""
    own = {f"engine, {name}": partial(engine, job, executor=name) for name in known_executors()}
    compiled = partial(plain_loop, job, steps=compiled_steps)
    others = {"pfl": pfl_simulation, "Flower in process": flower_in_process, "Flower on Ray": flower_on_ray}
    return {
        PLAIN: partial(plain_loop, job),
        f"{PLAIN}, compiled": compiled,
        **own,
        **{name: partial(way, job) for name, way in others.items()},
    }


def _one_thread(way: Run, turn_over: TurnOver) -> None:
    # Without a result: a tensor is sent through memory of its process, which may have ended when it is read.
    torch.set_num_threads(1)
    way(turn_over)


def differences(job: Job) -> dict[str, float | str]:
    """Return how far each way's last model is from the plain loop's, relative to how far training moved the latter.

    All clients take part in every round, with the lots that the engine drew.
    """
    end = _RoundEnd(lambda: None, keep_lots=True)
    _watched(job, end)
    draws = Draws(clients=job.clients, cohort=job.cohort, given=end.given)
    plain = plain_loop(job, lambda: None, draws=draws)
    moved = float((plain - job.task.initial(Streams(0))).norm())
    # The engine's draws are named by round and client, so every executor has the same ones.
    compared: dict[str, Run] = {f"engine, {name}": partial(engine, executor=name) for name in known_executors()}
    compared[f"{PLAIN}, compiled"] = partial(plain_loop, draws=draws, steps=compiled_steps)
    compared["pfl"] = partial(pfl_simulation, draws=draws)
    compared["Flower in process"] = partial(flower_in_process, draws=draws)
    found = dict[str, float | str]()
    for name, way in compared.items():
        try:
            found[name] = float((way(job, lambda: None) - plain).norm()) / moved
        except ImportError as error:
            found[name] = f"not installed: {error}"
    return found


def _row(name: str, taken: Taken, plain: Taken, job: Job) -> str:
    if taken.error:
        return f"{name:22} {taken.error}"
    rate = job.cohort * len(taken.seconds) / sum(taken.seconds)
    return f"{name:22}{rate:9.1f}{taken.first:9.1f}{taken.peak:8.2f}   {taken.ratio_to(plain)}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, nargs="+", default=[1000, 10_000, 100_000])
    parser.add_argument("--rounds", type=int, default=20, help="rounds that are counted")
    parser.add_argument("--only", nargs="+", default=[], help="ways whose names contain one of these words")
    parser.add_argument("--data", default="synthetic", help="synthetic, or a data set such as cifar10")
    parser.add_argument("--model", default=SMALL_CNN, help="another model of the catalogue, such as cnn26k")
    parser.add_argument("--check", action="store_true", help="compare the models of all ways after two small rounds")
    given = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"  # Of the ways' processes too.
    torch.set_num_threads(1)
    if given.check:
        for name, apart in differences(Job(clients=4, cohort=4, rounds=2, network=given.model)).items():
            print(f"{name:22} {apart if isinstance(apart, str) else f'{apart:.1e}'}")
        return
    print(f"{'':22}{'clients/s':>9}{'first s':>9}{'GiB':>8}   CPU seconds of a round, {PLAIN} = 1 (range)")
    for clients in given.clients:
        job = Job(clients=clients, rounds=given.rounds + 1, data=given.data, network=given.model)
        chosen = {
            name: partial(_one_thread, way)
            for name, way in ways(job).items()
            if not given.only or name == PLAIN or any(word in name for word in given.only)
        }
        found = take_turns(chosen, given.rounds)
        print(f"{clients:,} clients")
        for name, taken in found.items():
            print(_row(name, taken, found[PLAIN], job), flush=True)


if __name__ == "__main__":
    main()
