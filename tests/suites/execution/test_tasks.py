"""A regression and several labels per sample as federations: from a text file to verdicts, attacks and a report."""

import numpy as np
import pytest
from fedassay.api import run
from fedassay.suites.config.source import ConfigError

OPTIONS = {
    "regression": 'label = "price", task = "regression", drop = ["a", "b"]',
    "multilabel": 'labels = ["a", "b"], task = "multilabel", drop = ["price"]',
}
FIRST = {"regression": "r2", "multilabel": "macro_f1"}
SUITE = """\
name = "mine"
alpha = 0.05
seeds = 1
[federations.main]
dataset = {{ part = "own.csv", {options} }}
model = {{ part = "mlp", hidden = 4 }}
clients = 3
rounds = 10
algorithm = {{ name = "fedsgd", learning_rate = 0.3 }}
{partition}
[defenses.none]
"""
DEFENSES = "".join(
    f"[defenses.{name}]\nepsilon = 4.0\ndelta = 1e-5\n" for name in ("dp_sgd", "dp_fedavg", "ldp_gaussian")
)
AUDIT = '[audit]\nreplicas = 40\nmodel = "logistic"\ncanary = "dirac"\n'
ATTACKS = "[attacks.loss]\ncount = 4\n[attacks.gradient_cosine]\ncount = 4\n"


@pytest.fixture
def suite(tmp_path):
    """(task, tables, partition) -> the path of a suite on a table of 90 rows, whose labels follow from two columns."""

    def write(task, tables="", partition=""):
        rng = np.random.default_rng(0)
        values = rng.normal(size=(90, 2))
        price = 5000 + 300 * values @ [1, -1] + 30 * rng.normal(size=90)
        columns = np.column_stack([values, price, values > 0.3])
        lines = ["u,v,price,a,b", *(",".join(f"{one:.6g}" for one in row) for row in columns)]
        (tmp_path / "own.csv").write_text("\n".join(lines), encoding="utf-8")
        text = SUITE.format(options=OPTIONS[task], partition=partition) + tables
        (tmp_path / "suite.toml").write_text(text, encoding="utf-8")
        return tmp_path / "suite.toml"

    return write


def values_of(finished, defense):
    rows = [row for row in finished.records if row.role == "utility" and row.defense == defense]
    return {row.metric: row.value for row in rows}


@pytest.mark.long
@pytest.mark.simulations
@pytest.mark.parametrize("task", ["regression", pytest.param("multilabel", marks=pytest.mark.long)])
def test_a_table_ends_in_verdicts_attacks_and_a_report(suite, tmp_path, task):
    finished = run(str(suite(task, DEFENSES + AUDIT + ATTACKS)), jobs=1, folder=tmp_path / "run")
    assert {row.status for row in finished.records} == {"ok"}
    verdicts = {row.verdict for row in finished.records if row.role == "audit"}
    assert verdicts <= {"NOT_REFUTED", "UNDERPOWERED", ""}
    assert len({row.defense for row in finished.records if row.role == "audit"}) == 3
    metrics = values_of(finished, "none")
    assert metrics[FIRST[task]] > 0.3
    assert "accuracy" not in metrics
    assert metrics["loss"] < values_of(finished, "ldp_gaussian")["loss"]
    if task == "regression":
        assert metrics["mean_absolute_error"] ** 2 <= metrics["mean_squared_error"] <= 4e5
        assert not any(name.startswith("class_") for name in metrics)
        # The loss is in scaled units, the error in the unit of the column: their ratio is the variance.
        assert 200**2 < metrics["mean_squared_error"] / metrics["loss"] < 600**2
    page = (finished.folder / "report.html").read_text(encoding="utf-8")
    assert {"regression": "mean absolute error", "multilabel": "subset accuracy"}[task] in page
    assert f"client_{FIRST[task]}_worst" in metrics


