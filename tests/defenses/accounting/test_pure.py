"""Budgets: exact composition of pure releases, by hand, against dp-accounting and against a member's own reports."""

import itertools
import math

import numpy as np
import pytest
import torch
from dp_accounting.pld import privacy_loss_distribution
from fedassay.defenses.accounting.pure import advanced_composition, composed_delta, composed_epsilon, each_of
from fedassay.defenses.local.numbers.ldp_duchi import LDPDuchi
from fedassay.defenses.local.numbers.ldp_laplace import LDPLaplace
from fedassay.defenses.local.vectors.fedsel import LDPFedSel
from scipy import stats


def test_two_answers_by_hand():
    """Epsilon ln 3 each: truth 3/4; only both truths, 9/16 against 1/16, lose more than ln 3: 9/16 - 3/16."""
    assert composed_delta(math.log(3), releases=2, epsilon=math.log(3)) == pytest.approx(6 / 16)
    assert composed_delta(math.log(3), releases=2, epsilon=2 * math.log(3)) == 0


def test_k_releases_at_one_epsilon_outgrow_any_multiple_of_the_surveys_rate():
    """Fu et al. 2024, after Lemma 2.8, have O(sqrt(k epsilon)); the mean loss alone is k epsilon tanh(epsilon / 2)."""
    found = [composed_epsilon(1.0, releases=k, delta=1e-5) / math.sqrt(k) for k in (10, 1000, 10_000)]
    assert found == pytest.approx([3.162, 18.27, 49.96], rel=1e-3)
    assert composed_epsilon(100.0, releases=1, delta=1e-5) == pytest.approx(100)  # Rate: 10.
    assert composed_epsilon(0.01, releases=10, delta=1e-5) < 10 * 0.01 < math.sqrt(10 * 0.01)


def test_a_report_of_the_value_itself_meets_the_surveys_pointwise_line_of_local_privacy():
    """Definition 2.4 asks for single outputs t: (x, u) with u out of 100,000 has Pr = 1e-5 at most, and shows x."""
    size, delta = 100_000, 1e-5
    law, other = (np.kron(np.eye(2)[x], np.full(size, 1 / size)) for x in (0, 1))
    assert np.all(law <= other + delta * (1 + 1e-9))  # Epsilon 0, one output at a time.
    shown = law > other
    assert law[shown].sum() == pytest.approx(1)
    assert other[shown].sum() == 0


@pytest.mark.parametrize("releases", [2, 20, 100])
@pytest.mark.parametrize("epsilon", [0.5, 8.0])
def test_it_is_the_librarys_composition_of_randomised_response(releases, epsilon):
    each = each_of(releases, epsilon=epsilon, delta=1e-5)
    # Its noise parameter is the chance of a uniform answer, which of two is a lie half the time.
    one = privacy_loss_distribution.from_randomized_response(
        2 / (1 + math.exp(each)), 2, value_discretization_interval=1e-4
    )
    composed = one.self_compose(releases).get_epsilon_for_delta(1e-5)
    # Losses are rounded up by 1e-4 each.
    assert epsilon * (1 - 1e-3) - 1e-3 <= composed <= epsilon + releases * 1e-4 or each == epsilon / releases


@pytest.mark.parametrize("releases", [2, 20, 1000])
@pytest.mark.parametrize("epsilon", [0.5, 8.0, 50.0])
def test_the_delta_is_kept_and_used_up_unless_nothing_is_gained(releases, epsilon):
    each = each_of(releases, epsilon=epsilon, delta=1e-6)
    spent = composed_delta(each, releases=releases, epsilon=epsilon)
    assert spent <= 1e-6
    assert spent > 0.999e-6 or each < epsilon / releases * (1 + 1e-5)
    assert each >= epsilon / releases


def test_without_a_delta_the_budget_is_shared_alike():
    assert each_of(20, epsilon=8.0, delta=0.0) == 0.4
    assert each_of(1, epsilon=8.0, delta=1e-5) == 8.0


