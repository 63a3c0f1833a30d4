"""APES: each client's own bound, the paper's averaged one below it, calibration, and what its hooks send."""

import numpy as np
import pytest
import torch
from fedassay.audit.claim import Adjacency, Unit
from fedassay.audit.observer import SHUFFLED
from fedassay.defenses.accounting.blanket import laplace, laplace_chances
from fedassay.defenses.accounting.shuffled import published_bound
from fedassay.defenses.shuffling.apes import APES
from fedassay.defenses.shuffling.clip_laplace import calibrated_mean
from fedassay.fl.engine import run_federation
from fedassay.fl.laws import Mixing
from fedassay.fl.sampling import Full, Poisson
from fedassay.fl.streams import Streams
from fedassay.fl.training.local import Batch
from toy_federation import flat_plan as plan


@pytest.fixture(scope="module")
def uniform2():
    return APES(budget_scale=1.0, delta=3.6e-5).prepare(plan())


@pytest.mark.simulations
def test_at_uniform2_a_coordinates_claims_are_each_clients_own_bound(uniform2):
    """About half of the clones' .0596, .0289 and .0022 at budgets 1, .525 and .05."""
    claims = [claim for claim in uniform2.claims if claim.unit is Unit.COORDINATE]
    assert [claim.part for claim in claims] == ["one coordinate"] * 3
    budgets = np.array(uniform2.protection.budgets)
    for claim in claims:
        client = int(claim.parameters["client"])
        assert claim.subjects == f"clients of budget {budgets[client]:.4g}"
        chances = laplace_chances(np.delete(budgets, client), budgets[client], clipped=True)
        bound = laplace(epsilon0=budgets[client], reports=1, clipped=True).hidden_by(chances)
        assert claim.epsilon == pytest.approx(bound.epsilon(1e-8), abs=2e-9)
    assert [claim.epsilon for claim in claims] == pytest.approx([0.0012, 0.0145, 0.0301], abs=5e-5)


@pytest.mark.simulations
def test_at_uniform2_all_coordinates_cost_a_twentyfifth_of_the_published_total(uniform2):
    joint = [claim for claim in uniform2.claims if claim.unit is Unit.CLIENT]
    for claim in joint:
        assert (claim.adjacency, claim.observer, claim.rounds) == (Adjacency.REPLACE_ONE, SHUFFLED, 1)
    assert joint[-1].epsilon == pytest.approx(2.3145, abs=2e-3)
    assert joint[0].epsilon < joint[1].epsilon < joint[2].epsilon


@pytest.mark.simulations
def test_as_published_it_claims_table_threes_figures_for_all_alike():
    joint, coordinate = APES(budget_scale=1.0, delta=3.6e-5, variant="as_published").prepare(plan()).claims
    assert round(coordinate.epsilon, 3) == 0.057
    assert joint.epsilon == pytest.approx(57.6, rel=0.01)
    assert (joint.subjects, coordinate.subjects) == ("all", "all")
    provable = [claim.parameters["provable_epsilon"] for claim in (joint, coordinate)]
    assert provable == pytest.approx([2.3145, 0.03013], rel=1e-3)
    # Below what clones of its own mechanism prove for the client of the largest budget, above what is true.
    assert provable[1] < coordinate.epsilon < 0.0596


def test_budgets_are_scaled_until_the_largest_spends_the_target():
    prepared = APES(epsilon=3.0).prepare(plan(clients=200, dim=50, rounds=4))
    largest = [claim for claim in prepared.claims if claim.unit is Unit.CLIENT][-1]
    assert 2.995 < largest.epsilon <= 3.0
    assert int(largest.parameters["client"]) == int(np.argmax(prepared.protection.budgets))
    wanted = APES(epsilon=6.0, variant="as_published").prepare(plan(clients=200, dim=50, rounds=4))
    assert wanted.claims[0].epsilon == pytest.approx(6.0, rel=1e-3)
    averaged = published_bound(wanted.protection.budgets).epsilon(1e-8)
    assert wanted.claims[1].epsilon == pytest.approx(averaged)


def test_every_client_reports_at_its_own_budget_and_the_server_sees_only_which_there_are(toy_task, toy_plan, tape):
    task = toy_task((4,) * 12)
    federation = toy_plan(task, rounds=1)
    protection = APES(budget_scale=4.0).prepare(federation).protection
    run_federation(task, federation, protection, Streams(0), batch=Batch(replicas=2), recorders=[tape])
    (event,) = tape.events
    budgets = torch.tensor(protection.budgets, dtype=torch.float64)
    torch.testing.assert_close(event.reports.side["budget"], budgets.expand(2, -1))
    arrived = event.received.side["budget"]
    assert not torch.equal(arrived[0], budgets)
    torch.testing.assert_close(arrived.sort(1).values, budgets.sort().values.expand(2, -1))
    assert event.received.senders is None
    torch.testing.assert_close(event.aggregate, calibrated_mean(event.received, protection.radius))
    for client in (0, 7):
        law = protection.law(SHUFFLED, federation, client)
        assert (law.budget, law.mixing) == (protection.budgets[client], Mixing.COORDINATES)


def test_where_not_all_come_those_count_who_are_clones_least_often():
    """A sampled cohort costs more, and one of rate 1 is all clients."""
    whole, sure, part = (
        APES(budget_scale=1.0).prepare(plan(300, 10, cohort=cohort)).claims
        for cohort in (Full(), Poisson(1.0), Poisson(0.5))
    )
    assert [claim.epsilon for claim in whole] == [claim.epsilon for claim in sure]
    assert all(a.epsilon < b.epsilon for a, b in zip(whole, part, strict=True))
