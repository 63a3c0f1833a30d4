"""Properties of every randomiser: laws against sums, samples against laws, audits of each and of one at 1.2 epsilon."""

import math
from dataclasses import fields, replace
from functools import cache

import numpy as np
import pytest
from fedassay.audit.claim import Unit
from fedassay.audit.finding import Verdict
from fedassay.audit.mechanism.mechanism import audit_mechanism
from fedassay.defenses.randomisers.categories.grr import GRR
from fedassay.defenses.randomisers.categories.local_hashing import LocalHashing
from fedassay.defenses.randomisers.categories.rappor import Rappor
from fedassay.defenses.randomisers.categories.subset_selection import SubsetSelection
from fedassay.defenses.randomisers.categories.unary import Unary
from fedassay.defenses.randomisers.randomiser import Randomiser
from fedassay.defenses.randomisers.vectors.fedsel import FedSel
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from small_randomisers import moments, randomisers, small_randomisers

NAMES = list(small_randomisers(1.0))
EVERY = pytest.mark.parametrize("name", NAMES)
BIASED = {"clipped_laplace", "condensed", "em_mds", "exponential", "fedsel"}
LOOSE = {"exponential"}
"""Of these the exact epsilon is below the claim's."""
EXACT = [name for name in NAMES if name not in {"gaussian", "clipped_laplace", *LOOSE}]
"""Of these one event has exactly the ratio e^epsilon."""
LEAST_SHOWN = {"clipped_laplace": 0.87, "gaussian": 0.6, "exponential": 0.897 - 0.06}
"""At epsilon 1 from 250,000 reports; .94 of the others, of which .95 to .995 was seen. An oracle's threshold on a
Gaussian shows .77, give or take .05 of a million and .1 of these: there the stated curve decides, not the epsilon at
delta."""
REPORTS, MANY, MILLION = 20_000, 250_000, 10**6
FALSE_ALARM = 1e-5


@cache
def built(name, epsilon=1.0):
    return small_randomisers(epsilon)[name]


def some_values(randomiser):
    """Both of the worst pair and one between, or another."""
    nonmember, member = randomiser.worst_pair()
    if nonmember.dtype.kind == "i":
        return [nonmember, member, np.array(2)]
    return [nonmember, member, 0.7 * member + 0.3 * nonmember]


def weighted(randomiser, value, cuts=()):
    """Every output and how much of the law of ``value`` it carries."""
    outputs = randomiser.outputs(value, cuts=cuts)
    return outputs.reports, outputs.weights * np.exp(randomiser.log_density(outputs.reports, value))


def drawn(randomiser, value, n=REPORTS, seed=0):
    return randomiser.sample(np.broadcast_to(value, (n, *value.shape)), np.random.default_rng(seed))


def test_every_file_but_the_shared_ones_holds_one():
    assert len(randomisers()) >= 17
    assert {name.split()[0] for name in NAMES} == set(randomisers())


@EVERY
@pytest.mark.parametrize("epsilon", [0.05, 1.0, 4.0])
def test_its_density_sums_to_one_and_its_estimate_is_unbiased_unless_it_is_known_to_be_biased(name, epsilon):
    randomiser = built(name, epsilon)
    for value in some_values(randomiser):
        assert weighted(randomiser, value)[1].sum() == pytest.approx(1, abs=1e-10)
        if name.split()[0] not in BIASED:
            np.testing.assert_allclose(moments(randomiser, value)[0], randomiser.target(value), atol=1e-9)


@EVERY
def test_its_samples_have_that_mean(name):
    randomiser = built(name)
    # Five standard errors, at most ten coordinates of three values: wrong once in 50,000 for a randomiser.
    for seed, value in enumerate(some_values(randomiser)):
        found = randomiser.estimate(drawn(randomiser, value, seed=seed)).mean(axis=0)
        mean, variance = moments(randomiser, value)
        assert np.all(np.abs(found - mean) <= 5 * np.sqrt(variance / REPORTS) + 1e-9)


def cells(reports, cuts):
    """Rows that distinguish outputs; a last column of floats only by the cuts that it lies between."""
    rows = np.array(reports, dtype=np.float64).reshape(len(reports), -1)
    if np.asarray(reports).dtype.kind == "f":
        rows[:, -1] = np.searchsorted(cuts, rows[:, -1])
    return rows


