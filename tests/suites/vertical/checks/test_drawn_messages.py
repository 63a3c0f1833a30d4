"""Draws of a hook's output are held against the claim, whatever is done to the numbers after the noise."""

import math
from typing import ClassVar

import pytest
import torch
from fedassay.audit.check import DRAWN, PERSON_MOVE
from fedassay.audit.curve import mu_from_epsilon
from fedassay.audit.observer import FINAL_MODEL
from fedassay.fl.streams import Streams, normal
from fedassay.fl.vertical.protection import Noise, Noised, VerticalLaw, VerticalProtection
from fedassay.suites.vertical.checks.play_back import play_back_checks
from fedassay.suites.vertical.pairs import pair_of_labels
from toy_vertical import LOGISTIC, SPLIT, label_case, toy_vertical

TASK, PLAN = toy_vertical(SPLIT, learning_rate=0.01)
SCALE = math.sqrt(2 * PLAN.epochs) / mu_from_epsilon(2.0, 1e-5)
LAW = VerticalLaw(noised=Noised.RESIDUALS, noise=Noise.GAUSSIAN, scale=SCALE, releases=PLAN.epochs)


class OnResiduals(VerticalProtection):
    """A function of residuals and of independent Gaussian noise that is large enough for the claim."""

    def __init__(self, function):
        self.function = function

    def residuals(self, values, context, rng):
        return self.function(values, SCALE * normal(rng, tuple(values.shape)))


class OnGradients(OnResiduals):
    residuals = VerticalProtection.residuals

    def gradients(self, values, party, context, rng):
        return OnResiduals.residuals(self, values, context, rng)


def drawn(protection, **options):
    return checks(protection, **options)[DRAWN]


def checks(protection, *, party=0, **facts):
    case = label_case(protection, **({"epsilon": 2.0, "delta": 1e-5, "law": LAW, "federation": (TASK, PLAN)} | facts))
    found = play_back_checks(case, [pair_of_labels(case.task, Streams(0), party)])
    return {check.name: check for check in found}


def smallest_blanked(values, noise):
    """The place that is left out is that of the smallest raw number: the label's residual."""
    return (values + noise).scatter(-1, values.argmin(-1, keepdim=True), 0.0)


def smallest_noised_blanked(values, noise):
    return (values + noise).scatter(-1, (values + noise).argmin(-1, keepdim=True), 0.0)


BROKEN = {
    "a place by the raw numbers": smallest_blanked,
    "whole-number noise on numbers between": lambda values, noise: values + noise.round(),
    "one row in five without noise": lambda values, noise: values + noise * (noise[..., :1].abs() > 0.25 * SCALE),
    "noise of two sizes by the raw sign": lambda values, noise: values + noise * (1 + 4 * (values > 0)),
}
HONEST = {
    "cut off": lambda values, noise: (values + noise).clamp(-SCALE, SCALE),
    "on a grid": lambda values, noise: (values + noise).round(),
    "the smallest noised number left out": smallest_noised_blanked,
    "signs": lambda values, noise: torch.sign(values + noise),
    "of sum 0": lambda values, noise: values + noise - (values + noise).mean(-1, keepdim=True),
    "more noise than is needed": lambda values, noise: values + 3 * noise,
}


@pytest.mark.simulations
@pytest.mark.parametrize("name", BROKEN)
def test_a_message_that_shows_the_label_past_its_noise_fails(name):
    assert drawn(OnResiduals(BROKEN[name])).passed is False


@pytest.mark.simulations
@pytest.mark.parametrize("name", HONEST)
def test_what_is_done_after_the_noise_costs_nothing(name):
    found = drawn(OnResiduals(HONEST[name]))
    assert found.passed
    assert found.measured <= 2.0


@pytest.mark.simulations
def test_without_a_law_what_the_party_receives_is_drawn():
    broken = BROKEN["a place by the raw numbers"]
    assert drawn(OnGradients(broken), law=None).passed is False
    # The gradients may hide what residuals show: no more than they are received.
    assert drawn(OnResiduals(broken), law=None).passed is None
    # Where the logits are the sum of the embeddings, residuals are what is sent.
    summed = toy_vertical(LOGISTIC, learning_rate=0.01)
    assert drawn(OnResiduals(broken), law=None, federation=summed).passed is False
    assert drawn(OnGradients(broken), law=None, observer=FINAL_MODEL).passed is None


