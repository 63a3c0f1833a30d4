"""What holds for every attack on a vertical federation; each runs after a small training with noise on all messages.

Membership by losses under the final models: what overfitting shows, and that it alone shows something.

A passive party's own bottom model, completed with few known labels, against learning from them alone.
"""

from dataclasses import replace

import numpy as np
import pytest
import torch
from fedassay.attacks.attack import Level, Undefined
from fedassay.attacks.vertical.active_completion import ActiveCompletion
from fedassay.attacks.vertical.attack import VerticalAttack
from fedassay.attacks.vertical.drawn_labels import DrawnLabels
from fedassay.attacks.vertical.imputed_labels import ImputedLabels
from fedassay.attacks.vertical.majority_label import MajorityLabel
from fedassay.attacks.vertical.model_completion import ModelCompletion
from fedassay.attacks.vertical.random_membership import RandomMembership
from fedassay.attacks.vertical.vertical_membership import VerticalMembership
from fedassay.audit.evidence import CandidateScores, PersonColumns, PersonLabels
from fedassay.audit.metrics import ScoresByRun, area
from fedassay.audit.observer import FINAL_MODEL
from fedassay.fl.streams import normal
from fedassay.fl.vertical.network import VerticalNetwork
from fedassay.fl.vertical.protection import Noise, Noised, VerticalLaw, VerticalProtection
from fedassay.fl.vertical.task import People
from fedassay.suites.config.part_files import own_parts
from torch.nn.functional import cross_entropy
from vertical_adversary import LINEAR, LOGISTIC, accuracy, auc, drawn_task, observed

LOADED = {name: part.load() for name, part in own_parts("attack").items()}
ATTACKS = {name: part for name, part in LOADED.items() if issubclass(part, VerticalAttack)}
EACH = [pytest.param(part, id=name) for name, part in ATTACKS.items()]
LAW = VerticalLaw(noised=Noised.RESIDUALS, noise=Noise.GAUSSIAN, scale=0.5, releases=2)


class Noisy(VerticalProtection):
    """Noise on all that is sent, so that runs of other seeds have other messages and models."""

    def embeddings(self, values, party, context, rng):
        return values + 0.1 * normal(rng, tuple(values.shape))

    def residuals(self, values, context, rng):
        return values + 0.5 * normal(rng, tuple(values.shape))


def candidates(task):
    """Half of the people take part, half are public."""
    columns = tuple(torch.cat(pair) for pair in zip(task.people.columns, task.public.columns, strict=True))
    return People(columns=columns, labels=torch.cat([task.people.labels, task.public.labels]))


def run_against(part, seed=0, network=LOGISTIC, **changes):
    # Not equally frequent, so that the rarer class is known.
    task, plan = drawn_task(network, 60, shares=(0.7, 0.3), batch=20)
    facts = {"law": LAW, "candidates": candidates(task), "columns": task.people.columns}
    return observed(task, plan, Noisy(), observer=part.observer, seed=seed, **(facts | changes))


def arrays_of(evidence):
    if isinstance(evidence, CandidateScores):
        return [evidence.values]
    if isinstance(evidence, PersonColumns):
        return [evidence.rows, evidence.people]
    assert isinstance(evidence, PersonLabels)
    return [evidence.scores, evidence.people]


# No seed of the people's draws: those of an attack would be the same numbers.
def found_by(part, seen, seed=11):
    return part().run(seen.view, seen.knowledge, np.random.default_rng(seed))


def same(one, other):
    return all(np.array_equal(a, b) for a, b in zip(arrays_of(one), arrays_of(other), strict=True))


def test_all_three_secrets_are_attacked_and_each_has_a_null_attack():
    kinds = {infers: [part.null for part in ATTACKS.values() if part.infers == infers] for infers in secrets()}
    assert all(any(nulls) and not all(nulls) for nulls in kinds.values())


def secrets():
    return ("labels", "columns", "membership")


