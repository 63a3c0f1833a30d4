"""Check a privacy claim against the distance by which one person's data move a run's noised messages, relative to the
noise of these messages.

Two calls of a hook, recorded in two runs with equal releases, are made again with many equal draws. Where a message is
a sum of what the data give and of noise, its move is the same under every draw; a message that is cut off after the
noise, or noised in another way, is not judged. The move of Gaussian noise counts in the metric of the noise's measured
covariance, so that noise which is correlated over people or numbers, or larger for some of them, is judged as it is.
Noise that depends on what was drawn in earlier steps is not judged.
"""

import math
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor

from ....audit.check import ALL_DIRECTIONS, DRAWN_LAW, PERSON_MOVE, CheckResult
from ....audit.claim import Claim
from ....audit.curve import epsilon_from_mu, mu_from_epsilon
from ....audit.ledger import SUITE
from ....audit.observer import FINAL_MODEL
from ....fl.streams import Streams
from ....fl.vertical.protection import Noise, VerticalLaw, VerticalProtection
from ..case import VerticalCase
from .drawn_messages import drawn_check
from .noise_law import least_p, nearer_kind, on_grid
from .tape import Call, NotJudged, again, kept, recorded

_NUMBERS = 500
"""Numbers of a message that are judged together, those that the data move most; the others are left out."""
_DRAWS, _MOST_DRAWS, _DRAWN = 2000, 20_000, 4_000_000
"""Draws of a hook's noise, at least and at most, and numbers that are drawn in all where that lies between."""
_MOST_DRAWN = 500_000_000
"""Numbers that a hook draws at most under both data sets."""
_FEW = 16
"""Replicas in which noise that is drawn once for all of them shows."""
_SLACK = 0.03
"""Least share by which a measured move over noise may exceed the stated one; larger where fewer draws measure it."""
_RIDGE = 1e-9
"""Added to the variances, so that numbers with the same noise have a covariance that can be inverted."""
_NO_NOISE = 1e-6
"""Share of the numbers' own variances below which a direction has no noise."""


@dataclass(frozen=True, kw_only=True, eq=False)
class _Noise:
    """The noise of one message, and how far the data move it.

    Args:
        move: (numbers,), in standard deviations of each number's own noise.
        shares: (numbers,), mean absolute deviation of each number's noise over its standard deviation.
        correlation: (numbers, numbers).
        draws: from which the noise was measured.
        published: whether the law describes this message, and not only one that is noised as well.
        kind: the kind of noise: as published, or the likelier one of a message that the law does not describe.
        likely: p-value, over all numbers, of draws of the published distribution.
        gridded: whether all draws lie on one grid.
    """

    move: Tensor
    shares: Tensor
    correlation: Tensor
    draws: int
    published: bool
    kind: Noise
    likely: float
    gridded: bool

    @property
    def apart(self) -> float:
        """The squared norm of the move in the metric of the noise's covariance, without the bias of its inverse."""
        ridge = _RIDGE * torch.eye(len(self.move), dtype=torch.float64)
        found = float(self.move @ torch.linalg.solve(self.correlation + ridge, self.move))
        return found * (self.draws - len(self.move) - 2) / (self.draws - 1)

    @property
    def left(self) -> float:
        """The share of the numbers' own noise that is left in the direction in which the noise hides least."""
        return min(1.0, float(self.move.square().sum()) / self.apart) if bool(self.move.isfinite().all()) else 0.0

    @property
    def correlated(self) -> bool:
        """Whether some two numbers' noise is correlated, which independent noise is once in 10^10 pairs."""
        return bool((self.correlation - torch.diag(self.correlation.diagonal())).abs().max() > 6.5 / self.draws**0.5)

    def error(self, *, laplace: bool) -> float:
        """Five times the relative standard error of the norm of the move."""
        return 5 / math.sqrt(self.draws if laplace else 2 * (self.draws - len(self.move)))