def test_a_law_of_released_labels_is_no_law_of_the_published_model():
    channel = VerticalLaw(noised=Noised.TARGETS, channel=torch.eye(2), releases=1)
    assert drawn(OnResiduals(BROKEN["a place by the raw numbers"]), law=channel, observer=FINAL_MODEL).passed is None


class SameForAll(VerticalProtection):
    """One noise for all replicas: no draws of it are independent."""

    def residuals(self, values, context, rng):
        return values + SCALE * normal(rng, tuple(values.shape[1:]))


def test_noise_that_cannot_be_drawn_in_many_replicas_is_not_judged():
    found = drawn(SameForAll())
    assert found.passed is None
    assert "drawn alone" in found.witness


def test_messages_of_a_training_that_diverges_are_not_judged():
    found = checks(OnResiduals(lambda values, noise: values + 1e37 * noise))
    assert found[PERSON_MOVE].passed is None
    assert [check.words for check in found.values() if check.passed is False] == []


class Remembers(VerticalProtection):
    """Reads in later epochs what it stored in the first one, and adds enough noise in all."""

    def __init__(self):
        self.stored = {}

    def residuals(self, values, context, rng):
        if context.epoch == 0:
            self.stored[context.step] = SCALE
        return values + self.stored[context.step % PLAN.steps_per_epoch] * normal(rng, tuple(values.shape))


def test_a_hook_that_needs_what_it_stored_is_not_judged():
    found = checks(Remembers())
    assert [found[name].passed for name in (PERSON_MOVE, DRAWN)] == [None, None]
    assert "cannot be called alone" in found[PERSON_MOVE].witness
    assert "cannot be called alone" in found[DRAWN].witness


class WeakForOne(VerticalProtection):
    """Gradients of one party are almost without noise."""

    def __init__(self, weak):
        self.weak = weak

    def gradients(self, values, party, context, rng):
        return values + (5e-4 if party == self.weak else 100.0) * normal(rng, tuple(values.shape))


@pytest.mark.simulations
@pytest.mark.parametrize("party", [0, 1])
def test_what_every_party_receives_is_drawn(party):
    assert drawn(WeakForOne(party), law=None, party=party).passed is False
    assert drawn(WeakForOne(1 - party), law=None, party=party).passed


@pytest.mark.simulations
def test_messages_that_do_not_move_take_no_numbers_from_those_that_do():
    """One noise for all classes shows in the difference of two numbers alone, and one message in 12 moves."""
    federation = toy_vertical(SPLIT, learning_rate=0.01, batch=1, epochs=6)
    common = OnResiduals(lambda values, noise: values + 3 * noise[..., :1])
    assert drawn(common, federation=federation).passed is False


class OfAllPeople(VerticalProtection):
    """Noised labels of all people at once; ``given`` holds how many numbers each call is given."""

    given: ClassVar[list[int]] = []

    def targets(self, one_hot, context, rng):
        self.given.append(one_hot.numel())
        return one_hot + SCALE * normal(rng, tuple(one_hot.shape))


@pytest.mark.simulations
@pytest.mark.parametrize(("people", "judged"), [(500, True), (20_000, False)])
def test_messages_of_all_people_are_drawn_in_bounded_memory(people, judged):
    OfAllPeople.given.clear()
    law = VerticalLaw(noised=Noised.TARGETS, noise=Noise.GAUSSIAN, scale=SCALE, releases=1)
    federation = toy_vertical(SPLIT, n=people, batch=people, epochs=1)
    found = checks(OfAllPeople(), law=law, federation=federation)
    assert max(OfAllPeople.given) <= 2**20
    assert found[PERSON_MOVE].passed
    assert found[DRAWN].passed is (True if judged else None)
    assert judged or "would draw" in found[DRAWN].witness


@pytest.mark.simulations
def test_messages_may_exceed_a_claim_about_the_published_model():
    """The last model shows less than all messages do, which the public does not receive."""
    honest = OnResiduals(lambda values, noise: values + noise)
    found = checks(honest, observer=FINAL_MODEL, epsilon=0.5)
    assert [check.words for check in found.values() if check.passed is False] == []
    assert "public does not receive" in found[PERSON_MOVE].witness
    assert checks(honest, epsilon=0.5)[PERSON_MOVE].passed is False
