"""The secure-sum family: exact sums under drop-out, what the server sees, noise, estimates, claims and refusals."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from fedassay.audit.claim import Adjacency, Unit
from fedassay.audit.curve import GaussianCurve
from fedassay.audit.observer import AGGREGATE, FINAL_MODEL, GLOBAL_MODELS, UPLOADS
from fedassay.defenses.secure.binomial import Binomial
from fedassay.defenses.secure.distributed_discrete_gaussian import DistributedDiscreteGaussian
from fedassay.defenses.secure.distributed_gaussian import LEAST_SHARE, DistributedGaussian
from fedassay.defenses.secure.poisson_binomial import PoissonBinomial
from fedassay.defenses.secure.secure_sum import (
    SERVER,
    SecureSumProtection,
    expected_survivors,
    survivors_of,
)
from fedassay.defenses.secure.skellam import Skellam
from fedassay.fl.laws import clip
from fedassay.fl.message import Message
from fedassay.fl.models.network import Network
from fedassay.fl.protection import Context
from fedassay.fl.sampling import FixedSize, Poisson
from fedassay.fl.streams import normal
from scipy import stats
from toy_federation import flat_plan

SHARES = [DistributedGaussian, DistributedDiscreteGaussian, Skellam, Binomial]
FAMILY = [*SHARES, PoissonBinomial]
CLIENTS = 100


class Silent(SecureSumProtection):
    """No noise: what is left is the sum alone."""

    def noise_share(self, shares, shape, rng):
        return np.zeros(shape, dtype=np.int64)


@pytest.fixture(scope="module")
def plan(toy_task, toy_plan):
    return toy_plan(toy_task((1,) * CLIENTS, inert=1))


def context(plan, replicas=1):
    return Context(plan=plan, round=0, replicas=replicas, senders=tuple(range(plan.clients)))


def updates(plan, replicas=1, *, scale=1.0, invited=None):
    values = scale * normal(np.random.default_rng(9), (replicas, plan.clients, plan.layout.dim))
    present = torch.ones(values.shape[:2], dtype=torch.bool) if invited is None else invited
    sent = Message(values=values, present=present, senders=tuple(range(plan.clients)))
    return sent.with_values(values)


def silent(plan, **fields):
    defense = DistributedGaussian(**({"dropout": 0.0} | fields))
    return Silent(**vars(defense.protected(plan, defense.sized(plan))))


def noisy(part, plan, **fields):
    return part(**fields).prepare(plan).protection


@pytest.mark.parametrize(("dropout", "left"), [(0.0, 100), (0.01, 99), (0.3, 70)])
def test_the_secure_sum_is_the_plain_sum_exactly(dropout, left, plan):
    """In the quantised domain: rows that are whole numbers of steps, whose rounding has no choice."""
    protection = silent(plan, dropout=dropout)
    step = protection.sized.grid.step
    steps = torch.from_numpy(np.random.default_rng(1).integers(-9, 10, (2, CLIENTS, plan.layout.dim)))
    sent = replace(updates(plan, 2), values=(steps * step).double())
    reports = protection.report(sent, context(plan, 2), {}, np.random.default_rng(2))
    received = protection.channel(reports, context(plan, 2), {}, np.random.default_rng(3))
    assert reports.present.sum(1).tolist() == [left, left]
    plain = (steps * reports.present.unsqueeze(-1)).sum(1)
    assert torch.equal(protection.sized.grid.centred(received.values[:, 0]), plain)
    mean = protection.aggregate(received, context(plan, 2), {}, np.random.default_rng(4))
    torch.testing.assert_close(mean, (plain * step / left).float())


@pytest.mark.parametrize("part", FAMILY)
def test_reports_draw_equally_much_whatever_the_data_are(part, plan):
    protection, ends = noisy(part, plan), []
    for scale in (0.0, 9.0):
        rng = np.random.Generator(np.random.Philox(key=4))
        protection.report(updates(plan, scale=scale), context(plan), {}, rng)
        ends.append(str(rng.bit_generator.state))
    assert ends[0] == ends[1]


def test_a_client_that_rounds_more_than_once_shifts_no_other_clients_draws(plan):
    """All coordinates half a step from the grid: about every sixth row is short enough at the first try."""
    plain, dim = noisy(DistributedDiscreteGaussian, plan), plan.layout.dim
    bound = math.sqrt(dim / 2 - math.sqrt(dim) / 2)
    protection = replace(plain, sized=replace(plain.sized, norm_bound=bound), clip_norm=1e9)
    rows = torch.full((1, CLIENTS, dim), protection.sized.grid.step / 2, dtype=torch.float64)
    calm = rows.clone()
    calm[:, 0] = 0.0
    found = [
        protection.encoded(replace(updates(plan), values=values), np.random.default_rng(5)) for values in (rows, calm)
    ]
    assert not torch.equal(found[0][:, 0], found[1][:, 0])
    assert torch.equal(found[0][:, 1:], found[1][:, 1:])


def test_two_replicas_lose_different_clients_and_the_first_of_the_cohort_where_configured(plan):
    random, first = (
        silent(plan, dropout=0.3, drops=drops).report(updates(plan, 2), context(plan, 2), {}, np.random.default_rng(0))
        for drops in ("random", "first")
    )
    assert not torch.equal(*random.present)
    assert torch.equal(*first.present)
    assert first.present[0].tolist() == [False] * 30 + [True] * 70


def test_only_the_invited_drop_out(plan):
    invited = torch.zeros(1, CLIENTS, dtype=torch.bool)
    invited[:, 40:60] = True
    reports = silent(plan, dropout=0.3).report(
        updates(plan, invited=invited), context(plan), {}, np.random.default_rng(0)
    )
    assert int(reports.present.sum()) == 14
    assert not (reports.present & ~invited).any()


def test_a_round_to_which_no_client_came_releases_nothing(plan):
    invited = torch.zeros(1, CLIENTS, dtype=torch.bool)
    protection, rng = noisy(Skellam, plan), np.random.default_rng(0)
    reports = protection.report(updates(plan, invited=invited), context(plan), {}, rng)
    received = protection.channel(reports, context(plan), {}, rng)
    assert not received.present.any()
    assert not protection.aggregate(received, context(plan), {}, rng).any()


@pytest.mark.simulations
@pytest.mark.parametrize("part", SHARES)
def test_smaller_cohorts_bring_larger_shares_and_the_same_noise(part, plan, has_std):
    """Replicas of 100 and of 6 invited, of whom 50 and 3 stay, in one batch."""
    invited = torch.ones(80, CLIENTS, dtype=torch.bool)
    invited[40:, 6:] = False
    protection, rng = noisy(part, plan), np.random.default_rng(11)
    reports = protection.report(updates(plan, 80, scale=0.0, invited=invited), context(plan, 80), {}, rng)
    sums = protection.sized.grid.centred(protection.channel(reports, context(plan, 80), {}, rng).values)
    assert reports.present.sum(1).tolist() == [50] * 40 + [3] * 40
    assert all(has_std(part_of, protection.sized.sigma) for part_of in sums.double().split(40))


@pytest.mark.parametrize("recovered", [False, True])
def test_the_servers_view_of_one_client_is_uniform(recovered, toy_task, toy_plan):
    """40,000 words of one client, its highest 8 bits; chi-square at one in a million."""
    few = toy_plan(toy_task((1,) * 4, inert=1))
    replicas = 40_000 // few.layout.dim + 1
    protection = silent(few, dropout=0.25, drops="first", bits=16)
    reports = protection.report(updates(few, replicas, scale=9.0), context(few, replicas), {}, np.random.default_rng(5))
    words = reports.values[:, 2] - (reports.side["recovered"][:, 2] if recovered else 0)
    counts = np.bincount((protection.sized.grid.wrap(words) >> 8).flatten(), minlength=256)
    assert stats.chisquare(counts).pvalue > 1e-6
    assert reports.masked


@pytest.mark.parametrize("part", FAMILY)
def test_the_noise_of_the_sum_is_what_the_law_publishes(part, toy_task, toy_plan, has_std):
    """All updates are zero; of ten clients five stay, and their shares are the whole noise."""
    few = toy_plan(toy_task((1,) * 10, inert=1))
    protection = noisy(part, few)
    zeros = updates(few, 400, scale=0.0)
    reports = protection.report(zeros, context(few, 400), {}, np.random.default_rng(6))
    received = protection.channel(reports, context(few, 400), {}, np.random.default_rng(6))
    mean = protection.aggregate(received, context(few, 400), {}, np.random.default_rng(6))
    law = protection.law(SERVER, few, 0)
    assert reports.present.sum(1).unique().tolist() == [5]
    assert has_std(mean, law.noise_std)
    assert law.scale == 1 / 5
    assert law.noise_std == pytest.approx(protection.sized.sigma * protection.sized.grid.step / 5)


@pytest.mark.simulations
@pytest.mark.parametrize("part", FAMILY)
def test_the_estimate_has_no_bias(part, toy_task, toy_plan):
    """2000 rounds of the same ten rows: the mean of the clipped rows within five standard errors of 29 numbers."""
    few = toy_plan(toy_task((1,) * 10, inert=1))
    protection = noisy(part, few, dropout=0.0)
    rows = updates(few, scale=0.5).values.expand(2000, -1, -1)
    sent = Message(values=rows, present=torch.ones(2000, 10, dtype=torch.bool), senders=tuple(range(10)))
    rng = np.random.default_rng(7)
    received = protection.channel(protection.report(sent, context(few, 2000), {}, rng), context(few, 2000), {}, rng)
    mean = protection.aggregate(received, context(few, 2000), {}, rng).double().mean(0)
    error = protection.law(SERVER, few, 0).noise_std / math.sqrt(2000)
    torch.testing.assert_close(mean, clip(rows[0], 1.0).mean(0).double(), rtol=0, atol=5 * error)


def test_an_observer_of_the_sum_has_a_law_and_one_of_the_uploads_or_the_end_none(plan):
    protection = noisy(DistributedGaussian, plan)
    assert all(protection.law(observer, plan, 0) is None for observer in (UPLOADS, FINAL_MODEL))
    laws = {protection.law(observer, plan, 0) for observer in (SERVER, AGGREGATE, GLOBAL_MODELS)}
    assert len(laws) == 1
    assert laws.pop().rate == 0.5
    assert noisy(DistributedGaussian, plan, drops="first").law(AGGREGATE, plan, 0).rate == 1.0


@pytest.mark.parametrize("part", FAMILY)
def test_the_claim_is_one_client_set_to_zero_against_the_server(part, plan):
    (claim,) = part(epsilon=2.0).prepare(plan).claims
    assert (claim.unit, claim.adjacency, claim.observer) == (Unit.CLIENT, Adjacency.ZERO_OUT, SERVER)
    assert (claim.epsilon, claim.delta, claim.rounds, claim.dp_model) == (2.0, 1e-5, plan.rounds, "distributed")
    assert claim.parameters["survivors"] == 50
    assert claim.parameters["norm_bound"] >= claim.parameters["clip_norm"]


def test_only_the_continuous_gaussian_states_a_curve(plan):
    curves = {part: part().prepare(plan).claims[0].curve for part in FAMILY}
    noise = DistributedGaussian().prepare(plan).claims[0].parameters["noise_multiplier"]
    assert curves.pop(DistributedGaussian) == GaussianCurve(mu=math.sqrt(plan.rounds) / noise)
    assert set(curves.values()) == {None}


def test_more_drop_out_needs_larger_shares_and_the_same_sum(plan):
    for part in FAMILY:
        few, many = (part(dropout=dropout).prepare(plan).claims[0].parameters for dropout in (0.0, 0.5))
        assert few["noise_multiplier"] == pytest.approx(many["noise_multiplier"], rel=0.1)
        assert (few["survivors"], many["survivors"]) == (100, 50)


@pytest.mark.parametrize(("cohort", "expected"), [(FixedSize(10), 7.0), (FixedSize(3), 3.0), (Poisson(0.255), 18.36)])
def test_survivors_are_counted_from_the_cohort_that_the_plan_expects(cohort, expected, plan):
    assert expected_survivors(replace(plan, cohort=cohort), 0.3) == pytest.approx(expected)


def test_shares_of_clients_are_rounded_down_as_their_decimals_read():
    assert [survivors_of(n, 0.3) for n in (0, 3, 4, 10, 11)] == [0, 3, 3, 7, 8]
    assert survivors_of(100, 0.29) == 71


@pytest.mark.parametrize("part", SHARES)
@pytest.mark.parametrize(
    ("fields", "cohort", "words"),
    [
        ({}, FixedSize(1), "a secure sum must have at least 2 clients per round, got an expected cohort of 1"),
        ({}, Poisson(0.015), "expected cohort of 1.5; at this sampling rate the federation needs 134 clients"),
        ({"bits": 8, "epsilon": 0.01}, FixedSize(10), "clip norm is at least one grid step"),
    ],
)
def test_an_impossible_target_is_refused_with_the_reason(part, fields, cohort, words, plan):
    with pytest.raises(ValueError, match=words):
        part(**fields).prepare(replace(plan, cohort=cohort))


def plan_of(clients, rounds=1):
    """A plan of many clients with one record each and 31 coordinates, without a task behind it."""
    layout = Network(model="logistic", shape=(1, 3, 3), classes=3, inert=1).layout
    return flat_plan(clients, size=1, rounds=rounds, layout=layout)


@pytest.mark.parametrize(("clients", "bits", "epsilon"), [(30_000, 20, 8.0), (1000, 14, 4.0), (2000, 16, 4.0)])
def test_gaussian_shares_that_would_round_to_nothing_are_refused(clients, bits, epsilon):
    few = DistributedGaussian(bits=bits, epsilon=epsilon)
    with pytest.raises(ValueError, match=r"bits must allow .* distributed_discrete_gaussian, which has no such limit"):
        few.prepare(plan_of(clients))
    with_more = DistributedGaussian(bits=28, epsilon=epsilon).prepare(plan_of(clients)).protection.sized
    assert with_more.sigma / math.sqrt(clients / 2) >= LEAST_SHARE


def test_many_gaussian_shares_make_the_noise_that_is_stated(has_std):
    """500 shares just above the limit, by the hook's own sampler; 30,000 sums distinguish one percent."""
    defense, plan, rng = DistributedGaussian(bits=17), plan_of(1000), np.random.default_rng(14)
    protection = defense.prepare(plan).protection
    assert LEAST_SHARE <= protection.sized.sigma / math.sqrt(500) < 2 * LEAST_SHARE
    sums = sum(protection.noise_share(500, (30_000,), rng) for _ in range(500))
    # Rounding adds a twelfth of a squared step a share: at most 1 % of the deviation.
    assert has_std(sums, math.sqrt(protection.sized.sigma**2 + 500 / 12))
    assert np.std(sums) == pytest.approx(protection.sized.sigma, rel=0.03)


