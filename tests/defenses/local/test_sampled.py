"""Sampled reports: k of d coordinates, unbiased, worth exactly their budget; every member of the family."""

import itertools
import math
import tracemalloc
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from fedassay.audit.claim import Adjacency, Unit
from fedassay.audit.observer import SHUFFLED, UPLOADS
from fedassay.defenses.local.categories.grid import Gridded
from fedassay.defenses.local.defense import (
    LocalDefense,
    NumberDefense,
    SampledDefense,
    SampledLaw,
    drawn_places,
    sendable,
)
from fedassay.defenses.local.numbers.ldp_duchi import LDPDuchi
from fedassay.defenses.local.numbers.ldp_laplace import LDPLaplace
from fedassay.defenses.randomisers.numbers.laplace import Laplace
from fedassay.fl.message import Message
from fedassay.fl.protection import Context
from known_parts import parts_by_name
from scipy import stats
from small_randomisers import moments

LOCAL = {name: part for name, part in parts_by_name("defense").items() if issubclass(part, LocalDefense)}
NUMBERS = {name: part for name, part in LOCAL.items() if issubclass(part, NumberDefense)}
SAMPLED = {name: part for name, part in LOCAL.items() if issubclass(part, SampledDefense)}
EACH = pytest.mark.parametrize("part", [pytest.param(part, id=name) for name, part in SAMPLED.items()])
ENDS = (-1.0, 0.0, 1.0)
BIASED = {"ldp_clipped_laplace", "ldp_fed"}
"""Members whose mechanism has no unbiased estimator."""


@pytest.fixture(scope="module")
def plan(toy_task, toy_plan):
    """Two rounds, three clients, 30 coordinates."""
    return toy_plan(toy_task(), rounds=2)