def move_checks(case: VerticalCase, pairs: list[tuple[Call, Call]], *, brief: bool) -> tuple[CheckResult, ...]:
    """Return the results of the checks of the noised messages: how far the data move them relative to the noise,
    whether the data move them in a direction without noise, whether the noise is distributed as published, and whether
    repeated draws are consistent with the claim.

    ``pairs``: the calls of two runs with equal releases. ``brief``: the last check alone, without measuring the noise.
    """
    if brief and case.claim.observer == FINAL_MODEL:
        # No failure would count there.
        return ()
    found = (*(() if brief else _of_noise(case, pairs)), drawn_check(case, pairs))
    # LAW is about no claim.
    return tuple(result if result.name == DRAWN_LAW else case.judged(result, "messages") for result in found)


def _of_noise(case: VerticalCase, pairs: list[tuple[Call, Call]]) -> tuple[CheckResult, ...]:
    law = case.law

    def skipped(why: str) -> tuple[CheckResult, ...]:
        return tuple(name.skipped(why) for name in (PERSON_MOVE, ALL_DIRECTIONS, DRAWN_LAW))

    if law is None or law.noise is None:
        return skipped("the defense publishes no additive noise")
    seen = [pair for pair in pairs if pair[0].hook in (law.noised, "bottom_sum")]
    try:
        found = [noise for one, other in seen for noise in _noise_of(case.protection, one, other, law)]
    except NotJudged as why:
        return skipped(str(why))
    if not found:
        return skipped("no noised message differs between the two neighbouring data sets")
    left = ALL_DIRECTIONS.at_least(
        min(noise.left for noise in found),
        _NO_NOISE,
        unit="share of the noise",
        witness=f"{len(found)} messages that depend on the data of one person",
    )
    return (
        _move(case.claim, law, found, len(seen)),
        left,
        _distribution(law.noise, [noise for noise in found if noise.published]),
    )


def _distribution(kind: Noise, found: list[_Noise]) -> CheckResult:
    """Hold the least likely message against the level, at its share of it."""
    skip = partial(CheckResult, name=DRAWN_LAW, passed=None)
    if not found:
        return skip(
            witness="no message to which the published noise is added differs between the two neighbouring data sets"
        )
    if any(noise.gridded for noise in found):
        return skip(
            witness="all numbers lie on one grid, as after rounding, and no noise distribution is known for rounded "
            "numbers"
        )
    if kind is Noise.LAPLACE and any(noise.correlated for noise in found):
        words = (
            "the noise of different numbers is correlated, as sums of Laplace noise are, and such sums are not "
            "Laplace noise"
        )
        return skip(witness=words)
    return DRAWN_LAW.at_least(
        min(1.0, len(found) * min(noise.likely for noise in found)),
        SUITE.level("vertical noise"),
        unit="p-value",
        witness=f"{len(found)} messages, each drawn {found[0].draws} times and compared with {kind.value} noise",
    )


def _move(claim: Claim, law: VerticalLaw, found: list[_Noise], counted: int) -> CheckResult:
    """Hold the norm of all moves against epsilon.

    Such a move is exactly (epsilon, delta)-DP for Gaussian noise, and for independent Laplace noise without delta,
    which the law must publish.
    """
    skip = partial(CheckResult, name=PERSON_MOVE, passed=None)
    laplace = law.noise is Noise.LAPLACE
    if laplace != (claim.delta == 0):
        return skip(
            witness="the shift between the two data sets determines epsilon only for Gaussian noise at delta > 0 and "
            "for Laplace noise at delta 0"
        )
    if any(noise.kind is not law.noise for noise in found):
        return skip(
            witness=f"not all noise is {law.noise}, and for noise of several kinds the shift between the two data sets "
            "does not determine epsilon"
        )
    if any(not bool(noise.move.isfinite().all()) for noise in found):
        return PERSON_MOVE.failed("some released numbers depend on the person's data and have no noise")
    if laplace and any(noise.correlated for noise in found):
        return skip(
            witness="the noise of different numbers is correlated, and for such noise the shift between the two data "
            "sets does not determine epsilon"
        )
    total = sum(float((noise.move / noise.shares).abs().sum()) if laplace else noise.apart for noise in found)
    norm = total if laplace else total**0.5
    slack = max(_SLACK, *(noise.error(laplace=laplace) for noise in found))
    checked = PERSON_MOVE.at_most(
        _epsilon(claim, norm / (1 + slack), laplace=laplace),
        claim.epsilon,
        slack=1e-6 * claim.epsilon,
        unit="epsilon",
        witness=f"{counted} messages under two neighbouring data sets, each given all earlier releases",
    )
    # The pair moves less than the worst one may: so much larger must the loss be before this check finds it.
    stated = claim.epsilon if laplace else mu_from_epsilon(claim.epsilon, claim.delta)
    return replace(checked, detects=_epsilon(claim, stated**2 * (1 + 2 * slack) / norm, laplace=laplace))


