"""Conformance of every defense of a transfer: shapes, streams, claims and curves, on a small transfer."""

import dataclasses
import json
import math

import numpy as np
import pytest
import torch
from fedassay.audit.claim import Adjacency, Claim, Unit
from fedassay.audit.observer import ANSWERS, FINAL_MODEL, UPLOADS
from fedassay.fl.transfer.protection import TransferContext
from fedassay.fl.transfer.task import ABSTAINED
from known_parts import transfer_parts
from toy_transfer import toy_transfer, toy_transfer_plan

PARTS = transfer_parts("defense")
CORRECT = {name: part for name, part in PARTS.items() if not part.control}
CONTROLS = {name: part for name, part in PARTS.items() if part.control}
EACH = [pytest.param(part, id=name) for name, part in (CORRECT | CONTROLS).items()]
FEW = {"epsilon": 1.0}


@pytest.fixture(scope="module")
def data():
    return toy_transfer((4,) * 12, queries=6)


@pytest.fixture(scope="module")
def plan(data):
    return toy_transfer_plan(data)


def prepared(part, plan):
    """At a small budget, so that runs differ."""
    names = {field.name for field in dataclasses.fields(part)}
    return part(**{name: value for name, value in FEW.items() if name in names}).prepare(plan)


def test_no_file_of_these_folders_is_overlooked():
    assert CORRECT.keys() == {
        "plain_votes",
        "lnmax",
        "gnmax",
        "confident_gnmax",
        "gnmax_data_dependent",
        "grr_votes",
        "unary_votes",
        "gaussian_logits",
    }
    assert len(CONTROLS) >= 6
    assert all(name.startswith("control_") for name in CONTROLS)


@pytest.mark.parametrize("part", EACH)
def test_what_it_states_is_complete_and_repeatable(part, plan):
    claims = prepared(part, plan).claims
    assert prepared(part, plan).claims == claims
    for claim in claims:
        again = Claim.from_dict(json.loads(json.dumps(claim.to_dict())))
        assert (again, again.claim_id) == (claim, claim.claim_id)
        assert claim.rounds == plan.rounds
        assert claim.observer.covers(FINAL_MODEL)
        assert all(
            len(text) > 3 for text in (claim.mechanism, claim.accountant, claim.sampling, claim.trust, claim.source)
        )


@pytest.mark.parametrize("part", EACH)
def test_with_a_trusted_aggregator_the_student_is_the_adversary_and_without_one_the_server(part, plan):
    claims = prepared(part, plan).claims
    kinds = {(claim.unit, claim.adjacency, claim.observer, claim.dp_model) for claim in claims}
    central = {
        (Unit.CLIENT, Adjacency.REPLACE_ONE, ANSWERS, "central"),
        (Unit.SAMPLE, Adjacency.ADD_REMOVE, ANSWERS, "central"),
    }
    local = {(Unit.REPORT, Adjacency.REPLACE_ONE, UPLOADS, "local")}
    assert kinds in (central, local, set())


@pytest.mark.parametrize("part", EACH)
def test_a_stated_curve_agrees_with_the_stated_epsilon_and_delta(part, plan):
    fpr = np.concatenate([np.logspace(-9, -1, 4000), np.linspace(0.1, 1, 2000)])
    for claim in prepared(part, plan).claims:
        assert claim.curve_shortfall() < 1e-9
        if claim.curve is not None:
            allowed = np.max(1 - claim.curve.fnr(fpr) - math.exp(claim.epsilon) * fpr)
            assert 0.9 * claim.delta < allowed <= claim.delta * (1 + 1e-6)


@pytest.mark.parametrize("part", [pytest.param(part, id=name) for name, part in CORRECT.items()])
def test_the_exact_laws_are_those_of_the_releases(part, plan):
    """Shares of 40,000 runs, within five standard errors; the first query's votes are 5, 4 and 3."""
    protection = prepared(part, plan).protection
    votes = torch.tensor([0] * 5 + [1] * 4 + [2] * 3)
    counts = torch.bincount(votes, minlength=3).double()
    logits = torch.nn.functional.one_hot(votes, 3).float().view(1, 12, 1, 3).expand(40_000, 12, 1, 3)
    one = dataclasses.replace(plan, queries=1)
    context, rng = TransferContext(plan=one, replicas=40_000), np.random.default_rng(0)
    if (law := protection.label_law(plan)) is not None:
        released, _ = protection.aggregate_votes(logits, context, {}, rng)
        labels = released.labels[:, 0].where(released.labels[:, 0] != ABSTAINED, torch.tensor(3))
        shares = np.bincount(labels.numpy(), minlength=4) / 40_000
        np.testing.assert_allclose(np.exp(law.log_probabilities(counts.numpy())), shares, atol=5 * 0.5 / 200)
    if (law := protection.answer_law(plan)) is not None:
        answers = protection.teacher_answers(logits[:, :1], context, {}, rng)[:, 0, 0]
        kinds, number = answers.unique(dim=0, return_counts=True)
        likelihoods = np.exp(law.log_likelihoods(kinds.numpy()))
        np.testing.assert_allclose(likelihoods[:, 0], number.numpy() / 40_000, atol=5 * 0.5 / 200)
        assert not np.allclose(likelihoods[:, 0], likelihoods[:, 1], atol=0.01)


@pytest.mark.parametrize(("name", "part"), (CORRECT | CONTROLS).items(), ids=CORRECT | CONTROLS)
def test_controls_are_marked_and_state_what_the_correct_defense_states(name, part, plan):
    assert part.control == name.startswith("control_")
    if part.control:
        (correct,) = [other for other in part.__mro__[1:] if other in CORRECT.values()]
        assert prepared(part, plan).claims == prepared(correct, plan).claims != ()
        assert type(prepared(part, plan).protection) is not type(prepared(correct, plan).protection)
