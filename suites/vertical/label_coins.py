"""Audit a claim about labels in one run: a fair coin decides which of two labels each of many people has.

If one label is changed, the output's distribution changes by at most the claim. So the number of coins that are guessed
rightly from the output is at most that of Steinke, Nasr and Jagielski (2023, theorem 5.2), whose proof needs no more
than that each coin decides between two neighbouring data sets. Half of the people teach the score, whose coins are
known, and the guesses are about the other half.
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch

from ...audit.arrays import BoolArray, FloatArray
from ...audit.claim import Adjacency, Claim
from ...audit.estimators.joint_point import best_bound
from ...audit.estimators.one_run import guess
from ...audit.estimators.one_run_claim import guesses_on, read_guesses
from ...audit.evidence import CandidateScores, Design, Guesses, Setting
from ...audit.measurement import Measurement
from ...fl.streams import Streams
from ...fl.vertical.engine import Planted, run_vertical
from ...fl.vertical.plan import VerticalPlan
from ...fl.vertical.protection import VerticalProtection
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
