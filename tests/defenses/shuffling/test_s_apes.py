"""S-APES: the exact law of what is sent by brute force, the published figures, and what the small outputs show."""

import itertools
import math

import numpy as np
import pytest
import torch
from fedassay.audit.claim import Unit
from fedassay.audit.estimators.pairwise_event import EventCounts, pairwise_event
from fedassay.audit.evidence import Design, Setting
from fedassay.audit.observer import SHUFFLED, UPLOADS
from fedassay.defenses.accounting.pld import many_epsilon
from fedassay.defenses.randomisers.numbers.clipped_laplace import ClippedLaplace
from fedassay.defenses.shuffling.claims import LargestPair, LocalPair
from fedassay.defenses.shuffling.s_apes import SAPES
from fedassay.defenses.shuffling.top_reports import RandomReportsLaw, TopReportsLaw
from fedassay.fl.message import Message
from fedassay.fl.protection import Context
from scipy.integrate import trapezoid
from toy_federation import flat_plan

RADIUS = 1.0


def plan(clients=4, dim=6, rounds=1):
    return flat_plan(clients, dim, rounds=rounds)


def brute_force_random(release, centres, budget, kept):
    """Over all sets of kept coordinates, which are equally likely: their densities, dummies elsewhere."""
    one = ClippedLaplace(epsilon=budget, radius=RADIUS)
    sets = list(itertools.combinations(range(len(release)), kept))
    total = sum(
        math.prod(
            np.exp(one.log_density(z, g if k in chosen else 0.0))
            for k, (z, g) in enumerate(zip(release, centres, strict=True))
        )
        for chosen in sets
    )
    return math.log(total / len(sets))


def brute_force(release, centres, budget, kept):
    """Over all sets of kept coordinates: their densities, dummies elsewhere, and all else at most the smallest kept."""
    one, grid = ClippedLaplace(epsilon=budget, radius=RADIUS), np.linspace(-RADIUS, RADIUS, 200_001)
    total = 0.0
    for chosen in itertools.combinations(range(len(release)), kept):
        least, chance = min(abs(release[k]) for k in chosen), 1.0
        for k, (z, g) in enumerate(zip(release, centres, strict=True)):
            if k in chosen:
                chance *= np.exp(one.log_density(z, g))
                continue
            inside = np.abs(grid) <= least
            chance *= np.exp(one.log_density(z, 0.0)) * trapezoid(np.exp(one.log_density(grid, g)) * inside, grid)
        total += chance
    return math.log(total)


@pytest.mark.parametrize("centres", [(1.0, 1.0, -1.0, 1.0), (0.3, -0.7, 0.0, 1.0), (0.0, 0.0, 0.0, 0.0)])
@pytest.mark.parametrize("kept", [1, 2, 4])
def test_the_density_is_the_sum_over_all_that_may_have_been_kept(centres, kept):
    law = TopReportsLaw(radius=RADIUS, budget=2.0, kept=kept)
    for release in ((0.9, -0.2, 0.5, 0.1), (-0.01, 0.02, 0.03, 0.04), (1.0, 0.99, -0.98, 0.6)):
        found = float(law.log_density(torch.tensor(release).double(), torch.tensor(centres)))
        assert found == pytest.approx(brute_force(release, centres, 2.0, kept), abs=2e-4)


@pytest.mark.parametrize("centres", [(1.0, 1.0, -1.0, 1.0), (0.3, -0.7, 0.0, 1.0)])
@pytest.mark.parametrize("kept", [1, 2, 4])
def test_the_density_of_random_ones_is_the_mean_over_all_choices(centres, kept):
    law = RandomReportsLaw(radius=RADIUS, budget=2.0, kept=kept)
    for release in ((0.9, -0.2, 0.5, 0.1), (1.0, 0.99, -0.98, 0.6)):
        found = float(law.log_density(torch.tensor(release).double(), torch.tensor(centres)))
        assert found == pytest.approx(brute_force_random(release, centres, 2.0, kept), abs=1e-6)
    assert law.log_density(torch.tensor([1.5, 0.0, 0.0, 0.0]), torch.zeros(4)) == -math.inf


