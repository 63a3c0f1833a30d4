"""Checks of recorded noise: correct noise passes, each broken one is named, and larger noise is no fault."""

import math

import numpy as np
import pytest
import torch
from fedassay.audit.check import FRESH_NOISE, INDEPENDENT, PRESENT, SCALE, SHAPE
from fedassay.checks.training_record import Release, TrainingRecord
from fedassay.checks.watched_noise import RunNoise, _along_steps, _grid, noise_checks
from fedassay.fl.layout import Layout
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


def taken_back_in_part(rng, steps, dim):
    drawn = normal(rng, steps + 1, dim)
    return drawn[1:] - drawn[:-1]


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
        (every_step_the_same, {FRESH_NOISE}),
        (negated_in_the_next_step, {FRESH_NOISE}),
        (seeded_per_tensor, {FRESH_NOISE}),
        (overlapping_tables, {FRESH_NOISE, SHAPE}),
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


LAWS = {
    "Laplace": lambda rng, size: rng.laplace(scale=math.sqrt(0.5), size=size),
    "uniform": lambda rng, size: rng.uniform(-math.sqrt(3), math.sqrt(3), size),
    "Gaussian": lambda rng, size: rng.standard_normal(size),
}


def test_noise_that_is_taken_back_in_part_shows_in_few_numbers_and_independent_noise_does_not():
    found = {taken_back_in_part: 0, normal: 0}
    for noise in found:
        for seed in range(20):
            values = noise(np.random.default_rng(seed), 12, 24)
            run = RunNoise(values=values, sums=values, tensors={"w": slice(0, 20), "b": slice(20, 24)},
                           numbers=tuple(range(12)), rounding=0.0)  # fmt: skip
            found[noise] += _along_steps(run) is not None
    assert (found[taken_back_in_part] > 14, found[normal]) == (True, 0)


def shape_of(law, seed, steps, dim, scale=1.0):
    rng, layout = np.random.default_rng(seed), Layout(names=("weight",), shapes=((dim,),))
    sums, noise = rng.standard_normal((steps, dim)), scale * LAWS[law](rng, (steps, dim))
    releases = [
        Release(step=step, released=total + one, received=total, clip_norm=1.0, noise_multiplier=1.0)
        for step, (total, one) in enumerate(zip(torch.from_numpy(sums), torch.from_numpy(noise), strict=True))
    ]
    found = noise_checks(TrainingRecord(layout=layout, releases=tuple(releases)))
    return next(one for one in found if one.check is SHAPE)


@pytest.mark.parametrize(
    ("law", "steps", "dim", "scale", "least"),
    [
        ("Laplace", 50, 10, 1.0, 27),
        ("Laplace", 60, 10, 1.7, 26),
        ("uniform", 30, 10, 1.0, 30),
        ("Laplace", 1, 500, 1, 27),
    ],
)
def test_other_laws_of_the_stated_variance_are_found_in_few_numbers(law, steps, dim, scale, least):
    found = [shape_of(law, seed, steps, dim, scale).passed is False for seed in range(30)]
    assert sum(found) >= least


@pytest.mark.parametrize(("steps", "dim"), [(3, 2), (30, 10), (1, 500), (300, 2)])
def test_correct_noise_passes_where_laplace_noise_would_be_found_and_is_else_not_looked_at(steps, dim):
    for seed in range(20):
        found = shape_of("Gaussian", seed, steps, dim)
        assert found.passed is (True if steps * dim >= 430 else None)


def test_gaussian_noise_whose_size_changes_from_step_to_step_is_of_the_stated_law():
    # In all steps together, such noise has the tails of another law.
    scales = np.linspace(1, 6, 200)[:, None]
    for seed in range(20):
        assert shape_of("Gaussian", seed, 200, 5, scales).passed is not False


