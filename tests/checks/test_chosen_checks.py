"""Chosen rows of all others and chosen samples: choices, filters and factors by labels are found, correct ones pass."""

from dataclasses import dataclass, replace
from itertools import pairwise

import pytest
import torch
from fedassay.audit.check import AS_SAMPLED
from fedassay.audit.claim import Adjacency
from fedassay.checks.claim_checks import hook_runs
from fedassay.checks.given_rows import CONSTELLATIONS, COSINES, LEVELS, HookSetup, draw_surroundings, in_constellations
from fedassay.checks.sampled import Sampled
from fedassay.checks.searches import chosen_check, with_one_label
from fedassay.checks.setup import SeenLaws
from fedassay.defenses.client_level.dp_fedavg import DPFedAvg, DPFedAvgProtection
from fedassay.defenses.local.vectors.ldp_gaussian import LDPGaussian, LDPGaussianProtection
from fedassay.defenses.sample_level.dp_sgd import DPSGD, DPSGDProtection
from fedassay.fl.laws import clip
from fedassay.fl.sampling import Full, Poisson
from open_defenses import Sums, prepared_as
from toy_federation import toy_plan, toy_task

SIZES, ROUNDS = (4, 9, 6, 5, 7, 4), 6
SERVER, LOCAL = DPFedAvg(epsilon=4.0), LDPGaussian(epsilon=4.0)


@pytest.fixture(scope="module")
def task():
    return toy_task(SIZES, side=6, inert=1)


class ClosestRow(Sums):
    """The row that is closest to all others stands for their sum."""

    def total(self, rows, present):
        apart = torch.cdist(rows, rows).masked_fill(~present.unsqueeze(1), 0.0).sum(-1)
        return rows[torch.arange(len(rows)), apart.masked_fill(~present, torch.inf).argmin(1)]


class ClosestRowWithItsNoise(ClosestRow):
    """Noise for two clip norms, by which a choice may move."""

    def noise(self, shape, context, rng):
        return 2 * super().noise(shape, context, rng)


class Similar(Sums):
    """Rows that resemble another one are left out."""

    least = 0.95

    def total(self, rows, present):
        units = rows / torch.linalg.vector_norm(rows, dim=-1, keepdim=True).clamp_min(1e-12)
        alike = units @ units.transpose(1, 2) > self.least
        alike &= ~torch.eye(rows.shape[1], dtype=torch.bool)
        return rows.masked_fill(alike.any(-1, keepdim=True), 0.0).sum(1)


class HalfSimilar(Similar):
    least = 0.6


class WithoutGroups(Sums):
    """Groups of three or more equal rows are left out."""

    def total(self, rows, present):
        units = rows / torch.linalg.vector_norm(rows, dim=-1, keepdim=True).clamp_min(1e-12)
        alike = (units @ units.transpose(1, 2) > 0.999).sum(-1, keepdim=True)
        return rows.masked_fill(alike >= 3, 0.0).sum(1)


class LikeTheMedian(Sums):
    """Updates longer than three times the median of all are left out before the clip."""

    def report(self, updates, context, state, rng):
        norms = torch.linalg.vector_norm(updates.values, dim=-1).where(updates.present, torch.nan)
        kept = norms <= 3 * norms.nanquantile(0.5, dim=1, keepdim=True)
        return updates.with_values(clip(updates.values, self.clip_norm) * kept.unsqueeze(-1))


class MedianBound(Sums):
    """The clip norm is the median length of all, where it is smaller."""

    def report(self, updates, context, state, rng):
        norms = torch.linalg.vector_norm(updates.values, dim=-1).where(updates.present, torch.nan)
        bound = norms.nanquantile(0.5, dim=1).clamp(1e-6, self.clip_norm).view(-1, 1, 1)
        return updates.with_values(clip(updates.values, bound.expand(-1, updates.values.shape[1], 1)))


class HalfLength(Sums):
    """A factor below one for all rows."""

    def total(self, rows, present):
        return rows.sum(1) / 2


@dataclass(frozen=True, kw_only=True)
class ByLabels(LDPGaussianProtection):
    """Clients with samples of one label alone get three times the weight, before the clip or after it."""

    after: bool

    def report(self, updates, context, state, rng):
        labels = [context.samples(one).labels if one < context.plan.clients else None for one in context.senders]
        weights = torch.tensor([3.0 if one is not None and len(one.unique()) == 1 else 1.0 for one in labels])
        if not self.after:
            return super().report(updates.with_values(updates.values * weights.unsqueeze(-1)), context, state, rng)
        loud = super().report(updates, context, state, rng)
        kept = replace(self, noise_std=0.0)
        rows = LDPGaussianProtection.report(kept, updates, context, state, rng).values
        return loud.with_values(loud.values + (weights.unsqueeze(-1) - 1) * rows)