@pytest.mark.simulations
@EVERY
def test_its_samples_follow_the_density(name):
    # Chi-square on cells of at least five reports, the rest together; wrong once in 100,000 for a value.
    randomiser = built(name)
    for seed, value in enumerate(some_values(randomiser)):
        sample = drawn(randomiser, value, seed=10 + seed)
        last = np.asarray(sample, dtype=np.float64).reshape(REPORTS, -1)[:, -1]
        cuts = np.unique(np.quantile(last, np.linspace(0.04, 0.96, 24))) + 1e-7
        reports, masses = weighted(randomiser, value, cuts=tuple(cuts))
        rows = np.concatenate([cells(reports, cuts), cells(sample, cuts)])
        places = np.unique(rows, axis=0, return_inverse=True)[1].ravel()
        size = places.max() + 1
        expected = REPORTS * np.bincount(places[: len(reports)], masses, size)
        seen = np.bincount(places[len(reports) :], minlength=size)
        often = expected >= 5
        groups = [np.append(side[often], side[~often].sum()) for side in (seen, expected)]
        statistic = np.sum((groups[0] - groups[1]) ** 2 / np.maximum(groups[1], 1e-9))
        assert stats.chi2.sf(statistic, max(1, often.sum() - (groups[1][-1] < 1))) > FALSE_ALARM


@pytest.mark.parametrize("name", ["laplace", "gaussian", "clipped_laplace", "clipped_laplace reach 2", "piecewise"])
def test_a_continuous_sample_passes_kolmogorov_and_smirnov(name):
    randomiser = built(name)
    for seed, value in enumerate(some_values(randomiser)):
        span = randomiser.outputs(value).reports
        points = np.linspace(span.min(), span.max(), 4001)
        reports, masses = weighted(randomiser, value, cuts=tuple(points))
        order = np.argsort(reports)
        nodes, cumulated = reports[order], np.cumsum(masses[order])
        sample = drawn(randomiser, value, seed=20 + seed)
        found = stats.kstest(sample, lambda x, nodes=nodes, law=cumulated: np.interp(x, nodes, law))
        assert found.pvalue > FALSE_ALARM


@EVERY
@settings(max_examples=12)
@given(epsilon=st.floats(0.05, 10))
def test_its_exact_epsilon_is_the_claims_or_below(name, epsilon):
    randomiser = built(name, epsilon)
    exact = randomiser.exact_epsilon()
    assert exact <= epsilon * (1 + 1e-9) + 1e-9
    assert name in LOOSE or exact == pytest.approx(epsilon, rel=1e-6)


@pytest.mark.parametrize("name", [name for name in NAMES if name != "gaussian"])
def test_no_pair_of_its_inputs_beats_its_worst_pair(name):
    randomiser = built(name)
    reports = randomiser.outputs(*randomiser.inputs()).reports
    ratio = randomiser.log_ratio(reports)
    logs = np.array([randomiser.log_density(reports, value) for value in randomiser.inputs()])
    logs = logs[:, np.isfinite(logs).any(axis=0)]
    largest = (logs.max(axis=0) - logs.min(axis=0)).max()
    assert np.abs(ratio[np.isfinite(ratio)]).max() == pytest.approx(largest, abs=1e-9)
    assert randomiser.exact_epsilon() == pytest.approx(largest, abs=1e-9)


@pytest.mark.parametrize("name", [name for name in NAMES if built(name).closed])
def test_a_pairs_law_in_closed_form_is_the_listed_one(name):
    def grouped(law):
        levels, places = np.unique(np.round(law.log_ratio, 9) + 0.0, return_inverse=True)
        return np.array([levels, *(np.bincount(places, side) for side in (law.member, law.nonmember))])

    randomiser = built(name, 1.7)
    np.testing.assert_allclose(grouped(randomiser.pair_law()), grouped(Randomiser.pair_law(randomiser)), atol=1e-9)


@pytest.mark.parametrize(
    "large",
    [
        GRR(epsilon=1.0, domain=1000),
        Unary(epsilon=1.0, domain=1000),
        SubsetSelection(epsilon=1.0, domain=1000),
        LocalHashing(epsilon=1.0, domain=1000),
        Rappor(epsilon=1.0, domain=200, bits=128),
        FedSel(epsilon=1.0, dimension=1000, radius=1.0, top=100),
    ],
    ids=lambda randomiser: type(randomiser).__name__,
)
def test_one_of_real_size_knows_its_epsilon_and_its_event(large):
    assert large.exact_epsilon() == pytest.approx(1.0)
    event = large.event_masses()
    assert 0.9 < math.log(event.member / event.nonmember) <= 1 + 1e-9
    value = large.worst_pair()[1]
    assert large.event(drawn(large, value, n=20)).shape == (20,)


@pytest.mark.parametrize("name", EXACT)
def test_its_event_has_the_ratio_e_to_the_epsilon(name):
    # So many trials that no mass is worth a smaller ratio; of 1e12 scipy before 1.17 knows bounds of few errors only.
    event = built(name).event_masses(trials=10**10)
    assert math.log(event.member / event.nonmember) == pytest.approx(1, abs=1e-9)


