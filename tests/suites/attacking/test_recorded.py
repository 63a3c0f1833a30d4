"""What a real training sent is attacked and scored as in a federation; what was not recorded is said, not guessed."""

import numpy as np
import pytest
import torch
from fedassay.api import attack_recording, resume
from fedassay.fl.data.dataset import Dataset
from fedassay.fl.recording import record_rows
from fedassay.suites.config.source import ConfigError
from recorded_training import record

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")  # Of few candidates.


def attacked(place, model="mlp", data="digits", **options):
    said = []
    options = {"folder": place / "run", "jobs": 1, "report": False, "show": said.append} | options
    return attack_recording(place / "recording", model=model, data=data, **options), said


def rows(run, attack, metric=None):
    return [one for one in run.records if one.attack == attack and metric in (None, one.metric)]


def mean(run, attack, metric):
    return float(np.mean([one.value for one in rows(run, attack, metric)]))


def test_an_undefended_training_reveals_images_labels_and_members(tmp_path):
    record(tmp_path / "recording")
    attacks = ["inversion", "analytic_linear", "class_mean_image", "random_image", "idlg", "gradient_cosine"]
    run, said = attacked(tmp_path, attacks=attacks, overrides=["attacks.inversion.iterations=300"], report=True)
    assert mean(run, "analytic_linear", "psnr") > 90
    assert mean(run, "inversion", "psnr") > 40 > 20 > mean(run, "class_mean_image", "psnr")
    assert mean(run, "idlg", "label_accuracy") == mean(run, "gradient_cosine", "auc") == 1.0
    assert any(
        line.startswith("recomputed: updates of the first round differ from those of plain steps") for line in said
    )
    page = (tmp_path / "run" / "report.html").read_text()
    assert "messages recorded from a training" in page
    assert "a simulated federation" not in page
    assert "attacks on recorded messages did better than guessing" in page
    assert "analytic_linear: 4 of 4 images" in page.lower()


def test_noised_messages_leave_labels_images_and_members_at_chance(tmp_path):
    """40 clients; each of two intervals misses the chance in at most 1 of 20 cases, and the seed is fixed."""
    record(tmp_path / "recording", clients=40, noise=1.0)
    run, said = attacked(tmp_path, attacks=["analytic_linear", "random_image", "idlg", "gradient_cosine"])
    (labels,), (members,) = rows(run, "idlg", "label_accuracy"), rows(run, "gradient_cosine", "auc")
    assert labels.ci_low <= 0.1 <= labels.ci_high
    assert members.ci_low <= 0.5 <= members.ci_high
    assert mean(run, "analytic_linear", "psnr") < mean(run, "random_image", "psnr")
    assert any("so an attack that fails shows little" in line for line in said)


def arbitrary(seed=0, count=160):
    """Images and labels that have nothing in common, which a model can only learn by heart."""
    rng = np.random.default_rng(seed)

    def part(size):
        return torch.from_numpy(rng.random((size, 1, 4, 4))).float(), torch.from_numpy(rng.integers(2, size=size))

    return Dataset.of_parts("arbitrary", part(count), part(40), classes=2)


def test_membership_is_above_chance_where_a_model_learns_by_heart_and_at_chance_under_noise(tmp_path):
    """Each of three intervals about the chance misses it in at most 1 of 20 cases, and the seed is fixed."""
    data = arbitrary()
    heart = {"rounds": 200, "steps": 5, "rate": 1.0}
    for name, how in (("heart", heart), ("noise", {"noise": 1.0})):
        record(tmp_path / name / "recording", data=data, clients=2, samples=20, **how)
        run, _ = attacked(tmp_path / name, data=data, attacks=["loss", "random_scores"])
        (found,), (null,) = rows(run, "loss", "auc"), rows(run, "random_scores", "auc")
        assert found.ci_low > 0.5 if name == "heart" else found.ci_low <= 0.5 <= found.ci_high
        assert null.ci_low <= 0.5 <= null.ci_high


def test_batch_norm_in_training_mode_is_inverted_with_the_statistics_of_the_lot(tmp_path):
    record(tmp_path / "recording", "lenet_bn", samples=2, clients=3)
    attacks = ["grad_inversion", "class_mean_image", "gradient_cosine"]
    run, _ = attacked(tmp_path, "lenet_bn", attacks=attacks, overrides=["attacks.grad_inversion.iterations=200"])
    assert mean(run, "grad_inversion", "psnr") > mean(run, "class_mean_image", "psnr") + 5
    (skipped,) = rows(run, "gradient_cosine")
    assert skipped.status == "skipped"
    assert "batch norm mixes the samples" in skipped.reason


def test_batch_norm_with_running_statistics_is_refused_with_the_reason_and_the_remedy(tmp_path, monkeypatch):
    (tmp_path / "recorded_bn.py").write_text(
        "from torch import nn\n\n\ndef model(shape, classes):\n"
        "    return nn.Sequential(nn.Flatten(), nn.BatchNorm1d(64), nn.Linear(64, classes))\n"
    )
    monkeypatch.chdir(tmp_path)
    record(tmp_path / "recording")
    with pytest.raises(ConfigError, match=r"running statistics.*track_running_stats=False"):
        attacked(tmp_path, "recorded_bn.py:model")


