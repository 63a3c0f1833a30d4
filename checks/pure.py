"""Measure the privacy loss under noise of any distribution if a claim has no delta, and compare it with the claim's
epsilon.

One unit shifts a release by a vector, which runs of equal draws show. Where the noise is that of a random vector with
independent numbers of one distribution, the largest privacy loss is the sum of those of all numbers. That of one number
is bounded from below by tails: if P(z > t) is r times P(z > t + h), then a shift by h / k has a loss of ln(r) / k or
more in one of k steps. The noise is seen in differences of two draws, whose losses are no larger than those of one.

A release may leave out numbers at random, which are then 0. If no unit changes which ones, the loss is that of the
numbers that one draw holds.
"""

import math
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from ..audit.arrays import FloatArray
from ..audit.binomial import upper_bound
from ..audit.check import PURE, CheckResult
from ..audit.claim import Adjacency
from ..audit.ledger import SUITE
from ..audit.observer import AGGREGATE, FINAL_MODEL, SHUFFLED
from ..audit.wording import plain
from ..fl.channels import changes_broadcast
from ..fl.laws import GaussianLaw
from ..fl.plan import Plan
from ..fl.streams import Streams, normal
from .canaries import JOINT
from .law import NotCheckable, subject_of
from .measured import (
    Direction,
    RunsOnData,
    canary_along,
    check_independent,
    proposed_along,
    rate_of,
    releases_of,
    rows_of,
    steps_of,
)
from .neighbours import Inputs, ReplaySetup

_DRAWS = 4
"""Runs of different noise, with and without the unit."""
_VECTORS, _NUMBERS, _MOST = 512, 2048, 2**24
"""Vectors of noise by which dependence shows, and numbers at least and at most."""
_TAILS = ((0.5, 0.02), (0.2, 0.005), (0.05, 0.002))
"""Shares of the numbers beyond two thresholds; each pair of thresholds gives a bound."""
_CONSTANT = 1e-3
"""Share of the shift by which shifts of different draws may differ."""
_ERRORS = 6.0
"""Standard errors by which sizes of noise may differ between weights, rounds and vectors."""
_SLACK = 0.1
"""Share of the epsilon by which the bound may exceed it: dependence too weak to be seen may lower the loss."""


def pure_checks(setup: ReplaySetup, own: Plan) -> tuple[CheckResult, ...]:
    """Compare a claim without delta with the privacy loss that shift and noise of the releases imply; empty for a claim
    with a delta.

    ``own``: the plan for which the defense was prepared, with its cohorts.
    """
    claim = setup.claim
    if claim.delta > 0 or isinstance(setup.protection.law(claim.observer, setup.plan, 0), GaussianLaw):
        return ()
    try:
        found = _result(setup, own)
    except NotCheckable as reason:
        found = PURE.skipped(str(reason))
    return (found,)


def _result(setup: ReplaySetup, own: Plan) -> CheckResult:
    claim, protection = setup.claim, setup.protection
    if claim.part != JOINT:
        raise NotCheckable(f"the claim covers only {claim.part}")
    if claim.observer.rank in (SHUFFLED.rank, FINAL_MODEL.rank) or (
        claim.observer.rank < AGGREGATE.rank and changes_broadcast(protection)
    ):
        raise NotCheckable("the adversary receives neither a report nor a sum of one round")
    if claim.observer.rank < SHUFFLED.rank and setup.plan.clients < own.clients:
        raise NotCheckable("a sum of fewer clients may have less noise than the sum of all clients")
    if steps_of(claim, own, protection) > 1:
        raise NotCheckable("this check needs releases with one noised step, and a release here sums several")
    rate = own.cohort_rate * rate_of(claim, own, protection)
    worst = max((_loss(setup, direction, rate) for direction in _directions(setup)), key=lambda loss: loss.least)
    if worst.least == 0:
        raise NotCheckable("no unit changes the release")
    words = (
        f"one {claim.unit} changes the releases by {worst.moved:.4g} in the L1 norm in total, {worst.direction.words}"
    )
    words += f", sampling rate {plain(rate)}" if rate < 1 else ""
    witness = f"{words}; the log density of the noise changes by {worst.slope:.4g} per unit of distance"
    slack = _SLACK * claim.epsilon
    found = PURE.at_most(worst.least, claim.epsilon, unit="epsilon", witness=witness, slack=slack)
    detects = max(claim.epsilon, worst.seen * (claim.epsilon + slack) / worst.least)
    if found.passed:
        return replace(found, detects=detects)
    return replace(found, proposal=proposed_along(setup, worst.direction, setup.holder))


