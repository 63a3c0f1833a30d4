"""Arrays sent with reports, with noise of their own: too little of it is found, and enough passes."""

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch
from fedassay.audit.check import MESSAGE, OTHER_DATA, SIDE_ARRAYS
from fedassay.checks.event_odds import heavy_tailed_epsilon
from fedassay.checks.replay import check_claim
from fedassay.fl.streams import normal
from fedassay.suites.mutation.mutants import versions
from scipy.stats import laplace as laplace_law
from scipy.stats import logistic, norm


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


@pytest.mark.simulations
@pytest.mark.parametrize("count", [labels, inputs])
def test_raw_numbers_of_labels_and_of_inputs_are_found(count):
    assert checked("lot_size_query", count, none)[MESSAGE].passed is False


@pytest.mark.simulations
@pytest.mark.parametrize("count", [labels, inputs])
def test_too_little_noise_is_found(count):
    found = checked("lot_size_query", count, gaussian(0.05))[SIDE_ARRAYS]
    assert found.passed is False
    assert "report array counts" in found.witness


@pytest.mark.long
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("count", "std"), [(labels, 6.0), (inputs, 30.0)])
def test_enough_noise_passes(count, std, seed):
    found = checked("lot_size_query", count, gaussian(std), seed=seed)
    assert not {name for name, one in found.items() if one.passed is False}
    assert found[SIDE_ARRAYS].passed


@pytest.mark.simulations
def test_a_count_that_is_sent_once_needs_the_noise_of_one_round():
    """With this noise five releases are beyond twice epsilon 4, and one is not."""
    once, always = (checked("lot_size_query", labels, make(0.18))[SIDE_ARRAYS] for make in (only_first, gaussian))
    assert once.passed
    assert always.passed is False


@pytest.mark.simulations
@pytest.mark.parametrize("std", [0.05, 6.0])
def test_noise_of_another_shape_gets_no_verdict(std):
    found = checked("lot_size_query", labels, laplace(std))[SIDE_ARRAYS]
    assert found.passed is None
    assert "does not look Gaussian" in found.witness


@pytest.mark.simulations
def test_without_arrays_sent_with_reports_there_is_no_check():
    found = versions("first_row_free")
    results = check_claim(found.task, found.plan, found.correct.protection, found.correct.claims[0])
    assert SIDE_ARRAYS not in {one.name for one in results}


@pytest.mark.simulations
def test_noise_whose_size_follows_the_inputs_is_found():
    found = versions("clipped_flag_side")

    class Scaled(type(found.correct.protection)):
        def report(self, updates, context, state, rng):
            sent = super().report(updates, context, state, rng)
            bright = torch.tensor([[float(context.samples(client).images.mean())] for client in updates.senders])
            factor = (bright / 0.28).clamp(max=1)
            return sent.with_values(updates.values + (sent.values - updates.values) * factor)

    protection = copy.copy(found.correct.protection)
    object.__setattr__(protection, "__class__", Scaled)
    results = check_claim(found.task, found.plan, protection, found.correct.claims[0])
    result = {one.name: one for one in results}[OTHER_DATA]
    assert result.passed is False
    assert "where all inputs equal the shortest one" in result.witness


@pytest.mark.parametrize("share", [1.0, 0.5])
@pytest.mark.parametrize("steps", [2.0, 6.0, 40.0])
def test_the_bound_lies_below_the_exact_epsilon_of_gaussian_laplace_and_logistic_noise(steps, share):
    """Of a record in another's place: its number lies at -a or at a in a share of the runs, and at 0 in the others."""
    measured = heavy_tailed_epsilon(steps, share, 0.0)
    for noise in (norm(), laplace_law(scale=0.5**0.5), logistic(scale=3**0.5 / np.pi)):
        at = np.linspace(-steps, 2 * steps, 20001)
        one, other = (
            np.logaddexp(np.log(share) + noise.logpdf(at - end), np.log1p(-share) + noise.logpdf(at))
            if share < 1
            else noise.logpdf(at - end)
            for end in (steps / 2, -steps / 2)
        )
        assert measured <= float((one - other).max())


@pytest.mark.simulations
def test_a_claim_about_some_units_or_one_part_is_not_compared_with_all():
    found, protection = extended("lot_size_query", labels, gaussian(0.05))
    claim = found.correct.claims[0]
    for limited in (replace(claim, subjects="clients of budget 1"), replace(claim, part="layer")):
        results = check_claim(found.task, found.plan, protection, limited)
        assert SIDE_ARRAYS not in {one.name for one in results}
