"""Sampling: exact sizes, correct rates, one stream for all rules, and lots as a loop would fill them.

Cohorts without replacement: every client exactly once per pass, in an order of its own per pass, replica and arm.
"""

import math
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pytest
import torch
from fedassay.fl.sampling import Epoch, FixedSize, Full, Poisson, cohort_from, lot_indices, sampling_from
from fedassay.fl.streams import Streams
from hypothesis import given, settings
from hypothesis import strategies as st

RULES = [
    Full(),
    Poisson(0.3),
    Poisson(1.0),
    FixedSize(1),
    FixedSize(4),
    FixedSize(100),
    Epoch(1),
    Epoch(4),
    Epoch(3, same=True, probability=0.4),
]


def rng(purpose="lot"):
    return Streams(3).generator(purpose)


@pytest.mark.parametrize("probability", [0.02, 0.3, 0.97])
def test_poisson_draws_each_one_at_its_rate_and_the_sizes_scatter_binomially(probability):
    replicas, n = 4000, 25
    mask = Poisson(probability).draw(rng(), replicas, n)
    # Five standard errors on the whole and on each column: under 2e-5 false alarms in all.
    error = math.sqrt(probability * (1 - probability) / replicas)
    assert abs(float(mask.double().mean()) - probability) < 5 * error / math.sqrt(n)
    assert bool(((mask.double().mean(0) - probability).abs() < 5 * error).all())
    # The variance of the sizes shows whether draws are independent; its error is about sqrt(2 / replicas) of it.
    variance = float(mask.sum(1).double().var())
    assert variance == pytest.approx(n * probability * (1 - probability), rel=5 * math.sqrt(2 / replicas))


def test_fixed_size_draws_exactly_that_many_and_every_subset_as_often():
    replicas = 6000
    mask = FixedSize(2).draw(rng(), replicas, 4)
    assert mask.sum(1).unique().tolist() == [2]
    subsets, counts = np.unique(mask.numpy(), axis=0, return_counts=True)
    assert len(subsets) == 6
    # Chi-square with 5 degrees of freedom is above 25.7 with probability 1e-4.
    assert float(((counts - 1000) ** 2 / 1000).sum()) < 25.7


@pytest.mark.parametrize("size", [1, 3, 7, 8])
@pytest.mark.parametrize("values", [2, 3, 2**24])
def test_fixed_size_draws_the_smallest_numbers_and_of_equal_ones_the_first(size, values):
    class Few:
        """A generator with few values, whose draws tie."""

        def random(self, shape, dtype):
            self.drawn = (rng().integers(values, size=shape) / values).astype(dtype)
            return self.drawn

    few = Few()
    mask = FixedSize(size).draw(few, 50, 8).numpy()
    for row, drawn in zip(mask, few.drawn, strict=True):
        first = sorted(range(8), key=lambda item: (drawn[item], item))[:size]
        assert row.nonzero()[0].tolist() == sorted(first)


@pytest.mark.parametrize(("rounds", "n", "sizes"), [(4, 12, {3}), (3, 10, {3, 4}), (5, 2, {0, 1})])
def test_a_pass_draws_every_item_once_in_batches_of_nearly_equal_size(rounds, n, sizes):
    rule = Epoch(rounds)
    turns = torch.stack([rule.draw(rng(), 6, n, turn) for turn in range(rounds)])
    assert bool((turns.sum(0) == 1).all())
    assert set(turns.sum(2).unique().tolist()) == sizes
    assert (rule.fewest(n), rule.most(n)) == (min(sizes), max(sizes))


def test_in_a_pass_every_item_is_as_likely_in_every_round():
    shares = torch.stack([Epoch(3).draw(rng(), 6000, 6, turn).double().mean(0) for turn in range(3)])
    # 18 shares of 1/3, each with a standard error of .0061: five of them.
    assert float((shares - 1 / 3).abs().max()) < 5 * math.sqrt(2 / 9 / 6000)


