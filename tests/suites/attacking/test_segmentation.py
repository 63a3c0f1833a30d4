"""A segmentation as a federation: rows of its pixels, and what needs a label an image is refused."""

import pytest
from fedassay.reports.figures.curves import learning
from fedassay.reports.reading.run_folder import RunFolder
from fedassay.suites.config.source import ConfigError

NONE = "[defenses.none]\n"
SEGMENTATION = {"dataset": "synthetic_receipts_tampered", "model": "unet", "clients": 2, "samples": 4, "rounds": 2}
SEGMENTATION |= {"algorithm": {"name": "fedsgd", "learning_rate": 2.0}, "alpha": 0.05}


@pytest.mark.simulations
def test_utility_is_of_pixels_and_what_is_undefined_is_a_row_without_a_value(suite_file, assay):
    """After two steps a model marks nothing: no precision, and the three others are 0."""
    run = assay(suite_file(text=f"{NONE}[attacks.random_image]\n[attacks.mean_image]\n", **SEGMENTATION))
    rows = {row.metric: row for row in run.records if row.role == "utility"}
    loss = rows.pop("loss")
    assert 0 < loss.value < 5
    # The pixels to find have an IoU of 0, all others one of more than one half.
    assert rows["class_iou_worst"].value == rows["client_iou_mean"].value == 0
    assert 0.25 < rows["class_iou_mean"].value < 0.5
    pixels = {name: rows[name].value for name in ("iou", "precision", "recall", "f_score")}
    assert pixels == {"iou": 0, "precision": None, "recall": 0, "f_score": 0}
    assert (rows["precision"].status, rows["precision"].reason) == (
        "skipped",
        "the model marks no pixel of any test image",
    )
    assert {row.status for row in rows.values()} == {"ok", "skipped"}
    assert {row.metric for row in run.records if row.role == "null"} >= {"psnr", "psi_psnr", "outside_ssim"}
    (figure,) = learning(RunFolder.read(run.folder))
    assert figure.table.rows[:2] == (("1", "IoU", "0.000"), ("2", "IoU", "0.000"))
    assert [row[:2] for row in figure.table.rows[2:]] == [("1", "test loss"), ("2", "test loss")]
    assert "IoU" in figure.svg


@pytest.mark.parametrize("attack", ["loss", "idlg", "class_mean_image", "lira_online"])
def test_an_attack_that_needs_a_label_an_image_is_refused_with_its_line(resolved, attack):
    with pytest.raises(
        ConfigError,
        match=r"line 15: .* needs .*one class per sample.*, but model unet of federation main .* one label per pixel",
    ):
        resolved(text=f"{NONE}\n[attacks.{attack}]\n", **SEGMENTATION)


def test_a_segmenter_is_refused_where_nothing_is_to_be_found(assay, suite_file):
    with pytest.raises(ConfigError, match="classes must be 2 for unet, which separates two classes of pixels"):
        assay(suite_file(text=NONE, **(SEGMENTATION | {"dataset": "synthetic_receipts"})))


@pytest.mark.simulations
def test_an_audit_with_an_update_as_canary_ends_and_relabels_pixels(assay, suite_file):
    """One implementation check changes the labels of samples, which are booleans here."""
    tables = "[defenses.ldp_gaussian]\nepsilon = 4.0\ndelta = 1e-5\n"
    run = assay(suite_file(text=f'{tables}[audit]\nmodel = "unet"\nreplicas = 2\n', **SEGMENTATION))
    assert {row.status for row in run.records if row.role == "audit"} == {"ok"}
