"""Hold how far a unit moves a release, among chosen rows of all others and with chosen samples, against the claim.

Robust aggregation and filters depend on how the others' rows lie: one row may move a choice from one group of clients
to another, or remove rows that resemble it. Weights and factors may depend on a client's samples. Such inputs are rare
in data that is drawn, but the claim holds for them too.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from ...audit.check_result import CheckResult
from ...audit.claim import Unit
from ...fl.partitions.sampling import Full, Poisson, Sampling
from ...fl.replay import DrawAll
from ...fl.task import Task
from ..law_check import NotCheckable
from ..measured_checks import Direction, Ratio, check_stated, hold, rate_of, steps_of
from .hook_run import HookSetup
from .sampled_checks import Sampled, sampled_checks
from .surroundings import CONSTELLATIONS, among_samples, in_constellations

_RUNS, _LEAST = 8 * len(CONSTELLATIONS), 2 * len(CONSTELLATIONS)
"""Runs of the pilot: at most, and at least."""
_SAMPLES = 12
"""Samples of a lot of chosen rows, at most."""
_ROWS = 2**23
"""Numbers of the lots of all runs of chosen samples, at most."""
_NUMBERS = 2**20
"""Numbers of one round of all runs of the pilot, at most."""
_CONFIRMED, _FEWEST = 2**23, 32
"""Numbers of all rounds of all runs that confirm a large shift, at most, and runs at least."""
_MARGIN = 1.2
"""Factor by which a pilot must exceed the claim's shift over noise before it is confirmed."""


@dataclass(frozen=True, kw_only=True)
class DrawFirst(DrawAll):
    """A sampling rule that draws the first ``count`` items, but publishes the numbers of the rule that it replaces."""

    count: int

    def draw(self, rng: np.random.Generator, replicas: int, n: int, turn: int = 0) -> Tensor:
        return (torch.arange(n) < self.count).expand(replicas, -1).clone()


@dataclass(frozen=True, kw_only=True)
class _Shift:
    """The shift over noise that a pilot shows in some of its runs: of one constellation, or of one holder."""

    ratio: float
    chosen: tuple[int, ...]
    holders: tuple[int, ...]
    words: str


def chosen_check(setup: HookSetup, holders: list[int], *, most: int = _RUNS) -> CheckResult | None:
    """Return the check of chosen rows and samples; None where it does not apply, or a pilot shows nothing.

    With a law every run is compared with it. Without one, what a pilot shows is measured again in fresh runs, so that
    the choice of the largest of many shifts costs no false alarms.

    Args:
        holders: the clients that hold the unit in turn; the first two hold samples that are hardly drawn by chance.
        most: runs at most.
    """
    plan = setup.plan
    if setup.claim.unit is Unit.SAMPLE:
        return _of_samples(setup, holders[0])
    runs = min(_RUNS, most, _NUMBERS // (plan.clients * plan.layout.dim))
    if runs < _LEAST:
        return None
    # Everyone takes part, so that the constellation is complete.
    full = replace(plan, cohort=DrawAll(plan.cohort))
    crowded = replace(setup, plan=full, task=with_one_label(setup.task, holders[:2]))
    pilot = _sampled(crowded, tuple(range(len(CONSTELLATIONS))), tuple(holders), rounds=1, runs=runs)
    try:
        if pilot.laws is not None:
            found = next(sampled_checks(pilot))
            return replace(found, witness=f"{found.witness}, among chosen rows and samples")
        check_stated(setup.claim)
        rate = rate_of(setup.claim, plan, setup.protection)
        steps = steps_of(setup.claim, plan, setup.protection)
        largest = max(_shifts(pilot), key=lambda one: one.ratio)
        direction = Direction(values=pilot.around.units[0, 0], words=largest.words)
        seen = Ratio(each=largest.ratio / _MARGIN, rounds=setup.claim.rounds, direction=direction)
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
        lot = DrawFirst(rule=lot, count=samples)
    elif not isinstance(lot, Full):
        return None
    runs = min(_RUNS, _ROWS // (max(samples, plan.clients) * plan.layout.dim))
    if samples < 2 or runs < _LEAST:
        return None
    crowded = replace(setup, plan=replace(plan, cohort=DrawAll(plan.cohort), lot=lot))
    around = crowded.surroundings((holder,), rounds=1, runs=runs)
    chosen = torch.arange(runs) % len(CONSTELLATIONS)
    near = among_samples(around, chosen, samples=samples, clip_norm=setup.length, seed=setup.seed)
    pilot = Sampled(setup=crowded, around=near)
    if pilot.laws is None:
        return None
    found = next(sampled_checks(pilot))
    return replace(found, witness=f"{found.witness}, among chosen samples")


def _confirmed(setup: HookSetup, shift: _Shift, most: int) -> CheckResult | None:
    plan, rounds = setup.plan, setup.claim.rounds
    size = plan.clients * plan.layout.dim
    rounds = max(1, min(rounds, _CONFIRMED // (_FEWEST * size)))
    runs = min(256, max(_FEWEST, _CONFIRMED // (rounds * size)), max(_FEWEST, most))
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
    setup, around = pilot.setup, pilot.around
    again = setup.run(around, pilot.base, noise=1).releases(setup.claim, around.holders)[0]
    scattered, moved = (again - pilot.releases[1])[:, 0] / 2**0.5, pilot.moved[:, 0]
    holders = tuple(dict.fromkeys(around.holders.tolist()))
    runs = len(around.holders)
    numbers = (torch.arange(runs) // len(holders)) % len(CONSTELLATIONS)
    for towards in (around.units[:, 0].double(), around.others.sum(1).double()):
        unit = towards / torch.linalg.vector_norm(towards, dim=-1, keepdim=True).clamp_min(1e-300)
        noise = float((scattered * unit).sum(-1).square().mean().sqrt())
        if noise == 0:
            continue
        shift = (moved * unit).sum(-1) / noise
        for number, words in enumerate(CONSTELLATIONS):
            if bool((here := numbers == number).any()):
                yield _Shift(ratio=_mean(shift[here]), chosen=(number,), holders=holders, words=f"others hold {words}")
        everything = tuple(range(len(CONSTELLATIONS)))
        for client in holders:
            words = f"client {client} holds the unit, and the first clients samples of one label"
            here = around.holders == client
            yield _Shift(ratio=_mean(shift[here]), chosen=everything, holders=(client,), words=words)


def _mean(shift: Tensor) -> float:
    return abs(float(shift.mean()))


def with_one_label(task: Task, clients: list[int]) -> Task:
    """Return the task in which the first of the clients holds one sample many times, and the second one label."""
    images, labels = task.images.clone(), task.labels.clone()
    for turn, client in enumerate(clients):
        part = task.parts[client]
        if not len(part):
            continue
        labels[part] = labels[part[0]].clone()
        if turn == 0:
            images[part] = images[part[0]].clone()
    return replace(task, images=images, labels=labels)
