"""Conformance checks of attacks on every kind of federation."""

import copy
import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import torch
from sklearn.metrics import roc_auc_score

from ...attacks.attack import Attack, Evidence, Knowledge, Level, Undefined
from ...attacks.membership.shadow_attack import ShadowAttack
from ...attacks.shadow_bank import ShadowBank
from ...attacks.transfer.vote_attack import VoteAttack, VoteKnowledge
from ...attacks.vertical.attack import VerticalAttack, VerticalEvidence, VerticalKnowledge
from ...audit.evidence import AttributeScores, LabelCounts, Reconstructions, TokenGuesses, VoteScores
from ...audit.parts import Spec
from ...defenses.local.vectors.ldp_gaussian import LDPGaussianProtection
from ...defenses.transfer.gnmax import GNMax
from ...fl.candidates import PlantedCandidates, PlantedOwners, PlantedRecords
from ...fl.engine import run_federation
from ...fl.protection import Protection
from ...fl.recorder import LotRecorder, View, ViewRecorder
from ...fl.streams import Streams
from ...fl.task import Task
from ...fl.transfer.engine import run_transfer
from ...fl.transfer.protection import counts_of, votes_of
from ...fl.transfer.recorder import AnswerRecorder
from ...fl.vertical.engine import run_vertical
from ...fl.vertical.protection import VerticalProtection
from ...fl.vertical.view import VerticalRecorder
from ..attacking.worst_case import worst_case_hypotheses
from .check import (
    CheckedPart,
    ConformanceCheck,
    NotConforming,
    built,
    can_be_sent,
    equal,
    no_global_randomness,
    require,
)
from .toys import toy_plan, toy_task, toy_transfer, vertical_plans

_Found = TypeVar("_Found")

_SURROUNDINGS: tuple[tuple[Spec, Protection], ...] = (
    ("logistic", Protection()),
    ("imprint", Protection()),
    ("logistic", LDPGaussianProtection(clip_norm=1.0, noise_std=0.01)),
    ("text_transformer", Protection()),
    # The texts have 32 places, fewer than this rank.
    ({"part": "text_lora", "rank": 48}, Protection()),
)
"""Models and protections on which an attack is tried in turn: some need a layer or a law of their own."""


@dataclass(frozen=True, kw_only=True)
class Observed:
    """A federation as an attack observes it, together with the truth, which the attack does not observe."""

    view: View
    knowledge: Knowledge
    planted: PlantedCandidates | PlantedOwners | None
    task: Task


def runs(subject: CheckedPart) -> str | None:
    """It runs on a small federation and returns evidence in the setting of its observer."""
    attack: Attack = subject.make()
    seen = _observed(attack)
    evidence = _evidence(attack, seen)
    setting = evidence.setting
    require(
        setting.observer == attack.observer,
        f"the evidence must name the observer {attack.observer}, got {setting.observer}",
    )
    require(
        1 <= setting.rounds <= seen.view.plan.rounds,
        f"the evidence must cover 1 to {seen.view.plan.rounds} rounds, got {setting.rounds}",
    )
    arrays = _arrays(evidence)
    require(all(np.isfinite(array).all() for array in arrays), "the evidence holds NaN or infinity")
    if seen.planted is not None and hasattr(evidence, "values"):
        shown = evidence.values.size if isinstance(evidence, AttributeScores) else len(evidence.values)
        require(shown == len(seen.planted.member), "the attack must give one row of scores per candidate")
    clients, network = seen.task.clients, seen.task.network
    if isinstance(evidence, LabelCounts | TokenGuesses):
        require(evidence.counts.shape == (clients, network.classes), "the attack must count each class for each upload")
    if isinstance(evidence, Reconstructions):
        uploads = range(clients) if evidence.uploads is None else np.unique(evidence.uploads)
        require(list(uploads) == list(range(clients)), "the attack must give images of each upload")
        require(
            evidence.images.shape[1:] == network.shape,
            f"the images must have shape {network.shape}, got {evidence.images.shape[1:]}",
        )
    return type(evidence).__name__


