"""Noised messages are judged as they are: by their noise, correlated, of several sizes, or kept from step to step, and
by draws of what is sent, whatever is done to the numbers after the noise.
"""

import math
from typing import ClassVar

import pytest
import torch
from fedassay.audit.check import ALL_DIRECTIONS, DRAWN, DRAWN_LAW, PERSON_MOVE, RELEASED
from fedassay.audit.curve import mu_from_epsilon
from fedassay.audit.observer import FINAL_MODEL
from fedassay.defenses.vertical.defense import clipped, drawn
from fedassay.fl.streams import Streams, normal
from fedassay.fl.vertical.protection import Noise, Noised, VerticalLaw, VerticalProtection
from fedassay.suites.vertical.checks.play_back import play_back_checks
from fedassay.suites.vertical.pairs import pair_of_labels
from toy_vertical import LOGISTIC, SPLIT, OnResiduals, label_case, row_case, toy_vertical

TASK, PLAN = toy_vertical(SPLIT, learning_rate=0.01)
PERSON = pair_of_labels(TASK, Streams(0)).person
BATCH, COMMON = 4, 0.8
SCALE = math.sqrt(2 * PLAN.epochs) / mu_from_epsilon(2.0, 1e-5)
"""Of independent Gaussian noise on residuals: a label moves its row by sqrt 2, once in each epoch."""


class Noisy(VerticalProtection):
    """Noise on residuals, made by a function of a tensor of independent normal numbers."""

    def __init__(self, noise):
        self.noise = noise

    def residuals(self, values, context, rng):
        return values + self.noise(normal(rng, tuple(values.shape)), context)


def on_residuals(function):
    return OnResiduals(function, SCALE)


class OnGradients(OnResiduals):
    residuals = VerticalProtection.residuals

    def gradients(self, values, party, context, rng):
        return OnResiduals.residuals(self, values, context, rng)


def checks(protection, *, party=0, noise=Noise.GAUSSIAN, **facts):
    law = VerticalLaw(noised=Noised.RESIDUALS, noise=noise, scale=SCALE, releases=PLAN.epochs)
    case = label_case(protection, **({"epsilon": 2.0, "delta": 1e-5, "law": law, "federation": (TASK, PLAN)} | facts))
    found = play_back_checks(case, [pair_of_labels(case.task, Streams(0), party)])
    return {check.name: check for check in found}


def in_draws(protection, **facts):
    return checks(protection, **facts)[DRAWN]


def failed(found):
    return [check.words for check in found.values() if check.passed is False]


def weighted(factors):
    """Noise of one size in the row of the person whose label differs, and of another in all other rows."""

    def noise(drawn, context):
        own = torch.where(context.people == PERSON, factors[0], factors[1])
        return SCALE * own.view(1, -1, 1) * drawn

    return Noisy(noise)


def test_independent_noise_is_measured_as_what_is_claimed():
    found = checks(weighted((1.0, 1.0)))
    assert found[PERSON_MOVE].measured == pytest.approx(2.0, rel=0.06)
    assert found[PERSON_MOVE].passed
    assert found[DRAWN_LAW].passed


SHAPES = {
    "exact for one number in a hundred": lambda drawn: drawn * (drawn.abs() > 0.0125),
    "of two sizes": lambda drawn: drawn * (0.5 + drawn.roll(1, 1).abs()) / 1.39,
    "of equal density between two ends": lambda drawn: math.sqrt(3) * torch.erf(drawn / math.sqrt(2)),
}


@pytest.mark.simulations
@pytest.mark.parametrize("name", SHAPES)
def test_noise_of_the_stated_size_and_another_distribution_fails(name):
    """Numbers of about the variance that is published, without its distribution."""
    found = checks(Noisy(lambda drawn, context: SCALE * SHAPES[name](drawn)))
    assert found[DRAWN_LAW].passed is False


@pytest.mark.simulations
def test_noise_with_a_part_in_common_is_judged_by_its_covariance():
    """By hand: the covariance of a batch's rows in one column, inverted, at the person's own entry."""
    root = torch.eye(BATCH) + COMMON * 2 * torch.full((BATCH, BATCH), 1 / BATCH)
    inverse = float(torch.linalg.inv(root @ root.T)[0, 0])

    def noise(size):
        return Noisy(
            lambda drawn, context: size * SCALE * math.sqrt(inverse) * (drawn + 2 * COMMON * drawn.mean(1, True))
        )

    honest, weak = checks(noise(1.0)), checks(noise(0.8))
    assert failed(honest) == []
    assert honest[PERSON_MOVE].measured == pytest.approx(2.0, rel=0.06)
    assert weak[PERSON_MOVE].passed is False


