"""UniS at unequal budgets: whom reports with more noise hide, the paper's figures, and that its model is PLDP's."""

import numpy as np
import pytest
import torch
from fedassay.audit.claim import Unit
from fedassay.audit.observer import SHUFFLED
from fedassay.defenses.accounting.counts import poisson_binomial
from fedassay.defenses.accounting.pld import many_epsilon
from fedassay.defenses.accounting.shuffled import ClonePair
from fedassay.defenses.shuffling.claims import AssuredCohort, among_unequal_laplace
from fedassay.defenses.shuffling.clip_laplace import LaplaceLaw
from fedassay.defenses.shuffling.ldp_min import LDPMin
from fedassay.defenses.shuffling.pldp import PLDP
from fedassay.defenses.shuffling.unis_unequal import UniSUnequal
from fedassay.fl.engine import run_federation
from fedassay.fl.laws import Mixing
from fedassay.fl.streams import Streams
from toy_federation import flat_plan as plan

PAPER = {"budget_scale": 1.0, "delta": 3.6e-5}


@pytest.mark.simulations
def test_at_uniform2_the_largest_budget_is_hidden_by_all_and_the_smallest_by_no_client():
    prepared = UniSUnequal(**PAPER).prepare(plan())
    budgets = np.array(prepared.protection.budgets)
    joint = [claim.epsilon for claim in prepared.claims if claim.unit is Unit.CLIENT]
    coordinate = [claim.epsilon for claim in prepared.claims if claim.unit is Unit.COORDINATE]
    clones = poisson_binomial(np.sort(budgets)[:-1] / budgets.max() * np.exp(-np.sort(budgets)[:-1]))
    own = ClonePair(epsilon0=budgets.max(), clones=clones).epsilon(1e-8)
    assert coordinate == pytest.approx([budgets.min(), 0.0520, own], abs=5e-5)
    assert own == pytest.approx(0.0799, abs=5e-5)
    assert joint == pytest.approx([26.41, 4.227, 6.897], rel=1e-3)
    (alone,) = LDPMin(noise="laplace", **PAPER).prepare(plan()).claims
    assert joint[0] == pytest.approx(alone.epsilon)


def test_as_published_it_claims_table_threes_figures_for_all_alike():
    joint, coordinate = UniSUnequal(variant="as_published", **PAPER).prepare(plan()).claims
    assert round(coordinate.epsilon, 3) == 0.069
    assert joint.epsilon == pytest.approx(76.9, rel=0.01)
    provable = [claim.parameters["provable_epsilon"] for claim in (joint, coordinate)]
    assert provable == pytest.approx([6.897, 0.0799], rel=1e-3)


@pytest.mark.simulations
def test_budgets_are_scaled_until_the_dearer_of_both_ends_spends_the_target_and_no_client_between_spends_more():
    prepared = UniSUnequal(epsilon=2.0).prepare(plan(1000, 650))
    joint = [claim.epsilon for claim in prepared.claims if claim.unit is Unit.CLIENT]
    assert 1.995 < max(joint) <= 2.0
    assert joint[0] == max(joint)
    budgets = prepared.protection.budgets
    for client in np.argsort(budgets)[[1, 2, 20, 300, 900]]:
        own = among_unequal_laplace(client=int(client), budgets=budgets, cohort=AssuredCohort(others=999, failure=0))
        assert many_epsilon(own, releases=650, delta=1e-5) < max(joint)


def test_without_a_shuffler_classic_laplace_composes_to_less_than_the_papers_sum():
    claims = PLDP(noise="laplace", **PAPER).prepare(plan()).claims
    assert claims[-1].epsilon == pytest.approx(3173, rel=1e-3)
    assert claims[-1].mechanism == "Laplace noise on each coordinate"


def test_a_shuffler_moves_no_model(toy_task, toy_plan):
    task = toy_task((4,) * 12)
    federation = toy_plan(task, rounds=2)
    models = [
        run_federation(task, federation, defense.prepare(federation).protection, Streams(0))
        for defense in (PLDP(noise="laplace", budget_scale=4.0), UniSUnequal(budget_scale=4.0))
    ]
    torch.testing.assert_close(*models)


def test_reports_are_of_the_clients_own_budget_and_their_mean_is_not_calibrated(toy_task, toy_plan, tape):
    task = toy_task((4,) * 12)
    federation = toy_plan(task, rounds=1)
    protection = UniSUnequal(budget_scale=4.0).prepare(federation).protection
    run_federation(task, federation, protection, Streams(0), recorders=[tape])
    (event,) = tape.events
    torch.testing.assert_close(event.aggregate, event.reports.values.mean(1))
    for client in (0, 7):
        law = protection.law(SHUFFLED, federation, client)
        assert law == LaplaceLaw(radius=0.1, budget=protection.budgets[client], mixing=Mixing.COORDINATES)


@pytest.mark.parametrize("defense", [PLDP, LDPMin])
def test_an_unknown_noise_is_refused_with_the_known_ones(defense):
    with pytest.raises(ValueError, match=r"noise, .*, must be one of: laplace or clip_laplace; got 'laplacian'"):
        defense(noise="laplacian")
