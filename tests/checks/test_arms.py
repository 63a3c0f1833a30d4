"""Trials of two inputs with known laws: a tight claim is not refuted, one that is 30 % too small is.

A correct claim is refuted with probability 1e-4 at most here (alpha); the seeds are fixed.
"""

from functools import partial

import numpy as np
import pytest
from fedassay.audit.claim import Claim
from fedassay.audit.curve import Tangent, epsilon_from_mu, mu_from_epsilon
from fedassay.audit.estimators.event_ratio import refuted_fnr
from fedassay.audit.finding import refutes
from fedassay.checks.arms import Arms, Schema, TwoArms, fitted_directions, fitted_shift, wanted_epsilon
from fedassay.defenses.sample_level.dp_sgd import DPSGD
from fedassay.fl.algorithms import FedSGD
from fedassay.fl.layout import Layout
from fedassay.fl.plan import Plan
from fedassay.fl.sampling import Full, Poisson

ALPHA = 1e-4


def gaussian(mu, *, rate=1.0, rounds=1, seed=0):
    """Noise of variance 1, which the unit shifts by ``mu / sqrt(rounds)`` in each round with probability ``rate``."""

    def draw(arm, runs, block):
        rng = np.random.default_rng([seed, arm, block])
        shift = arm * mu / rounds**0.5 * (rng.random((runs, rounds)) < rate)
        return {"noise": rng.standard_normal((runs, 3)), "sum": rng.standard_normal((runs, rounds)) + shift}

    return Arms(draw=draw, words="two inputs", batch=4096, most=2**20, rounds={"sum": 1})


def stated(epsilon, delta=1e-5, *, curve=True):
    mu = {"mu": mu_from_epsilon(epsilon, delta)} if curve else {}
    return Claim.stated(epsilon=epsilon, delta=delta, unit="report", adjacency="replace_one", **mu)


def counted(claim, arms, most=2**17):
    trials = TwoArms(claim=claim, alpha=ALPHA, most=most)
    return trials.count(trials.deeper(trials.pilot(arms, 1024, 2048)))


@pytest.mark.simulations
@pytest.mark.parametrize("epsilon", [1.0, 4.0])
@pytest.mark.parametrize("rounds", [1, 5])
def test_a_tight_gaussian_claim_is_not_refuted_and_one_that_is_too_small_is(epsilon, rounds):
    claim = stated(epsilon)
    tight = counted(claim, gaussian(mu_from_epsilon(epsilon, 1e-5), rounds=rounds))
    assert not refutes(claim, tight)
    assert epsilon < tight.detectable <= 1.15 * epsilon
    # Well beyond the epsilon that is found with probability 0.9.
    found = counted(claim, gaussian(mu_from_epsilon(1.3 * epsilon, 1e-5), rounds=rounds))
    assert refutes(claim, found)


@pytest.mark.simulations
def test_epsilon_and_delta_alone_are_tested_by_rare_events():
    claim = stated(2.0, curve=False)
    tight = counted(claim, gaussian(mu_from_epsilon(2.0, 1e-5)))
    assert not refutes(claim, tight)
    assert tight.detectable <= wanted_epsilon(claim)
    violated = counted(claim, gaussian(mu_from_epsilon(tight.detectable, 1e-5)))
    assert refutes(claim, violated)
    assert violated.epsilon_low <= epsilon_from_mu(mu_from_epsilon(tight.detectable, 1e-5), 1e-5)


def test_a_system_that_never_varies_shows_nothing():
    trials = TwoArms(claim=stated(4.0), alpha=ALPHA, most=2**13)
    same = Arms(draw=lambda arm, runs, block: {"sum": np.ones((runs, 2))}, words="", batch=512, most=2**13)
    trials.pilot(same, 64, 64)
    assert trials.constant
    trials.pilot(gaussian(0.1), 64, 64)
    assert not trials.constant


def test_what_is_deterministic_and_differs_is_refuted_by_the_first_look():
    claim = stated(4.0, curve=False)
    arms = Arms(draw=lambda arm, runs, block: {"sum": np.full((runs, 1), arm)}, words="", batch=512, most=2**13)
    measured = counted(claim, arms)
    assert refutes(claim, measured)
    # Of the first look, as many as coins take.
    assert 2**9 < measured.n1 <= 2**10


def test_parts_that_are_missing_or_wider_in_some_batches_keep_their_places():
    schema = Schema()
    schema.learn({"a": np.ones((2, 2)), "b": np.ones((2, 1))})
    schema.learn({"a": np.ones((2, 3))})
    rows = schema.matrix({"b": np.full((2, 1), 5.0), "c": np.ones((2, 4))})
    # Three places for a, one for b, and the number of further numbers that are not zero.
    assert rows.tolist() == [[0, 0, 0, 5, 4]] * 2


def test_parts_that_only_some_runs_with_the_unit_have_show_it():
    claim = stated(1.0, curve=False)

    def draw(arm, runs, block):
        rng = np.random.default_rng([arm, block])
        return {"sum": rng.standard_normal((runs, 1)), **({"flag": np.ones((runs, 1))} if arm else {})}

    assert refutes(claim, counted(claim, Arms(draw=draw, words="", batch=256, most=2**13)))


def test_shift_and_rate_of_sampled_rounds_are_fitted():
    rng = np.random.default_rng(0)
    out = rng.standard_normal((4096, 20))
    within = rng.standard_normal((4096, 20)) + 1.5 * (rng.random((4096, 20)) < 0.2)
    found = fitted_shift("sum", np.arange(20), out, within)
    assert found.rate == pytest.approx(0.2, abs=0.02)
    assert np.abs(found.shift) == pytest.approx(1.5, abs=0.1)
    assert fitted_shift("sum", np.arange(2), np.ones((8, 2)), np.ones((8, 2))) is None