def brought(part, found):
    """Whether there is a row for each person, in the attack's own setting; the first 20 people's labels are known."""
    if part.infers == "labels":
        assert found.scores.shape == (40, 2)
        assert found.people.tolist() == list(range(20, 60))
    elif part.infers == "columns":
        assert found.rows.shape == (60, 5)
        assert found.people.tolist() == list(range(60))
    else:
        assert found.values.shape == (360,)
    assert (found.setting.observer, found.setting.rounds) == (part.observer, 2)


@pytest.mark.parametrize("part", EACH)
def test_an_attack_reads_its_view_alone(part):
    """Equal findings after the truth was replaced bit for bit."""
    seen = run_against(part)
    found = found_by(part, seen)
    brought(part, found)
    assert part().level is Level.REALISTIC
    other = replace(seen, view=run_against(part, seed=1).view)
    assert same(found, found_by(part, other)) == part.null
    if part.infers != "labels":
        seen.task.people.columns[0].fill_(7.0)
    if part.infers != "columns":
        seen.task.people.labels.fill_(0)
    assert same(found, found_by(part, seen))


@pytest.mark.parametrize("part", EACH)
def test_a_view_of_another_observer_is_refused(part):
    if part.null and part.__name__ not in ("ImputedLabels", "ImputedColumns"):
        return
    seen = run_against(part)
    blind = replace(seen.view, steps=(), columns=None, labels=None, own=None, final=None)
    with pytest.raises(ValueError, match="view must hold"):
        found_by(part, replace(seen, view=blind))


def test_a_faster_party_is_the_only_deviation_from_the_protocol():
    speeds = {name: part().speeds(1) for name, part in ATTACKS.items()}
    assert {name for name, one in speeds.items() if one} == {name for name, part in ATTACKS.items() if part.active}
    assert speeds["active_completion"] == {1: 5.0}


RNG = np.random.default_rng(11)
NETWORK = VerticalNetwork(widths=(20, 20), classes=2, embedding=6, hidden=(10,))
BOTH = [VerticalMembership(), VerticalMembership(calibration="public")]
COUNT = 60


def federation(epochs):
    """60 members, 60 people who are not, and 140 other public people; labels are independent of columns."""
    task, plan = drawn_task(NETWORK, COUNT, signal=0.0, public=200, epochs=epochs, batch=20, learning_rate=0.5)
    outside, public = task.public.chosen(torch.arange(COUNT)), task.public.chosen(torch.arange(COUNT, 200))
    columns = tuple(torch.cat(pair) for pair in zip(task.people.columns, outside.columns, strict=True))
    both = People(columns=columns, labels=torch.cat([task.people.labels, outside.labels]))
    return observed(task, plan, observer=FINAL_MODEL, candidates=both, public=public)


def area_of(attack, seen, member=slice(0, COUNT), nonmember=slice(COUNT, None)):
    values = attack.run(seen.view, seen.knowledge, RNG).values
    return area(ScoresByRun.of(values[member], values[nonmember]))


@pytest.mark.parametrize("attack", BOTH)
def test_members_of_an_overfitted_federation_have_low_losses(attack):
    assert area_of(attack, federation(60)) > 0.9


@pytest.mark.parametrize("attack", [*BOTH, RandomMembership()])
def test_people_of_whom_none_took_part_are_alike(attack):
    """The halves of those outside: the area of 30 and 30 scores is within 4 standard deviations, .3, of 1/2 (6e-5)."""
    found = area_of(attack, federation(60), slice(COUNT, COUNT + 30), slice(COUNT + 30, None))
    assert abs(found - 0.5) < 4 * np.sqrt(61 / (12 * 30 * 30))


def test_the_score_is_the_loss_of_all_parties_models():
    seen = federation(2)
    shown = seen.knowledge.candidates
    values = VerticalMembership().run(seen.view, seen.knowledge, RNG).values
    outputs = [
        bottom.forward(layers, rows.unsqueeze(0))[0]
        for bottom, layers, rows in zip(NETWORK.bottoms, seen.final.bottoms, shown.columns, strict=True)
    ]
    logits, _ = NETWORK.logits(seen.final.top, tuple(outputs))
    np.testing.assert_allclose(-values, cross_entropy(logits[0], shown.labels, reduction="none").numpy(), atol=1e-5)