def numbers_of(number):
    """Reports of one number at which the ratio of two laws is largest: all of them, or some of a quadrature's nodes and
    the edges between its intervals.
    """
    if isinstance(number, Gridded) or number.atomic:
        return number.atoms
    outputs = number.outputs(*ENDS)
    special = outputs.reports[(outputs.weights == 0) | (outputs.weights == 1)]
    return np.concatenate([special, outputs.reports[:: len(outputs.reports) // 8]])


def exact_epsilon(law, dim):
    """The largest log-ratio of one report over all rows of ends and centres, and all draws of coordinates."""
    reports = numbers_of(law.number)
    rows = law.radius * torch.tensor(list(itertools.product(ENDS, repeat=dim)))
    largest = 0.0
    for places in itertools.combinations(range(dim), law.coordinates):
        found = np.array(list(itertools.product(reports, repeat=law.coordinates)))
        release = torch.zeros(len(found), dim)
        release[:, places] = torch.from_numpy(sendable(found * law.radius * dim / law.coordinates))
        logs = law.log_density(release.unsqueeze(1), law.contribution(rows)).numpy()
        logs = logs[np.isfinite(logs).any(1)]
        largest = max(largest, float((logs.max(1) - logs.min(1)).max()))
    return largest


@EACH
def test_all_rounds_of_a_report_are_worth_the_claimed_epsilon(part, plan):
    """Two of three coordinates in each of two rounds: losses of rounds add, and one pair may be worst in both."""
    defense = part(epsilon=3.0, coordinates=2)
    (claim,) = defense.prepare(plan).claims
    assert 2 * exact_epsilon(defense.release(plan), 3) == pytest.approx(claim.epsilon, rel=1e-5)


@dataclass(frozen=True, kw_only=True)
class Undivided(LDPDuchi):
    """Every number gets the whole round's budget."""

    def number(self, epsilon):
        return super().number(epsilon * self.coordinates)


def test_a_budget_that_is_not_divided_shows_as_twice_the_claim(plan):
    defense = Undivided(epsilon=3.0, coordinates=2)
    assert 2 * exact_epsilon(defense.release(plan), 3) == pytest.approx(6.0, rel=1e-5)


def rows_of(replicas, rows, radius):
    """Updates of five coordinates, one of them beyond the radius."""
    return (
        torch.tensor([[-0.9, -0.3, 0.0, 0.4, 2.0], [0.1, 0.2, -0.6, 1.0, -0.5]])[:rows].expand(replicas, -1, -1)
        * radius
    )


def reported(protection, plan, values, seed=0, present=None):
    present = torch.ones(values.shape[:2], dtype=torch.bool) if present is None else present
    updates = Message(values=values, present=present, senders=tuple(range(values.shape[1])))
    context = Context(plan=plan, round=0, replicas=len(values), senders=updates.senders)
    return protection.report(updates, context, {}, np.random.default_rng(seed)), context


def moments_of(number, value):
    """Mean and variance of one number's report, from its law."""
    if not isinstance(number, Gridded):
        return moments(number, value)
    masses = np.exp(number.log_density(number.atoms, np.full(number.atoms.shape, value)))
    mean = masses @ number.atoms
    return mean, masses @ number.atoms**2 - mean**2


@EACH
def test_the_aggregate_has_the_stated_mean_and_variance(part, toy_task, toy_plan):
    """20,000 replicas of two clients, five coordinates of which two are sent: mean within five standard errors and
    variance within five of its own; a false alarm in 10^5 members.
    """
    plan = toy_plan(toy_task((4, 4)), rounds=2)
    defense = part(epsilon=8.0, coordinates=2, radius=0.5)
    protection = defense.prepare(plan).protection
    rows = rows_of(20_000, 2, defense.radius)
    seen, context = reported(protection, plan, rows)
    aggregate = protection.aggregate(seen, context, {}, np.random.default_rng(1)).double().numpy()
    clipped = np.clip(rows[0].double().numpy() / defense.radius, -1, 1)
    parts = np.array([[moments_of(protection.release.number, value) for value in row] for row in clipped])
    mean, variance = parts[..., 0], parts[..., 1]
    if part not in map(LOCAL.get, BIASED):
        np.testing.assert_allclose(mean, clipped, atol=1e-9)
    # One entry's estimate: d / k times the report with chance k / d, else zero.
    variance = 5 / 2 * (variance + mean**2) - mean**2
    expected = defense.radius**2 * variance.sum(0) / 4
    away = aggregate - defense.radius * mean.mean(0)
    assert np.all(np.abs(away.mean(0)) < 5 * np.sqrt(expected / 20_000))
    kurtosis = (away**4).mean(0) / expected**2 - 1
    assert np.all(np.abs((away**2).mean(0) / expected - 1) < 5 * np.sqrt(kurtosis / 20_000))


def test_a_loop_over_rows_and_coordinates_gives_the_same_reports():
    law = SampledLaw(number=Laplace(epsilon=0.7, radius=1.0), radius=0.5, coordinates=3)
    rows = torch.randn(4, 2, 7, generator=torch.Generator().manual_seed(0))
    rng = np.random.default_rng(3)
    places, by_hand = drawn_places(8, 7, 3, rng), np.zeros((8, 7))
    for row in range(8):
        for place in places[row]:
            value = min(0.5, max(-0.5, float(rows.reshape(8, 7)[row, place])))
            by_hand[row, place] = 7 / 3 * (value + rng.laplace(scale=2 * 0.5 / 0.7))
    seen = law.sample(rows, np.random.default_rng(3))
    np.testing.assert_allclose(seen.reshape(8, 7).numpy(), by_hand, rtol=1e-5)


@pytest.mark.parametrize(("dim", "count"), [(5, 1), (5, 3), (5, 5), (4, 3)])
def test_every_set_of_coordinates_is_drawn_alike(dim, count):
    """Chi-square over 20,000 rows, wrong once in 10^6 seeds."""
    places = np.sort(drawn_places(20_000, dim, count, np.random.default_rng(0)), axis=1)
    sets, seen = np.unique(places, axis=0, return_counts=True)
    assert [tuple(row) for row in sets] == list(itertools.combinations(range(dim), count))
    statistic = np.sum((seen - 20_000 / len(sets)) ** 2) / (20_000 / len(sets))
    assert stats.chi2.sf(statistic, max(1, len(sets) - 1)) > 1e-6


@EACH
def test_every_row_shows_exactly_which_coordinates_it_sent(part, plan):
    """Even where a report is zero; absent rows stay zero, and nothing depends on the replica's place."""
    protection = part(epsilon=8.0, coordinates=4).prepare(plan).protection
    present = torch.arange(600).reshape(200, 3) % 5 > 0
    values = torch.zeros(200, 3, 30).masked_fill(present.unsqueeze(-1), 0.003)
    seen, _ = reported(protection, plan, values, present=present)
    assert torch.equal((seen.values != 0).sum(-1), 4 * present)
    assert bool(protection.release.log_density(seen.values, values)[present].isfinite().all())
    # 4 of 30 coordinates: even if all numbers were equal two of 480 rows would agree for 27,405 sets now and then.
    assert len(seen.values[present].unique(dim=0)) > 0.95 * int(present.sum())


@EACH
def test_a_report_with_another_number_of_coordinates_is_impossible(part, plan):
    law = part(coordinates=2).release(plan)
    row = torch.zeros(5)
    release = law.sample(row, np.random.default_rng(0))
    assert math.isfinite(float(law.log_density(release, row)))
    assert float(law.log_density(torch.zeros(5), row)) == -math.inf
    assert float(law.log_density(release.masked_fill(release == release[release != 0][0], 0), row)) == -math.inf


@EACH
def test_densities_by_coordinate_add_up_where_all_are_sent_and_are_refused_elsewhere(part, plan):
    law = part(coordinates=4).release(plan)
    row = torch.linspace(-0.02, 0.02, 4)
    release = law.sample(row.expand(3, 4), np.random.default_rng(0))
    torch.testing.assert_close(law.log_densities(release, row).sum(-1), law.log_density(release, row))
    unsent = law.log_densities(release.index_fill(1, torch.tensor([2]), 0.0), row)
    assert (unsent == -math.inf).tolist() == 3 * [[False, False, True, False]]
    with pytest.raises(ValueError, match="not independent: only 4 of 5"):
        law.log_densities(torch.zeros(5), torch.zeros(5))


@EACH
def test_a_diverged_update_still_sends_finite_numbers(part, plan):
    law = part(coordinates=3).release(plan)
    wild = torch.tensor([math.nan, math.inf, -math.inf])
    release = law.sample(wild.expand(50, 3), np.random.default_rng(0))
    assert bool(release.isfinite().all())
    torch.testing.assert_close(law.contribution(wild), law.radius * torch.tensor([0.0, 1.0, -1.0]))


@pytest.mark.parametrize("name", NUMBERS)
def test_rows_of_real_size_are_not_drawn_number_by_number(name, toy_task, toy_plan):
    """Doubles for all numbers of 400 rows would be 83 MB."""
    plan = toy_plan(toy_task((4, 4), inert=26_010 - 30), rounds=20)
    law, rows = NUMBERS[name]().release(plan), torch.zeros(400, 26_010)
    tracemalloc.start()
    seen = law.sample(rows, np.random.default_rng(0))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 4 * 2**20
    assert torch.equal((seen != 0).sum(-1), torch.full((400,), law.coordinates))


@pytest.mark.parametrize(("epsilon", "rounds", "sent"), [(8.0, 20, 1), (100.0, 2, 20), (1000.0, 2, 30), (5.0, 1, 2)])
def test_a_coordinate_is_sent_for_every_two_and_a_half_of_a_rounds_budget(epsilon, rounds, sent, plan):
    (claim,) = LDPLaplace(epsilon=epsilon).prepare(replace(plan, rounds=rounds)).claims
    assert claim.parameters["coordinates"] == sent
    assert claim.parameters["number_epsilon"] == pytest.approx(epsilon / rounds / sent)


@pytest.mark.parametrize("name", LOCAL)
def test_it_claims_any_two_reports_of_all_rounds_against_the_server(name, plan):
    (claim,) = LOCAL[name](epsilon=2.0, radius=0.03).prepare(plan).claims
    assert (claim.unit, claim.adjacency, claim.observer) == (Unit.REPORT, Adjacency.REPLACE_ONE, UPLOADS)
    assert (claim.epsilon, claim.delta, claim.rounds, claim.dp_model) == (2.0, 0.0, 2, "local")
    assert (claim.parameters["radius"], claim.trust) == (0.03, "nobody")


@pytest.mark.parametrize("name", LOCAL)
def test_who_sees_less_than_the_uploads_has_no_law(name, plan):
    protection = LOCAL[name]().prepare(plan).protection
    assert protection.law(UPLOADS, plan, 0) is not None
    assert protection.law(SHUFFLED, plan, 0) is None


@pytest.mark.parametrize("bad", [-1e-5, 1.0, math.nan, math.inf])
def test_a_delta_that_is_none_is_refused(bad):
    with pytest.raises(ValueError, match=f"delta must be in .* got {bad}"):
        LDPLaplace(delta=bad)


@pytest.mark.parametrize("name", LOCAL)
@pytest.mark.parametrize("field", ["epsilon", "radius"])
@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, math.inf])
def test_a_budget_or_a_range_that_is_none_is_refused(name, field, bad):
    with pytest.raises(ValueError, match=f"{field} must be a number > 0, got {bad}"):
        LOCAL[name](**{field: bad})


@EACH
def test_more_coordinates_than_there_are_and_none_are_refused(part, plan):
    with pytest.raises(ValueError, match="coordinates must be <= 30, the number of coordinates of an update, got 31"):
        part(coordinates=31).prepare(plan)
    for bad in (0, -1, 1.5):
        with pytest.raises(ValueError, match="coordinates must be"):
            part(coordinates=bad)


def test_a_budget_that_hides_nothing_is_refused(plan):
    with pytest.raises(ValueError, match="each sent number must have an epsilon of at most 300"):
        LDPDuchi(epsilon=700.0, coordinates=1).prepare(plan)
