"""Conformance checks of federated algorithms."""

import dataclasses

import torch

from ...fl.algorithms.algorithm import Algorithm
from ...fl.algorithms.local_training import LocalState, Numbers
from ...fl.engine import run_federation
from ...fl.protection import Protection
from ...fl.streams import Streams, normal
from ...fl.training.local import Batch
from .check import Check, Fault, Subject, built, can_be_sent, equal, no_global_randomness, require
from .toy import toy_plan, toy_task

_REPLICAS, _DIM = 3, 7


def shapes(subject: Subject) -> str | None:
    """Its steps and models are (replicas, parameters) in single precision; what it keeps has replicas first."""
    algorithm, (model, directions) = subject.make(), _vectors()
    for name, value in _round(algorithm, model, directions).items():
        require(tuple(value.shape) == (_REPLICAS, _DIM), f"{name} has shape {tuple(value.shape)}")
        require(value.dtype == torch.float32, f"{name} is {value.dtype}")
    for name, value in {**algorithm.share(model), **_kept(algorithm, model, directions)}.items():
        require(value.shape[:1] == (_REPLICAS,), f"{name} has shape {tuple(value.shape)}: replicas must come first")
    return None


def begins(subject: Subject) -> str | None:
    """A client that has not taken part begins alike with nothing kept and with zeros."""
    algorithm, (model, directions) = subject.make(), _vectors()
    kept = _kept(algorithm, model, directions)
    if not kept:
        return "not checked: its clients keep nothing"
    # Clients that train in one block share one tensor, in which those that were never there are zeros.
    zeros = {name: torch.zeros_like(value) for name, value in kept.items()}
    first, other = (_round(algorithm, model, directions, kept=before) for before in (None, zeros))
    require(equal(first, other), "its round differs: start must take zeros for a client that has not taken part")
    return None


def replicas_apart(subject: Subject) -> str | None:
    """A replica's numbers depend on that replica alone."""
    model, directions = _vectors()
    together = _round(subject.make(), model, directions)
    for replica in range(_REPLICAS):
        row = slice(replica, replica + 1)
        alone = _round(subject.make(), model[row], directions[:, row])
        for name, value in alone.items():
            gap = float((together[name][row] - value).abs().max())
            require(gap < 1e-5, f"{name} of a replica changes by {gap:.2g} with the other replicas")
    return None


def no_side_effects(subject: Subject) -> str | None:
    """Equal arguments give equal results, and it changes none of them."""
    algorithm, (model, directions) = subject.make(), _vectors()
    kept = model.clone(), directions.clone()
    with no_global_randomness():
        first, again = (_round(algorithm, model, directions) for _ in range(2))
    require(equal(first, again), "a second round with equal arguments gives other numbers: it keeps state")
    require(equal((model, directions), kept), "it changed the tensors that it was given")
    return None


def inverse(subject: Subject) -> str | None:
    """aggregate_between is the inverse of combine."""
    algorithm, (model, directions) = subject.make(), _vectors()
    after = algorithm.combine(model, directions[0])
    found = algorithm.aggregate_between(model, after)
    gap = float((found - directions[0]).abs().max())
    require(gap < 1e-3, f"aggregate_between(model, combine(model, aggregate)) is {gap:.2g} away from the aggregate")
    return None


def linear(subject: Subject) -> str | None:
    """linear_scale states how an update follows from the steps' directions."""
    algorithm, (model, directions) = subject.make(), _vectors()
    scale = algorithm.linear_scale
    if scale is None:
        return "not linear, as it states"
    steps = directions[: algorithm.local_steps]
    update = _round(algorithm, model, steps)["update"]
    gap = float((update - scale * steps.sum(0)).abs().max())
    require(gap < 1e-4, f"an update is {gap:.2g} away from linear_scale = {scale:g} times the sum of the directions")
    return None


def trains(subject: Subject) -> str | None:
    """A small federation trains with it, repeatably."""
    task = toy_task()
    plan = toy_plan(task, algorithm=subject.make())
    finals = [run_federation(task, plan, Protection(), Streams(1), batch=Batch(replicas=2)) for _ in range(2)]
    require(bool(finals[0].isfinite().all()), "the trained model is not finite")
    require(equal(*finals), "equal seeds give other models")
    return None


def refuses(subject: Subject) -> str | None:
    """It refuses a learning rate below 0 with a ValueError that names it."""
    algorithm = subject.make()
    if not (dataclasses.is_dataclass(algorithm) and hasattr(algorithm, "learning_rate")):
        return "not checked: it has no field learning_rate"
    try:
        dataclasses.replace(algorithm, learning_rate=-1.0)  # type: ignore[type-var]
    except ValueError as error:
        require("learning_rate" in str(error), f"its message does not name learning_rate: {error}")
        return None
    raise Fault("it accepted learning_rate = -1.0: check fields in __post_init__ and raise ValueError")


def _vectors() -> tuple[torch.Tensor, torch.Tensor]:
    """A model ``(replicas, parameters)``, and one direction of that shape for each of up to eight steps."""
    rng = Streams(0).generator("conformance vectors")
    return normal(rng, (_REPLICAS, _DIM)), normal(rng, (8, _REPLICAS, _DIM))


def _round(
    algorithm: Algorithm, model: torch.Tensor, directions: torch.Tensor, *, kept: Numbers | None = None
) -> dict[str, torch.Tensor]:
    """All tensors of one client's round and of the server's step after it."""
    local, _ = _local(algorithm, model, directions, kept)
    update = algorithm.update(model, local)
    new = algorithm.combine(model, update)
    return {"local": local, "update": update, "model": new, "gradient": algorithm.gradient(update)}


def _kept(algorithm: Algorithm, model: torch.Tensor, directions: torch.Tensor) -> Numbers:
    """What a client keeps after its first round."""
    return algorithm.keep(model, *_local(algorithm, model, directions, None))


def _local(
    algorithm: Algorithm, model: torch.Tensor, directions: torch.Tensor, kept: Numbers | None
) -> tuple[torch.Tensor, LocalState]:
    state, local = algorithm.start(model, algorithm.share(model), kept), model
    for direction in directions[: algorithm.local_steps]:
        local, state = algorithm.step(local, direction, state)
    return local, state


CHECKS: tuple[Check, ...] = (
    built,
    shapes,
    replicas_apart,
    begins,
    no_side_effects,
    inverse,
    linear,
    trains,
    refuses,
    can_be_sent,
)
