"""Table 2: each distribution by its own quantiles, who gets which, and which clients represent the others."""

import numpy as np
import pytest
from fedassay.defenses.shuffling.claims import KNOWN_BUDGETS, deal, representative_clients
from fedassay.defenses.shuffling.pldp import PLDP


def test_uniform2_is_dealt_by_its_quantiles_in_an_order_that_is_fixed_and_not_ascending():
    dealt = np.array(deal("uniform2", 1000))
    np.testing.assert_allclose(np.sort(dealt), 0.05 + 0.95 * (np.arange(1000) + 0.5) / 1000)
    assert deal("uniform2", 1000) == tuple(dealt)
    assert abs(np.corrcoef(dealt, np.arange(1000))[0, 1]) < 0.1


@pytest.mark.parametrize("name", KNOWN_BUDGETS)
def test_no_budget_leaves_its_clip_range_and_a_scale_multiplies_all(name):
    dealt = np.array(deal(name, 500))
    assert dealt.min() == pytest.approx(0.05, abs=1e-3)
    assert dealt.max() == pytest.approx(0.5 if name.endswith("1") else 1.0, abs=1e-3)
    np.testing.assert_allclose(deal(name, 500, 3.0), 3 * dealt)


def test_clipped_normals_pile_up_at_the_ends():
    """gauss1: P(N(.1, 1) < .05) = .4801, P(> .5) = .3446; mix_gauss2: .9 P(N(.2, 1) < .05) + .1 P(N(1, 1) < .05) and
    .9 P(N(.2, 1) > 1) + .1 P(N(1, 1) > 1), by tables.
    """
    for name, low, high in (
        ("gauss1", 0.4801, 0.3446),
        ("mix_gauss2", 0.9 * 0.4404 + 0.1 * 0.1711, 0.9 * 0.2119 + 0.1 * 0.5),
    ):
        dealt = np.array(deal(name, 10_000))
        assert np.mean(dealt == 0.05) == pytest.approx(low, abs=2e-3)
        assert np.mean(dealt == dealt.max()) == pytest.approx(high, abs=2e-3)


def test_spokesmen_have_the_smallest_the_median_and_the_largest_budget_once_each():
    assert representative_clients((0.3, 0.1, 0.5, 0.2, 0.4)) == (1, 0, 2)
    assert representative_clients((0.3, 0.1)) == (1, 0)
    assert len(representative_clients((0.3, 0.3))) == 1


def test_an_unknown_distribution_is_refused_with_the_known_ones():
    with pytest.raises(ValueError, match=r"budgets, .*, must be one of: uniform2, .* or mix_gauss1; got 'unifrom2'"):
        deal("unifrom2", 5)


@pytest.mark.parametrize("name", [3, ["uniform1"], None, True])
def test_what_is_no_name_is_refused_by_name_too(name):
    with pytest.raises(ValueError, match=r"budgets, .*, must be .*; got "):
        PLDP(budgets=name)
