"""Epsilons of federations: closed forms, public numbers, a lower bound, wrong ways that are below, and bad input."""

import math

import numpy as np
import pytest
from fedassay import epsilon
from fedassay.audit.claim import Adjacency
from fedassay.audit.curve import epsilon_from_mu
from fedassay.defenses.accounting.accountant import Method, epsilon_of
from fedassay.defenses.accounting.below import LossPair, composed, gaussian_pair
from fedassay.defenses.accounting.calculator import _by_whole_orders, _of_pairs
from fedassay.defenses.accounting.stated_laws import event_of

DELTA = 1e-5
ALL = {"noise_multiplier": 4.0, "delta": DELTA, "rounds": 9, "clients": 16}


def by(found):
    return {(str(one.unit), one.observer.name): one.epsilon for one in found.counts}


def ways(found):
    return {way.name: way.epsilon for way in found.ways}


@pytest.mark.parametrize(
    ("trust", "expected"),
    [
        # mu: the root of the rounds, over the noise in clip norms; two clip norms where a client is replaced.
        ("central", {("client", "global_models"): 3 / 4, ("sample", "global_models"): 6 / 4}),
        ("local", {("client", "uploads"): 6 / 4, ("client", "global_models"): 6 / (4 * 15**0.5)}),
        ("distributed", {("client", "aggregate"): 6 / 16, ("sample", "aggregate"): 6 / 16}),
    ],
)
def test_all_clients_in_all_rounds_have_the_closed_form_of_their_trust_model(trust, expected):
    found = by(epsilon(**ALL, trust=trust))
    for who, mu in expected.items():
        assert found[who] == pytest.approx(epsilon_from_mu(mu, DELTA), rel=1e-6)


PUBLIC = [
    # Where it was stated, the law, how it was counted there, and the number there, to its last digit.
    ("opacus#643", {"history": [(3, 0.2, 50)], "delta": 1 / 48000}, "Renyi", 2.169, 5e-4),
    ("opacus#643", {"history": [(3, 0.2, 50)], "delta": 1 / 48000}, "central limit", 1.838, 5e-4),
    ("opacus#153", {"history": [(1.3, 0.004, 3750)], "delta": DELTA}, "Renyi 2017", 1.16, 5e-3),
    ("opacus#153", {"history": [(0.7, 0.004, 11250)], "delta": DELTA}, "Renyi 2017", 6.859, 1e-3),
    ("opacus#153", {"history": [(1.1, 0.004, 15000)], "delta": DELTA}, "Renyi 2017", 2.905, 5e-4),
    ("tensorflow/privacy#173", {"history": [(1.1, 250 / 60000, 480)], "delta": DELTA}, "Renyi", 0.8, 5e-2),
    ("tensorflow/privacy#227", {"history": [(0.1, 250 / 60000, 14400)], "delta": DELTA}, "Renyi", 66416.55, 5e-3),
    ("DPSDA#6", {"noise_multiplier": 8**0.5, "rounds": 5, "delta": DELTA}, None, 3.34, 5e-3),
]


@pytest.mark.parametrize(("where", "law", "way", "number", "digit"), PUBLIC, ids=lambda value: str(value)[:30])
def test_public_threads_have_the_number_with_which_they_end(where, law, way, number, digit):
    found = epsilon(**law)
    assert (found.epsilon if way is None else ways(found)[way]) == pytest.approx(number, abs=digit), where
    if way == "central limit":
        assert number < found.epsilon


def test_the_tutorial_of_tensorflow_federated_needs_120_clients_for_epsilon_2():
    spent = [
        ways(epsilon(n / 100, delta=DELTA, rounds=100, clients=3383, cohort=n, local_steps=5))["Renyi"]
        for n in (119, 120)
    ]
    assert spent[1] <= 2 < spent[0]


LOCAL = ALL | {"noise_multiplier": 1.1, "rounds": 10, "clients": 8, "cohort": 2, "local_steps": 12, "trust": "local"}
LOCAL |= {"records": 300, "lot": 30}


def test_local_steps_and_rounds_of_dp_sgd_on_clients_add_up_to_one_training_of_that_many_steps():
    found = epsilon(**LOCAL)
    assert found.epsilon == pytest.approx(epsilon(history=[(1.1, 0.1, 120)], delta=DELTA).epsilon, rel=1e-9)
    below = {"one round", "rounds for steps", "rate of all data", "rate of clients", "noise of all", "central limit"}
    above = {"Renyi", "Renyi 2017", "rounds added", "all in all", "clients added"}
    assert {way.name for way in found.ways if way.epsilon < found.epsilon} == below
    assert {way.name for way in found.ways if way.epsilon > found.epsilon} == above


