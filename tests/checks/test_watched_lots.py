"""Lots against Poisson sampling, every other way of which is named, and a history against what was seen."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from fedassay.audit.check import ACCOUNTED, BLOCKS, LOTS, MULTIPLIER, OVERLAP, RATE, SIZES, STEPS, UPDATES
from fedassay.audit.curve import epsilon_from_mu
from fedassay.checks.watched_lots import _alike, _pair_law, ledger_checks, left_out, lot_checks
from fedassay.defenses.accounting.stated_laws import claim_from_noise
from foreign_runs import NOISE, RECORDS, poisson, recording, shuffled
from foreign_runs import RATE as Q


def of_fixed_size(rng, steps):
    return [tuple(rng.choice(RECORDS, int(Q * RECORDS), replace=False)) for _ in range(steps)]


def at(rates):
    return lambda rng, steps: [tuple(np.flatnonzero(rng.random(RECORDS) < rates)) for _ in range(steps)]


def the_same_each_epoch(rng, steps):
    return (poisson(rng, 5) * steps)[:steps]


def disjoint_of_varying_size(rng, steps):
    lots, left = [], []
    for _ in range(steps):
        size = rng.binomial(RECORDS, Q)
        left = left if len(left) >= size else [*rng.permutation(RECORDS)]
        lots.append(tuple(left[:size]))
        left = left[size:]
    return lots


def windows(rng, steps):
    lots = []
    for _ in range(steps):
        start, size = rng.integers(RECORDS), rng.binomial(RECORDS, Q)
        lots.append(tuple((start + np.arange(size)) % RECORDS))
    return lots


def partners(rng, steps):
    """One coin for a record and another one, far from it."""
    half = RECORDS // 2
    return [tuple(n for k in np.flatnonzero(rng.random(half) < Q) for n in (k, k + half)) for _ in range(steps)]


def two_draws(rng, steps):
    return [(*one, *other) for one, other in zip(poisson(rng, steps), poisson(rng, steps), strict=True)]


def each_twice(rng, steps):
    return [lot for lot in poisson(rng, steps // 2) for _ in range(2)]


def half_of_the_last_lot(rng, steps):
    lots = poisson(rng, steps)
    return [
        (*one[::2], *(n for n in other[::2] if n not in one)) for one, other in itertools.pairwise([*lots, lots[0]])
    ]


def by_class(rng, steps, records=RECORDS):
    """The first fifth of the records three times as often as the others; the mean rate is as accounted."""
    rates = np.where(np.arange(records) < records // 5, 3, 1) * Q / 1.4
    return [tuple(np.flatnonzero(rng.random(records) < rates)) for _ in range(steps)]


def one_record_always(rng, steps):
    return [tuple({7, *lot}) for lot in poisson(rng, steps)]


@pytest.mark.parametrize(
    ("lots", "expected", "cause"),
    [
        (poisson, set(), ""),
        (shuffled, {SIZES, OVERLAP}, "passes over shuffled records"),
        (of_fixed_size, {SIZES}, "fixed size"),
        (at(2 * Q), {RATE}, "sampled more often"),
        (the_same_each_epoch, {OVERLAP}, "one lot is used for several steps"),
        (each_twice, {OVERLAP}, "one lot is used for several steps"),
        (half_of_the_last_lot, {OVERLAP}, "come again in the next one"),
        (disjoint_of_varying_size, {OVERLAP}, "passes over shuffled records"),
        (windows, {BLOCKS}, "adjacent indices"),
        (two_draws, {LOTS}, "twice"),
        (by_class, {RATE}, "unequal rates"),
        (one_record_always, {RATE}, "unequal rates"),
    ],
)
def test_each_way_of_drawing_lots_is_told_from_poisson_sampling(lots, expected, cause):
    found = [one for one in lot_checks(recording(steps=60, lots=lots)) if one.passed is False]
    assert {one.name for one in found} == expected
    assert all(any(cause in (one.cause or one.check.cause) for one in found) for _ in found)


def test_unequal_rates_of_300_records_show_in_ten_lots():
    run, lots = recording(steps=10), by_class(np.random.default_rng(0), 10, 300)
    releases = [replace(one, ids=lot, rows=len(lot)) for one, lot in zip(run.releases, lots, strict=True)]
    found = lot_checks(replace(run, releases=tuple(releases), population=300))
    assert {one.name for one in found if one.passed is False} == {RATE}


def test_two_records_that_one_coin_draws_are_found_wherever_they_are_in_the_data():
    found = [one for one in lot_checks(recording(steps=200, lots=partners)) if one.passed is False]
    assert [one.name for one in found] == [BLOCKS]
    assert "among 200 lots" in found[0].witness


def shuffled_four_fifths(rng, steps):
    size = int(Q * RECORDS)
    epochs = [rng.permutation(RECORDS * 4 // 5) for _ in range(steps)]
    every = [tuple(one[place : place + size]) for one in epochs for place in range(0, len(one) - size + 1, size)]
    return every[:steps]


LESS = [Q * (np.arange(RECORDS) % 5 < 4), Q * np.linspace(0.2, 1.0, RECORDS), Q / 2, 0.0]
"""Rates of the records, at most the accounted one."""


def classes_by_turns(rng, steps):
    turn = np.arange(RECORDS) % 2
    return [tuple(np.flatnonzero((turn == step % 2) & (rng.random(RECORDS) < Q))) for step in range(steps)]


def seldom_after_the_first(rng, steps):
    return [tuple(np.flatnonzero(rng.random(RECORDS) < (Q if step == 0 else Q / 10))) for step in range(steps)]


@pytest.mark.simulations
@pytest.mark.parametrize("lots", [*map(at, LESS), classes_by_turns, seldom_after_the_first])
@pytest.mark.parametrize("steps", [5, 100, 400])
def test_lots_that_draw_records_less_often_than_accounted_are_no_fault(lots, steps):
    # Level 1e-5 for all checks of a run: 36 seeded runs in all.
    for seed in range(2):
        found = lot_checks(recording(steps=steps, lots=lots, seed=seed))
        assert [one.words for one in found if one.passed is False] == []


def test_records_that_are_read_at_the_accounted_rate_and_enter_no_sum_are_counted():
    drawn = poisson(np.random.default_rng(0), 20)
    reads = sum(map(len, drawn))
    halves = recording(steps=20, lots=lambda *_: [lot[::2] for lot in drawn])
    assert f"of {reads} records that were read enter a sum" in left_out(halves, reads)
    assert left_out(recording(steps=20, lots=lambda *_: drawn), 3 * reads) == "", "an evaluation reads records too"
    assert left_out(halves, reads // 2) == "", "lots that are drawn less often"


def test_shuffled_lots_of_a_part_of_the_records_are_found_although_they_are_seldom():
    found = lot_checks(recording(steps=100, lots=shuffled_four_fifths))
    assert {one.name for one in found if one.passed is False} >= {SIZES}


def test_rows_of_one_record_that_are_short_enough_together_are_one_row():
    def twice(rng, steps):
        return [(*one, *one) for one in poisson(rng, steps)]

    whole = recording(steps=20, lots=twice)
    halves = replace(whole, releases=tuple(replace(one, longest=0.5) for one in whole.releases))
    assert [one.passed for one in lot_checks(whole) if one.name == LOTS] == [False]
    assert [one.passed for one in lot_checks(halves) if one.name == LOTS] == [True]


def test_lots_of_a_training_that_goes_on_are_compared_with_its_own_rate():
    held = recording(steps=20)
    later = replace(held, ledger=((3.0, Q / 50, 7), *held.ledger), earlier=7)
    assert [one.passed for one in lot_checks(later)] == [one.passed for one in lot_checks(held)]


def test_lots_that_nothing_was_accounted_for_are_not_compared():
    found = lot_checks(recording(ledger=()))
    assert {one.passed for one in found if one.name != LOTS} == {None}
    found = lot_checks(recording(ledger=((NOISE, 0.1, 4), (NOISE, 0.2, 8))))
    assert "2 different sampling rates" in found[-1].witness


def test_all_records_in_all_steps_need_no_sampling():
    found = lot_checks(recording(lots=lambda rng, steps: [tuple(range(RECORDS))] * steps, ledger=((NOISE, 1.0, 12),)))
    assert {one.passed for one in found} == {True, None}


def test_records_that_take_turns_are_found_in_one_short_epoch():
    held = recording(steps=10, lots=lambda rng, _: [*map(tuple, rng.permutation(20).reshape(10, 2))])
    held = replace(held, population=20, ledger=((NOISE, 0.1, 10),))
    assert {one.name for one in lot_checks(held) if one.passed is False} == {OVERLAP}
    # Two fair coins are equal with probability 1/2.
    assert _alike(np.ones(2), 1, 0.5) == pytest.approx(0.5)


def test_the_law_of_pairs_is_that_of_all_lots_counted_one_by_one():
    rate, steps, records = 0.3, 3, 2
    chances = {}
    for taken in itertools.product((0, 1), repeat=steps * records):
        held = np.reshape(taken, (records, steps)).sum(1)
        chance = np.prod([rate if one else 1 - rate for one in taken])
        pairs = int((held * (held - 1) / 2).sum())
        chances[pairs] = chances.get(pairs, 0.0) + chance
    law = _pair_law(records, steps, rate)
    assert dict(enumerate(law[:7])) == pytest.approx({n: chances.get(n, 0.0) for n in range(7)}, abs=1e-9)
    assert law[7:].max() < 1e-9


def history_failed(run):
    return {one.name for one in ledger_checks(run) if one.passed is False}


@pytest.mark.parametrize(
    ("ledger", "expected"),
    [
        (((NOISE, Q, 12),), set()),
        (((NOISE, Q, 20),), set()),
        (((NOISE, Q, 5), (NOISE, Q, 7)), set()),
        (((NOISE, Q, 11),), {STEPS}),
        ((), {STEPS}),
        (((2 * NOISE, Q, 12),), {MULTIPLIER}),
        (((NOISE, Q, 5), (2 * NOISE, Q, 7)), {MULTIPLIER}),
        (((0.9 * NOISE, Q, 12),), set()),
        # Older steps and other queries are no fault at any place, but each release must be there.
        (((3 * NOISE, Q, 50), (NOISE, Q, 12)), set()),
        (((NOISE, Q, 6), (5 * NOISE, 1.0, 1), (NOISE, Q, 6)), set()),
        (((2 * NOISE, Q, 12), (5 * NOISE, 1.0, 1)), {MULTIPLIER}),
    ],
)
def test_steps_and_noise_of_a_history_are_compared(ledger, expected):
    assert history_failed(recording(ledger=ledger)) == expected


def test_a_printed_epsilon_must_be_that_of_its_history():
    true = claim_from_noise(NOISE, delta=1e-5, sampling_rate=Q, steps=12).epsilon
    for printed, expected in ((true, set()), (1.3 * true, set()), (0.9 * true, {ACCOUNTED})):
        assert history_failed(replace(recording(), accounted=printed, delta=1e-5)) == expected


def test_updates_that_no_release_explains_fail():
    assert history_failed(replace(recording(), steps=13)) == {UPDATES}


def test_without_an_accountant_nothing_is_compared():
    run = replace(recording(), ledger=None, remarks={"ledger": "no accountant was handed over"})
    assert {(one.passed, one.witness) for one in ledger_checks(run)} == {(None, "no accountant was handed over")}


@pytest.mark.parametrize(("noise", "rate", "steps"), [(10.0, 0.005, 800), (4.0, 0.0005, 50_000), (2.0, 0.001, 20_000)])
def test_a_small_epsilon_is_compared_with_its_central_limit(noise, rate, steps):
    limit = epsilon_from_mu(rate * math.sqrt(steps * math.expm1(noise**-2)), 1e-5)
    run = replace(recording(ledger=((noise, rate, steps),)), delta=1e-5)
    assert ACCOUNTED not in history_failed(replace(run, accounted=limit))
    assert ACCOUNTED in history_failed(replace(run, accounted=0.9 * limit))


@pytest.mark.parametrize(
    ("ledger", "expected"),
    [
        (((3 * NOISE, Q, 50), (NOISE, Q, 12)), set()),
        (((NOISE, Q, 62),), set()),
        # The steps of the first training do not stand in for those of this one.
        (((NOISE, Q, 61),), {STEPS}),
        (((NOISE, Q, 50), (2 * NOISE, Q, 12)), {MULTIPLIER}),
    ],
)
def test_a_training_that_goes_on_is_compared_with_what_was_accounted_since_its_start(ledger, expected):
    assert history_failed(replace(recording(ledger=ledger), earlier=50)) == expected


def test_an_epsilon_that_cannot_be_computed_again_is_not_compared(monkeypatch):
    monkeypatch.setattr("fedassay.checks.watched_lots.epsilon_of", lambda *_, **__: math.inf)
    assert history_failed(replace(recording(), accounted=7.0, delta=1e-5)) == set()