def test_runs_of_one_batch_that_share_their_noise_refute_nothing():
    def draw(arm, runs, block):
        shared = np.random.default_rng([arm, block]).standard_normal()
        return {"sum": np.full((runs, 1), shared + 3 * arm) + 1e-6 * np.arange(runs)[:, None]}

    claim = stated(1.0)
    assert counted(claim, Arms(draw=draw, words="", batch=2**13, most=2**13)) is None


def test_a_rare_draw_that_runs_of_a_batch_share_refutes_nothing():
    """Both arms are the same; in one batch of twenty all runs move together."""

    def draw(arm, runs, block):
        rng = np.random.default_rng([7, arm, block])
        return {"sum": rng.standard_normal((runs, 1)) + 6 * (rng.random() < 0.05)}

    claim = stated(1.0, curve=False)
    for seed in range(8):
        own = partial(lambda seed, arm, runs, block: draw(arm, runs, 1000 * seed + block), seed)
        measured = counted(claim, Arms(draw=own, words="", batch=4096, most=2**13), most=2**13)
        assert measured is None or not refutes(claim, measured)


@pytest.mark.simulations
def test_the_detectable_epsilon_of_sampled_rounds_is_no_smaller_than_what_the_best_test_finds():
    # The best score of twenty rounds in which a sample takes part with probability 0.1, at noise for 4 and for more.
    plan = Plan(
        sizes=(32,),
        rounds=20,
        cohort=Full(),
        lot=Poisson(0.1),
        algorithm=FedSGD(learning_rate=1.0),
        layout=Layout(names=("w",), shapes=((4,),)),
    )
    claim = DPSGD(epsilon=4.0, delta=1e-5).prepare(plan).claims[0]
    runs = 2**16
    epsilon = TwoArms(claim=claim, alpha=ALPHA, most=runs).detectable(runs)
    mu = 1 / DPSGD(epsilon=epsilon, delta=1e-5).prepare(plan).protection.noise_multiplier
    rng = np.random.default_rng(0)

    def scores(rate):
        noise = rng.standard_normal((2**20, 20)) + mu * (rng.random((2**20, 20)) < rate)
        return np.log1p(0.1 * np.expm1(mu * noise - mu**2 / 2)).sum(axis=1)

    out, within = scores(0.0), scores(0.1)
    share = TwoArms(claim=claim, alpha=ALPHA, most=runs).share
    found = []
    for quantile in (0.5, 0.7, 0.8, 0.9, 0.95, 0.97):
        threshold = np.quantile(out, quantile)
        rates = [float((out > threshold).mean()), float((within <= threshold).mean())]
        found.append(rates[1] <= refuted_fnr(Tangent.at(claim.curve, rates[0]), rates[0], runs, share))
    assert any(found)
    assert epsilon < 1.3 * claim.epsilon


def test_a_learnt_direction_whitens_noise_that_cancels_over_the_rounds():
    """Each round's noise is the difference of two draws, so that the sum of eight rounds has the noise of one: mu is 8
    over 1 along the sum, and 2 where rounds count as independent. Learnt from 2,000 runs it is within 5 %.
    """
    rng = np.random.default_rng(0)

    def drawn(runs, moved):
        return np.diff(rng.standard_normal((runs, 9)), axis=1, prepend=0.0)[:, :8] + moved

    found, of_models = fitted_directions("sum", np.arange(8), drawn(1000, 0.0), drawn(1000, 1.0))
    out, within = (found.score(drawn(20_000, moved)) for moved in (0.0, 1.0))
    covariance = np.cov(np.diff(rng.standard_normal((10**6, 9)), axis=1, prepend=0.0)[:, :8].T)
    best = np.sqrt(np.linalg.solve(covariance, np.ones(8)).sum())
    seen = (within.mean() - out.mean()) / out.std()
    independent = np.sqrt((1 / np.diag(covariance)).sum())
    assert 0.95 * best < seen < 1.03 * best
    assert seen > 2 * independent
    out, within = (of_models.score(drawn(20_000, moved)) for moved in (0.0, 1.0))
    assert 0.95 * best < (within.mean() - out.mean()) / out.std() < 1.03 * best


def test_noise_of_each_model_is_learnt_from_few_runs():
    """Sums of 64 rounds with noise of their own, each of which one round's move reaches: mu is 8, and 100 runs show
    nine tenths of it. In the rounds' own numbers so few runs show less than half.
    """
    rng = np.random.default_rng(1)

    def drawn(runs, moved):
        models = rng.standard_normal((runs, 64)) + moved
        return np.diff(models, axis=1, prepend=0.0)

    def seen(found):
        out, within = (found.score(drawn(20_000, moved)) for moved in (0.0, 1.0))
        return (within.mean() - out.mean()) / out.std()

    of_rounds, of_models = map(seen, fitted_directions("sum", np.arange(64), drawn(100, 0.0), drawn(100, 1.0)))
    assert of_models > 0.9 * 8
    assert of_rounds < 0.5 * 8


@pytest.mark.parametrize("places", [[0], [0, 1]], ids=["one round", "numbers that do not scatter"])
def test_no_direction_is_learnt_of_one_round_or_of_constants(places):
    assert not list(fitted_directions("sum", np.array(places), np.zeros((9, 2)), np.ones((9, 2))))