def test_random_ones_show_no_more_than_those_that_are_kept():
    """At no report on a grid of 9^4 do two rows differ by more than kept budgets; at the ends they come near."""
    law, grid = RandomReportsLaw(radius=RADIUS, budget=2.0, kept=2), torch.linspace(-RADIUS, RADIUS, 9).double()
    reports = torch.cartesian_prod(grid, grid, grid, grid)
    low, high = (row.double() for row in law.worst_pair(4))
    ratios = law.log_density(reports, high) - law.log_density(reports, low)
    assert 0.5 * 2 * law.budget < float(ratios.max()) <= 2 * law.budget
    assert float(ratios.max()) < 4 * law.budget - 1


def test_both_ways_of_summing_agree():
    law, rng = TopReportsLaw(radius=RADIUS, budget=3.0, kept=3), np.random.default_rng(0)
    centres = torch.full((20, 7), 0.6).double()
    release = law.sample(centres, rng)
    nearly = centres.clone()
    nearly[:, 0] += 1e-9
    torch.testing.assert_close(law.log_density(release, centres), law.log_density(release, nearly), atol=1e-6, rtol=0)


def test_what_cannot_be_sent_has_no_density():
    law = TopReportsLaw(radius=RADIUS, budget=2.0, kept=2)
    assert law.log_density(torch.tensor([1.5, 0.0, 0.0]), torch.zeros(3)) == -math.inf
    with pytest.raises(ValueError, match="the coordinates of a report are not independent"):
        law.log_densities(torch.zeros(3), torch.zeros(3))


@pytest.mark.parametrize("selection", ["largest", "random"])
@pytest.mark.parametrize("centre", [0.0, 0.4, 1.0])
def test_the_density_is_that_of_what_the_hook_sends(centre, selection):
    """The mean of the density at 0 over the hook's own is 1: 20,000 reports, five standard errors."""
    prepared = SAPES(budget_scale=3.0, share=0.34, radius=RADIUS, selection=selection).prepare(plan())
    protection = prepared.protection
    assert protection.kept == 2
    context = Context(plan=plan(), round=0, replicas=20_000, senders=(2,))
    values = torch.full((20_000, 1, 6), centre)
    sent = Message(values=values, present=torch.ones(20_000, 1, dtype=torch.bool), senders=(2,))
    seen = protection.report(sent, context, {}, np.random.default_rng(0)).values[:, 0]
    law = protection.law(UPLOADS, plan(), 2)
    own, other = law.log_density(seen, values[:, 0]), law.log_density(seen, torch.full((20_000, 6), 0.2))
    ratio = (other - own).exp()
    assert float(ratio.std()) > 0.01
    assert abs(float(ratio.mean()) - 1) < 5 * float(ratio.std()) / 20_000**0.5
    assert protection.law(SHUFFLED, plan(), 2) is None


def largest_loss(law, release, dim):
    """The largest log-ratio of one report's densities over all pairs of vectors with entries -1, -1/2, 0, 1/2 and 1."""
    one = torch.tensor([-1.0, -0.5, 0.0, 0.5, 1.0]).double()
    vectors = torch.cartesian_prod(*[one] * dim).reshape(-1, dim)
    found = law.log_density(torch.tensor(release).double().expand(len(vectors), dim), vectors)
    return float(found.max() - found.min())


@pytest.mark.simulations
@pytest.mark.parametrize(("dim", "kept"), [(2, 1), (3, 1), (3, 2), (4, 2)])
@pytest.mark.parametrize("budget", [0.3, 3.0])
def test_no_report_shows_more_than_the_budgets_sent_and_the_small_numbers_that_were_not(dim, kept, budget):
    """Every report of a grid that is dense near 0, against every pair of vectors of a grid: b budgets and d - b times
    ln((e^(eps/2) + 1) / 2) are never exceeded, and one report comes within one budget of them, so that no claim below
    its loss is true.
    """
    law = TopReportsLaw(radius=RADIUS, budget=budget, kept=kept)
    small = math.log((math.exp(budget / 2) + 1) / 2)
    bound = dim * LargestPair(budget, kept=kept, among=dim).pure_epsilon
    assert bound == pytest.approx(kept * budget + (dim - kept) * small)
    sizes = (1e-8, 1e-4, 0.3, -0.8, 1.0)
    losses = [largest_loss(law, report, dim) for report in itertools.product(sizes, repeat=dim)]
    assert max(losses) <= bound + 1e-9
    worst = [1.0] * (kept - 1) + [1e-4] + [1e-8] * (dim - kept)
    true = (kept - 1) * budget + (dim - kept + 1) * small
    assert largest_loss(law, worst, dim) == pytest.approx(true, abs=2e-3)
    assert bound - budget < true < bound


