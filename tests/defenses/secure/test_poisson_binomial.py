"""Poisson-binomial: counts by their exact law, sums under drop-out, the server's view, estimates, smaller cohorts."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from fedassay.defenses.accounting.counts import CountPair
from fedassay.defenses.secure.poisson_binomial import PoissonBinomial
from fedassay.fl.laws import clip
from fedassay.fl.message import Message
from fedassay.fl.protection import Context
from fedassay.fl.sampling import FixedSize, Poisson
from scipy import stats

ALARM = 1e-6


@pytest.fixture
def plan_of(toy_task, toy_plan):
    """(clients, changes) -> a plan of one round."""
    return lambda clients, **changes: toy_plan(toy_task((1,) * clients), **({"rounds": 1} | changes))


def prepared(plan, **fields):
    return PoissonBinomial(**fields).prepare(plan).protection


def released(protection, rows, plan, invited=None, seed=0):
    """Reports, and what arrives of them."""
    present = torch.ones(rows.shape[:2], dtype=torch.bool) if invited is None else invited
    sent = Message(values=rows, present=present, senders=tuple(range(rows.shape[1]))).with_values(rows)
    context, rng = Context(plan=plan, round=0, replicas=len(rows)), np.random.default_rng(seed)
    reports = protection.report(sent, context, {}, rng)
    received = protection.channel(reports, context, {}, rng)
    return reports, received, protection.aggregate(received, context, {}, rng)


def law_of_sum(protection, shares, survivors):
    """Exactly: the coins of all rows, less half of them."""
    law, half = np.ones(1), protection.trials // 2
    for share in shares:
        chance = 0.5 + protection.bias(survivors) * share
        law = np.convolve(law, stats.binom.pmf(np.arange(2 * half + 1), 2 * half, chance))
    return np.arange(len(law)) - half * len(shares), law


@pytest.mark.parametrize("shares", [(1.0, -0.3, 0.0), (1.0, 1.0, 1.0)])
def test_a_sum_has_the_convolution_of_its_coins_probabilities(shares, plan_of):
    """24,000 sums of one coordinate; chi-square at one in a million."""
    plan = plan_of(3)
    protection = prepared(plan, bits=8, dropout=0.0)
    rows = torch.zeros(24_000, 3, 4)
    rows[:, :, 1] = torch.tensor(shares)
    sums = protection.sized.grid.centred(released(protection, rows, plan)[1].values)[:, 0, 1].numpy()
    values, law = law_of_sum(protection, shares, 3)
    inside = law * len(sums) >= 5
    counts = np.array([np.count_nonzero(sums == value) for value in values[inside]])
    expected = law[inside] / law[inside].sum() * counts.sum()
    assert counts.sum() > 0.99 * len(sums)
    assert stats.chisquare(counts, expected).pvalue > ALARM


def test_the_estimate_has_no_bias_in_cohorts_of_any_size(plan_of):
    """3000 rounds of six clients and 3000 of three, whose coins are less biased; five standard errors."""
    plan = plan_of(6, cohort=FixedSize(6))
    protection = prepared(plan, dropout=0.0)
    rows = torch.randn(6, plan.layout.dim, generator=torch.Generator().manual_seed(2)).expand(6000, -1, -1)
    invited = torch.ones(6000, 6, dtype=torch.bool)
    invited[3000:, 3:] = False
    mean = released(protection, rows, plan, invited)[2].double().split(3000)
    for part, count in zip(mean, (6, 3), strict=True):
        error = math.sqrt(count / protection.trials) / 2 / protection.bias(count) / 6 / math.sqrt(3000)
        expected = clip(rows[0].double(), 1.0)[:count].sum(0) / 6
        torch.testing.assert_close(part.mean(0), expected, rtol=0, atol=5 * error)
    assert protection.bias(3) < protection.bias(6)


@pytest.mark.parametrize("epsilon", [1.0, 4.0])
def test_the_sum_of_the_survivors_keeps_the_claim_and_drop_outs_that_are_forgotten_break_it(epsilon, plan_of):
    """Twelve invited, three stay, two of them at the worse end: delta outcome by outcome. The planted bug: a bias for
    the coins of all who were invited.
    """
    plan = plan_of(12)
    protection = prepared(plan, bits=8, dropout=0.75, epsilon=epsilon)

    def delta(counted, end):
        laws = [law_of_sum(protection, (own, end, end), counted)[1] for own in (1.0, 0.0)]
        return CountPair(*laws).delta(epsilon)

    assert max(delta(3, end) for end in (-1.0, 1.0)) <= 1e-5
    assert max(delta(12, end) for end in (-1.0, 1.0)) > 1e-5


def test_a_number_as_large_as_the_clip_norm_has_a_chance_within_the_bias(plan_of):
    plan = plan_of(4)
    protection = prepared(plan, clip_norm=0.1)
    rows = torch.zeros(2, 4, plan.layout.dim)
    rows[:, :, 0] = 1e30
    assert bool(released(protection, rows, plan)[2].isfinite().all())


def test_the_claim_names_coins_and_bias_and_more_bits_need_less_noise(plan_of):
    few, many = (PoissonBinomial(bits=bits).prepare(plan_of(10)).claims[0].parameters for bits in (10, 20))
    assert (few["trials"], many["trials"]) == (102, 104856)
    assert few["theta"] > many["theta"]
    assert 1.16 < many["noise_multiplier"] < 1.17 < few["noise_multiplier"]


def test_the_noise_of_a_poisson_cohort_is_that_of_its_survivors(plan_of):
    protection = prepared(plan_of(100, cohort=Poisson(0.5)))
    noise = [math.sqrt(count) / protection.bias(count) for count in (5, 25, 50)]
    assert noise == pytest.approx([noise[1]] * 3, rel=0.05)


def test_words_that_hold_less_than_two_coins_of_each_client_are_refused(plan_of):
    with pytest.raises(
        ValueError, match="bits must be large enough to count two coin tosses for each of 200 clients, got 8"
    ):
        prepared(plan_of(200), bits=8)
    with pytest.raises(
        ValueError, match="a secure sum must have at least 2 clients per round, got an expected cohort of 1"
    ):
        prepared(replace(plan_of(3), cohort=FixedSize(1)))
