"""The sum of losses of the same distribution, held against a loop of convolutions and against dp-accounting."""

import numpy as np
import pytest
from dp_accounting.pld import common
from fedassay.defenses.accounting.pld import self_convolved

CUT_OFF = 1e-13


def looped(masses, times):
    total = np.ones(1)
    for _ in range(times):
        total = np.convolve(total, masses)
    return total


@pytest.mark.parametrize("times", [1, 2, 7, 40])
@pytest.mark.parametrize("kind", ["even", "one end", "with zeros", "below one", "one place"])
def test_the_window_holds_the_masses_of_a_loop_of_convolutions(kind, times, rng):
    masses = {
        "even": np.full(50, 1 / 50),
        "one end": np.r_[1 - 1e-3, np.zeros(80), 1e-3],
        "with zeros": np.where(np.arange(60) % 2, 1 / 30, 0.0),
        "below one": 0.9 * rng.dirichlet(np.ones(40)),
        "one place": np.ones(1),
    }[kind]
    first, found = self_convolved(masses, times, CUT_OFF)
    exact = looped(masses, times)
    assert first >= 0
    assert first + len(found) <= len(exact)
    np.testing.assert_allclose(found, exact[first : first + len(found)], atol=1e-12)
    assert exact[:first].sum() + exact[first + len(found) :].sum() <= CUT_OFF


def test_a_long_sum_has_the_window_and_the_masses_of_dp_accounting():
    losses = np.exp(-0.5 * ((np.arange(4000) - 1500) / 300) ** 2)
    losses /= losses.sum()
    theirs, masses = common.self_convolve(losses, 500, CUT_OFF)
    first, found = self_convolved(losses, 500, CUT_OFF)
    assert abs(first - theirs) <= 1
    assert len(found) < 1_999_501 / 10
    shared = min(len(found), len(masses)) - 1
    np.testing.assert_allclose(
        found[max(0, theirs - first) :][:shared], masses[max(0, first - theirs) :][:shared], atol=1e-13
    )


def test_masses_of_zero_stay_zero():
    first, found = self_convolved(np.zeros(30), 5, CUT_OFF)
    assert (first, len(found)) == (0, 146)
    assert not found.any()
