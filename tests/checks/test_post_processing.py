"""What is done with a noised release costs no privacy, so no check fails for it, with or without a law."""

from dataclasses import dataclass, replace

import pytest
import torch
from fedassay.audit.check import SCALE, SENSITIVITY
from fedassay.audit.observer import UPLOADS
from fedassay.checks.measured import measured_checks
from fedassay.checks.neighbours import replay_setup
from fedassay.checks.replay import check_claim
from fedassay.defenses.client_level.dp_fedavg import DPFedAvg, DPFedAvgProtection
from fedassay.defenses.local.vectors.ldp_gaussian import LDPGaussian, LDPGaussianProtection
from fedassay.fl.laws import clip
from fedassay.fl.streams import normal, uniform
from toy_federation import toy_plan, toy_task


@pytest.fixture(scope="module")
def task():
    return toy_task((4, 7, 5), side=4, inert=1)


@pytest.fixture(scope="module")
def failed(task):
    """(defense, class of its protection, words of the law or None without a law) -> names of the failed checks."""

    def check(part, kind, then="", **fields):
        plan = toy_plan(task, rounds=4)
        prepared = part.prepare(plan)

        def law(self, observer, plan, client):
            found = prepared.protection.law(observer, plan, client)
            return None if then is None or found is None else replace(found, then=then)

        kind = type(kind.__name__, (kind,), {"law": law})
        protection = kind(**vars(prepared.protection), **fields)
        given = (task, plan, protection, prepared.claims[0])
        return {
            one.name
            for one in (*check_claim(*given), *measured_checks(replay_setup(*given), plan))
            if one.passed is False
        }

    return check


def top_quarter(values, unit, context, rng):
    least = values.abs().topk(values.shape[-1] // 4, dim=-1).values[..., -1:]
    return values * (values.abs() >= least)


def by_length(values, unit, context, rng):
    return values * (3 * unit / torch.linalg.vector_norm(values, dim=-1, keepdim=True).clamp_min(3 * unit))


def eight_bits(values, unit, context, rng):
    step = values.abs().amax(-1, keepdim=True) / 127
    return (values / step).round() * step


def sketched(values, unit, context, rng):
    basis = torch.linalg.qr(torch.randn(values.shape[-1], 40, generator=torch.Generator().manual_seed(1)))[0]
    return values @ basis @ basis.T


# By name: a function of the values, the law's standard deviation, the context and a generator.
NEAR = {
    "half": lambda values, unit, context, rng: values.half().float(),
    "bfloat16": lambda values, unit, context, rng: values.bfloat16().float(),
    "fine grid": lambda values, unit, context, rng: (values / unit * 4).round() * unit / 4,
    "coarse grid": lambda values, unit, context, rng: (values / unit).round() * unit,
    "eight bits": eight_bits,
    "skipped rounds": lambda values, unit, context, rng: values * (context.round % 2),
    "warm-up": lambda values, unit, context, rng: values * (context.round >= 2),
}
"""Post-processing under which the noise can still be compared with its law."""
FAR = {
    "clipped entries": lambda values, unit, context, rng: values.clamp(-2 * unit, 2 * unit),
    "clipped length": by_length,
    "sparse": top_quarter,
    "signs": lambda values, unit, context, rng: values.sign(),
    "sketch": sketched,
    "random mask": lambda values, unit, context, rng: values * (uniform(rng, tuple(values.shape)) < 0.3),
}
"""Post-processing that the law has to name."""


@dataclass(frozen=True, kw_only=True)
class Reports(LDPGaussianProtection):
    post: object

    def report(self, updates, context, state, rng):
        reports = super().report(updates, context, state, rng)
        return reports.with_values(self.post(reports.values, self.noise_std, context, rng))


@dataclass(frozen=True, kw_only=True)
class Sums(DPFedAvgProtection):
    post: object

    def aggregate(self, received, context, state, rng):
        unit = self.noise_multiplier * self.clip_norm / context.plan.expected_cohort
        return self.post(super().aggregate(received, context, state, rng), unit, context, rng)


@pytest.mark.simulations
@pytest.mark.parametrize("name", NEAR)
def test_rounding_and_silent_rounds_are_compared_with_the_law_and_no_fault(name, failed):
    assert failed(LDPGaussian(), Reports, post=NEAR[name]) == set()
    assert failed(DPFedAvg(), Sums, post=NEAR[name]) == set()


@pytest.mark.simulations
@pytest.mark.parametrize("name", FAR)
def test_post_processing_that_the_law_names_is_no_fault(name, failed):
    assert failed(LDPGaussian(), Reports, then=name, post=FAR[name]) == set()
    assert failed(DPFedAvg(), Sums, then=name, post=FAR[name]) == set()


@pytest.mark.simulations
@pytest.mark.parametrize("name", NEAR | FAR)
def test_post_processing_without_a_law_is_no_fault(name, failed):
    assert failed(LDPGaussian(), Reports, then=None, post=(NEAR | FAR)[name]) == set()
    assert failed(DPFedAvg(), Sums, then=None, post=(NEAR | FAR)[name]) == set()


@dataclass(frozen=True, kw_only=True)
class Repeats(DPFedAvgProtection):
    """Each second round sends the last aggregate once more."""

    def initial_state(self, plan):
        return {"last": torch.zeros(1, plan.layout.dim)}

    def close_round(self, aggregate, context, state):
        return {"last": aggregate}

    def aggregate(self, received, context, state, rng):
        fresh = super().aggregate(received, context, state, rng)
        return state["last"].expand_as(fresh) if context.round % 2 else fresh


@pytest.mark.simulations
@pytest.mark.parametrize("then", ["", None], ids=["law", "no law"])
def test_rounds_that_repeat_earlier_releases_are_no_fault(then, failed):
    assert failed(DPFedAvg(), Repeats, then=then) == set()


@dataclass(frozen=True, kw_only=True)
class OneWeightBare(Reports):
    """Rounded to a coarse grid, and one weight has no noise."""

    def report(self, updates, context, state, rng):
        noise = self.noise_std * normal(rng, tuple(updates.values.shape))
        noise[..., 7] = 0
        values = clip(updates.values, self.clip_norm) + noise
        return updates.with_values(self.post(values, self.noise_std, context, rng))


@dataclass(frozen=True, kw_only=True)
class Unclipped(Reports):
    def report(self, updates, context, state, rng):
        values = updates.values + self.noise_std * normal(rng, tuple(updates.values.shape))
        return updates.with_values(self.post(values, self.noise_std, context, rng))


@pytest.mark.simulations
@pytest.mark.parametrize("name", ["half", "bfloat16", "fine grid", "coarse grid"])
def test_rounding_hides_neither_a_weight_without_noise_nor_a_missing_clip(name, failed):
    assert SCALE in failed(LDPGaussian(), OneWeightBare, post=NEAR[name])
    assert SENSITIVITY in failed(LDPGaussian(), Unclipped, post=NEAR[name])


def test_a_law_that_names_post_processing_is_still_the_law_of_the_noised_release():
    law = LDPGaussian().prepare(toy_plan(toy_task())).protection.law(UPLOADS, toy_plan(toy_task()), 0)
    assert replace(law, then="signs").noise_std == law.noise_std
    assert law.then == ""
