"""Hold everything noised that one round releases, the public state included, against the claim.

Each noised number may be within the claim as if it were released alone, while all of them together show more. Only
numbers with additive noise count, to which the unit adds the same under all noise: functions of a noised release have
noise that depends on the unit, and show nothing more than the release does.
"""

import math
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from ...audit.check_result import CheckResult
from ...audit.claim import Unit
from ...audit.observer import GLOBAL_MODELS, SHUFFLED
from ...fl.channels import state_channels, state_numbers
from ...fl.replay import DrawAll
from ..law_check import NotCheckable
from ..measured_checks import Direction, Ratio, check_stated, hold, rate_of, steps_of
from .hook_run import PRESENT, HookRun
from .joint_checks import TOGETHER, side_arrays
from .sampled_checks import Sampled
from .surroundings import Surroundings

_PILOT, _NUMBERS = 64, 2**23
"""Runs of the first round that show which numbers count, and numbers of all rounds of the runs that are measured."""
_FEWEST, _MOST = 32, 256
"""Runs that are measured."""
_ADDITIVE = 1e-3
"""Share by which a shift may differ under other noise."""
_ERRORS, _CORRELATED = 6.0, 6.0
"""Standard errors by which the ratio is lowered, and from which noise of two rounds counts as dependent."""
_LENGTH = 10.0
"""Length of the unit's row in clip norms."""
_MARGIN = 1.2
"""Factor by which a pilot must exceed the claim's shift over noise before it is measured."""


class _Numbers(NamedTuple):
    """Shifts and noise ``(R, T, channels)`` along the shifts, in which rounds the unit counts ``(R, T)``, and names."""

    shift: Tensor
    noise: Tensor
    used: Tensor
    names: tuple[str, ...]


def state_check(sampled: Sampled) -> CheckResult | None:
    """Return the check of a release together with the public state; None where the state holds no additive noise.

    A few runs of the first round show what could break the claim. It is then measured in fresh runs of all rounds.
    """
    setup, claim = sampled.setup, sampled.setup.claim
    if (
        claim.unit is Unit.SAMPLE
        or not GLOBAL_MODELS.rank <= claim.observer.rank
        or claim.observer.rank == SHUFFLED.rank
    ):
        return None
    if not _states(sampled.runs[0], sampled.around.replicas):
        return None
    # Everyone takes part: the chance of it is the claim's rate.
    setup = replace(setup, plan=replace(setup.plan, cohort=DrawAll(setup.plan.cohort)))
    pilot = _numbers(replace(sampled, setup=setup, around=_around(sampled.around, 1, _PILOT, setup.length)))
    if pilot is None:
        return None
    try:
        if sampled.laws is None:
            check_stated(claim)
        found, seen = _held(sampled, pilot, _ratio(pilot, 0.0) / _MARGIN, claim.rounds)
        if not found.passed:
            other = replace(sampled, setup=replace(setup, seed=setup.seed + 1))
            measured = _numbers(replace(other, around=_all_rounds(sampled)))
            if measured is None:
                return None
            found, seen = _held(sampled, measured, _ratio(measured, _ERRORS), measured.shift.shape[1])
    except NotCheckable:
        return None
    words = f"one {claim.unit} moves {_together(pilot)} by {seen:.4g} standard deviations in a round"
    return replace(found, name=TOGETHER, witness=f"{words}: {found.witness}", detects=None)


def _held(sampled: Sampled, numbers: _Numbers, each: float, rounds: int) -> tuple[CheckResult, float]:
    """A ratio of shift and noise of each round, held against the claim, and the ratio."""
    setup, claim, laws = sampled.setup, sampled.setup.claim, sampled.laws
    rate, steps = rate_of(claim, setup.plan, setup.protection), steps_of(claim, setup.plan, setup.protection)
    if laws is not None:
        rate, steps = min(law.rate for law in laws), laws[0].steps
    direction = Direction(values=sampled.around.units[0, 0], words=_together(numbers))
    return hold(Ratio(each=each, rounds=rounds, direction=direction), claim, setup.plan, rate, steps), each


def _together(numbers: _Numbers) -> str:
    return f"the release and {', '.join(name for name in numbers.names if name)}"


