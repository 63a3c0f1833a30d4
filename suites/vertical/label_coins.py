"""Audit a claim about labels in one run of the federation, by a coin for each label.

A fair coin decides which of two labels each of many people has. If one label is changed, the output's distribution
changes by at most the claim. So the number of coins that are guessed rightly from the output is at most that of
Steinke, Nasr and Jagielski (2023, theorem 5.2), whose proof needs no more than that each coin decides between two
neighbouring data sets. Half of the people teach the score, whose coins are known, and the guesses are about the other
half.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np
import torch
from torch import Tensor

from ...audit.arrays import BoolArray, FloatArray
from ...audit.claim import Adjacency, Claim
from ...audit.estimators.joint_point import best_bound
from ...audit.estimators.one_run_claim import best_of_guesses, measured_by_guesses
from ...audit.evidence import CandidateScores, Design, Setting
from ...audit.measurement import Measurement
from ...fl.vertical.engine import Planted, StepEvent
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
    Each passive party gives one bound, from what it receives in the epochs that the claim covers; the best of these
    bounds, which share alpha, is returned.
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
    """Return the largest epsilon that one run can certify, which is the bound if all guesses are right. Guesses are
    made about that half of ``people`` from which no score is learned; ``parties``: the number of passive parties, which
    share alpha.
    """
    return best_of_guesses(claim, people - people // 2, alpha=alpha / parties).epsilon_low


def scored(rows: FloatArray, coins: BoolArray, half: int) -> FloatArray:
    """Return scores of the people after the first ``half``, learned on the first half; a higher score means that a
    person's coin more likely shows 1.
    """
    taught, known = rows[:half], coins[:half]
    if known.all() or not known.any():
        return np.zeros(len(rows) - half)
    score: Callable[[FloatArray], FloatArray] = discriminant(taught[~known], taught[known])
    return score(rows[half:])
