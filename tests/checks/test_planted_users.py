"""Planted users of several shapes: each broken bound of a user is found by the shape that it fails for."""

from dataclasses import dataclass, replace
from itertools import pairwise

import pytest
import torch
from fedassay.audit.check import SENSITIVITY
from fedassay.audit.claim import Unit
from fedassay.audit.observer import UPLOADS
from fedassay.checks.canaries import user_shapes
from fedassay.checks.replay import check_claim
from fedassay.defenses.client_level.user_level import UserLevel, UserLevelProtection, user_sums
from fedassay.fl.algorithms import FedSGD
from fedassay.fl.canary import UserCanary
from fedassay.fl.laws import clip
from fedassay.fl.plan import Plan
from fedassay.fl.protection import Protection
from fedassay.fl.sampling import Full
from fedassay.suites.config.resolve import task_of
from fedassay.suites.config.tables.suite import FederationSpec
from open_defenses import WithoutLaw


def _counts(gradients, present, owners):
    return user_sums(torch.ones_like(gradients[..., :1]), present, owners)


@dataclass(frozen=True, kw_only=True)
class OneSampleUnclipped(UserLevelProtection):
    """Does not clip a user who has one sample at a client."""

    def total(self, gradients, present, owners):
        sums = user_sums(gradients, present, owners)
        return torch.where(_counts(gradients, present, owners) == 1, sums, clip(sums, self.share)).sum(1)


@dataclass(frozen=True, kw_only=True)
class ActualNumber(UserLevelProtection):
    """Divides by the number of samples that are there, and multiplies by that of the plan."""

    def local_step(self, gradients, present, client, context, state, rng):
        total = super().local_step(gradients, present, client, context, state, rng)
        return total / present.sum(1, keepdim=True) * context.plan.expected_lot(client)


@dataclass(frozen=True, kw_only=True)
class NeighboursOnly(UserLevelProtection):
    """Clips together only those samples of a user that follow each other."""

    def total(self, gradients, present, owners):
        new = torch.cat([torch.zeros_like(owners[:, :1]), (owners[:, 1:] != owners[:, :-1]).long()], dim=1)
        return super().total(gradients, present, new.cumsum(1))


@dataclass(frozen=True, kw_only=True)
class FewSamplesAlone(UserLevelProtection):
    """Does not clip a user who has more than five samples at a client."""

    def total(self, gradients, present, owners):
        sums = user_sums(gradients, present, owners)
        return torch.where(_counts(gradients, present, owners) > 5, sums, clip(sums, self.share)).sum(1)


@dataclass(frozen=True, kw_only=True)
class WholeBoundPerClient(UserLevelProtection):
    """Gives every client the whole bound of a user, whose contributions add up."""

    @property
    def share(self):
        return self.clip_norm


@dataclass(frozen=True, kw_only=True)
class ByCount(UserLevelProtection):
    """Bounds each sample by the bound over the user's number at a client, but at most by a quarter."""

    def total(self, gradients, present, owners):
        number = _counts(gradients, present, owners).clamp(max=4)
        bounded = clip(gradients.masked_fill(~present.unsqueeze(-1), 0), self.share)
        return (user_sums(bounded, present, owners) / number).sum(1)


@dataclass(frozen=True, kw_only=True)
class SecondForgotten(UserLevelProtection):
    """Does not clip a user's only sample at any client but the first."""

    def local_step(self, gradients, present, client, context, state, rng):
        sums = user_sums(gradients, present, context.owners)
        alone = _counts(gradients, present, context.owners) == 1
        return torch.where(alone & (client > 0), sums, clip(sums, self.share)).sum(1)


@dataclass(frozen=True, kw_only=True)
class UserMeans(UserLevelProtection):
    """Clips the mean of a user's gradients: another bound that holds."""

    def total(self, gradients, present, owners):
        sums = user_sums(gradients, present, owners)
        return clip(sums / _counts(gradients, present, owners).clamp_min(1), self.share).sum(1)


@dataclass(frozen=True, kw_only=True)
class UnequalShares(UserLevelProtection):
    """Gives the first client half of a user's bound, and the others the rest."""

    def local_step(self, gradients, present, client, context, state, rng):
        share = self.clip_norm / 2 if client == 0 else self.clip_norm / (2 * (context.plan.clients - 1))
        return clip(user_sums(gradients, present, context.owners), share).sum(1)


