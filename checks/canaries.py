"""What an audit or a check plants in a federation: canaries, users of several shapes, and rows at the ends of a range.

Build canaries, which an audit adds to a federation, for the unit and adjacency of a claim.

Users of several shapes, which the replays plant.

A defense must bound what all samples of a user contribute together, however many there are, at whichever clients, in
whichever order among the samples of others, and in whichever directions.

Find the rows at the ends of a local randomiser's range, where its reports differ most.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ..audit.claim import HELD_BY_CLIENTS, Adjacency, Claim, Unit
from ..audit.parts import Spec, call, find_outside, name_and_options
from ..fl.canary import Canary, DataCanary, UserCanary
from ..fl.laws import ReportLaw
from ..fl.plan import Plan
from ..fl.streams import Streams, normal
from ..fl.task import Task


@dataclass(frozen=True, kw_only=True)
class CanaryInputs:
    """The inputs from which a canary of any kind is built.

    Args:
        unit, adjacency: of the claim. Without the canary, its place is empty (add/remove), holds another record
            (replace-one), or holds zeros (zero-out).
        length: norm before clipping, for a canary that is a gradient or an update.
        streams: random streams of the trial; every design draws from its own one.
        place: the client whose place a canary that is a client takes; None: it is one more client.
        clients: clients that hold samples of a canary that is a user; 1 for the other units.
    """

    unit: Unit
    adjacency: Adjacency
    length: float
    task: Task
    plan: Plan
    streams: Streams
    place: int | None = None
    clients: int = 1


def dirac(inputs: CanaryInputs) -> Canary:
    """Build a canary update along the last weight that no training data changes (Nasr et al. 2023, section 4)."""
    direction = torch.zeros(inputs.plan.layout.dim)
    # Inert weights come after the model's own: no client's data adds to this coordinate.
    direction[-1] = 1.0
    return _row(inputs, direction)


def random_direction(inputs: CanaryInputs) -> Canary:
    """Build a canary update along a random direction, which reveals missing noise on a large share of weights (Andrew
    et al. 2023).
    """
    direction = normal(inputs.streams.generator("canary direction"), (inputs.plan.layout.dim,), dtype=torch.float64)
    return _row(inputs, (direction / torch.linalg.vector_norm(direction)).float())


def mislabelled(inputs: CanaryInputs) -> DataCanary:
    """Build a canary from a real image that no client holds, with a wrong label. Under replace-one adjacency, the runs
    without the canary hold the same image with its right label.
    """
    rng = inputs.streams.generator("canary sample")
    chosen = int(rng.integers(len(inputs.task.outsider_labels)))
    right, classes = int(inputs.task.outsider_labels[chosen]), inputs.task.network.classes
    # A shift by 1 to classes - 1 never gives the right label again.
    wrong = (right + 1 + int(rng.integers(classes - 1))) % classes
    return _data(inputs, inputs.task.outsider_images[chosen], present=wrong, absent=right)


def crafted(inputs: CanaryInputs) -> DataCanary:
    """Build a canary image whose pixels are black or white by fair coins, with the label that the initial model finds
    least likely.

    Half of the pixels at full strength give a longer gradient than a photograph. The loss starts high, and one clipped
    sample hardly lowers it, so that the gradient keeps its direction over the rounds. Under replace-one the canary is
    replaced by the label that the initial model finds most likely.
    """
    rng, network = inputs.streams.generator("canary sample"), inputs.task.network
    image = torch.from_numpy(rng.integers(2, size=network.shape)).float()
    with torch.no_grad():
        logits = network.logits(inputs.task.initial(inputs.streams), image.unsqueeze(0))[0]
    return _data(inputs, image, present=int(logits.argmin()), absent=int(logits.argmax()))


@dataclass(frozen=True, kw_only=True)
class CanaryKind:
    """A kind of canary, which a suite chooses by the key ``audit.canary``.

    Args:
        build: makes the canary.
        phrase: describes it in a verdict's reason, with ``{length}``, its norm in clip norms.
        image: whether it is a training image with one label, and not an update.
    """

    build: Callable[[CanaryInputs], Canary | DataCanary]
    phrase: str
    image: bool = False


CANARIES = {
    "dirac": CanaryKind(
        build=dirac, phrase="a canary of {length:g} clip norms in the direction of one weight that no data change"
    ),
    "random": CanaryKind(
        build=random_direction, phrase="a canary of {length:g} clip norms in a random direction of all weights"
    ),
    "mislabelled": CanaryKind(build=mislabelled, phrase="a real image with a wrong label", image=True),
    "crafted": CanaryKind(
        build=crafted, phrase="a saturated image with the label that the initial model finds least likely", image=True
    ),
}


def canary_kind(spec: Spec) -> CanaryKind:
    """Return the kind of canary that a suite chooses by ``audit.canary``.

    One from outside is a function ``(inputs, **options)`` from `CanaryInputs` to a `Canary`, or to a `DataCanary`, as
    its return annotation must then state.

    Raises:
        ValueError: for an unknown name, or something that is no function.
    """
    name, options = name_and_options("canary", spec)
    if name in CANARIES:
        if options:
            raise ValueError(f"canary {name} has no option {min(options)!r}; it has: none")
        return CANARIES[name]
    function = find_outside("canary", name, CANARIES)
    if not callable(function):
        raise ValueError(f"canary {name!r} must be a function of CanaryInputs, got {type(function).__name__}")
    returned = getattr(function, "__annotations__", {}).get("return")
    return CanaryKind(
        build=partial(_built, name, function, options),
        phrase=f"the canary {name}",
        image=returned in (DataCanary, DataCanary.__name__),
    )


def _built(
    name: str, function: Callable[..., Any], options: dict[str, Any], inputs: CanaryInputs
) -> Canary | DataCanary:
    canary = call(f"canary {name}", function, options, inputs)
    if not isinstance(canary, Canary | DataCanary):
        raise ValueError(f"canary {name} must return a Canary or a DataCanary, got {type(canary).__name__}")
    return canary


_COPIES = 4
"""Samples that a canary that is a user has at each of its clients: a clip of each sample lets all of them pass."""
JOINT = "joint"
"""The ``part`` of a claim about the whole release."""
COORDINATE, LAYER = "one coordinate", "layer "
"""The ``part`` of a claim about any one coordinate, and the start of that about one named layer."""
COVERED = {
    (Unit.SAMPLE, Adjacency.ADD_REMOVE),
    (Unit.SAMPLE, Adjacency.REPLACE_ONE),
    (Unit.SAMPLE, Adjacency.ZERO_OUT),
    (Unit.USER, Adjacency.ADD_REMOVE),
    (Unit.CLIENT, Adjacency.ADD_REMOVE),
    (Unit.CLIENT, Adjacency.ZERO_OUT),
    (Unit.CLIENT, Adjacency.REPLACE_ONE),
    (Unit.REPORT, Adjacency.REPLACE_ONE),
}


def why_not_covered(claim: Claim) -> str:
    """Return why no kind of canary can audit this claim; empty string if one can."""
    unit, adjacency = claim.unit, claim.adjacency
    if (unit, adjacency) not in COVERED:
        return f"this claim is not audited, because no canary exists for the unit {unit} under {adjacency} adjacency"
    # A canary that is visible in another part of the release is no evidence here: it could refute a true claim.
    if claim.part != JOINT:
        return (
            f"this claim is not audited, because canaries test whole releases, and the claim covers only {claim.part}"
        )
    return ""


def check_covered(claim: Claim) -> None:
    """Raise ValueError if no kind of canary can audit this claim."""
    if reason := why_not_covered(claim):
        raise ValueError(reason)


def copies_of(unit: Unit) -> int:
    """Return the number of equal rows that a canary has at each client that holds it: several for a user, and 1 for a
    sample or a client, which is one row itself.
    """
    return _COPIES if unit is Unit.USER else 1


def clients_of_user(claim: Claim, plan: Plan) -> int:
    """Return how many clients of the plan hold samples of a user canary: as many as the claim allows, or all of them; 1
    for a claim about another unit.
    """
    most = claim.parameters.get("clients_per_user")
    if claim.unit is not Unit.USER:
        return 1
    return min(plan.clients, most) if isinstance(most, int) and most >= 1 else plan.clients


def _row(inputs: CanaryInputs, direction: Tensor) -> Canary:
    row = inputs.length * direction
    return Canary(
        unit=inputs.unit,
        present=row,
        absent=absent_row(row, inputs.adjacency),
        place=inputs.place,
        clients=inputs.clients,
        copies=copies_of(inputs.unit),
    )


def absent_row(row: Tensor, adjacency: Adjacency) -> Tensor | None:
    """Return the update that takes the place of the canary ``row (d,)`` in runs without the canary; None if nothing
    takes its place.
    """
    if adjacency is Adjacency.ADD_REMOVE:
        return None
    return -row if adjacency is Adjacency.REPLACE_ONE else torch.zeros_like(row)


def _data(inputs: CanaryInputs, image: Tensor, *, present: int, absent: int) -> DataCanary:
    if inputs.adjacency is Adjacency.ZERO_OUT:
        updates = [name for name, kind in CANARIES.items() if not kind.image]
        raise ValueError(
            f"audit.canary must be {' or '.join(updates)} for a claim under zero-out adjacency, because no training "
            "data produce an update of zeros; got a canary made of data"
        )
    # As many copies as the mean client has samples: with a single one, most Poisson lots would be empty.
    mean = max(1, round(inputs.plan.weight(inputs.plan.clients)))
    copies = copies_of(inputs.unit) if inputs.unit in HELD_BY_CLIENTS else mean
    return DataCanary(
        unit=inputs.unit,
        images=image.expand(copies, *image.shape),
        present=torch.full((copies,), present),
        absent=torch.full((copies,), absent) if inputs.adjacency is Adjacency.REPLACE_ONE else None,
        place=inputs.place,
        clients=inputs.clients,
    )


def rows_that_differ(claim: Claim, law: ReportLaw, plan: Plan) -> tuple[Tensor, Tensor]:
    """Return the two inputs ``(d,)``, without and with the canary, whose reports are easiest to distinguish among
    inputs that the claim covers.

    Raises:
        ValueError: for a part that is neither joint, nor one coordinate, nor a layer of the plan.
    """
    absent, present = law.worst_pair(plan.layout.dim)
    for row in (absent, present):
        if not isinstance(row, Tensor) or row.shape != (plan.layout.dim,) or not bool(row.isfinite().all()):
            raise ValueError(
                f"worst_pair of the defense's ReportLaw must return two vectors of {plan.layout.dim} finite "
                f"numbers, got {row!r:.60}"
            )
    if claim.adjacency is Adjacency.ZERO_OUT:
        absent = torch.zeros_like(present)
    if claim.part == JOINT:
        return absent, present
    # All coordinates are noised alike, so the first one stands for any.
    layers, place = plan.layout.slices, slice(0, 1)
    if claim.part != COORDINATE:
        name = claim.part.removeprefix(LAYER)
        if name not in layers:
            raise ValueError(
                f"part (what the claim protects) must be {JOINT}, {COORDINATE}, or {LAYER} and the name "
                f"of a layer, got {claim.part!r}"
            )
        place = layers[name]
    partly = absent.clone()
    partly[place] = present[place]
    return absent, partly


_USER_COPIES, _MANY = 4, 16
"""Samples of most shapes at each client: a clip of each sample lets all of them pass; and of the largest one."""
_STEP, _MOST = 3, 8
"""By how much the numbers of samples of the clients of one user differ, and the bound below which they stay."""


def user_shapes(row: Tensor, holders: Sequence[int], seed: int) -> Iterator[tuple[str, UserCanary]]:
    """Yield canary users at the given clients, with different numbers and directions of samples, each with a
    description.

    Args:
        row: (d,), the gradient of each sample; of its length where the samples have different directions.
    """
    where = _words(holders)

    def equal(numbers: Sequence[int], apart: bool = False) -> UserCanary:
        return _user({client: row.expand(n, -1) for client, n in zip(holders, numbers, strict=True)}, apart)

    alike = [_USER_COPIES] * len(holders)
    yield f"{_COPIES} equal samples at {where}", equal(alike)
    yield f"one sample at {where}", equal([1] * len(holders))
    yield f"{_COPIES} samples, not adjacent to each other, at {where}", equal(alike, apart=True)
    if len(holders) > 1:
        unequal = [1 + _STEP * turn % _MOST for turn in range(len(holders))]
        yield f"different numbers of samples, {min(unequal)} to {max(unequal)}, at {where}", equal(unequal)
        first = holders[0]
        yield f"one sample at client {first} alone", _user({first: row.unsqueeze(0)})
    drawn = normal(Streams(seed).generator("user directions"), (_USER_COPIES, len(row)))
    drawn *= torch.linalg.vector_norm(row) / torch.linalg.vector_norm(drawn, dim=1, keepdim=True)
    yield f"{_COPIES} samples in different directions at {where}", _user(dict.fromkeys(holders, drawn), apart=True)


def against_others(row: Tensor, holders: Sequence[int]) -> Iterator[tuple[str, UserCanary]]:
    """Yield users with few and with many equal samples, because a sum may be divided by a number that depends on
    them.
    """
    for number in (_USER_COPIES, _MANY):
        rows = row.expand(number, -1)
        yield f"{number} samples at {_words(holders)}", _user(dict.fromkeys(holders, rows))


def _user(held: dict[int, Tensor], apart: bool = False) -> UserCanary:
    rows = tuple(sorted(held.items()))
    return UserCanary(present=rows[0][1][0], held=rows, apart=apart)


def _words(holders: Sequence[int]) -> str:
    return f"client {holders[0]}" if len(holders) == 1 else f"each of {len(holders)} clients"


FAR = 1e3
"""Entries outside of the range, in its halves."""


def range_ends(law: object, claim: Claim, dim: int, radius: float) -> tuple[Tensor, Tensor]:
    """Return the lowest and the highest row of the allowed range, ``(dim,)`` each, as the law or else the claim states
    it.

    Args:
        law: the published law, or None.
        radius: of each entry, where neither the law nor the claim's parameter ``radius`` states one.
    """
    if isinstance(law, ReportLaw):
        low, high = (row.float() for row in law.worst_pair(dim))
    else:
        stated = claim.parameters.get("radius", radius)
        high = torch.full((dim,), float(stated) if isinstance(stated, int | float) else 1.0)
        low = -high
    return (low, high) if bool((high != low).any()) else (low - 1, high + 1)


def in_turn(low: Tensor, high: Tensor) -> Tensor:
    """Return the row whose entries alternate between those of ``high`` and of ``low``."""
    return torch.where(torch.arange(len(low)) % 2 == 0, high, low)