def exact_rounded_delta(std, shares, shift, epsilon):
    """Of a sum of rounded Gaussian shares moved by ``shift`` whole steps: its mass function, convolved."""
    steps = np.arange(-math.ceil(12 * std) - 1, math.ceil(12 * std) + 2)
    share = stats.norm.sf(np.abs(steps) - 0.5, scale=std) - stats.norm.sf(np.abs(steps) + 0.5, scale=std)
    total = np.ones(1)
    for _ in range(shares):
        total = np.convolve(total, share)
    still, moved = np.append(total, np.zeros(shift)), np.append(np.zeros(shift), total)
    return np.maximum(still - math.exp(epsilon) * moved, 0).sum()


@pytest.mark.parametrize("shares", [1, 2, 5, 40])
@pytest.mark.parametrize("shift", [1, 3, 10])
def test_rounded_shares_of_two_steps_keep_the_curve_of_the_gaussian_and_small_ones_do_not(shares, shift):
    """At the epsilon of delta 1e-5; exact, by the mass function. Planted: shares of .1 steps."""

    def deltas(std):
        mu = shift / (std * math.sqrt(shares))
        epsilon = mu**2 / 2 + 4.3 * mu
        stated = stats.norm.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon) * stats.norm.cdf(-mu / 2 - epsilon / mu)
        return exact_rounded_delta(std, shares, shift, epsilon), stated

    true, stated = deltas(LEAST_SHARE)
    assert 0 < stated < 1e-4
    assert true <= stated + 1e-14
    if shares == 40 and shift == 1:
        true, stated = deltas(0.1)
        assert true > 0.5


