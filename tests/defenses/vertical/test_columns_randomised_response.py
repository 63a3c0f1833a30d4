"""Randomised columns: calibration, channel, post-processing by trained models, and refusals."""

import math

import numpy as np
import pytest
import torch
from fedassay.audit.claim import Unit
from fedassay.audit.observer import ACTIVE_PARTY
from fedassay.defenses.accounting.pure import composed_epsilon
from fedassay.defenses.controls.vertical import ControlColumnsInFull
from fedassay.defenses.vertical.columns.columns_randomised_response import ColumnsRandomisedResponse
from fedassay.defenses.vertical.defense import ONE_PARTY
from fedassay.fl.streams import Streams
from fedassay.fl.vertical.engine import run_vertical
from fedassay.fl.vertical.network import VerticalNetwork
from fedassay.fl.vertical.protection import VerticalProtection
from fedassay.fl.vertical.task import predicted
from scipy.stats import binom
from toy_vertical import LOGISTIC, SPLIT, steps_of, toy_vertical, with_rows

DEEP = VerticalNetwork(widths=(3, 2), classes=3, embedding=4, hidden=(5,), top_hidden=(6,))


@pytest.mark.parametrize("delta", [0.0, 1e-5])
@pytest.mark.parametrize("buckets", [2, 5])
def test_the_numbers_of_a_person_share_the_budget_at_each_party(delta, buckets):
    _, plan = toy_vertical(SPLIT, epochs=50)
    prepared = ColumnsRandomisedResponse(epsilon=3.0, delta=delta, buckets=buckets).prepare(plan)
    for each, width in zip(prepared.protection.epsilons, (3, 4), strict=True):
        assert composed_epsilon(each, releases=width, delta=delta) == pytest.approx(3.0, rel=1e-6)
    (claim,) = prepared.claims
    assert (claim.unit, claim.observer, claim.part) == (Unit.SAMPLE, ACTIVE_PARTY, ONE_PARTY)
    # Released once: the first epoch spends everything.
    assert prepared.spending[claim.claim_id](1) == pytest.approx(3.0, rel=1e-6)
    assert prepared.spending[claim.claim_id](50) == pytest.approx(3.0, rel=1e-6)


def test_numbers_are_rounded_to_buckets_and_released_as_often_as_the_table_says():
    """Exact binomial test of 20,000 numbers at level 1e-6; an epsilon of 1.2 for 1 is found."""
    _, plan = toy_vertical(LOGISTIC)
    values = torch.tensor([-7.0, 0.1, 0.4, 3.0, math.nan, math.inf, -math.inf, 1e38]).repeat(20_000)[:20_000]
    nearest = torch.tensor([0.0, 0.0, 0.5, 1.0, 0.0, 1.0, 0.0, 1.0]).repeat(20_000)[:20_000]
    for epsilon, fits in ((1.0, True), (1.2, False)):
        protection = ColumnsRandomisedResponse(epsilon=3 * epsilon, buckets=3).prepare(plan).protection
        sent = protection.columns(values.view(1, -1, 1), 0, plan, np.random.default_rng(0)).flatten()
        assert sent.unique().tolist() == [0, 0.5, 1]
        inside = binom(20_000, math.e / (math.e + 2)).interval(1 - 1e-6)
        assert (inside[0] <= int((sent == nearest).sum()) <= inside[1]) == fits


@pytest.mark.parametrize("network", [LOGISTIC, DEEP])
def test_everything_is_computed_from_the_released_columns_also_by_trained_models(network):
    """With what is released played back, other columns move no message and no model."""
    task, plan = toy_vertical(network, epochs=3)
    inner = ColumnsRandomisedResponse().prepare(plan).protection
    tape = []

    class Played(VerticalProtection):
        def columns(self, values, party, plan, rng):
            if not tape:
                tape.append(inner.columns(values, party, plan, rng))
            return tape[0]

    first = steps_of(task, plan, Played())
    second = steps_of(task, plan, Played(), planted=with_rows(4, {0: [40.0, -30.0, 5.0]}))
    for x, y in zip(first, second, strict=True):
        assert all(torch.equal(a, b) for a, b in zip(x.embeddings, y.embeddings, strict=True))
        assert all(torch.equal(a, b) for a, b in zip(x.models.bottoms[0], y.models.bottoms[0], strict=True))
    # The same bottoms do show other columns of one person in what is sent about others without the defense.
    raw = [
        steps_of(task, plan, VerticalProtection(), planted=with_rows(4, rows)) for rows in ({}, {0: [9.0, 9.0, 9.0]})
    ]
    last = zip(raw[0][-1].embeddings, raw[1][-1].embeddings, strict=True)
    assert not all(torch.equal(a, b) for a, b in last)


def test_columns_are_drawn_once_with_draws_of_their_own_for_each_replica():
    task, plan = toy_vertical(LOGISTIC, epochs=2, batch=12, learning_rate=1e-9)
    protection = ColumnsRandomisedResponse().prepare(plan).protection
    steps = steps_of(task, plan, protection, replicas=3)
    orders = [step.people.argsort() for step in steps]
    sent = [step.embeddings[0][:, order] for step, order in zip(steps, orders, strict=True)]
    torch.testing.assert_close(sent[0], sent[1], atol=1e-6, rtol=0)
    assert not torch.allclose(sent[0][0], sent[0][1], atol=1e-3)


def test_new_people_are_randomised_too():
    task, plan = toy_vertical(LOGISTIC, n=12)
    prepared = ColumnsRandomisedResponse(epsilon=900.0).prepare(plan)
    final = run_vertical(task, plan, prepared.protection, Streams(3))
    exact = [predicted(final, task.test, plan, prepared.protection, Streams(seed)) for seed in (0, 1)]
    torch.testing.assert_close(exact[0], exact[1])
    weak = ColumnsRandomisedResponse(epsilon=1.0).prepare(plan).protection
    drawn = [predicted(final, task.test, plan, weak, Streams(seed)) for seed in (0, 1)]
    assert not torch.allclose(drawn[0], drawn[1])


def test_the_control_gives_each_column_the_whole_budget():
    _, plan = toy_vertical(SPLIT)
    prepared = ControlColumnsInFull(epsilon=1.0).prepare(plan)
    assert prepared.claims == ColumnsRandomisedResponse(epsilon=1.0).prepare(plan).claims
    assert prepared.protection.epsilons == pytest.approx((1.0, 1.0))


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"buckets": 1}, "buckets"),
        ({"buckets": 10**12}, "buckets must be at most 1000, got 1000000000000"),
        *(
            ({"bounds": wrong}, "bounds must be two numbers")
            for wrong in ((1.0, 1.0), (0.0, math.nan), (0.0, math.inf), (False, 1.0), ("0", 1.0), (0.0,), 1.0)
        ),
        ({"epsilon": -1.0}, "epsilon"),
    ],
)
def test_wrong_settings_are_refused(wrong, words):
    with pytest.raises(ValueError, match=words):
        ColumnsRandomisedResponse(**wrong)
