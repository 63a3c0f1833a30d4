"""Conformance of every attack: what it brings, that its generator and its view alone decide, that truth does not."""

import copy
import dataclasses

import numpy as np
import pytest
import torch
from fedassay.attacks.attack import Level
from fedassay.attacks.membership.shadow_attack import ShadowAttack
from fedassay.attacks.shadow_bank import ShadowBank
from fedassay.audit.evidence import (
    CandidateScores,
    Exposures,
    LabelCounts,
    Reconstructions,
    SourceScores,
    TokenGuesses,
)
from fedassay.audit.observer import FINAL_MODEL
from fedassay.defenses.local.vectors.ldp_gaussian import LDPGaussianProtection
from fedassay.fl.engine import run_federation
from fedassay.fl.objective import NEXT_TOKEN
from fedassay.fl.probe import CandidateProbe
from fedassay.fl.protection import Protection
from fedassay.fl.recorder import LotRecorder, ViewRecorder
from fedassay.fl.streams import Streams
from fedassay.suites.attacking.worst_case import worst_case_hypotheses
from known_parts import parts_by_name
from toy_texts import toy_texts

PROTECTED = {"map_inversion": LDPGaussianProtection(clip_norm=1.0, noise_std=0.01)}
"""Attacks that can do nothing without a law; the others look at an undefended federation."""
MODELS = {"imprint": "imprint"}
"""Attacks that can do nothing without a model of their own; the others look at a logistic regression."""
EACH = [pytest.param(part, id=name) for name, part in parts_by_name("attack").items()]


