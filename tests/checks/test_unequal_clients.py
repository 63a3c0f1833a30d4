"""Clients of unequal sizes: a fault of a single client is found, be it the largest, the smallest or any other."""

import math
from dataclasses import dataclass, replace

import pytest
import torch
from fedassay.audit.claim import Adjacency, Claim, Unit
from fedassay.audit.observer import AGGREGATE, UPLOADS
from fedassay.checks.measured import measured_checks
from fedassay.checks.neighbours import replay_setup
from fedassay.checks.replay import check_claim, moves_of_all
from fedassay.defenses.sample_level.dp_sgd import DPSGD, DPSGDProtection
from fedassay.fl.laws import GaussianLaw, clip
from fedassay.fl.protection import Protection
from fedassay.fl.sampling import Poisson
from fedassay.fl.streams import normal
from toy_federation import toy_plan, toy_task

SIZES = (5, 6, 4, 9, 7, 5, 6, 4, 5, 3, 2, 8)
FAULTY = {"no client": None, "the largest": 3, "the smallest": 10, "the ninth": 8}
NOISE = 2.0


@pytest.fixture(scope="module")
def task():
    return toy_task(SIZES, side=4, inert=1)


@dataclass(frozen=True, kw_only=True)
class Weighted(Protection):
    """Clipped reports that carry noise, or clipped reports whose sum, weighted by their clients' sizes, does."""

    observer: object
    hidden: bool = False
    too_heavy: int | None = None
    too_quiet: int | None = None

    def report(self, updates, context, state, rng):
        sizes = context.plan.sizes
        weights = [3.0 if k == self.too_heavy else sizes[k] / max(sizes) for k in updates.senders]
        rows = clip(updates.values, 1.0)
        if self.observer == AGGREGATE:
            return updates.with_values(torch.tensor(weights)[:, None] * rows)
        noise = torch.tensor([NOISE / (2 if k == self.too_quiet else 1) for k in updates.senders])
        return updates.with_values(rows + noise[:, None] * normal(rng, tuple(rows.shape)))

    def aggregate(self, received, context, state, rng):
        total = received.values.sum(1)
        return total + NOISE * normal(rng, tuple(total.shape)) if self.observer == AGGREGATE else total

    def law(self, observer, plan, client):
        if self.hidden or observer.rank != self.observer.rank:
            return None
        return GaussianLaw(clip_norm=1.0, scale=1.0, noise_std=NOISE)


def claim_of(observer, rounds):
    reports = observer == UPLOADS
    return Claim.stated(
        mu=(2 if reports else 1) * math.sqrt(rounds) / NOISE,
        delta=1e-5,
        unit=Unit.REPORT if reports else Unit.CLIENT,
        adjacency=Adjacency.REPLACE_ONE if reports else Adjacency.ZERO_OUT,
        observer=observer,
        rounds=rounds,
    )


FAULTS = [
    *((AGGREGATE, "too_heavy", place) for place in FAULTY),
    *((UPLOADS, "too_quiet", place) for place in FAULTY),
]


@pytest.mark.simulations
@pytest.mark.parametrize(("observer", "fault", "place"), FAULTS)
def test_the_law_shows_too_much_weight_or_too_little_noise_of_one_client(task, observer, fault, place):
    plan = toy_plan(task, rounds=2)
    protection = Weighted(observer=observer, **{fault: FAULTY[place]})
    found = check_claim(task, plan, protection, claim_of(observer, plan.rounds))
    failed = {one.name for one in found if one.passed is False}
    assert bool(failed) == (FAULTY[place] is not None), failed


@pytest.mark.simulations
@pytest.mark.parametrize(("observer", "fault", "place"), FAULTS)
def test_without_a_law_too_much_weight_or_too_little_noise_of_one_client_is_measured(observer, fault, place):
    # Enough weights for a few draws to show the size of the noise.
    task = toy_task(SIZES, side=8, classes=10, inert=1)
    plan = toy_plan(task, rounds=2)
    protection = Weighted(observer=observer, hidden=True, **{fault: FAULTY[place]})
    (found,) = measured_checks(replay_setup(task, plan, protection, claim_of(observer, plan.rounds)), plan)
    assert found.passed == (FAULTY[place] is None), found.words


@dataclass(frozen=True, kw_only=True)
class OneSampleUnclipped(DPSGDProtection):
    """One place of each lot, or one sample of one client, passes no clip."""

    place: int
    size: int

    def total(self, gradients, present):
        if gradients.shape[1] != self.size:
            return super().total(gradients, present)
        kept = torch.arange(self.size) != self.place
        return (
            super().total(gradients[:, kept], present[:, kept])
            + gradients[:, self.place] * present[:, self.place, None]
        )


@pytest.mark.parametrize(("place", "size"), [(0, 9), (3, 9), (8, 9), (1, 3)])
def test_an_unclipped_place_of_the_lot_is_found_at_any_client(task, place, size):
    plan = toy_plan(task, rounds=2, lot=Poisson(0.5))
    prepared = DPSGD().prepare(plan)
    setup = replay_setup(task, plan, prepared.protection, prepared.claims[0])
    assert all(one.passed for one in moves_of_all(setup))
    broken = OneSampleUnclipped(**vars(prepared.protection), place=place, size=size)
    assert any(one.passed is False for one in moves_of_all(replace(setup, protection=broken)))
