"""Passes over all clients: claims about reports count how often a client takes part, and in how small a crowd."""

import pytest
from fedassay.audit.claim import Unit
from fedassay.defenses.client_level.dp_fedsgd import DPFedSGD
from fedassay.defenses.client_level.quantile_clipping import QuantileClipping
from fedassay.defenses.local.numbers.ldp_duchi import LDPDuchi
from fedassay.defenses.local.vectors.fedsel import LDPFedSel
from fedassay.defenses.local.vectors.ldp_gaussian import LDPGaussian
from fedassay.defenses.shuffling.apes import APES
from fedassay.defenses.shuffling.cldp_sgd import CLDPSGD
from fedassay.defenses.shuffling.flame import FLAME
from fedassay.defenses.shuffling.ldp_min import LDPMin
from fedassay.defenses.shuffling.pldp import PLDP
from fedassay.defenses.shuffling.s_apes import SAPES
from fedassay.defenses.shuffling.unis import UniS
from fedassay.defenses.shuffling.unis_unequal import UniSUnequal
from fedassay.fl.sampling import Epoch, FixedSize
from toy_federation import flat_plan

UNSHUFFLED = [PLDP(budget_scale=1.0), PLDP(budget_scale=1.0, variant="as_published"), LDPMin(budget_scale=1.0)]
UNSHUFFLED += [SAPES(budget_scale=1.0), SAPES(budget_scale=1.0, variant="as_published")]

CROWD, BATCH = flat_plan(400, 30), flat_plan(400, 30, rounds=4, cohort=Epoch(4))


def numbers(defense, plan):
    """Epsilon of each claim, by unit and subject."""
    return {
        (claim.unit, claim.subjects, claim.observer): claim.epsilon
        for claim in defense.prepare(plan).claims
        if claim.unit is not Unit.COORDINATE
    }


@pytest.mark.parametrize("defense", UNSHUFFLED, ids=lambda one: f"{type(one).__name__} {one.variant}")
@pytest.mark.parametrize(("rounds", "times"), [(1, 1), (4, 1), (5, 2), (8, 2)])
def test_without_a_shuffler_a_claim_composes_over_the_passes_and_not_over_the_rounds(defense, rounds, times):
    in_passes = numbers(defense, flat_plan(40, 30, rounds=rounds, cohort=Epoch(4)))
    assert in_passes == numbers(defense, flat_plan(40, 30, rounds=times))


@pytest.mark.parametrize("defense", [UniS(local_epsilon=0.5), FLAME(local_epsilon=0.5)], ids=["unis", "flame"])
def test_behind_a_shuffler_only_the_clients_of_the_same_batch_hide_a_report(defense):
    plan = flat_plan(400, 30, rounds=8, cohort=Epoch(4))
    assert numbers(defense, plan) == numbers(defense, flat_plan(100, 30, rounds=2))
    assert all(claim.rounds == 8 for claim in defense.prepare(plan).claims if claim.unit is Unit.CLIENT)
    # 401 clients make batches of 100 and 101: the smallest one counts.
    assert numbers(defense, flat_plan(401, 30, rounds=8, cohort=Epoch(4))) == numbers(defense, plan)


@pytest.mark.parametrize("defense", [APES(budget_scale=1.0), UniSUnequal(budget_scale=1.0)], ids=["apes", "unis"])
def test_of_unequal_clients_the_batch_is_assumed_to_hold_those_that_hide_least(defense):
    crowd = numbers(defense, CROWD)
    batch = numbers(defense, BATCH)
    # By UniS no report with less noise hides the smallest budget, in no crowd.
    assert all(batch[key] >= crowd[key] for key in crowd)
    assert all(batch[key] > crowd[key] for key in list(crowd)[1:])


@pytest.mark.parametrize("kind", [UniS, APES], ids=["unis", "apes"])
def test_a_published_claim_keeps_the_papers_crowd_and_names_what_the_batch_can_prove(kind):
    defense = kind(variant="as_published", **({"local_epsilon": 0.5} if kind is UniS else {"budget_scale": 1.0}))
    crowd, batch = ({claim.unit: claim for claim in defense.prepare(plan).claims} for plan in (CROWD, BATCH))
    for unit in (Unit.CLIENT, Unit.COORDINATE):
        assert batch[unit].epsilon == crowd[unit].epsilon
        assert batch[unit].parameters["provable_epsilon"] > crowd[unit].parameters["provable_epsilon"]


@pytest.mark.parametrize("defense", [LDPGaussian(), LDPDuchi(), LDPFedSel()], ids=lambda one: type(one).__name__)
def test_local_noise_is_calibrated_to_the_passes(defense):
    one, passes = (defense.prepare(plan) for plan in (CROWD, BATCH))
    assert passes.claims[0].epsilon == one.claims[0].epsilon
    assert passes.claims[0].parameters == one.claims[0].parameters
    assert passes.protection == one.protection
    (spent,) = passes.spending.values()
    assert spent(1) == pytest.approx(spent(4)) == pytest.approx(defense.epsilon, rel=1e-3)


@pytest.mark.parametrize(
    ("defense", "changes"),
    [(DPFedSGD(), {}), (QuantileClipping(), {}), (CLDPSGD(), {"lot": FixedSize(1)})],
    ids=["dp_fedsgd", "quantile_clipping", "cldp_sgd"],
)
def test_accountants_of_poisson_cohorts_refuse_passes(defense, changes):
    with pytest.raises(ValueError, match=r"cohort must be Poisson or full sampling, .* got Epoch\(rounds=4\)"):
        defense.prepare(flat_plan(40, 30, rounds=4, cohort=Epoch(4), **changes))


def test_unequal_laplace_noise_is_not_calibrated_in_batches_where_a_middle_budget_may_spend_most():
    with pytest.raises(ValueError, match="set budget_scale, got Epoch"):
        UniSUnequal().prepare(BATCH)