def checked(task, part, kind, *, law, seed=0, fields=None, **changes):
    """The result of the check, which needs no law where the claim states a Gaussian curve."""
    plan = toy_plan(task, rounds=ROUNDS, **changes)
    protection, claim = prepared_as(part, plan, kind, law=law, **(fields or {}))
    setup = HookSetup(task=task, plan=plan, protection=protection, claim=claim, seed=seed)
    return setup, chosen_check(setup, [1, 0, 2, 3])


@pytest.mark.simulations
@pytest.mark.parametrize("law", [True, False])
@pytest.mark.parametrize("kind", [ClosestRow, Similar, HalfSimilar, WithoutGroups, LikeTheMedian, MedianBound])
def test_a_choice_or_a_filter_that_one_row_changes_is_found(kind, law, task, monkeypatch):
    if not law and kind in (WithoutGroups, LikeTheMedian, MedianBound):
        # Each acts in few runs of its constellation: runs of all kinds show the law, with which each is compared.
        setup, _ = checked(task, SERVER, kind, law=False)
        seen = hook_runs(task, setup.plan, setup.protection, setup.claim).seen
        assert seen
        monkeypatch.setattr(Sampled, "seen", seen)
    _, found = checked(task, SERVER, kind, law=law)
    assert found is not None
    assert found.passed is False
    assert found.name == AS_SAMPLED


@pytest.mark.simulations
@pytest.mark.parametrize("law", [True, False])
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("kind", [DPFedAvgProtection, Sums, HalfLength])
def test_a_sum_passes(kind, law, seed, task):
    for changes in ({}, {"cohort": Poisson(0.5)}):
        _, found = checked(task, SERVER, kind, law=law, seed=seed, **changes)
        assert found is None or found.passed, found.words


@pytest.mark.parametrize("seed", range(3))
def test_a_choice_with_the_noise_of_its_sensitivity_passes(seed, task):
    _, found = checked(task, SERVER, ClosestRowWithItsNoise, law=False, seed=seed)
    assert found is None or found.passed, found.words


@pytest.mark.parametrize("law", [True, False])
def test_a_factor_by_the_labels_after_the_clip_is_found_and_before_it_is_none(law, task):
    assert checked(task, LOCAL, ByLabels, law=law, fields={"after": True})[1].passed is False
    _, found = checked(task, LOCAL, ByLabels, law=law, fields={"after": False})
    assert found is None or found.passed, found.words


class WithoutCopies(DPSGDProtection):
    """Groups of three or more equal gradients of a lot are left out, or kept."""

    least = 3

    def local_step(self, gradients, present, client, context, state, rng):
        units = gradients / torch.linalg.vector_norm(gradients, dim=-1, keepdim=True).clamp_min(1e-12)
        units = units * present.unsqueeze(-1)
        alike = (units @ units.transpose(1, 2) > 0.999).sum(-1)
        return super().local_step(gradients, present & (alike < self.least), client, context, state, rng)


class WithCopies(WithoutCopies):
    least = 10**6


@pytest.mark.parametrize(("kind", "passes"), [(WithoutCopies, False), (WithCopies, True)])
@pytest.mark.parametrize("lot", [Poisson(0.5), Full()])
@pytest.mark.parametrize("seed", range(3))
def test_a_filter_of_the_samples_of_a_lot_is_found(kind, passes, seed, lot, task):
    _, found = checked(task, DPSGD(epsilon=4.0), kind, law=True, seed=seed, lot=lot)
    assert found.passed is passes
    assert found.name == AS_SAMPLED


class DividedByTheLot(DPSGDProtection):
    """The sum of a lot is divided by its size, which is public and always the same."""

    size = 1

    def local_step(self, gradients, present, client, context, state, rng):
        sent = super().local_step(gradients, present, client, context, state, rng)
        return sent * context.plan.expected_lot(client) / present.sum(1, keepdim=True).clamp_min(1)


