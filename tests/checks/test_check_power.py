"""What passed checks would have found: a violation of just that size is found in nine of ten repeats, and a smaller one
is no fault.
"""

from dataclasses import replace

import numpy as np
import pytest
from fedassay.audit.check import FITS, LAW_EPSILON, MEASURED, SCALE, SENSITIVITY, CheckResult
from fedassay.audit.claim import Adjacency
from fedassay.audit.curve import epsilon_from_mu
from fedassay.checks.coverage import power_of_checks
from fedassay.checks.false_alarms import least_scale, share_found
from fedassay.checks.law import with_law_checks
from fedassay.checks.measured import measured_checks
from fedassay.checks.neighbours import replay_setup
from fedassay.checks.replay import check_claim
from fedassay.checks.shuffled import report_checks
from fedassay.defenses.local.vectors.ldp_gaussian import LDPGaussian
from fedassay.fl.algorithms import FedSGD
from fedassay.suites.conformance.toys import toy_plan
from open_defenses import without_law
from toy_federation import toy_task

TASK = toy_task((4, 7, 5), side=4, inert=1)
PLAN = toy_plan(TASK, rounds=3, algorithm=FedSGD(learning_rate=1.0))


def quieter(protection, share):
    """The protection with a share of its noise, and the law of all of it."""
    kind = type(protection)
    law = protection.law
    broken = type(
        f"Quieter{kind.__name__}", (kind,), {"law": lambda self, observer, plan, client: law(observer, plan, client)}
    )
    return broken(**{**vars(protection), "noise_std": share * protection.noise_std})


WIDE = toy_task((4, 7, 5), side=14, inert=1)
WIDE_PLAN = replace(PLAN, layout=WIDE.network.layout)
"""A ratio is measured from few runs, so that it takes many weights."""


def measured(protection, claim, seed=0):
    (found,) = measured_checks(replay_setup(WIDE, WIDE_PLAN, without_law(protection), claim, seed=seed), WIDE_PLAN)
    assert found.name == MEASURED
    return found


def checks_of(protection, claim, seed=0):
    replayed = check_claim(TASK, PLAN, protection, claim, seed=seed)
    moves, laws = with_law_checks(protection, claim, PLAN, replayed)
    return (*moves, *laws, *measured_checks(replay_setup(TASK, PLAN, protection, claim, seed=seed), PLAN))


@pytest.fixture(scope="module")
def correct():
    """A correct defense with a law, its claim and its checks."""
    prepared = LDPGaussian(epsilon=4.0, delta=1e-5).prepare(PLAN)
    return prepared.protection, prepared.claims[0], checks_of(prepared.protection, prepared.claims[0])


@pytest.mark.parametrize("degrees", [50, 5000])
def test_noise_that_is_just_small_enough_is_found_in_nine_of_ten_repeats_and_the_laws_own_never(degrees):
    rng, share = np.random.default_rng(0), share_found(degrees)
    squares = rng.chisquare(degrees, 300)

    def failed(share):
        found = (least_scale(np.array([share**2 * one]), np.array([float(degrees)]), [""])[0] for one in squares)
        return sum(one.measured < one.allowed for one in found)

    assert 250 <= failed(share) <= 288
    assert failed(1.0) == 0


def test_more_numbers_show_less_missing_noise_and_no_numbers_show_none():
    assert 0 < share_found(100) < share_found(10_000) < 0.97 < share_found(100_000) < 1
    assert share_found(0) == 0
    assert share_found(10_000, slack=0.1) == pytest.approx(share_found(10_000) - 0.1, abs=2e-3)


def coins(rng, trials, each):
    """Scores of randomised response of epsilon 0.8 per round, of reports with epsilon ``each``; five rounds."""
    kept = rng.random((2, trials, 5)) < 1 / (1 + np.exp(-each))
    return {"member": np.where(kept[0], 0.8, -0.8), "nonmember": np.where(kept[1], -0.8, 0.8)}


def fits(claim, arrays, trials):
    odd = {f"{name}_odd": np.zeros(trials) for name in ("member", "nonmember")}
    return report_checks([{**arrays, **odd}], claim, exact=True, clients=None)[0]


def test_possible_reports_are_those_of_a_law_of_every_round(correct):
    ones = {f"{name}_odd": np.ones(8) for name in ("member", "nonmember")}
    arrays = [coins(np.random.default_rng(0), 8, 0.8) | ones]
    for changes, passed in (("", False), ("its hooks depend on the number of the round", None)):
        found = report_checks(arrays, correct[1], exact=False, clients=None, changes=changes)[1]
        assert found.passed is passed


@pytest.mark.simulations
def test_reports_that_leak_just_so_much_more_are_found_in_nine_of_ten_repeats(correct):
    claim, rng, trials = replace(correct[1], epsilon=4.0, delta=0.0, curve=None), np.random.default_rng(1), 1000
    honest = fits(claim, coins(rng, trials, 0.8), trials)
    assert honest.passed
    assert 4.4 < honest.detects < 8

    def found(epsilon):
        return sum(fits(claim, coins(rng, trials, epsilon / 5), trials).passed is False for _ in range(100))

    assert found(honest.detects) >= 83
    assert found(4.0 + 0.8 * (honest.detects - 4.0)) < 83
    assert all(fits(claim, coins(rng, trials, 0.8), trials).passed for _ in range(20))


