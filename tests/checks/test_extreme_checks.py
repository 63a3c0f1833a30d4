"""Extreme rows: a broken and a correct version of each class, and every bundled defense."""

import math
from dataclasses import dataclass, replace

import pytest
import torch
from fedassay.audit.check import EXTREME, FINITE
from fedassay.audit.claim import Claim, Unit
from fedassay.audit.finite import limit_of
from fedassay.audit.observer import FINAL_MODEL
from fedassay.checks.extreme import extreme_rows
from fedassay.checks.replay import check_claim
from fedassay.defenses.client_level.dp_fedavg import DPFedAvg, DPFedAvgProtection
from fedassay.defenses.local.vectors.ldp_gaussian import LDPGaussian, LDPGaussianProtection
from fedassay.defenses.sample_level.dp_sgd import DPSGD, DPSGDProtection
from fedassay.fl.canary import AnyRow, Canary
from fedassay.fl.laws import clip, clip_entries
from fedassay.fl.protection import Protection
from fedassay.fl.streams import uniform
from open_defenses import Reports
from toy_federation import toy_plan, toy_task


@pytest.fixture(scope="module")
def task():
    return toy_task((4, 7, 5), side=4, inert=1)


@pytest.fixture(scope="module")
def extreme(task):
    """(protection, claim, plan) -> the result of the check of extreme rows."""

    def check(protection, claim, plan=None, task=task):
        found = check_claim(task, plan or toy_plan(task, rounds=2), protection, claim)
        (result,) = (one for one in found if one.name == EXTREME)
        return result

    return check


@dataclass(frozen=True, kw_only=True)
class Clips(Reports):
    """Clips in a way of its own, correct or broken, and adds the noise."""

    correct: bool


class ByLength(Clips):
    """An infinite row divided by its length is no number."""

    def clipped(self, rows):
        rows = rows.nan_to_num() if self.correct else rows
        lengths = torch.linalg.vector_norm(rows.double(), dim=-1, keepdim=True)
        return (rows * (self.clip_norm / lengths.clamp_min(self.clip_norm))).float()


class InHalf(Clips):
    """Half precision overflows above 65,504, before the clip or after it."""

    def clipped(self, rows):
        return clip(rows, self.clip_norm).half().float() if self.correct else self.other(rows.half().float())

    def other(self, rows):
        lengths = torch.linalg.vector_norm(rows, dim=-1, keepdim=True)
        return rows * (self.clip_norm / lengths.clamp_min(self.clip_norm))


class ByRoundedLength(Clips):
    """A length that overflows counts as none."""

    def clipped(self, rows):
        if self.correct:
            return clip(rows, self.clip_norm)
        rows = rows.nan_to_num(nan=0.0, posinf=1e30, neginf=-1e30)
        lengths = rows.square().sum(-1, keepdim=True).sqrt().nan_to_num(posinf=0.0)
        return rows * (self.clip_norm / lengths.clamp_min(self.clip_norm))


class OfUnitLength(Clips):
    """Every row gets the same length: zeros have none, and the squares of denormal entries underflow."""

    def clipped(self, rows):
        rows = rows.nan_to_num(nan=0.0, posinf=1e18, neginf=-1e18).clamp(-1e18, 1e18)
        lengths = torch.linalg.vector_norm(rows, dim=-1, keepdim=True)
        return rows * (self.clip_norm / (lengths.clamp_min(1e-12) if self.correct else lengths))


class DropsNoNumbers(Clips):
    """What is no number after the noise is sent as zero, without noise."""

    def clipped(self, rows):
        return clip(rows, self.clip_norm) if self.correct else rows

    def report(self, updates, context, state, rng):
        rows = clip(updates.values, self.clip_norm)
        odd = ~updates.values.isfinite().all(-1, keepdim=True)
        noisy = super().report(updates.with_values(rows), context, state, rng)
        return noisy if self.correct else noisy.with_values(noisy.values.masked_fill(odd, 0.0))


class ByComparedLength(Clips):
    """A length that is no number is not larger than the clip norm; what is no number is zeroed after the clip."""

    def clipped(self, rows):
        if self.correct:
            rows = rows.nan_to_num(nan=0.0, posinf=1e18, neginf=-1e18).clamp(-1e18, 1e18)
        lengths = torch.linalg.vector_norm(rows, dim=-1, keepdim=True)
        factors = torch.where(lengths > self.clip_norm, self.clip_norm / lengths, 1.0)
        return (rows * factors).nan_to_num(nan=0.0, posinf=0.0, neginf=0.0)


class PassesInfinity(Clips):
    """A row with an infinite entry counts as one that no clip need shorten."""

    def clipped(self, rows):
        lengths = torch.linalg.vector_norm(rows, dim=-1, keepdim=True)
        factors = (self.clip_norm / lengths.clamp_min(self.clip_norm)).nan_to_num(nan=0.0)
        factors = factors if self.correct else torch.where(rows.isinf().any(-1, keepdim=True), 1.0, factors)
        return (rows * factors).nan_to_num(nan=0.0, posinf=0.0, neginf=0.0)