@EVERY
def test_its_event_occurs_as_often_as_the_law_states(name):
    randomiser = built(name)
    masses = randomiser.event_masses()
    for value, mass in zip(randomiser.worst_pair(), (masses.nonmember, masses.member), strict=True):
        seen = randomiser.event(drawn(randomiser, value, seed=30)).sum()
        # A node of the quadrature may lie a step off the threshold: .002.
        low, high = (stats.binom.ppf(tail, REPORTS, mass) for tail in (FALSE_ALARM, 1 - FALSE_ALARM))
        assert low - 0.002 * REPORTS <= seen <= high + 0.002 * REPORTS


def audited(randomiser, claim, trials):
    return audit_mechanism(
        randomiser.sample,
        claim,
        inputs=randomiser.worst_pair(),
        trials=trials,
        batched=True,
        score=lambda reports: randomiser.event(reports, trials=trials),
    )


@pytest.mark.simulations
@EVERY
def test_a_quarter_of_a_million_reports_show_its_epsilon_and_refute_nothing(name):
    found = audited(built(name), built(name).claim(), MANY)
    assert found.verdict is Verdict.NOT_REFUTED
    assert found.measurement.epsilon_low >= LEAST_SHOWN.get(name, 0.94)


@pytest.mark.long
@EVERY
def test_a_correct_version_at_a_fifth_more_epsilon_is_refuted(name):
    claim = built(name).claim()
    # The exponential mechanism leaves a tenth unused: at 1.2 its exact epsilon is 1.075.
    trials = MILLION if name in {"exponential", "gaussian"} else 100_000
    assert audited(built(name, 1.2), claim, trials).verdict is Verdict.REFUTED


@EVERY
def test_it_states_one_report_to_the_server(name):
    randomiser = built(name)
    claim = randomiser.claim()
    assert (claim.epsilon, claim.adjacency, claim.observer.name) == (1.0, "replace_one", "uploads")
    assert claim.unit is Unit.REPORT
    assert claim.delta == (1e-5 if name == "gaussian" else 0)
    assert claim.source
    assert set(claim.parameters) == {field.name for field in fields(randomiser)} - (
        {"reach"} if name == "clipped_laplace" else set()
    )
    assert claim.curve_shortfall() < 1e-6


@EVERY
def test_the_same_generator_gives_the_same_reports_of_any_leading_shape(name):
    randomiser = built(name)
    value = randomiser.worst_pair()[1]
    one, two = (drawn(randomiser, value, n=6, seed=5) for _ in range(2))
    np.testing.assert_array_equal(one, two)
    block = randomiser.sample(np.broadcast_to(value, (2, 3, *value.shape)), np.random.default_rng(5))
    assert block.shape == (2, 3, *one.shape[1:])
    assert randomiser.sample(value, np.random.default_rng(5)).shape == one.shape[1:]
    assert randomiser.estimate(block).shape == (2, 3, *randomiser.target(value).shape)
    assert np.isfinite(randomiser.log_density(block, value)).all()


@EVERY
@pytest.mark.parametrize("epsilon", [0.0, -1.0, math.inf, math.nan])
def test_a_budget_that_is_none_is_refused_with_the_reason(name, epsilon):
    with pytest.raises(
        ValueError, match=r"epsilon must be > 0 and finite, got .*: at epsilon 0 a report cannot depend"
    ):
        replace(built(name), epsilon=epsilon)


@pytest.mark.parametrize("name", list(randomisers()))
def test_a_range_that_no_client_gave_is_refused(name):
    with pytest.raises(ValueError, match="must be given"):
        randomisers()[name](epsilon=1.0, **({"candidates": 3} if name == "exponential" else {}))


@pytest.mark.parametrize("name", ["grr", "unary symmetric", "rappor", "subset_selection", "local_hashing"])
@pytest.mark.parametrize("bad", [-1, 10, 0.5, math.nan])
def test_a_category_outside_its_domain_is_refused(name, bad):
    with pytest.raises(ValueError, match=r"values must be whole numbers in 0\.\.\d"):
        built(name).sample([bad], np.random.default_rng(0))


@pytest.mark.parametrize("name", [name for name in NAMES if hasattr(built(name), "radius")])
def test_a_number_outside_its_range_is_refused(name):
    value = np.full_like(built(name).worst_pair()[1], 1.01)
    for bad in (value, np.full_like(value, np.nan)):
        with pytest.raises(ValueError, match="clip them first"):
            built(name).sample(bad, np.random.default_rng(0))
