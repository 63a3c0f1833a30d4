"""Mutants of vertical federations: checks or trials refute every broken version, and no correct one."""

import dataclasses
from types import SimpleNamespace

import fedassay
import numpy as np
import pytest
from fedassay.audit.check import VIEW
from fedassay.defenses.controls.fault import Control
from fedassay.defenses.controls.vertical import ControlBitsInFull
from fedassay.defenses.vertical.labels.label_gradient_noise import LabelGradientNoise
from fedassay.fl.streams import Streams, normal
from fedassay.fl.vertical.engine import public_order
from fedassay.fl.vertical.protection import VerticalProtection
from fedassay.suites.config.part_listing import control_kind
from fedassay.suites.mutation import mutants, vertical_mutant
from fedassay.suites.mutation.mutants import versions
from fedassay.suites.mutation.vertical_mutant import vertical_versions
from fedassay.suites.vertical.checks import noise_move
from fedassay.suites.vertical.runs import DependentRuns


@pytest.fixture(autouse=True)
def fewer_draws(monkeypatch):
    """The noise of messages of many numbers is drawn some 2000 times, a tenth of what audits draw: the check allows for
    the larger error, and then sees violations above some 10 % alone.
    """
    monkeypatch.setattr(noise_move, "_DRAWN", 400_000)


def test_the_person_is_in_the_smaller_batch_of_the_federation():
    both = versions("control_residual_noise_full_batches")
    pair = both.case(both.correct, both.claim).pairs[0]
    first = public_order(Streams(0), both.plan.people, 0).split(both.plan.batch)
    assert len(first[-1]) < both.plan.batch
    assert pair.person in first[-1]


def test_bottom_models_are_trained_where_the_defense_allows_it():
    frozen = {name: versions(name).plan.frozen for name in ("control_bottom_unpaid", "control_embedding_unclipped")}
    assert frozen == {"control_bottom_unpaid": False, "control_embedding_unclipped": True}


@pytest.mark.simulations
def test_calls_of_a_sampler_draw_runs_of_their_own_and_equal_generators_equal_runs():
    mutant = versions("control_bits_in_full").mutant()
    first, again, other = (mutant.correct(1, 3, np.random.default_rng(seed)) for seed in (0, 0, 1))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)
    assert all(score(first).shape == (3,) for score in mutant.scores)


def test_a_control_of_another_package_is_audited_in_the_federation_of_its_base():
    assert control_kind(ControlBitsInFull) == "vertical federation"
    assert control_kind(fedassay.Defense) == "federation"


@dataclasses.dataclass(frozen=True, kw_only=True)
class OneNoiseProtection(VerticalProtection):
    """The same noise in all runs that are made together."""

    scale: float

    def residuals(self, values, context, rng):
        return values + self.scale * normal(rng, tuple(values.shape[1:]))


@dataclasses.dataclass(frozen=True, kw_only=True)
class OneNoise(Control, LabelGradientNoise):
    broken = OneNoiseProtection

    def prepare(self, plan):
        prepared = LabelGradientNoise.prepare(self, plan)
        return dataclasses.replace(prepared, protection=OneNoiseProtection(scale=prepared.protection.scale))


@pytest.fixture(scope="module")
def one_noise():
    return vertical_versions(OneNoise(epsilon=1.0))


@pytest.mark.simulations
def test_trials_that_share_noise_are_neither_counted_nor_a_failure(one_noise):
    """Each run alone is correct, so trials of runs that share their noise could refute a claim that holds."""
    checks = {check.name: check for check in one_noise.checks(broken=True, trials=True)}
    assert checks[VIEW].passed is None
    assert "same noise" in checks[VIEW].witness
    assert [check.words for check in checks.values() if check.passed is False] == []
    with pytest.raises(DependentRuns, match="same noise"):
        one_noise.mutant()


@pytest.mark.simulations
def test_a_mutant_whose_runs_share_noise_is_left_to_the_checks(one_noise, monkeypatch):
    monkeypatch.setattr(mutants, "build_mutant", lambda name: one_noise.mutant())
    cells = SimpleNamespace(cell_id="broken")
    job = SimpleNamespace(name="one_noise", spec=SimpleNamespace(trials=True), broken=cells)
    assert mutants._audit(job, mutants.VERTICAL, {"broken": ()}) is None


@pytest.mark.simulations
def test_one_score_reads_both_versions_where_one_sends_fewer_messages(monkeypatch):
    """The correct version sends an embedding once, the broken one in each epoch, so that it shows more."""
    monkeypatch.setattr(vertical_mutant, "LEARNED_FROM", 200)
    mutant, rng = versions("control_embedding_resent").mutant(), np.random.default_rng(0)
    assert mutant.correct(0, 2, rng).shape == mutant.broken(0, 2, rng).shape
    apart = {}
    for name, version in (("correct", mutant.correct), ("broken", mutant.broken)):
        zero, one = (mutant.scores[0](version(arm, 1000, rng)) for arm in (0, 1))
        apart[name] = (one.mean() - zero.mean()) / zero.std()
    # Each has a standard deviation of 0.05.
    assert apart["broken"] > apart["correct"] + 0.15
