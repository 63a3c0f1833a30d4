"""Which cells are compared, by which metric, and how a seed's rows become one value."""

import pytest
from fedassay.reports.reading.run_folder import RunFolder
from fedassay.reports.regression.baseline import PRIMARY, CellKey, family
from fedassay.reports.tables.numerals import METRICS
from fedassay.suites.config.tables.margins import DEFAULT_MARGINS, margins_with, stated_margins


def cells(run):
    return family(RunFolder.read(run.write()).records)


def test_null_attacks_controls_audits_and_rows_without_a_seed_are_not_compared(craft):
    run = craft("run").cell([0.6, 0.7]).audit("NOT_REFUTED")
    run.cell([0.5, 0.5], attack="coin", role="null")
    run.cell([0.9, 0.9], defense="broken", control=True)
    run.row(value=0.6, seed=None, attack="pooled")
    run.row(attack="skipped", status="skipped", metric="none", reason="not defined")
    (key,) = cells(run)
    assert (key.defense, key.attack, key.metric) == ("mine", "loss", "auc")


@pytest.mark.parametrize(
    ("measured", "primary"),
    [
        (("tpr_at_fpr_0.01", "balanced_accuracy", "auc"), "auc"),
        (("ssim", "mse", "psnr"), "psnr"),
        (("source_accuracy", "source_advantage"), "source_advantage"),
        (("label_accuracy", "label_exact_rate", "label_over_chance"), "label_over_chance"),
        (("label_exact_rate", "label_accuracy"), "label_accuracy"),
        (("label_count_error", "label_exact_rate"), "label_exact_rate"),
    ],
)
def test_an_attack_is_compared_by_one_metric_whatever_the_order_of_its_rows(craft, measured, primary):
    for number, order in enumerate((measured, measured[::-1])):
        run = craft(f"run{number}")
        for metric in order:
            run.cell([0.1, 0.2], metric=metric)
        assert [key.metric for key in cells(run)] == [primary]


def test_the_metric_is_chosen_for_an_attack_not_for_each_defense(craft):
    run = craft("run").cell([0.1], metric="label_accuracy").cell([0.1], metric="label_over_chance")
    run.cell([0.1], metric="label_accuracy", defense="other")
    assert [(key.defense, key.metric) for key in cells(run)] == [("mine", "label_over_chance")]


def test_images_of_a_seed_become_their_median(craft):
    run = craft("run")
    for seed, values in enumerate(([10.0, 12.0, 80.0], [9.0, 11.0])):
        for record, value in enumerate(values):
            run.row(seed=seed, value=value, record=record, scope="record", metric="psnr", attack="inversion")
    run.row(seed=1, metric="psnr", attack="inversion", status="unavailable", reason="none")
    (series,) = cells(run).values()
    assert series.values == {0: 12.0, 1: 10.0}
    assert series.sign == 1


def test_lower_accuracy_is_worse(craft):
    run = craft("run").cell([0.9, 0.8], role="utility", attack="training", metric="accuracy", observer="")
    ((key, series),) = cells(run).items()
    assert key == CellKey(federation="main", defense="mine", attack="training", observer="", metric="accuracy")
    assert series.sign == -1
    assert str(key) == "main/mine/training accuracy"


def test_a_row_that_does_not_say_what_is_worse_is_refused(craft):
    with pytest.raises(
        ValueError, match=r"main/mine/loss \(uploads\) auc: a compared result row must have a direction"
    ):
        cells(craft("run").cell([0.5], direction=""))


def test_every_primary_metric_has_a_margin_and_a_name():
    assert set(DEFAULT_MARGINS) == set(PRIMARY) <= set(METRICS)


def test_margins_are_set_by_metric():
    assert margins_with({"auc": 1}) == DEFAULT_MARGINS | {"auc": 1.0}
    assert stated_margins(["auc=0.1", "psnr = 2"]) == {"auc": 0.1, "psnr": 2.0}


@pytest.mark.parametrize("bad", ["auc", "auc=", "auc=high", "=1"])
def test_what_is_no_margin_is_refused(bad):
    with pytest.raises(ValueError, match=r"--margin must have the form metric=value|unknown metric ''"):
        margins_with(stated_margins([bad]))


@pytest.mark.parametrize("value", [0, -1, float("nan"), float("inf"), True, "1"])
def test_a_margin_is_a_positive_number(value):
    with pytest.raises(ValueError, match="margin of auc must be a number > 0, got"):
        margins_with({"auc": value})


def test_an_unknown_metric_names_the_known_ones():
    with pytest.raises(ValueError, match="a margin is set for an unknown metric 'psnrr'; known: psnr"):
        margins_with({"psnrr": 1.0})
