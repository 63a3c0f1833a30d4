"""The epsilon of additive noise of any shape at delta 0: known answers, bugs, and noise it cannot judge."""

import math
from dataclasses import dataclass, replace

import pytest
import torch
from fedassay.audit.check import PURE
from fedassay.audit.claim import Claim
from fedassay.audit.observer import AGGREGATE, UPLOADS
from fedassay.checks.neighbours import replay_setup
from fedassay.checks.pure import pure_checks
from fedassay.fl.algorithms import FedSGD
from fedassay.fl.protection import Protection
from fedassay.fl.sampling import Full
from fedassay.suites.conformance.toys import toy_plan
from toy_federation import toy_task

ROUNDS, EPSILON = 8, 4.0
TASK = toy_task((5, 4, 6), side=10, inert=1)
PLAN = toy_plan(TASK, rounds=ROUNDS, algorithm=FedSGD(learning_rate=1.0), lot=Full(), cohort=Full())


@dataclass(frozen=True, kw_only=True)
class Laplace(Protection):
    """Rows of L1 norm 1 at most, and Laplace noise of ``scale``."""

    scale: float
    norm: float = 1.0
    central: bool = False

    def bounded(self, rows):
        return rows / torch.linalg.vector_norm(rows, ord=self.norm, dim=-1, keepdim=True).clamp_min(1.0)

    def drawn(self, shape, rng):
        return rng.laplace(scale=self.scale, size=shape)

    def report(self, updates, context, state, rng):
        rows = self.bounded(updates.values).double()
        return updates.with_values(
            rows if self.central else rows + torch.from_numpy(self.drawn(tuple(rows.shape), rng))
        )

    def aggregate(self, received, context, state, rng):
        total = received.values.sum(1)
        return total + torch.from_numpy(self.drawn(tuple(total.shape), rng)) if self.central else total


class UnequalScales(Laplace):
    """Every other number has ten times the noise."""

    def drawn(self, shape, rng):
        noise = super().drawn(shape, rng)
        noise[..., ::2] *= 10
        return noise


class CommonFactor(Laplace):
    """All numbers of a vector have one random factor."""

    def drawn(self, shape, rng):
        return super().drawn(shape, rng) * rng.choice([0.2, 1.0], size=(*shape[:-1], 1))


class OneLength(Laplace):
    """A uniform direction and a length from a gamma distribution: correct for rows of L2 norm 1 at most."""

    def drawn(self, shape, rng):
        noise = rng.normal(size=shape)
        return noise / ((noise**2).sum(-1, keepdims=True)) ** 0.5 * rng.gamma(shape[-1], self.scale, (*shape[:-1], 1))


@dataclass(frozen=True, kw_only=True)
class Half(Laplace):
    """Sends a random half of the numbers, doubled."""

    def report(self, updates, context, state, rng):
        sent = super().report(updates, context, state, rng)
        return sent.with_values(torch.where(torch.from_numpy(rng.random(sent.values.shape) < 0.5), 2 * sent.values, 0))


class Largest(Laplace):
    """Sends noised numbers that are far from 0, which depends on them."""

    def report(self, updates, context, state, rng):
        sent = super().report(updates, context, state, rng)
        return sent.with_values(torch.where(sent.values.abs() > self.scale, sent.values, 0))


class Signs(Laplace):
    """Randomised response: nothing is added."""

    def report(self, updates, context, state, rng):
        signs = torch.where(updates.values >= 0, 1.0, -1.0)
        kept = torch.from_numpy(rng.random(tuple(signs.shape))) < 0.9
        return updates.with_values(torch.where(kept, signs, -signs))


def found(protection, *, unit="report", adjacency="replace_one", observer=UPLOADS, epsilon=EPSILON, delta=0.0):
    claim = Claim.stated(epsilon, delta, unit=unit, adjacency=adjacency, observer=observer, rounds=ROUNDS)
    claim = replace(claim, parameters={"clip_norm": 1.0, "rate": 1.0})
    return pure_checks(replay_setup(TASK, PLAN, protection, claim), PLAN)


@pytest.mark.parametrize(
    ("protection", "changes"),
    [
        (Laplace(scale=2 * ROUNDS / EPSILON), {}),
        (
            Laplace(scale=ROUNDS / EPSILON, central=True),
            {"unit": "client", "adjacency": "zero_out", "observer": AGGREGATE},
        ),
    ],
)
def test_laplace_noise_is_measured_nearly_as_it_is(protection, changes):
    (result,) = found(protection, **changes)
    assert result.name == PURE
    assert result.passed
    assert 0.6 * EPSILON < result.measured < EPSILON < result.detects < 2 * EPSILON


def test_numbers_that_are_left_out_at_random_are_measured_as_the_others_are():
    (result,) = found(Half(scale=2 * ROUNDS / EPSILON))
    assert result.passed
    # Half of the loss of all numbers.
    assert 0.3 * EPSILON < result.measured < 0.6 * EPSILON


@pytest.mark.simulations
@pytest.mark.parametrize(
    "protection",
    [
        Half(scale=2 * ROUNDS / EPSILON, norm=2.0),
        Laplace(scale=2 * ROUNDS / EPSILON, norm=2.0),
        Laplace(scale=ROUNDS / EPSILON),
        Laplace(scale=1.0),
    ],
    ids=[
        "the L2 norm of a random half",
        "the L2 norm is bounded instead of L1",
        "half of the noise",
        "the noise of one round for all",
    ],
)
def test_too_little_noise_for_the_l1_norm_is_found(protection):
    (result,) = found(protection)
    assert result.passed is False
    assert "in the L1 norm" in result.witness


class Empty(Laplace):
    """Sends nothing."""

    def report(self, updates, context, state, rng):
        return updates.with_values(torch.zeros_like(updates.values))


@pytest.mark.parametrize(
    ("protection", "words"),
    [
        (Empty(scale=4.0), "neither a change by a unit nor noise"),
        (UnequalScales(scale=4.0), "weights is dependent or of unequal size"),
        (CommonFactor(scale=4.0), "vectors is dependent or of unequal size"),
        (OneLength(scale=4.0, norm=2.0), "vectors is dependent or of unequal size"),
        (Largest(scale=4.0), "is not a vector plus independent noise"),
        (Signs(scale=4.0), "is not a vector plus independent noise"),
    ],
)
def test_noise_without_independent_numbers_of_one_distribution_is_not_judged(protection, words):
    (result,) = found(protection)
    assert result.passed is None
    assert words in result.witness


def test_a_claim_with_a_delta_is_for_other_checks():
    assert found(Laplace(scale=4.0), delta=1e-5) == ()


def test_the_bound_is_that_of_the_laplace_tail():
    """P(z > t) / P(z > t + h) is e^(h / b), whatever t: the loss of a shift is the shift over b."""
    from fedassay.checks.pure import _of_tails

    rng = torch.distributions.Laplace(0.0, 2.0)
    sizes = rng.sample((400_000,)).abs().double().numpy()
    least, seen, slope = _of_tails(sizes, torch.full((2, 5), 0.01).double().numpy(), 0.5, 0.02)
    assert slope == pytest.approx(0.5, rel=0.02)
    assert 0.9 * 10 * 0.01 / 2 < least < 10 * 0.01 / 2 * 1.01
    assert seen == pytest.approx(10 * 0.01 / 2, rel=0.02)
    assert math.isfinite(least)