def test_noise_that_is_equal_for_all_people_leaves_a_direction_bare():
    found = checks(Noisy(lambda drawn, context: SCALE * drawn[:, :1].expand_as(drawn)))
    assert found[ALL_DIRECTIONS].passed is False


def test_noise_within_the_directions_in_which_labels_move_is_enough():
    """Residuals sum to zero, and so may their noise."""
    found = checks(Noisy(lambda drawn, context: SCALE * (drawn - drawn.mean(2, True))))
    assert failed(found) == []
    assert found[PERSON_MOVE].measured == pytest.approx(2.0, rel=0.06)


@pytest.mark.parametrize(("factors", "passes"), [((1.0, 0.3), True), ((0.5, 1.5), False)])
def test_the_noise_of_the_row_that_moves_is_what_counts(factors, passes):
    assert checks(weighted(factors))[PERSON_MOVE].passed is passes


class Clamped(Noisy):
    """Numbers are cut off after the noise: that is post-processing."""

    def residuals(self, values, context, rng):
        return super().residuals(values, context, rng).clamp(-2.2 * SCALE, 2.2 * SCALE)


def test_numbers_that_are_cut_off_after_the_noise_are_not_judged():
    found = checks(Clamped(lambda drawn, context: SCALE * drawn))
    assert found[PERSON_MOVE].passed is None
    assert failed(found) == []


class Kept(VerticalProtection):
    """Noise of which each step takes back a part of that of the step before, which only a theorem about all steps can
    judge.
    """

    last = None

    def residuals(self, values, context, rng):
        drawn = SCALE * normal(rng, tuple(values.shape))
        before, self.last = self.last, drawn
        return values + drawn - (0.0 if before is None else 0.9 * before)


def test_noise_that_hangs_on_earlier_steps_is_not_judged():
    found = checks(Kept())
    assert found[PERSON_MOVE].passed is None
    assert "earlier calls" in found[PERSON_MOVE].witness
    assert failed(found) == []


@pytest.mark.simulations
@pytest.mark.parametrize(("shared", "passes"), [(0.0, True), (0.5, None)])
def test_laplace_noise_is_judged_where_it_is_independent(shared, passes):
    def noise(drawn, context):
        laplace = -torch.log1p(-torch.erf(drawn.abs() / math.sqrt(2))) * drawn.sign()
        return PLAN.epochs * (laplace + shared * laplace.roll(1, 1))

    found = checks(Noisy(noise), delta=0.0, noise=Noise.LAPLACE)
    assert found[PERSON_MOVE].passed is passes
    assert found[DRAWN_LAW].passed is passes
    assert failed(found) == []


def test_a_hook_that_is_set_on_the_object_is_played_back():
    protection = VerticalProtection()
    protection.residuals = Noisy(lambda drawn, context: SCALE * drawn).residuals
    found = checks(protection)
    assert found[RELEASED].passed
    assert found[PERSON_MOVE].passed


@pytest.mark.simulations
@pytest.mark.parametrize("bits", [8, 11, 14])
@pytest.mark.parametrize("noise", Noise)
def test_noised_numbers_may_be_rounded_to_a_fixed_point_grid(bits, noise):
    def residuals(values, context, rng):
        shape = tuple(values.shape)
        laplace = torch.from_numpy(rng.laplace(scale=PLAN.epochs, size=shape)).float()
        drawn = SCALE * normal(rng, shape) if noise is Noise.GAUSSIAN else laplace
        return torch.round((values + drawn) * 2**bits) / 2**bits

    protection = VerticalProtection()
    protection.residuals = residuals
    found = checks(protection, noise=noise, delta=1e-5 if noise is Noise.GAUSSIAN else 0.0)
    assert failed(found) == []
    assert found[DRAWN_LAW].passed is None


def test_noise_that_is_rounded_before_it_is_added_fails():
    found = checks(Noisy(lambda drawn, context: torch.round(SCALE * drawn * 2**11) / 2**11))
    assert found[DRAWN_LAW].passed is False


class Mixed(VerticalProtection):
    """Noise of one kind on embeddings, and of another one on the sums of the gradients of bottom models."""

    def __init__(self, kind, sums):
        self.kind, self.sums = kind, sums

    def embeddings(self, values, party, context, rng):
        return clipped(values, 1.0, self.kind) + drawn(self.kind, 1.0, tuple(values.shape), rng)

    def bottom_weights(self, norms, party, context):
        return (1 / norms.clamp_min(1.0)).nan_to_num()

    def bottom_sum(self, total, party, context, rng):
        return total.nan_to_num() + drawn(self.sums, 8.0, tuple(total.shape), rng)


