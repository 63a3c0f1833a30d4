"""Classic Laplace on rows: compared with the randomiser of one number; its pair, its clones, its law."""

import math

import numpy as np
import pytest
import torch
from fedassay.defenses.randomisers.numbers.laplace import Laplace
from fedassay.defenses.shuffling import clip_laplace
from fedassay.defenses.shuffling.clip_laplace import LaplaceLaw, LaplacePair, laplace_clones, laplace_rows
from fedassay.fl.laws import Mixing
from scipy.stats import kstest, laplace

RADIUS = 0.1


def law(budget=2.0):
    return LaplaceLaw(radius=RADIUS, budget=budget, mixing=Mixing.COORDINATES)


@pytest.mark.parametrize("budget", [0.05, 6.0])
def test_rows_follow_the_mechanism_around_the_clipped_value(budget):
    """Kolmogorov-Smirnov, falsely "no" once in 1e6."""
    rows = laplace_rows(torch.full((1, 4000, 3), 7.0), torch.full((1, 4000), budget), RADIUS, np.random.default_rng(0))
    expected = laplace(loc=RADIUS, scale=2 * RADIUS / budget)
    assert kstest(rows.double().numpy().ravel(), expected.cdf).pvalue > 1e-6


def test_blocks_change_nothing_and_reports_lie_on_the_grid(monkeypatch):
    rows, budgets = torch.linspace(-1, 1, 60).view(2, 5, 6).double(), torch.linspace(0.1, 4, 10).view(2, 5)
    whole = laplace_rows(rows, budgets, 0.5, np.random.default_rng(3))
    monkeypatch.setattr(clip_laplace, "_CHUNK", 12)
    assert torch.equal(whole, laplace_rows(rows, budgets, 0.5, np.random.default_rng(3)))
    steps = whole * 2**22 / 0.5
    assert torch.equal(steps, steps.round())


@pytest.mark.parametrize("budget", [0.3, 3.0])
def test_the_pair_is_the_ends_profile_and_no_other_pair_leaks_more(budget):
    grid = np.linspace(-60, 60, 400_001)
    one = Laplace(epsilon=budget, radius=1.0)

    def profile(x, other, at):
        p, q = np.exp(one.log_density(grid, x)), np.exp(one.log_density(grid, other))
        return float(np.trapezoid(np.maximum(p - math.exp(at) * q, 0), grid))

    for at in (0.0, 0.3 * budget, 0.8 * budget):
        exact = LaplacePair(budget).delta(at)
        assert profile(1, -1, at) == pytest.approx(exact, abs=1e-4)
        for x, other in ((1, 0), (0.2, -0.9), (-1, 1)):
            assert profile(x, other, at) <= exact + 1e-4
    assert LaplacePair(budget).delta(budget) == LaplacePair(budget).delta(2 * budget) == 0


def test_a_clone_is_the_least_ratio_of_two_densities_over_all_values_and_reports():
    """By search on a grid; where the neighbour's noise is narrower the ratio goes to nothing far out."""
    reports = np.linspace(-200, 200, 8001)

    def least(neighbour, own):
        ends = (-1.0, 0.0, 1.0)
        rows = [
            Laplace(epsilon=neighbour, radius=1.0).log_density(reports, x)
            - Laplace(epsilon=own, radius=1.0).log_density(reports, other)
            for x in ends
            for other in ends
        ]
        return math.exp(min(float(row.min()) for row in rows))

    for neighbour, own in ((0.05, 1.0), (0.5, 1.0), (0.7, 0.7)):
        assert laplace_clones(np.array([neighbour]), own)[0] == pytest.approx(least(neighbour, own), rel=1e-9)
    assert laplace_clones(np.array([1.0]), 0.5)[0] == 0
    assert least(1.0, 0.5) < 1e-20


def test_the_law_is_a_density_with_the_budgets_ratio_and_samples_of_its_scale():
    """Five standard errors of the mean distance of 100,000."""
    grid = torch.linspace(-4, 4, 400_001, dtype=torch.float64).unsqueeze(-1)
    low, high = law().worst_pair(1)
    ahead, behind = (law().log_density(grid, end.expand_as(grid)) for end in (high, low))
    assert float(torch.trapezoid(ahead.exp(), grid[:, 0])) == pytest.approx(1, rel=1e-4)
    assert float((ahead - behind).max()) == pytest.approx(2.0, rel=1e-6)
    drawn = law().sample(torch.full((100_000, 1), 0.06), np.random.default_rng(0)).double()
    assert float((drawn - 0.06).abs().mean()) == pytest.approx(law().scale, abs=5 * law().scale / 1e5**0.5)
    torch.testing.assert_close(law().contribution(torch.tensor([7.0, math.nan])), torch.tensor([RADIUS, 0.0]))