def _epsilon(claim: Claim, norm: float, *, laplace: bool) -> float:
    """The epsilon of a move of this norm, in units of the noise: L1 for Laplace, L2 for Gaussian noise."""
    return norm if laplace else epsilon_from_mu(norm, claim.delta)


def _noise_of(protection: VerticalProtection, one: Call, other: Call, law: VerticalLaw) -> list[_Noise]:
    """The noise of a call and its move to another call's inputs; nothing where it does not move."""
    first = recorded(protection, one)
    moved = (again(protection, other, deepcopy(one.rng)).double() - first.double()).flatten()
    chosen = torch.argsort(moved.abs(), descending=True, stable=True)[:_NUMBERS]
    if not bool((moved != 0).any()):
        return []
    draws = min(_MOST_DRAWS, max(_DRAWS, _DRAWN // moved.numel()))
    if 2 * draws * moved.numel() > _MOST_DRAWN:
        raise NotJudged(
            f"the hook {one.hook} returns {moved.numel()} numbers, too many to draw their noise {draws} times"
        )
    if _is_shared(protection, one):
        raise NotJudged(
            f"the hook {one.hook} draws the same noise for all replicas, so its noise could not be measured"
        )
    sides = [
        kept(protection, call, Streams(0).generator("play back"), replicas=draws, places=chosen).double()
        for call in (one, other)
    ]
    if not all(bool(side.isfinite().all()) for side in sides):
        raise NotJudged(f"the output of the hook {one.hook} is not finite, because the training diverges")
    moves, digits = sides[1] - sides[0], 1e-5 * float(sides[0].abs().max())
    # Differences of single precision: exact to some digits of the noised numbers.
    if not torch.allclose(moves, moves.mean(0).expand_as(moves), rtol=1e-3, atol=digits):
        raise NotJudged(
            f"the hook {one.hook} does not return a message plus noise: the shift between the two data sets differs "
            "from draw to draw"
        )
    return [_measured(one, sides[0], moves.mean(0), law)]


def _measured(call: Call, drawn: Tensor, move: Tensor, law: VerticalLaw) -> _Noise:
    assert law.noise is not None
    noise = drawn - drawn.mean(0)
    scales = noise.std(0)
    # A number without noise that does not move is a constant; one that moves has an infinite move.
    kept = (scales > _NO_NOISE * move.abs()) | (move != 0)
    drawn, noise, scales, move = drawn[:, kept], noise[:, kept], scales[kept], move[kept]
    bare = scales <= _NO_NOISE * move.abs()
    units = noise / scales.clamp_min(1e-300)
    published = call.hook == law.noised
    return _Noise(
        move=torch.where(bare, torch.inf, move / scales),
        shares=units.abs().mean(0),
        correlation=units.T @ units / (len(units) - 1),
        draws=len(units),
        published=published,
        kind=law.noise if published else nearer_kind(drawn[:, ~bare], law.noise),
        # The law describes published noise alone, and these two take most of the time.
        likely=least_p(drawn[:, ~bare], law.noise) if published else 1.0,
        gridded=published and on_grid(drawn[:, ~bare]),
    )


def _is_shared(protection: VerticalProtection, call: Call) -> bool:
    """Whether some number is the same in all replicas, and another one under another generator."""
    one, other = (again(protection, call, Streams(number).generator("play back"), replicas=_FEW) for number in range(2))
    return bool(((one == one[:1]).all(0) & (one[0] != other[0])).any())