def test_the_epsilon_of_a_client_of_many_records_is_above_a_lower_bound():
    stated = by(epsilon(6.0, delta=DELTA, rounds=4, clients=2, records=5, lot=1, trust="local"))["client", "uploads"]
    pair = gaussian_pair(1 / 6, rate=0.2, steps=5)
    truth = composed([LossPair(pair.one, pair.other, 4)], reach=stated).epsilon(DELTA)
    assert truth < stated


def test_a_lot_of_fixed_size_costs_more_than_one_by_coins_and_at_most_a_whole_pass():
    by_coins, fixed, all_of_them = (
        epsilon(2.0, delta=DELTA, rounds=10, records=100, lot=lot, adjacency="replace_one", drawing=drawing).epsilon
        for lot, drawing in ((10, "poisson"), (10, "fixed_size"), (100, "poisson"))
    )
    assert by_coins < fixed < all_of_them


@pytest.mark.parametrize(("rounds", "passes"), [(10, 1), (11, 2), (40, 4)])
def test_a_record_that_is_drawn_once_per_pass_is_released_once_per_pass(rounds, passes):
    found = epsilon(2.0, delta=DELTA, rounds=rounds, clients=100, cohort=10, drawing="epoch", adjacency="zero_out")
    assert found.epsilon == pytest.approx(epsilon_from_mu(math.sqrt(passes) / 2, DELTA), rel=1e-6)


@pytest.mark.parametrize(("rounds", "truth"), [(1, 2.399), (100, 5.058), (1000, 10.35)])
def test_lots_of_fixed_size_are_above_the_losses_of_an_item_that_another_stands_in_for(rounds, truth):
    lots = {"records": 1000, "lot": 10, "drawing": "fixed_size", "adjacency": "zero_out"}
    found = epsilon(1.0, delta=DELTA, rounds=rounds, **lots)
    assert found.epsilon > truth
    assert "below our bound" in "".join(found.lines())
    assert "too small" not in "".join(found.lines())


def test_a_drawn_client_brings_all_its_records_and_they_show_that_it_was_drawn():
    found = epsilon(20.0, delta=DELTA, clients=100, cohort=1, records=600)
    assert by(found)["client", "global_models"] >= 537
    # Beside 599 known records the choice hides nothing: delta is its chance times that of one release.
    assert found.epsilon >= epsilon_from_mu(1 / 20, 100 * DELTA)


def test_other_clients_know_their_own_noise_and_that_the_cohort_was_drawn_from_the_others():
    draws = {"delta": DELTA, "rounds": 3, "clients": 11, "trust": "local", "drawing": "fixed_size"}
    ten = by(epsilon(4.0, cohort=10, **draws))["client", "global_models"]
    assert ten == pytest.approx(epsilon_from_mu(2 * 3**0.5 / 12, DELTA), rel=1e-6)
    assert ("client", "global_models") not in by(epsilon(4.0, cohort=5, **draws | {"drawing": "poisson"}))


def test_a_cap_on_participations_has_no_amplification():
    found = epsilon(4.0, delta=DELTA, rounds=100, clients=100, cohort=1, participations=4)
    assert found.epsilon == pytest.approx(epsilon_from_mu(2 / 4, DELTA), rel=1e-6)


def test_a_pass_that_leaves_a_rest_out_is_shorter():
    found = epsilon(2.0, delta=DELTA, local_steps=5, records=10, lot=4, drawing="epoch", adjacency="zero_out")
    assert found.epsilon == pytest.approx(epsilon_from_mu(math.sqrt(3) / 2, DELTA), rel=1e-6)


@pytest.mark.parametrize("stage", [(1, 0.1, 10**30), (1, 1e-300, 1), (int("9" * 400), 0.1, 1), (1, True, 1)])
def test_a_history_of_impossible_numbers_is_refused(stage):
    with pytest.raises(ValueError, match="of the history must be a"):
        epsilon(history=[stage], delta=DELTA)


def test_equal_stages_count_as_one_of_all_their_steps():
    one, many = epsilon(history=[(1, 0.01, 300)], delta=DELTA), epsilon(history=[(1, 0.01, 1)] * 300, delta=DELTA)
    assert one.epsilon == many.epsilon


