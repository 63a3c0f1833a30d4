"""Tables of finite output spaces: frequencies, keys of rows, when there are too many outputs.

The lowest bits of floating-point noise reveal the input; those of noise on a grid do not.
"""

import math

import numpy as np
import pytest
from fedassay.audit.claim import Claim
from fedassay.audit.finding import Verdict
from fedassay.audit.mechanism.mechanism import audit_mechanism
from fedassay.audit.mechanism.scores import bit_cells, row_keys, tabulate
from fedassay.defenses.secure.integer_draws import laplace_on_grid


def test_the_ratios_by_hand():
    # Half a count more each: (2.5, 1.5, .5) of 4.5 against (.5, 1.5, 3.5) of 5.5.
    table = tabulate(np.array([0, 0, 7]), np.array([7, 9, 9, 9]))
    assert str(table) == "likelihood ratio of 3 outputs"
    expected = [math.log(member / 4.5 / (other / 5.5)) for member, other in ((2.5, 0.5), (1.5, 1.5), (0.5, 3.5))]
    np.testing.assert_allclose(table.score(np.array([0, 7, 9])), expected)
    np.testing.assert_allclose(table.score(np.array([[9], [8]])), [expected[2], 0])


@pytest.mark.parametrize(
    "outputs",
    [
        np.array(["a", "b", "ab", ""]),
        np.array([["a", "b"], ["b", "a"], ["ab", ""], ["", "ab"]]),
        np.stack(np.meshgrid(*[np.arange(6)] * 4), axis=-1).reshape(-1, 4),
        np.stack(np.meshgrid(*[[-0.5, 0.25, 1e-300]] * 5), axis=-1).reshape(-1, 5),
        np.arange(100),
        np.eye(40, dtype=bool),
        2**60 + np.arange(100),
        np.iinfo(np.int64).min + np.arange(100),
        np.uint64(2**63) + np.arange(200, dtype=np.uint64).reshape(100, 2),
    ],
    ids=["words", "pairs of words", "whole numbers", "fractions", "scalars", "bits", "large", "negative", "unsigned"],
)
def test_different_outputs_have_different_keys(outputs):
    keys = row_keys(outputs)
    assert keys.shape == (len(outputs),)
    assert len(np.unique(keys)) == len(outputs)
    np.testing.assert_array_equal(row_keys(outputs[::-1]), keys[::-1])


def test_equal_outputs_have_one_key_whatever_their_type():
    np.testing.assert_array_equal(row_keys(np.array([0.0, -0.0, 3.0])), row_keys(np.array([0, 0, 3])))
    np.testing.assert_array_equal(row_keys(np.array([2.0**60, -(2.0**63)])), row_keys(np.array([2**60, -(2**63)])))
    np.testing.assert_array_equal(row_keys(np.array([True, False])), row_keys(np.array([1, 0], dtype=np.int8)))
    np.testing.assert_array_equal(row_keys(np.array(["a", "bcd"])), row_keys(np.array(["a", "bcd"], dtype="U9")))


def test_outputs_that_are_nearly_all_different_make_no_table():
    rng = np.random.default_rng(0)
    assert tabulate(rng.random(1000), rng.random(1000)) is None
    assert tabulate(np.arange(20_000) % 1025, np.zeros(20_000)) is None
    assert tabulate(np.arange(20_000) % 1024, np.zeros(20_000)) is not None


def audit(mechanism, **options):
    options = {"inputs": (0.0, 1.0), "trials": 40_000, "batched": True} | options
    return audit_mechanism(mechanism, Claim.stated(1.0), **options)


def laplace(x, rng):
    return x + 1.05 * rng.laplace(size=x.shape)


BROKEN = {
    "laplace": laplace,
    "single precision": lambda x, rng: x.astype(np.float32) + rng.laplace(size=x.shape).astype(np.float32),
    "vectors": lambda x, rng: np.stack([rng.laplace(size=x.shape), laplace(x, rng)], axis=1),
}
SAFE = {
    "grid": lambda x, rng: laplace_on_grid(x, rng, epsilon=0.95, sensitivity=1.0, grid=2.0**-10),
    "rounded after a wide noise": lambda x, rng: np.round(laplace(x, rng) * 64) / 64,
}


@pytest.mark.parametrize("name", BROKEN)
def test_low_bits_of_noise_in_floating_point_are_refuted(name):
    assert audit(BROKEN[name], low_bits=True).verdict is Verdict.REFUTED


@pytest.mark.parametrize("name", SAFE)
def test_low_bits_of_noise_on_a_grid_are_not(name):
    assert audit(SAFE[name], low_bits=True).verdict is Verdict.NOT_REFUTED


def test_without_the_option_no_audit_looks_at_low_bits():
    assert audit(laplace).verdict is Verdict.NOT_REFUTED


def test_cells_are_pairs_of_exponents():
    same = bit_cells(np.array([1.0, -1.0]))
    assert same[0] == same[1]
    assert len(set(bit_cells(np.array([1.0, 1.5, 3.0, 1 + 2.0**-52, 0.75])).tolist())) == 5
    assert bit_cells(np.array([0.0, np.nan, np.inf, -np.inf])).tolist() == [0, 0, 0, 0]


def test_bad_options_are_refused():
    with pytest.raises(ValueError, match="give either score or low_bits, got both"):
        audit(laplace, low_bits=True, score=lambda outputs: outputs)
    with pytest.raises(ValueError, match="low bits need floating-point outputs, got int64"):
        audit(lambda x, rng: rng.integers(0, 9, size=x.shape), low_bits=True)


def test_noise_on_a_grid_has_the_scale_of_its_claim():
    rng = np.random.default_rng(0)
    drawn = laplace_on_grid(np.full(50_000, 0.3), rng, epsilon=1.0, sensitivity=1.0, grid=2.0**-6)
    assert np.all(drawn * 64 == np.rint(drawn * 64))
    assert abs(drawn.mean() - 0.3) < 0.03
    # One step more than the sensitivity: a scale of 65/64.
    assert abs(np.abs(drawn - 0.3).mean() - 65 / 64) < 0.02
    for bad in ({"grid": 0.1}, {"epsilon": 0.0}, {"sensitivity": np.inf}):
        with pytest.raises(ValueError, match="must be"):
            laplace_on_grid(np.zeros(2), rng, **({"epsilon": 1.0, "sensitivity": 1.0, "grid": 0.5} | bad))
