"""Data sets of torchvision that are on this machine are read by name; nothing is downloaded."""

import gzip
import struct

import numpy as np
import pytest
import torch
from fedassay.fl.data.files.lookup import DataFile


@pytest.fixture
def kmnist(tmp_path):
    """A folder with 20 made-up images in the files of torchvision's KMNIST."""
    raw = tmp_path / "data" / "KMNIST" / "raw"
    raw.mkdir(parents=True)
    images = np.random.default_rng(0).integers(256, size=(20, 28, 28), dtype=np.uint8)
    for part in ("train", "t10k"):
        (raw / f"{part}-images-idx3-ubyte").write_bytes(struct.pack(">4i", 0x803, 20, 28, 28) + images.tobytes())
        (raw / f"{part}-labels-idx1-ubyte").write_bytes(
            struct.pack(">2i", 0x801, 20) + bytes(i % 10 for i in range(20))
        )
    return images


def test_its_files_are_read_with_the_names_of_its_classes(kmnist, tmp_path):
    loaded = DataFile.of("torchvision/KMNIST", {"root": "data"}, str(tmp_path)).load()
    assert torch.equal(loaded.train_images[:, 0], torch.from_numpy(kmnist) / 255)
    assert loaded.test_labels.tolist() == [i % 10 for i in range(20)]
    assert loaded.class_names[:2] == ("o", "ki")


def test_the_folder_is_fedassay_data_by_default(kmnist, tmp_path, monkeypatch):
    monkeypatch.setenv("FEDASSAY_DATA", str(tmp_path / "data"))
    assert DataFile("torchvision/KMNIST", folder=str(tmp_path)).load().shape == (1, 28, 28)
    monkeypatch.delenv("FEDASSAY_DATA")
    with pytest.raises(ValueError, match="torchvision/KMNIST needs a folder: set root"):
        DataFile("torchvision/KMNIST", folder="elsewhere").load()


def test_missing_files_are_not_downloaded(tmp_path, monkeypatch):
    monkeypatch.setattr(gzip, "open", lambda *_: pytest.fail("something was fetched"))
    with pytest.raises(
        ValueError, match=r"torchvision/CIFAR10 \(train part\) cannot be read from .*nothing is downloaded"
    ):
        DataFile.of("torchvision/CIFAR10", {"root": "."}, str(tmp_path)).load()


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("CIFAR11", "torchvision has no data set 'CIFAR11' that can be read; it has CIFAR10"),
        ("LSUN", "torchvision has no data set 'LSUN' that can be read"),
        ("os", "torchvision has no data set 'os'"),
    ],
)
def test_an_unknown_name_lists_the_nearest(name, says):
    with pytest.raises(ValueError, match=says):
        DataFile(f"torchvision/{name}").load()
