"""Failed comparisons of equal draws: trials refute what is false, and explain what is done with noised numbers.

A correct claim is refuted with probability 2.5e-7 at most by one decision; the seeds are fixed.
"""

from dataclasses import dataclass, replace

import pytest
from fedassay.audit.check import PURE, SENSITIVITY
from fedassay.audit.claim import Adjacency, Claim
from fedassay.audit.curve import mu_from_epsilon
from fedassay.audit.finding import refutes
from fedassay.audit.observer import UPLOADS
from fedassay.checks.decide import decided
from fedassay.checks.replay import check_claim
from fedassay.fl.laws import GaussianLaw, clip
from fedassay.fl.protection import Protection
from fedassay.fl.streams import normal
from toy_federation import toy_plan, toy_task

ROUNDS, MU = 3, mu_from_epsilon(4.0, 1e-5)
CLAIM = Claim.stated(
    epsilon=4.0, delta=1e-5, mu=MU, unit="report", adjacency="replace_one", observer=UPLOADS, rounds=ROUNDS
)


@dataclass(frozen=True, kw_only=True)
class Noised(Protection):
    """Clips each update to norm 1 and adds the noise of the claim; a law is published of the sum alone."""

    longest: float = 1.0
    noise: float = 2 * ROUNDS**0.5 / MU
    after: str = "nothing"

    def report(self, updates, context, state, rng):
        sent = clip(updates.values, self.longest) + self.noise * normal(rng, tuple(updates.values.shape))
        if self.after == "signs":
            sent = 100 * sent.sign()
        if self.after == "integers":
            sent = (4 * sent).round()
        return updates.with_values(sent)

    def law(self, observer, plan, client):
        return GaussianLaw(clip_norm=1.0, scale=1.0, noise_std=2 * ROUNDS**0.5 / MU)


def results(protection, claim=CLAIM):
    task = toy_task().with_few_weights()
    found = check_claim(task, toy_plan(task), protection, claim)
    before = next(one for one in found if one.name == SENSITIVITY)
    after = next(one for one in decided(found, claim, most=2**15) if one.name == SENSITIVITY)
    return before, after


@pytest.mark.simulations
def test_a_move_beyond_the_law_is_refuted_by_trials_on_the_pair_that_it_names():
    before, after = results(Noised(longest=2.0))
    assert before.passed is False
    assert before.proposal is not None
    assert after.passed is False
    assert refutes(CLAIM, after.evidence)
    assert before.witness.split(",")[0] in after.evidence.witness


@pytest.mark.simulations
@pytest.mark.parametrize("after", ["signs", "integers"])
def test_what_is_done_with_noised_numbers_explains_a_move_beyond_the_law(after):
    before, found = results(Noised(after=after))
    assert before.passed is False
    assert found.passed
    assert "explained by post-processing of noised numbers" in found.witness
    assert not refutes(CLAIM, found.evidence)
    assert found.measured <= found.allowed


@pytest.mark.simulations
def test_a_violation_that_the_runs_would_not_see_stays_undecided():
    claim = replace(CLAIM, curve=None)
    before, after = results(Noised(longest=1.2), claim)
    assert before.passed is False
    assert after.passed is False
    assert after.evidence is None
    assert "cannot confirm it" in after.witness


@dataclass(frozen=True, kw_only=True)
class FailsOnMany(Noised):
    """Runs in small batches only."""

    def report(self, updates, context, state, rng):
        if len(updates.values) > 8:
            raise MemoryError("too many runs")
        return super().report(updates, context, state, rng)


def test_trials_that_cannot_be_run_leave_the_comparison_as_it_is():
    before, after = results(FailsOnMany(longest=2.0))
    assert before.passed is after.passed is False
    assert "trials could not be run: MemoryError: too many runs" in after.witness


def test_a_release_without_noise_is_decided_by_few_runs():
    before, after = results(Noised(longest=1.0, noise=0.0, after="signs"))
    assert before.passed is False
    assert refutes(CLAIM, after.evidence)
    assert after.evidence.n1 <= 2**12


def test_too_few_runs_decide_nothing_and_losses_in_tails_are_not_explained():
    before, _ = results(Noised(longest=1.0, noise=0.0, after="signs"))
    assert decided([before], CLAIM, most=2047) == (before,)
    pure = PURE.failed("a sum of tails", 80.0, 4.0, unit="epsilon", proposal=results(Noised(after="signs"))[0].proposal)
    (after,) = decided([pure], CLAIM, most=2**13)
    assert after.passed is False
    assert "only very rare events reveal it" in after.witness


def test_two_steps_of_a_claim_with_a_large_delta_state_nothing():
    claim = replace(CLAIM, delta=0.1, curve=None, adjacency=Adjacency.ADD_REMOVE)
    two = replace(results(Noised(longest=2.0))[0].proposal, steps=2)
    (after,) = decided([SENSITIVITY.failed("a row", 2.0, 1.0, proposal=two)], claim, most=2**13)
    assert after.passed is False
    assert "bounds nothing" in after.witness
