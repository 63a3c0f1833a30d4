"""Clip-Laplace on rows: compared with the randomiser of one number; its law, moments and calibration."""

import math

import numpy as np
import pytest
import torch
from fedassay.defenses.accounting.pld import many_epsilon
from fedassay.defenses.randomisers.numbers.clipped_laplace import ClippedLaplace
from fedassay.defenses.shuffling import clip_laplace
from fedassay.defenses.shuffling.claims import AssuredCohort, LocalPair, SampledRelease, largest_scale
from fedassay.defenses.shuffling.clip_laplace import (
    ClipLaplaceLaw,
    calibrated_mean,
    calibration_quality,
    mean_and_variance,
    randomised_rows,
)
from fedassay.fl.laws import Mixing
from fedassay.fl.message import Message
from fedassay.fl.sampling import Epoch, FixedSize, Poisson
from scipy.stats import kstest

RADIUS = 0.1


def law(budget=2.0, **changes):
    return ClipLaplaceLaw(radius=RADIUS, budget=budget, mixing=Mixing.COORDINATES, **changes)


@pytest.mark.parametrize("budget", [0.05, 1.0, 6.0])
def test_rows_follow_the_randomiser_of_one_number(budget):
    """Its own distribution function, by quadrature of its density; Kolmogorov-Smirnov, falsely "no" once in 1e6."""
    one, raw = ClippedLaplace(epsilon=budget, radius=RADIUS), 0.04
    grid = np.linspace(-RADIUS, RADIUS, 20_001)
    density = np.exp(one.log_density(grid, raw))
    mass = np.concatenate([[0], np.cumsum((density[1:] + density[:-1]) / 2 * np.diff(grid))])
    rows = randomised_rows(
        torch.full((1, 4000, 3), raw), torch.full((1, 4000), budget), RADIUS, np.random.default_rng(0)
    )
    assert kstest(rows.double().numpy().ravel(), lambda x: np.interp(x, grid, mass)).pvalue > 1e-6


def test_every_row_has_its_own_budget_and_is_clipped():
    budgets = torch.tensor([[1e-6, 500.0]])
    rows = randomised_rows(torch.full((1, 2, 50_000), 7.0), budgets, RADIUS, np.random.default_rng(0))
    assert rows.abs().max() <= RADIUS * (1 + 1e-6)
    assert float(rows[0, 0].std()) == pytest.approx(RADIUS / math.sqrt(3), rel=0.01)
    assert float(rows[0, 1].mean()) == pytest.approx(RADIUS, rel=0.01)


def test_blocks_change_nothing(monkeypatch):
    rows, budgets = torch.linspace(-1, 1, 60).view(2, 5, 6), torch.linspace(0.1, 4, 10).view(2, 5)
    whole = randomised_rows(rows, budgets, 0.5, np.random.default_rng(3))
    monkeypatch.setattr(clip_laplace, "_CHUNK", 12)
    assert torch.equal(whole, randomised_rows(rows, budgets, 0.5, np.random.default_rng(3)))


def test_reports_of_all_values_lie_on_one_grid():
    rows = randomised_rows(
        torch.linspace(-1, 1, 1000).view(1, 1, -1).double(), torch.ones(1, 1), 0.5, np.random.default_rng(0)
    )
    steps = rows * 2**22 / 0.5
    assert torch.equal(steps, steps.round())


