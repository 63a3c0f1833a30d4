"""Rows pooled over seeds, what was not measured, and models that are of no use."""

from dataclasses import replace

import pytest
from fedassay.reports.reading.claims import claim_rows
from fedassay.reports.tables.pooled_rows import attack_grids, omission_rows, pooled_attacks, pooled_utility
from fedassay.reports.tables.printed import claim_table, omission_table

AUDIT = {"role": "audit", "attack": "canary", "metric": "epsilon_low", "seed": None, "n": 500, "ceiling": 4.5}


def test_a_claim_stands_beside_what_was_measured_about_it(run_maker, make_claim):
    signed = run_maker.sign("dp_fedavg", make_claim())
    row = AUDIT | {"defense": "dp_fedavg", "claim_id": signed.claim_id, "detectable": 6.1, "route": "curve"}
    run_maker.row(**row, value=0.999, verdict="NOT_REFUTED")
    assert claim_table(claim_rows(run_maker.write())).rows == (
        (
            "dp_fedavg",
            "eps 4, delta 1e-5, one client (add/remove), adversary: other clients (every round's model)",
            "0.99",
            "4.50",
            "6.10",
            "500",
            "stated trade-off curve",
            "NOT REFUTED",
        ),
    )


def test_claims_come_in_the_order_of_the_suite_whatever_the_file_states(run_maker, make_claim):
    for defense in ("dp_sgd", "noise_halved", "dp_fedavg"):
        signed = run_maker.sign(defense, make_claim(), control=defense == "noise_halved")
        run_maker.row(**AUDIT, defense=defense, claim_id=signed.claim_id, value=1.0, verdict="NOT_REFUTED")
    assert [row.defense for row in claim_rows(run_maker.write())] == ["dp_fedavg", "noise_halved", "dp_sgd"]


def test_a_claim_that_nothing_judged_is_shown_as_not_audited(run_maker, make_claim):
    run_maker.sign("dp_fedavg", make_claim())
    (row,) = claim_rows(run_maker.write())
    assert (row.verdict, row.epsilon_low, row.needs_attention) == ("NOT_AUDITED", None, False)


@pytest.mark.parametrize(
    ("control", "verdict", "alarming"),
    [
        (False, "REFUTED", True),
        (False, "NOT_REFUTED", False),
        (False, "UNDERPOWERED", False),
        (True, "REFUTED", False),
        (True, "NOT_REFUTED", True),
        (True, "UNDERPOWERED", True),
    ],
)
def test_a_correct_claim_refuted_alarms_and_so_does_a_control_that_is_not(
    run_maker, make_claim, control, verdict, alarming
):
    signed = run_maker.sign("dp_fedavg", make_claim(), control=control)
    run_maker.row(**AUDIT, defense="dp_fedavg", claim_id=signed.claim_id, value=1.0, verdict=verdict)
    (row,) = claim_rows(run_maker.write())
    assert row.needs_attention is alarming


def test_a_failed_audit_is_a_failed_claim_with_its_reason(run_maker, make_claim):
    signed = run_maker.sign("dp_fedavg", make_claim())
    row = AUDIT | {"metric": "none", "defense": "dp_fedavg", "claim_id": signed.claim_id}
    run_maker.row(**row, status="failed", reason="no scores")
    (row,) = claim_rows(run_maker.write())
    assert (row.verdict, row.needs_attention, row.record.reason) == ("FAILED", True, "no scores")


def test_auc_is_pooled_over_seeds_as_by_hand(run_maker):
    for seed, value in enumerate((0.8, 0.9, 1.0)):
        run_maker.row(seed=seed, value=value, direction="higher_leaks")
    (row,) = pooled_attacks(run_maker.write())
    assert row.pooled.value == pytest.approx(0.9)
    # .9 -+ .248414 would end above 1: on the logit scale around ln 9 the half width is .248414 / (.9 * .1).
    assert row.pooled.low == pytest.approx(0.362870, abs=1e-6)
    assert row.pooled.high == pytest.approx(0.993017, abs=1e-6)
    assert row.pooled.n == 3


def test_a_single_row_keeps_the_interval_that_it_was_measured_with(run_maker):
    """Of federations that were attacked in turn; of several seeds each is one number."""
    run_maker.row(value=0.7, ci_low=0.65, ci_high=0.75, ci_level=0.95, ci_method="jackknife")
    (row,) = pooled_attacks(run_maker.write())
    assert (row.pooled.value, row.pooled.low, row.pooled.high) == (0.7, 0.65, 0.75)
    assert (row.pooled.n, row.pooled.method) == (1, "jackknife")
    run_maker.row(seed=1, value=0.72, ci_low=0.65, ci_high=0.75, ci_level=0.95, ci_method="jackknife")
    (row,) = pooled_attacks(run_maker.write())
    assert (row.pooled.value, row.pooled.both, row.pooled.low) == (pytest.approx(0.71), (0.7, 0.72), None)


