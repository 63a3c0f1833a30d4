"""Guesses of labels that are not planted: known answers, simulated labels under exact label DP, and what is refused."""

import math
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from fedassay.audit.claim import Claim
from fedassay.audit.estimators.label_guesses import LabelGuesses, label_guesses_measured, p_value
from fedassay.audit.evidence import Design, Setting
from fedassay.audit.finding import Verdict, judge
from fedassay.audit.observer import PASSIVE_PARTY
from scipy.stats import binom

CLAIM = Claim.stated(1.0, unit="label", observer=PASSIVE_PARTY, rounds=3)
SETTING = replace(Setting.claimed(CLAIM), design=Design.ONE_RUN)


def guesses(made, right, people=None):
    return LabelGuesses(made=tuple(made), right=right, people=people or sum(made), setting=SETTING)


def chance(bound, epsilon):
    return bound * math.exp(epsilon) / (bound * math.exp(epsilon) + 1 - bound)


def test_fair_labels_are_fair_coins():
    """Two equally likely labels are the coins of Steinke et al. 2023: a binomial tail at e^eps / (1 + e^eps)."""
    found = p_value(guesses((30, 20), 41), (0.5, 0.5), epsilon=1.0)
    assert found == pytest.approx(binom.sf(40, 50, math.e / (1 + math.e)))


def test_the_tail_of_a_few_guesses_is_that_of_all_their_outcomes():
    prior, made = (0.7, 0.2, 0.4), (2, 1, 2)
    chances = [chance(bound, 0.8) for bound, count in zip(prior, made, strict=True) for _ in range(count)]
    wanted = sum(
        math.prod(one if hit else 1 - one for one, hit in zip(chances, hits, strict=True))
        for hits in product((0, 1), repeat=5)
        if sum(hits) >= 4
    )
    assert p_value(guesses(made, 4), prior, epsilon=0.8) == pytest.approx(wanted)


def labels_and_releases(prior, epsilon, people, rng):
    """Labels drawn from a prior, and released by randomised response."""
    classes = len(prior)
    labels = rng.choice(classes, size=people, p=prior)
    kept = rng.random(people) < math.exp(epsilon) / (math.exp(epsilon) + classes - 1)
    return labels, np.where(kept, labels, (labels + rng.integers(1, classes, size=people)) % classes)


def refuted(prior, true, seeds, *, stated=None, alpha=0.05, people=300):
    rng, found = np.random.default_rng(7), 0
    for _ in range(seeds):
        labels, released = labels_and_releases(prior, true, people, rng)
        made = guesses(np.bincount(released, minlength=len(prior)), int((labels == released).sum()))
        found += p_value(made, stated or prior, epsilon=1.0) < alpha
    return found


@pytest.mark.parametrize("prior", [(0.5, 0.5), (0.75, 0.25), (0.6, 0.3, 0.1)])
def test_a_correct_randomiser_is_refuted_no_oftener_than_alpha_and_a_weak_one_almost_always(prior):
    """Of 400 correct ones 5 % may be refuted: 37 or more are a chance of 1e-4."""
    assert refuted(prior, 1.0, 400) < 37
    assert refuted(prior, 2.0, 50) >= 45


def test_a_bound_of_the_prior_holds_for_every_prior_below_it():
    assert refuted((0.75, 0.25), 1.0, 200, stated=(0.8, 0.4)) < 22


def test_a_prior_that_labels_exceed_refutes_a_correct_randomiser_and_the_reason_names_the_assumption():
    """Who guesses the label of 95 in 100 people needs no release to be right."""
    measured = label_guesses_measured(guesses((300, 0), 290), (0.5, 0.5), alpha=0.01, known=True, epsilon=1.0)
    finding = judge(CLAIM, measured)
    assert finding.verdict is Verdict.REFUTED
    assert "no label is more probable than the prior states" in finding.reason


def test_without_a_known_prior_nothing_is_refuted():
    measured = label_guesses_measured(guesses((200, 100), 300), (0.5, 0.5), alpha=0.01, known=False, epsilon=1.0)
    assert (measured.epsilon_low, measured.ceiling) == (0, 0)
    assert judge(CLAIM, measured).verdict is Verdict.UNDERPOWERED
    fewer = label_guesses_measured(guesses((200, 100), 240), (0.5, 0.5), alpha=0.01, known=False, epsilon=1.0)
    assert fewer.estimate == pytest.approx(math.log(4))


def test_the_detectable_epsilon_is_refuted_in_nine_of_ten_runs():
    made = guesses((150, 150), 0)
    measured = label_guesses_measured(made, (0.5, 0.5), alpha=0.05, known=True, epsilon=1.0)
    rate = refuted((0.5, 0.5), measured.detectable, 300) / 300
    assert 0.84 < rate < 0.96
    assert measured.ceiling > 3