def test_fewer_reports_find_larger_leaks_only(correct):
    claim, rng = replace(correct[1], epsilon=4.0, delta=0.0, curve=None), np.random.default_rng(2)
    few, many = (fits(claim, coins(rng, trials, 0.8), trials).detects for trials in (100, 10_000))
    assert 4.0 < many < 4.5 < few


def test_checks_that_held_law_and_draws_against_the_claim_state_the_epsilon_that_they_would_find(correct):
    protection, claim, checks = correct
    power = power_of_checks(checks, protection, claim, PLAN)
    share = next(check.detects for check in checks if check.name == SCALE)
    # Less noise by this share multiplies mu; epsilon grows a little faster.
    assert claim.epsilon / share < power.detectable < claim.epsilon / share**2
    assert f"{share:.3g} times the stated noise" in power.assumption


def test_a_loose_claim_is_found_from_where_it_is_broken(correct):
    protection, claim, checks = correct
    power = power_of_checks(checks, protection, replace(claim, epsilon=9.0, curve=None), PLAN)
    assert power.detectable == 9.0


@pytest.mark.parametrize("name", [SCALE, SENSITIVITY, LAW_EPSILON])
def test_a_chain_with_a_missing_link_states_nothing(correct, name):
    protection, claim, checks = correct
    blind = [name.skipped("") if check.name == name else check for check in checks]
    assert power_of_checks(blind, protection, claim, PLAN) is None


def test_a_failed_check_states_nothing(correct):
    protection, claim, checks = correct
    failed = CheckResult(name="whole message", passed=False, witness="")
    assert power_of_checks([*checks, failed], protection, claim, PLAN) is None


def test_a_law_of_one_round_alone_states_nothing(correct):
    protection, claim, checks = correct
    kind = type("Moving", (type(protection),), {"open_round": lambda self, context, state: state})
    assert power_of_checks(checks, kind(**vars(protection)), claim, PLAN) is None


@pytest.mark.simulations
def test_a_measured_ratio_states_a_larger_epsilon_than_a_law_whether_or_not_noise_is_stated(correct):
    protection, claim, checks = correct
    found = measured(protection, claim)
    power = power_of_checks([found], without_law(protection), claim, WIDE_PLAN)
    assert power_of_checks(checks, protection, claim, PLAN).detectable < power.detectable < 3 * claim.epsilon
    unstated = measured(protection, replace(claim, curve=None, parameters={}))
    assert unstated.passed
    assert power_of_checks(checks, protection, claim, PLAN).detectable < unstated.detects < 3 * claim.epsilon


def test_reports_that_fit_a_law_that_keeps_the_claim_state_their_epsilon(correct):
    protection, claim, _ = correct
    law, fit = (name.passes("", detects=5.0) for name in (LAW_EPSILON, FITS))
    assert power_of_checks([law, fit], protection, claim, PLAN).detectable == 5.0
    assert power_of_checks([fit], protection, claim, PLAN) is None


@pytest.mark.long
def test_a_defense_with_just_so_much_less_noise_than_its_law_is_found_in_nine_of_ten_seeds(correct):
    protection, claim, checks = correct
    assert claim.adjacency is Adjacency.REPLACE_ONE
    share = next(check.detects for check in checks if check.name == SCALE)
    broken = quieter(protection, share)
    found = [
        any(
            check.name == SCALE and check.passed is False for check in check_claim(TASK, PLAN, broken, claim, seed=seed)
        )
        for seed in range(60)
    ]
    # Binomial (60, .9): below 46 once in 10^4.
    assert sum(found) >= 46
    honest = [check.passed for seed in range(10) for check in checks_of(protection, claim, seed)]
    assert False not in honest


@pytest.mark.long
def test_a_defense_without_a_law_with_just_so_much_less_noise_is_found_in_nine_of_ten_seeds(correct):
    protection, claim, _ = correct
    detects = measured(protection, claim).detects
    # mu grows as 1 / share of the noise.
    share = max(s for s in np.linspace(0.3, 1, 701) if epsilon_from_mu(claim.curve.mu / s, claim.delta) >= detects)
    broken = quieter(protection, share)
    found = [measured(broken, claim, seed).passed for seed in range(60)]
    # Binomial (60, .9): below 46 once in 10^4.
    assert found.count(False) >= 46
    assert all(measured(protection, claim, seed).passed for seed in range(20))


def ratio(measured):
    """A passed check of sensitivity over noise."""
    return (MEASURED.passes("", measured, 4.0, unit="epsilon", detects=9.0),)


def test_a_measured_ratio_has_power_only_where_something_says_what_the_noise_is(correct):
    protection, claim = without_law(correct[0]), correct[1]
    silent = replace(claim, curve=None, parameters={})
    scale = SCALE.passes("", 1.0, 1.0, unit="deviations")
    assert power_of_checks(ratio(3.0), protection, silent, PLAN) is None
    # The claim states it, or its noise has no delta to hide in, or runs showed it, or no unit moves the release.
    stated = replace(silent, parameters={"noise_multiplier": 1.0})
    pure = replace(silent, delta=0.0)
    cases = [(ratio(3.0), stated), (ratio(3.0), pure), ((*ratio(3.0), scale), silent), (ratio(0.0), silent)]
    for checks, one in cases:
        assert power_of_checks(checks, protection, one, PLAN).detectable == 9.0
