"""Draws: noise that differs from its law in any way is found, and more noise or noise on top of it is not."""

from dataclasses import dataclass, field

import numpy as np
import pytest
import torch
from fedassay.audit.check import (
    BETWEEN_ROUNDS,
    COVERS_MOVES,
    DISTRIBUTION,
    EVERY_DIRECTION,
    EXTREME,
    GIVEN_CLIENTS,
    GIVEN_ROUNDS,
    OTHER_DATA,
    OWN_IN_RUNS,
    PRESENT,
    SCALE,
    SENSITIVITY,
)
from fedassay.audit.ledger import SUITE, Share
from fedassay.checks import noise_law as draw_checks_module
from fedassay.checks.noise_law import LawOfDraws, NoiseColumns, along_public, draw_checks, lagged_noise
from fedassay.checks.noise_sample import NoiseSample, public_vectors
from fedassay.checks.replay import check_claim
from fedassay.defenses.client_level.dp_fedavg import DPFedAvg
from fedassay.defenses.local.vectors.ldp_gaussian import LDPGaussian
from fedassay.defenses.secure.binomial import Binomial
from fedassay.defenses.secure.distributed_discrete_gaussian import DistributedDiscreteGaussian
from fedassay.defenses.secure.distributed_gaussian import DistributedGaussian
from fedassay.defenses.secure.skellam import Skellam
from fedassay.fl.laws import GaussianLaw
from fedassay.fl.streams import normal
from fedassay.suites.mutation.mutants import versions
from open_defenses import Reports, Sums, failed, prepared_as
from thinned import every
from toy_federation import toy_plan, toy_task

ROUNDS = 6
NOISE = {SCALE, EVERY_DIRECTION, GIVEN_CLIENTS, GIVEN_ROUNDS, DISTRIBUTION, OTHER_DATA, OWN_IN_RUNS, COVERS_MOVES}


@pytest.fixture(scope="module")
def task():
    return toy_task((4, 7, 5), side=4, inert=1)


@pytest.fixture(scope="module")
def checked(task):
    """(defense, class of its protection, its fields) -> results by name."""

    def check(part, kind=None, *, seed=0, law=True, **changes):
        plan = toy_plan(task, rounds=ROUNDS, **changes)
        protection, claim = prepared_as(part, plan, kind, law=law)
        return {one.name: one for one in check_claim(task, plan, protection, claim, seed=seed)}

    return check


