"""Clip-Laplace on rows: compared with the randomiser of one number; its law, moments and calibration.

Classic Laplace on rows: compared with the randomiser of one number; its pair, its clones, its law.

The shuffler: it keeps every multiset, breaks every tie, hides who was absent, and is uniform and independent.

Post-sparsification: exactly the given count of numbers stays, the largest ones, equal ones too.
"""

import math
from functools import partial

import numpy as np
import pytest
import torch
from fedassay.defenses.accounting.pld import many_epsilon
from fedassay.defenses.randomisers.numbers.clipped_laplace import ClippedLaplace
from fedassay.defenses.randomisers.numbers.laplace import Laplace
from fedassay.defenses.shuffling import budgeted, clip_laplace
from fedassay.defenses.shuffling.budgeted import shuffle_coordinates, shuffle_rows
from fedassay.defenses.shuffling.claims import AssuredCohort, LocalPair, SampledRelease, largest_scale
from fedassay.defenses.shuffling.clip_laplace import (
    ClipLaplaceLaw,
    LaplaceLaw,
    LaplacePair,
    calibrated_mean,
    calibration_quality,
    laplace_rows,
    mean_and_variance,
    randomised_rows,
)
from fedassay.defenses.shuffling.top_reports import _largest, sparse_rows
from fedassay.fl.laws import Mixing
from fedassay.fl.message import Message
from fedassay.fl.sampling import Epoch, FixedSize, Poisson
from scipy.integrate import trapezoid
from scipy.stats import chi2, kstest, laplace
from small_randomisers import moments

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


def top_rows(rows, budgets, radius, rng, *, selection):
    return sparse_rows(rows, budgets, radius, 2, rng, selection=selection)


@pytest.mark.parametrize(
    "randomised",
    [randomised_rows, laplace_rows, *(partial(top_rows, selection=one) for one in ("largest", "random"))],
    ids=["clip-Laplace", "Laplace", "largest", "random"],
)
def test_blocks_change_nothing_and_reports_lie_on_one_grid(randomised, monkeypatch):
    rows, budgets = torch.linspace(-1, 1, 60).view(2, 5, 6).double(), torch.linspace(0.1, 4, 10).view(2, 5)
    whole = randomised(rows, budgets, 0.5, np.random.default_rng(3))
    monkeypatch.setattr(clip_laplace, "_CHUNK", 12)
    assert torch.equal(whole, randomised(rows, budgets, 0.5, np.random.default_rng(3)))
    steps = whole * 2**22 / 0.5
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
    np.testing.assert_allclose((mean, variance), np.transpose([moments(one, value) for value in values]), atol=1e-12)


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
@pytest.mark.parametrize(
    ("pair", "randomiser", "reach", "error"), [(LocalPair, ClippedLaplace, 1, 1e-7), (LaplacePair, Laplace, 60, 1e-4)]
)
def test_the_pair_is_the_ends_profile_and_no_other_pair_leaks_more(pair, randomiser, reach, error, budget):
    grid, one = np.linspace(-reach, reach, 400_001), randomiser(epsilon=budget, radius=1.0)

    def profile(x, other, at):
        p, q = np.exp(one.log_density(grid, x)), np.exp(one.log_density(grid, other))
        return float(trapezoid(np.maximum(p - math.exp(at) * q, 0), grid))

    for at in (0.0, 0.3 * budget, 0.8 * budget):
        exact = pair(budget).delta(at)
        assert profile(1, -1, at) == pytest.approx(exact, abs=error)
        for x, other in ((1, 0), (0.2, -0.9), (-1, 1), (-0.4, 0.1)):
            assert profile(x, other, at) <= exact + error
    assert pair(budget).delta(budget) == pair(budget).delta(2 * budget) == 0


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


def laplace_law(budget=2.0):
    return LaplaceLaw(radius=RADIUS, budget=budget, mixing=Mixing.COORDINATES)


@pytest.mark.parametrize("budget", [0.05, 6.0])
def test_rows_follow_the_mechanism_around_the_clipped_value(budget):
    """Kolmogorov-Smirnov, falsely "no" once in 1e6."""
    rows = laplace_rows(torch.full((1, 4000, 3), 7.0), torch.full((1, 4000), budget), RADIUS, np.random.default_rng(0))
    expected = laplace(loc=RADIUS, scale=2 * RADIUS / budget)
    assert kstest(rows.double().numpy().ravel(), expected.cdf).pvalue > 1e-6


