"""Conformance of every defense of a vertical federation: shapes, streams, hooks, claims, laws and spending."""

import copy
import dataclasses
import json
import math

import numpy as np
import pytest
import torch
from fedassay.audit.claim import AS_PUBLISHED, NOT_PROVABLE, PROVABLE, Claim, Unit
from fedassay.audit.observer import ACTIVE_PARTY, FINAL_MODEL, PASSIVE_PARTY
from fedassay.defenses.vertical.columns.embedding_gaussian import EmbeddingGaussian
from fedassay.defenses.vertical.without_dp.unprotected import Unprotected
from fedassay.fl.streams import Streams
from fedassay.fl.vertical.engine import run_vertical
from fedassay.fl.vertical.network import VerticalNetwork
from fedassay.fl.vertical.protection import VerticalProtection
from fedassay.fl.vertical.task import predicted
from known_parts import vertical_parts
from toy_vertical import BINARY, LOGISTIC, SPLIT, Events, context_of, steps_of, toy_vertical

PARTS = vertical_parts("defense")
EACH = [pytest.param(part(), id=name) for name, part in PARTS.items()] + [
    pytest.param(EmbeddingGaussian(bottom_clip=1.0), id="embedding_gaussian by DP-SGD")
]
DEEP = VerticalNetwork(widths=(3, 4, 2), classes=3, embedding=2, hidden=(4,), top_hidden=(5,))
UNCLIPPED = {"ControlEmbeddingUnclipped"}


def planned(defense, network=LOGISTIC, **settings):
    """A task and a plan that the defense takes, with trained bottom models if it takes these."""
    settings |= {"learning_rate": 0.01}
    words = refusal(defense, toy_vertical(network, **settings)[1])
    assert not words or "frozen = true" in words
    task, plan = toy_vertical(network, frozen=bool(words), **settings)
    return task, plan, defense.prepare(plan)


def refusal(defense, plan):
    """Why a defense cannot be prepared for a plan; empty if it can."""
    try:
        defense.prepare(plan)
    except ValueError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("network", [LOGISTIC, SPLIT, DEEP])
@pytest.mark.parametrize("defense", EACH)
def test_a_federation_trains_under_it_and_each_replica_is_a_run_of_its_own(defense, network):
    task, plan, prepared = planned(defense, network, n=120, batch=40)
    states = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    before = copy.deepcopy(vars(prepared.protection))
    steps, again = (steps_of(task, plan, prepared.protection, replicas=2) for _ in range(2))
    assert len(steps) == plan.steps
    for step, same in zip(steps, again, strict=True):
        for sent, repeated in zip(
            (*step.gradients, *step.embeddings), (*same.gradients, *same.embeddings), strict=True
        ):
            assert bool(sent.isfinite().all())
            assert sent.dtype == torch.float32
            assert torch.equal(sent, repeated)
    last = steps[-1].gradients[0]
    assert prepared.claims == () or not torch.equal(last[0], last[1])
    assert torch.equal(torch.get_rng_state(), states[0])
    assert (np.random.get_state()[1] == states[1]).all()  # noqa: NPY002
    for name, value in vars(prepared.protection).items():
        assert torch.equal(value, before[name]) if isinstance(value, torch.Tensor) else value == before[name]


@pytest.mark.parametrize("defense", EACH)
def test_new_people_are_predicted(defense):
    task, plan, prepared = planned(defense)
    final = run_vertical(task, plan, prepared.protection, Streams(1))
    logits = predicted(final, task.test, plan, prepared.protection, Streams(1))
    assert logits.shape == (1, 30, plan.network.classes)
    assert bool(logits.isfinite().all())


@pytest.mark.parametrize("defense", EACH)
def test_what_it_states_is_complete_and_repeatable(defense):
    _, plan, prepared = planned(defense)
    assert defense.prepare(plan).claims == prepared.claims
    for claim in prepared.claims:
        read = Claim.from_dict(json.loads(json.dumps(claim.to_dict())))
        assert (read, read.claim_id) == (claim, claim.claim_id)
        assert claim.rounds == plan.epochs
        assert claim.curve_shortfall() < 1e-6
        by_unit = {Unit.LABEL: (PASSIVE_PARTY, FINAL_MODEL), Unit.SAMPLE: (ACTIVE_PARTY,)}
        assert claim.observer in by_unit[claim.unit]
        texts = (claim.mechanism, claim.accountant, claim.sampling, claim.trust, claim.source)
        assert all(len(text) > 3 for text in texts)
    ids = {claim.claim_id for claim in prepared.claims}
    assert set(prepared.laws) == ids
    assert len(ids) == len(prepared.claims)