def looks(subject: CheckedPart) -> None:
    """Evidence from other runs differs, unless it is marked as a null attack."""
    attack: Attack = subject.make()
    seen = _observed(attack)
    ours, others = _arrays(_evidence(attack, seen)), [_observed(attack, seed=seed).view for seed in (1, 2, 3)]
    same = all(equal(ours, _arrays(_evidence(attack, dataclasses.replace(seen, view=view)))) for view in others)
    require(
        not same or attack.null,
        "the evidence is the same for three runs: set null = True in its class if it ignores the run",
    )
    require(
        same or not attack.null,
        "the attack's class sets null = True (it ignores the run), but its evidence differs between runs",
    )


def deterministic(subject: CheckedPart) -> None:
    """Equal generators give equal evidence and equal candidates, and no global generator is used."""
    attack: Attack = subject.make()
    seen = _observed(attack)
    with no_global_randomness():
        first, again = (_arrays(_evidence(attack, seen)) for _ in range(2))
        plans = [attack.plant(seen.task, np.random.default_rng(5)) for _ in range(2)]
    require(
        equal(first, again),
        "two calls with equal generators give different evidence: it keeps state, or draws from another generator",
    )
    require((plans[0] is None) == (plans[1] is None), "two calls with equal generators give different candidates")
    if plans[0] is not None and plans[1] is not None:
        member = plans[0].member
        require(equal(member, plans[1].member), "two calls with equal generators give different candidates")
        require(
            equal(plans[0].shown.images, plans[1].shown.images),
            "two calls with equal generators show different candidates",
        )
        require(0 < member.sum() < member.size, "the candidates must include both members and non-members")


def inputs_kept(subject: CheckedPart) -> None:
    """It changes nothing of what it is given."""
    attack: Attack = subject.make()
    seen = _observed(attack)
    kept = copy.deepcopy(_given(seen))
    _evidence(attack, seen)
    require(equal(_given(seen), kept), "the attack changed the models or the public data that it was given")


def _given(seen: Observed) -> list[Any]:
    """What an attack may read: models, public data, and what it sees of each round."""
    rounds = [value for one in seen.view.rounds for value in (one.broadcast, one.reports and one.reports.values)]
    return [seen.view.final_model, seen.knowledge.public_images, seen.knowledge.public_labels, *rounds]


def blind_to_the_truth(subject: CheckedPart) -> None:
    """Replacing the truth after the run changes nothing of its evidence."""
    attack: Attack = subject.make()
    seen = _observed(attack)
    before = _arrays(_evidence(attack, seen))
    seen.task.images.fill_(0.5)
    seen.task.labels.fill_(0)
    if seen.planted is not None:
        (seen.planted.sample if isinstance(seen.planted, PlantedCandidates) else seen.planted.member).fill(-1)
    require(
        equal(before, _arrays(_evidence(attack, seen))),
        "the evidence depends on the members or on private images",
    )


def null_case(subject: CheckedPart) -> str | None:
    """On models that never saw the candidates, its scores do not separate members from others."""
    attack: Attack = subject.make()
    seen = _observed(attack)
    others = not isinstance(seen.planted, PlantedCandidates) or isinstance(seen.planted, PlantedRecords)
    if seen.planted is None or others or attack.level is Level.WORST_CASE:
        return "not checked: only attacks of a realistic adversary that score candidate samples have this check"
    truth = seen.planted.member.copy()
    other = dataclasses.replace(seen, view=_observed(attack, seed=1).view)
    found = np.asarray(_arrays(_evidence(attack, other))[0], dtype=float)
    share, spread = _auc(found, truth)
    require(
        abs(share - 0.5) <= 4.5 * spread,
        f"AUC {share:.2f}, where chance gives 0.5 +- {spread:.2f}: it learns the members from something other than "
        "its view",
    )
    own = _auc(np.asarray(_arrays(_evidence(attack, seen))[0], dtype=float), truth)[0]
    return f"AUC {share:.2f} on models that trained on other samples, {own:.2f} on models that trained on the members"


def less_is_refused(subject: CheckedPart) -> str | None:
    """It refuses a view that lacks what its observer sees, with a ValueError."""
    attack: Attack = subject.make()
    seen = _observed(attack)
    if all(one.broadcast is None and one.reports is None for one in seen.view.rounds) or attack.null:
        return "not applicable"
    blind = tuple(dataclasses.replace(one, broadcast=None, reports=None, aggregate=None) for one in seen.view.rounds)
    try:
        _evidence(attack, dataclasses.replace(seen, view=dataclasses.replace(seen.view, rounds=blind)))
    except ValueError:
        return None
    raise NotConforming("the attack returned evidence from a view without models and uploads")


