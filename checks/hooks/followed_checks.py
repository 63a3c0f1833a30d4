"""Hold rows that follow what was released against the claim.

A client may train on what it received: its update may lie along the last aggregate, or on the weights that have moved
most. A claim over many rounds covers such rows too, since it covers every choice that is made from earlier releases. A
defense whose clip or noise depends on earlier releases may protect every fixed row and no row of this kind.
"""

import math
from dataclasses import replace

import torch
from torch import Tensor

from ...audit.check_result import CheckResult
from ...audit.claim import Unit
from ...fl.replay import DrawAll
from ...fl.streams import Streams
from ..measured_checks import Direction, Ratio, bound_of, hold, rate_of, states_gaussian, steps_of
from .hook_run import PRESENT, ZERO
from .sampled_checks import Sampled

FOLLOWED = "rows that follow releases"
_RUNS, _LEAST = 192, 96
"""Runs with rows of all kinds together: at most, and at least."""
_ROUNDS, _FEWEST = 24, 3
"""Rounds at most, and at least: the first one follows nothing."""
_NUMBERS = 2**20
"""Numbers of one round of all runs, at most."""
_LENGTH = 100.0
"""Length of rows in clip norms: every clip shortens them."""
_SHARE = 0.1
"""Share of the weights that have moved most, or least."""
_LEFT = 0.05
"""Share of a row's move that a later release may show."""
_ERRORS = 6.0
"""Standard errors from which the mean of noise is not zero."""
_WORDS = (
    "by rows along the last aggregate",
    "by rows against the last aggregate",
    "by rows along all earlier aggregates together",
    "by rows on the tenth of the weights that have moved most",
    "by rows on the tenth of the weights that have moved least",
)


def followed_check(sampled: Sampled) -> CheckResult | None:
    """Return the check; None where it does not apply: where neither a law nor the claim says that noise is Gaussian, or
    a row shows in later releases too, as under momentum: then rounds are not released one by one.
    """
    setup, around = sampled.setup, sampled.around
    claim, plan = setup.claim, setup.plan
    rounds = min(claim.rounds, plan.rounds, _ROUNDS)
    runs = min(_RUNS, _NUMBERS // (plan.clients * plan.layout.dim))
    if sampled.laws is None and not states_gaussian(claim):
        return None
    if sampled.step or claim.unit is Unit.SAMPLE or claim.delta == 0:
        return None
    if rounds < _FEWEST or runs < _LEAST or _remembers(sampled):
        return None
    rate, steps = rate_of(claim, plan, setup.protection), steps_of(claim, plan, setup.protection)
    # Everyone takes part: how often a unit does is for other checks.
    full = replace(setup, plan=replace(plan, cohort=DrawAll(plan.cohort)))
    holder = around.holders[:1].expand(runs)
    silent = replace(
        around,
        holders=holder,
        places=torch.zeros(runs),
        kinds=torch.zeros(runs, dtype=torch.long),
        units=torch.zeros(runs, rounds, plan.layout.dim),
        others=torch.zeros(runs, plan.clients, plan.layout.dim),
        long=torch.ones(runs, dtype=torch.bool),
    )
    without = full.run(silent, ZERO, data=False)
    kinds = torch.arange(runs) % len(_WORDS)
    # A unit moves a sum by little, so that rows which follow the runs without it follow those with it.
    units = _rows(kinds, torch.stack(list(without.aggregates), dim=1), setup.length, setup.seed)
    within = full.run(replace(silent, units=units), PRESENT, data=False)
    noise, released = (run.releases(claim, holder)[0] for run in (without, within))
    towards = units.double() / torch.linalg.vector_norm(units.double(), dim=-1, keepdim=True).clamp_min(1e-300)
    along, moved = (noise * towards).sum(-1)[:, 1:], ((released - noise) * towards).sum(-1)[:, 1:]
    ratios = [_ratio(along[kinds == kind], moved[kinds == kind], words) for kind, words in enumerate(_WORDS)]
    known = [one for one in ratios if one is not None]
    if len(known) < len(ratios):
        return None
    worst = max(known, key=lambda one: one.each)
    result = hold(worst, claim, plan, rate, steps)
    words = (
        f"{worst.direction.words}, each of {worst.rounds} rounds is moved by at least {worst.each:.4g} standard "
        f"deviations of its noise"
    )
    return sampled.seen.named(replace(result, name=FOLLOWED, witness=words, detects=None))


def _remembers(sampled: Sampled) -> bool:
    """Whether the row of a round moves later releases too, on average over all runs."""
    rows, moved = sampled.around.units.double(), sampled.moved
    units = rows / torch.linalg.vector_norm(rows, dim=-1, keepdim=True).clamp_min(1e-300)
    # (round of the row, round of the release)
    along = torch.einsum("rtd,rsd->rts", units, moved)
    mean, error = along.mean(0), along.std(0) / len(rows) ** 0.5
    # A unit changes what noise later rounds have, where that depends on releases: on average by nothing.
    return bool((mean.triu(1).abs() > _LEFT * mean.diagonal().abs().max() + _ERRORS * error).any())


def _rows(kinds: Tensor, released: Tensor, clip_norm: float, seed: int) -> Tensor:
    """The unit's rows ``(R, T, d)``, by the kind of each run and the aggregates ``(R, T, d)`` of earlier rounds."""
    runs, rounds, dim = released.shape
    rows = torch.zeros_like(released)
    signs = torch.from_numpy(Streams(seed).generator("rows that follow").choice([-1.0, 1.0], size=dim)).to(rows)
    count = max(1, math.ceil(_SHARE * dim))
    for turn in range(1, rounds):
        last, total = released[:, turn - 1], released[:, :turn].sum(1)
        order = total.abs().argsort(dim=-1, descending=True)
        most, least = (torch.zeros_like(total).scatter_(1, part, 1.0) for part in (order[:, :count], order[:, -count:]))
        each = torch.stack([last, -last, total, most * total.sign(), least * signs])
        rows[:, turn] = each[kinds, torch.arange(runs)]
    lengths: Tensor = torch.linalg.vector_norm(rows, dim=-1, keepdim=True).clamp_min(1e-30)
    followed: Tensor = _LENGTH * clip_norm * rows / lengths
    return followed.float()


def _ratio(noise: Tensor, moved: Tensor, words: str) -> Ratio | None:
    """The ratio of shift and noise along the rows of one kind, ``(runs, rounds)`` each; None where releases without the
    unit follow earlier ones too, or have no noise.
    """
    runs, rounds = noise.shape
    variance = noise.square().mean(0)
    if not bool((variance > 0).all()):
        return None
    # What is left of earlier releases, as under momentum, is neither shift nor noise.
    echo = noise.mean(0) / (variance / runs).sqrt()
    if float(echo.abs().max()) > _ERRORS:
        return None
    each, true, error = bound_of(moved, noise.T @ noise / runs, float(runs))
    return Ratio(each=each, rounds=rounds, direction=Direction(values=noise[0], words=words), true=true, error=error)