def test_errors_of_a_regression_are_those_of_its_predictions(suite, tmp_path):
    """Computed again from the final model and the file's own numbers."""
    from fedassay.suites.config.resolve import resolve
    from fedassay.suites.config.suite_file import load_suite

    spec, source = load_suite(str(suite("regression")))
    task = resolve(spec, source, seed=0).task("main", 0)
    from fedassay.fl.streams import Streams

    model = task.initial(Streams(0))
    found = {one.metric: one.value for one in task.utility(model)}
    scale = task.label_scale[0]
    gap = (task.network.logits(model, task.test_images) - task.test_labels).double()[:, 0] * scale
    assert found["mean_absolute_error"] == pytest.approx(float(gap.abs().mean()))
    assert found["mean_squared_error"] == pytest.approx(float(gap.square().mean()))
    assert 300 < scale < 600


@pytest.mark.parametrize("task", OPTIONS)
@pytest.mark.parametrize(
    ("tables", "setting", "words"),
    [
        ("[attacks.idlg]\n", "", "needs one class per sample, but model mlp.* of federation main is trained on"),
        ('[audit]\ncanary = "mislabelled"\nmodel = "mlp"\n', "", "is a sample with a class, .* dirac or random"),
        ("", 'partition = { kind = "dirichlet", alpha = 0.5 }', "partition dirichlet deals samples by their class"),
        ("", "label_noise = 0.1", "federation main cannot be set up: .*label_noise must be 0 for a "),
    ],
)
def test_what_needs_a_class_is_refused_with_its_line(suite, tmp_path, task, tables, setting, words):
    path = suite(task, DEFENSES + tables, setting)
    with pytest.raises(ConfigError, match=rf"suite.toml, line \d+: .*{words}"):
        run(str(path), jobs=1, folder=tmp_path / "run", report=False)


@pytest.mark.parametrize("task", OPTIONS)
def test_one_sample_and_a_warm_start_need_no_class(suite, tmp_path, task):
    setting = 'partition = "one_sample"\nwarm_start = { samples = 10, steps = 2, lot = 5, learning_rate = 0.1 }'
    finished = run(str(suite(task, partition=setting)), jobs=1, folder=tmp_path / "run", report=False)
    assert {row.status for row in finished.records if not row.metric.startswith("client_")} == {"ok"}


COUNTED = (
    "loss_series",
    "confidence_series",
    "gradient_dot",
    "likelihood_ratio",
    "fedmia_loss",
    "source",
    "client_loss",
)


@pytest.mark.parametrize("task", OPTIONS)
def test_attacks_that_need_no_class_score_its_samples(suite, tmp_path, task):
    attacks = "".join(f"[attacks.{name}]\ncount = 4\n" for name in COUNTED)
    finished = run(str(suite(task, attacks, "held_out = 2")), jobs=1, folder=tmp_path / "run", report=False)
    found = {row.attack for row in finished.records if row.role == "attack" and row.value is not None}
    assert found == set(COUNTED)
    assert {row.status for row in finished.records} == {"ok"}


@pytest.mark.simulations
@pytest.mark.parametrize("task", OPTIONS)
def test_images_with_such_labels_are_reconstructed_from_their_gradients(tmp_path, task):
    """Undefended gradients of one sample: one in closed form, one by a search over the image and its labels."""
    images = np.random.default_rng(0).random((30, 6, 6))
    labels = images[:, 0, :3] > 0.5 if task == "multilabel" else images[:, 0, :3].sum(1)
    np.savez(tmp_path / "own.npz", x_train=images, y_train=labels)
    federation = {
        "dataset": {"part": str(tmp_path / "own.npz"), "task": task},
        "model": {"part": "mlp", "hidden": 8},
        "clients": 4,
        "rounds": 1,
        "partition": "one_sample",
        "algorithm": {"name": "fedsgd", "learning_rate": 0.1},
    }
    attacks = {"analytic_linear": {}, "dlg": {"iterations": 150}, "random_image": {}}
    suite = {
        "name": "own",
        "seeds": 1,
        "federations": {"main": federation},
        "defenses": {"none": {}},
        "attacks": attacks,
    }
    finished = run(suite, jobs=1, folder=tmp_path / "run", report=False)
    errors = {
        name: [row.value for row in finished.records if (row.attack, row.metric) == (name, "mse")] for name in attacks
    }
    assert {len(found) for found in errors.values()} == {4}
    assert max(errors["analytic_linear"]) < 1e-6
    assert np.median(errors["dlg"]) < 1e-3 < min(errors["random_image"])
