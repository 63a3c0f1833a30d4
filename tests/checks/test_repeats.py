"""Noise of few values: vectors and numbers that repeat bit for bit in independent runs, and those that may."""

import numpy as np
import pytest
import torch
from fedassay.audit.check import NUMBERS, VECTORS
from fedassay.checks.received import RepeatedNoise, _named

RUNS, ROUNDS = 600, 10


def found(names=None, numbers=None):
    repeats = RepeatedNoise()
    rounds = [] if names is None else [{"holder": names[:, turn : turn + 1]} for turn in range(names.shape[1])]
    repeats.add(rounds, numbers)
    return {result.name: result for result in repeats.results()}


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def test_vectors_of_a_seed_of_sixteen_bits_repeat_among_six_thousand(rng):
    result = found(rng.integers(2**16, size=(RUNS, ROUNDS)).astype(float))[VECTORS]
    assert result.passed is False
    # 6000^2 / 2 / 65536 = 275 pairs.
    assert 200 < result.measured < 350


@pytest.mark.parametrize("rounding", [0.0, 1e-7])
def test_vectors_that_all_runs_of_a_batch_share_are_one_vector(rng, rounding):
    """Also where the last run's sum is rounded in another way, as by a product of matrices."""
    repeats = RepeatedNoise()
    for _ in range(100):
        batch = np.concatenate([np.repeat(rng.random((1, 2)), 50, axis=0), rng.random((50, 1))], axis=1)
        batch[-1] *= 1 + rounding
        repeats.add([{"holder": batch[:, turn : turn + 1]} for turn in range(3)], None)
    (result,) = repeats.results()
    assert result.passed


def test_continuous_vectors_do_not_repeat(rng):
    assert found(rng.random((RUNS, ROUNDS)))[VECTORS].passed


def test_a_vector_that_comes_again_in_its_own_run_is_no_repeat(rng):
    assert found(np.repeat(rng.random((RUNS, 1)), ROUNDS, axis=1)) == {}
    delayed = rng.random((RUNS, ROUNDS))
    delayed[:, 1] = delayed[:, 0]
    assert found(delayed)[VECTORS].passed


@pytest.mark.parametrize("values", [2**16, 2**60])
def test_clients_that_come_in_other_rounds_than_others_are_compared(rng, values):
    """A batch holds the vectors of its own client: here one of every round, then one of every third."""
    repeats = RepeatedNoise()
    for _ in range(6):
        for stride in (1, 3):
            batch = rng.integers(values, size=(RUNS, ROUNDS)).astype(float)
            repeats.add([{"holder": batch[:, [turn]]} if turn % stride == 0 else {} for turn in range(ROUNDS)], None)
    (result,) = repeats.results()
    assert result.passed is (values == 2**60)


def test_a_public_constant_of_each_round_is_no_noise(rng):
    names = rng.random((RUNS, 2 * ROUNDS))
    names[:, ::2] = np.arange(ROUNDS)
    assert found(names)[VECTORS].passed


def test_equal_vectors_have_one_name_in_whatever_row_they_stand(rng):
    assert len(np.unique(_named(torch.from_numpy(rng.standard_normal(1731)).repeat(1073, 2, 1)))) == 1


def test_vectors_of_few_numbers_are_left_out():
    assert found(np.full((RUNS, ROUNDS), np.nan)) == {}


def laplace(uniform):
    half = uniform - 0.5
    return np.sign(half) * np.log1p(-2 * np.abs(half))


def test_laplace_noise_from_a_uniform_number_of_sixteen_bits_has_few_values(rng):
    uniform = (rng.integers(2**16, size=2**16) + 0.5) / 2**16
    result = found(numbers=1.0 + laplace(uniform))[NUMBERS]
    assert result.passed is False
    assert 2**15 < result.measured < 2**17


@pytest.mark.parametrize("centre", [0.0, 1.0, 100.0])
def test_noise_of_single_precision_has_enough_values_wherever_it_lies(rng, centre):
    numbers = (np.float32(centre) + rng.standard_normal(2**16, dtype=np.float32)).astype(float)
    results = found(numbers=numbers)
    assert NUMBERS not in results or results[NUMBERS].passed


def test_numbers_on_a_grid_and_discrete_ones_may_repeat(rng):
    assert NUMBERS not in found(numbers=np.rint(40 * rng.standard_normal(2**14)) / 4)
    assert NUMBERS not in found(numbers=rng.integers(8, size=2**14).astype(float))