def test_calibrated_scores_are_ranks_among_public_people_of_the_class():
    seen = federation(5)
    found = VerticalMembership(calibration="public").run(seen.view, seen.knowledge, RNG).values
    losses = -VerticalMembership().run(seen.view, seen.knowledge, RNG).values
    asked = replace(seen.knowledge, candidates=seen.knowledge.public)
    public, labels = -VerticalMembership().run(seen.view, asked, RNG).values, seen.knowledge.public.labels.numpy()
    for person in (0, 50, 100):
        same = public[labels == int(seen.knowledge.candidates.labels[person])]
        assert found[person] == pytest.approx((same > losses[person]).mean())


def test_a_class_without_public_people_is_ranked_among_all():
    seen = federation(5)
    zeros = seen.knowledge.public.chosen(seen.knowledge.public.labels == 0)
    found = VerticalMembership(calibration="public").run(seen.view, replace(seen.knowledge, public=zeros), RNG)
    assert ((found.values >= 0) & (found.values <= 1)).all()


@pytest.mark.parametrize("attack", [*BOTH, RandomMembership()])
def test_without_candidates_there_is_nothing_to_score(attack):
    seen = federation(1)
    with pytest.raises(ValueError, match="needs candidates"):
        attack.run(seen.view, replace(seen.knowledge, candidates=None), RNG)


def test_an_unknown_calibration_is_refused():
    with pytest.raises(ValueError, match='"none" or "public"'):
        VerticalMembership(calibration="all")


WIDE = VerticalNetwork(widths=(40, 4), classes=2, embedding=2, summed=True)


def wide(learning_rate=0.1, **changes):
    """Many columns and few known labels: a federation learns the direction, and ten people alone do not."""
    task, plan = drawn_task(WIDE, 1000, signal=0.2, epochs=5, learning_rate=learning_rate)
    return observed(task, plan, known=10, **changes)


def test_the_trained_model_adds_to_the_known_labels():
    seen = wide()
    completed, alone = (
        auc(attack.run(seen.view, seen.knowledge, RNG), seen.task.people.labels)
        for attack in (ModelCompletion(), ImputedLabels())
    )
    assert completed > alone + 0.05


def test_a_faster_party_infers_more_from_a_short_training():
    """.87 and .94 here; after a long training the party's own speed makes no difference."""
    attack = ActiveCompletion(speed=5.0)
    plain, fast = (
        auc(attack.run(seen.view, seen.knowledge, RNG), seen.task.people.labels)
        for seen in (wide(0.01), wide(0.01, speeds=dict(attack.speeds(0))))
    )
    assert fast > plain + 0.03


def test_a_frozen_model_cannot_be_trained_faster():
    task, plan = drawn_task(LINEAR, frozen=True)
    seen = observed(task, plan)
    with pytest.raises(Undefined, match="not trained"):
        ActiveCompletion().run(seen.view, seen.knowledge, RNG)


def test_a_class_without_known_people_is_the_least_likely():
    network = VerticalNetwork(widths=(5, 4), classes=3, embedding=3, summed=True)
    task, plan = drawn_task(network)
    seen = observed(task, plan)
    two = torch.nonzero(task.people.labels < 2)[:20, 0]
    few = replace(seen.knowledge, known=two, known_labels=task.people.labels[two])
    scores = ModelCompletion().run(seen.view, few, RNG).scores
    assert (scores.argmin(1) == 2).all()


def test_drawn_labels_follow_the_prior_and_the_majority_is_its_largest_class():
    """2,000 draws: the share of class 1 is within 4 standard errors, .04, of .3."""
    task, plan = drawn_task(LOGISTIC, 2000, epochs=1)
    seen = observed(task, plan, known=0, prior=torch.tensor([0.7, 0.3]))
    drawn = DrawnLabels().run(seen.view, seen.knowledge, RNG)
    assert drawn.scores[:, 1].mean() == pytest.approx(0.3, abs=0.04)
    assert (drawn.scores.sum(1) == 1).all()
    found = MajorityLabel().run(seen.view, seen.knowledge, RNG)
    assert accuracy(found, task.people.labels) == float((task.people.labels == 0).double().mean())
    assert auc(found, task.people.labels) == 0.5
