"""A claim about one party holds for every passive party, and audits look at each of them."""

import pytest
import torch
from fedassay.audit.check import RELEASED
from fedassay.audit.claim import Claim
from fedassay.audit.observer import ACTIVE_PARTY, FINAL_MODEL, PASSIVE_PARTY
from fedassay.fl.streams import Streams, normal, uniform
from fedassay.fl.vertical.protection import VerticalProtection
from fedassay.suites.vertical.case import VerticalCase
from fedassay.suites.vertical.checks.play_back import play_back_checks
from fedassay.suites.vertical.pairs import pairs_of_claim
from fedassay.suites.vertical.runs import best_separated, measured_in_runs
from toy_vertical import SPLIT, toy_vertical

TASK, PLAN = toy_vertical(SPLIT, frozen=True)
COLUMNS = Claim.stated(1.0, 1e-5, unit="sample", observer=ACTIVE_PARTY, rounds=PLAN.epochs)
LABELS = Claim.stated(1.0, 1e-5, unit="label", observer=PASSIVE_PARTY, rounds=PLAN.epochs)


def case_of(claim, protection):
    return VerticalCase(claim=claim, task=TASK, plan=PLAN, protection=protection)


def released(claim, protection):
    case = case_of(claim, protection)
    return next(check for check in play_back_checks(case, case.pairs) if check.name == RELEASED)


def chosen(claim, protection):
    case = case_of(claim, protection)
    return best_separated(case, case.pairs)


class Weaker(VerticalProtection):
    """Bounded embeddings with less noise at some parties."""

    def __init__(self, *scales):
        self.scales = scales

    def embeddings(self, values, party, context, rng):
        return torch.tanh(values) + self.scales[party] * normal(rng, tuple(values.shape))


@pytest.mark.simulations
@pytest.mark.parametrize("scales", [(20.0, 0.5), (0.5, 20.0)])
def test_the_runs_are_about_the_party_with_the_least_noise(scales):
    weakest = scales.index(min(scales))
    assert chosen(COLUMNS, Weaker(*scales)).party == weakest
    case = case_of(COLUMNS, Weaker(*scales))
    found = measured_in_runs(case, case.pairs, replicas=1000, pilot=300, alpha=0.01)
    assert found.epsilon_low > 1
    assert f"party {weakest + 1}" in found.witness


class Corrected(VerticalProtection):
    """Noise on residuals; the second party is sent the error of the labels' estimate as well."""

    def residuals(self, values, context, rng):
        return values + 20.0 * normal(rng, tuple(values.shape))

    def gradients(self, values, party, context, rng):
        return values if party == 0 else values + context.targets[..., :2]


def test_what_another_party_is_sent_is_compared_and_tried_too():
    found = released(LABELS, Corrected())
    assert found.passed is False
    assert "party 2" in found.witness
    assert chosen(LABELS, Corrected()).party == 1


@pytest.mark.simulations
def test_a_hook_without_randomness_hides_nothing():
    """Its outputs follow its inputs, so playing them back would hide what the adversary receives."""
    assert released(COLUMNS, Weaker(1.0, 0.0)).passed is False
    assert released(COLUMNS, Weaker(0.0, 1.0)).passed is False
    assert released(COLUMNS, Weaker(1.0, 1.0)).passed


class Halves(VerticalProtection):
    """Noise on some numbers of each embedding alone."""

    def embeddings(self, values, party, context, rng):
        noise = normal(rng, tuple(values.shape))
        return torch.tanh(values) + noise * torch.tensor([1.0, 0.0])


@pytest.mark.simulations
def test_a_number_without_noise_hides_nothing_where_the_adversary_receives_it():
    assert released(COLUMNS, Halves()).passed is False


class Signs(VerticalProtection):
    """Signs by randomised response at an epsilon of 5 each; few of them flip in any one draw."""

    def embeddings(self, values, party, context, rng):
        flips = uniform(rng, tuple(values.shape)) < 1 / (1 + 2.718281828**5)
        return torch.where(flips, -1.0, 1.0) * torch.where(values > 0, 1.0, -1.0)


@pytest.mark.simulations
def test_outputs_that_seldom_differ_are_noise_all_the_same():
    claim = Claim.stated(5.0 * 2 * PLAN.epochs, unit="sample", observer=ACTIVE_PARTY, rounds=PLAN.epochs)
    assert released(claim, Signs()).passed
    # Under a smaller claim too: flips that are rarer than it allows are no constants yet.
    assert released(Claim.stated(5.0, unit="sample", observer=ACTIVE_PARTY, rounds=PLAN.epochs), Signs()).passed


class Kept(VerticalProtection):
    """Noise that is drawn once for each party and person, and kept: embeddings are the same in all epochs."""

    def __init__(self):
        self.noise = {}

    def embeddings(self, values, party, context, rng):
        kept = self.noise.setdefault(party, {})
        for person in context.people.tolist():
            kept.setdefault(person, normal(rng, (values.shape[0], values.shape[2])))
        return torch.tanh(values) + torch.stack([kept[person] for person in context.people.tolist()], dim=1)


def test_noise_that_is_kept_from_earlier_steps_is_noise():
    assert released(COLUMNS, Kept()).passed


def test_published_models_are_one_adversary():
    published = Claim.stated(1.0, unit="label", observer=FINAL_MODEL, rounds=PLAN.epochs)
    assert {pair.party for pair in pairs_of_claim(published, TASK, Streams(0))} == {0}
    assert {pair.party for pair in pairs_of_claim(LABELS, TASK, Streams(0))} == {0, 1}
    assert {pair.party for pair in pairs_of_claim(COLUMNS, TASK, Streams(0))} == {0, 1}
