"""Checks that search for rows and samples with which a unit moves a release further than its claim allows.

Drawn data seldom show such a move, but the claim holds for all data. Each check searches one kind of them:

- Chosen rows and samples of all others. Robust aggregation and filters depend on how the others' rows lie: one row may
  move a choice from one group of clients to another, or remove rows that resemble it. Weights and factors may depend on
  a client's samples.
- Rows that drive the public state to its ends. A clip norm that follows the clients' rows reaches, under rows that are
  all long or all short, values that ordinary data never give it. Noise and sensitivity have to follow it together, also
  beyond a floor or a cap of one of the two.
- The row that moves a release the furthest, by gradient ascent through the hooks. A clip that takes its norm from a
  projection, a sketch or a pooled copy of a row bounds most rows, and not those that the copy does not show. No list of
  rows finds them; the slope of the move along the row does.
- Rows that follow what was released. A client may train on what it received: its update may lie along the last
  aggregate, or on the weights that have moved most. A claim over many rounds covers every choice that is made from
  earlier releases. A defense whose clip or noise depends on them may protect every fixed row and no row of this kind.
- Everything noised that one round releases, the public state and arrays beside the release included. Each noised number
  may be within the claim as if it were released alone, while all of them together show more: a budget that is not
  split, a second copy with noise of its own, or a partial sum with its share of the noise. Only numbers with additive
  noise count, to which the unit adds the same under all noise: functions of a noised release have noise that depends on
  the unit, and show nothing more than the release does.
"""

import copy
import math
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

from ..audit.check import FOLLOWED, TOGETHER, CheckResult
from ..audit.claim import Unit
from ..audit.observer import GLOBAL_MODELS, SHUFFLED, UPLOADS
from ..fl.channels import state_channels, state_numbers
from ..fl.replay import DrawAll
from ..fl.sampling import Full, Poisson, Sampling
from ..fl.streams import Streams, normal
from ..fl.task import Task
from .given_rows import (
    CONSTELLATIONS,
    PRESENT,
    ZERO,
    HookRun,
    HookSetup,
    Surroundings,
    among_samples,
    in_constellations,
    unit_vectors,
)
from .law import NotCheckable
from .measured import Direction, Ratio, bound_of, check_stated, hold, rate_of, states_gaussian, steps_of
from .sampled import Sampled, held_by_claim, sampled_checks

_CHOSEN_RUNS, _CHOSEN_LEAST = 8 * len(CONSTELLATIONS), 2 * len(CONSTELLATIONS)
"""Runs of the pilot: at most, and at least."""
_SAMPLES = 12
"""Samples of a lot of chosen rows, at most."""
_CHOSEN_ROWS = 2**23
"""Numbers of the lots of all runs of chosen samples, at most."""
_CHOSEN_NUMBERS = 2**20
"""Numbers of one round of all runs of the pilot, at most."""
_CONFIRMED, _CHOSEN_FEWEST = 2**23, 32
"""Numbers of all rounds of all runs that confirm a large shift, at most, and runs at least."""
_CHOSEN_MARGIN = 1.2
"""Factor by which a pilot must exceed the claim's shift over noise before it is confirmed."""


@dataclass(frozen=True, kw_only=True)
class _Shift:
    """The shift over noise that a pilot shows in some of its runs: of one constellation, or of one holder."""

    ratio: float
    chosen: tuple[int, ...]
    holders: tuple[int, ...]
    words: str