@pytest.mark.simulations
@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (ByComparedLength, "no number and other entries of 1e12"),
        (PassesInfinity, "infinite and other entries of 1e12"),
        (InHalf, "not finite"),
        (ByRoundedLength, "whose norm overflows"),
        (OfUnitLength, "not finite"),
        (DropsNoNumbers, "compared with a vector of zeros"),
    ],
)
def test_a_clip_that_some_row_passes_is_found_and_a_correct_one_is_not(kind, words, extreme, task):
    prepared = LDPGaussian(epsilon=1.0, delta=1e-5).prepare(toy_plan(task, rounds=2))
    fields, claim = vars(prepared.protection), prepared.claims[0]
    assert extreme(kind(**fields, correct=True), claim).passed
    found = extreme(kind(**fields, correct=False), claim)
    assert found.passed is False
    assert words in found.words


class UnboundedSum(DPFedAvgProtection):
    def report(self, updates, context, state, rng):
        kept = super().report(updates, context, state, rng)
        huge = updates.values.abs().amax(-1, keepdim=True) > 1e19
        return kept.with_values(torch.where(huge, updates.values, kept.values))


class UnboundedSample(DPSGDProtection):
    def total(self, gradients, present):
        odd = (gradients.isnan() & present.unsqueeze(-1)).any(1)
        return super().total(gradients, present).masked_fill(odd, math.nan)


class LastRoundUnbounded(DPFedAvgProtection):
    """Clips all updates but those of the last round."""

    def report(self, updates, context, state, rng):
        kept = super().report(updates, context, state, rng)
        return updates if context.round == context.plan.rounds - 1 else kept


@pytest.mark.simulations
@pytest.mark.parametrize(
    ("part", "kind", "whom"), [(LDPGaussian, ByLength, "clients"), (DPSGD, UnboundedSample, "records")]
)
def test_what_lets_nan_or_infinity_through_keeps_its_claim_for_those_who_cannot_send_it(part, kind, whom, task):
    plan = toy_plan(task, rounds=2)
    prepared = part(**{"epsilon": 1.0, "delta": 1e-5} if part is LDPGaussian else {}).prepare(plan)
    fields, claim = vars(prepared.protection), prepared.claims[0]
    correct = kind(**fields, correct=True) if kind is ByLength else prepared.protection
    broken = kind(**fields, correct=False) if kind is ByLength else kind(**fields)
    for protection, limited in ((correct, False), (broken, True)):
        found = check_claim(task, plan, protection, claim)
        assert all(one.passed for one in found if one.name == EXTREME)
        assert [one.passed for one in found if one.name == FINITE] == [None] * limited
        assert limit_of(found).endswith(f"the claim holds for {whom} that cannot cause such values") is limited


@pytest.mark.simulations
@pytest.mark.parametrize(
    ("part", "kind", "observer"),
    [
        (DPFedAvg, UnboundedSum, None),
        (DPFedAvg, UnboundedSum, FINAL_MODEL),
        (DPFedAvg, LastRoundUnbounded, FINAL_MODEL),
    ],
)
def test_a_row_that_passes_a_sum_is_found(part, kind, observer, extreme, task):
    prepared = part().prepare(toy_plan(task, rounds=2))
    claim = replace(prepared.claims[0], observer=observer or prepared.claims[0].observer)
    kept = extreme(prepared.protection, claim)
    assert kept.passed
    assert kept.measured > 0
    assert extreme(kind(**vars(prepared.protection)), claim).passed is False


class Silent(LDPGaussianProtection):
    def report(self, updates, context, state, rng):
        return updates.with_values(torch.zeros_like(updates.values))


def test_a_release_of_zeros_was_not_looked_at(extreme, task):
    prepared = LDPGaussian(epsilon=1.0, delta=1e-5).prepare(toy_plan(task, rounds=2))
    assert extreme(Silent(**vars(prepared.protection)), prepared.claims[0]).passed is None


@dataclass(frozen=True, kw_only=True)
class Laplace(Protection):
    """Laplace noise without a law; the entries are clamped or not."""

    clamped: bool

    def report(self, updates, context, state, rng):
        rows = clip_entries(updates.values, 1.0) if self.clamped else updates.values.nan_to_num(0.0, 1e30, -1e30)
        drawn = uniform(rng, tuple(rows.shape)) - 0.5
        return updates.with_values(rows - 100 * drawn.sign() * torch.log1p(-2 * drawn.abs()))


def test_noise_of_any_law_on_rows_outside_the_radius_is_found_and_on_clamped_ones_it_is_not(extreme):
    claim = Claim.stated(epsilon=1.0, unit=Unit.REPORT, rounds=2)
    assert extreme(Laplace(clamped=True), claim).passed
    found = extreme(Laplace(clamped=False), claim)
    assert found.passed is False
    assert "times that of a usual run" in found.words


def test_the_rows_hold_what_their_words_name():
    rows = dict(extreme_rows(6))
    assert sum(bool(row.isnan().any()) for row in rows.values()) == 3
    assert sum(bool(row.isinf().any()) for row in rows.values()) == 3
    denormal = next(row for words, row in rows.items() if "denormal" in words)
    assert bool(((denormal > 0) & (denormal < torch.finfo(torch.float32).tiny)).all())


def test_only_an_audit_of_extreme_rows_plants_a_row_that_is_not_finite():
    row = torch.tensor([math.inf, 0.0])
    assert AnyRow(unit=Unit.CLIENT, present=row).present is row
    with pytest.raises(ValueError, match="must have shape"):
        Canary(unit=Unit.CLIENT, present=row)