def _observed(attack: Attack, seed: int = 0) -> Observed:
    """A new federation, of the first of ``_SURROUNDINGS`` on which the attack runs."""
    errors: list[ValueError] = []
    for model, protection in _SURROUNDINGS:
        try:
            _evidence(attack, _federation(attack, model, protection, seed))
            return _federation(attack, model, protection, seed)  # Built again: the attack may have changed the first.
        except ValueError as error:
            errors.append(error)
    raise errors[0]


def _federation(attack: Attack, model: Spec, protection: Protection, seed: int) -> Observed:
    task = toy_task(clients=4, held_out=4, model=model, seed=seed, count=480)
    plan = toy_plan(task)
    planted = attack.plant(task, np.random.default_rng(5))
    recorder = ViewRecorder(observer=attack.observer)
    lots = {client: LotRecorder(client=client) for client in range(task.clients)}
    final = run_federation(task, plan, protection, Streams(seed), recorders=[recorder, *lots.values()])
    view = recorder.view(plan, final)
    changes: dict[str, Any] = {"candidates": None if planted is None else planted.shown}
    if attack.level is Level.WORST_CASE and isinstance(planted, PlantedCandidates):
        changes["hypotheses"] = worst_case_hypotheses(task, plan, protection, lots, view, planted)
    if isinstance(attack, ShadowAttack) and planted is not None:
        changes["shadows"] = _bank(len(planted.member), len(task.test_labels))
    knowledge = Knowledge.of(task, plan, protection, level=attack.level, **changes)
    return Observed(view=view, knowledge=knowledge, planted=planted, task=task)