def test_rows_per_image_are_pooled_by_their_median_over_images_and_seeds(run_maker):
    for seed in (0, 1):
        for image, value in enumerate((10.0, 20.0, 90.0)):
            run_maker.row(seed=seed, record=image, scope="record", metric="psnr", value=value + seed)
    (row,) = pooled_attacks(run_maker.write())
    assert (row.pooled.value, row.pooled.n) == (20.5, 6)
    assert "bootstrap" in row.pooled.method


def test_an_unavailable_row_counts_as_missing_and_not_as_zero(run_maker):
    run_maker.row(seed=0, value=0.8)
    run_maker.row(seed=1, status="unavailable", reason="no weights")
    (row,) = pooled_attacks(run_maker.write())
    assert (row.pooled.value, row.pooled.n, row.missing, row.status, row.reason) == (
        0.8,
        1,
        1,
        "unavailable",
        "no weights",
    )


def test_a_cell_that_failed_is_missing_from_every_metric_of_its_attack(run_maker):
    run_maker.row(seed=0, metric="auc", value=0.8)
    run_maker.row(seed=0, metric="balanced_accuracy", value=0.7)
    run_maker.row(seed=1, metric="none", status="failed", reason="diverged")
    (grid,) = attack_grids(pooled_attacks(run_maker.write()))
    assert [(line.first.metric, line.cells[0].missing, line.cells[0].status) for line in grid.lines] == [
        ("auc", 1, "failed"),
        ("balanced_accuracy", 1, "failed"),
    ]


def test_a_grid_cell_without_a_value_keeps_the_row_that_states_why(run_maker):
    run_maker.row(defense="none", value=0.8)
    run_maker.row(defense="dp_fedavg", metric="none", status="skipped", reason="not defined")
    run_maker.row(defense="dp_sgd", attack="alignment", value=0.6)
    (grid,) = attack_grids(pooled_attacks(run_maker.write()))
    assert grid.defenses == ("none", "dp_fedavg", "dp_sgd")
    loss = next(line for line in grid.lines if line.first.attack == "loss")
    assert [cell and cell.status for cell in loss.cells] == ["", "skipped", None]


def test_the_change_of_accuracy_is_paired_by_seed(run_maker):
    # Differences -.1, -.1, -.4: mean -.2, standard deviation sqrt(.03), half width sqrt(.03 / 3) * 4.30265 = .430265.
    for defense, values in {"none": (0.9, 0.8, 0.9), "dp_fedavg": (0.8, 0.7, 0.5)}.items():
        for seed, value in enumerate(values):
            run_maker.accuracy_row(defense=defense, seed=seed, value=value)
    undefended, defended = pooled_utility(run_maker.write())
    assert undefended.change is None
    assert defended.change.value == pytest.approx(-0.2)
    assert defended.change.low == pytest.approx(-0.2 - 0.430265, abs=1e-6)
    assert defended.change.n == 3


def test_a_seed_that_only_one_of_them_finished_is_not_paired(run_maker):
    run_maker.accuracy_row(defense="none", seed=0, value=0.9)
    run_maker.accuracy_row(defense="dp_fedavg", seed=0, value=0.8)
    run_maker.accuracy_row(defense="dp_fedavg", seed=1, value=0.1)
    _, defended = pooled_utility(run_maker.write())
    assert (defended.change.n, defended.change.value) == (1, pytest.approx(-0.1))


def test_omissions_are_gathered_with_their_reasons_failures_first(run_maker):
    for defense in ("none", "dp_fedavg"):
        run_maker.row(defense=defense, metric="lpips", status="unavailable", reason="no weights")
    run_maker.row(defense="dp_sgd", metric="none", status="failed", reason="ValueError: sigma")
    run_maker.row(defense="dp_sgd", attack="llg", metric="none", status="skipped")
    assert omission_table(omission_rows(run_maker.write())).rows == (
        ("failed", "loss", "every metric", "dp_sgd", "1", "ValueError: sigma"),
        ("unavailable", "loss", "LPIPS", "none, dp_fedavg", "2", "no weights"),
        ("skipped", "llg", "every metric", "dp_sgd", "1", "no reason was recorded"),
    )


def test_equal_reasons_are_one_row_where_every_pair_of_attack_and_metric_lacks_them(run_maker):
    """Two attacks lack LPIPS and PSI LPIPS on both defenses; a third lacks LPIPS only, on one of them."""
    reason = {"status": "unavailable", "reason": "no weights"}
    for defense in ("none", "dp_fedavg"):
        for attack in ("inverting_gradients", "mean_image"):
            for metric in ("lpips", "psi_lpips"):
                run_maker.row(defense=defense, attack=attack, metric=metric, **reason)
    run_maker.row(defense="none", attack="dlg", metric="lpips", **reason)
    assert omission_table(omission_rows(run_maker.write())).rows == (
        ("unavailable", "inverting_gradients, mean_image", "LPIPS, PSI LPIPS", "every defense", "8", "no weights"),
        ("unavailable", "dlg", "LPIPS", "none", "1", "no weights"),
    )