def _directions(setup: ReplaySetup) -> list[Direction]:
    dim = setup.plan.layout.dim
    signs = normal(Streams(setup.seed).generator("pure directions"), (dim,), dtype=torch.float64).sign()
    one = torch.zeros(dim, dtype=torch.float64)
    one[-1] = 1.0
    return [
        Direction(values=signs / math.sqrt(dim), words="along all weights"),
        Direction(values=one, words="along the last weight"),
    ]


@dataclass(frozen=True, kw_only=True)
class _Loss:
    """A lower bound ``least`` on the privacy loss of all rounds, and the loss ``seen`` without allowance for errors.

    ``moved``: the L1 norm of the shift of all rounds; ``slope``: of the logarithm of the tails.
    """

    least: float
    seen: float
    moved: float
    slope: float
    direction: Direction


def _loss(setup: ReplaySetup, direction: Direction, rate: float) -> _Loss:
    subject = subject_of(setup.claim, setup.plan)
    client = setup.holder if subject is None else subject
    releases = releases_of(RunsOnData(setup=setup, draws=_DRAWS), direction, client)
    if releases.fewer:
        raise NotCheckable("an absent client adds no noise, so its absence cannot be compared")
    share = 2.0 if setup.claim.adjacency is Adjacency.REPLACE_ONE else 1.0
    moves, held = share * (releases.after - releases.before), (releases.before != 0) | (releases.after != 0)
    noise = _noise(setup, direction, client)
    apart = noise[0::2] - noise[1::2]
    sent = (apart != 0).any(-1).all(0) | (moves != 0).any(-1).all(0)
    noise, apart, moves, held = noise[:, sent], apart[:, sent], moves[:, sent], held[:, sent]
    if not moves.numel():
        raise NotCheckable("the release shows neither a change by a unit nor noise")
    kept = noise != 0
    # Whole numbers are 0 by chance too, and then a unit changes which ones.
    left_out = not bool((kept == kept[0]).all() & (held == held[0]).all())
    if not left_out or not torch.equal(kept, _noise(setup, direction, client, arm=1)[:, sent] != 0):
        held, kept = torch.ones_like(held), torch.ones_like(kept)
    shift = moves.sum(0) / held.sum(0).clamp_min(1)
    _check_additive(moves, shift * held)
    # Of one draw each, which show a common length more than differences of two draws do.
    _check_alike(noise - noise.sum(0) / kept.sum(0).clamp_min(1), kept)
    check_independent(releases.before[:, sent], setup)
    sizes, steps = apart[kept[0::2] & kept[1::2]].abs().numpy(), (shift * held[0]).abs().numpy()
    bounds = [_of_tails(sizes, steps, *shares, rate=rate) for shares in _TAILS]
    least, seen, slope = max(bounds)
    return _Loss(least=least, seen=seen, moved=float(steps.sum()), slope=slope, direction=direction)