@pytest.mark.parametrize("rate", [1.0, 0.3])
def test_the_density_integrates_to_one_and_the_worst_pair_has_the_budgets_ratio(rate):
    """At the end of the range: e^budget, and ((1-q) p_0 + q p_C) / ((1-q) p_0 + q p_-C) where only a share reports."""
    law_, grid = law(rate=rate), torch.linspace(-RADIUS, RADIUS, 100_001, dtype=torch.float64).unsqueeze(-1)
    low, high = law_.worst_pair(1)
    mass = torch.trapezoid(law_.log_density(grid, high.expand_as(grid)).exp(), grid[:, 0])
    assert float(mass) == pytest.approx(1, rel=1e-6)
    ratios = law_.log_density(grid, high.expand_as(grid)) - law_.log_density(grid, low.expand_as(grid))
    # Over p_C, with scale C: p_-C = e^-2 and p_0 = e^-1 (1 - e^-2) / (2 (1 - e^-1)).
    dummy = (1 - rate) * math.exp(-1) * (1 - math.exp(-2)) / (2 * (1 - math.exp(-1)))
    expected = math.log((dummy + rate) / (dummy + rate * math.exp(-2)))
    assert float(ratios.max()) == pytest.approx(expected, rel=1e-6)
    assert law_.log_density(torch.tensor([RADIUS * 1.01]), high) == -math.inf


@pytest.mark.parametrize("rate", [1.0, 0.3])
def test_the_laws_samples_have_its_moments(rate):
    """Five standard errors of the mean of 100,000."""
    drawn = law(rate=rate).sample(torch.full((100_000, 1), 0.06), np.random.default_rng(0)).double()
    mean, variance = mean_and_variance(np.array(0.06), np.array(2.0), RADIUS)
    assert float(drawn.mean()) == pytest.approx(rate * float(mean), abs=5 * RADIUS / math.sqrt(3e5))
    if rate == 1:
        assert float(drawn.var()) == pytest.approx(float(variance), rel=0.02)


def test_moments_are_those_of_the_randomiser_of_one_number():
    values, one = np.linspace(-RADIUS, RADIUS, 9), ClippedLaplace(epsilon=1.5, radius=RADIUS)
    mean, variance = mean_and_variance(values, np.array(1.5), RADIUS)
    np.testing.assert_allclose(mean, one.expectation(values), atol=1e-12)
    np.testing.assert_allclose(variance, one.variance(values), atol=1e-12)


def received(values, budgets):
    """One replica: the clients' values at their budgets, randomised."""
    rows, each = torch.tensor(values).unsqueeze(0), torch.tensor(budgets).unsqueeze(0)
    reports = randomised_rows(rows, each, RADIUS, np.random.default_rng(0))
    return Message(
        values=reports, present=torch.ones(each.shape, dtype=torch.bool), senders=None, side={"budget": each}
    )


def test_equal_values_are_calibrated_without_bias_and_at_the_stated_spread():
    """400 clients at budgets of .5 to 4, 5000 independent coordinates; four standard errors."""
    budgets = np.linspace(0.5, 4, 400)
    found = calibrated_mean(received(np.full((400, 5000), 0.03), budgets), RADIUS).double()
    quality = calibration_quality(np.full(400, 0.03), budgets, RADIUS)
    assert abs(quality.bias) < 1e-6
    assert float(found.mean()) == pytest.approx(0.03, abs=4 * quality.spread / math.sqrt(5000))
    assert float(found.std()) == pytest.approx(quality.spread, rel=0.05)


def test_unequal_values_leave_the_bias_that_is_stated():
    """Half the clients at each end of .09 and -.03, the small budgets at the lower: what the paper passes over."""
    budgets = np.repeat([1.0, 4.0], 1000)
    values = np.repeat([-0.03, 0.09], 1000)
    quality = calibration_quality(values, budgets, RADIUS)
    found = calibrated_mean(received(np.tile(values[:, None], (1, 400)), budgets), RADIUS).double()
    assert quality.bias > 0.01
    error = float(found.mean()) - 0.03
    assert error == pytest.approx(quality.bias, abs=4 * quality.spread / math.sqrt(400))


def test_at_uniform2_the_sampling_noise_is_multiplied_by_eight():
    budgets = 0.05 + 0.95 * (np.arange(10_000) + 0.5) / 10_000
    _, variance = mean_and_variance(np.zeros(10_000), budgets, RADIUS)
    plain = math.sqrt(variance.sum()) / 10_000
    assert calibration_quality(np.zeros(10_000), budgets, RADIUS).spread / plain == pytest.approx(8, abs=0.5)