class Tiled(Reports):
    """The second half of the noise is the first half again."""

    def noise(self, shape, context, rng, values):
        half = normal(rng, (*shape[:2], (shape[2] + 1) // 2))
        return torch.cat([half, half], dim=-1)[..., : shape[2]]


class Antithetic(Reports):
    def noise(self, shape, context, rng, values):
        half = normal(rng, (*shape[:2], (shape[2] + 1) // 2))
        return torch.cat([half, -half.flip(-1)], dim=-1)[..., : shape[2]]


class LowRank(Reports):
    """Ten numbers, spread over all weights with the right variance."""

    def noise(self, shape, context, rng, values):
        spread = torch.from_numpy(np.random.default_rng(5).standard_normal((10, shape[2]))).float()
        return normal(rng, (*shape[:2], 10)) @ (spread / torch.linalg.vector_norm(spread, dim=0))


class Smoothed(Reports):
    """Each weight's noise is the mean of two neighbours', at the right variance."""

    def noise(self, shape, context, rng, values):
        noise = normal(rng, shape)
        return (noise + noise.roll(1, -1)) / 2**0.5


class OneNumberBare(Reports):
    """One weight of one client in one round has no noise."""

    def noise(self, shape, context, rng, values):
        noise = normal(rng, shape)
        if context.round == 3:
            noise[:, 1, 7] = 0
        return noise


class Decaying(Reports):
    def noise(self, shape, context, rng, values):
        return normal(rng, shape) * 0.97**context.round


class CancelsBetweenClients(Reports):
    """The clients' noise adds up to zero: all others' reports give each one away."""

    def noise(self, shape, context, rng, values):
        noise = normal(rng, shape)
        return (noise - noise.mean(1, keepdim=True)) * (shape[1] / max(1, shape[1] - 1)) ** 0.5


class SharedBetweenClients(Reports):
    """Nine tenths of every client's variance are one draw for all."""

    def noise(self, shape, context, rng, values):
        return 0.9**0.5 * normal(rng, (shape[0], 1, shape[2])) + 0.1**0.5 * normal(rng, shape)


class OfBoundedLength(Reports):
    """Vectors that are longer than most are drawn again: each number looks Gaussian, and the support is bounded."""

    def noise(self, shape, context, rng, values):
        noise, limit = normal(rng, shape), shape[-1] ** 0.5 + 0.5
        for _ in range(40):
            long = torch.linalg.vector_norm(noise, dim=-1, keepdim=True) > limit
            noise = torch.where(long, normal(rng, shape), noise)
        return noise


class OfManyTwoPoints(Reports):
    """Signs, which have the right variance and no tails."""

    def noise(self, shape, context, rng, values):
        return normal(rng, shape).sign() + 1e-3 * normal(rng, shape)


class AsLargeAsTheData(Reports):
    """Noise in proportion to the update's own length, up to the clip norm."""

    def noise(self, shape, context, rng, values):
        return normal(rng, shape) * torch.linalg.vector_norm(values, dim=-1, keepdim=True).clamp(max=1)


class FewSeeds(Reports):
    """A generator of its own for each report, with seeds of twelve bits."""

    def noise(self, shape, context, rng, values):
        seeds = rng.integers(0, 2**12, shape[:2])
        drawn = [np.random.default_rng(int(seed)).standard_normal(shape[2]) for seed in seeds.flat]
        return torch.from_numpy(np.stack(drawn).reshape(shape)).float()


BROKEN = {
    Tiled: {EVERY_DIRECTION},
    Antithetic: {EVERY_DIRECTION},
    LowRank: {EVERY_DIRECTION, COVERS_MOVES},
    Smoothed: {EVERY_DIRECTION},
    OneNumberBare: {SCALE},
    Decaying: {SCALE},
    CancelsBetweenClients: {GIVEN_CLIENTS},
    SharedBetweenClients: {GIVEN_CLIENTS},
    OfBoundedLength: {DISTRIBUTION},
    OfManyTwoPoints: {DISTRIBUTION},
    AsLargeAsTheData: {OTHER_DATA},
    FewSeeds: {OWN_IN_RUNS},
}
"""The checks of which each must fail; the same noise on top of the law's must fail none."""


def on_top(kind):
    """The same noise, added to noise of the law."""

    class OnTop(kind):
        def noise(self, shape, context, rng, values):
            return normal(rng, shape) + super().noise(shape, context, rng, values)

    OnTop.__name__ = f"{kind.__name__}OnTop"
    return OnTop


@pytest.mark.simulations
@pytest.mark.parametrize("kind", every(3, BROKEN))
def test_noise_that_is_not_its_laws_is_found_and_the_same_noise_on_top_of_the_laws_is_not(kind, checked):
    found = checked(LDPGaussian(), kind)
    assert BROKEN[kind] <= failed(found.values()), [one.words for one in found.values()]
    correct = checked(LDPGaussian(), on_top(kind))
    # Noise that grows with the data reveals extreme data, whatever else is added.
    allowed = {EXTREME, SENSITIVITY} if OTHER_DATA in BROKEN[kind] else set()
    assert failed(correct.values()) <= allowed, [one.words for one in correct.values() if one.passed is False]


class LateRoundsSeeded(Sums):
    """From round 3 on three quarters of the variance come from a seed of their own, in the shape of the batch."""

    def noise(self, shape, context, rng):
        if context.round < 3:
            return normal(rng, shape)
        return 0.5 * normal(rng, shape) + 0.75**0.5 * self.kept(shape)

    def kept(self, shape):
        return torch.from_numpy(np.random.default_rng(3).standard_normal(shape)).float()


class Differences(Sums):
    """The noise of each round takes back that of the round before: the sum over all rounds has hardly any."""

    def noise(self, shape, context, rng):
        noise, before = normal(rng, shape), self.rounds.get((context.round - 1, shape), torch.zeros(shape))
        self.rounds[context.round, shape] = noise
        return noise - before if context.round else noise

    @property
    def rounds(self):
        return _NOISE


_NOISE = {}


def test_noise_of_a_seed_of_its_own_is_no_noise_though_it_is_drawn_for_each_run_of_a_batch(checked):
    assert SCALE in failed(checked(DPFedAvg(), LateRoundsSeeded).values())


@pytest.mark.simulations
def test_correlated_noise_of_enough_variance_is_a_mechanism_of_its_own(checked):
    """Its budget may be computed for the correlation; one round alone does not break it."""
    found = checked(DPFedAvg(epsilon=30.0), Differences)
    assert not failed(found.values()) & {SCALE, EVERY_DIRECTION, DISTRIBUTION, PRESENT, BETWEEN_ROUNDS}
    assert not failed(found.values()), [one.words for one in found.values() if one.passed is False]


class Marginal:
    """Pure noise of the law, without a federation."""

    law = LawOfDraws(
        laws=[GaussianLaw(clip_norm=1.0, scale=1.0, noise_std=2.0)] * 3, layers={"a": slice(0, 5), "b": slice(5, 8)}
    )

    @classmethod
    def sample(cls, seed, runs=10, rounds=2, factor=1.0):
        values = 2.0 * factor * np.random.default_rng(seed).standard_normal((runs, 3, rounds, 8)) + 7
        present, steady = np.ones((3, rounds), dtype=bool), np.ones(rounds, dtype=bool)
        return NoiseSample(values=values, present=present, steady=steady, senders=(0, 1, 2))


@pytest.mark.long
def test_each_family_of_tests_has_its_share_of_the_false_alarms(monkeypatch, checked):
    """With a share of .2 for each family every check fails at most as often as its families together."""
    families = {SCALE: 22, EVERY_DIRECTION: 2, GIVEN_CLIENTS: 1, GIVEN_ROUNDS: 1, DISTRIBUTION: 31}
    share, repeats = 0.004, 1000
    monkeypatch.setitem(SUITE.shares, "noise", Share(total=share, claims=1))
    claim = LDPGaussian().prepare(toy_plan(toy_task((4, 7, 5), side=4))).claims[0]
    monkeypatch.setattr(draw_checks_module, "_breaks", lambda *_: True)
    alarms = dict.fromkeys(families, 0)
    for seed in range(repeats):
        for found in draw_checks(Marginal.sample(seed), Marginal.law, claim):
            alarms[found.name] += found.passed is False
    for name, count in families.items():
        expected = repeats * share * count
        assert alarms[name] <= expected + 4 * expected**0.5 + 1, alarms
    # The tests use their share up: a scale that never failed would have no power.
    assert alarms[SCALE] > 0


@pytest.mark.parametrize(("factor", "passed"), [(1.0, True), (3.0, True), (0.5, False)])
def test_a_law_of_known_noise_is_held_exactly(factor, passed):
    claim = LDPGaussian().prepare(toy_plan(toy_task((4, 7, 5), side=4))).claims[0]
    found = {one.name: one for one in draw_checks(Marginal.sample(0, factor=factor), Marginal.law, claim)}
    assert found[SCALE].passed is passed
    assert found[SCALE].measured == pytest.approx(factor, rel=0.1)


class FromOneTable(Reports):
    """Each client takes its noise from one table of the round, from a random place on."""

    def noise(self, shape, context, rng, values):
        replicas, rows, dim = shape
        table = normal(rng, (replicas, 2 * dim))
        starts = torch.from_numpy(rng.integers(0, dim + 1, (replicas, rows, 1)))
        return table.gather(1, (starts + torch.arange(dim)).reshape(replicas, -1)).reshape(shape)


class Rolled(Reports):
    """Each client's noise is that of the first one, moved by a random number of weights and backwards."""

    def noise(self, shape, context, rng, values):
        first = normal(rng, (shape[0], 1, shape[2]))
        moves = rng.integers(1, shape[2], (shape[0], shape[1] - 1))
        others = [
            torch.stack([row[0].flip(0).roll(int(move)) for row, move in zip(first, column, strict=True)])
            for column in moves.T
        ]
        return torch.stack([first[:, 0], *others], dim=1)


class Periodic(Reports):
    """The noise repeats after a number of weights that is drawn for each run."""

    def noise(self, shape, context, rng, values):
        found = normal(rng, shape)
        for run, period in enumerate(rng.integers(shape[2] // 4, shape[2] // 3, shape[0]).tolist()):
            found[run] = found[run].gather(-1, (torch.arange(shape[2]) % period).expand(shape[1:]))
        return found


class PublicMomentum(Reports):
    """A correct defense with the momentum of its aggregates in the public state."""

    def initial_state(self, plan):
        return {"momentum": torch.zeros(1, plan.layout.dim)}

    def close_round(self, aggregate, context, state):
        return {"momentum": 0.5 * state["momentum"] + aggregate}


class AlongNoMomentum(PublicMomentum):
    """The part of the noise along the public momentum is left out."""

    def report(self, updates, context, state, rng):
        drawn = normal(rng, tuple(updates.values.shape))
        towards = state["momentum"].to(drawn).unsqueeze(1)
        unit = towards / towards.norm(dim=-1, keepdim=True).clamp_min(1e-12)
        noise = drawn - (drawn * unit).sum(-1, keepdim=True) * unit
        return updates.with_values(self.clipped(updates.values) + self.noise_std * noise)


@dataclass(frozen=True, kw_only=True)
class AlongNoAggregate(Reports):
    """The part of the noise along the last aggregate, which no state shows, is left out."""

    memory: dict = field(default_factory=dict, compare=False)

    def noise(self, shape, context, rng, values):
        drawn = normal(rng, shape)
        last = self.memory.get("last") if context.round else None
        if last is None:
            return drawn
        unit = (last / last.norm(dim=-1, keepdim=True)).unsqueeze(1)
        return drawn - (drawn * unit).sum(-1, keepdim=True) * unit

    def close_round(self, aggregate, context, state):
        self.memory["last"] = aggregate
        return super().close_round(aggregate, context, state)


@pytest.mark.simulations
@pytest.mark.parametrize(
    ("kind", "failing"),
    [
        (FromOneTable, GIVEN_CLIENTS),
        (Rolled, GIVEN_CLIENTS),
        (Periodic, EVERY_DIRECTION),
        (AlongNoMomentum, EVERY_DIRECTION),
        (AlongNoAggregate, EVERY_DIRECTION),
        (PublicMomentum, None),
    ],
)
def test_noise_that_is_missing_in_another_way_in_each_run_is_found(checked, kind, failing):
    found = checked(LDPGaussian(epsilon=4.0), kind)
    accused = failed(found.values()) & NOISE
    assert failing in accused if failing else not accused, [found[name].words for name in accused]


@pytest.mark.simulations
def test_independent_noise_passes_at_all_lags_and_along_public_vectors():
    """Each family fails falsely once in 10^7 samples, and comes below a chance of 1e-4 once in 10^4."""
    rng = np.random.default_rng(3)
    for dim in (40, 150, 700):
        for _ in range(20):
            noise = rng.standard_normal((8, 6, dim))
            columns = NoiseColumns(noise, [0, 1, 2, 0, 1, 2], [0, 0, 0, 1, 1, 1])
            for kind, one in lagged_noise(columns, ["a", "b", "c"], 0.0):
                assert one.measured >= one.allowed, kind
                assert one.surprise > np.log(1e-4), kind
            public = public_vectors(rng.standard_normal((8, 5, dim)), {})
            noise = rng.standard_normal((8, 3, 5, dim))
            assert all(
                one.measured >= one.allowed for one in along_public(noise, np.ones((3, 5), dtype=bool), public, 0.0)
            )


@pytest.mark.long
@pytest.mark.simulations
@pytest.mark.parametrize("part", [DistributedGaussian, DistributedDiscreteGaussian, Skellam, Binomial])
def test_noise_on_a_grid_that_reaches_to_both_sides_is_not_accused(part, checked):
    found = [checked(part(epsilon=2.0), seed=seed)[DISTRIBUTION] for seed in range(4)]
    assert not any(one.passed is False for one in found)


def test_noise_on_a_grid_that_has_one_side_alone_is_found():
    (name,) = {
        one.name for one in versions("one_sided_shares").checks(broken=True, trials=False) if one.passed is False
    }
    assert name == DISTRIBUTION