def bank_of(probe, population, models=8):
    """References with logits of their own; each candidate is in one of every pair."""
    rng, candidates = np.random.default_rng(11), len(probe.shown.labels)
    halves = rng.random((models // 2, candidates)) < 0.5
    return ShadowBank(
        logits=rng.standard_normal((models, candidates)),
        included=np.stack([halves, ~halves], axis=1).reshape(models, candidates),
        population=rng.standard_normal((models, population)),
        ids=np.arange(candidates),
        paired=True,
    )


@pytest.fixture
def observed(toy_task, toy_plan, knowledge_of):
    """(attack, seed of data and training) -> view, knowledge, probe and task of a federation."""

    def run(attack, seed=0):
        named = type(attack).__module__.rpartition(".")[2]
        model = MODELS.get(named, "logistic")
        if attack.tasks == (NEXT_TOKEN,):
            # The texts have fewer places than this rank.
            rank = 16 if named == "adapter_span" else None
            task = toy_texts((2,) * 8, held_out=4, seed=seed, secrets=named == "secret_exposure", rank=rank)
        else:
            task = toy_task((40,) * 4 + (40,) * 4, held_out=4, model=model, outsiders=40, seed=seed)
        plan, protection = toy_plan(task, rounds=2), PROTECTED.get(named, Protection())
        probe = attack.plant(task, np.random.default_rng(5))
        recorder = ViewRecorder(observer=attack.observer)
        lots = {client: LotRecorder(client=client) for client in range(task.clients)}
        final = run_federation(task, plan, protection, Streams(seed), recorders=[recorder, *lots.values()])
        view = recorder.view(plan, final)
        worst = attack.level is Level.WORST_CASE and isinstance(probe, CandidateProbe)
        changes = {
            "level": attack.level,
            "candidates": None if probe is None else probe.shown,
            "hypotheses": worst_case_hypotheses(task, plan, protection, lots, view, probe) if worst else None,
            "shadows": bank_of(probe, len(task.test_labels)) if isinstance(attack, ShadowAttack) else None,
        }
        return view, knowledge_of(task, plan, protection, **changes), probe, task

    return run


def numbers(evidence):
    """All arrays of an attack's evidence."""
    if isinstance(evidence, CandidateScores | SourceScores | Exposures):
        return [evidence.values]
    if isinstance(evidence, LabelCounts):
        return [evidence.counts]
    if isinstance(evidence, TokenGuesses):
        return [evidence.counts, *(evidence.texts or ())]
    assert isinstance(evidence, Reconstructions)
    return [evidence.images, np.zeros(0) if evidence.labels is None else evidence.labels]


def arrays_of(part, view, knowledge, seed=0):
    # What holds for an attack holds after few steps.
    few = {"iterations": 3} if "iterations" in part.__dataclass_fields__ else {}
    return part(**few).run(view, knowledge, np.random.default_rng(seed))


def same(ours, theirs):
    return all(np.array_equal(a, b) for a, b in zip(numbers(ours), numbers(theirs), strict=True))


def brought(part, evidence, probe, task, view):
    """Whether there is a row for each candidate or upload, in the attack's own setting."""
    if isinstance(evidence, CandidateScores | Exposures):
        assert evidence.values.shape == probe.member.shape
    elif isinstance(evidence, SourceScores):
        assert evidence.values.shape == (len(probe.shown.labels), task.clients)
    elif isinstance(evidence, LabelCounts | TokenGuesses):
        assert evidence.counts.shape == (task.clients, task.network.classes)
    else:
        uploads = range(task.clients) if evidence.uploads is None else np.unique(evidence.uploads)
        assert evidence.images.shape[1:] == task.network.shape
        assert list(uploads) == list(range(task.clients))
    assert evidence.setting.observer == part().observer
    assert 1 <= evidence.setting.rounds <= view.plan.rounds


@pytest.mark.parametrize("part", EACH)
def test_an_attack_reads_its_view_and_generator_alone_and_changes_nothing(part, observed):
    """Equal generators, equal evidence, also after the truth was replaced; the view and global generators stay."""
    view, knowledge, probe, task = observed(part())
    states = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    kept = copy.deepcopy([vars(seen) for seen in view.rounds]), view.final_model.clone()
    public = knowledge.public_images.clone()
    evidence = arrays_of(part, view, knowledge)
    brought(part, evidence, probe, task, view)
    assert same(evidence, arrays_of(part, view, knowledge))
    assert torch.equal(torch.get_rng_state(), states[0])
    assert (np.random.get_state()[1] == states[1]).all()  # noqa: NPY002
    assert torch.equal(view.final_model, kept[1])
    assert torch.equal(knowledge.public_images, public)
    for seen, before in zip(view.rounds, kept[0], strict=True):
        assert seen.broadcast is None or torch.equal(seen.broadcast, before["broadcast"])
        assert seen.reports is None or torch.equal(seen.reports.values, before["reports"].values)
    task.images.fill_(0.5)
    task.labels.fill_(0)
    if probe is not None:
        (probe.sample if isinstance(probe, CandidateProbe) else probe.member).fill(-1)
    assert same(evidence, arrays_of(part, view, knowledge))


@pytest.mark.parametrize("part", EACH)
def test_candidates_are_of_both_kinds_and_fixed_by_the_generator(part, toy_task):
    of_texts = part.tasks == (NEXT_TOKEN,)
    task = toy_texts((4,) * 4, held_out=2, secrets=True) if of_texts else toy_task((40,) * 4, held_out=2, outsiders=40)
    first, again = (part().plant(task, np.random.default_rng(5)) for _ in range(2))
    if first is None:
        assert again is None
        return
    assert 0 < first.member.sum() < len(first.member)
    np.testing.assert_array_equal(first.member, again.member)
    if isinstance(first, CandidateProbe):
        assert len(first.member) == len(first.shown.labels)
        np.testing.assert_array_equal(first.sample, again.sample)
    assert torch.equal(first.shown.images, again.shown.images)


@pytest.mark.parametrize("part", EACH)
def test_other_messages_give_other_evidence_but_to_a_null_attack_and_none_are_refused(part, observed):
    """Two runs on other data, one generator: an attack that only draws must not pass for one that looks."""
    view, knowledge, *_ = observed(part())
    ours = arrays_of(part, view, knowledge)
    others = [observed(part(), seed=seed)[0] for seed in (1, 2)]
    assert all(same(ours, arrays_of(part, other, knowledge)) for other in others) == part.null
    if part().observer.rank == FINAL_MODEL.rank:
        assert all(seen.broadcast is None and seen.reports is None for seen in view.rounds)
        return
    blind = [dataclasses.replace(seen, broadcast=None, reports=None, aggregate=None) for seen in view.rounds]
    with pytest.raises(ValueError, match="view"):
        arrays_of(part, dataclasses.replace(view, rounds=tuple(blind)), knowledge)