def test_passes_of_the_same_order_follow_the_numbers_of_the_items_and_coins_are_drawn_anew():
    """Item i comes in round i, modulo 3; of 4,000 replicas each coin is .4 within five standard errors, and two items'
    coins are independent.
    """
    rule = Epoch(3, same=True)
    assert [rule.draw(rng(), 1, 7, turn)[0].nonzero().flatten().tolist() for turn in range(3)] == [
        [0, 3, 6],
        [1, 4],
        [2, 5],
    ]
    some = Epoch(3, same=True, probability=0.4)
    turns = torch.stack([some.draw(rng(), 4000, 6, turn) for turn in range(3)]).double()
    assert float(turns.sum(0).mean(0).sub(0.4).abs().max()) < 5 * math.sqrt(0.24 / 4000)
    together = (turns[0, :, 0] * turns[1, :, 1]).mean()
    assert abs(float(together) - 0.16) < 5 * math.sqrt(0.16 * 0.84 / 4000)
    assert (some.rate(6), some.fewest(6), some.most(6)) == (pytest.approx(0.4 / 3), 0, 2)


def test_a_client_takes_part_once_per_pass_also_in_one_that_is_cut_short():
    assert [Epoch(4).participations(rounds) for rounds in (1, 4, 5, 8, 9)] == [1, 1, 2, 2, 3]
    assert [Epoch(4).pass_start(round) for round in (0, 3, 4, 9)] == [0, 0, 4, 8]
    for rule in (Full(), Poisson(0.1), FixedSize(2)):
        assert (rule.participations(9), rule.pass_start(5)) == (9, 5)


def test_every_rule_leaves_the_stream_at_the_same_place():
    following = []
    for rule in RULES:
        stream = rng()
        rule.draw(stream, 6, 11)
        following.append(stream.random())
    assert len(set(following)) == 1


def test_a_larger_rate_or_size_adds_to_the_same_draw():
    for rules in ([Poisson(p) for p in (0.1, 0.5, 0.9)], [FixedSize(k) for k in (1, 3, 8)]):
        for fewer, more in pairwise([rule.draw(rng(), 40, 10) for rule in rules]):
            assert bool((fewer <= more).all())
            assert not torch.equal(fewer, more)


def test_replicas_and_streams_draw_differently():
    mask = Poisson(0.5).draw(rng(), 2, 64)
    assert not torch.equal(mask[0], mask[1])
    assert not torch.equal(mask, Poisson(0.5).draw(rng("cohort"), 2, 64))


@settings(derandomize=True, max_examples=100, deadline=None)
@given(
    st.integers(1, 5).flatmap(
        lambda n: st.lists(st.lists(st.booleans(), min_size=n, max_size=n), min_size=1, max_size=4)
    )
)
def test_lots_are_what_a_loop_would_list_and_padding_is_marked(rows):
    indices, real = lot_indices(torch.tensor(rows))
    longest = max(1, max(sum(row) for row in rows))
    assert indices.shape == real.shape == (len(rows), longest)
    for row, chosen, marks in zip(rows, indices.tolist(), real.tolist(), strict=True):
        drawn = [sample for sample, taken in enumerate(row) if taken]
        assert [sample for sample, mark in zip(chosen, marks, strict=True) if mark] == drawn
        assert marks == [True] * len(drawn) + [False] * (longest - len(drawn))
        assert all(not row[sample] for sample, mark in zip(chosen, marks, strict=True) if not mark)


@pytest.mark.parametrize(
    ("spec", "rule", "of_cohorts"),
    [
        ("full", Full(), Full()),
        ({"poisson": 0.1}, Poisson(0.1), Poisson(0.1)),
        ({"poisson": 1}, Poisson(1.0), Poisson(1.0)),
        ({"fixed_size": 32}, FixedSize(32), FixedSize(32)),
        ({"epoch": 500}, None, Epoch(20)),
        ({"epoch": 500, "same": True, "probability": 0.1}, None, Epoch(20, same=True, probability=0.1)),
        ({"epoch": 10_000, "same": True, "probability": 0.1}, None, Epoch(1, same=True, probability=0.1)),
        ({"epoch": 9999}, None, Epoch(2)),
        ({"epoch": 10_000}, None, Full()),
        ({"epoch": 10_001}, None, Full()),
    ],
)
def test_a_suite_file_names_the_rules(spec, rule, of_cohorts):
    assert cohort_from(spec, 10_000) == of_cohorts
    if rule is not None:
        assert sampling_from(spec) == rule


def of_nine(spec):
    return cohort_from(spec, 9)


