"""Trials of everything that is received plant users, of one sample too, and refute a bound that spares one sample."""

from dataclasses import dataclass

import pytest
import torch
from fedassay.audit.check import VIEW
from fedassay.audit.claim import Unit
from fedassay.checks.neighbours import replay_setup
from fedassay.checks.trials import neighbours_of, view_checks
from fedassay.defenses.client_level.user_level import UserLevelProtection, user_sums
from fedassay.defenses.controls.clipping import ControlUserClipPerClient
from fedassay.fl.laws import clip
from fedassay.suites.mutation.versions import versions_of
from open_defenses import WithoutLaw


@dataclass(frozen=True, kw_only=True)
class OneSampleUnclipped(WithoutLaw, UserLevelProtection):
    """Does not clip a user who has one sample at a client, and publishes no law."""

    def total(self, gradients, present, owners):
        sums, counts = (user_sums(rows, present, owners) for rows in (gradients, torch.ones_like(gradients[..., :1])))
        return torch.where(counts == 1, sums, clip(sums, self.share)).sum(1)


def given(kind=UserLevelProtection):
    versions = versions_of(ControlUserClipPerClient())
    prepared = versions.correct
    return versions.task, versions.plan, kind(**vars(prepared.protection)), prepared.claims[0]


def view(kind):
    return next(one for one in view_checks(given(kind)) if one.name == VIEW)


def test_users_of_one_and_of_several_samples_are_planted_and_absent():
    pairs = list(neighbours_of(replay_setup(*given()).sampled))
    assert {pair.inputs[1].canary.unit for pair in pairs} == {Unit.USER}
    assert {1, 12} <= {len(pair.inputs[1].canary.rows(1)) for pair in pairs}
    assert {len(pair.inputs[1].canary.rows(0)) for pair in pairs} == {0}
    assert all(pair.direction.norm() == pytest.approx(1.0, abs=1e-4) for pair in pairs)


@pytest.mark.long
def test_a_bound_that_spares_users_of_one_sample_is_refuted_without_a_law_and_the_correct_one_is_not():
    assert view(OneSampleUnclipped).passed is False
    assert view(UserLevelProtection).passed is True
