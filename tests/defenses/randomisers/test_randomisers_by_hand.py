"""Randomisers, each against its paper's own formula or a number by hand; errata; integer coins."""

import itertools
import math

import numpy as np
import pytest
from fedassay.defenses.randomisers.categories.exponential import Exponential
from fedassay.defenses.randomisers.categories.grr import GRR
from fedassay.defenses.randomisers.categories.local_hashing import LocalHashing
from fedassay.defenses.randomisers.categories.rappor import Rappor
from fedassay.defenses.randomisers.categories.subset_selection import SubsetSelection
from fedassay.defenses.randomisers.categories.unary import Unary
from fedassay.defenses.randomisers.numbers.clipped_laplace import ClippedLaplace
from fedassay.defenses.randomisers.numbers.condensed import Condensed
from fedassay.defenses.randomisers.numbers.duchi import Duchi
from fedassay.defenses.randomisers.numbers.hybrid import SWITCH, Hybrid
from fedassay.defenses.randomisers.numbers.laplace import Laplace
from fedassay.defenses.randomisers.numbers.piecewise import Piecewise
from fedassay.defenses.randomisers.numbers.pm_sub import PMSub
from fedassay.defenses.randomisers.numbers.three_outputs import ThreeOutputs
from fedassay.defenses.randomisers.randomiser import all_bits, coin, exp_coin, rejection
from fedassay.defenses.randomisers.vectors.em_mds import EMMDS
from fedassay.defenses.randomisers.vectors.fedsel import FedSel, ranks
from fedassay.defenses.randomisers.vectors.gaussian import Gaussian
from scipy import integrate, optimize
from small_randomisers import moments

E = math.e
N = 200_000


@pytest.mark.parametrize("exponent", [0.0, 1e-12, 0.3, 1.0, 2.7, 7.0])
def test_an_exponential_coin_shows_heads_as_often_as_it_should(exponent):
    chance, heads = math.exp(-exponent), exp_coin(exponent, N, np.random.default_rng(0)).mean()
    # Five standard errors: wrong once in a million.
    assert abs(heads - chance) <= 5 * math.sqrt(chance * (1 - chance) / N)


