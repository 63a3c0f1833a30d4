"""Claims about one label or one party hold for every one: audits and checks look at pairs of data sets that differ in
several ways, because each broken defense fails in its own corner.
"""

import math
from dataclasses import dataclass, replace

import pytest
import torch
from fedassay.audit.check import CHANNEL, DRAWN, RELEASED
from fedassay.audit.observer import FINAL_MODEL, PASSIVE_PARTY
from fedassay.fl.streams import Streams, normal, uniform
from fedassay.fl.vertical.protection import VerticalProtection
from fedassay.suites.vertical.checks.play_back import play_back_checks, vertical_checks
from fedassay.suites.vertical.pairs import LABELS, frequent, labels_of
from fedassay.suites.vertical.runs import best_separated, measured_in_runs
from torch.nn.functional import one_hot
from toy_vertical import LOGISTIC, SPLIT, label_case, row_case, toy_vertical

FROZEN = toy_vertical(SPLIT, frozen=True)
COLUMNS = row_case(VerticalProtection(), delta=1e-5, federation=FROZEN)
LABEL = label_case(VerticalProtection(), delta=1e-5, federation=FROZEN)


def released(case, protection):
    case = replace(case, protection=protection)
    return next(check for check in play_back_checks(case, case.pairs) if check.name == RELEASED)


def chosen(case, protection):
    """The pair of data sets on which the runs are made."""
    case = replace(case, protection=protection)
    return best_separated(case, case.pairs)


def embedded(pair):
    """The embeddings of both rows at the pair's party, (2, embedding)."""
    rows = torch.cat([pair.plant(arm, 1).rows[pair.party] for arm in (0, 1)])
    network = COLUMNS.task.network
    bottoms = network.bottoms[pair.party], network.initial(Streams(0)).bottoms[pair.party]
    return bottoms[0].forward(bottoms[1], rows.unsqueeze(0))[0][0]


@pytest.mark.parametrize("pair", [pair for pair in COLUMNS.pairs if "one number" in pair.words])
def test_a_row_may_have_one_number_alone_in_its_embedding(pair):
    up, down = torch.nn.functional.normalize(embedded(pair), p=1, dim=1)
    number = int((up - down).abs().argmax())
    assert up[number] > 0.95
    assert down[number] < -0.95


class ZerosStay(VerticalProtection):
    """A missing number is 0 and stays missing; all others are hidden."""

    def columns(self, values, party, plan, rng):
        return torch.where(values == 0, values, normal(rng, tuple(values.shape)))


class OverLongest(VerticalProtection):
    """All people's embeddings are made short where one of the batch is long."""

    def embeddings(self, values, party, context, rng):
        longest = values.norm(dim=-1).amax(1).view(-1, 1, 1)
        sent = torch.nn.functional.normalize(values, dim=-1) / (1 + longest)
        return sent + 0.2 * normal(rng, tuple(values.shape))


class Spread(VerticalProtection):
    """Noise that fits an embedding whose length is spread over its numbers."""

    def embeddings(self, values, party, context, rng):
        return torch.nn.functional.normalize(values, p=1, dim=-1) + normal(rng, tuple(values.shape))


@pytest.mark.parametrize(
    ("protection", "words"), [(ZerosStay(), "zeros"), (OverLongest(), "zeros"), (Spread(), "one number")]
)
def test_the_runs_are_those_of_the_pair_that_a_score_separates_best(protection, words):
    assert words in chosen(COLUMNS, protection).words


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
    case = replace(COLUMNS, protection=Weaker(*scales))
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
    found = released(LABEL, Corrected())
    assert found.passed is False
    assert "party 2" in found.witness
    assert chosen(LABEL, Corrected()).party == 1


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
    # Under a smaller claim too: flips that are rarer than it allows are no constants yet.
    for epsilon in (20.0, 5.0):
        assert released(row_case(Signs(), epsilon=epsilon, federation=FROZEN), Signs()).passed


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
    published = label_case(VerticalProtection(), observer=FINAL_MODEL, federation=FROZEN)
    assert {pair.party for pair in published.pairs} == {0}
    assert {pair.party for pair in LABEL.pairs} == {pair.party for pair in COLUMNS.pairs} == {0, 1}


TASK, _ = toy_vertical(SPLIT)
RARE = labels_of(TASK, Streams(0))[-1]
EPSILON = 2.0


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


def checked(protection, **facts):
    return {one.name: one for one in vertical_checks(label_case(protection, epsilon=EPSILON, **facts))}


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
    facts = {"delta": 1e-5, "federation": toy_vertical(LOGISTIC)}
    assert checked(Noised(clear), **facts)[DRAWN].passed is False
    assert checked(Noised(), **facts)[DRAWN].passed


def test_the_runs_are_about_the_label_that_a_score_separates_best():
    pair = chosen(label_case(VerticalProtection(), epsilon=EPSILON), Response(RARE))
    assert pair.words.endswith(f"or {RARE}")
    assert RARE not in frequent(TASK)


def test_every_label_is_in_a_pair_and_the_noise_is_measured_on_one_pair_of_each_party():
    pairs = label_case(VerticalProtection()).pairs
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
    for observer, pairs in ((FINAL_MODEL, 1), (PASSIVE_PARTY, 2)):
        case = label_case(VerticalProtection(), observer=observer, federation=(task, LABEL.plan))
        assert len(case.pairs) == pairs
