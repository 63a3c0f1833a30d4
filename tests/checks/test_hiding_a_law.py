"""Hiding a law, or also the stated noise, gives no broken defense evidence that it would not have with them."""

from dataclasses import replace

import pytest
import torch
from fedassay.checks.claim_checks import Fitted, claim_checks, received_checks
from fedassay.checks.coverage import power_of_checks
from fedassay.defenses.local.vectors.ldp_gaussian import LDPGaussian
from fedassay.fl.algorithms import FedSGD
from fedassay.fl.laws import clip
from fedassay.fl.streams import normal
from fedassay.suites.conformance.toys import toy_plan
from open_defenses import Reports, without_law
from toy_federation import toy_task

TASK = toy_task((4, 7, 5), side=10, inert=1)
PLAN = toy_plan(TASK, rounds=3, algorithm=FedSGD(learning_rate=1.0))
PREPARED = LDPGaussian(epsilon=4.0, delta=1e-5).prepare(PLAN)
FAILED, UNKNOWN, EVIDENCE = "a check failed", "power not known", "evidence of known power"
ORDER = (FAILED, UNKNOWN, EVIDENCE)


class QuietWeights(Reports):
    """Every third weight gets a fifth of the noise."""

    def noise(self, shape, context, rng, rows):
        noise = super().noise(shape, context, rng, rows)
        noise[..., ::3] /= 5
        return noise


class HalfNoise(Reports):
    """All weights get half of the noise."""

    def noise(self, shape, context, rng, rows):
        return super().noise(shape, context, rng, rows) / 2


class LateNoise(Reports):
    """The noise of the last round is a tenth."""

    def noise(self, shape, context, rng, rows):
        return super().noise(shape, context, rng, rows) * (0.1 if context.round == PLAN.rounds - 1 else 1.0)


class LooseClip(Reports):
    """Rows are clipped to eight clip norms."""

    def clipped(self, rows):
        return clip(rows, 8 * self.clip_norm)


class ClipBySign(Reports):
    """Rows with a positive sum are not clipped at all."""

    def clipped(self, rows):
        return torch.where(rows.sum(-1, keepdim=True) > 0, rows, super().clipped(rows))


class RawBias(Reports):
    """The weights of the last layer are sent as they are."""

    def noise(self, shape, context, rng, rows):
        noise = super().noise(shape, context, rng, rows)
        noise[..., list(PLAN.layout.slices.values())[-1]] = 0
        return noise


class FewQuietWeights(Reports):
    """Four weights get a quarter of the noise."""

    def noise(self, shape, context, rng, rows):
        noise = super().noise(shape, context, rng, rows)
        noise[..., :4] /= 4
        return noise


class LaplaceNoise(Reports):
    """The noise has the standard deviation of its law, and another shape."""

    def noise(self, shape, context, rng, rows):
        shares = torch.special.ndtr(normal(rng, shape, dtype=torch.float64)) - 0.5
        lengths = -torch.log1p(-2 * shares.abs()) / 2**0.5
        return (shares.sign() * lengths).float()


class OneVector(Reports):
    """All clients get the noise of the first one."""

    def noise(self, shape, context, rng, rows):
        noise = super().noise(shape, context, rng, rows)
        return noise[:, :1].expand_as(noise)


BROKEN = (QuietWeights, HalfNoise, LateNoise, LooseClip, ClipBySign, RawBias, FewQuietWeights, LaplaceNoise, OneVector)


def evidence(kind, *, law, stated):
    """What the checks of a claim give."""
    claim, protection = PREPARED.claims[0], kind(**vars(PREPARED.protection))
    protection = protection if law else without_law(protection)
    claim = claim if stated else replace(claim, curve=None, parameters={"clip_norm": 1.0})
    given = Fitted(protection=protection, claim=claim)
    checks = claim_checks(lambda _: given, claim, PLAN, (TASK, PLAN))
    checks += received_checks(lambda _: given, PLAN, (TASK, PLAN))
    if any(check.passed is False for check in checks):
        return FAILED
    return UNKNOWN if power_of_checks(checks, protection, claim, PLAN) is None else EVIDENCE


@pytest.mark.long
def test_a_correct_defense_has_evidence_whether_or_not_it_publishes_its_law_or_states_its_noise():
    assert evidence(Reports, law=True, stated=True) == EVIDENCE
    assert evidence(Reports, law=True, stated=False) == EVIDENCE
    assert evidence(Reports, law=False, stated=True) == EVIDENCE
    # The sum of many weights' noise is Gaussian, whatever is stated.
    assert evidence(Reports, law=False, stated=False) == EVIDENCE


@pytest.mark.long
@pytest.mark.parametrize("kind", BROKEN)
def test_a_broken_defense_never_fares_better_by_hiding(kind):
    shown = evidence(kind, law=True, stated=True)
    hidden, silent = (evidence(kind, law=False, stated=stated) for stated in (True, False))
    assert shown == FAILED
    assert EVIDENCE not in (hidden, silent)
    assert ORDER.index(hidden) <= ORDER.index(silent)
