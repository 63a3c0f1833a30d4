"""Gridded numbers: rounding and decoding by hand, the law against a listing, and worth exactly their budget."""

import math

import numpy as np
import pytest
from fedassay.defenses.local.categories.grid import Gridded
from fedassay.defenses.local.categories.ldp_exponential import LDPExponential
from fedassay.defenses.local.categories.ldp_grr import LDPGRR
from fedassay.defenses.local.categories.ldp_local_hashing import LDPLocalHashing
from fedassay.defenses.local.categories.ldp_rappor import LDPRappor
from fedassay.defenses.local.categories.ldp_subset_selection import LDPSubsetSelection
from fedassay.defenses.local.categories.ldp_unary import LDPUnary
from fedassay.defenses.randomisers.categories.rappor import Rappor
from fedassay.defenses.randomisers.numbers.duchi import Duchi

MEMBERS = (LDPGRR, LDPUnary, LDPSubsetSelection, LDPLocalHashing, LDPRappor, LDPExponential)
EACH = pytest.mark.parametrize("part", MEMBERS, ids=lambda part: part.__name__)
SIZES = pytest.mark.parametrize("levels", [3, 4, 12])


@EACH
@SIZES
@pytest.mark.parametrize("epsilon", [0.05, 0.4, 2.5, 12.0])
def test_a_number_spends_its_epsilon_and_is_unbiased(part, levels, epsilon):
    number = part(levels=levels).number(epsilon)
    logs = np.log(number.masses)
    np.testing.assert_allclose(number.masses.sum(1), 1, atol=1e-12)
    np.testing.assert_allclose(number.masses @ number.atoms, number.grid, atol=1e-9 * number.largest)
    assert (logs.max(0) - logs.min(0)).max() == pytest.approx(epsilon, rel=1e-9)
    absent, present = (np.full(number.atoms.shape, value) for value in number.worst_pair())
    ratio = number.log_density(number.atoms, present) - number.log_density(number.atoms, absent)
    assert ratio.max() == pytest.approx(epsilon, rel=1e-9)


def test_with_two_levels_randomised_response_is_duchis_mechanism():
    number, duchi = LDPGRR(levels=2).number(0.7), Duchi(epsilon=0.7, radius=1.0)
    np.testing.assert_allclose(number.atoms, [-duchi.bound, duchi.bound])
    for value in (-1.0, -0.3, 0.0, 0.9):
        by_duchi = duchi.log_density(duchi.outputs().reports, value)
        np.testing.assert_allclose(number.log_density(number.atoms, np.full(2, value)), by_duchi)


def test_randomised_response_of_four_levels_by_hand():
    """Truth 1/2 against 1/6 each at epsilon ln 3: a level is sent as three times itself. 0.5 lies a quarter of the way
    from 1/3 to 1.
    """
    number = LDPGRR(levels=4).number(math.log(3))
    np.testing.assert_allclose(number.atoms, [-3, -1, 1, 3])
    masses = np.exp(number.log_density(number.atoms, np.full(4, 0.5)))
    np.testing.assert_allclose(masses, [1 / 6, 1 / 6, 3 / 4 / 2 + 1 / 4 / 6, 1 / 4 / 2 + 3 / 4 / 6])


def test_the_exponential_mechanism_of_three_levels_by_hand():
    """Epsilon ln 4: a step of distance costs a factor 2; laws (4, 2, 1)/7 and (1, 2, 1)/4."""
    number = LDPExponential(levels=3).number(math.log(4))
    np.testing.assert_allclose(number.masses, [[4 / 7, 2 / 7, 1 / 7], [1 / 4, 1 / 2, 1 / 4], [1 / 7, 2 / 7, 4 / 7]])
    np.testing.assert_allclose(number.atoms, [-7 / 3, 0, 7 / 3], atol=1e-12)


def test_a_number_that_no_report_decodes_to_is_impossible():
    number = LDPGRR().number(1.0)
    assert number.log_density(number.atoms[:1] * 1.01, np.zeros(1)) == -math.inf


def test_levels_that_share_a_filter_are_refused():
    together = Rappor(epsilon=1.0, domain=4, bits=2, hashes=1)
    with pytest.raises(ValueError, match="the randomiser's reports must distinguish all levels, got 4"):
        Gridded(randomiser=together, levels=4).sample(np.zeros(1), np.random.default_rng(0))


@EACH
@pytest.mark.parametrize("bad", [0, 1, 13, 2.5])
def test_a_grid_of_no_steps_or_too_many_is_refused(part, bad):
    with pytest.raises(ValueError, match="levels must be"):
        part(levels=bad)


def test_a_hash_of_two_levels_is_refused():
    with pytest.raises(ValueError, match="levels must be a whole number >= 3"):
        LDPLocalHashing(levels=2)
