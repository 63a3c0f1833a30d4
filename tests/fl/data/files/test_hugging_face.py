"""A folder that Hugging Face Datasets saved is a folder of images or a table, read without its scripts."""

import sys

import numpy as np
import pytest
from fedassay.fl.data.files.lookup import DataFile
from PIL import Image


def test_without_the_package_the_message_names_what_to_install(tmp_path, monkeypatch):
    (tmp_path / "saved").mkdir()
    (tmp_path / "saved" / "state.json").write_text("{}")
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(ValueError, match=r"is a Hugging Face data set, .* the package datasets.*fedassay\[hf\]"):
        DataFile("./saved", folder=str(tmp_path)).load()


@pytest.fixture
def datasets():
    return pytest.importorskip("datasets")


def test_a_column_of_images_gives_the_samples(datasets, tmp_path):
    features = datasets.Features(
        {
            "picture": datasets.Image(),
            "label": datasets.ClassLabel(names=["cat", "dog"]),
            "owner": datasets.Value("string"),
        }
    )
    rows = {
        "picture": [Image.new("L", (6, 5), i) for i in range(20)],
        "label": [i % 2 for i in range(20)],
        "owner": [f"u{i // 4}" for i in range(20)],
    }
    whole = datasets.Dataset.from_dict(rows, features=features)
    datasets.DatasetDict(train=whole, test=whole.select(range(4))).save_to_disk(tmp_path / "saved")
    loaded = DataFile("./saved", folder=str(tmp_path)).load()
    assert (loaded.train_images[:, 0, 0, 0] * 255).round().int().tolist() == list(range(20))
    assert (loaded.class_names, loaded.test_labels.tolist(), loaded.shape) == (("cat", "dog"), [0, 1, 0, 1], (1, 5, 6))
    assert loaded.train_owners.tolist() == [i // 4 for i in range(20)]
    with pytest.raises(ValueError, match=r"saved has no column 'fine' \(label\); it has picture, label, owner"):
        DataFile.of("./saved", {"label": "fine"}, str(tmp_path)).load()


def test_other_columns_make_a_table(datasets, tmp_path):
    rows = {"age": np.arange(20.0), "job": ["a", "b"] * 10, "label": ["x", "y"] * 10}
    datasets.Dataset.from_dict(rows).save_to_disk(tmp_path / "saved")
    loaded = DataFile("./saved", folder=str(tmp_path)).load()
    assert (loaded.shape, loaded.rows, loaded.class_names) == ((1, 1, 3), True, ("x", "y"))
    assert float(loaded.train_images[:, 0, 0, 0].mean()) == pytest.approx(0, abs=1e-6)


def test_columns_of_a_table_can_be_dropped_named_categories_or_read_with_a_decimal_comma(datasets, tmp_path):
    rows = {
        "id": [f"n{i}" for i in range(40)],
        "h": [f"{i},5" for i in range(40)],
        "c": [f"{i % 2}%" for i in range(40)],
    }
    datasets.Dataset.from_dict(rows | {"label": ["x", "y"] * 20}).save_to_disk(tmp_path / "saved")
    options = {"drop": ["id"], "categories": ["c"], "decimal": ","}
    assert DataFile.of("./saved", options, str(tmp_path)).load().shape == (1, 1, 3)
    for key in options:
        with pytest.raises(ValueError, match=r"saved: column (id|h|c) .*in drop"):
            DataFile.of("./saved", {name: one for name, one in options.items() if name != key}, str(tmp_path)).load()
