"""Reports behind a shuffler: local budgets, amplification, order, and words of few seeds; correct versions pass."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from fedassay.audit.check import AMPLIFIED, LOCAL, MASKS, ORDER
from fedassay.audit.claim import Unit
from fedassay.checks.claim_checks import _masks
from fedassay.checks.events import local_checks
from fedassay.checks.given_rows import HookSetup
from fedassay.checks.masks import _between_runs
from fedassay.checks.shuffled import _pairs, amplified_checks, shuffle_checks
from fedassay.defenses.secure.distributed_gaussian import DistributedGaussian, DistributedGaussianProtection
from fedassay.defenses.secure.modular_sum import Masks, draw_masks
from fedassay.defenses.shuffling.cldp_sgd import CLDPSGD, CLDPSGDProtection, OneBitLaw
from fedassay.fl.laws import Mixing, clip_entries
from fedassay.fl.sampling import FixedSize
from fedassay.fl.streams import uniform
from toy_federation import toy_plan, toy_task

NUMBERS = 2**18


class TwiceTheBudget(CLDPSGDProtection):
    def report(self, updates, context, state, rng):
        loud = CLDPSGDProtection(radius=self.radius, local_epsilon=2 * self.local_epsilon)
        return loud.report(updates, context, state, rng)


class Unclipped(CLDPSGDProtection):
    """A chance above one is a certainty."""

    def report(self, updates, context, state, rng):
        law = OneBitLaw(radius=self.radius, local_epsilon=self.local_epsilon, mixing=Mixing.NONE)
        return updates.with_values(law.sample(updates.values, rng))


class LargestEntry(CLDPSGDProtection):
    """The place of the number that is sent is that of the largest entry."""

    def report(self, updates, context, state, rng):
        sent = super().report(updates, context, state, rng)
        place = updates.values.abs().argmax(-1, keepdim=True)
        return sent.with_values(torch.zeros_like(sent.values).scatter(-1, place, sent.values.sum(-1, keepdim=True)))


class OneCoin(CLDPSGDProtection):
    """All clients of a round use one coin and one place."""

    def report(self, updates, context, state, rng):
        rows = clip_entries(updates.values, self.radius)
        dim, drawn = rows.shape[-1], uniform(rng, (2, len(rows), 1, 1), dtype=torch.float64)
        place = (drawn[0] * dim).long().clamp_max(dim - 1).expand(-1, rows.shape[1], 1)
        law = OneBitLaw(radius=self.radius, local_epsilon=self.local_epsilon, mixing=Mixing.NONE)
        up = drawn[1] < law._chance(rows.gather(-1, place).double())
        size = law.size(dim)
        return updates.with_values(torch.zeros_like(rows).scatter(-1, place, torch.where(up, size, -size).float()))


class LargestClientInClear(CLDPSGDProtection):
    """The client with the most samples sends the sign as it is."""

    def report(self, updates, context, state, rng):
        sent = super().report(updates, context, state, rng)
        sizes = torch.tensor([context.plan.sizes[sender] for sender in updates.senders])
        true = torch.where(updates.values >= 0, 1.0, -1.0) * sent.values.abs()
        return sent.with_values(torch.where((sizes == max(context.plan.sizes)).view(1, -1, 1), true, sent.values))


class LateClients(CLDPSGDProtection):
    """Clients that come late, three in ten, are not shuffled."""

    def channel(self, reports, context, state, rng):
        keys = uniform(rng, tuple(reports.present.shape), dtype=torch.float64)
        order = torch.where(keys < 0.3, 1.0 + torch.arange(keys.shape[1]), keys).argsort(1)
        return replace(reports.with_values(reports.values.gather(1, order.unsqueeze(-1).expand_as(reports.values))))


@pytest.fixture(scope="module")
def setup():
    """(class of the protection, clients, factor of the local budget) -> the setup of the claim about one client."""

    def build(kind, *, clients=4, factor=1.0, seed=0, epsilon=4.0):
        task = toy_task(tuple(range(3, 3 + clients)), side=4, inert=1)
        plan = toy_plan(task, rounds=5, lot=FixedSize(1))
        prepared = CLDPSGD(epsilon=epsilon).prepare(plan)
        fields = vars(prepared.protection)
        protection = kind(**{**fields, "local_epsilon": factor * fields["local_epsilon"]})
        (claim,) = (one for one in prepared.claims if one.unit is Unit.CLIENT)
        return HookSetup(task=task, plan=plan, protection=protection, claim=claim, seed=seed)

    return build


@pytest.mark.simulations
def test_reports_of_the_law_pass_and_every_broken_randomiser_shows_more_than_its_law(setup):
    kinds = [CLDPSGDProtection, TwiceTheBudget, Unclipped, LargestEntry, OneCoin, LargestClientInClear]
    found = {kind: next(local_checks(setup(kind), [3, 0], NUMBERS)) for kind in kinds}
    assert {kind for kind, result in found.items() if result.passed is False} == {*kinds[1:]}
    assert found[CLDPSGDProtection].name == LOCAL
    assert found[CLDPSGDProtection].passed


@pytest.mark.parametrize(("factor", "passed"), [(1.0, True), (2.0, False)])
def test_a_law_that_the_number_of_clients_does_not_cover_is_found(setup, factor, passed):
    (found,) = amplified_checks(setup(CLDPSGDProtection, clients=30, factor=factor, epsilon=1.0))
    assert (found.name, found.passed) == (AMPLIFIED, passed)


def test_the_chances_of_counted_reports_are_those_of_coins():
    # Two clients: with the other row one coin of .5 and one of .25, without it two coins of .25.
    pair, swapped = _pairs(0.5, 0.25, 1, clients=2)
    assert pair.one == pytest.approx([0.375, 0.5, 0.125])
    assert pair.other == pytest.approx([0.5625, 0.375, 0.0625])
    assert swapped.one is pair.other


def test_a_shuffler_that_adds_reports_is_not_compared_by_their_number(setup):
    class Adds(CLDPSGDProtection):
        def channel(self, reports, context, state, rng):
            arrived = super().channel(reports, context, state, rng)
            more = torch.cat([arrived.values, arrived.values[:, :1]], 1)
            return replace(arrived, values=more, present=torch.ones(more.shape[:2], dtype=torch.bool))

    (found,) = amplified_checks(setup(Adds))
    assert found.passed is None


def test_clients_that_come_late_are_found_by_their_place(setup):
    assert next(shuffle_checks(setup(CLDPSGDProtection), 800)).passed
    found = next(shuffle_checks(setup(LateClients), 800))
    assert (found.name, found.passed) == (ORDER, False)


class Tagged(CLDPSGDProtection):
    """The rows carry an array that the channel attaches."""

    def order(self, reports, rng):
        return uniform(rng, tuple(reports.present.shape), dtype=torch.float64).argsort(1)

    def tag(self, order, rng):
        return order

    def channel(self, reports, context, state, rng):
        order = self.order(reports, rng)
        here = torch.arange(len(order)).unsqueeze(1)
        sent = replace(reports, values=reports.values[here, order], senders=None)
        return replace(sent, side={"tag": self.tag(order, rng)})


class TaggedByClasses(Tagged):
    """Two clients of four share a tag, which changes the chance of each of its rows."""

    def tag(self, order, rng):
        return (order == 2).long()


class TaggedByPlace(Tagged):
    def tag(self, order, rng):
        return torch.arange(order.shape[1]).expand_as(order)


class TaggedAtRandom(Tagged):
    def tag(self, order, rng):
        return torch.from_numpy(rng.integers(0, 1000, tuple(order.shape)))


class ScaledByClient(CLDPSGDProtection):
    """Every client has a calibration factor of its own."""

    def factors(self, updates, rng):
        return 1 + 1e-3 * torch.tensor(updates.senders).view(1, -1, 1)

    def report(self, updates, context, state, rng):
        sent = super().report(updates, context, state, rng)
        return sent.with_values(sent.values * self.factors(updates, rng))


class ScaledAtRandom(ScaledByClient):
    def factors(self, updates, rng):
        return 1 + 1e-3 * torch.from_numpy(rng.integers(0, 50, (*updates.present.shape, 1))).float()


@pytest.mark.parametrize("kind", [Tagged, TaggedByClasses, ScaledByClient])
def test_a_number_of_a_row_that_names_its_sender_under_all_noise_is_found(kind, setup):
    found = next(shuffle_checks(setup(kind), 800))
    assert (found.name, found.passed) == (ORDER, False)
    assert "client" in found.witness


@pytest.mark.parametrize("kind", [TaggedByPlace, TaggedAtRandom, ScaledAtRandom])
def test_numbers_of_a_row_that_do_not_follow_its_sender_pass(kind, setup):
    assert next(shuffle_checks(setup(kind), 800)).passed


@pytest.mark.long
@pytest.mark.simulations
def test_random_tags_are_taken_for_a_sender_no_oftener_than_stated(setup):
    # One in 10^7 checks fails: of 60, none.
    found = [next(shuffle_checks(setup(TaggedAtRandom, clients=3, seed=seed), 200)) for seed in range(60)]
    assert all(one.passed for one in found)


class FewSeeds(DistributedGaussianProtection):
    """Masks come from seeds of eight bits: of 64 runs two have equal ones almost surely."""

    def report(self, updates, context, state, rng):
        dim = updates.values.shape[-1]
        drawn = [
            draw_masks(here, here, dim, self.sized.grid, np.random.default_rng(int(rng.integers(256))))
            for here in updates.present.split(1)
        ]
        masks = Masks(words=torch.cat([m.words for m in drawn]), recovered=torch.cat([m.recovered for m in drawn]))
        side, words = {"recovered": masks.recovered}, self.sized.grid.wrap(self.encoded(updates, rng) + masks.words)
        sent = replace(updates, side=side, unsent=frozenset(side), masked=True, word_bits=self.sized.grid.bits)
        return sent.with_values(words)


class PublicSeed(FewSeeds):
    """Masks come from the number of the round, so that the server computes them too."""

    def report(self, updates, context, state, rng):
        masks = draw_masks(
            updates.present,
            updates.present,
            updates.values.shape[-1],
            self.sized.grid,
            np.random.default_rng(context.round),
        )
        side, words = {"recovered": masks.recovered}, self.sized.grid.wrap(self.encoded(updates, rng) + masks.words)
        sent = replace(updates, side=side, unsent=frozenset(side), masked=True, word_bits=self.sized.grid.bits)
        return sent.with_values(words)


class Unstated(DistributedGaussianProtection):
    """Words whose number of bits is not stated."""

    def report(self, updates, context, state, rng):
        return replace(super().report(updates, context, state, rng), word_bits=None)


class UnstatedInClear(Unstated):
    """The last client sends its word without a mask."""

    def report(self, updates, context, state, rng):
        sent = super().report(updates, context, state, rng)
        words = sent.values.clone()
        words[:, -1] = self.sized.grid.wrap(self.encoded(updates, rng))[:, -1]
        return sent.with_values(words)


@pytest.mark.simulations
def test_masks_of_few_seeds_or_of_a_public_one_are_found_by_two_runs_of_one_mask():
    task = toy_task((4, 9, 6, 5), side=4, inert=1)
    plan = toy_plan(task, rounds=2)
    prepared = DistributedGaussian().prepare(plan)
    fields, claim = vars(prepared.protection), prepared.claims[0]
    kinds = {DistributedGaussianProtection: True, FewSeeds: False, PublicSeed: False}
    kinds |= {Unstated: True, UnstatedInClear: False}
    for kind, passed in kinds.items():
        (found,) = _masks(HookSetup(task=task, plan=plan, protection=kind(**fields), claim=claim, seed=0))
        assert (found.name, found.passed) == (MASKS, passed)


@dataclass(frozen=True, kw_only=True)
class _Words:
    values: torch.Tensor
    present: torch.Tensor


@dataclass(frozen=True, kw_only=True)
class _Run:
    reports: list[_Words]


@pytest.mark.simulations
def test_uniform_words_of_two_runs_resemble_each_other_no_oftener_than_stated():
    rng = np.random.default_rng(0)
    hits = 0
    for _ in range(2000):
        words = torch.from_numpy(rng.integers(0, 256, (16, 1, 40)))
        run = _Run(reports=[_Words(values=words, present=torch.ones(16, 1, dtype=torch.bool))])
        found = [test[0] for test in _between_runs(run, 8)]
        hits += min(found) * len(found) < 0.05
    assert hits <= 125, hits


@pytest.mark.long
def test_reports_of_the_law_never_fail_on_other_seeds(setup):
    for seed in range(200):
        own = setup(CLDPSGDProtection, seed=seed)
        assert next(local_checks(own, [3], NUMBERS)).passed
        assert next(shuffle_checks(own, 200)).passed
