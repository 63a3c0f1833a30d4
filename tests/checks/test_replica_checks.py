"""What projections say round by round: bare rounds, bare replicas, shared noise, a canary that is dropped."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from fedassay.audit.check import ARRIVES, EVERY_ROUND, OWN_IN_REPLICAS
from fedassay.audit.claim import Adjacency, Unit
from fedassay.audit.estimators.release_tests import BrokenRelease, GaussianRelease, draw_projections
from fedassay.audit.evidence import Design, Projections, Setting
from fedassay.audit.observer import GLOBAL_MODELS
from fedassay.checks.noise_replicas import expected_repeats, off_centre, replica_checks
from fedassay.suites.audits.canary_replicas import repeated

RELEASE = GaussianRelease(sigma=1.5, rate=0.5, rounds=20)
SETTING = Setting(
    unit=Unit.CLIENT,
    adjacency=Adjacency.ADD_REMOVE,
    observer=GLOBAL_MODELS,
    rounds=20,
    design=Design.INDEPENDENT,
)


def runs(arm, *, n=1000, seed=0, twin=None):
    values = draw_projections(RELEASE, twin or BrokenRelease(), arm=arm, n=n, rng=np.random.default_rng([seed, arm]))
    return Projections(values.astype(np.float32), np.ones(values.shape, dtype=bool), SETTING)


def changed(side, change):
    values = side.values.copy()
    change(values)
    return replace(side, values=values)


def broken(member, nonmember):
    return {found.name for found in replica_checks(member, nonmember, RELEASE) if not found.passed}


def test_a_correct_mechanism_keeps_all_over_many_seeds():
    """100 seeds of 20 rounds at seven standard errors: a false alarm has a chance of about 1e-8."""
    for seed in range(100):
        assert broken(runs(1, seed=seed), runs(0, seed=seed)) == set()
        assert not off_centre([runs(0, seed=seed)], pytest.fail)


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("centre", [-1.0, 0.0, 1.0])
def test_releases_of_half_precision_repeat_by_chance_whatever_was_subtracted_from_them(kind, centre):
    for seed in range(10):
        noise = torch.from_numpy(RELEASE.sigma * np.random.default_rng(seed).standard_normal((1000, 20)))
        rounded = (noise + centre).to(kind).double().numpy() - centre
        out = Projections(rounded, np.ones(rounded.shape, dtype=bool), SETTING)
        assert OWN_IN_REPLICAS not in broken(runs(1), out)
        # Numbers of bfloat16 nearly all repeat by chance.
        copied = np.tile(rounded[:50], (20, 1))
        assert (OWN_IN_REPLICAS in broken(runs(1), replace(out, values=copied))) is (kind is torch.float16)


def test_one_round_without_noise_among_twenty_is_seen():
    def bare(values):
        values[:, 3] = 0.0

    assert broken(runs(1), changed(runs(0), bare)) == {EVERY_ROUND, OWN_IN_REPLICAS}


def test_a_fiftieth_of_the_releases_without_noise_is_seen_by_its_repeats():
    def bare(values):
        values[np.random.default_rng(1).random(values.shape) < 0.02] = 0.0

    assert broken(runs(1), changed(runs(0), bare)) == {OWN_IN_REPLICAS}


@pytest.mark.parametrize("spacing", [0.2, 1 / 300, 1 / 4000])
def test_noise_on_a_grid_repeats_as_often_as_it_must_and_no_oftener(spacing):
    """4000 replicas of one round, as of a secure sum; one in five without noise still shows on the finest."""
    release = GaussianRelease(sigma=1.5)
    setting = replace(SETTING, rounds=1)
    noise = np.random.default_rng(7).normal(size=(4000, 1))
    on_grid = 1.5 * spacing * np.rint(noise / spacing)
    honest = Projections(on_grid, np.ones(noise.shape, dtype=bool), setting)
    there = replace(honest, values=on_grid[::-1] + 1)

    def repeats(nonmember):
        return {found.name: found.passed for found in replica_checks(there, nonmember, release)}[OWN_IN_REPLICAS]

    assert repeats(honest)
    assert not repeated([honest], pytest.fail)
    if spacing < 1e-3:
        bare = np.where(np.arange(4000)[:, None] % 5 == 0, 0.0, on_grid)
        assert not repeats(replace(honest, values=bare))
        shared = replace(honest, values=np.repeat(on_grid[:10], 400, axis=0))
        assert repeated([shared], lambda: replace(honest, values=on_grid[:128], seen=honest.seen[:128]))


def test_repeats_are_counted_by_hand():
    """Two numbers in cells of chance p are one with the sum of p squared, spacing / (2 sqrt(pi)): half are repeats."""
    assert expected_repeats(2, 0.01) - 6 * (0.01 / 4 / np.pi**0.5 / 2) ** 0.5 == pytest.approx(0.00141, rel=1e-2)
    assert expected_repeats(1000, 0.0) == 0.0


def test_half_of_the_noise_in_one_round_is_seen():
    def halved(values):
        values[:, 7] /= 2

    assert broken(runs(1), changed(runs(0), halved)) == {EVERY_ROUND}


def test_a_canary_that_never_arrives_is_reported_and_no_fault():
    (found,) = [one for one in replica_checks(runs(0, seed=5), runs(0), RELEASE) if one.name == ARRIVES]
    assert found.passed is None


def test_one_that_is_ten_times_as_long_arrives():
    assert broken(runs(1, twin=BrokenRelease(row=10)), runs(0)) == set()


def test_rounds_that_were_seldom_seen_are_not_judged():
    few = replace(runs(0), seen=np.zeros((1000, 20), dtype=bool))
    assert [found.passed for found in replica_checks(replace(runs(1), seen=few.seen), few, RELEASE)] == [None, None]


@pytest.mark.parametrize("share", [0.9, 0.5, 0.1])
def test_a_part_of_the_noise_that_replicas_share_is_no_independent_trial(share):
    rng = np.random.default_rng(2)
    values = 1.5 * (np.sqrt(1 - share) * rng.standard_normal((1000, 20)) + np.sqrt(share) * rng.standard_normal(20))
    assert off_centre([replace(runs(0), values=values)], partial(runs, 0, n=128, seed=3))


@pytest.mark.parametrize("bias", [0.5, -0.5])
def test_noise_whose_mean_is_not_zero_in_runs_made_alone_either_is_not_shared(bias):
    def moved(seed, n=1000):
        side = runs(0, n=n, seed=seed)
        return replace(side, values=side.values + bias * side.values.std())

    assert not off_centre([moved(0)], partial(moved, 1, n=128))
    assert off_centre([moved(0)], partial(runs, 0, n=128, seed=1))


@pytest.mark.parametrize(("spacing", "passes"), [(0.02, True), (0.5, True), (2.0, None)])
def test_repeats_on_a_grid_are_expected_and_those_of_very_few_values_say_nothing(spacing, passes):

    def on_grid(values):
        values[:] = RELEASE.sigma * spacing * np.rint(values / RELEASE.sigma / spacing)

    found = {one.name: one.passed for one in replica_checks(runs(1), changed(runs(0), on_grid), RELEASE)}
    assert found[OWN_IN_REPLICAS] is passes
