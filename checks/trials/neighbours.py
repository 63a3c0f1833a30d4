"""Choose pairs of neighbouring inputs of a federation: what the claim's unit holds, and what all others hold."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ...audit.claim import Adjacency, Unit
from ...fl.canary import Canary
from ...fl.laws.law import ReportLaw
from ...fl.replay import FixedGradients, FrozenFederation
from ...fl.streams import Streams, normal
from ..canaries import absent_row, clients_of_user
from ..planted_users import user_shapes
from ..range_ends import FAR, in_turn, range_ends
from ..replay_checks import ReplaySetup

_LONGEST, _LONG, _SHORT = 1e4, 10.0, 0.9
"""Rows in clip norms: two that every clip shortens, and one that none shortens."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Neighbours:
    """Two federations that differ by one unit.

    Args:
        canary: what the unit holds in world 1 and in world 0.
        direction: (d,) unit vector along which the unit's rows lie.
        words: both inputs, for the witness of a verdict.
        alone: whether all others hold rows of zeros.
        alike: whether all numbers of the unit's row in world 0 are equal.
    """

    federation: FrozenFederation
    canary: Canary
    direction: Tensor
    words: str
    alone: bool
    alike: bool


def neighbours_of(setup: ReplaySetup) -> Iterator[Neighbours]:
    """Yield pairs of inputs for the claim's unit and adjacency, those first that show most bugs."""
    claim, plan = setup.claim, setup.still.plan
    length = setup.clip_norm / (1.0 if claim.unit is Unit.SAMPLE else abs(plan.algorithm.linear_scale or 1.0))
    quiet, loud = (_surrounded(setup, factor) for factor in (0.0, _LONG * length))
    anywhere = normal(Streams(setup.seed).generator("trial direction"), (plan.layout.dim,))
    anywhere = anywhere / torch.linalg.vector_norm(anywhere)
    if claim.unit is Unit.USER:
        yield from _users(setup, quiet, setup.clip_norm * _LONG * anywhere)
        return
    if claim.unit is Unit.REPORT or (claim.unit is Unit.CLIENT and claim.adjacency is not Adjacency.ADD_REMOVE):
        law = setup.protection.law(claim.observer, plan, setup.holder)
        if isinstance(law, ReportLaw) or claim.delta == 0:
            for end, other, words in _extremes(setup, law):
                yield _pair(setup, quiet, end, other, words)
    if claim.adjacency is Adjacency.REPLACE_ONE:
        words = f"a row of {_LONG:g} clip norms along all weights, and one of {_SHORT:g}, others with zero rows"
        yield _pair(setup, quiet, setup.clip_norm * _LONG * anywhere, setup.clip_norm * _SHORT * anywhere, words)
    if claim.rounds > 1:
        yield _changing(setup, quiet, setup.clip_norm * _LONG * anywhere)
    along = {"along all weights": anywhere, "along one weight": torch.eye(1, plan.layout.dim).flip(1)[0]}
    for factor, where, federation, others in (
        (_LONGEST, "along all weights", quiet, "zero"),
        (_SHORT, "along one weight", quiet, "zero"),
        (_LONG, "along all weights", loud, "long"),
    ):
        row = setup.clip_norm * factor * along[where]
        words = f"a row of {factor:g} clip norms {where}, others with {others} rows"
        yield _pair(setup, federation, row, _without(setup, row), words)


def _users(setup: ReplaySetup, quiet: FrozenFederation, row: Tensor) -> Iterator[Neighbours]:
    """Users of several shapes, present and absent."""
    holders = range(clients_of_user(setup.claim, setup.still.plan))
    for words, user in user_shapes(row, holders, setup.seed):
        total = torch.cat([rows for _, rows in user.held]).sum(0)
        yield Neighbours(
            federation=quiet,
            canary=user,
            direction=total / torch.linalg.vector_norm(total),
            words=f"a user of {words}, each of {_LONG:g} clip norms along all weights, others with zero rows",
            alone=True,
            alike=False,
        )


def _without(setup: ReplaySetup, row: Tensor) -> Tensor | None:
    """What stands in the place of a row in world 0."""
    return setup.absent(row) if setup.adds_to_sum else absent_row(row, setup.claim.adjacency)


def _changing(setup: ReplaySetup, quiet: FrozenFederation, row: Tensor) -> Neighbours:
    """A unit whose row changes its sign from round to round, and one whose row stays or is absent: draws that are
    kept for later rounds show the change.
    """
    signs = torch.tensor([1.0, -1.0]).unsqueeze(1)
    absent = row if setup.claim.adjacency is Adjacency.REPLACE_ONE else _without(setup, row)
    words = f"a row of {_LONG:g} clip norms along all weights that changes its sign in every round"
    return _pair(setup, quiet, signs * row, absent, words)


def _surrounded(setup: ReplaySetup, steepness: float) -> FrozenFederation:
    """The federation with cohorts and lots as the plan draws them, and gradients of others of the given length."""
    network, still = setup.still.task.network, setup.still
    if not isinstance(network, FixedGradients):
        raise TypeError(f"trials need a federation of fixed gradients, got one of {type(network).__name__}")
    task = replace(still.task, network=replace(network, steepness=steepness).sharing(network))
    return replace(still, task=task, rounds=setup.claim.rounds)


def _pair(
    setup: ReplaySetup, federation: FrozenFederation, present: Tensor, absent: Tensor | None, words: str
) -> Neighbours:
    claim = setup.claim
    place = None
    if claim.unit is not Unit.SAMPLE and setup.unaccepted:
        place = setup.probed[0]
    canary = Canary(unit=claim.unit, present=present, absent=absent, client=0, place=place)
    apart = present if absent is None else present - absent
    # Of a row that changes, along the last round's difference: the first may be none.
    apart = apart if apart.ndim == 1 else apart[-1]
    network = federation.task.network
    return Neighbours(
        federation=federation,
        canary=canary,
        direction=apart / torch.linalg.vector_norm(apart),
        words=words,
        alone=isinstance(network, FixedGradients) and not network.steepness,
        alike=absent is not None and bool((absent == absent.flatten()[0]).all()),
    )


def _extremes(setup: ReplaySetup, law: object) -> Iterator[tuple[Tensor, Tensor, str]]:
    """Rows at the ends of a local randomiser's range, and beyond."""
    dim = setup.still.plan.layout.dim
    low, high = range_ends(law, setup.claim, dim, setup.clip_norm)
    middle, turns, zero = (high + low) / 2, in_turn(low, high), torch.zeros(dim)
    if setup.claim.adjacency is Adjacency.ZERO_OUT:
        yield high, torch.zeros(dim), "numbers at one end of the range, and zeros"
        return
    yield high, low, "numbers at one end of the range, and at the other end"
    if setup.claim.rounds > 1:
        yield torch.stack([high, low]), high, "numbers at each end of the range by turns of rounds, and at one end"
    yield high, turns, "numbers at one end of the range, and at both ends in turn"
    half = torch.arange(dim) < dim // 2
    words = "numbers at one end of the range in the first half of the row, and in the second half"
    yield torch.where(half, high, zero), torch.where(half, zero, high), words
    far = [middle + FAR * (one - middle) for one in (high, low)]
    yield far[0], far[1], "numbers far beyond one end of the range, and far beyond the other end"
