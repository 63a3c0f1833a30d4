"""Noise where a unit moves the release: by its shape, not by its size, which may change from round to round."""

import numpy as np
import pytest
from fedassay.audit.check import OWN_IN_RUNS
from fedassay.audit.claim import Claim
from fedassay.checks.noise_sample import NoiseSample
from fedassay.checks.noise_structure import Move, structure_checks

DIM, ROUNDS = 40, 12


@pytest.mark.parametrize(("growth", "spread"), [(1.0, 0.0), (5.0, 0.0), (0.2, 0.0), (1.0, 5.0)])
@pytest.mark.parametrize("shown", [False, True])
def test_a_direction_without_noise_is_found_whatever_the_sizes_of_rounds_and_runs(growth, spread, shown):
    """As by a clip norm that follows noised counts of few participants, which differ from run to run."""
    rng = np.random.default_rng(1)
    scales = growth ** np.arange(ROUNDS)
    noise = rng.normal(size=(8, 2, ROUNDS, DIM)) * scales[:, None]
    noise[..., 1:, :] *= np.exp(spread * rng.normal(size=(8, 1, ROUNDS - 1, 1)))
    direction = rng.normal(size=DIM)
    direction /= np.linalg.norm(direction)
    if shown:
        noise -= (noise @ direction)[..., None] * direction
    steady, present = np.ones(ROUNDS, dtype=bool), np.ones((2, ROUNDS), dtype=bool)
    sample = NoiseSample(values=noise, present=present, steady=steady, senders=(0, 1))
    moves = [Move(scales[turn] * direction, f"round {turn}", turn) for turn in (0, ROUNDS - 1)]
    claim = Claim.stated(epsilon=1.0, delta=1e-5, rounds=ROUNDS)
    *_, found = structure_checks(sample, moves, claim)
    assert found.passed is not shown, found.words


@pytest.mark.parametrize("copied", [False, True])
def test_releases_of_zeros_are_no_copies_and_equal_releases_are(copied):
    rng = np.random.default_rng(2)
    noise = rng.normal(size=(8, 2, ROUNDS, DIM))
    # Lost or withheld after the noise, at random.
    noise[rng.random(noise.shape[:3]) < 0.3] = 0.0
    noise[0, :, 0] = 0.0
    if copied:
        noise[1, 0, 3] = noise[2, 0, 5] = rng.normal(size=DIM)
    steady, present = np.ones(ROUNDS, dtype=bool), np.ones((2, ROUNDS), dtype=bool)
    sample = NoiseSample(values=noise, present=present, steady=steady, senders=(0, 1))
    found = {one.name: one for one in structure_checks(sample, [], Claim.stated(epsilon=1.0, delta=1e-5))}
    assert found[OWN_IN_RUNS].passed is not copied, found[OWN_IN_RUNS].words


@pytest.mark.parametrize("seed", range(3))
def test_releases_of_zeros_leave_no_direction_without_noise(seed):
    """As by shrinkage of noised releases: the others are fewer than their contrasts, and than the weights."""
    rng = np.random.default_rng(seed)
    noise = rng.normal(size=(9, 1, ROUNDS, 80))
    noise[rng.random(noise.shape[:3]) < 0.4] = 0.0
    steady, present = np.ones(ROUNDS, dtype=bool), np.ones((1, ROUNDS), dtype=bool)
    sample = NoiseSample(values=noise, present=present, steady=steady, senders=None)
    moves = [Move(rng.normal(size=80), f"round {turn}", turn) for turn in range(ROUNDS)]
    *_, found = structure_checks(sample, moves, Claim.stated(epsilon=1.0, delta=1e-5, rounds=ROUNDS))
    assert found.passed, found.words
