"""Which cells are compared, and the file that keeps them: small, whole, refused where it was changed."""

import json

import pytest
from fedassay.reports.reading.run_folder import RunFolder
from fedassay.reports.regression.baseline import PRIMARY, Baseline, CellKey, family
from fedassay.reports.tables.numerals import METRICS
from fedassay.suites.config.source import ConfigError
from fedassay.suites.config.tables.margins import DEFAULT_MARGINS, margins_with, stated_margins


@pytest.fixture
def baseline(craft, scatter):
    run = craft("run").cell(scatter()).audit("NOT_REFUTED")
    run.cell(scatter(1), role="utility", attack="training", metric="accuracy", observer="")
    return Baseline.of(RunFolder.read(run.write()))


def test_a_file_is_read_back_as_it_was_written_to_the_last_bit(baseline, tmp_path):
    path = baseline.write(tmp_path / "baselines" / "main")
    assert path == tmp_path / "baselines" / "main.json"
    assert Baseline.read(path) == Baseline.read(tmp_path / "baselines" / "main") == baseline


def test_it_holds_a_line_a_cell_and_no_raw_scores(baseline, tmp_path):
    text = baseline.write(tmp_path / "b.json").read_text()
    assert sum('"attack_version"' in line for line in text.splitlines()) == len(baseline.cells) == 2
    assert len(text) < 4000
    assert "artifact" not in text
    assert json.loads(text)["defenses"]["mine"]["audited"] == json.loads(text)["defenses"]["mine"]["claims"]


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ('"schema": "baseline-1"', '"schema": "baseline-2"', "schema must be 'baseline-1', which this version"),
        ('"schema": "baseline-1"', '"schema": "manifest-1"', "schema must be 'baseline-1', which this version"),
        ('"rounds": 20', '"rounds": 21', "was changed since it was written"),
        ('"sha256": "', '"sha256": "0', "was changed since it was written"),
        ('"metric": "auc"', '"metric": "auc", "more": 1', "more is an unknown key"),
        ('"metric": "auc", ', "", "metric is missing"),
        ("{\n", "", "is not JSON"),
        ('"direction": "higher_leaks"', '"direction": "up"', "direction must be"),
    ],
)
def test_a_file_that_is_not_as_it_was_written_is_refused(baseline, tmp_path, old, new, says):
    path = baseline.write(tmp_path / "b.json")
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))
    with pytest.raises(ConfigError, match=says) as error:
        Baseline.read(path)
    assert str(path) in str(error.value)


@pytest.mark.parametrize("number", ["NaN", "Infinity", '"high"', "null"])
def test_a_value_that_is_no_number_is_refused(baseline, tmp_path, number):
    path = baseline.write(tmp_path / "b.json")
    value = str(baseline.cells[0].values[0])
    path.write_text(path.read_text().replace(value, number))
    with pytest.raises(ConfigError, match=r"must be|is not a JSON value"):
        Baseline.read(path)


@pytest.mark.parametrize("text", ["", "[]", "\x00", "12"])
def test_what_is_no_baseline_is_refused_and_never_overwritten(baseline, tmp_path, text):
    path = tmp_path / "b.json"
    path.write_text(text)
    with pytest.raises(ConfigError, match="is not a baseline"):
        Baseline.read(path)
    with pytest.raises(ConfigError, match="is not a baseline"):
        baseline.write(path)
    assert path.read_text() == text


def test_neither_a_folder_nor_a_newer_file_is_overwritten(baseline, tmp_path):
    with pytest.raises(ConfigError, match="is a folder: name a file"):
        baseline.write(tmp_path / "run")
    (tmp_path / "suite.toml").write_text("name = 's'")
    with pytest.raises(ConfigError, match=r"suite.toml is not a baseline and is not overwritten: name another file"):
        baseline.write(tmp_path / "suite.toml")
    assert not (tmp_path / "suite.toml.json").exists()
    newer = tmp_path / "n.json"
    newer.write_text('{"schema": "baseline-2"}')
    with pytest.raises(ConfigError, match=r"is not overwritten, because it has schema 'baseline-2'"):
        baseline.write(newer)


def test_a_file_changed_by_hand_may_be_written_again(baseline, tmp_path):
    path = baseline.write(tmp_path / "b.json")
    path.write_text(path.read_text().replace('"rounds": 20', '"rounds": 21'))
    assert Baseline.read(baseline.write(path)) == baseline


def test_an_unreadable_run_is_reported_with_file_and_line(craft):
    path = craft("run").cell([0.5, 0.6]).write()
    results = path / "results.jsonl"
    results.write_text(results.read_text().replace('"result-2"', '"result-9"', 1))
    with pytest.raises(ConfigError, match=r"1 row of results.jsonl \(line 1, .*result-9"):
        Baseline.read(path)


def test_a_manifest_that_holds_what_no_suite_states_is_an_error_that_names_it(craft, scatter):
    run = craft("run").cell(scatter())
    run.manifest["suite"]["gate"] = {"margins": {"auc": "wide"}}
    with pytest.raises(ValueError, match=r"manifest\.json: margins\.auc must be a number"):
        Baseline.of(RunFolder.read(run.write()))


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


@pytest.mark.parametrize("value", [0, -1, float("nan"), float("inf"), True, "1"])
def test_a_margin_is_a_positive_number(value):
    with pytest.raises(ValueError, match="margin of auc must be a number > 0, got"):
        margins_with({"auc": value})
