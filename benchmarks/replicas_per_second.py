"""CPU seconds of a thousand federations: this engine in batches and one by one, a plain loop, and JAX.

    OMP_NUM_THREADS=1 python benchmarks/replicas_per_second.py [--cases logistic cnn26k] [--turns 5] [--only ...]
    python benchmarks/replicas_per_second.py --sweep   # at which number of parameters batches stop paying
    python benchmarks/replicas_per_second.py --check   # that all ways compute the same federations

The federation is that of ``replica_job.py``: DP-FedAvg, ten clients, 20 rounds. JAX compiles whole federations into one
function: scan over rounds, vmap over clients, and over replicas either vmap or one after the other (lax.map). Each way
is a process of its own with one thread; the processes take turns, after a first turn that is not counted. A turn is one
batch of ``--batch`` federations, or ``--single`` of them one by one. ``start`` is what compiling takes in JAX, and what
the first turn takes more than the others elsewhere; ``with`` counts it once per thousand. Memory is the peak of the
process, and what it held before the work began. Without JAX (``pip install jax``) its rows say so.
"""

import argparse
import os
from collections.abc import Callable
from functools import partial
from statistics import median
from typing import Any

import torch
from fedassay.fl.engine import run_federation
from fedassay.fl.streams import Streams
from fedassay.fl.training.executor_choice import executor_named, known_executors
from fedassay.fl.training.local import Batch
from replica_job import SAMPLES, Job, jax_federations, plain_loop, run_jax, run_plain
from torch import Tensor
from turns import Taken, TurnOver, take_turns

PLAIN, BATCHES, ONE_BY_ONE = "plain loop", "engine, batches", "engine, one by one"
WIDTHS = (8, 32, 128, 512, 2048)
_CHECKED = 64


def federations(job: Job, replicas: int, block: int, *, executor: str | None = None) -> Tensor:
    """Run a batch of federations in this package's engine; returns the last models ``(replicas, d)``."""
    batch, chosen = Batch(replicas=replicas, block=block), executor_named(executor) if executor else None
    return run_federation(job.task, job.plan, job.protection, Streams(0), batch=batch, executor=chosen)


def run_engine(
    job: Job, turn_over: TurnOver, *, replicas: int, count: int, turns: int, executor: str | None = None
) -> float:
    """Run ``count`` batches of so many federations per turn."""
    torch.set_num_threads(1)
    for turn in range(turns):
        for number in range(count):
            federations(job, replicas, turn * count + number, executor=executor)
        turn_over()
    return 0.0


def ways(job: Job, *, batch: int, single: int, turns: int) -> dict[str, tuple[Callable[..., Any], int]]:
    """Return every way by name, with its federations per turn."""
    found: dict[str, tuple[Callable[..., Any], int]] = {
        BATCHES: (partial(run_engine, job, replicas=batch, count=1, turns=turns), batch),
        ONE_BY_ONE: (partial(run_engine, job, replicas=1, count=single, turns=turns), single),
    }
    for name in known_executors():
        way = partial(run_engine, job, replicas=batch, count=1, turns=turns, executor=name)
        found[f"{BATCHES}, {name}"] = (way, batch)
    found[PLAIN] = (partial(run_plain, job, replicas=single, turns=turns), single)
    found["JAX, vmap"] = (partial(run_jax, job, replicas=batch, turns=turns, at_once=batch), batch)
    found["JAX, one by one"] = (partial(run_jax, job, replicas=batch, turns=turns, at_once=1), batch)
    return found


def checked(job: Job) -> dict[str, Callable[[int], Any]]:
    """Return the ways as functions of the number of replicas, for comparisons of their models ``(replicas, d)``."""
    found: dict[str, Callable[[int], Any]] = {
        f"engine, {name}": partial(_of_engine, job, executor=name) for name in known_executors()
    }
    found[ONE_BY_ONE] = lambda n: torch.cat([federations(job, 1, block) for block in range(n)])
    found[PLAIN] = lambda n: torch.stack([plain_loop(job, seed) for seed in range(n)])
    found["JAX, vmap"] = partial(_of_jax, job, at_once=10**6)
    found["JAX, one by one"] = partial(_of_jax, job, at_once=1)
    return found


def _of_engine(job: Job, replicas: int, *, executor: str) -> Tensor:
    return federations(job, replicas, 0, executor=executor)


def _of_jax(job: Job, replicas: int, *, at_once: int) -> Tensor:
    run, _ = jax_federations(job, at_once)
    return torch.tensor(run(replicas, 0))


