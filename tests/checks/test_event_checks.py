"""Reports on extreme rows: a randomiser that treats one number of its range unlike the others is found."""

import math
from dataclasses import dataclass

import pytest
import torch
from fedassay.audit.check import EVENTS
from fedassay.audit.claim import Claim
from fedassay.checks.events import event_checks
from fedassay.checks.given_rows import HookSetup
from fedassay.fl.algorithms import FedSGD
from fedassay.fl.laws import clip_entries
from fedassay.fl.protection import Protection
from fedassay.fl.sampling import Full
from fedassay.fl.streams import uniform
from toy_federation import toy_plan, toy_task

ROUNDS, EPSILON = 2, 2.0


@dataclass(frozen=True, kw_only=True)
class OneSign(Protection):
    """The sign of one random number of a row by randomised response; ``zero``: what counts as the sign of zero."""

    zero: float

    def report(self, updates, context, state, rng):
        rows = updates.values
        place = torch.from_numpy(rng.integers(0, rows.shape[-1], (*rows.shape[:2], 1)))
        entry = rows.gather(-1, place)
        sign = torch.where(entry == 0, self.zero, entry.sign())
        lie = uniform(rng, tuple(sign.shape), dtype=torch.float64) < 1 / (1 + math.exp(EPSILON / ROUNDS))
        return updates.with_values(torch.zeros_like(rows).scatter(-1, place, torch.where(lie, -sign, sign)))


@dataclass(frozen=True, kw_only=True)
class Coins(Protection):
    """Sends a sign for each entry, by a coin whose chance is linear in the entry; entries are clamped or not."""

    epsilon: float
    clamped: bool

    def report(self, updates, context, state, rng):
        rows = clip_entries(updates.values, 1.0) if self.clamped else updates.values.nan_to_num()
        share = math.tanh(self.epsilon / (2 * rows.shape[-1]))
        drawn = uniform(rng, tuple(rows.shape)) < (1 + share * rows) / 2
        return updates.with_values(2.0 * drawn - 1)


@pytest.mark.parametrize(
    ("protection", "passed"),
    [
        (OneSign(zero=1.0), True),
        (OneSign(zero=0.0), False),
        (Coins(epsilon=EPSILON / ROUNDS, clamped=True), True),
        (Coins(epsilon=EPSILON / ROUNDS, clamped=False), False),
    ],
)
def test_a_zero_that_stays_as_it_is_and_a_certain_answer_outside_the_range_are_found(protection, passed):
    task = toy_task((4, 5, 6), side=4, inert=1)
    plan = toy_plan(task, rounds=ROUNDS, algorithm=FedSGD(learning_rate=1.0), lot=Full(), cohort=Full())
    claim = Claim.stated(EPSILON, unit="report", rounds=ROUNDS)
    setup = HookSetup(task=task, plan=plan, protection=protection, claim=claim, seed=0)
    (found,) = event_checks(setup, 2**22)
    assert (found.name, found.passed) == (EVENTS, passed), found.words
