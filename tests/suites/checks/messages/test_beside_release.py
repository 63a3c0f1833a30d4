"""Numbers beside the release, with noise of their own: too little of it is found, and enough passes."""

import copy

import numpy as np
import pytest
import torch
from fedassay.fl.streams import normal
from fedassay.suites.checks.messages.beside_release import BESIDE_RELEASE, _any_noise, _gaussian
from fedassay.suites.checks.messages.message_checks import MESSAGE
from fedassay.suites.checks.noise.draw_checks import OTHER_DATA
from fedassay.suites.checks.replay_checks import check_claim
from fedassay.suites.mutation.mutants import versions


def labels(samples):
    return torch.bincount(samples.labels, minlength=10).float()


def inputs(samples):
    return samples.images.flatten(1).sum(0)


def extended(name, count, noise):
    """The correct version of a pair whose reports carry what ``count`` makes of a client's samples, with noise."""
    found = versions(name)

    class Counting(type(found.correct.protection)):
        def report(self, updates, context, state, rng):
            sent = super().report(updates, context, state, rng)
            rows = torch.stack([count(context.samples(client)) for client in updates.senders])
            rows = rows.expand(len(updates.values), -1, -1)
            sent.side["counts"] = noise(rows, context.round, rng)
            return sent

    protection = copy.copy(found.correct.protection)
    object.__setattr__(protection, "__class__", Counting)
    return found, protection


def checked(name, count, noise, seed=0):
    found, protection = extended(name, count, noise)
    results = check_claim(found.task, found.plan, protection, found.correct.claims[0], seed=seed)
    return {one.name: one for one in results}


def gaussian(std):
    return lambda rows, turn, rng: rows + std * normal(rng, tuple(rows.shape))


def laplace(std):
    return lambda rows, turn, rng: rows + torch.from_numpy(rng.laplace(scale=std / 2**0.5, size=rows.shape)).float()


def none(rows, turn, rng):
    return rows


def only_first(std):
    return lambda rows, turn, rng: rows + std * normal(rng, tuple(rows.shape)) if turn == 0 else torch.zeros_like(rows)


@pytest.mark.parametrize("count", [labels, inputs])
def test_raw_numbers_of_labels_and_of_inputs_are_found(count):
    assert checked("lot_size_query", count, none)[MESSAGE].passed is False


@pytest.mark.parametrize("count", [labels, inputs])
@pytest.mark.parametrize("noise", [gaussian(0.05), laplace(0.005)])
def test_too_little_noise_is_found(count, noise):
    found = checked("lot_size_query", count, noise)[BESIDE_RELEASE]
    assert found.passed is False
    assert "report array counts" in found.witness


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("count", "std"), [(labels, 6.0), (inputs, 30.0)])
def test_enough_noise_passes(count, std, seed):
    found = checked("lot_size_query", count, gaussian(std), seed=seed)
    assert not {name for name, one in found.items() if one.passed is False}
    assert found[BESIDE_RELEASE].passed


def test_a_count_that_is_sent_once_needs_the_noise_of_one_round():
    """Of labels with a standard deviation of .8, one release is within twice epsilon 4, and five are not."""
    assert checked("lot_size_query", labels, only_first(0.8))[BESIDE_RELEASE].passed
    assert checked("lot_size_query", labels, gaussian(0.8))[BESIDE_RELEASE].passed is False


def test_noise_of_another_shape_that_is_large_gets_no_verdict():
    found = checked("lot_size_query", labels, laplace(6.0))[BESIDE_RELEASE]
    assert found.passed is None
    assert "not Gaussian" in found.witness


def test_without_numbers_beside_the_release_there_is_no_check():
    found = versions("first_row_free")
    results = check_claim(found.task, found.plan, found.correct.protection, found.correct.claims[0])
    assert BESIDE_RELEASE not in {one.name for one in results}


def test_noise_whose_size_follows_the_inputs_is_found():
    found = versions("clipped_flag_side")

    class Scaled(type(found.correct.protection)):
        def report(self, updates, context, state, rng):
            sent = super().report(updates, context, state, rng)
            bright = torch.tensor([[float(context.samples(client).images.mean())] for client in updates.senders])
            factor = 0.5 + 2 * bright.clamp(max=0.25)
            return sent.with_values(updates.values + (sent.values - updates.values) * factor)

    protection = copy.copy(found.correct.protection)
    object.__setattr__(protection, "__class__", Scaled)
    results = check_claim(found.task, found.plan, protection, found.correct.claims[0])
    result = {one.name: one for one in results}[OTHER_DATA]
    assert result.passed is False
    assert "inputs of the smallest numbers" in result.witness


def test_the_bound_for_gaussian_noise_lies_just_below_the_exact_epsilon():
    """One release of mu-GDP at mu = 1 and delta 1e-5 has epsilon 4.377 (Dong et al. 2022, corollary 1)."""
    assert 4.36 < _gaussian(1.0, 1.0, 1e-5, 4.0) <= 4.3772
    assert _gaussian(1.0, 0.5, 1e-5, 4.0) < _gaussian(1.0, 1.0, 1e-5, 4.0)


@pytest.mark.parametrize("draw", [np.random.Generator.standard_normal, np.random.Generator.laplace])
def test_the_bound_for_any_noise_holds_for_what_is_counted(draw):
    values = draw(np.random.default_rng(0), size=10**6)
    for steps in (3.0, 6.0):
        half = steps * values.std() / 2
        often, rare = float((values + 2 * half > half).mean()), float((values > half).mean())
        assert _any_noise(steps, 1.0, 0.0) <= np.log(often / rare)