def test_coins_of_many_chances_keep_them_apart():
    exponents = np.tile([0.0, 0.5, 3.0], N // 3)
    heads = exp_coin(exponents, exponents.size, np.random.default_rng(1)).reshape(-1, 3).mean(axis=0)
    np.testing.assert_allclose(heads, np.exp([0.0, -0.5, -3.0]), atol=5 * math.sqrt(0.25 * 3 / N))


def test_a_coins_chance_is_rounded_down_to_the_grid():
    class Fixed:
        def random(self, size):
            return np.full(size, 2.0**-53)

    assert not coin(2.0**-53, 1, Fixed())[0]
    assert not coin(2.0**-53 * 1.99, 1, Fixed())[0]
    assert coin(2.0**-52, 1, Fixed())[0]
    assert coin([0.0, 1.0], 2, np.random.default_rng(0)).tolist() == [False, True]


def test_rejection_reweighs_its_proposals():
    rng = np.random.default_rng(2)

    def propose(rows):
        drawn = rng.integers(3, size=rows.size)
        return drawn, drawn * math.log(2)

    shares = np.bincount(rejection(N, propose, rng)) / N
    np.testing.assert_allclose(shares, np.array([4, 2, 1]) / 7, atol=5 * math.sqrt(0.25 / N))


def test_laplace_noise_is_sensitivity_over_epsilon_of_the_farthest_pair():
    # Range [-3, 3] at epsilon 2: scale 3; the survey's epsilon / Delta would be 1/3.
    assert Laplace(epsilon=2.0, radius=3.0).scale == 3


def test_the_gaussian_is_that_of_the_reference():
    # sigma 3.731 of the sensitivity 2 at epsilon 1, delta 1e-5.
    gaussian = Gaussian(epsilon=1.0, delta=1e-5, radius=1.0)
    assert gaussian.noise_std == pytest.approx(2 * 3.7306, abs=2e-3)
    assert gaussian.exact_epsilon() == pytest.approx(1.0, abs=1e-6)


@pytest.mark.parametrize("delta", [0.0, 1.0, -0.1])
def test_a_gaussian_without_a_delta_is_refused_with_the_reason(delta):
    with pytest.raises(ValueError, match=r"delta must lie in \(0, 1\), got .*: Gaussian noise has no finite epsilon"):
        Gaussian(epsilon=1.0, delta=delta, radius=1.0)


@pytest.mark.parametrize("value", [-0.1, 0.0, 0.06, 0.1])
def test_clip_laplace_has_the_density_and_the_mean_of_apes(value):
    # APES, Definition 4 and equation 1, as printed, at C = .1 and A = C.
    bound, epsilon = 0.1, 0.7
    scale = 2 * bound / epsilon
    e1, e2 = math.exp((-bound - value) / scale), math.exp((-bound + value) / scale)
    clipped = ClippedLaplace(epsilon=epsilon, radius=bound)

    def density(z):
        return math.exp(-abs(z - value) / scale) / (2 * scale * (1 - e2 / 2 - e1 / 2))

    assert math.exp(clipped.log_density(0.03, value)) == pytest.approx(density(0.03))
    assert clipped.log_density(0.1001, value) == -math.inf
    mean = ((bound + scale) * (e1 - e2) + 2 * value) / (2 - e1 - e2)
    assert moments(clipped, value)[0] == pytest.approx(mean, abs=1e-12)
    by_quadrature = integrate.quad(lambda z: z * density(z), -bound, bound, points=[value])[0]
    assert mean == pytest.approx(by_quadrature, abs=1e-10)


def test_clip_laplace_reaches_its_epsilon_at_one_point_or_on_an_interval():
    at_the_edge, beyond = (ClippedLaplace(epsilon=1.0, radius=1.0, reach=reach) for reach in (None, 2.0))
    assert at_the_edge.log_ratio([1.0, 0.9]) == pytest.approx([1.0, 0.9])
    assert beyond.log_ratio([1.0, 1.5, 2.0]) == pytest.approx([1.0, 1.0, 1.0])
    with pytest.raises(ValueError, match=r"reach, .*, must be >= radius 1\.0"):
        ClippedLaplace(epsilon=1.0, radius=1.0, reach=0.5)


def test_the_mean_of_grr_is_the_papers_calibrated_count():
    grr, reports = GRR(epsilon=1.0, domain=4), np.array([0, 0, 1, 3, 2, 0])
    assert grr.truth == pytest.approx(E / (E + 3))
    counts = np.bincount(reports, minlength=4)
    np.testing.assert_allclose(grr.estimate(reports).sum(axis=0), (counts * (E + 3) - 6) / (E - 1))


def test_unary_encodings_flip_with_their_papers_chances():
    symmetric, optimised = (Unary(epsilon=2.0, domain=3, encoding=name).flips for name in ("symmetric", "optimised"))
    assert (symmetric.one, symmetric.zero) == pytest.approx((E / (E + 1), 1 / (E + 1)))
    assert (optimised.one, optimised.zero) == pytest.approx((0.5, 1 / (E**2 + 1)))
    # Wang et al. 2017: 4 e^eps / (e^eps - 1)^2 for a value that is not there.
    assert moments(Unary(epsilon=2.0, domain=3), 0)[1][1] == pytest.approx(4 * E**2 / (E**2 - 1) ** 2)
    with pytest.raises(ValueError, match="encoding must be one of optimised, symmetric, got 'onehot'"):
        Unary(epsilon=1.0, domain=3, encoding="onehot")
    with pytest.raises(ValueError, match="too many to list"):
        all_bits(21)


def test_rappor_maps_into_its_bits_and_spends_epsilon_on_twice_its_hashes():
    rappor = Rappor(epsilon=1.0, domain=50, bits=16, hashes=3)
    filters = rappor.encoded(np.arange(50))
    assert filters.shape == (50, 16)
    assert filters.sum(axis=1).max() <= 3
    # The paper's f: epsilon = 2 h ln((1 - f/2) / (f/2)).
    half = rappor.flips.zero
    assert 6 * math.log((1 - half) / half) == pytest.approx(1.0)
    assert np.any(filters != Rappor(epsilon=1.0, domain=50, bits=16, hashes=3, cohort=1).encoded(np.arange(50)))


def test_rappor_of_filters_that_share_bits_keeps_less_than_it_claims():
    # Two bits and two hashes: filters differ in at most one bit, where four were paid for.
    assert Rappor(epsilon=1.0, domain=10, bits=2, hashes=2).exact_epsilon() <= 0.5


def test_subset_selection_by_hand():
    # 10 values at epsilon 1: sets of 3; truth 3 e / (3 e + 7).
    subset = SubsetSelection(epsilon=1.0, domain=10)
    assert subset.size == 3
    assert subset.truth == pytest.approx(3 * E / (3 * E + 7))
    truth, others = subset.truth, subset.lie
    assert truth + 9 * others == pytest.approx(3)
    assert subset.log_density([1, 1, 0, 0, 0, 0, 0, 0, 0, 0], 0) == -math.inf


def test_hash_functions_collide_as_often_as_counted():
    hashing = LocalHashing(epsilon=1.0, domain=10)
    assert (hashing.cells, hashing.prime) == (4, 11)
    seeds = np.array(list(itertools.product(range(1, 11), range(11), [0])))
    for value, other in ((0, 1), (3, 9)):
        same = hashing.cell(seeds, value) == hashing.cell(seeds, other)
        assert same.mean() == pytest.approx(hashing.collision, abs=1e-12)


def test_a_hash_never_has_more_cells_than_there_are_values():
    assert LocalHashing(epsilon=8.0, domain=10).cells == 10


def test_the_exponential_mechanism_leaves_a_tenth_of_its_budget_unused():
    assert Exponential(epsilon=1.0, candidates=10, sensitivity=2.0).exact_epsilon() == pytest.approx(0.897, abs=5e-4)
    with pytest.raises(ValueError, match="utility must lie in"):
        Exponential(epsilon=1.0, candidates=2, sensitivity=1.0).sample([-0.5, 0.5], np.random.default_rng(0))


def test_no_corner_of_the_utilities_shows_more_of_the_exponential_mechanism():
    mechanism = Exponential(epsilon=1.5, candidates=4, sensitivity=1.0)
    logs = np.array([mechanism.log_density(np.arange(4), corner) for corner in itertools.product((0, 1), repeat=4)])
    assert (logs.max(axis=0) - logs.min(axis=0)).max() == pytest.approx(mechanism.exact_epsilon())


def test_duchi_is_the_surveys_equation_13():
    duchi = Duchi(epsilon=1.0, radius=1.0)
    assert duchi.bound == pytest.approx((E + 1) / (E - 1))
    assert math.exp(duchi.log_density(duchi.bound, 0.4)) == pytest.approx(0.5 + (E - 1) / (2 * E + 2) * 0.4)


def test_piecewise_is_the_surveys_equation_14():
    half = math.exp(0.5)
    piecewise = Piecewise(epsilon=1.0, radius=1.0)
    assert piecewise.bound == pytest.approx((half + 1) / (half - 1))
    low, high = piecewise.centre(0.3)
    assert (low, high) == pytest.approx(((half * 0.3 - 1) / (half - 1), (half * 0.3 + 1) / (half - 1)))
    inside, outside = np.exp(piecewise.log_density([0.3, low - 0.1], 0.3))
    assert inside == pytest.approx(half / 2 * (half - 1) / (half + 1))
    assert outside == pytest.approx(1 / (2 * half) * (half - 1) / (half + 1))
    # Wang et al. 2019, Lemma 1: t^2 / (e^(eps/2) - 1) + (e^(eps/2) + 3) / (3 (e^(eps/2) - 1)^2).
    assert moments(piecewise, 0.3)[1] == pytest.approx(0.09 / (half - 1) + (half + 3) / (3 * (half - 1) ** 2))


def worst_variance(randomiser):
    return max(float(moments(randomiser, value)[1]) for value in np.linspace(-1, 1, 401))


def test_hybrid_is_never_worse_than_both_of_its_parts():
    assert 0.609 < SWITCH < 0.611
    for epsilon in (0.3, 0.7, 1.0, 2.0, 5.0):
        hybrid = Hybrid(epsilon=epsilon, radius=1.0)
        parts = [worst_variance(part(epsilon=epsilon, radius=1.0)) for part in (Piecewise, Duchi)]
        assert worst_variance(hybrid) <= min(parts) + 1e-9
        assert (hybrid.share == 0) == (epsilon < SWITCH)


def test_hybrids_variance_is_the_papers_above_the_switch():
    # Wang et al. 2019: the same for every value.
    half = math.exp(0.5)
    printed = (half + 3) / (3 * half * (half - 1)) + (E + 1) ** 2 / (half * (E - 1) ** 2)
    assert [moments(Hybrid(epsilon=1.0, radius=1.0), value)[1] for value in (0.0, 0.5, 1.0)] == pytest.approx(
        [printed] * 3
    )


def test_pm_sub_has_the_smaller_worst_variance():
    for epsilon in (1.0, 2.0, 4.0, 8.0):
        assert worst_variance(PMSub(epsilon=epsilon, radius=1.0)) < worst_variance(
            Piecewise(epsilon=epsilon, radius=1.0)
        )


@pytest.mark.parametrize("epsilon", [0.3, math.log(2), 0.8, 1.2, 1.7, math.log(5.53), 1.8, 2.0, 5.0])
def test_three_outputs_has_the_least_worst_variance_of_its_kind(epsilon):
    def worst(a):
        bound = (math.exp(epsilon) + 1) * math.exp(epsilon) / ((math.exp(epsilon) - 1) * (math.exp(epsilon) - a))
        values = np.linspace(0, 1, 4001)
        return np.max(bound**2 * (1 - a + a * (1 - math.exp(-epsilon)) * values) - values**2)

    found, most = ThreeOutputs(epsilon=epsilon, radius=1.0), math.exp(epsilon) / (math.exp(epsilon) + 2)
    least = optimize.minimize_scalar(worst, bounds=(0, most), method="bounded", options={"xatol": 1e-10})
    assert worst(found.nothing) <= least.fun * (1 + 1e-6)
    assert worst_variance(found) == pytest.approx(worst(found.nothing), rel=1e-4)


def test_three_outputs_is_duchi_up_to_ln_2():
    three, duchi = ThreeOutputs(epsilon=0.69, radius=2.0), Duchi(epsilon=0.69, radius=2.0)
    assert (three.nothing, three.bound) == (0, pytest.approx(duchi.bound))


def test_fedsel_chooses_by_rank_and_ties_go_to_the_later():
    assert ranks(np.array([3, 1, 1, 2])).tolist() == [3, 0, 1, 2]
    value = [0.1, -0.9, 0.5, 0.2]
    sampling = FedSel(epsilon=2.0, dimension=4, radius=1.0, top=2)
    np.testing.assert_allclose(sampling.chances(value), np.array([1, E, E, 1]) / (2 + 2 * E))
    ranking = FedSel(epsilon=2.0, dimension=4, radius=1.0, rule="ranking")
    weights = np.exp(np.array([0, 3, 2, 1]) / 3)
    np.testing.assert_allclose(ranking.chances(value), weights / weights.sum())


def test_fedsels_mean_is_not_the_vector():
    value = np.array([0.1, -0.9, 0.5, 0.2])
    sampling = FedSel(epsilon=2.0, dimension=4, radius=1.0, top=2)
    np.testing.assert_allclose(moments(sampling, value)[0], value * sampling.chances(value))


@pytest.mark.parametrize(
    ("bad", "message"),
    [({"share": 1.0}, "share must lie"), ({"rule": "best"}, "rule, .*, must be"), ({"top": 4}, "top must be")],
)
def test_fedsel_refuses_fields_that_make_no_mechanism(bad, message):
    with pytest.raises(ValueError, match=message):
        FedSel(**{"epsilon": 1.0, "dimension": 4, "radius": 1.0} | bad)


def test_em_mds_asks_for_as_many_of_the_top_as_serve_it_best():
    mds = EMMDS(epsilon=3.0, dimension=9, top=4, chosen=3)
    sets = [sum(index < 4 for index in chosen) for chosen in itertools.combinations(range(9), 3)]

    def held(least):
        weights = [math.exp(3.0 * (count >= least)) for count in sets]
        return sum(weight * count for weight, count in zip(weights, sets, strict=True)) / sum(weights)

    assert mds.least == max((1, 2, 3), key=held)


def test_em_mds_reports_states_at_the_chosen_coordinates_alone():
    mds = EMMDS(epsilon=9.0, dimension=6, top=2, chosen=2)
    value = np.array([5.0, 4.0, 0.0, 0.1, -4.0, -5.0])
    reports = mds.sample(np.tile(value, (4000, 1)), np.random.default_rng(0))
    assert set(np.abs(reports).sum(axis=1)) == {2}
    assert set(np.abs(reports.sum(axis=1))) == {2}
    # Almost always the two highest with a plus, the two lowest with a minus.
    assert (reports[:, :2] >= 0).mean() > 0.99
    assert (reports[:, 4:] <= 0).mean() > 0.99
    with pytest.raises(ValueError, match="values must be finite vectors"):
        mds.sample([1.0, math.nan, 0, 0, 0, 0], np.random.default_rng(0))


def test_condensed_ldp_grows_with_the_distance_and_ends_at_epsilon():
    condensed = Condensed(epsilon=3.0, radius=1.0, steps=6)
    points = condensed.inputs()
    logs = np.array([condensed.log_density(points, value) for value in points])
    ratios = np.abs(logs[:, np.newaxis] - logs).max(axis=-1)
    apart = np.abs(np.arange(13)[:, np.newaxis] - np.arange(13))
    assert np.all(ratios <= condensed.alpha * apart + 1e-12)
    assert ratios[0, -1] == pytest.approx(3.0)
    # The general theorem would give twice as much.
    assert condensed.alpha * 12 == pytest.approx(6.0)