@pytest.mark.parametrize(
    ("parser", "spec", "message"),
    [
        (of_nine, {"epoch": 0}, r"epoch, .* must be a whole number >= 1, got 0"),
        (of_nine, {"epochs": 3}, r"sampling must be .*\{ epoch = N \}.*known: epoch,"),
        (of_nine, {"epoch": 3, "poisson": 0.1}, "field of the sampling rule epoch must be .*, got 'poisson'"),
        (of_nine, {"epoch": 3, "same": 1}, "same .* must be true or false, got 1"),
        (of_nine, {"epoch": 3, "probability": 0}, r"probability must be in \(0, 1\], got 0"),
        (
            of_nine,
            {"epoch": 3, "probability": 0.5},
            "same must be true .one order for all passes. if probability is below 1, got 0.5",
        ),
        (sampling_from, {"epoch": 3}, "lots must be full, Poisson or of fixed size"),
        (Epoch, 0, "Epoch rounds must be a whole number >= 1, got 0"),
        (sampling_from, "poison", r"got 'poison' \(known: poisson,"),
        (sampling_from, {"fixed": 3}, r"got \{'fixed': 3\} \(known: fixed_size,"),
        (sampling_from, "poisson", "poisson = RATE"),
        (sampling_from, {}, "sampling must be"),
        (sampling_from, 0.1, "got 0.1"),
        (sampling_from, {"poisson": 0.1, "fixed_size": 3}, "sampling must be"),
        (sampling_from, {"poisson": None}, "sampling must be"),
        (sampling_from, {"poisson": 0}, r"probability must be in \(0, 1\], got 0"),
        (sampling_from, {"fixed_size": 0}, "whole number >= 1, got 0"),
    ],
)
def test_any_other_spelling_is_refused_with_what_was_given(parser, spec, message):
    with pytest.raises(ValueError, match=message):
        parser(spec)


ROUNDS, PASS, CLIENTS = 8, 4, 8


def presences(trained, **changes):
    """Who took part: booleans ``(rounds, replicas, clients)``."""
    given = {"sizes": (2,) * CLIENTS, "seed": 3, "replicas": 3, "rounds": ROUNDS, "cohort": Epoch(PASS)} | changes
    rows = []
    for event in trained(**given).events:
        there = torch.zeros(event.reports.present.shape[0], CLIENTS, dtype=torch.bool)
        there[:, list(event.reports.senders)] = event.reports.present
        rows.append(there)
    return torch.stack(rows)


def is_one_pass_after_the_other(there):
    """Whether every client takes part exactly once in every pass of every replica."""
    return bool((there.reshape(-1, PASS, *there.shape[1:]).sum(1) == 1).all())


@dataclass(frozen=True)
class OrderPerRound(Epoch):
    """A planted bug: every round draws an order of its own, which is sampling with replacement across rounds."""

    def pass_start(self, round):
        return round

    def draw(self, rng, replicas, n, turn=0):
        return super().draw(rng, replicas, n, 0)


@pytest.mark.parametrize(("cohort", "right"), [(Epoch(PASS), True), (OrderPerRound(PASS), False)])
def test_every_client_takes_part_exactly_once_per_pass_and_an_order_per_round_is_caught(trained, cohort, right):
    there = presences(trained, cohort=cohort)
    assert there.sum(2).unique().tolist() == [CLIENTS // PASS]
    assert is_one_pass_after_the_other(there) is right


def test_two_passes_replicas_blocks_and_arms_have_other_orders(trained):
    orders = [
        there[start : start + PASS, replica].flatten().tolist()
        for block, arm in ((0, 0), (0, 1), (1, 0))
        for there in [presences(trained, block=block, arm=arm)]
        for replica in range(3)
        for start in (0, PASS)
    ]
    # 2,520 orders of 8 clients in 4 pairs: 18 of them differ with probability .94, and this seed's do.
    assert len({tuple(order) for order in orders}) == len(orders)


@pytest.mark.parametrize("stop", [1, 3, 4, 6])
def test_a_resumed_run_goes_on_with_the_pass_that_was_interrupted(trained, stop):
    states = []
    whole = presences(trained, more={"on_round_end": states.append})
    assert torch.equal(presences(trained, more={"resume_from": states[stop - 1]}), whole[stop:])
