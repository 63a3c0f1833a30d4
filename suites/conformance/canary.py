"""Conformance checks of canaries."""

import torch

from ...audit.claim import Adjacency, Unit
from ...checks.canaries import COVERED, CanaryInputs, CanaryKind
from ...fl.canary import Canary, DataCanary
from ...fl.engine import run_federation
from ...fl.protection import Protection
from ...fl.streams import Streams
from ...fl.training.local import Batch
from .check import Check, Subject, built, equal, no_global_randomness, require
from .toy import toy_plan, toy_task

_LENGTH = 10.0


def fits(subject: Subject) -> str | None:
    """It gives a canary of each unit and adjacency that an audit covers, or refuses it with a ValueError."""
    made = [name for name in sorted(COVERED) if _canary(subject, *name) is not None]
    require(made, "it refused every unit and adjacency")
    return ", ".join(f"{unit} {adjacency}" for unit, adjacency in made)


def finite(subject: Subject) -> str | None:
    """Its vectors are finite, single precision and not zero; its images are in [0, 1]."""
    for unit, adjacency in sorted(COVERED):
        canary = _canary(subject, unit, adjacency)
        if isinstance(canary, Canary):
            require(canary.present.dtype == torch.float32, f"its vector is {canary.present.dtype}, not torch.float32")
            require(bool(canary.present.isfinite().all()), "its vector is not finite")
            require(bool(canary.present.any()), "its vector is zero, so that no audit can see it")
        elif isinstance(canary, DataCanary):
            low, high = float(canary.images.min()), float(canary.images.max())
            require(0 <= low <= high <= 1, f"its images must be in [0, 1], got {low:g} to {high:g}")
    return None


def deterministic(subject: Subject) -> str | None:
    """Equal streams give equal canaries."""
    for unit, adjacency in sorted(COVERED):
        with no_global_randomness():
            first, again = (_canary(subject, unit, adjacency) for _ in range(2))
        require(_same(first, again), "equal streams give another canary: it keeps state or draws elsewhere")
    return None


def trains(subject: Subject) -> str | None:
    """A small federation runs with it and without it, and its models then differ."""
    task = toy_task().with_inert(1)
    plan = toy_plan(task)
    for unit, adjacency in sorted(COVERED):
        canary = _canary(subject, unit, adjacency)
        if canary is None:
            continue
        finals = [
            run_federation(task, plan, Protection(), Streams(1), batch=Batch(replicas=1, world=world), canary=canary)
            for world in (0, 1)
        ]
        require(not equal(*finals), f"the model is the same with and without it ({unit}, {adjacency})")
    return None


def _canary(subject: Subject, unit: Unit, adjacency: Adjacency) -> Canary | DataCanary | None:
    task, kind = toy_task().with_inert(1), subject.make()
    inputs = CanaryInputs(
        unit=unit, adjacency=adjacency, length=_LENGTH, task=task, plan=toy_plan(task), streams=Streams(0)
    )
    assert isinstance(kind, CanaryKind)
    try:
        return kind.build(inputs)
    except ValueError:
        # A refusal of one adjacency is the author's right; `fits` requires that one is accepted.
        if adjacency is Adjacency.ADD_REMOVE:
            raise
        return None


def _same(first: Canary | DataCanary | None, again: Canary | DataCanary | None) -> bool:
    if first is None or again is None:
        return first is again
    return equal({**vars(first)}, {**vars(again)})


CHECKS: tuple[Check, ...] = (built, fits, finite, deterministic, trains)
