"""Look for the row that moves a release the furthest, by gradient ascent through the hooks, and check it.

A clip that takes its norm from a projection, a sketch or a pooled copy of a row bounds most rows, and not those that
the copy does not show. No list of rows finds them; the slope of the move along the row does.
"""

import copy
import warnings
from dataclasses import replace

import torch
from torch import Tensor

from ...audit.check_result import CheckResult
from ...audit.claim import Unit
from ...fl.partitions.sampling import Poisson
from ...fl.replay import DrawAll
from ...fl.streams import Streams, normal
from .chosen_checks import DrawFirst
from .hook_run import PRESENT, ZERO, HookSetup
from .sampled_checks import Sampled, sampled_checks
from .surroundings import Surroundings

_RUNS, _LEAST = 32, 8
"""Rows that are moved at the same time, at most and at least."""
_NUMBERS = 2**19
"""Numbers of one round of all runs, at most."""
_LOT = 2
"""Samples of a lot of independent coins, of which the first is the unit."""
_STEPS = 10
_FIRST, _FASTER, _SLOWER = 0.3, 1.6, 0.4
"""The first step, as a share of the row's length, and factors after a step that helped and one that did not."""
_HELPED = 1.02
"""Factor by which rows must have moved a release further than those that they began with."""


def longest_check(sampled: Sampled) -> CheckResult | None:
    """Return the check of rows that were turned along the slope of their own move; None where none moves further then.

    Args:
        sampled: the runs of the claim, which show a law where none is published.
    """
    holders = sorted(set(sampled.around.holders.tolist()))
    setup, rows_at_once = _present(sampled.setup, holders)
    plan = setup.plan
    runs = min(_RUNS, _NUMBERS // (rows_at_once * plan.layout.dim))
    if runs < _LEAST:
        return None
    drawn = setup.surroundings(holders, rounds=1, runs=runs, further=1)
    around = replace(drawn, others=torch.zeros_like(drawn.others), places=torch.zeros_like(drawn.places))
    with warnings.catch_warnings():
        # Hooks need not expect rows with slopes.
        warnings.simplefilter("ignore")
        rows = _longest(setup, around)
    if rows is None:
        return None
    again = Sampled(setup=setup, around=replace(around, units=rows.unsqueeze(1)))
    vars(again)["seen"] = sampled.seen
    found = next(sampled_checks(again))
    return replace(found, witness=f"{found.witness}, of a row found by the slope of its move")


def _present(setup: HookSetup, holders: list[int]) -> tuple[HookSetup, int]:
    """The same hooks with all clients and the unit's sample present, where coins decide, and the rows of a round."""
    plan = replace(setup.plan, cohort=DrawAll(setup.plan.cohort))
    rows = plan.clients
    if setup.claim.unit is Unit.SAMPLE and isinstance(plan.lot, Poisson):
        plan = replace(plan, lot=DrawFirst(rule=plan.lot, count=_LOT))
    elif setup.claim.unit is Unit.SAMPLE:
        rows = max(rows, sum(plan.sizes[holder] for holder in holders))
    return replace(setup, plan=plan), rows


def _longest(given: HookSetup, around: Surroundings) -> Tensor | None:
    """Rows ``(R, d)`` of the lengths of the first ones that move their release further; None where none does."""
    # A copy: what hooks keep of rows with slopes must not reach other runs.
    setup = replace(given, protection=copy.deepcopy(given.protection))
    base = setup.run(around, ZERO).releases(setup.claim, around.holders)[0][:, 0]

    def moved(rows: Tensor) -> tuple[Tensor, Tensor]:
        """The logarithm of the move of each row ``(R,)``, and its slope ``(R, d)``."""
        leaf = rows.detach().requires_grad_(True)
        run = setup.run(replace(around, units=leaf.unsqueeze(1)), PRESENT)
        move = run.releases(setup.claim, around.holders)[0][:, 0] - base
        lengths = torch.linalg.vector_norm(move, dim=-1).clamp_min(1e-30).log()
        if not lengths.requires_grad:
            return lengths.detach(), torch.zeros_like(rows)
        (slope,) = torch.autograd.grad(lengths.sum(), leaf, allow_unused=True)
        return lengths.detach(), torch.zeros_like(rows) if slope is None else slope.nan_to_num(0.0, 0.0, 0.0)

    rows: Tensor = _dense(around, setup.seed)
    norms = torch.linalg.vector_norm(rows, dim=-1, keepdim=True)
    reached, slope = moved(rows)
    begun = reached.clone()
    steps = torch.full_like(norms, _FIRST)
    for _ in range(_STEPS):
        # The length stays as it is: a longer row moves what is not clipped further, which is no fault.
        across = slope - rows * (slope * rows).sum(-1, keepdim=True) / norms.square()
        size = torch.linalg.vector_norm(across, dim=-1, keepdim=True)
        if not bool((size > 0).any()):
            break
        tried = rows + steps * norms * across / size.clamp_min(1e-30)
        tried = tried * norms / torch.linalg.vector_norm(tried, dim=-1, keepdim=True).clamp_min(1e-30)
        lengths, slopes = moved(tried)
        better = (lengths > reached).unsqueeze(1)
        rows, slope = torch.where(better, tried, rows), torch.where(better, slopes, slope)
        reached = torch.where(better[:, 0], lengths, reached)
        steps = torch.where(better, _FASTER * steps, _SLOWER * steps)
    if not bool(((reached - begun).exp() > _HELPED).any()):
        return None
    return rows


def _dense(around: Surroundings, seed: int) -> Tensor:
    """Rows of the drawn lengths that fill all coordinates, since where a row is zero its move may have no slope."""
    rows = around.units[:, 0]
    norms = torch.linalg.vector_norm(rows, dim=-1, keepdim=True)
    random = normal(Streams(seed).generator("longest rows"), tuple(rows.shape))
    filled = rows + norms * random / torch.linalg.vector_norm(random, dim=-1, keepdim=True).clamp_min(1e-30)
    scaled: Tensor = filled * norms / torch.linalg.vector_norm(filled, dim=-1, keepdim=True).clamp_min(1e-30)
    return scaled