def _bank(candidates: int, population: int, models: int = 8) -> ShadowBank:
    """Reference models with random logits; each candidate is in one of every pair."""
    rng = np.random.default_rng(11)
    halves = rng.random((models // 2, candidates)) < 0.5
    return ShadowBank(
        logits=rng.standard_normal((models, candidates)),
        included=np.stack([halves, ~halves], axis=1).reshape(models, candidates),
        population=rng.standard_normal((models, population)),
        ids=np.arange(candidates),
        paired=True,
    )


def _evidence(attack: Attack, seen: Observed) -> Evidence:
    # What holds for an attack holds after few steps.
    if "iterations" in attack.__dataclass_fields__:
        attack = dataclasses.replace(attack, iterations=3)  # type: ignore[call-arg]
    found = attack.run(seen.view, seen.knowledge, np.random.default_rng(0))
    if not hasattr(found, "setting"):
        raise NotConforming(f"run must return evidence, such as CandidateScores, got {type(found).__name__}")
    return found


def _arrays(evidence: Evidence) -> list[np.ndarray]:
    """The arrays of an attack's evidence."""
    named = (getattr(evidence, name, None) for name in ("values", "counts", "images", "labels"))
    return [np.asarray(value) for value in named if value is not None]


def _auc(scores: np.ndarray, member: np.ndarray) -> tuple[float, float]:
    """The area under the ROC curve, and its standard deviation under chance."""
    values = scores.reshape(len(scores), -1)[:, 0]
    pairs = int(member.sum() * (~member).sum())
    return float(roc_auc_score(member, values)), ((len(values) + 1) / (12 * pairs)) ** 0.5


def _vertical_evidence(attack: VerticalAttack) -> VerticalEvidence | None:
    """What the attack returns on a federation without a defense; None where it is not defined there."""
    task, plan = next(vertical_plans())
    streams, people = Streams(1), task.people
    recorder = VerticalRecorder(observer=attack.observer)
    final = run_vertical(task, plan, VerticalProtection(), streams, recorders=[recorder], speeds=attack.speeds(0))
    worst = attack.level is Level.WORST_CASE
    knowledge = VerticalKnowledge(
        level=attack.level,
        plan=plan,
        public=task.public,
        prior=torch.full((2,), 0.5, dtype=torch.float64),
        known=torch.arange(6),
        known_labels=people.labels[:6],
        initial=task.network.initial(streams),
        candidates=people.chosen(torch.arange(10)) if attack.infers == "membership" else None,
        final=final if worst else None,
        columns=people.columns if worst else None,
    )
    view = recorder.view(plan, final, columns=people.columns, labels=people.labels)
    return _defined(lambda: attack.run(view, knowledge, np.random.default_rng(5)))


def vertical_runs(subject: CheckedPart) -> str | None:
    """It runs on a small vertical federation, and returns evidence in the setting of its observer."""
    attack: VerticalAttack = subject.make()
    evidence = _vertical_evidence(attack)
    if evidence is None:
        return "the attack gives no evidence on a federation without a defense"
    seen = evidence.setting.observer
    require(seen == attack.observer, f"the evidence must name the observer {attack.observer}, got {seen}")
    wanted = {"labels": "PersonLabels", "columns": "PersonColumns", "membership": "CandidateScores"}[attack.infers]
    require(type(evidence).__name__ == wanted, f"the attack infers {attack.infers} and must return {wanted}")
    return wanted


def _transfer_evidence(attack: VoteAttack) -> VoteScores | None:
    """What the attack returns on a transfer under GNMax, which publishes a law; None where it is not defined there."""
    data, plan = toy_transfer()
    protection = GNMax().prepare(plan).protection
    require(attack.teacher < plan.teachers, f"teacher must be below {plan.teachers} here, got {attack.teacher}")
    recorder = AnswerRecorder(observer=attack.observer)
    logits = torch.from_numpy(np.random.default_rng(4).normal(size=(1, plan.teachers, plan.queries, plan.classes)))
    run_transfer(data, plan, protection, Streams(1), logits=logits.float(), recorders=[recorder])
    others = counts_of(votes_of(logits))[0] - votes_of(logits)[0, attack.teacher]
    known = others.double().numpy() if attack.level is Level.WORST_CASE else None
    knowledge = VoteKnowledge.of(plan, protection, others=known)
    return _defined(lambda: attack.run(recorder.view, knowledge, np.random.default_rng(5)))


def transfer_runs(subject: CheckedPart) -> str | None:
    """It runs on a small transfer under GNMax, and returns scores of all queries in the setting of its observer."""
    attack: VoteAttack = subject.make()
    evidence = _transfer_evidence(attack)
    if evidence is None:
        return "the attack gives no evidence on a transfer under the defense GNMax"
    require(isinstance(evidence, VoteScores), f"the attack must return VoteScores, got {type(evidence).__name__}")
    seen, plan = evidence.setting.observer, toy_transfer()[1]
    require(seen == attack.observer, f"the evidence must name the observer {attack.observer}, got {seen}")
    wanted = (plan.queries, plan.classes)
    require(evidence.values.shape == wanted, f"the scores must have shape {wanted}, got {evidence.values.shape}")
    return None


def _defined(run: Callable[[], _Found]) -> _Found | None:
    """What an attack returns; None where it is not defined in the federation of the check."""
    try:
        found = run()
    except Undefined:
        return None
    require(found is not None, "run(view, knowledge, rng) must return evidence, got None")
    return found


def repeats(subject: CheckedPart) -> None:
    """Equal generators give equal evidence, and no global generator is used."""
    attack = subject.make()
    evidence = _vertical_evidence if isinstance(attack, VerticalAttack) else _transfer_evidence
    with no_global_randomness():
        first, again = (evidence(attack) for _ in range(2))
    require(
        (first is None) == (again is None),
        "two calls with equal generators differ: one gives evidence and the other gives none",
    )
    require(
        first is None or again is None or equal(vars(first), vars(again)),
        "two calls with equal generators give different evidence",
    )


ATTACK_CHECKS: tuple[ConformanceCheck, ...] = (
    built,
    runs,
    deterministic,
    inputs_kept,
    blind_to_the_truth,
    null_case,
    looks,
    less_is_refused,
    can_be_sent,
)
VERTICAL_ATTACK_CHECKS: tuple[ConformanceCheck, ...] = (built, vertical_runs, repeats, can_be_sent)
TRANSFER_ATTACK_CHECKS: tuple[ConformanceCheck, ...] = (built, transfer_runs, repeats, can_be_sent)