@dataclass(frozen=True, kw_only=True)
class Hidden(WithoutLaw, UserLevelProtection):
    """Publishes no law."""


@pytest.fixture(scope="module")
def federation():
    """Three clients of twenty samples, where every user has some at two clients or more."""
    spec = FederationSpec(
        dataset="digits",
        model="logistic",
        partition="iid",
        clients=3,
        samples=60,
        rounds=3,
        algorithm={"name": "fedsgd", "learning_rate": 0.5},
    )
    task = task_of(spec, 0).with_inert(1)
    task = replace(task, owners=torch.arange(len(task.labels)) % 12)
    plan = Plan(
        sizes=task.sizes,
        rounds=3,
        cohort=Full(),
        lot=Full(),
        algorithm=FedSGD(learning_rate=0.5),
        layout=task.network.layout,
        clients_per_user=task.clients_per_user,
    )
    return task, plan


@pytest.fixture(scope="module")
def checked(federation):
    def check(kind: type[Protection], **options):
        task, plan = federation
        prepared = UserLevel(epsilon=4.0).prepare(plan)
        protection, claim = prepared.protection, replace(prepared.claims[0], **options)
        return {one.name: one for one in check_claim(task, plan, kind(**vars(protection)), claim)}

    return check


@pytest.mark.simulations
@pytest.mark.parametrize(
    ("kind", "shape"),
    [
        (OneSampleUnclipped, "one sample at"),
        (ActualNumber, "opposite to all other samples"),
        (NeighboursOnly, "not adjacent to each other"),
        (FewSamplesAlone, "different numbers"),
        (WholeBoundPerClient, "equal samples at"),
        (ByCount, "16 samples at"),
        (SecondForgotten, "one sample at"),
    ],
)
def test_a_bound_that_fails_for_one_shape_of_users_is_found_and_the_shape_named(checked, kind, shape):
    found = checked(kind)[SENSITIVITY]
    assert found.passed is False
    assert shape in found.witness


@pytest.mark.simulations
@pytest.mark.parametrize("kind", [UserLevelProtection, UserMeans, UnequalShares])
def test_correct_bounds_of_users_fail_no_check(checked, kind):
    results = checked(kind)
    assert not [one for one in results.values() if one.passed is False]
    moved = results[SENSITIVITY]
    assert moved.measured == pytest.approx(moved.allowed, rel=1e-3)


def test_reports_of_several_clients_of_a_user_are_not_compared_with_one_law(checked):
    found = checked(UserLevelProtection, observer=UPLOADS)[SENSITIVITY]
    assert found.passed is None
    assert "several clients" in found.witness


def test_without_a_law_the_noise_of_sums_that_planted_users_move_is_looked_at(checked):
    found = checked(Hidden)
    assert found["noise present"].passed is True
    assert found["noise fresh between rounds"].passed is True


def test_shapes_differ_in_number_place_and_direction():
    row = torch.tensor([3.0, 4.0, 0.0])
    users = [user for _, user in user_shapes(row, [0, 2], seed=0)]
    numbers = {tuple(len(rows) for _, rows in user.held) for user in users}
    assert {(1, 1), (1,), (4, 4)} < numbers
    assert any(len(set(one)) > 1 for one in numbers)
    assert {user.apart for user in users} == {False, True}
    assert all(rows.norm(dim=1).allclose(torch.tensor(5.0)) for user in users for _, rows in user.held)
    assert any(len(rows.unique(dim=0)) == 4 for user in users for _, rows in user.held)
    assert all(set(user.holders) <= {0, 2} and user.unit is Unit.USER for user in users)


def test_samples_that_lie_apart_follow_no_other_of_the_same_user():
    """Of six samples 0 to 5 and the user's 6, 7 and 8: one after each share of the six."""
    rows = torch.ones(3, 2)
    user = UserCanary(present=rows[0], held=((0, rows),), apart=True)
    order = user.order(6, 3).tolist()
    assert sorted(order) == list(range(9))
    assert [place for place in order if place < 6] == list(range(6))
    assert not [1 for one, other in pairwise(order) if min(one, other) >= 6]
    assert replace(user, apart=False).order(6, 3).tolist() == list(range(9))
