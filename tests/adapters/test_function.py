"""Mechanisms of other libraries: global generators, generators of their own, sources without a seed."""

import random

import numpy as np
import pytest
import torch
from fedassay.adapters.function import Function
from fedassay.audit.claim import Claim

CLAIM = Claim.stated(1.0, unit="report", adjacency="replace_one")


def from_numpy(x):
    return x + np.random.laplace()  # noqa: NPY002


def from_python(x):
    return x + random.expovariate(1) - random.expovariate(1)


def from_torch(x):
    return x + float(torch.distributions.Laplace(0.0, 1.0).sample())


def too_little(x):
    return x + 0.4 * np.random.laplace()  # noqa: NPY002


class Library:
    """A mechanism object with a generator of its own."""

    def __init__(self, scale=1.0):
        self.scale, self.rng = scale, np.random.default_rng()

    def seed(self, seed):
        self.rng = np.random.default_rng(seed)

    def randomise(self, x):
        return x + self.scale * self.rng.laplace()


def audited(function, trials=400, **options):
    return function.audit(CLAIM, inputs=(0.0, 1.0), trials=trials, **options)


@pytest.mark.parametrize(
    "call",
    [from_numpy, *(pytest.param(one, marks=pytest.mark.simulations) for one in (from_python, from_torch))],
)
def test_a_correct_mechanism_that_draws_from_a_global_generator_is_not_refuted(call):
    before = random.getstate(), np.random.get_state()[1].tobytes(), torch.get_rng_state()  # noqa: NPY002
    assert audited(Function(call=call)).verdict.value == "NOT_REFUTED"
    assert before[:2] == (random.getstate(), np.random.get_state()[1].tobytes())  # noqa: NPY002
    assert torch.equal(before[2], torch.get_rng_state())


@pytest.mark.simulations
def test_too_little_noise_is_refuted_and_the_finding_repeats():
    found = audited(Function(call=too_little))
    assert found.verdict.value == "REFUTED"
    assert audited(Function(call=too_little)) == found


@pytest.mark.simulations
def test_an_object_with_its_own_generator_is_seeded_by_hand():
    library = Library(scale=0.4)
    assert audited(Function(call=library.randomise, reseed=library.seed)).verdict.value == "REFUTED"
    with pytest.raises(ValueError, match="the same calls with the same generator returned other outputs"):
        audited(Function(call=Library().randomise, batched=False))


def test_noise_that_cannot_be_seeded_gets_independent_trials():
    system = random.SystemRandom()

    def call(x):
        return x + 0.3 * (system.expovariate(1) - system.expovariate(1))

    assert audited(Function(call=call, seedable=False)).verdict.value == "REFUTED"


def test_a_batched_mechanism_makes_many_trials_in_a_call():
    def call(rows):
        return rows + 0.4 * np.random.laplace(size=rows.shape)  # noqa: NPY002

    assert audited(Function(call=call, batched=True), trials=20_000).verdict.value == "REFUTED"


def test_a_batched_mechanism_without_a_seed_that_repeats_its_noise_is_refused():
    def call(rows):
        return rows + np.random.default_rng(0).laplace(size=rows.shape)

    function = Function(call=call, batched=True, seedable=False)
    for trials in (50, 1500):
        with pytest.raises(ValueError, match="two calls returned the same 200 outputs"):
            audited(function, trials=trials)


def test_equal_batches_of_few_values_are_no_repeated_noise():
    rng = np.random.default_rng(0)
    rare = Function(call=lambda rows: rng.random(rows.shape) < 1e-4, batched=True, seedable=False)
    assert rare.unseeded_outputs(0.0, 2000).shape == (2000,)
    missing = Function(call=lambda rows: np.full(rows.shape, np.nan), batched=True, seedable=False)
    assert missing.unseeded_outputs(0.0, 2000).shape == (2000,)


def test_noise_that_does_not_repeat_under_a_seed_names_what_to_do():
    system = random.SystemRandom()
    with pytest.raises(ValueError, match=r"reseed=.*seedable=False"):
        audited(Function(call=lambda x: x + system.random()))


@pytest.mark.parametrize("seedable", [True, False])
def test_an_output_of_texts_and_numbers_and_what_cannot_be_called_are_refused(seedable):
    with pytest.raises(TypeError, match=r"call must be a function call\(x\), got 3"):
        Function(call=3)
    with pytest.raises(ValueError, match=r"got a tuple that holds both: \(1.2, 'a'\)"):
        audited(Function(call=lambda x: (1.2, "a"), seedable=seedable))