@pytest.mark.parametrize("defense", EACH)
def test_what_the_epochs_spend_grows_to_what_is_stated(defense):
    _, plan, prepared = planned(defense)
    for claim in prepared.claims:
        spent = prepared.spending[claim.claim_id]
        assert 0 < spent(1) <= spent(plan.epochs)
        assert spent(plan.epochs) == pytest.approx(claim.epsilon, rel=5e-3)


@pytest.mark.parametrize(("name", "part"), PARTS.items(), ids=PARTS)
def test_controls_are_marked_and_state_what_the_correct_defense_states(name, part):
    assert part.control == name.startswith("control_")
    if not part.control:
        return
    (correct,) = [other for other in part.__mro__[1:] if other in PARTS.values()]
    _, plan, broken = planned(part())
    found = correct(**part().fields()).prepare(plan)
    assert broken.claims == found.claims != ()
    assert set(broken.laws) == set(found.laws)
    same = type(broken.protection) is type(found.protection)
    differing = [key for key, value in vars(found.protection).items() if not equal(value, vars(broken.protection)[key])]
    assert not same or len(differing) == 1


def equal(one, other):
    return torch.equal(one, other) if isinstance(one, torch.Tensor) else one == other


@pytest.mark.parametrize("defense", EACH)
def test_no_embedding_without_a_number_passes_a_hook_that_states_a_claim(defense):
    _, plan, prepared = planned(defense, epochs=1)
    own = type(prepared.protection).embeddings is not VerticalProtection.embeddings
    if not (own and prepared.claims) or type(defense).__name__ in UNCLIPPED:
        return
    wild = torch.tensor([[[math.nan] * 3, [math.inf, -math.inf, 1.0], [1e38] * 3]])
    assert bool(prepared.protection.embeddings(wild, 0, context_of(plan), np.random.default_rng(0)).isfinite().all())


@pytest.mark.parametrize("part", [part for part in PARTS.values() if hasattr(part, "variant") and not part.control])
def test_what_is_stated_as_published_states_what_is_provable(part):
    for steps, key in (({}, NOT_PROVABLE), ({"epochs": 1, "batch": 12}, PROVABLE)):
        _, plan = toy_vertical(LOGISTIC, **steps)
        for claim in part(variant=AS_PUBLISHED).prepare(plan).claims:
            assert key in claim.parameters
        for claim in part().prepare(plan).claims:
            assert not claim.parameters.keys() & {PROVABLE, NOT_PROVABLE}


def test_a_control_refuses_a_variant_that_does_not_have_what_it_breaks():
    control = PARTS["control_residual_noise_shared"](variant=AS_PUBLISHED)
    with pytest.raises(
        ValueError, match=r"overrides what its correct defense does not have: .* has no clip_norm, which GradientNoise"
    ):
        control.prepare(toy_vertical(LOGISTIC)[1])


def test_all_but_the_missing_defense_state_claims():
    states = {name for name, part in PARTS.items() if planned(part())[2].claims}
    assert PARTS.keys() - states == {"unprotected"}


def test_a_recorder_sees_labels_that_are_not_raw():
    """The targets of a defense of labels are what the active party trains on; those of residual noise stay raw."""
    for name, raw in (("label_randomised_response", False), ("label_laplace", False), ("label_gradient_noise", True)):
        task, plan, prepared = planned(PARTS[name](epsilon=0.1))
        kept = Events()
        run_vertical(task, plan, prepared.protection, Streams(1), recorders=[kept])
        found = [step.targets[0].argmax(-1).equal(task.people.labels[step.people]) for step in kept.steps]
        assert all(found) == raw


def test_fields_of_controls_are_those_of_the_correct_version():
    for part in PARTS.values():
        if part.control:
            (correct,) = [other for other in part.__mro__[1:] if other in PARTS.values()]
            assert {field.name for field in dataclasses.fields(part)} == {
                field.name for field in dataclasses.fields(correct)
            }


@pytest.mark.parametrize("name", ["redraw", "sends_once"])
@pytest.mark.parametrize("value", ["no", 1, None])
def test_switches_are_true_or_false(name, value):
    parts = [part for part in PARTS.values() if name in {field.name for field in dataclasses.fields(part)}]
    assert len(parts) >= 2
    for part in parts:
        with pytest.raises(ValueError, match=f"{name} must be true or false"):
            part(**{name: value})


def test_the_federation_without_a_defense_states_nothing():
    prepared = Unprotected().prepare(toy_vertical(BINARY)[1])
    assert (prepared.claims, dict(prepared.laws), dict(prepared.spending)) == ((), {}, {})
