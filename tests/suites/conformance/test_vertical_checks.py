"""Broken defenses of vertical federations: noise from elsewhere, replicas that are mixed, and laws without a claim."""

from dataclasses import dataclass, replace

import pytest
import torch
from fedassay.defenses.vertical.labels.label_gradient_noise import LabelGradientNoise, ResidualNoiseProtection
from fedassay.fl.streams import normal
from fedassay.suites.conformance import defense
from fedassay.suites.conformance.check import CheckedPart, NotConforming


@dataclass(frozen=True, kw_only=True)
class Elsewhere(ResidualNoiseProtection):
    """Its noise is the same in all runs."""

    def residuals(self, values, context, rng):
        torch_rng = torch.Generator().manual_seed(context.step)
        return values + self.scale * torch.randn(values.shape, generator=torch_rng)


@dataclass(frozen=True, kw_only=True)
class Mixed(ResidualNoiseProtection):
    """It centres over replicas."""

    def residuals(self, values, context, rng):
        return super().residuals(values - values.mean(0, keepdim=True), context, rng)


@dataclass(frozen=True, kw_only=True)
class Shared(ResidualNoiseProtection):
    """It draws one noise for all replicas."""

    def residuals(self, values, context, rng):
        return values + self.scale * normal(rng, tuple(values.shape[1:]))


@dataclass(frozen=True, kw_only=True)
class Wrong(LabelGradientNoise):
    """The defense with another protection, or with laws under other names."""

    protection: type | None = None

    def prepare(self, plan):
        found = super().prepare(plan)
        if self.protection is None:
            return replace(found, laws={"other": next(iter(found.laws.values()))})
        return replace(found, protection=self.protection(**vars(found.protection)))


def subject(protection=None):
    return CheckedPart(kind="defense", name="wrong", make=lambda: Wrong(protection=protection))


@pytest.mark.parametrize(
    ("check", "protection", "words"),
    [
        (defense.vertical_draws_from_streams, Elsewhere, "from another generator"),
        (defense.vertical_replicas_are_apart, Mixed, "labels of another run"),
        (defense.vertical_replicas_are_apart, Shared, "have the same noise"),
        (defense.vertical_replicas_are_apart, Elsewhere, "all blocks of runs"),
        (defense.prepares, None, "a law belongs to no claim"),
    ],
)
def test_a_broken_defense_fails_the_check_of_its_fault(check, protection, words):
    with pytest.raises(NotConforming, match=words):
        check(subject(protection))


@pytest.mark.parametrize(
    "check",
    [
        defense.vertical_draws_from_streams,
        defense.vertical_replicas_are_apart,
        defense.prepares,
    ],
)
def test_the_correct_defense_passes(check):
    check(subject(ResidualNoiseProtection))