def test_noise_that_depends_on_the_data_is_found():
    shrunk = recording(steps=30, sums=lambda rows: rows.sum(0))
    for one in shrunk.releases:
        along = one.received / one.received.norm()
        one.released.sub_(along * (along @ (one.released - one.received)))
    assert INDEPENDENT in {one.name for one in noise_checks(shrunk) if one.passed is False}


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


def on_a_grid(points, noise, *, seed=0, steps=20, dim=60, sums=None):
    """Checks of sums and noise on the whole numbers; the stated standard deviation is ``points`` of them."""
    rng = np.random.default_rng(seed)
    layout = Layout(names=("weight", "bias"), shapes=((dim - 2,), (2,)))
    releases = []
    for step in range(steps):
        total = rng.integers(-9, 10, dim).astype(float) if sums is None else sums(rng, dim)
        released = torch.from_numpy(total + noise(rng, dim)).float()
        releases.append(
            Release(
                step=step,
                released=released,
                received=torch.from_numpy(total).float(),
                clip_norm=1.0,
                noise_multiplier=points,
            )
        )
    return {one.name: one for one in noise_checks(TrainingRecord(layout=layout, releases=tuple(releases)))}


def rounded(points):
    return lambda rng, dim: np.rint(points * rng.standard_normal(dim))


def discrete(points):
    support = np.arange(-math.ceil(12 * points), math.ceil(12 * points) + 1)
    law = np.exp(-(support**2) / (2 * points**2))
    return lambda rng, dim: rng.choice(support, dim, p=law / law.sum()).astype(float)


@pytest.mark.parametrize("law", [rounded, discrete])
@pytest.mark.parametrize("points", [1.0, 2.0, 4.0, 16.0])
@pytest.mark.parametrize(("steps", "dim"), [(2, 12), (20, 60), (12, 20_000)])
def test_gaussian_noise_on_the_grid_of_the_sums_is_no_fault(law, points, steps, dim):
    for seed in range(10 if dim < 100 else 1):
        found = on_a_grid(points, law(points), seed=seed, steps=steps, dim=dim)
        assert [one.words for one in found.values() if one.passed is False] == []
        assert found[SHAPE].passed or points <= 2 or steps * dim < 430


def test_more_noise_on_a_grid_than_stated_is_no_fault():
    assert not [one for one in on_a_grid(4.0, rounded(12.0), dim=2000).values() if one.passed is False]


@pytest.mark.parametrize(
    ("points", "noise", "expected"),
    [
        (4.0, rounded(2.0), SCALE),
        (16.0, rounded(12.0), SCALE),
        (4.0, lambda rng, dim: np.zeros(dim), PRESENT),
        (1.0, lambda rng, dim: np.zeros(dim), PRESENT),
        (4.0, lambda rng, dim: rounded(4.0)(rng, dim) * (np.arange(dim) > 30), PRESENT),
        (4.0, lambda rng, dim: rounded(4.0)(np.random.default_rng(7), dim), FRESH_NOISE),
        (8.0, lambda rng, dim: rng.integers(-13, 14, dim).astype(float), SHAPE),
    ],
)
def test_faults_of_noise_on_a_grid_are_found(points, noise, expected):
    assert on_a_grid(points, noise)[expected].passed is False


def test_noise_on_a_grid_that_sums_show_through_fails():
    found = on_a_grid(4.0, rounded(4.0), sums=lambda rng, dim: rng.standard_normal(dim), dim=2000)
    assert found[PRESENT].passed is False


def test_a_grid_of_tenths_is_found_in_single_precision_and_none_in_continuous_noise():
    tenths = 0.1 * np.arange(-60, 61).astype(np.float32).astype(float)
    rng = np.random.default_rng(0)
    drawn = rng.choice(tenths, (2, 10, 50))
    assert _grid(drawn, 2.0**-22 * 6, 1.0) == pytest.approx(0.1)
    for size in (4, 20, 500):
        assert _grid(rng.standard_normal((2, 10, size)), 2.0**-22 * 6, 1.0) == 0
