"""Zero-out claims of secure sums in a suite: what is planted, that honest ones stand and lost shares do not."""

import pytest
import torch
from fedassay.audit.claim import Adjacency, Unit
from fedassay.checks.canaries import absent_row
from fedassay.suites.audits.canary_replicas import canary_for
from suite_text import tables

FEDERATION = {"clients": 9, "samples": 90, "alpha": 0.05}
BROKEN_AND_CORRECT = {
    name: {"dropout": 0.8, "drops": "first"} for name in ("distributed_gaussian", "control_lost_shares")
}
AUDIT = {"samples_per_client": 1, "replicas": 600, "batch": 300}
TABLES = tables(defenses=BROKEN_AND_CORRECT, audit=AUDIT | {"canary": "dirac", "clients": 9})
DISCRETE = ("skellam", "distributed_discrete_gaussian", "binomial", "poisson_binomial")


@pytest.fixture
def block_of(planned):
    """(canary) -> the first block of the suite's honest claim."""

    def build(canary):
        blocks = planned('"dirac"', f'"{canary}"', text=TABLES, **FEDERATION).blocks
        return next(block for block in blocks if block.cell.facts["defense"] == "distributed_gaussian")

    return build


@pytest.mark.parametrize("canary", ["dirac", "random"])
def test_a_zero_out_canary_is_there_in_both_arms_and_zero_in_one(canary, block_of):
    block = block_of(canary)
    planted = canary_for(block)
    assert (planted.unit, planted.adjacency) == (Unit.CLIENT, Adjacency.ZERO_OUT)
    assert not planted.absent.any()
    assert planted.there(0) == planted.there(1) == (0,)


@pytest.mark.parametrize("canary", ["mislabelled", "crafted"])
def test_data_cannot_be_set_to_zero(canary, block_of):
    block = block_of(canary)
    with pytest.raises(ValueError, match="canary must be dirac or random"):
        canary_for(block)


def test_the_row_of_the_other_arm_is_none_its_opposite_or_zero():
    row = torch.tensor([0.0, 2.0])
    assert absent_row(row, Adjacency.ADD_REMOVE) is None
    assert absent_row(row, Adjacency.REPLACE_ONE).tolist() == [0.0, -2.0]
    assert absent_row(row, Adjacency.ZERO_OUT).tolist() == [0.0, 0.0]


def test_the_release_of_a_zero_out_claim_is_one_rows_length_over_the_noise(block_of):
    block = block_of("dirac")
    release = block.release
    assert release.sigma == pytest.approx(block.claim.parameters["noise_multiplier"])
    assert release.rate == 1.0


@pytest.mark.long
@pytest.mark.simulations
def test_lost_shares_are_refuted_and_the_correct_stand(suite_file, assay):
    """Ten clients with the canary, eight drop out: the control's sum has two tenths of its twin's variance."""
    run = assay(suite_file(text=TABLES, **FEDERATION))
    rows = {row.defense: row for row in run.records if row.role == "audit"}
    assert {name: row.verdict for name, row in rows.items()} == {
        "distributed_gaussian": "NOT_REFUTED",
        "control_lost_shares": "REFUTED",
    }


@pytest.mark.long
def test_discrete_claims_are_audited_through_the_same_hooks(suite_file, assay):
    discrete = tables(defenses={name: {"drops": "first"} for name in DISCRETE}, audit=AUDIT | {"clients": 2})
    run = assay(suite_file(text=discrete, **FEDERATION))
    rows = [row for row in run.records if row.role == "audit"]
    assert {row.defense: row.verdict for row in rows} == dict.fromkeys(DISCRETE, "NOT_REFUTED")
