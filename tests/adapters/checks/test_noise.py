"""Checks of recorded noise: correct noise passes, each broken one is named, and larger noise is no fault."""

import numpy as np
import pytest
from fedassay.adapters.checks.noise import DATA, FRESH, PRESENT, SCALE, SHAPE, noise_checks
from foreign_runs import LAYOUT, NOISE, recording


def failed(**broken):
    steps = broken.pop("steps", 12)
    return {one.name for one in noise_checks(recording(steps=steps, **broken)) if one.passed is False}


def normal(rng, steps, dim):
    return rng.standard_normal((steps, dim))


def halved(rng, steps, dim):
    return 0.5 * normal(rng, steps, dim)


def only_matrices(rng, steps, dim):
    return normal(rng, steps, dim) * ~((np.arange(dim) >= 96) & (np.arange(dim) < 104))


def one_coordinate_missing(rng, steps, dim):
    return normal(rng, steps, dim) * (np.arange(dim) != 100)


def every_step_the_same(rng, steps, dim):
    return np.repeat(normal(rng, 1, dim), steps, axis=0)


def negated_in_the_next_step(rng, steps, dim):
    half = normal(rng, steps // 2, dim)
    return np.stack([half, -half], axis=1).reshape(steps, dim)


def seeded_per_tensor(rng, steps, dim):
    noise = normal(rng, steps, dim)
    noise[:, LAYOUT.slices["head"]] = noise[:, :40]
    return noise


def overlapping_tables(rng, steps, dim):
    table = rng.standard_normal(dim + 5 * steps)
    return np.stack([table[5 * n : 5 * n + dim] for n in range(steps)])


def uniform(rng, steps, dim):
    return rng.uniform(-np.sqrt(3), np.sqrt(3), (steps, dim))


def without_tails(rng, steps, dim):
    return np.clip(1.05 * normal(rng, steps, dim), -2, 2)


def of_few_values(rng, steps, dim):
    return (np.floor(normal(rng, steps, dim) * 64) + 0.5) / 64


@pytest.mark.parametrize(
    ("noise", "expected"),
    [
        (normal, set()),
        (halved, {SCALE}),
        (only_matrices, {PRESENT, SCALE}),
        (every_step_the_same, {FRESH, SCALE}),
        (negated_in_the_next_step, {FRESH}),
        (seeded_per_tensor, {FRESH}),
        (overlapping_tables, {FRESH, SHAPE}),
        (uniform, {SHAPE}),
        (of_few_values, {SHAPE}),
    ],
)
def test_each_fault_of_the_noise_is_named(noise, expected):
    assert failed(noise=noise) == expected


def test_a_single_coordinate_without_noise_is_found():
    assert PRESENT in failed(noise=one_coordinate_missing)


def test_noise_without_tails_is_found():
    assert SHAPE in failed(noise=without_tails, steps=60)


def test_noise_that_depends_on_the_data_is_found():
    shrunk = recording(steps=30, sums=lambda rows: rows.sum(0))
    for one in shrunk.releases:
        along = one.received / one.received.norm()
        one.released.sub_(along * (along @ (one.released - one.received)))
    assert DATA in {one.name for one in noise_checks(shrunk) if one.passed is False}


@pytest.mark.parametrize("factor", [1.02, 1.2, 3.0])
def test_more_noise_than_stated_is_no_fault(factor):
    assert failed(noise=lambda *sizes: factor * normal(*sizes)) == set()
    wide = np.where(np.arange(LAYOUT.dim) < 96, factor, 1.0)
    assert failed(noise=lambda *sizes: wide * normal(*sizes)) == set()


def test_the_scale_is_measured_in_the_stated_standard_deviation():
    found = next(one for one in noise_checks(recording(noise=halved)) if one.name == SCALE)
    assert found.measured == pytest.approx(0.5, abs=0.03)
    assert 0.85 < found.allowed < 1


def test_a_system_that_states_no_noise_fails_and_one_that_was_not_seen_is_not_checked():
    silent = recording()
    for one in silent.releases:
        object.__setattr__(one, "noise_multiplier", 0.0)
    assert [one.passed for one in noise_checks(silent)] == [False]
    for one in silent.releases:
        object.__setattr__(one, "noise_multiplier", NOISE)
        object.__setattr__(one, "received", None)
        object.__setattr__(one, "expected", None)
    assert {one.passed for one in noise_checks(silent)} == {None}


def test_a_release_that_is_no_number_fails():
    broken = recording()
    broken.releases[3].released[0] = float("nan")
    assert [(one.name, one.passed) for one in noise_checks(broken)] == [(PRESENT, False)]
