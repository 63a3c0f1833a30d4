"""What holds for every attack on a vertical federation; each runs after a small training with noise on all messages."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from fedassay.attacks.attack import Level
from fedassay.attacks.vertical.attack import VerticalAttack
from fedassay.audit.evidence import CandidateScores, PersonColumns, PersonLabels
from fedassay.fl.streams import normal
from fedassay.fl.vertical.protection import Noise, Noised, VerticalLaw, VerticalProtection
from fedassay.fl.vertical.task import People
from fedassay.suites.config.part_files import own_parts
from vertical_adversary import LOGISTIC, auc_deviations, drawn_task, observed

LOADED = {name: part.load() for name, part in own_parts("attack").items()}
ATTACKS = {name: part for name, part in LOADED.items() if issubclass(part, VerticalAttack)}
EACH = [pytest.param(part, id=name) for name, part in ATTACKS.items()]
ON_LABELS = [pytest.param(part, id=name) for name, part in ATTACKS.items() if part.infers == "labels"]
LAW = VerticalLaw(noised=Noised.RESIDUALS, noise=Noise.GAUSSIAN, scale=0.5, releases=2)


class Noisy(VerticalProtection):
    """Noise on all that is sent, so that runs of other seeds have other messages and models."""

    def embeddings(self, values, party, context, rng):
        return values + 0.1 * normal(rng, tuple(values.shape))

    def residuals(self, values, context, rng):
        return values + 0.5 * normal(rng, tuple(values.shape))


class RandomTargets(VerticalProtection):
    """Targets that are drawn uniformly: nothing depends on the labels."""

    def targets(self, one_hot, context, rng):
        drawn = torch.from_numpy(rng.integers(one_hot.shape[-1], size=one_hot.shape[:-1]))
        return torch.nn.functional.one_hot(drawn, one_hot.shape[-1]).to(one_hot)


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
def test_an_attack_reads_its_view_and_generator_alone(part):
    """Equal generators, equal findings, also after the truth was replaced bit for bit; global generators stay."""
    seen = run_against(part)
    states = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    found = found_by(part, seen)
    brought(part, found)
    assert part().level is Level.REALISTIC
    assert same(found, found_by(part, seen))
    assert torch.equal(torch.get_rng_state(), states[0])
    assert (np.random.get_state()[1] == states[1]).all()  # noqa: NPY002
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


@pytest.mark.parametrize("part", ON_LABELS)
def test_an_attack_on_labels_is_at_chance_when_nothing_depends_on_them(part):
    """Columns are independent of labels, and targets are drawn: the AUC is within 4 standard deviations of 1/2, which
    it leaves with probability 6e-5 for scores without ties, less with them.
    """
    law = VerticalLaw(noised=Noised.TARGETS, channel=torch.full((2, 2), 0.5), releases=1)
    task, plan = drawn_task(LOGISTIC, 600, shares=(0.7, 0.3), signal=0.0, batch=100)
    seen = observed(task, plan, RandomTargets(), law=law)
    assert abs(auc_deviations(found_by(part, seen), task.people.labels)) < 4


def test_a_faster_party_is_the_only_deviation_from_the_protocol():
    speeds = {name: part().speeds(1) for name, part in ATTACKS.items()}
    assert {name for name, one in speeds.items() if one} == {name for name, part in ATTACKS.items() if part.active}
    assert speeds["active_completion"] == {1: 5.0}