def _noise(setup: ReplaySetup, direction: Direction, client: int, *, arm: int = 0) -> Tensor:
    """Releases of one arm that differ in their noise alone, ``(runs, rounds, d)``, by equal draws in both arms."""
    plan, canary = setup.plan, canary_along(setup, direction, client)
    pairs = math.ceil(_VECTORS / setup.rounds)
    if 2 * pairs * setup.rounds * (plan.clients + 1) * plan.layout.dim > _MOST:
        raise NotCheckable(f"{_VECTORS} vectors of noise would have more than {_MOST} numbers")
    without = Inputs(canary=None if canary.added else canary)
    runs = setup.run_many(2 * pairs, Inputs(canary=canary, arm=1) if arm else without, noise=_DRAWS)
    return torch.stack([rows_of(run, client) for run in runs])


def _check_additive(moves: Tensor, shift: Tensor) -> None:
    """Raise NotCheckable unless one unit moves the release by one vector, whatever the noise."""
    if float((moves - shift).abs().amax()) > _CONSTANT * float(shift.abs().amax()):
        raise NotCheckable("the release is not a vector plus independent noise")


def _check_alike(noise: Tensor, kept: Tensor) -> None:
    """Raise NotCheckable unless the ``kept`` numbers of ``noise (runs, rounds, d)`` look like independent ones of one
    distribution.
    """
    sizes, kept = noise.abs().flatten(0, 1), kept.flatten(0, 1)
    some = kept.any(0)
    _check_sizes(_first(sizes[:, some], kept[:, some], 0), "weights")
    _check_sizes(_first(sizes, kept, 1), "vectors")


def _first(sizes: Tensor, kept: Tensor, axis: int) -> Tensor:
    """As many of the kept sizes along an axis as are kept everywhere; the first ones."""
    if bool(kept.all()):
        return sizes
    count = int(kept.sum(axis).min())
    places = kept.to(torch.uint8).sort(dim=axis, descending=True, stable=True).indices
    return sizes.gather(axis, places.narrow(axis, 0, count))


def _check_sizes(sizes: Tensor, what: str) -> None:
    vectors, dim = sizes.shape
    if sizes.numel() < _NUMBERS:
        raise NotCheckable(f"{vectors} vectors of {dim} numbers are too few to measure their noise")
    variance = float(sizes.var())
    if variance == 0:
        raise NotCheckable("the release shows no noise, or noise of constant size")
    means, each, count = (sizes.mean(0), vectors, dim) if what == "weights" else (sizes.mean(1), dim, vectors)
    if abs(each * float(means.var()) / variance - 1) > _ERRORS * math.sqrt(2 / count) + 0.1:
        raise NotCheckable(f"the noise of different {what} is dependent or of unequal size")
    if bool((sizes == 0).double().mean() > 0.5):
        raise NotCheckable("only some numbers of the release show noise")


def _of_tails(
    sizes: FloatArray, steps: FloatArray, near: float, far: float, *, rate: float = 1.0
) -> tuple[float, float, float]:
    """The loss at least, the loss as seen, and the slope, from the tails of ``sizes`` beyond two thresholds, for shifts
    ``steps (rounds, d)`` of a unit that takes part in a round with probability ``rate``.
    """
    half = np.sort(sizes[::2])
    first, second = (float(half[min(len(half) - 1, int((1 - share) * len(half)))]) for share in (near, far))
    rest = sizes[1::2]
    counts = [int((rest > threshold).sum()) for threshold in (first, second)]
    if not second > first or not counts[0] or not counts[1]:
        return 0.0, 0.0, 0.0
    level = SUITE.level("privacy loss by size")
    low = 1 - float(upper_bound(len(rest) - counts[0], len(rest), level))
    ratio = low / float(upper_bound(counts[1], len(rest), level))
    if ratio <= 1:
        return 0.0, 0.0, 0.0
    with np.errstate(divide="ignore"):
        least = math.log(ratio) / np.ceil((second - first) / steps)
    slope = math.log(counts[0] / counts[1]) / (second - first)
    seen = np.minimum(slope * steps, math.log(len(rest)))
    # The unit takes part or not: the largest loss of a mixture.
    total, likely = (float(np.log1p(rate * np.expm1(np.minimum(one.sum(1), 700))).sum()) for one in (least, seen))
    return total, likely, slope
