"""Vectors that travel together: a second copy with noise of its own shows more than the law of one."""

from dataclasses import replace

import pytest
import torch
from fedassay.audit.check import TOGETHER
from fedassay.checks.claim_checks import _around
from fedassay.checks.given_rows import HookSetup
from fedassay.checks.sampled import Sampled
from fedassay.checks.searches import together_check
from fedassay.defenses.local.vectors.ldp_gaussian import LDPGaussian, LDPGaussianProtection
from toy_federation import toy_plan, toy_task


class SentTwice(LDPGaussianProtection):
    """The same clipped update with other noise."""

    def report(self, updates, context, state, rng):
        sent, again = (super(SentTwice, self).report(updates, context, state, rng) for _ in range(2))
        return replace(sent, side={"again": again.values})


class Halves(SentTwice):
    """The two copies have the noise of one together."""

    def report(self, updates, context, state, rng):
        loud = replace(self, noise_std=2**0.5 * self.noise_std)
        return SentTwice.report(loud, updates, context, state, rng)


class Copied(LDPGaussianProtection):
    """A copy of what is sent anyway shows nothing more."""

    def report(self, updates, context, state, rng):
        sent = super().report(updates, context, state, rng)
        return replace(sent, side={"again": sent.values.clone()})


class Dither(LDPGaussianProtection):
    """Noise without data."""

    def report(self, updates, context, state, rng):
        sent = super().report(updates, context, state, rng)
        other = super().report(updates.with_values(torch.zeros_like(updates.values)), context, state, rng)
        return replace(sent, side={"again": other.values})


def together(part, kind, **changes):
    task = toy_task((4, 9, 6, 5), side=4, inert=1)
    plan = toy_plan(task, rounds=3, **changes)
    prepared = part.prepare(plan)
    setup = HookSetup(
        task=task, plan=plan, protection=kind(**vars(prepared.protection)), claim=prepared.claims[0], seed=0
    )
    return together_check(Sampled(setup=setup, around=_around(setup, rounds=3, runs=64)))


@pytest.mark.parametrize(("kind", "passed"), [(SentTwice, False), (Halves, True), (Copied, True)])
def test_two_copies_count_together(kind, passed):
    found = together(LDPGaussian(), kind)
    assert (found.name, found.passed) == (TOGETHER, passed), found.words


@pytest.mark.parametrize("kind", [Dither, LDPGaussianProtection])
def test_a_release_alone_is_left_to_the_other_checks(kind):
    assert together(LDPGaussian(), kind) is None
