"""Canary designs: what an audit plants, for the unit and adjacency of a claim. A suite names one."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from ...audit.claim import Adjacency, Claim, Unit
from ...fl.canary import Canary, DataCanary
from ...fl.plan import Plan
from ...fl.streams import Streams, normal
from ...fl.task import Task


@dataclass(frozen=True, kw_only=True)
class CanaryInputs:
    """What a design is given.

    Args:
        unit, adjacency: of the claim: world 0 holds no canary (add/remove), another one (replace-one) or zeros.
        length: raw norm of a canary that is a row.
        streams: the trial's; every design draws from a stream of its own.
    """

    unit: Unit
    adjacency: Adjacency
    length: float
    task: Task
    plan: Plan
    streams: Streams


PlantedCanary = Canary | DataCanary


def dirac(inputs: CanaryInputs) -> Canary:
    """A row along the last inert weight: nobody else's direction (Nasr et al. 2023, section 4)."""
    direction = torch.zeros(inputs.plan.layout.dim)
    direction[-1] = 1.0
    return _row(inputs, direction)


def random_direction(inputs: CanaryInputs) -> Canary:
    """A row along a random direction of all weights (Andrew et al. 2023): missing noise shows on any weight."""
    direction = normal(inputs.streams.generator("canary direction"), (inputs.plan.layout.dim,), dtype=torch.float64)
    return _row(inputs, (direction / torch.linalg.vector_norm(direction)).float())


def mislabelled(inputs: CanaryInputs) -> DataCanary:
    """A real image that nobody holds, with a wrong label; under replace-one its right label is the other world."""
    rng = inputs.streams.generator("canary sample")
    chosen = int(rng.integers(len(inputs.task.outsider_labels)))
    right, classes = int(inputs.task.outsider_labels[chosen]), inputs.task.network.classes
    wrong = (right + 1 + int(rng.integers(classes - 1))) % classes
    return _data(inputs, inputs.task.outsider_images[chosen], present=wrong, absent=right)


def crafted(inputs: CanaryInputs) -> DataCanary:
    """A saturated image: each pixel black or white by a seeded coin, labelled as the initial model finds least likely.

    Half of the pixels at full strength give a gradient longer than a photograph's, and a loss that starts high and that
    one clipped sample hardly lowers keeps its direction over the rounds. Under replace-one the label that the initial
    model finds most likely is the other world.
    """
    rng, network = inputs.streams.generator("canary sample"), inputs.task.network
    image = torch.from_numpy(rng.integers(2, size=network.shape)).float()
    with torch.no_grad():
        logits = network.logits(network.initial(inputs.streams.generator("init")), image.unsqueeze(0))[0]
    return _data(inputs, image, present=int(logits.argmin()), absent=int(logits.argmax()))


DESIGNS: dict[str, Callable[[CanaryInputs], PlantedCanary]] = {
    "dirac": dirac,
    "random": random_direction,
    "mislabelled": mislabelled,
    "crafted": crafted,
}
KNOWN_CANARIES = tuple(DESIGNS)
JOINT = "joint"
"""A claim's part where it speaks of the whole release."""
COVERED = {
    (Unit.SAMPLE, Adjacency.ADD_REMOVE),
    (Unit.SAMPLE, Adjacency.REPLACE_ONE),
    (Unit.CLIENT, Adjacency.ADD_REMOVE),
    (Unit.CLIENT, Adjacency.ZERO_OUT),
    (Unit.REPORT, Adjacency.REPLACE_ONE),
}
CANARY_PHRASES = {
    "dirac": "a canary of {length:g} clip norms along a weight that no data moves",
    "random": "a canary of {length:g} clip norms along a random direction of all weights",
    "mislabelled": "a real image with a wrong label",
    "crafted": "a saturated image with the label that the initial model finds least likely",
}


def why_not_covered(claim: Claim) -> str:
    """Why no canary design judges this claim; empty where one does."""
    unit, adjacency = claim.unit, claim.adjacency
    if (unit, adjacency) not in COVERED:
        return f"no canary design covers unit {unit} under {adjacency}: this claim is not audited"
    # A canary that shows elsewhere says nothing of the part: it could refute what is true.
    if claim.part != JOINT:
        return f"canaries show whole releases, none covers {claim.part} alone: this claim is not audited"
    return ""


def check_covered(claim: Claim) -> None:
    """Raise ValueError for a claim that no canary design covers."""
    if reason := why_not_covered(claim):
        raise ValueError(reason)


def _row(inputs: CanaryInputs, direction: Tensor) -> Canary:
    row = inputs.length * direction
    return Canary(unit=inputs.unit, present=row, absent=absent_row(row, inputs.adjacency))


def absent_row(row: Tensor, adjacency: Adjacency) -> Tensor | None:
    """What stands for the canary ``row (d,)`` in world 0."""
    if adjacency is Adjacency.ADD_REMOVE:
        return None
    return -row if adjacency is Adjacency.REPLACE_ONE else torch.zeros_like(row)


def _data(inputs: CanaryInputs, image: Tensor, *, present: int, absent: int) -> DataCanary:
    if inputs.adjacency is Adjacency.ZERO_OUT:
        raise ValueError("canary must be a row (dirac, random) under zero-out: no data give an update of zeros")
    # A client that is one sample holds as many copies as the mean client has samples, so that it seldom draws none.
    copies = 1 if inputs.unit is Unit.SAMPLE else max(1, round(inputs.plan.weight(inputs.plan.clients)))
    return DataCanary(
        unit=inputs.unit,
        images=image.expand(copies, *image.shape),
        present=torch.full((copies,), present),
        absent=torch.full((copies,), absent) if inputs.adjacency is Adjacency.REPLACE_ONE else None,
    )
