"""Rows of a table in a federation: models that fit them, attacks that cannot, and a run from end to end."""

import numpy as np
import pytest
from fedassay.fl.data.data_folder import DataFolder
from fedassay.fl.data.datasets import _load
from fedassay.fl.data.location30 import FILE
from fedassay.suites.config.resolve import task_of
from fedassay.suites.config.source import ConfigError
from fedassay.suites.planning.run_plan import plan_run
from fedassay.suites.results.store import Store


@pytest.fixture
def check_ins(tmp_path, monkeypatch):
    """200 made-up rows of check-ins in FEDASSAY_DATA; what was loaded before is forgotten, and so is this after."""
    rng = np.random.default_rng(0)
    (tmp_path / FILE).parent.mkdir()
    bits = rng.integers(256, size=(200, 56), dtype=np.uint8)
    np.savez(tmp_path / FILE, x=bits, y=rng.integers(30, size=200, dtype=np.uint8))
    monkeypatch.setenv("FEDASSAY_DATA", str(tmp_path))
    _load.cache_clear()
    task_of.cache_clear()
    yield DataFolder(tmp_path)
    _load.cache_clear()
    task_of.cache_clear()


@pytest.fixture
def tabular(resolved, check_ins):
    def build(*changes, model="logistic"):
        table = f'[federations.main]\ndataset = "location30"\nmodel = "{model}"'
        return resolved('[federations.main]\ndataset = "digits"\nmodel = "logistic"', table, *changes)

    return build


@pytest.mark.parametrize("model", ["logistic", "mlp"])
def test_a_federation_of_rows_trains_and_is_attacked(tabular, tmp_path, model):
    plan = plan_run(tabular(model=model))
    for trial in plan.trials:
        store = Store(tmp_path / "run")
        assert trial.run(store, frozenset()) == []
        metrics = {row.metric for cell in trial.cells for row in store.cell_records(cell.cell_id)}
        assert {"accuracy", "auc"} <= metrics


def test_a_model_of_images_is_refused_before_anything_runs(tabular):
    with pytest.raises(
        ConfigError, match="federation main cannot be set up: model lenet: lenet needs images of at least 7x7"
    ):
        plan_run(tabular(model="lenet"))


@pytest.mark.parametrize("attack", ["inversion", "mean_image", "dlg", "imprint"])
def test_an_attack_that_reconstructs_images_is_refused_with_its_line(tabular, attack):
    with pytest.raises(
        ConfigError, match=r"suite\d+\.toml, line \d+: .*has 1x446: run the attack only on federations with such images"
    ) as refused:
        tabular("[attacks.loss]", f"[attacks.{attack}]\n\n[attacks.loss]")
    assert f"{attack} reconstructs images of at least 3x3 pixels, but data set location30 of federation main" in str(
        refused.value
    )