def differences(model: str, rounds: int = 3, hidden: int = 0) -> dict[str, float | str]:
    """Return how far each way's model is from the plain loop's, relative to how far training moved the latter.

    Without chance: lots of all samples, no noise.
    """
    job = Job(model=model, hidden=hidden, rounds=rounds, lot=SAMPLES, noise_multiplier=0.0)
    plain = plain_loop(job, 0)
    moved = float((plain - job.initial).norm())
    return _found(job, lambda way: float((way(2) - plain).norm(dim=1).max()) / moved)


def spreads(model: str, rounds: int = 3, replicas: int = _CHECKED) -> dict[str, float | str]:
    """Return the mean variance of a weight over replicas, relative to what lots and noise give a plain loop."""
    job = Job(model=model, rounds=rounds)
    plain = float(torch.stack([plain_loop(job, seed) for seed in range(replicas)]).var(dim=0).mean())
    return _found(job, lambda way: float(way(replicas).var(dim=0).mean()) / plain)


def _found(job: Job, value: Callable[[Callable[[int], Any]], float]) -> dict[str, float | str]:
    found = dict[str, float | str]()
    for name, way in checked(job).items():
        try:
            found[name] = value(way)
        except ImportError as error:
            found[name] = f"not installed: {error}"
    return found


def measured(job: Job, names: list[str], *, batch: int, single: int, turns: int) -> dict[str, tuple[Taken, int]]:
    """Measure the ways whose names contain one of the words ``names`` (all, if there is none)."""
    # The first turn is not counted.
    every = ways(job, batch=batch, single=single, turns=turns + 1)
    some = {name: way for name, way in every.items() if not names or any(word in name for word in names)}
    found = take_turns({name: way for name, (way, _) in some.items()}, turns)
    return {name: (taken, some[name][1]) for name, taken in found.items()}


def per_thousand(taken: Taken, replicas: int) -> list[float]:
    """Return CPU seconds per thousand federations, turn by turn."""
    return [1000 * seconds / replicas for seconds in taken.seconds]


def start_of(taken: Taken) -> float:
    """Return the CPU seconds of compiling as the way measured it, or what the first turn took more than the others."""
    return taken.result or max(0.0, taken.first - median(taken.seconds))


def show(found: dict[str, tuple[Taken, int]]) -> None:
    """Print the table of one case."""
    for name, (taken, replicas) in found.items():
        if taken.error:
            print(f"{name:28} {taken.error}", flush=True)
            continue
        each, first = per_thousand(taken, replicas), start_of(taken)
        middle = median(each)
        print(
            f"{name:28}{middle:9.2f} ({min(each):.2f} to {max(each):.2f}){first:9.1f}{middle + first:12.1f}"
            f"{taken.peak:8.2f} ({taken.before:.2f})",
            flush=True,
        )


def sweep(*, batch: int, single: int, turns: int) -> None:
    """Print the ratio of one by one to batches, here and in JAX, by the number of parameters of a perceptron."""
    columns = f"{'one by one':>12}{'batches':>9}{'ratio':>7}"
    print(f"{'parameters':>10} {columns}   {columns.replace('batches', '   vmap')} (JAX)")
    for hidden in WIDTHS:
        job = Job(model="mlp", hidden=hidden)
        found = measured(job, [ONE_BY_ONE, BATCHES, "JAX"], batch=batch, single=single, turns=turns)
        figures = []
        for pair in ((ONE_BY_ONE, BATCHES), ("JAX, one by one", "JAX, vmap")):
            if any(found[name][0].error for name in pair):
                figures.append(found[pair[0]][0].error)
                continue
            alone, together = (median(per_thousand(*found[name])) for name in pair)
            figures.append(f"{alone:12.2f}{together:9.2f}{alone / together:7.2f}")
        print(f"{job.network.layout.dim:10,} " + "   ".join(figures), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", nargs="+", default=["logistic", "cnn26k"])
    parser.add_argument("--batch", type=int, default=250, help="federations of a batch")
    parser.add_argument("--single", type=int, default=5, help="federations of a turn, one by one")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--only", nargs="+", default=[], help="ways whose names contain one of these words")
    parser.add_argument("--sweep", action="store_true")
    parser.add_argument("--check", action="store_true")
    given = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"  # Of the ways' processes too.
    torch.set_num_threads(1)
    sizes = {"batch": given.batch, "single": given.single, "turns": given.turns}
    if given.check:
        for model in given.cases:
            apart, spread = differences(model), spreads(model)
            for name, value in apart.items():
                words = (value, spread[name])
                print(f"{model:10}{name:24}", *(word if isinstance(word, str) else f"{word:.2g}" for word in words))
        return
    if given.sweep:
        sweep(**sizes)
        return
    print(f"{'CPU seconds per thousand':28}{'median (range)':>22}{'start':>9}{'with':>12}   GiB (before)")
    for model in given.cases:
        print(model)
        show(measured(Job(model=model), given.only, **sizes))


if __name__ == "__main__":
    main()
