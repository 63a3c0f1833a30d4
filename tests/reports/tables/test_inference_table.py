"""Attributes beside imputation, and the bound that a claim gives."""

import math

import numpy as np
import pytest
from fedassay.audit.claim import Adjacency, Unit
from fedassay.audit.observer import AGGREGATE, UPLOADS
from fedassay.reports.tables.inference_table import attribute_table, most_over_others, property_table

VALUES = {"over_imputation": 0.1, "accuracy": 0.9, "imputed": 0.8, "majority": 0.66, "gain": 0.12}


def attribute_rows(run, defense, *, seed=0, attack="by_uploads", role="attack", shift=0.0):
    told = {"unit": "sample", "adjacency": "replace_one", "rounds": 20, "design": "clustered"}
    cell_id = f"{attack}_{defense}_{seed}"
    artifact = run.arrays(cell_id, "scores", **{name: np.asarray(word) for name, word in told.items()})
    for metric, value in VALUES.items():
        run.row(
            cell_id=cell_id,
            defense=defense,
            attack=attack,
            role=role,
            seed=seed,
            observer="uploads",
            metric=f"attribute_{metric}",
            value=value + shift,
            ci_low=value - 0.1,
            ci_high=value + 0.1,
            unit="share of records, chance 0.5" if metric == "accuracy" else "share of records",
            artifact=artifact,
        )


def lines(folder):
    table = attribute_table(folder)
    return [dict(zip(table.headers, row, strict=True)) for row in table.rows]


def test_an_attack_stands_beside_imputation_majority_and_chance(run_maker):
    for seed in range(3):
        attribute_rows(run_maker, "none", seed=seed, shift=0.01 * (seed - 1))
        attribute_rows(run_maker, "none", seed=seed, attack="imputation", role="null")
    (row,) = lines(run_maker.write())
    half = 4.303 * 0.01 / 3**0.5
    assert row["right"] == f"0.900 [{0.9 - half:.3f}, {0.9 + half:.3f}]"
    assert (row["chance"], row["attack"], row["at most"]) == ("0.5", "by_uploads", "OUT OF SCOPE")
    assert row["imputed"].startswith("0.800 [")
    assert row["over imputation"].startswith("0.100 [")


def test_one_seed_has_the_interval_of_its_records(run_maker):
    attribute_rows(run_maker, "none")
    assert lines(run_maker.write())[0]["right"] == "0.900 [0.800, 1.000]†"


@pytest.mark.parametrize(
    ("unit", "adjacency", "observer", "bound"),
    [
        (Unit.SAMPLE, Adjacency.REPLACE_ONE, UPLOADS, math.tanh(0.5)),
        (Unit.SAMPLE, Adjacency.ADD_REMOVE, UPLOADS, math.tanh(1.0)),
        (Unit.CLIENT, Adjacency.ADD_REMOVE, UPLOADS, math.tanh(1.0)),
        (Unit.SAMPLE, Adjacency.ADD_REMOVE, AGGREGATE, None),
        (Unit.REPORT, Adjacency.REPLACE_ONE, UPLOADS, None),
    ],
)
def test_a_claim_of_one_sample_or_client_bounds_the_difference(unit, adjacency, observer, bound, run_maker, make_claim):
    claim = make_claim(1.0, unit=unit, adjacency=adjacency, observer=observer)
    run_maker.sign("dp_sgd", claim)
    attribute_rows(run_maker, "dp_sgd")
    (row,) = lines(run_maker.write())
    if bound is None:
        assert row["at most"] == "OUT OF SCOPE"
    else:
        assert float(row["at most"]) == pytest.approx(most_over_others(claim), abs=0.01)
        assert most_over_others(claim) == pytest.approx(bound, abs=1e-4)


@pytest.mark.parametrize(("unit", "bound"), [(Unit.CLIENT, math.tanh(1.0)), (Unit.SAMPLE, None)])
def test_a_share_of_a_group_is_covered_by_claims_about_clients_alone(unit, bound, run_maker, make_claim):
    claim = make_claim(1.0, unit=unit, adjacency=Adjacency.ADD_REMOVE, observer=UPLOADS)
    run_maker.sign("dp", claim)
    told = {"unit": "client", "adjacency": "replace_one", "rounds": 20, "design": "clustered"}
    artifact = run_maker.arrays("shares", "scores", **{name: np.asarray(word) for name, word in told.items()})
    for metric, value in (("error", 0.02), ("public_error", 0.1), ("gain", 0.9)):
        run_maker.row(
            cell_id="shares",
            defense="dp",
            attack="by_uploads",
            observer="uploads",
            metric=f"property_{metric}",
            value=value,
            ci_low=value - 0.01,
            ci_high=value + 0.01,
            artifact=artifact,
        )
    table = property_table(run_maker.write())
    (row,) = (dict(zip(table.headers, row, strict=True)) for row in table.rows)
    assert row["error"] == "0.020 [0.010, 0.030]†"
    assert (row["removed"], row["right order"]) == ("0.900 [0.890, 0.910]†", "–")
    if bound is None:
        assert row["at most"] == "OUT OF SCOPE"
    else:
        assert float(row["at most"]) == pytest.approx(bound, abs=0.01)