def test_what_no_value_could_have_brought_is_the_nearest_one_that_could():
    reports = torch.full((1, 3, 2), RADIUS)
    seen = Message(
        values=reports, present=torch.ones(1, 3, dtype=torch.bool), senders=None, side={"budget": torch.ones(1, 3)}
    )
    torch.testing.assert_close(calibrated_mean(seen, RADIUS), torch.full((1, 2), RADIUS))


@pytest.mark.parametrize("budget", [0.3, 3.0])
def test_the_local_pair_is_the_ends_profile_and_no_other_pair_leaks_more(budget):
    grid = np.linspace(-1, 1, 40_001)
    one = ClippedLaplace(epsilon=budget, radius=1.0)

    def profile(x, other, at):
        p, q = np.exp(one.log_density(grid, x)), np.exp(one.log_density(grid, other))
        return float(np.trapezoid(np.maximum(p - math.exp(at) * q, 0), grid))

    for at in (0.0, 0.3 * budget, 0.8 * budget):
        exact = LocalPair(budget).delta(at)
        assert profile(1, -1, at) == pytest.approx(exact, abs=1e-7)
        for x, other in ((1, 0), (0.2, -0.9), (-1, 1), (-0.4, 0.1)):
            assert profile(x, other, at) <= exact + 1e-7
    assert LocalPair(budget).delta(budget) == LocalPair(budget).delta(2 * budget) == 0


def test_where_cohorts_are_sampled_only_those_count_who_are_almost_surely_there(toy_task, toy_plan):
    task = toy_task((4,) * 40)
    assert AssuredCohort.of(toy_plan(task), 1e-5, rounds=3) == AssuredCohort(others=39, failure=0.0)
    cohort = AssuredCohort.of(toy_plan(task, cohort=Poisson(0.5)), 1e-5, rounds=3)
    # P(Bin(39, 1/2) < 4) = 1.8e-8 > 3.3e-9 = 1e-5 / 1000 / 3 > P(< 3) = 1.4e-9.
    assert cohort == AssuredCohort(others=3, failure=1e-8)
    # 40 clients in three batches are 13, 13 and 14.
    assert AssuredCohort.of(toy_plan(task, cohort=Epoch(3)), 1e-5, rounds=9) == AssuredCohort(others=12, failure=0.0)
    with pytest.raises(ValueError, match="clients must be >= 2"):
        AssuredCohort.of(toy_plan(task, cohort=Epoch(39)), 1e-5, rounds=3)
    with pytest.raises(ValueError, match="cohort must be Poisson or full sampling"):
        AssuredCohort.of(toy_plan(task, cohort=FixedSize(5)), 1e-5, rounds=3)
    with pytest.raises(
        ValueError, match="clients must be >= 2, because a shuffler cannot hide the sender of a single report, got 1"
    ):
        AssuredCohort.of(toy_plan(toy_task((4,))), 1e-5, rounds=3)


def test_a_scale_costs_its_target_and_no_more():
    def cost(scale):
        return many_epsilon(LocalPair(scale), releases=50, delta=1e-5)

    assert 4 * (1 - 1e-3) < cost(largest_scale(cost, 4.0)) <= 4
    with pytest.raises(ValueError, match="epsilon must be small enough to need local budgets of at most 50"):
        largest_scale(lambda scale: 1.0, 4.0)
    with pytest.raises(ValueError, match="epsilon must be large enough to allow local budgets"):
        largest_scale(lambda scale: 5.0, 4.0)


def test_one_local_report_never_costs_more_than_its_budget():
    for budget in (0.3, 1.0, 20.0):
        assert many_epsilon(LocalPair(budget), releases=1, delta=1e-9) <= budget
        assert many_epsilon(SampledRelease(LocalPair(budget), 0.5), releases=2, delta=1e-9) <= 2 * budget
