"""Numbers whose noise is sometimes missing are found; clamps, thresholds, coins and coarse floats after noise pass."""

from dataclasses import replace

import numpy as np
import pytest
from fedassay.audit.claim import Claim
from fedassay.checks.noise_sample import NoiseSample
from fedassay.checks.noise_structure import bare_checks
from fedassay.checks.replay import check_claim
from fedassay.suites.mutation.mutants import versions

RUNS, ROWS, ROUNDS, DIM = 48, 3, 4, 40
CLAIM = Claim.stated(epsilon=4.0, delta=1e-5, rounds=ROUNDS)


def bare(data, noise, rng):
    """In one run of ten the last number has no noise."""
    noise[..., -1] *= rng.random(noise.shape[:-1]) >= 0.15
    return data + noise


def clamped(data, noise, rng):
    return np.clip(data + noise, -2, 1e9)


def thresholded(data, noise, rng):
    noised = data + noise
    return np.where(np.abs(noised) < 0.3, 0.0, noised)


def halved(data, noise, rng):
    return (data + noise).astype(np.float16).astype(np.float64)


def coined(data, noise, rng):
    noised = data + noise
    noised[..., 0] = np.where(rng.random(noised.shape[:-1]) < 1 / (1 + np.exp(-9 * np.sign(data))), 1.0, -1.0)
    return noised


def plain(data, noise, rng):
    return (data + noise).astype(np.float32).astype(np.float64)


def sample_of(release, data, seed):
    rng = np.random.default_rng(seed)
    values = release(data, rng.normal(size=(RUNS, ROWS, ROUNDS, DIM)), rng)
    return NoiseSample(
        values=values,
        present=np.ones((ROWS, ROUNDS), dtype=bool),
        steady=np.ones(ROUNDS, dtype=bool),
        senders=tuple(range(ROWS)),
    )


def results(release, seed=0):
    """Equal draws on data 0.3 and, with the unit, on data -0.2."""
    sample = sample_of(release, 0.3, seed)
    return list(bare_checks(sample, CLAIM, lambda row: sample_of(release, -0.2, seed)))


def test_a_number_that_sometimes_has_no_noise_is_found():
    (found,) = results(bare)
    assert found.passed is False
    assert f"weight {DIM - 1}" in found.witness


@pytest.mark.parametrize("release", [clamped, thresholded, halved, coined, plain])
@pytest.mark.parametrize("seed", range(5))
def test_what_is_done_to_numbers_after_the_noise_passes(release, seed):
    assert all(found.passed for found in results(release, seed))


def test_a_unit_for_which_no_runs_can_be_made_is_no_finding():
    assert all(found.passed for found in bare_checks(sample_of(bare, 0.3, 0), CLAIM, lambda row: None))


@pytest.mark.simulations
def test_noise_on_floats_of_few_digits_is_taken_for_missing_noise_no_oftener_than_stated():
    # One check in 10^7 fails: of 400, none.
    assert all(found.passed for seed in range(200) for kind in (halved, plain) for found in results(kind, seed))


@pytest.mark.simulations
def test_a_report_whose_last_coordinate_rarely_has_no_noise_is_found_in_a_federation():
    found = versions("last_coordinate_rarely")
    for prepared, passes in ((found.correct, True), (found.broken, False)):
        checks = check_claim(found.task, found.plan, replace(prepared.protection), prepared.claims[0])
        assert all(one.passed is not False for one in checks) is passes