def chosen_check(setup: HookSetup, holders: list[int], *, most: int = _CHOSEN_RUNS) -> CheckResult | None:
    """Return a check with rows and samples chosen by a search; None if it does not apply, or if a pilot shows nothing.

    With a law every run is compared with it. Without one, what a pilot shows is measured again in fresh runs, so that
    the choice of the largest of many shifts costs no false alarms.

    Args:
        holders: the clients that hold the unit in turn; the first two hold samples that are hardly drawn by chance.
        most: runs at most.
    """
    plan = setup.plan
    if setup.claim.unit is Unit.SAMPLE:
        return _of_samples(setup, holders[0])
    runs = min(_CHOSEN_RUNS, most, _CHOSEN_NUMBERS // (plan.clients * plan.layout.dim))
    if runs < _CHOSEN_LEAST:
        return None
    # Everyone takes part, so that the constellation is complete.
    crowded = replace(setup.everyone, task=with_one_label(setup.task, holders[:2]))
    pilot = _sampled(crowded, tuple(range(len(CONSTELLATIONS))), tuple(holders), rounds=1, runs=runs)
    try:
        if pilot.laws is not None:
            found = next(sampled_checks(pilot))
            return replace(found, witness=f"{found.witness}, with other vectors and samples chosen by a search")
        check_stated(setup.claim)
        rate = rate_of(setup.claim, plan, setup.protection)
        steps = steps_of(setup.claim, plan, setup.protection)
        largest = max(_shifts(pilot), key=lambda one: one.ratio)
        direction = Direction(values=pilot.around.units[0, 0], words=largest.words)
        seen = Ratio(each=largest.ratio / _CHOSEN_MARGIN, rounds=setup.claim.rounds, direction=direction)
        return None if hold(seen, setup.claim, plan, rate, steps).passed else _confirmed(crowded, largest, most)
    except NotCheckable:
        return None


def _of_samples(setup: HookSetup, holder: int) -> CheckResult | None:
    """The check of chosen rows in one lot; None without a law, without room, or where lots have another size.

    A lot of independent coins may hold a few samples alone, and a full one holds all of them.
    """
    plan = setup.plan
    samples = plan.sizes[holder]
    lot: Sampling = plan.lot
    if isinstance(lot, Poisson):
        samples = min(_SAMPLES, samples)
        lot = DrawAll(lot, count=samples)
    elif not isinstance(lot, Full):
        return None
    runs = min(_CHOSEN_RUNS, _CHOSEN_ROWS // (max(samples, plan.clients) * plan.layout.dim))
    if samples < 2 or runs < _CHOSEN_LEAST:
        return None
    crowded = replace(setup, plan=replace(setup.everyone.plan, lot=lot))
    around = crowded.surroundings((holder,), rounds=1, runs=runs)
    chosen = torch.arange(runs) % len(CONSTELLATIONS)
    near = among_samples(around, chosen, samples=samples, clip_norm=setup.length, seed=setup.seed)
    pilot = Sampled(setup=crowded, around=near)
    if pilot.laws is None:
        return None
    found = next(sampled_checks(pilot))
    return replace(found, witness=f"{found.witness}, with other samples chosen by a search")


def _confirmed(setup: HookSetup, shift: _Shift, most: int) -> CheckResult | None:
    plan, rounds = setup.plan, setup.claim.rounds
    size = plan.clients * plan.layout.dim
    rounds = max(1, min(rounds, _CONFIRMED // (_CHOSEN_FEWEST * size)))
    runs = min(256, max(_CHOSEN_FEWEST, _CONFIRMED // (rounds * size)), max(_CHOSEN_FEWEST, most))
    again = replace(setup, seed=setup.seed + 1)
    found = next(sampled_checks(_sampled(again, shift.chosen, shift.holders, rounds=rounds, runs=runs)))
    return replace(found, witness=f"{found.witness}; {shift.words}") if found.passed is False else None


def _sampled(setup: HookSetup, chosen: tuple[int, ...], holders: tuple[int, ...], *, rounds: int, runs: int) -> Sampled:
    """Runs in the constellations of the given numbers, in turn, with each of the holders in turn."""
    around = setup.surroundings(holders, rounds=rounds, runs=runs)
    # Each constellation meets every holder.
    numbers = torch.tensor(chosen)[(torch.arange(runs) // len(holders)) % len(chosen)]
    return Sampled(setup=setup, around=in_constellations(around, numbers, clip_norm=setup.length, seed=setup.seed))


def _shifts(pilot: Sampled) -> Iterator[_Shift]:
    """The shift over noise along the unit's rows, and along the sum of all others, in groups of runs."""
    around = pilot.around
    again = pilot.setup.released(around, pilot.base, noise=1)
    scattered, moved = (again - pilot.releases[1])[:, 0] / 2**0.5, pilot.moved[:, 0]
    holders = tuple(dict.fromkeys(around.holders.tolist()))
    numbers = (torch.arange(around.replicas) // len(holders)) % len(CONSTELLATIONS)
    everything = tuple(range(len(CONSTELLATIONS)))
    kinds = list[tuple[Tensor, tuple[int, ...], tuple[int, ...], str]]()
    for number, words in enumerate(CONSTELLATIONS):
        kinds.append((numbers == number, (number,), holders, f"among others, {words}"))
    for client in holders:
        words = f"client {client} holds the unit, and the first clients hold samples of one label"
        kinds.append((around.holders == client, everything, (client,), words))
    for unit in (around.directions[:, 0], unit_vectors(around.others.sum(1).double())):
        noise = float((scattered * unit).sum(-1).square().mean().sqrt())
        if noise == 0:
            continue
        shift = (moved * unit).sum(-1) / noise
        for here, chosen, held, words in kinds:
            if bool(here.any()):
                yield _Shift(ratio=abs(float(shift[here].mean())), chosen=chosen, holders=held, words=words)


def with_one_label(task: Task, clients: list[int]) -> Task:
    """Return the task in which the first client holds copies of one sample, and the second client one label only."""
    images, labels = task.images.clone(), task.labels.clone()
    for turn, client in enumerate(clients):
        part = task.parts[client]
        if not len(part):
            continue
        labels[part] = labels[part[0]].clone()
        if turn == 0:
            images[part] = images[part[0]].clone()
    return replace(task, images=images, labels=labels)


_DRIVEN_ROUNDS = 16
"""Rounds at most: the noise of each is measured, and a claim over more rounds allows no more in these."""
_DRIVEN_RUNS, _DRIVEN_LEAST = 64, 48
"""Runs of each end, at most and at least: some four times as many as rounds."""
_DRIVEN_NUMBERS = 2**23
"""Numbers of all rounds of all runs of one end, at most."""
_UNIT = 1e4
"""Length of the unit's rows in clip norms."""
_ENDS = (("long", 1e4), ("short", 1e-4))
"""What all others hold, in clip norms."""


def driven_check(sampled: Sampled) -> CheckResult | None:
    """Return a check that fails if all other rows are very long, or else if they are very short; None if neither fails,
    if the public state does not change, or if the claim is about samples.

    Args:
        sampled: the runs of the claim, in which a state that changes would show.
    """
    setup, around = sampled.setup, sampled.around
    if setup.claim.unit is Unit.SAMPLE or all(sampled.runs[0].first_state):
        return None
    size = setup.plan.clients * setup.plan.layout.dim
    rounds = min(setup.claim.rounds, _DRIVEN_ROUNDS, _DRIVEN_NUMBERS // (_DRIVEN_LEAST * size))
    if rounds <= around.rounds:
        return None
    runs = min(_DRIVEN_RUNS, _DRIVEN_NUMBERS // (rounds * size))
    full = replace(setup.everyone, seed=setup.seed + 2)
    for words, length in _ENDS:
        found = held_by_claim(Sampled(setup=full, around=_driven_around(full, around, rounds, runs, length)))
        if found.passed is False:
            return replace(found, witness=f"{found.witness}; all other vectors are {words} in all rounds")
    return None


def _driven_around(setup: HookSetup, around: Surroundings, rounds: int, runs: int, length: float) -> Surroundings:
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


_LONGEST_RUNS, _LONGEST_LEAST = 32, 8
"""Rows that are moved at the same time, at most and at least."""
_LONGEST_NUMBERS = 2**19
"""Numbers of one round of all runs, at most."""
_LOT = 2
"""Samples of a lot of independent coins, of which the first is the unit."""
_STEPS = 10
_FIRST, _FASTER, _SLOWER = 0.3, 1.6, 0.4
"""The first step, as a share of the row's length, and factors after a step that helped and one that did not."""
_HELPED = 1.02
"""Factor by which rows must have moved a release further than those that they began with."""


def longest_check(sampled: Sampled) -> CheckResult | None:
    """Return a check with rows turned so that they move the release further; None if none moves it further.

    Args:
        sampled: the runs of the claim, which show a law where none is published.
    """
    holders = sorted(set(sampled.around.holders.tolist()))
    setup, rows_at_once = _present(sampled.setup, holders)
    plan = setup.plan
    runs = min(_LONGEST_RUNS, _LONGEST_NUMBERS // (rows_at_once * plan.layout.dim))
    if runs < _LONGEST_LEAST:
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
    return replace(found, witness=f"{found.witness}, found by gradient ascent on the change of the release")


def _present(setup: HookSetup, holders: list[int]) -> tuple[HookSetup, int]:
    """The same hooks with all clients and the unit's sample present, where coins decide, and the rows of a round."""
    plan = setup.everyone.plan
    rows = plan.clients
    if setup.claim.unit is Unit.SAMPLE and isinstance(plan.lot, Poisson):
        plan = replace(plan, lot=DrawAll(plan.lot, count=_LOT))
    elif setup.claim.unit is Unit.SAMPLE:
        rows = max(rows, sum(plan.sizes[holder] for holder in holders))
    return replace(setup, plan=plan), rows


def _longest(given: HookSetup, around: Surroundings) -> Tensor | None:
    """Rows ``(R, d)`` of the lengths of the first ones that move their release further; None where none does."""
    # A copy: what hooks keep of rows with slopes must not reach other runs.
    setup = replace(given, protection=copy.deepcopy(given.protection))
    base = setup.released(around, ZERO)[:, 0]

    def moved(rows: Tensor) -> tuple[Tensor, Tensor]:
        """The logarithm of the move of each row ``(R,)``, and its slope ``(R, d)``."""
        leaf = rows.detach().requires_grad_(True)
        move = setup.released(replace(around, units=leaf.unsqueeze(1)), PRESENT)[:, 0] - base
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


_FOLLOWED_RUNS, _FOLLOWED_LEAST = 192, 96
"""Runs with rows of all kinds together: at most, and at least."""
_FOLLOWED_ROUNDS, _FOLLOWED_FEWEST = 24, 3
"""Rounds at most, and at least: the first one follows nothing."""
_FOLLOWED_NUMBERS = 2**20
"""Numbers of one round of all runs, at most."""
_FOLLOWED_LENGTH = 100.0
"""Length of rows in clip norms: every clip shortens them."""
_SHARE = 0.1
"""Share of the weights that have moved most, or least."""
_LEFT = 0.05
"""Share of a row's move that a later release may show."""
_FOLLOWED_ERRORS = 6.0
"""Standard errors from which the mean of noise is not zero."""
_FOLLOWED_WORDS = (
    "vectors along the last aggregate",
    "vectors opposite to the last aggregate",
    "vectors along the sum of all earlier aggregates",
    "vectors in the tenth of the weights that have changed most",
    "vectors in the tenth of the weights that have changed least",
)


def followed_check(sampled: Sampled) -> CheckResult | None:
    """Return the check; None if it does not apply. The check does not apply if neither a law nor the claim says that
    noise is Gaussian, or if a row also affects later releases, as under momentum, because rounds are then not separate
    releases.
    """
    setup, around = sampled.setup, sampled.around
    claim, plan = setup.claim, setup.plan
    rounds = min(claim.rounds, plan.rounds, _FOLLOWED_ROUNDS)
    runs = min(_FOLLOWED_RUNS, _FOLLOWED_NUMBERS // (plan.clients * plan.layout.dim))
    if sampled.laws is None and not states_gaussian(claim):
        return None
    if sampled.step or claim.unit is Unit.SAMPLE or claim.delta == 0:
        return None
    if rounds < _FOLLOWED_FEWEST or runs < _FOLLOWED_LEAST or _remembers(sampled):
        return None
    rate, steps = rate_of(claim, plan, setup.protection), steps_of(claim, plan, setup.protection)
    full, kinds = setup.everyone, torch.arange(runs) % len(_FOLLOWED_WORDS)
    silent = around.alone(torch.zeros(runs, rounds, plan.layout.dim), around.holders[:1])
    without = full.run(silent, ZERO, data=False)
    # A unit moves a sum by little, so that rows which follow the runs without it follow those with it.
    units = _followed_rows(kinds, torch.stack(list(without.aggregates), dim=1), setup.length, setup.seed)
    following = replace(silent, units=units)
    noise = without.releases(claim, silent.holders)
    moves, towards = full.released(following, PRESENT, data=False) - noise, following.directions
    along, moved = (noise * towards).sum(-1)[:, 1:], (moves * towards).sum(-1)[:, 1:]
    ratios = [
        _followed_ratio(along[kinds == kind], moved[kinds == kind], words) for kind, words in enumerate(_FOLLOWED_WORDS)
    ]
    known = [one for one in ratios if one is not None]
    if len(known) < len(ratios):
        return None
    worst = max(known, key=lambda one: one.each)
    result = hold(worst, claim, plan, rate, steps)
    words = (
        f"{worst.direction.words}, which change the release of each of {worst.rounds} rounds by at least "
        f"{worst.each:.4g} standard deviations of its noise"
    )
    return sampled.seen.named(replace(result, name=FOLLOWED, witness=words, detects=None))


def _remembers(sampled: Sampled) -> bool:
    """Whether the row of a round moves later releases too, on average over all runs."""
    # (round of the row, round of the release)
    along = torch.einsum("rtd,rsd->rts", sampled.around.directions, sampled.moved)
    mean, error = along.mean(0), along.std(0) / len(along) ** 0.5
    # A unit changes what noise later rounds have, where that depends on releases: on average by nothing.
    return bool((mean.triu(1).abs() > _LEFT * mean.diagonal().abs().max() + _FOLLOWED_ERRORS * error).any())


def _followed_rows(kinds: Tensor, released: Tensor, clip_norm: float, seed: int) -> Tensor:
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
    followed: Tensor = _FOLLOWED_LENGTH * clip_norm * rows / lengths
    return followed.float()


def _followed_ratio(noise: Tensor, moved: Tensor, words: str) -> Ratio | None:
    """The ratio of shift and noise along the rows of one kind, ``(runs, rounds)`` each; None where releases without the
    unit follow earlier ones too, or have no noise.
    """
    runs, rounds = noise.shape
    variance = noise.square().mean(0)
    if not bool((variance > 0).all()):
        return None
    # What is left of earlier releases, as under momentum, is neither shift nor noise.
    echo = noise.mean(0) / (variance / runs).sqrt()
    if float(echo.abs().max()) > _FOLLOWED_ERRORS:
        return None
    each, true, error = bound_of(moved, noise.T @ noise / runs, float(runs))
    return Ratio(each=each, rounds=rounds, direction=Direction(values=noise[0], words=words), true=true, error=error)


_PILOT, _STATE_NUMBERS = 64, 2**23
"""Runs of the first round that show which numbers count, and numbers of all rounds of the runs that are measured."""
_STATE_FEWEST, _MOST = 32, 256
"""Runs that are measured."""
_ADDITIVE = 1e-3
"""Share by which a shift may differ under other noise."""
_STATE_ERRORS, _CORRELATED = 6.0, 6.0
"""Standard errors by which the ratio is lowered, and from which noise of two rounds counts as dependent."""
_STATE_LENGTH = 10.0
"""Length of the unit's row in clip norms."""
_STATE_MARGIN = 1.2
"""Factor by which a pilot must exceed the claim's shift over noise before it is measured."""
_ROWS = 4
"""Rows of an array beside masked words, at most."""


class _Numbers(NamedTuple):
    """Shifts and noise ``(R, T, channels)`` along the shifts, in which rounds the unit counts ``(R, T)``, and names."""

    shift: Tensor
    noise: Tensor
    used: Tensor
    names: tuple[str, ...]


def together_check(sampled: Sampled) -> CheckResult | None:
    """Return a check of a release together with the public state and with arrays of the release's length that are sent
    with it; None if none of these has additive noise.

    A few runs of the first round show what could break the claim. It is then measured in fresh runs of all rounds.
    """
    claim = sampled.setup.claim
    if claim.observer.rank < GLOBAL_MODELS.rank or claim.observer.rank == SHUFFLED.rank:
        return None
    if len(_received(sampled, sampled.runs[0])) < 2:
        return None
    setup, _ = _present(sampled.setup, sorted(set(sampled.around.holders.tolist())))
    pilot = _numbers(replace(sampled, setup=setup, around=_state_around(sampled.around, 1, _PILOT, setup.length)))
    if pilot is None:
        return None
    try:
        if sampled.laws is None:
            check_stated(claim)
        found, seen = _state_held(sampled, pilot, _state_ratio(pilot, 0.0) / _STATE_MARGIN, claim.rounds)
        if not found.passed:
            other = replace(sampled, setup=replace(setup, seed=setup.seed + 1))
            measured = _numbers(replace(other, around=_all_rounds(sampled)))
            if measured is None:
                return None
            found, seen = _state_held(sampled, measured, _state_ratio(measured, _STATE_ERRORS), measured.shift.shape[1])
    except NotCheckable:
        return None
    words = f"one {claim.unit} changes {_together(pilot)} by {seen:.4g} standard deviations per round"
    return replace(found, name=TOGETHER, witness=f"{words}: {found.witness}", detects=None)


def _state_held(sampled: Sampled, numbers: _Numbers, each: float, rounds: int) -> tuple[CheckResult, float]:
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
    rounds = min(setup.claim.rounds, max(1, _STATE_NUMBERS // (_STATE_FEWEST * size)))
    runs = min(_MOST, max(_STATE_FEWEST, _STATE_NUMBERS // (rounds * size)))
    return _state_around(sampled.around, rounds, runs, setup.length)


def _state_around(around: Surroundings, rounds: int, runs: int, clip_norm: float) -> Surroundings:
    """Runs in which all others hold zeros, and the unit a long row along one coordinate, the same in all rounds."""
    dim, places = around.others.shape[-1], torch.arange(runs)
    units = torch.zeros(runs, 1, dim)
    # Squares of a row are the longest where it has one entry alone. Coordinates are spread over all weights.
    units[places, 0, (places * 7919) % dim] = clip_norm * _STATE_LENGTH
    return around.alone(units.expand(-1, rounds, -1), around.holders)


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
    release = run.releases(sampled.setup.claim, sampled.around.holders)
    return {"": release, **_side_arrays(sampled, run), **_states(run, sampled.around.replicas)}


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


def _state_ratio(numbers: _Numbers, errors: float) -> float:
    """The shift over the noise of all channels of a round, lowered by so many standard errors; 0 where rounds depend
    on each other, so that noise of one may cancel that of another.
    """
    shift, noise, used = numbers.shift, numbers.noise, numbers.used
    if used.sum() < _STATE_FEWEST or (errors and _dependent(noise)):
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


def _side_arrays(sampled: Sampled, run: HookRun) -> Mapping[str, Tensor]:
    """Return the arrays of the release's length that the adversary receives with it, ``(R, T, d)`` by name."""
    claim, around = sampled.setup.claim, sampled.around
    uploads = claim.observer.rank >= UPLOADS.rank
    masked = claim.observer.sees_masked_words and claim.observer.rank < SHUFFLED.rank
    if not (uploads or masked):
        return {}
    messages, dim = run.reports if uploads else run.received, sampled.setup.plan.layout.dim
    replicas, found = torch.arange(around.replicas), dict[str, Tensor]()
    for name, array in messages[0].side.items():
        if name in messages[0].unsent or array.ndim != 3 or array.shape[-1] != dim or not array.is_floating_point():
            continue
        rounds = [message.side[name].double() for message in messages]
        if uploads:
            places = torch.tensor([(messages[0].senders or ()).index(one) for one in around.holders.tolist()])
            found[name] = torch.stack([one[replicas, places] for one in rounds], dim=1)
        else:
            rows = range(min(array.shape[1], _ROWS))
            found |= {f"{name} row {row}": torch.stack([one[:, row] for one in rounds], dim=1) for row in rows}
    return found