def test_the_order_of_the_rows_in_the_file_changes_no_table(quick_folder):
    shuffled = replace(quick_folder, records=quick_folder.records[::-1])
    for table in (claim_rows, pooled_attacks, pooled_utility, omission_rows):
        assert table(shuffled) == table(quick_folder)


@pytest.mark.parametrize(
    ("metric", "unit", "ends", "shown"),
    [
        # Accuracy of two students, 0.2 and 0.4: 0.3 +- 12.7 / 2 * 0.2.
        ("accuracy", "share of test samples", (-0.97, 1.57), (0.0, 1.0)),
        ("loss", "nats", (-1.0, 3.0), (0.0, 3.0)),
    ],
)
def test_the_interval_of_a_single_run_ends_where_the_metric_ends(run_maker, metric, unit, ends, shown):
    run_maker.accuracy_row(defense="mine", metric=metric, value=0.3, unit=unit, ci_low=ends[0], ci_high=ends[1])
    (row,) = pooled_utility(run_maker.write())
    assert (row.pooled.low, row.pooled.high) == shown


@pytest.mark.parametrize(("metric", "ends", "shown"), [
    ("label_over_chance", (-0.4, 1.3), (-0.4, 1.0)), ("column_error", (-0.4, 1.3), (0.0, 1.3)),
])  # fmt: skip
def test_a_gain_may_be_negative_and_an_error_above_one(run_maker, metric, ends, shown):
    unit = {"label_over_chance": "share of the largest possible gain above chance"}.get(metric, "share of the variance")
    attacked = {"role": "attack", "attack": "llg", "defense": "mine", "metric": metric, "unit": unit}
    run_maker.row(**attacked, value=0.5, ci_low=ends[0], ci_high=ends[1])
    (row,) = pooled_attacks(run_maker.write())
    assert (row.pooled.low, row.pooled.high) == shown


def test_a_gain_over_chance_of_no_attack_keeps_zero_in_its_interval(run_maker):
    # On the logit scale, which no negative number has, the interval would lie above 0 although values lie around it.
    attacked = {"role": "attack", "attack": "llg", "defense": "mine", "metric": "label_over_chance"}
    for seed, value in enumerate((0.02, -0.015, 0.01)):
        run_maker.row(**attacked, seed=seed, value=value, unit="share of the largest possible gain above chance")
    (row,) = pooled_attacks(run_maker.write())
    assert row.pooled.low < 0 < row.pooled.high


@pytest.mark.parametrize("label", ["unprotected", "plain_votes"])
def test_parties_without_protection_and_votes_without_noise_are_the_reference_of_utility(run_maker, label):
    for defense, value in ((label, 0.9), ("mine", 0.7)):
        for seed in (0, 1):
            run_maker.accuracy_row(defense=defense, value=value + seed / 50, seed=seed, unit="share of people")
    changes = {row.defense: row.change for row in pooled_utility(run_maker.write())}
    assert changes[label] is None
    assert changes["mine"].value == pytest.approx(-0.2)


def marked(run_maker, rows):
    for metric, value, n in rows:
        run_maker.accuracy_row(defense="mine", metric=metric, value=value, n=n)
    return {row.metric: row.useless for row in pooled_utility(run_maker.write())}


@pytest.mark.parametrize(
    ("accuracy", "by_class", "classes", "images", "words"),
    [
        (0.041, 0.05, 10, 450, "guessing, 0.100"),
        (0.1, 0.1, 10, 450, "guessing, 0.100"),
        # 54 of 450 are 12 %: a guess reaches as much with probability .095; 63 of 450 (14 %) with probability .004.
        (0.12, 0.12, 10, 450, "guessing, 0.100"),
        (0.14, 0.14, 10, 450, ""),
        (0.666, 0.6, 10, 450, ""),
        # Nine of ten images are of one class, which is all that the model ever names.
        (0.9, 0.5, 2, 450, "the same class"),
        (0.9, 0.7, 2, 450, ""),
        # Too few images to show more than guessing.
        (0.6, 0.6, 2, 10, "guessing, 0.500"),
    ],
)
def test_a_classifier_must_beat_guessing_and_the_largest_class(run_maker, accuracy, by_class, classes, images, words):
    found = marked(run_maker, [("accuracy", accuracy, images), ("class_accuracy_mean", by_class, classes)])
    assert found["accuracy"].endswith(words)
    assert bool(found["accuracy"]) == bool(words)
    assert found["class_accuracy_mean"] == ""


def test_without_the_number_of_classes_nothing_is_said(run_maker):
    assert marked(run_maker, [("accuracy", 0.01, 450)]) == {"accuracy": ""}


@pytest.mark.parametrize(("r2", "useless"), [(-0.2, True), (0.0, True), (0.1, False)])
def test_a_regression_must_beat_the_mean_of_the_labels(run_maker, r2, useless):
    assert bool(marked(run_maker, [("r2", r2, 100)])["r2"]) == useless
