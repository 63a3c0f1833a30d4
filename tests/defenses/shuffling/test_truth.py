"""A shuffler whose leak is known exactly: counts of ones find more than half of it and never more than it."""

import numpy as np
import pytest
from fedassay.audit.claim import Adjacency, Unit
from fedassay.audit.estimators.pairwise_event import EventCounts, best_event, pairwise_event
from fedassay.audit.evidence import Design, Setting
from fedassay.audit.observer import SHUFFLED
from fedassay.defenses.accounting.counts import binomial
from fedassay.defenses.accounting.shuffled import shuffled, shuffled_bits
from scipy.special import expit

CLIENTS, EPSILON0, DELTA, TRIALS = 1000, 2.0, 1e-5, 4_000_000


def test_four_million_shuffles_refute_half_of_what_randomised_response_leaks_and_not_all_of_it():
    """n = 1000, eps0 = 2, delta 1e-5: exactly .2718. The event is fixed by the law before a count is drawn; the bound
    is wrong once in twenty seeds at most. The clones' upper bound lies above.
    """
    pair = shuffled_bits(clients=CLIENTS, epsilon0=EPSILON0)
    assert pair.epsilon(DELTA) == pytest.approx(0.2718, abs=5e-5)
    inside = best_event(pair.p / pair.p.sum(), pair.q / pair.q.sum(), trials=TRIALS, delta=DELTA)
    truth, lie = float(expit(EPSILON0)), float(expit(-EPSILON0))
    first = binomial(CLIENTS - 1, lie).first
    rng, hits = np.random.default_rng(0), []
    for own in (truth, lie):
        ones = rng.binomial(CLIENTS - 1, lie, TRIALS) + (rng.random(TRIALS) < own)
        place = np.clip(ones - first, 0, inside.size - 1)
        hits.append(int(inside[place].sum()))
    setting = Setting(
        unit=Unit.CLIENT, adjacency=Adjacency.REPLACE_ONE, observer=SHUFFLED, rounds=1, design=Design.INDEPENDENT
    )
    counts = EventCounts(hits_in=hits[0], n1=TRIALS, hits_out=hits[1], n0=TRIALS, setting=setting)
    shown = pairwise_event(counts, delta=DELTA, alpha=0.05).epsilon_low
    assert 0.1359 < shown < 0.2718
    assert shuffled(clients=CLIENTS, epsilon0=EPSILON0).epsilon(DELTA) > 0.2718
