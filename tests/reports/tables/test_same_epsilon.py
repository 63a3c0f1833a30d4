"""One epsilon in every trust model: which attack stands in a cell, what is out of scope, and why a cell is empty."""

import numpy as np
import pytest
from fedassay.audit.claim import Unit
from fedassay.audit.observer import GLOBAL_MODELS, UPLOADS
from fedassay.reports.formats.page import html
from fedassay.reports.tables.same_epsilon import same_epsilon_table


def normal(shift, count=60):
    rng = np.random.default_rng(0)
    return {"member": rng.normal(shift, 1, count), "nonmember": rng.normal(0, 1, count)}


@pytest.fixture
def run(run_maker, make_claim, add_membership):
    sample = make_claim(unit=Unit.SAMPLE, observer=UPLOADS)
    run_maker.sign("sample_4", sample)
    run_maker.sign("client_8", make_claim(epsilon=8.0))
    run_maker.sign("control", make_claim(epsilon=8.0), control=True)
    for defense, control in {"client_8": False, "none": False, "sample_4": False, "control": True}.items():
        for seed, value in enumerate((0.8, 0.9)):
            run_maker.accuracy_row(defense=defense, value=value, seed=seed, control=control)
    for defense in ("none", "client_8"):
        add_membership(run_maker, defense, "weak", **normal(0.1))
        add_membership(run_maker, defense, "strong", **normal(1.0))
        add_membership(run_maker, defense, "ratio", adversary="worst_case", **normal(3.0))
        add_membership(run_maker, defense, "coin", role="null", **normal(4.0))
    run_maker.row(
        defense="sample_4",
        attack="strong",
        metric="none",
        observer="uploads",
        status="skipped",
        reason="sees sums only",
    )
    run_maker.verdict_row(
        sample, attack="likelihood_ratio", defense="sample_4", value=1.25, ceiling=5.2, verdict="NOT_REFUTED"
    )
    return run_maker


def cells(table, defense):
    return next(dict(zip(table.headers, row, strict=True)) for row in table.rows if row[0] == defense)


def test_rows_stand_by_epsilon_and_a_control_is_no_trust_model(run):
    table = same_epsilon_table(run.write())
    assert [row[:2] for row in table.rows] == [("none", "–"), ("sample_4", "4"), ("client_8", "8")]


def test_the_best_realistic_attack_stands_with_an_interval_for_all_of_its_cell(run):
    words = cells(same_epsilon_table(run.write()), "none")["membership of a sample, uploads"]
    assert words.startswith("0.7")
    assert "[" in words
    assert "*" not in words


def test_utility_on_several_federations_states_on_which(run):
    assert cells(same_epsilon_table(run.write()), "none")["utility"].startswith(
        "0.850 (2 seeds, no interval: 0.800, 0.900)"
    )
    for seed in range(2):
        run.accuracy_row(defense="none", federation="far", value=0.5, seed=seed)
    words = cells(same_epsilon_table(run.write()), "none")["utility"]
    assert words.startswith("0.850 (2 seeds, no interval: 0.800, 0.900)")
    assert words.endswith("(main); 0.500 (far)")


def test_what_no_claim_speaks_of_is_marked(run):
    assert cells(same_epsilon_table(run.write()), "client_8")["membership of a sample, uploads"].endswith("*")


def on_updates(run, federation, defense):
    """Labels named and images reconstructed by the server that observes individual updates."""
    common = {"federation": federation, "defense": defense, "observer": "uploads"}
    run.row(**common, attack="llg", metric="label_accuracy", value=1.0)
    for number, (attack, role, value) in enumerate((("inversion", "attack", 30.0), ("mean", "null", 12.0))):
        run.row(**common, attack=attack, role=role, metric="psnr", scope="record", record=0, client=number, value=value)


@pytest.mark.parametrize(
    ("federation", "claims", "labels", "images"),
    [
        ("main", {}, False, False),
        ("far", {}, True, True),
        ("main", {"observer": GLOBAL_MODELS}, True, True),
        ("main", {"unit": Unit.LABEL}, False, True),
        ("main", {"unit": Unit.COORDINATE}, True, True),
        ("main", {"part": "layer output.bias"}, True, True),
    ],
)
def test_labels_and_images_that_no_claim_covers_are_marked(run, make_claim, federation, claims, labels, images):
    run.sign("other", make_claim(**{"unit": Unit.SAMPLE, "observer": UPLOADS} | claims))
    run.accuracy_row(defense="other", value=0.8)
    on_updates(run, federation, "other")
    found = cells(same_epsilon_table(run.write()), "other")
    assert ("1.000*" in found["labels of an update"]) == labels
    assert found["images of an update"].startswith("18.0")
    assert found["images of an update"].endswith("*") == images


def test_what_an_audit_proved_stands_beside_its_ceiling(run):
    table = same_epsilon_table(run.write())
    assert cells(table, "sample_4")["audit"] == "≥ 1.25 of 5.20, NOT REFUTED"
    assert cells(table, "client_8")["audit"] == "NOT TESTED"
    assert cells(table, "none")["audit"] == "NO CLAIM"


def test_one_trust_model_alone_is_no_comparison(run_maker, make_claim, add_membership):
    run_maker.sign("client_8", make_claim(epsilon=8.0))
    add_membership(run_maker, "client_8", **normal(1.0))
    assert "in every trust model" not in html(run_maker.write())