@pytest.mark.parametrize(("noise", "rounds"), [(1e-6, 1), (1.0, 10**12), (0.01, 10**6)])
def test_every_number_is_finite_and_a_bound_where_losses_are_too_large_for_arrays(noise, rounds):
    found = epsilon(noise, delta=DELTA, rounds=rounds, clients=1000, cohort=1)
    every = epsilon_from_mu(math.sqrt(rounds) / noise, DELTA)
    # The divergence of order 2 of a round, log(1 + (e - 1) / 1e6), where there are so many.
    least = rounds * math.log1p(1e-6 * math.expm1(1)) if noise == 1.0 else every
    assert found.epsilon == pytest.approx(least, rel=1e-5)
    assert found.epsilon <= every * (1 + 1e-9)
    assert all(math.isfinite(way.epsilon) and "too small" not in way.line() for way in found.ways)


@pytest.mark.parametrize("delta", [1e-300, 1e-15, 0.5, 1 - 1e-15])
def test_extreme_deltas_have_finite_numbers_and_an_epsilon_that_is_0_is_0(delta):
    found = epsilon(1.0, delta=delta, rounds=100, clients=100, cohort=1)
    assert math.isfinite(found.epsilon)
    assert (found.epsilon == 0) == (delta >= 0.5)
    assert found.lines()


def test_the_lines_of_one_unit_name_it_with_unit_adjacency_adversary_and_delta():
    found = epsilon(**LOCAL, unit="client")
    assert found.ways == ()
    assert found.counts[0].observer.name == "uploads"
    assert "delta 1e-5, one client (zero-out), adversary: the server" in found.lines()[0]
    assert np.isfinite(found.epsilon)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"delta": 0.0}, r"delta must be in \(0, 1\), got 0.0"),
        ({"noise_multiplier": -1.0}, "noise_multiplier must be a number from 1e-06 to 1e.06, got -1.0"),
        ({"noise_multiplier": None}, "noise_multiplier must be a number .*, got None"),
        ({"cohort": 17}, r"cohort must be <= clients \(16\), got 17"),
        ({"lot": 3}, "the argument lot also needs records"),
        ({"rounds": 2.5}, "rounds must be a whole number from 1 to 1e.12, got 2.5"),
        ({"participations": 10}, r"participations must be <= rounds \(9\) and >= .*, got 10"),
        ({"trust": "nobody"}, "trust must be .*central.*, got 'nobody'"),
        ({"trust": "local", "adjacency": "add_remove"}, "the server sees which clients report, got add_remove"),
        ({"drawing": "epoch", "adjacency": "add_remove"}, "epoch sampling depends on the number of clients"),
        ({"drawing": "fixed_size", "cohort": 1.5}, "cohort must be a whole number for fixed_size sampling, got 1.5"),
        ({"records": 10, "local_steps": 2}, "local_steps must be 1 if clients clip records and trust is central"),
        ({"cohort": 1e-300}, "cohort must be a number .*, got 1e-300"),
        ({"records": 10**20}, "records must be a whole number .*, got 1"),
        ({"cohort": 8, "trust": "distributed"}, "drawing must be fixed_size .*, got poisson"),
        ({"cohort": 8, "participations": 4}, "participations must be <= rounds .* and >= .*, got 4"),
        ({"unit": "report"}, "unit must be sample, or client if there are several clients, got report"),
        ({"history": [(1, 0.1, 5)]}, "a history already states noise, rates and steps"),
    ],
)
def test_numbers_that_contradict_each_other_are_refused_in_one_sentence(changes, words):
    with pytest.raises(ValueError, match=words) as error:
        epsilon(**ALL | changes)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("noise", [1.0, 10.0])
def test_more_steps_than_arrays_hold_have_a_renyi_bound_and_no_jump(noise):
    federation = {"noise_multiplier": noise, "delta": DELTA, "clients": 10_000, "cohort": 1}
    few, many = (by(epsilon(**federation, rounds=rounds)) for rounds in (10**7, 10**7 + 1))
    for who, tight in few.items():
        # Replaced clients have twice the epsilon of one that is removed, at a smaller delta.
        most = 1.15 if who[0] == "client" else 4.0
        assert tight < many[who] < most * tight


def test_the_renyi_bound_of_whole_orders_is_no_smaller_than_the_tight_one():
    for noise, rate, steps in ((1.0, 0.01, 1000), (4.0, 0.1, 500), (0.7, 0.001, 10_000)):
        event = event_of([(noise, rate, steps)])
        for adjacency, bound in ((Adjacency.ADD_REMOVE, _by_whole_orders), (Adjacency.REPLACE_ONE, _of_pairs)):
            tight = epsilon_of(event, delta=DELTA, adjacency=adjacency, method=Method.PLD)
            assert tight < bound(event, steps, DELTA, adjacency)
        renyi = epsilon_of(event, delta=DELTA, adjacency=Adjacency.ADD_REMOVE, method=Method.RDP)
        assert _by_whole_orders(event, steps, DELTA, Adjacency.ADD_REMOVE) < 1.1 * renyi