def of_embeddings(protection, published, *, epsilon=4.0):
    """The results of a claim about one row: of epsilon 4, Laplace noise of scale 1 on embeddings needs one half."""
    law = VerticalLaw(noised=Noised.EMBEDDINGS, noise=published, scale=1.0, releases=1, clip=1.0)
    federation = toy_vertical(SPLIT, learning_rate=0.01, epochs=1)
    case = row_case(protection, epsilon=epsilon, delta=1e-5, law=law, federation=federation)
    found = play_back_checks(case, case.pairs[:1])
    return {check.name: check for check in found}


@pytest.mark.simulations
def test_sums_of_gradients_may_have_noise_of_another_kind_than_the_law_describes():
    for kind, other in ((Noise.LAPLACE, Noise.GAUSSIAN), (Noise.GAUSSIAN, Noise.LAPLACE)):
        found = of_embeddings(Mixed(kind, other), kind, epsilon=12.0)
        assert failed(found) == []
        assert found[DRAWN_LAW].passed
        assert found[PERSON_MOVE].passed is None
        # The norm of Laplace noise is exact at delta 0 alone.
        assert kind is Noise.LAPLACE or "several kinds" in found[PERSON_MOVE].witness
        assert of_embeddings(Mixed(other, kind), kind, epsilon=12.0)[DRAWN_LAW].passed is False


def test_sums_of_gradients_with_the_noise_that_the_law_describes_count_too():
    found = of_embeddings(Mixed(Noise.GAUSSIAN, Noise.GAUSSIAN), Noise.GAUSSIAN, epsilon=12.0)
    assert found[PERSON_MOVE].passed
    assert found[DRAWN_LAW].passed


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
    assert in_draws(on_residuals(BROKEN[name])).passed is False


@pytest.mark.simulations
@pytest.mark.parametrize("name", HONEST)
def test_what_is_done_after_the_noise_costs_nothing(name):
    found = in_draws(on_residuals(HONEST[name]))
    assert found.passed
    assert found.measured <= 2.0


@pytest.mark.simulations
def test_without_a_law_what_the_party_receives_is_drawn():
    broken = BROKEN["a place by the raw numbers"]
    assert in_draws(OnGradients(broken, SCALE), law=None).passed is False
    # The gradients may hide what residuals show: no more than they are received.
    assert in_draws(on_residuals(broken), law=None).passed is None
    # Where the logits are the sum of the embeddings, residuals are what is sent.
    summed = toy_vertical(LOGISTIC, learning_rate=0.01)
    assert in_draws(on_residuals(broken), law=None, federation=summed).passed is False
    assert in_draws(OnGradients(broken, SCALE), law=None, observer=FINAL_MODEL).passed is None


def test_a_law_of_released_labels_is_no_law_of_the_published_model():
    channel = VerticalLaw(noised=Noised.TARGETS, channel=torch.eye(2), releases=1)
    assert (
        in_draws(on_residuals(BROKEN["a place by the raw numbers"]), law=channel, observer=FINAL_MODEL).passed is None
    )


class SameForAll(VerticalProtection):
    """One noise for all replicas: no draws of it are independent."""

    def residuals(self, values, context, rng):
        return values + SCALE * normal(rng, tuple(values.shape[1:]))


def test_noise_that_cannot_be_drawn_in_many_replicas_is_not_judged():
    found = in_draws(SameForAll())
    assert found.passed is None
    assert "drawn again by itself" in found.witness


def test_messages_of_a_training_that_diverges_are_not_judged():
    found = checks(on_residuals(lambda values, noise: values + 1e37 * noise))
    assert found[PERSON_MOVE].passed is None
    assert failed(found) == []


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
    assert in_draws(WeakForOne(party), law=None, party=party).passed is False
    assert in_draws(WeakForOne(1 - party), law=None, party=party).passed


@pytest.mark.simulations
def test_messages_that_do_not_move_take_no_numbers_from_those_that_do():
    """One noise for all classes shows in the difference of two numbers alone, and one message in 12 moves."""
    federation = toy_vertical(SPLIT, learning_rate=0.01, batch=1, epochs=6)
    common = on_residuals(lambda values, noise: values + 3 * noise[..., :1])
    assert in_draws(common, federation=federation).passed is False


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
    honest = on_residuals(lambda values, noise: values + noise)
    found = checks(honest, observer=FINAL_MODEL, epsilon=0.5)
    assert failed(found) == []
    assert "public does not receive" in found[PERSON_MOVE].witness
    assert checks(honest, epsilon=0.5)[PERSON_MOVE].passed is False