def test_an_observer_of_sums_or_models_is_attacked_with_what_it_receives(tmp_path):
    attacks = ["bias_corrected", "gradient_cosine", "loss_series", "source"]
    record(tmp_path / "sums" / "recording", samples=2, clients=2, observer="aggregate")
    run, _ = attacked(tmp_path / "sums", attacks=attacks)
    assert {one.observer for one in rows(run, "bias_corrected")} == {"aggregate"}
    assert mean(run, "bias_corrected", "label_accuracy") == 1.0
    assert [one.status for one in rows(run, "source")] == ["skipped"]
    record(tmp_path / "models" / "recording", samples=2, clients=2, observer="global_models")
    run, _ = attacked(tmp_path / "models", attacks=attacks)
    assert [one.status for one in rows(run, "bias_corrected")] == ["skipped"]
    assert "the recording holds what other clients" in rows(run, "bias_corrected")[0].reason
    assert {one.observer for one in rows(run, "gradient_cosine")} == {"global_models"}
    assert not [one for one in run.records if one.metric.startswith("bytes_")]


def test_a_recording_without_a_truth_is_attacked_and_not_scored(tmp_path):
    record(tmp_path / "recording", truth=False)
    run, said = attacked(tmp_path, attacks=["analytic_linear", "idlg", "loss"])
    (images,), (labels,), (members,) = (rows(run, name) for name in ("analytic_linear", "idlg", "loss"))
    assert (images.status, labels.status, members.status) == ("unavailable", "unavailable", "skipped")
    assert np.load(tmp_path / "run" / images.artifact)["reconstructions"].shape == (4, 1, 8, 8)
    assert np.load(tmp_path / "run" / labels.artifact)["label_counts"].shape == (4, 10)
    assert not [one for one in run.records if one.metric.startswith("client_")]
    assert any(line.startswith("not scored") for line in said)


def test_attacks_find_the_same_whatever_the_truth_says(tmp_path):
    """Only scores may depend on the truth: the same messages are recorded with the rows of other images."""
    found = []
    for name in ("right", "wrong"):
        record(tmp_path / name / "recording", truth=False)
        for client in range(4):
            record_rows(tmp_path / name / "recording", f"client_{client}", [client + 100 * (name == "wrong")])
        run, _ = attacked(tmp_path / name, attacks=["analytic_linear"])
        (artifact,) = {one.artifact for one in rows(run, "analytic_linear", "psnr")}
        arrays = np.load(tmp_path / name / "run" / artifact)
        # Of one image per upload no order is matched.
        found.append((arrays["reconstructions"], arrays["originals"]))
    assert np.array_equal(found[0][0], found[1][0])
    assert not np.array_equal(found[0][1], found[1][1])


def test_images_are_scored_for_the_clients_that_came(tmp_path):
    record(
        tmp_path / "recording",
        rounds=2,
        present=lambda turn, client: (client in ("client_1", "client_3")) == (turn == 1),
    )
    run, _ = attacked(tmp_path, attacks=["analytic_linear"], overrides=["attacks.analytic_linear.round=1"])
    found = rows(run, "analytic_linear", "psnr")
    # The recording lists clients in the order in which they came: 0, 2, then 1, 3.
    assert [one.client for one in found] == [2, 3]
    assert min(one.value for one in found) > 90


def test_several_local_steps_are_simulated(tmp_path):
    record(tmp_path / "recording", clients=2, steps=3)
    overrides = ["attacks.fedavg_inversion.iterations=200", "attacks.fedavg_inversion.restarts=2"]
    run, said = attacked(tmp_path, attacks=["fedavg_inversion"], overrides=overrides)
    assert mean(run, "fedavg_inversion", "psnr") > 30
    assert any("3 * learning rate 0.1" in line and "to first order" in line for line in said)


def test_columns_of_records_are_attacked_where_one_is_named(tmp_path):
    rng = np.random.default_rng(0)
    x = torch.from_numpy(rng.integers(2, size=(120, 1, 1, 6))).float()
    y = (x[:, 0, 0, 0] + x[:, 0, 0, 1] > 1).long()
    data = Dataset.of_parts("answers", (x[:80], y[:80]), (x[80:], y[80:]), classes=2, rows=True)
    record(tmp_path / "recording", "logistic", data=data, clients=4, samples=3)
    run, _ = attacked(tmp_path, "logistic", data=data, column=2)
    assert {"attribute_likelihood", "attribute_loss", "imputed_attribute"} <= {one.attack for one in run.records}
    assert not [one for one in run.records if one.status == "failed" or one.metric == "psnr"]
    assert mean(run, "attribute_likelihood", "attribute_accuracy") > mean(
        run, "imputed_attribute", "attribute_accuracy"
    )


def test_what_does_not_fit_the_recording_is_refused_before_anything_runs(tmp_path):
    with pytest.raises(ConfigError, match="is no recording of fedassay"):
        attacked(tmp_path)
    record(tmp_path / "recording")
    with pytest.raises(ConfigError, match="give the model that was trained"):
        attacked(tmp_path, "lenet")
    with pytest.raises(ConfigError, match="unknown attack 'los'"):
        attacked(tmp_path, attacks=["los"])
    with pytest.raises(ConfigError, match="rounds must be that of the recording, 1, got 2"):
        attacked(tmp_path, overrides=["federations.recorded.rounds=2"])
    assert not (tmp_path / "run").exists()


def test_rows_that_the_data_lack_are_named(tmp_path):
    record(tmp_path / "recording", clients=6)
    with pytest.raises(ConfigError, match=r"the truth of client client_4 names row 4, but data set .* has 4"):
        attacked(tmp_path, data=arbitrary(count=4))


def test_a_run_is_not_resumed_on_another_recording(tmp_path):
    record(tmp_path / "recording", truth=False)
    attacked(tmp_path, attacks=["idlg"])
    for client in range(4):
        record_rows(tmp_path / "recording", f"client_{client}", [client])
    with pytest.raises(ConfigError, match="has another content than this suite names"):
        resume(tmp_path / "run")
