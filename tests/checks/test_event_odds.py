"""Numbers that a unit moves far over their noise: raw clip norms and noise scales are found, paid ones pass."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from fedassay.audit.check import ODDS, PUBLIC_STATE
from fedassay.audit.claim import Adjacency, Claim, Unit
from fedassay.audit.observer import GLOBAL_MODELS
from fedassay.checks.event_odds import EventOdds, _State
from fedassay.checks.neighbours import replay_setup
from fedassay.checks.replay import check_claim
from fedassay.suites.mutation.mutants import versions


def checked(name, *, broken, seed=0, **fields):
    found = versions(name)
    prepared = found.broken if broken else found.correct
    protection = replace(prepared.protection, **fields)
    results = check_claim(found.task, found.plan, protection, prepared.claims[0], seed=seed)
    return {one.name: one for one in results}


@pytest.mark.simulations
@pytest.mark.parametrize("name", ["quantile_unpaid", "chosen_clip"])
def test_a_state_and_a_noise_scale_that_one_unit_moves_over_their_noise_are_found(name):
    found = checked(name, broken=True)[ODDS]
    assert found.passed is False
    assert 4 < found.measured < 4.3


@pytest.mark.simulations
@pytest.mark.parametrize("name", ["quantile_unpaid", "chosen_clip", "adaptive_client_clip", "adaptive_sample_clip"])
@pytest.mark.parametrize("seed", range(3))
def test_a_paid_clip_norm_and_a_fixed_noise_scale_pass(name, seed):
    found = checked(name, broken=False, seed=seed)
    assert not {name for name, one in found.items() if one.passed is False}


@pytest.mark.simulations
def test_a_clip_norm_from_the_longest_update_is_found_where_all_others_are_short():
    found = checked("bound_from_longest", broken=True)
    assert found[PUBLIC_STATE].passed is False
    assert "where no other vector is clipped" in found[PUBLIC_STATE].witness


CLIP = _State(name="clip", where=0)


def odds(epsilon=1.0, delta=0.0):
    found = versions("quantile_unpaid")
    claim = Claim.stated(
        epsilon=epsilon, delta=delta, unit=Unit.CLIENT, adjacency=Adjacency.ADD_REMOVE, observer=GLOBAL_MODELS, rounds=5
    )
    setup = replay_setup(found.task, found.plan, found.correct.protection, claim).sampled
    return EventOdds(setup=setup)


def test_an_event_that_always_and_never_happens_refutes_the_claim_in_the_runs_needed_and_not_in_half_of_them():
    one = odds(epsilon=3.0, delta=1e-5)
    assert one.setup.rate == 0.5
    assert one._held(0, one.needed, one.needed, "").passed is False
    assert one._held(0, one.needed // 2, one.needed // 2, "").passed


def test_events_at_the_limit_of_the_claim_fail_no_oftener_than_stated():
    one, rng = odds(), np.random.default_rng(0)
    # Present in half of the runs: q p1 + (1 - q) p0 = e^epsilon p0.
    without = 0.1
    present = without * (np.e - 0.5) / 0.5
    counts = rng.binomial(4000, [without, present], size=(2000, 2))
    assert all(one._held(int(a), int(b), 4000, "").passed for a, b in counts)


def test_a_state_of_one_number_for_all_runs_is_not_counted():
    one = odds()
    shared = type("Runs", (), {"replicas": 64, "states": [{}, {"clip": torch.ones(1)}], "releases": []})()
    one._count(CLIP, lambda noise, number: (shared, shared), "clip")
    assert not list(one.results())


def test_hooks_that_raise_in_several_runs_are_reported_as_not_compared():
    def raising(noise, number):
        raise RuntimeError("one run alone")

    one = odds()
    one._count(CLIP, raising, "clip")
    (found,) = one.results()
    assert found.passed is None
    assert "one run alone" in found.witness
