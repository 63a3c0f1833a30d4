"""Hold the shift over noise of all rounds against the claim where the others' rows drive the public state to its ends.

A clip norm that follows the clients' rows reaches, under rows that are all long or all short, values that ordinary data
never give it. Noise and sensitivity have to follow it together, also beyond a floor or a cap of one of the two.
"""

from dataclasses import replace

import torch

from ...audit.check_result import CheckResult
from ...audit.claim import Unit
from ...fl.replay import DrawAll
from .hook_run import HookSetup
from .sampled_checks import Sampled, held_by_claim
from .surroundings import Surroundings

_ROUNDS = 16
"""Rounds at most: the noise of each is measured, and a claim over more rounds allows no more in these."""
_RUNS, _LEAST = 64, 48
"""Runs of each end, at most and at least: some four times as many as rounds."""
_NUMBERS = 2**23
"""Numbers of all rounds of all runs of one end, at most."""
_UNIT = 1e4
"""Length of the unit's rows in clip norms."""
_ENDS = (("long", 1e4), ("short", 1e-4))
"""What all others hold, in clip norms."""


def driven_check(sampled: Sampled) -> CheckResult | None:
    """Return the check that fails where all other rows are very long, or else very short; None where neither fails,
    the state does not change, or the claim is about samples.

    Args:
        sampled: the runs of the claim, in which a state that changes would show.
    """
    setup, around = sampled.setup, sampled.around
    if setup.claim.unit is Unit.SAMPLE or all(sampled.runs[0].first_state):
        return None
    size = setup.plan.clients * setup.plan.layout.dim
    rounds = min(setup.claim.rounds, _ROUNDS, _NUMBERS // (_LEAST * size))
    if rounds <= around.rounds:
        return None
    runs = min(_RUNS, _NUMBERS // (rounds * size))
    # Everyone takes part: the chance of it is the claim's rate.
    full = replace(setup, plan=replace(setup.plan, cohort=DrawAll(setup.plan.cohort)), seed=setup.seed + 2)
    for words, length in _ENDS:
        found = held_by_claim(Sampled(setup=full, around=_around(full, around, rounds, runs, length)))
        if found.passed is False:
            return replace(found, witness=f"{found.witness}; all other rows are {words} in all rounds")
    return None


def _around(setup: HookSetup, around: Surroundings, rounds: int, runs: int, length: float) -> Surroundings:
    """Runs in which one client holds the unit's long row, and all others rows of one length at right angles to it:
    what noise does to the state, and the state to their sum, is then not taken for noise along the unit's row.
    """
    drawn = setup.surroundings(around.holders[:1].tolist(), rounds=rounds, runs=runs)
    own, rest = torch.ones(2, setup.plan.layout.dim)
    own[1::2] = 0.0
    rest[::2] = 0.0
    return replace(
        drawn,
        units=(setup.length * _UNIT * own / own.norm()).expand_as(drawn.units),
        others=(setup.length * length * rest / rest.norm().clamp_min(1.0)).expand_as(drawn.others),
        long=torch.ones_like(drawn.long),
    )