def test_the_losses_of_table_three_exceed_its_local_budgets_and_stay_below_d_of_them():
    """b = 1570 of d = 7850: where all numbers are small 2,205 of 1,570, and 98.7 of 78.5; at most 3,334 and 157."""
    for budget, small, bound in ((1.0, 2205.3, 3334.2), (0.05, 98.74, 157.49)):
        assert 7850 * math.log((math.exp(budget / 2) + 1) / 2) == pytest.approx(small, abs=0.05)
        assert 7850 * LargestPair(budget, kept=1570, among=7850).pure_epsilon == pytest.approx(bound, abs=0.05)
        assert 1570 * budget < small < bound < 7850 * budget


@pytest.mark.simulations
@pytest.mark.parametrize(("budget", "loss"), [(1.0, 2205.3), (0.05, 98.74)])
def test_where_all_numbers_are_small_the_exact_loss_refutes_the_local_budgets_of_table_three(budget, loss):
    """The exact density of a report at the paper's own size, b = 1570 of d = 7850, where all numbers are near 0."""
    law = TopReportsLaw(radius=RADIUS, budget=budget, kept=1570)
    report = torch.full((7850,), 1e-7).double()
    zeros, ends = torch.zeros(7850).double(), torch.ones(7850).double()
    found = float(law.log_density(report, zeros) - law.log_density(report, ends))
    assert found == pytest.approx(loss, abs=0.05)
    assert found > 1.2 * 1570 * budget


def test_at_delta_3_6e_5_the_local_budgets_of_table_three_suffice():
    for budget, printed, ours in ((1.0, 1570, 1484.7), (0.05, 78.5, 12.83)):
        pair = LargestPair(budget, kept=1570, among=7850)
        assert many_epsilon(pair, releases=7850, delta=3.6e-5) == pytest.approx(ours, abs=0.05)
        assert ours < printed


@pytest.mark.simulations
def test_small_outputs_show_more_than_the_published_local_budget_and_no_more_than_is_provable():
    """b = 1 of d = 20 at budget 3.5, which is what is claimed. Where all numbers are near 0, each coordinate is
    evidence with ln((1 + e^1.75) / 2); the event {log-ratio >= 6} refutes the claim at alpha .01.
    """
    dim = 20
    fields = {"budget_scale": 4.0, "share": 0.05, "radius": RADIUS}
    prepared = SAPES(variant="as_published", **fields).prepare(plan(4, dim))
    local = [claim for claim in prepared.claims if claim.observer == UPLOADS][-1]
    law = prepared.protection.law(UPLOADS, plan(4, dim), int(local.parameters["client"]))
    assert (local.unit, local.delta) == (Unit.REPORT, 0.0)
    assert local.epsilon == pytest.approx(law.budget)
    absent, present = law.worst_pair(dim)

    def ratio(seen):
        rows = (law.contribution(row.expand_as(seen)) for row in (present, absent))
        ahead, behind = (law.log_density(seen, row) for row in rows)
        return ahead - behind

    near = float(ratio(torch.full((dim,), 1e-5)))
    assert near == pytest.approx(20 * math.log((1 + math.exp(law.budget / 2)) / 2), abs=1e-2)
    provable = local.parameters["provable_epsilon"]
    assert provable == pytest.approx(law.budget + 19 * math.log((1 + math.exp(law.budget / 2)) / 2))
    assert local.epsilon < near < provable < dim * law.budget
    rng, trials = np.random.default_rng(0), 40_000
    hits = [int((ratio(law.sample(row.expand(trials, -1), rng)) >= 6).sum()) for row in (present, absent)]
    setting = Setting(
        unit=Unit.REPORT, adjacency=local.adjacency, observer=UPLOADS, rounds=1, design=Design.INDEPENDENT
    )
    counts = EventCounts(hits_in=hits[0], n1=trials, hits_out=hits[1], n0=trials, setting=setting)
    assert pairwise_event(counts, delta=0.0, alpha=0.01).epsilon_low > local.epsilon + 1


