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
from functools import partial

import numpy as np
import torch
from torch import Tensor

from ...audit.arrays import BoolArray, FloatArray, IntArray
from ...audit.claim import Adjacency, Claim
from ...audit.estimators.joint_point import best_bound
from ...audit.estimators.label_guesses import LabelGuesses, label_guesses_measured
from ...audit.estimators.one_run_claim import best_of_guesses, measured_by_guesses, planned_guesses
from ...audit.evidence import CandidateScores, Design, Setting
from ...audit.measurement import Measurement
from ...fl.vertical.engine import Planted, StepEvent
from ...fl.vertical.task import VerticalTask
from .case import VerticalCase
from .scores import discriminant


class GradientsByPerson:
    """A recorder of the gradients that one passive party receives about each person, epoch by epoch."""

    def __init__(self, people: int, party: int = 0) -> None:
        self.party = party
        self.found: list[list[Tensor]] = [[] for _ in range(people)]

    def watch(self, event: StepEvent) -> None:
        """Record a finished step."""
        for place, person in enumerate(event.people.tolist()):
            self.found[person].append(event.gradients[self.party][0, place])

    def rows(self) -> FloatArray:
        """Return each person's gradients of all epochs, joined to one row: (people, numbers)."""
        return torch.stack([torch.cat(parts) for parts in self.found]).double().numpy()


def measured_in_one_run(case: VerticalCase, pair: tuple[int, int], *, alpha: float) -> Measurement:
    """Return a lower bound on epsilon from one training in which each person has a random one of the labels ``pair``.
    It is the best of the bounds from what each passive party receives in the epochs that the claim covers; the bounds
    share alpha.
    """
    people, parties = case.plan.people, range(case.plan.network.passive)
    coins = case.streams.generator("label coins").integers(2, size=people) == 1
    labels = torch.from_numpy(np.where(coins, pair[1], pair[0])).unsqueeze(0)
    seen = [GradientsByPerson(people, party) for party in parties]
    case.trained(seen, planted=Planted(labels=labels))
    words = f"one run in which a fair coin gives each of {people} people label {pair[0]} or {pair[1]}"
    # The first half is taken by number: people are numbered independently of the coins.
    half = people // 2
    found = [
        measured_by_guesses(
            case.claim,
            CandidateScores(scored(one.rows(), coins, half), _setting(case)),
            coins[half:],
            alpha=alpha / len(parties),
            rng=partial(case.streams.generator, "guess ties"),
            witness=f"{words}, at passive party {one.party + 1}",
        )
        for one in seen
    ]
    return best_bound(found)


def _setting(case: VerticalCase) -> Setting:
    claimed = Setting.claimed(case.claim)
    return replace(claimed, adjacency=Adjacency.REPLACE_ONE, rounds=case.epochs, design=Design.ONE_RUN)


def most_in_one_run(claim: Claim, people: int, parties: int, *, alpha: float) -> float:
    """Return the largest epsilon that one run can certify: the bound if all guesses are right about that half of
    ``people`` from which no score is learned; ``parties``: the number of passive parties, which share alpha.
    """
    return best_of_guesses(claim, people - people // 2, alpha=alpha / parties).epsilon_low


def scored(rows: FloatArray, coins: BoolArray, half: int) -> FloatArray:
    """Return scores of the people after the first ``half``, learned on the first half; higher means that the coin shows
    1.
    """
    taught, known = rows[:half], coins[:half]
    if known.all() or not known.any():
        return np.zeros(len(rows) - half)
    score: Callable[[FloatArray], FloatArray] = discriminant(taught[~known], taught[known])
    return score(rows[half:])


_LEAST = 2
"""People of either kind, with a label and without, from whom a score of this label is learned."""
_LEAST_VARIANCE = 1e-9
"""Of scores whose two means are 1 apart."""


def measured_by_labels(case: VerticalCase, prior: Sequence[float] | None, *, alpha: float) -> Measurement:
    """Return a lower bound on epsilon, or an estimate if no ``prior`` is stated. It is the largest of those from what
    each passive party receives in the epochs that the claim covers, which share alpha.

    ``prior``: (classes,), the largest probability of each label given any columns.
    """
    parties = range(case.plan.network.passive)
    seen = [GradientsByPerson(case.plan.people, party) for party in parties]
    case.trained(seen)
    found = [_guessed_by_party(case, one, prior=prior, alpha=alpha / len(parties)) for one in seen]
    if prior is not None:
        return best_bound(found)
    # Without an estimate, not even the largest epsilon that is looked at accounts for the right guesses.
    return max(found, key=lambda one: math.inf if one.estimate is None else one.estimate)


def _guessed_by_party(
    case: VerticalCase, seen: GradientsByPerson, *, prior: Sequence[float] | None, alpha: float
) -> Measurement:
    claim, task, people = case.claim, case.task, case.plan.people
    labels = task.people.labels.numpy()
    half = people // 2
    rises = raised(seen.rows(), labels[:half], task.network.classes)
    made = planned_guesses(len(rises), epsilon=claim.epsilon, delta=0.0, alpha=alpha)
    # Among equal ones by chance: the order of the people must not matter.
    shuffled = case.streams.generator("guess ties").permutation(len(rises))
    chosen = shuffled[np.argsort(-rises.max(1)[shuffled], kind="stable")[:made]]
    guessed = rises.argmax(1)[chosen]
    guesses = LabelGuesses(
        made=tuple(np.bincount(guessed, minlength=task.network.classes).tolist()),
        right=int((guessed == labels[half:][chosen]).sum()),
        people=len(rises),
        setting=_setting(case),
    )
    return label_guesses_measured(
        guesses,
        shares(task) if prior is None else prior,
        alpha=alpha,
        known=prior is not None,
        epsilon=claim.epsilon,
        witness=_witness(people, half, seen.party, known=prior is not None),
    )


def _witness(people: int, known_people: int, party: int, *, known: bool) -> str:
    """What was run, and what is not known."""
    words = f"one run with the true labels of {people} people, of which the adversary knows {known_people}"
    words += f", at passive party {party + 1}"
    return (
        words
        if known
        else f"{words}; no prior of the labels given the columns is stated, and the columns alone may reveal labels"
    )


def shares(task: VerticalTask) -> tuple[float, ...]:
    """Return the share of each label among the public people; each label is counted once more than it occurs."""
    counts = np.bincount(task.public.labels.numpy(), minlength=task.network.classes) + 1.0
    return tuple((counts / counts.sum()).tolist())


def raised(rows: FloatArray, known: IntArray, classes: int) -> FloatArray:
    """Return the increase in the log odds of each label, ``(people, classes)``, given the row of a person whose label
    is not known; the first rows are those of people with ``known`` labels.
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