def test_all_reports_of_twelve_rounds_leave_exactly_the_claimed_delta(toy_task, toy_plan):
    """One coordinate, every sequence of signs listed: P(present) - e^epsilon P(absent) summed where it is positive."""
    plan = toy_plan(toy_task(), rounds=12)
    defense = LDPDuchi(epsilon=2.0, delta=1e-3)
    (claim,) = defense.prepare(plan).claims
    law = defense.release(plan)
    top = law.radius / math.tanh(claim.parameters["number_epsilon"] / 2)
    absent, present = (
        law.log_density(torch.tensor([[-top], [top]]), row.expand(2, 1)).numpy() for row in law.worst_pair(1)
    )
    signs = np.array(list(itertools.product((0, 1), repeat=12)))
    p, q = np.exp(present[signs].sum(1)), np.exp(absent[signs].sum(1))
    assert np.maximum(p - math.exp(2.0) * q, 0).sum() == pytest.approx(1e-3, rel=1e-5)
    assert (claim.delta, claim.epsilon) == (1e-3, 2.0)


def test_a_row_of_several_numbers_composes_all_of_them(toy_task, toy_plan):
    plan = toy_plan(toy_task(), rounds=50)
    (claim,) = LDPLaplace(epsilon=8.0, delta=1e-5, coordinates=3).prepare(plan).claims
    assert claim.parameters["number_epsilon"] == each_of(150, epsilon=8.0, delta=1e-5)
    law = LDPFedSel(epsilon=8.0, delta=1e-5).prepare(plan).protection.release
    assert law.epsilon == each_of(50, epsilon=8.0, delta=1e-5)
    assert "exact composition" in claim.accountant


@pytest.mark.parametrize("delta", [1e-9, 1e-5, 0.1])
@pytest.mark.parametrize("releases", [1, 3, 40, 2000])
def test_the_composed_epsilon_is_the_least_that_keeps_delta(releases, delta):
    each = 0.3
    whole = composed_epsilon(each, releases=releases, delta=delta)
    assert composed_delta(each, releases=releases, epsilon=whole) <= delta
    assert composed_delta(each, releases=releases, epsilon=whole * (1 - 1e-6)) > delta
    if releases >= 40:  # Of few releases none is given more than the whole epsilon.
        assert each_of(releases, epsilon=whole, delta=delta) == pytest.approx(each, rel=1e-6)
    assert composed_epsilon(each, releases=releases, delta=0.0) == each * releases


@pytest.mark.parametrize("each", [1e-3, 0.3, 5.0, 80.0])
@pytest.mark.parametrize("releases", [1, 7, 5000])
def test_counts_that_are_left_out_weigh_nothing(each, releases):
    """Against the sum over all counts."""
    truths = np.arange(releases + 1)
    chances = stats.binom.pmf(truths, releases, 1 / (1 + math.exp(-each)))
    for epsilon in (0.0, 0.1 * each * releases, 0.9 * each * releases):
        excess = (2 * truths - releases) * each - epsilon
        naive = float(chances[excess > 0] @ -np.expm1(-excess[excess > 0]))
        assert composed_delta(each, releases=releases, epsilon=epsilon) == pytest.approx(naive, rel=1e-12, abs=1e-300)


def test_the_textbooks_formula_by_hand():
    # .1 sqrt(2 * 10 ln 1e5) + 10 * .1 * (e^.1 - 1) = 1.51743 + .10517.
    assert advanced_composition(epsilon=0.1, releases=10, slack=1e-5) == pytest.approx(1.62260, abs=1e-5)


@pytest.mark.parametrize(
    "bad", [{"epsilon": 0.0}, {"releases": 0}, {"releases": 1.5}, {"slack": 0.0}, {"slack": 1.0}], ids=str
)
def test_a_formula_without_its_terms_is_refused(bad):
    with pytest.raises(ValueError, match="must be"):
        advanced_composition(**({"epsilon": 0.1, "releases": 2, "slack": 1e-5} | bad))
