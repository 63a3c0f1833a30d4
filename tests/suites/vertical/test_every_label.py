"""A claim about labels holds for every two labels, and the checks look at more than the two most frequent ones."""

import math
from dataclasses import dataclass, replace

import pytest
import torch
from fedassay.audit.check import CHANNEL, DRAWN
from fedassay.audit.claim import Claim
from fedassay.audit.observer import FINAL_MODEL, PASSIVE_PARTY
from fedassay.fl.streams import Streams, normal
from fedassay.fl.vertical.protection import VerticalProtection
from fedassay.suites.vertical.case import VerticalCase
from fedassay.suites.vertical.checks.play_back import vertical_checks
from fedassay.suites.vertical.pairs import LABELS, frequent, labels_of, pairs_of_claim
from fedassay.suites.vertical.runs import best_separated
from torch.nn.functional import one_hot
from toy_vertical import LOGISTIC, SPLIT, label_case, toy_vertical

TASK, PLAN = toy_vertical(SPLIT)
RARE = labels_of(TASK, Streams(0))[-1]
EPSILON = 2.0
CLAIM = Claim.stated(EPSILON, unit="label", observer=PASSIVE_PARTY, rounds=PLAN.epochs)


@dataclass
class Response(VerticalProtection):
    """Randomised response, but one label is released as it is."""

    clear: int = -1

    def targets(self, one_hot, context, rng):
        labels = one_hot.argmax(-1)
        drawn = torch.from_numpy(rng.integers(3, size=tuple(labels.shape)))
        keep = torch.from_numpy(rng.random(tuple(labels.shape))) < math.expm1(EPSILON) / (math.exp(EPSILON) + 2)
        return self.released(torch.where(keep | (labels == self.clear), labels, drawn)).to(one_hot.dtype)

    def released(self, labels):
        return one_hot(labels, 3)


class Renamed(Response):
    """Releases other numbers than those of the labels, which is the same to who knows the numbers."""

    def released(self, labels):
        return one_hot((labels + 1) % 3, 3)


@dataclass
class Noised(VerticalProtection):
    """Noise on residuals, but less for one label."""

    clear: int = -1
    least: float = 0.01

    def residuals(self, values, context, rng):
        spared = context.targets.argmax(-1, keepdim=True) == self.clear
        return values + torch.where(spared, self.least, 20.0) * normal(rng, tuple(values.shape))


def checked(protection, claim=CLAIM, network=SPLIT):
    task, plan = toy_vertical(network)
    case = VerticalCase(claim=claim, task=task, plan=plan, protection=protection)
    return {one.name: one for one in vertical_checks(case)}


@pytest.mark.simulations
@pytest.mark.parametrize("kind", [Response, Renamed])
@pytest.mark.parametrize("clear", [0, 1, 2])
def test_a_label_that_is_released_as_it_is_fails_the_channel_whichever_it_is(kind, clear):
    assert checked(kind(clear))[CHANNEL].passed is False


@pytest.mark.simulations
@pytest.mark.parametrize("kind", [Response, Renamed])
def test_the_channel_of_an_honest_randomiser_is_near_its_claim_and_within_it(kind):
    found = checked(kind())[CHANNEL]
    assert found.passed
    assert 0.9 * EPSILON < found.measured <= EPSILON


@pytest.mark.simulations
@pytest.mark.parametrize("clear", [0, 1, 2])
def test_draws_show_the_label_with_less_noise_and_spare_equal_noise(clear):
    claim = replace(CLAIM, delta=1e-5)
    assert checked(Noised(clear), claim, LOGISTIC)[DRAWN].passed is False
    assert checked(Noised(), claim, LOGISTIC)[DRAWN].passed


def test_the_runs_are_about_the_label_that_a_score_separates_best():
    case = label_case(Response(RARE), epsilon=EPSILON)
    pair = best_separated(case, case.pairs)
    assert pair.words.endswith(f"or {RARE}")
    assert RARE not in frequent(TASK)


def test_every_label_is_in_a_pair_and_the_noise_is_measured_on_one_pair_of_each_party():
    pairs = pairs_of_claim(CLAIM, TASK, Streams(0))
    assert {tuple(sorted(labels(pair))) for pair in pairs} == {
        tuple(sorted((frequent(TASK)[0], label))) for label in range(3) if label != frequent(TASK)[0]
    }
    assert [pair.party for pair in pairs if not pair.brief] == [0, 1]


def labels(pair):
    """The labels of the person under either data set."""
    return [int(pair.plant(arm, 1).labels[0, pair.person]) for arm in (0, 1)]


def test_of_many_labels_the_rarest_one_and_some_by_chance_are_looked_at():
    network = replace(SPLIT, classes=40)
    task, _ = toy_vertical(network, n=60)
    found = labels_of(task, Streams(0))
    counts = torch.bincount(task.public.labels, minlength=40)
    assert len(set(found)) == LABELS == len(found)
    assert found[:2] == frequent(task)
    assert counts[found[2]] == counts.min()
    assert set(found) != set(labels_of(task, Streams(1)))


def test_of_two_labels_there_is_one_pair_of_each_observer():
    task, _ = toy_vertical(replace(SPLIT, classes=2))
    published = replace(CLAIM, observer=FINAL_MODEL)
    assert len(pairs_of_claim(published, task, Streams(0))) == 1
    assert len(pairs_of_claim(CLAIM, task, Streams(0))) == 2