@pytest.mark.parametrize("dropout", ["half", None, True, 1.0, math.nan])
def test_a_dropout_that_is_no_share_is_refused(dropout):
    with pytest.raises(ValueError, match=r"dropout, .*, must be in \[0, 1\), got"):
        Skellam(dropout=dropout)


@pytest.mark.parametrize("variant", ["corrected", "as_published"])
def test_binomial_noise_refuses_a_delta_whose_tails_it_cannot_carry(variant):
    with pytest.raises(ValueError, match="delta must be >= 1e-12, because a hundredth of delta must cover the tail"):
        Binomial(delta=1e-320, variant=variant)


@pytest.mark.parametrize("epsilon", [30.0, 1e9])
@pytest.mark.parametrize("part", FAMILY)
def test_an_epsilon_that_needs_next_to_no_noise_is_not_stated(part, epsilon, toy_task, toy_plan):
    """One round at epsilon 15 needs .35 norms by the analytic Gaussian."""
    once = toy_plan(toy_task((1,) * 10, inert=1), rounds=1)
    with pytest.raises(ValueError, match=r"epsilon is too large: noise must be at least 0.3 sensitivities, got"):
        part(epsilon=epsilon).prepare(once)
    assert part(epsilon=15.0).prepare(once).claims[0].parameters["noise_multiplier"] > 0.3
