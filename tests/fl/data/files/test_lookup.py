"""Which texts name a file, what is said where there is none, that it is read once, and what a function may return."""

import os
import pickle

import numpy as np
import pytest
import torch
from fedassay.fl.data.datasets import load_dataset
from fedassay.fl.data.files import lookup
from fedassay.fl.data.files.lookup import DataFile, dataset_from, names_a_file


def write(path, seed=0):
    x = np.random.default_rng(seed).integers(256, size=(20, 4, 4), dtype=np.uint8)
    np.savez(path, x_train=x, y_train=np.arange(20) % 2)


def test_paths_are_told_from_names_and_code():
    assert all(map(names_a_file, ["a.npz", "./photos", "photos/", "../x/y.csv", "torchvision/CIFAR10", "a.b"]))
    assert not any(map(names_a_file, ["digits", "mnist", "photos", "package.module:Name", ""]))


def test_a_file_is_read_once_and_again_after_a_change(tmp_path):
    write(tmp_path / "own.npz")
    data = DataFile.of("own.npz", {"ignore": ["a"], "test_share": 0.5}, str(tmp_path))
    first = load_dataset(data)
    # What is sent to a worker is a path, and no array.
    assert len(pickle.dumps(data)) < 500
    assert pickle.loads(pickle.dumps(data)).load() is first
    write(tmp_path / "own.npz", seed=1)
    assert load_dataset(data).digest != first.digest


def test_the_digest_does_not_depend_on_the_folder(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        write(tmp_path / name / "own.npz")
    first, second = (DataFile("own.npz", folder=str(tmp_path / name)).load() for name in ("a", "b"))
    assert first.digest == second.digest
    with pytest.raises(ValueError, match="changed while the run was going on"):
        DataFile("own.npz", folder=str(tmp_path / "a"), digest="0").load()


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("own.npy", "data set 'own.npy' is not there: .* holds own.npz or table.xlsx"),
        ("nowhere/own.npz", r"data set 'nowhere/own.npz' is not there: .*nowhere is no folder"),
        ("table.xlsx", r"unknown suffix '.xlsx': .* .npz, .csv, .tsv, .parquet.*package.module:function"),
        ("./", "must be a folder of images with one sub-folder per class, or a Hugging Face data set"),
    ],
)
def test_what_is_not_there_or_unknown_is_refused_with_the_nearest(tmp_path, name, says):
    write(tmp_path / "own.npz")
    (tmp_path / "table.xlsx").write_bytes(b"")
    with pytest.raises(ValueError, match=says):
        DataFile(name, folder=str(tmp_path)).load()


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
def test_a_pipe_is_refused_and_not_read(tmp_path):
    os.mkfifo(tmp_path / "own.csv")
    with pytest.raises(ValueError, match=r"must be a file or a folder, and .* is neither"):
        DataFile("own.csv", folder=str(tmp_path)).load()


def test_a_file_that_may_not_be_read_is_named(tmp_path, monkeypatch):
    write(tmp_path / "own.npz")

    def denied(data, stamp):
        raise PermissionError(13, "Permission denied", str(tmp_path / "own.npz"))

    monkeypatch.setattr(lookup, "_read", denied)
    with pytest.raises(ValueError, match=r"own.npz cannot be read: permission denied"):
        DataFile("own.npz", folder=str(tmp_path)).load()


def test_a_function_of_ones_own_may_return_arrays_a_table_or_a_data_set(tmp_path, monkeypatch):
    (tmp_path / "own_readers.py").write_text(
        "import numpy, pandas\n\n"
        "def arrays(shade=1):\n"
        "    return {'x_train': numpy.full((20, 4, 4), shade), 'y_train': numpy.arange(20) % 2}\n\n"
        "def table():\n"
        "    part = ['train'] * 15 + ['test'] * 5\n"
        "    return pandas.DataFrame({'a': range(20), 'label': ['x', 'y'] * 10, 'split': part})\n\n"
        "def number():\n"
        "    return 3\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    loaded = load_dataset({"part": "own_readers:arrays", "shade": 51})
    assert (loaded.shape, loaded.classes, float(loaded.train_images.max())) == ((1, 4, 4), 2, pytest.approx(0.2))
    table = load_dataset("own_readers:table")
    assert (table.columns, len(table.test_labels), table.class_names) == ((("a", 1),), 5, ("x", "y"))
    assert dataset_from(table, "again") is table
    with pytest.raises(ValueError, match="own_readers:number: train must be a map-style data set"):
        load_dataset("own_readers:number")


def test_a_table_of_pandas_is_kept_with_its_numbers(tmp_path, monkeypatch):
    import pandas

    monkeypatch.setenv("FEDASSAY_CACHE", str(tmp_path))
    frame = pandas.DataFrame({"a": range(20), "price": np.arange(20) / 7})
    spec = {"part": frame, "label": "price", "task": "regression"}
    direct, again = dataset_from(frame, "DataFrame", {"label": "price", "task": "regression"}), lookup.keep(spec)
    kept = load_dataset(again)
    assert torch.equal(kept.train_labels, direct.train_labels)
    assert (kept.label_scale, kept.class_names, kept.columns) == (direct.label_scale, ("price",), (("a", 1),))