def test_the_law_is_a_density_with_the_budgets_ratio_and_samples_of_its_scale():
    """Five standard errors of the mean distance of 100,000."""
    grid = torch.linspace(-4, 4, 400_001, dtype=torch.float64).unsqueeze(-1)
    low, high = laplace_law().worst_pair(1)
    ahead, behind = (laplace_law().log_density(grid, end.expand_as(grid)) for end in (high, low))
    assert float(torch.trapezoid(ahead.exp(), grid[:, 0])) == pytest.approx(1, rel=1e-4)
    assert float((ahead - behind).max()) == pytest.approx(2.0, rel=1e-6)
    drawn = laplace_law().sample(torch.full((100_000, 1), 0.06), np.random.default_rng(0)).double()
    assert float((drawn - 0.06).abs().mean()) == pytest.approx(
        laplace_law().scale, abs=5 * laplace_law().scale / 1e5**0.5
    )
    torch.testing.assert_close(laplace_law().contribution(torch.tensor([7.0, math.nan])), torch.tensor([RADIUS, 0.0]))


def message(values, present=None, **side):
    there = torch.ones(values.shape[:2], dtype=torch.bool) if present is None else present
    return Message(values=values, present=there, senders=tuple(range(values.shape[1])), side=side)


def numbers(replicas, rows, dim):
    return torch.arange(replicas * rows * dim, dtype=torch.float32).view(replicas, rows, dim)


def test_each_coordinate_keeps_its_multiset_and_no_row_stays_together(rng):
    sent = numbers(2, 200, 5)
    arrived = shuffle_coordinates(message(sent, budget=torch.rand(2, 200)), rng)
    assert arrived.senders is None
    torch.testing.assert_close(arrived.values.sort(1).values, sent)
    rows = ((arrived.values - torch.arange(5)) / 5).long()
    together = (rows == rows[..., :1]).all(-1).sum()
    assert together == 0
    assert not torch.equal(rows[0, :, 0], rows[0, :, 1])


def test_whole_rows_stay_together(rng):
    sent = numbers(2, 50, 3)
    arrived = shuffle_rows(message(sent), rng)
    assert not torch.equal(arrived.values, sent)
    torch.testing.assert_close(arrived.values.sort(1).values, sent)
    torch.testing.assert_close(arrived.values[..., 1] - arrived.values[..., 0], torch.ones(2, 50))


@pytest.mark.parametrize("shuffle", [shuffle_coordinates, shuffle_rows])
def test_absent_rows_arrive_last_as_zeros_and_reveal_no_client(shuffle, rng):
    present = torch.tensor([[True, False, True, True], [False, False, True, True]])
    sent = numbers(2, 4, 3).add(1).masked_fill(~present.unsqueeze(-1), 0)
    arrived = shuffle(message(sent, present), rng)
    assert arrived.present.tolist() == [[True, True, True, False], [True, True, False, False]]
    assert not arrived.values[~arrived.present].any()
    torch.testing.assert_close(arrived.values.sort(1).values, sent.sort(1).values)


@pytest.mark.parametrize("shuffle", [shuffle_coordinates, shuffle_rows])
def test_every_order_is_as_likely_and_replicas_and_coordinates_draw_their_own(shuffle, rng):
    """All pairs of orders of two coordinates of three rows, chi-square, falsely "no" once in a million seeds."""
    arrived = shuffle(message(torch.arange(3.0).view(1, 3, 1).expand(7200, 3, 2).contiguous()), rng).values.long()
    order = arrived[:, 0] * 3 + arrived[:, 1]
    codes, counts = torch.unique(order[:, 0] * 9 + order[:, 1], return_counts=True)
    expected = 36 if shuffle is shuffle_coordinates else 6
    assert len(codes) == expected
    assert float(((counts - 7200 / expected) ** 2).sum() / (7200 / expected)) < chi2.ppf(1 - 1e-6, expected - 1)


def test_blocks_of_columns_are_all_columns(rng, monkeypatch):
    monkeypatch.setattr(budgeted, "_CHUNK", 40)
    sent = numbers(1, 20, 7)
    torch.testing.assert_close(shuffle_coordinates(message(sent), rng).values.sort(1).values, sent)


def test_a_shuffler_of_rows_passes_on_nothing_that_might_name_them(rng):
    with pytest.raises(ValueError, match=r"must not forward side information, got \['budget'\]"):
        shuffle_rows(message(numbers(1, 2, 1), budget=torch.ones(1, 2)), rng)


@pytest.mark.parametrize("kept", [1, 3, 7, 8])
def test_the_largest_are_those_of_a_sort(kept):
    sizes = np.random.default_rng(0).random((50, 8)).astype(np.float32)
    chosen = _largest(sizes, kept)
    naive = np.zeros_like(chosen)
    np.put_along_axis(naive, np.argsort(-sizes, axis=-1)[:, :kept], True, axis=-1)
    assert np.array_equal(chosen, naive)


def test_of_equal_numbers_the_first_stay():
    sizes = np.array([[2, 5, 2, 2, 1], [3, 3, 3, 3, 3], [1, 2, 3, 4, 5]], dtype=np.float32)
    assert _largest(sizes, 3).astype(int).tolist() == [[1, 1, 1, 0, 0], [1, 1, 1, 0, 0], [0, 0, 1, 1, 1]]