def _all_rounds(sampled: Sampled) -> Surroundings:
    """As many rounds of the claim, and runs of them, as there is room for."""
    setup = sampled.setup
    size = setup.plan.clients * setup.plan.layout.dim
    rounds = min(setup.claim.rounds, max(1, _NUMBERS // (_FEWEST * size)))
    runs = min(_MOST, max(_FEWEST, _NUMBERS // (rounds * size)))
    return _around(sampled.around, rounds, runs, setup.length)


def _around(around: Surroundings, rounds: int, runs: int, clip_norm: float) -> Surroundings:
    """Runs in which all others hold zeros, and the unit a long row along one coordinate, the same in all rounds."""
    (_, clients, dim), places = around.others.shape, torch.arange(runs)
    units = torch.zeros(runs, 1, dim)
    # Squares of a row are the longest where it has one entry alone. Coordinates are spread over all weights.
    units[places, 0, (places * 7919) % dim] = clip_norm * _LENGTH
    return replace(
        around,
        holders=around.holders.repeat(-(-runs // around.replicas))[:runs],
        places=torch.zeros(runs),
        kinds=torch.zeros(runs, dtype=torch.long),
        units=units.expand(-1, rounds, -1),
        others=torch.zeros(runs, clients, dim),
        long=torch.ones(runs, dtype=torch.bool),
    )


def _states(run: HookRun, runs: int) -> dict[str, Tensor]:
    """The numbers of the public state after each round, ``(R, T, k)`` by name."""
    rounds = [state_numbers(state_channels(state)[0]) for state in run.states]
    found = dict[str, Tensor]()
    for name, first in rounds[0].items():
        arrays = [one.get(name) for one in rounds]
        if first.ndim and all(one is not None and one.shape == first.shape and len(one) == runs for one in arrays):
            found[name] = torch.stack([one.reshape(runs, -1) for one in arrays if one is not None], dim=1)
    return found


def _received(sampled: Sampled, run: HookRun) -> dict[str, Tensor]:
    release = run.releases(sampled.setup.claim, sampled.around.holders)[0]
    return {"": release, **side_arrays(sampled, run), **_states(run, sampled.around.replicas)}


def _numbers(sampled: Sampled) -> _Numbers | None:
    """The release and further arrays, each along its own shift; None where only one of them counts."""
    setup, around, base = sampled.setup, sampled.around, sampled.base
    (within, again), (without, second) = (
        [_received(sampled, setup.run(around, arm, noise=noise)) for noise in (0, 1)] for arm in (PRESENT, base)
    )
    third = _received(sampled, setup.run(around, base, noise=2))
    shifts, noises, names = list[Tensor](), list[Tensor](), list[str]()
    for name, values in within.items():
        if not all(name in other for other in (again, without, second, third)):
            continue
        moved, other = values - without[name], again[name] - second[name]
        size = torch.linalg.vector_norm(moved, dim=-1, keepdim=True)
        apart = torch.linalg.vector_norm(moved - other, dim=-1, keepdim=True)
        rounding = 2.0**-20 * torch.linalg.vector_norm(values, dim=-1, keepdim=True)
        if bool((apart > _ADDITIVE * size + rounding).any()) or not bool((size > rounding).any()):
            continue
        # The shift is known from other draws than those of the noise.
        unit = moved / size.clamp_min(1e-300)
        noise = ((second[name] - third[name]) * unit).sum(-1) / math.sqrt(2)
        if len(torch.unique(noise[size[..., 0] > 0])) < noise.numel() / 2:
            continue
        shifts.append((moved * unit).sum(-1))
        noises.append(noise)
        names.append(name)
    if len(names) < 2:
        return None
    shift = torch.stack(shifts, dim=-1)
    used = (shift > 0).all(-1)
    return _Numbers(shift=shift, noise=torch.stack(noises, dim=-1), used=used, names=tuple(names))


def _ratio(numbers: _Numbers, errors: float) -> float:
    """The shift over the noise of all channels of a round, lowered by so many standard errors; 0 where rounds depend
    on each other, so that noise of one may cancel that of another.
    """
    shift, noise, used = numbers.shift, numbers.noise, numbers.used
    if used.sum() < _FEWEST or (errors and _dependent(noise)):
        return 0.0
    scale = noise.square().mean((0, 1)).sqrt().clamp_min(1e-300)
    rows = noise[used] / scale
    free = len(rows)
    inverse = torch.linalg.pinv(rows.T @ rows / free, rtol=1e-6, hermitian=True)
    mean = shift[used].mean(0) / scale
    left = free - len(mean) - 1
    found = math.sqrt(max(0.0, float(mean @ inverse @ mean)) * left / free)
    return found * max(0.0, 1 - errors * math.sqrt(1 / (2 * left)))


def _dependent(noise: Tensor) -> bool:
    """Whether the noise ``(R, T, channels)`` of rounds at any distance is correlated, in any two channels."""
    scaled = noise / noise.square().mean((0, 1)).sqrt().clamp_min(1e-300)
    runs, rounds, _ = noise.shape
    for lag in range(1, rounds):
        pairs = runs * (rounds - lag)
        together = torch.einsum("rtc,rte->ce", scaled[:, :-lag], scaled[:, lag:]) / pairs
        if float(together.abs().max()) * math.sqrt(pairs) > _CORRELATED:
            return True
    return False
