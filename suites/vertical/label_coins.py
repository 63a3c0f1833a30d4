"""Audit a claim about labels in one run of the federation: by a coin for each label, or with the labels as they are.

By coins: a fair coin decides which of two labels each of many people has. If one label is changed, the output's
distribution changes by at most the claim. So the number of coins that are guessed rightly from the output is at most
that of Steinke, Nasr and Jagielski (2023, theorem 5.2), whose proof needs no more than that each coin decides between
two neighbouring data sets. Half of the people teach the score, whose coins are known, and the guesses are about the
other half.

With the labels as they are: the adversary knows the labels of half of the people. On a part of them it learns, for each
label, a score that separates people with this label from others by the gradients about them, and on the rest how much a
score speaks for the label. It guesses the labels of those people for whom one label's odds are raised most.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import torch

from ...audit.arrays import BoolArray, FloatArray, IntArray
from ...audit.claim import Adjacency, Claim
from ...audit.estimators.joint_point import best_bound
from ...audit.estimators.label_guesses import LabelGuesses, label_guesses_measured
from ...audit.estimators.one_run import guess
from ...audit.estimators.one_run_claim import guesses_on, planned_guesses, read_guesses
from ...audit.evidence import CandidateScores, Design, Guesses, Setting
from ...audit.measurement import Measurement
from ...fl.streams import Streams
from ...fl.vertical.engine import Planted, run_vertical
from ...fl.vertical.protection import VerticalPlan, VerticalProtection
from ...fl.vertical.task import VerticalTask
from .discriminant import discriminant
from .received import GradientsByPerson


def measured_in_one_run(
    claim: Claim,
    task: VerticalTask,
    plan: VerticalPlan,
    protection: VerticalProtection,
    *,
    streams: Streams,
    pair: tuple[int, int],
    alpha: float,
) -> Measurement:
    """Return the lower bound on epsilon from one training in which each person has either label of ``pair``: the best
    of those from what each passive party is sent in the epochs that the claim covers, which share alpha.
    """
    coins = streams.generator("label coins").integers(2, size=plan.people) == 1
    labels = torch.from_numpy(np.where(coins, pair[1], pair[0])).unsqueeze(0)
    parties, epochs = range(plan.network.passive), min(claim.rounds, plan.epochs)
    seen = [GradientsByPerson(plan.people, party) for party in parties]
    run_vertical(task, plan, protection, streams, planted=Planted(labels=labels), recorders=seen, stop_after=epochs)
    words = f"one run in which a fair coin gives each of {plan.people} people label {pair[0]} or {pair[1]}"
    return best_bound(
        [_of_party(claim, one, coins, epochs, streams, alpha=alpha / len(parties), words=words) for one in seen]
    )


def _of_party(
    claim: Claim,
    seen: GradientsByPerson,
    coins: BoolArray,
    epochs: int,
    streams: Streams,
    *,
    alpha: float,
    words: str,
) -> Measurement:
    # The first half is taken by number: people are numbered independently of the coins.
    half = len(coins) // 2
    scores = scored(seen.rows(), coins, half)
    setting = Setting(
        unit=claim.unit,
        adjacency=Adjacency.REPLACE_ONE,
        observer=claim.observer,
        rounds=epochs,
        design=Design.ONE_RUN,
    )
    candidates, guesses = CandidateScores(scores, setting), {}
    for estimator, made in guesses_on(claim, len(scores), alpha=alpha).items():
        fewer = made // 2
        rng = streams.generator("guess ties")
        guesses[estimator] = guess(candidates, coins[half:], highest=made - fewer, lowest=fewer, rng=rng)
    return read_guesses(claim, guesses, alpha=alpha, witness=f"{words}, at passive party {seen.party + 1}")


def most_in_one_run(claim: Claim, people: int, parties: int, *, alpha: float) -> float:
    """Return the largest epsilon that one run can certify: the bound if all guesses about the half of
    ``people`` whose labels teach no score are right; ``parties``: passive ones, which share alpha.
    """
    share = alpha / parties
    setting = replace(Setting.claimed(claim), design=Design.ONE_RUN)
    guessed = people - people // 2
    guesses = {
        estimator: Guesses(made, made, guessed, setting)
        for estimator, made in guesses_on(claim, guessed, alpha=share).items()
    }
    return read_guesses(claim, guesses, alpha=share, witness="all guesses right").epsilon_low


def scored(rows: FloatArray, coins: BoolArray, half: int) -> FloatArray:
    """Return scores of the people after the first ``half``, higher means coin 1, learned on the first."""
    taught, known = rows[:half], coins[:half]
    if known.all() or not known.any():
        return np.zeros(len(rows) - half)
    score: Callable[[FloatArray], FloatArray] = discriminant(taught[~known], taught[known])
    return score(rows[half:])


_LEAST = 2
"""People of either kind, with a label and without, from whom a score of this label is learned."""
_LEAST_VARIANCE = 1e-9
"""Of scores whose two means are 1 apart."""


def measured_by_labels(
    claim: Claim,
    task: VerticalTask,
    plan: VerticalPlan,
    protection: VerticalProtection,
    *,
    streams: Streams,
    prior: Sequence[float] | None,
    alpha: float,
) -> Measurement:
    """Return a lower bound on epsilon, or an estimate where no ``prior`` is stated: the largest of those from what each
    passive party is sent in the epochs that the claim covers, which share alpha.

    ``prior``: (classes,), the largest probability of each label given any columns.
    """
    parties = range(plan.network.passive)
    seen = [GradientsByPerson(plan.people, party) for party in parties]
    run_vertical(task, plan, protection, streams, recorders=seen, stop_after=min(claim.rounds, plan.epochs))
    found = [
        _guessed_by_party(claim, task, plan, one, streams=streams, prior=prior, alpha=alpha / len(parties))
        for one in seen
    ]
    if prior is not None:
        return best_bound(found)
    # Without an estimate, not even the largest epsilon that is looked at accounts for the right guesses.
    return max(found, key=lambda one: math.inf if one.estimate is None else one.estimate)


def _guessed_by_party(
    claim: Claim,
    task: VerticalTask,
    plan: VerticalPlan,
    seen: GradientsByPerson,
    *,
    streams: Streams,
    prior: Sequence[float] | None,
    alpha: float,
) -> Measurement:
    labels = task.people.labels.numpy()
    half = plan.people // 2
    rises = raised(seen.rows(), labels[:half], task.network.classes)
    made = planned_guesses(len(rises), epsilon=claim.epsilon, delta=0.0, alpha=alpha)
    # Among equal ones by chance: the order of the people must not matter.
    shuffled = streams.generator("guess ties").permutation(len(rises))
    chosen = shuffled[np.argsort(-rises.max(1)[shuffled], kind="stable")[:made]]
    guessed = rises.argmax(1)[chosen]
    setting = replace(Setting.claimed(claim), adjacency=Adjacency.REPLACE_ONE, rounds=min(claim.rounds, plan.epochs))
    guesses = LabelGuesses(
        made=tuple(np.bincount(guessed, minlength=task.network.classes).tolist()),
        right=int((guessed == labels[half:][chosen]).sum()),
        people=len(rises),
        setting=replace(setting, design=Design.ONE_RUN),
    )
    return label_guesses_measured(
        guesses,
        shares(task) if prior is None else prior,
        alpha=alpha,
        known=prior is not None,
        epsilon=claim.epsilon,
        witness=_witness(plan.people, half, seen.party, known=prior is not None),
    )


def _witness(people: int, known_people: int, party: int, *, known: bool) -> str:
    """What was run, and what is not known."""
    words = f"one run with the labels of {people} people as they are, {known_people} of them known"
    words += f", at passive party {party + 1}"
    return words if known else f"{words}; no prior of labels given columns is stated, and columns alone may show labels"


def shares(task: VerticalTask) -> tuple[float, ...]:
    """Return the share of each label among the public people, each counted once more than it occurs."""
    counts = np.bincount(task.public.labels.numpy(), minlength=task.network.classes) + 1.0
    return tuple((counts / counts.sum()).tolist())


def raised(rows: FloatArray, known: IntArray, classes: int) -> FloatArray:
    """Return by how much the rows of people without a known label raise the log odds of each label:
    ``(people, classes)``; the first rows are those of the people with ``known`` labels.
    """
    taught = len(known) // 2
    found = np.full((len(rows) - len(known), classes), -np.inf)
    for label in range(classes):
        own = known == label
        if all(_both(part) for part in (own[:taught], own[taught:])):
            score = discriminant(rows[:taught][~own[:taught]], rows[:taught][own[:taught]])
            found[:, label] = _log_odds(score(rows[taught : len(known)]), own[taught:], score(rows[len(known) :]))
    return found if bool(np.isfinite(found).any()) else np.zeros_like(found)


def _both(own: BoolArray) -> bool:
    return min(int(own.sum()), int((~own).sum())) >= _LEAST


def _log_odds(scores: FloatArray, own: BoolArray, new: FloatArray) -> FloatArray:
    """The log likelihood ratio of new scores, of two normal distributions of one variance."""
    high, low = scores[own], scores[~own]
    gap = high.mean() - low.mean()
    if gap == 0:
        return np.zeros(len(new))
    # In units of the gap, so that scores without any spread raise the odds by a finite number.
    variance = (high.var() * len(high) + low.var() * len(low)) / len(scores) / gap**2
    return np.asarray((new - (high.mean() + low.mean()) / 2) / gap / max(variance, _LEAST_VARIANCE))
