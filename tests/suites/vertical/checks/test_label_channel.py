"""A released label that follows the labels of other people shows whether a label equals theirs."""

import math

import pytest
import torch
from fedassay.fl.vertical.protection import VerticalProtection
from fedassay.suites.vertical.checks import label_channel
from fedassay.suites.vertical.checks.label_channel import channel_check
from torch.nn.functional import one_hot
from toy_vertical import label_case

CLASSES, EPSILON = 3, 2.0


class Randomised(VerticalProtection):
    """Releases a function of the labels and of their independent randomised responses, both ``(R, n)``."""

    def __init__(self, function):
        self.function = function

    def targets(self, values, context, rng):
        labels = values.argmax(-1)
        drawn = torch.from_numpy(rng.integers(CLASSES, size=tuple(labels.shape)))
        keep = torch.from_numpy(rng.random(tuple(labels.shape))) < math.expm1(EPSILON) / (math.exp(EPSILON) + 2)
        return one_hot(self.function(labels, torch.where(keep, labels, drawn)), CLASSES).to(values.dtype)


def before_in_a_run(labels, found):
    """The first released label of each run of equal labels, in all of it."""
    found = found.clone()
    for place in range(1, labels.shape[1]):
        same = labels[:, place] == labels[:, place - 1]
        found[:, place] = torch.where(same, found[:, place - 1], found[:, place])
    return found


def before_where_labels_are_equal(labels, found):
    """The released label of the person before, where both labels are equal."""
    return torch.where(labels == labels.roll(1, 1), found.roll(1, 1), found)


def after_for_one_label(labels, found):
    """The released label of the person after, where both have the last label."""
    return torch.where((labels == labels.roll(-1, 1)) & (labels == CLASSES - 1), found.roll(-1, 1), found)


def in_the_order_of_labels(labels, found):
    return found.gather(1, labels.argsort(dim=1, stable=True))


def before_where_releases_are_close(labels, found):
    """A function of released labels alone."""
    return torch.where((found - found.roll(1, 1)).abs() == 1, found.roll(1, 1), found)


def in_the_order_of_releases(labels, found):
    return found.sort(dim=1).values


def checked(function, seed=0, alpha=1e-4):
    case = label_case(Randomised(function), epsilon=EPSILON, seed=seed)
    return channel_check(case, range(CLASSES), alpha=alpha)


@pytest.mark.simulations
@pytest.mark.parametrize(
    "function", [before_in_a_run, before_where_labels_are_equal, after_for_one_label, in_the_order_of_labels]
)
def test_a_release_that_shows_whether_labels_are_equal_fails(function):
    assert checked(function).passed is False


@pytest.mark.parametrize("function", [before_where_releases_are_close, in_the_order_of_releases])
def test_a_function_of_all_released_labels_passes(function):
    assert checked(function).passed


@pytest.mark.simulations
def test_independent_responses_fail_no_oftener_than_alpha(monkeypatch):
    """Of 20 checks that may each fail with probability .05, more than 5 fail with probability 3e-4."""
    for name in ("TRIALS", "PILOT", "COMPARED"):
        monkeypatch.setattr(label_channel, name, 2**10)
    found = [checked(lambda labels, found: found, seed, alpha=0.05) for seed in range(20)]
    assert sum(one.passed is False for one in found) <= 5
    assert max(one.measured for one in found) > EPSILON / 2


def test_a_hook_that_returns_nothing_is_named_where_released_labels_are_drawn():
    class Nothing(VerticalProtection):
        def targets(self, values, context, rng):
            return None

    found = channel_check(label_case(Nothing()), range(CLASSES), alpha=0.01)
    assert found.passed is None
    assert "hook targets must return a torch.Tensor" in found.witness