def test_at_large_budgets_the_claim_is_what_is_spent_without_any_delta():
    """Two rounds of b = 1 of d = 20 at budget 8: 2 (8 + 19 ln((e^4 + 1) / 2)), below the composition of 40 numbers."""
    (*_, claim) = SAPES(budget_scale=8.0, share=0.05, radius=RADIUS).prepare(plan(4, 20, rounds=2)).claims
    own = float(claim.parameters["local_epsilon"])
    spent = 2 * (own + 19 * math.log((math.exp(own / 2) + 1) / 2))
    assert claim.epsilon == pytest.approx(spent, rel=1e-9)
    assert claim.epsilon < many_epsilon(LocalPair(own), releases=40, delta=1e-5)
    assert claim.curve is not None
    assert claim.curve.delta_add[-1] == 0.0


def test_corrected_it_claims_the_composition_of_all_coordinates_of_the_reports_themselves():
    prepared = SAPES(epsilon=6.0).prepare(plan(40, 30, rounds=2))
    budgets = prepared.protection.budgets
    assert [claim.observer for claim in prepared.claims] == [UPLOADS] * 3
    for claim in prepared.claims:
        own = budgets[int(claim.parameters["client"])]
        assert claim.epsilon == pytest.approx(many_epsilon(LocalPair(own), releases=60, delta=1e-5), abs=1e-9)
    assert 5.99 < prepared.claims[-1].epsilon <= 6.0


def test_random_ones_spend_what_is_kept_and_no_more():
    """Of 30 coordinates 6: 12 releases in two rounds. As published the local claim is true then."""
    prepared = SAPES(epsilon=6.0, selection="random").prepare(plan(40, 30, rounds=2))
    budgets = prepared.protection.budgets
    for claim in prepared.claims:
        own = budgets[int(claim.parameters["client"])]
        assert claim.epsilon == pytest.approx(many_epsilon(LocalPair(own), releases=12, delta=1e-5), abs=1e-9)
        assert claim.parameters["releases"] == 12
    published = SAPES(variant="as_published", budget_scale=1.0, selection="random").prepare(plan(40, 30, rounds=2))
    for claim in published.claims[2:]:
        assert claim.epsilon == claim.parameters["provable_epsilon"] == 12 * claim.parameters["local_epsilon"]


def test_more_noise_than_the_budget_needs_is_counted():
    plain, wide = (SAPES(budget_scale=1.0, scale=scale).prepare(plan(40, 30)) for scale in (1.0, 30.0))
    assert wide.protection.budgets == pytest.approx(np.array(plain.protection.budgets) / 30)
    assert wide.claims[-1].epsilon < plain.claims[-1].epsilon / 20


@pytest.mark.simulations
def test_as_published_it_claims_table_threes_figures():
    """eps_ul 78.5 to 1570 (b = 1570 of 7850), eps_c .057, eps_uc 25.6."""
    big = plan(10_000, 7850)
    joint, coordinate, *local = SAPES(variant="as_published", budget_scale=1.0, delta=3.6e-5).prepare(big).claims
    assert (joint.observer, joint.unit, coordinate.unit) == (SHUFFLED, Unit.CLIENT, Unit.COORDINATE)
    assert joint.epsilon == pytest.approx(25.6, rel=0.01)
    assert round(coordinate.epsilon, 3) == 0.057
    assert [claim.parameters["provable_epsilon"] for claim in (joint, local[-1])] == pytest.approx(
        [1485, 3334], rel=1e-3
    )
    assert local[0].parameters["provable_epsilon"] == pytest.approx(157.6, abs=0.1)
    assert [claim.epsilon for claim in (local[0], local[-1])] == pytest.approx([78.5, 1570], rel=2e-3)