def test_a_full_lot_keeps_its_size(task):
    setup, found = checked(task, DPSGD(epsilon=4.0), DividedByTheLot, law=True, lot=Full())
    # Without the sample the lot is smaller, and all other rows weigh more.
    assert found.passed is False
    setup = replace(setup, claim=replace(setup.claim, adjacency=Adjacency.ZERO_OUT))
    found = chosen_check(setup, [1, 0, 2, 3])
    assert found.passed, found.words


@pytest.mark.parametrize("clients", [2, 3, 4, 10, 100])
def test_groups_and_lengths_change_from_run_to_run_of_a_constellation(clients):
    runs = 8 * len(CONSTELLATIONS)
    drawn = draw_surroundings(holders=[0], clients=clients, dim=60, rounds=1, replicas=runs, clip_norm=1.0, seed=0)
    chosen = torch.arange(runs) % len(CONSTELLATIONS)
    around = in_constellations(drawn, chosen, clip_norm=1.0, seed=0)
    units = around.units[:, 0] / torch.linalg.vector_norm(around.units[:, 0], dim=-1, keepdim=True)
    lengths = torch.linalg.vector_norm(around.others, dim=-1)
    alike = (torch.einsum("rd,rcd->rc", units, around.others) > 0.999 * lengths)[:, 1:].sum(1)
    first = len(CONSTELLATIONS) - 2 * len(LEVELS)
    groups = {int(count) for number, count in zip(chosen.tolist(), alike, strict=True) if first - 3 <= number < first}
    assert {*range(1, min(9, clients))} <= groups
    for number in range(first, len(CONSTELLATIONS)):
        pair = LEVELS[(number - first) // 2]
        here = lengths[chosen == number][:, 1:]
        assert {round(length, 3) for length in here.flatten().tolist()} <= set(pair)
        assert clients // 2 in {int(count) for count in (here < pair[1] / 2).sum(1)}
        own = torch.linalg.vector_norm(around.units[chosen == number][:, 0], dim=-1)
        assert torch.allclose(own, torch.tensor(pair[(number - first) % 2]))


@pytest.mark.simulations
def test_it_is_part_of_the_sensitivity_as_sampled(task, monkeypatch):
    # Runs show the law of this one, and then other surroundings suffice.
    monkeypatch.setattr(Sampled, "seen", SeenLaws())
    setup, _ = checked(task, SERVER, ClosestRow, law=False)
    found = [
        one for one in hook_runs(task, setup.plan, setup.protection, setup.claim).checks() if one.name == AS_SAMPLED
    ]
    assert [one.passed for one in found] == [False]
    assert "among others" in found[0].words


def test_stars_leave_room_for_every_threshold_of_a_filter():
    drawn = draw_surroundings(
        holders=[0, 1], clients=8, dim=400, rounds=2, replicas=len(CONSTELLATIONS), clip_norm=2.0, seed=0
    )
    around = in_constellations(drawn, torch.arange(len(CONSTELLATIONS)), clip_norm=2.0, seed=0)
    units = around.units[:, 0] / torch.linalg.vector_norm(around.units[:, 0], dim=-1, keepdim=True)
    others = around.others / torch.linalg.vector_norm(around.others, dim=-1, keepdim=True)
    cosines = torch.einsum("rd,rcd->rc", units, others)
    assert torch.allclose(cosines[: len(COSINES)], torch.tensor(COSINES).unsqueeze(1).expand(-1, 8), atol=1e-3)
    assert all(one**2 == pytest.approx(before) for before, one in pairwise(COSINES))
    mutual = torch.einsum("rcd,red->rce", others, others)[: len(COSINES), 2, 3]
    assert torch.allclose(mutual, torch.tensor(COSINES) ** 2, atol=0.12)
    shorter = len(CONSTELLATIONS) - 2 * len(LEVELS)
    assert float(torch.linalg.vector_norm(around.others[:shorter], dim=-1).min()) >= 10 * 2.0 * (1 - 1e-5)
    assert bool(around.long[:shorter].all())


def test_samples_that_are_hardly_drawn_by_chance(task):
    changed = with_one_label(task, [1, 0])
    assert len(changed.samples(torch.zeros(1, 1), 1).images.unique(dim=0)) == 1
    assert all(len(changed.labels[changed.parts[client]].unique()) == 1 for client in (0, 1))
    assert torch.equal(changed.labels[changed.parts[2]], task.labels[task.parts[2]])
    assert torch.equal(changed.images[changed.parts[0]], task.images[task.parts[0]])
