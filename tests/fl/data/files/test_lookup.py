"""Which texts name a file, what is said where there is none, and that a file is read once."""

import pickle

import numpy as np
import pytest
from fedassay.fl.data.datasets import load_dataset
from fedassay.fl.data.files import lookup
from fedassay.fl.data.files.lookup import DataFile, names_a_file


def write(path, seed=0):
    x = np.random.default_rng(seed).integers(256, size=(20, 4, 4), dtype=np.uint8)
    np.savez(path, x_train=x, y_train=np.arange(20) % 2)


@pytest.mark.parametrize("name", ["a.npz", "./photos", "photos/", "../x/y.csv", "torchvision/CIFAR10", "a.b"])
def test_paths_are_told_from_names(name):
    assert names_a_file(name)


@pytest.mark.parametrize("name", ["digits", "mnist", "photos", "package.module:Name", ""])
def test_names_and_code_are_no_paths(name):
    assert not names_a_file(name)


def test_a_file_is_read_once_and_again_after_a_change(tmp_path):
    write(tmp_path / "own.npz")
    first = load_dataset(DataFile("own.npz", folder=str(tmp_path)))
    assert load_dataset(DataFile("own.npz", folder=str(tmp_path))) is first
    assert load_dataset(str(tmp_path / "own.npz")).train_images.equal(first.train_images)
    write(tmp_path / "own.npz", seed=1)
    changed = load_dataset(DataFile("own.npz", folder=str(tmp_path)))
    assert changed.digest != first.digest


def test_the_digest_does_not_depend_on_the_folder(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        write(tmp_path / name / "own.npz")
    first, second = (DataFile("own.npz", folder=str(tmp_path / name)).load() for name in ("a", "b"))
    assert first.digest == second.digest


def test_what_is_sent_to_a_worker_is_a_path_and_no_array(tmp_path):
    write(tmp_path / "own.npz")
    data = DataFile.of("own.npz", {"ignore": ["a"], "test_share": 0.5}, str(tmp_path))
    data.load()
    assert len(pickle.dumps(data)) < 500
    assert pickle.loads(pickle.dumps(data)).load() is data.load()


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("own.npy", "data set 'own.npy' is not there: .* holds own.npz or table.xlsx"),
        ("nowhere/own.npz", r"data set 'nowhere/own.npz' is not there: .*nowhere is no folder"),
        (
            "table.xlsx",
            r"table.xlsx has an unknown suffix '.xlsx': a data set is a file .npz, .csv, .tsv, .parquet or a",
        ),
        ("./", "must be a folder of images with one sub-folder per class, or a Hugging Face data set"),
    ],
)
def test_what_is_not_there_or_unknown_is_refused_with_the_nearest(tmp_path, name, says):
    write(tmp_path / "own.npz")
    (tmp_path / "table.xlsx").write_bytes(b"")
    with pytest.raises(ValueError, match=says):
        DataFile(name, folder=str(tmp_path)).load()


def test_a_file_that_may_not_be_read_is_named(tmp_path, monkeypatch):
    write(tmp_path / "own.npz")

    def denied(data, stamp):
        raise PermissionError(13, "Permission denied", str(tmp_path / "own.npz"))

    monkeypatch.setattr(lookup, "_read", denied)
    with pytest.raises(ValueError, match=r"own.npz cannot be read: permission denied"):
        DataFile("own.npz", folder=str(tmp_path)).load()
