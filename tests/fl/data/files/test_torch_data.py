"""Data sets of PyTorch, torchvision and Hugging Face become data sets of this package; nothing is downloaded."""

import gzip
import struct
import sys

import numpy as np
import pytest
import torch
from fedassay.fl.data.files.images import ImageOptions, from_torch
from fedassay.fl.data.files.lookup import DataFile
from PIL import Image
from torch.utils.data import TensorDataset

X, Y = torch.rand(20, 3, 6, 5, generator=torch.Generator().manual_seed(0)), torch.arange(20) % 2


def test_tensors_in_the_unit_interval_are_kept():
    loaded = from_torch(
        TensorDataset(X, Y), TensorDataset(X[:4], Y[:4]), name="mine", owners=[f"u{i}" for i in range(20)]
    )
    assert torch.equal(loaded.train_images, X)
    assert torch.equal(loaded.test_labels, Y[:4])
    assert (loaded.name, loaded.classes, len(loaded.train_owners.unique())) == ("mine", 2, 20)
    square = TensorDataset(X[:, :, :3, :3], Y)
    assert torch.equal(from_torch(square, square, name="mine").train_images, X[:, :, :3, :3])


def test_each_sample_is_read_once_and_split():
    read = []

    class Own:
        def __len__(self):
            return 20

        def __getitem__(self, number):
            read.append(number)
            return Image.new("L", (5, 6), number), number % 2

    loaded = from_torch(Own(), name="mine")
    assert read == list(range(20))
    assert (loaded.shape, len(loaded.test_labels)) == ((1, 6, 5), 4)
    assert from_torch(Own(), name="mine", options=ImageOptions(size=4, colour="rgb")).shape == (3, 4, 4)


def test_samples_of_one_axis_are_rows_of_any_size():
    rows = 100 * torch.randn(20, 7, generator=torch.Generator().manual_seed(0))
    loaded = from_torch(TensorDataset(rows, Y), TensorDataset(rows, Y), name="mine")
    assert loaded.rows
    assert torch.equal(loaded.train_images[:, 0, 0], rows)


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (iter([1]), "mine: train must be a map-style data set"),
        ([], "mine: train must hold at least one sample"),
        ([X[0]], r"must give pairs \(image, label\), got Tensor for sample 0"),
        ([(X[0], 0), (X[1], 0.5)], "the label of sample 1 must be a class number, got 0.5"),
        ([("a", 0)], "sample 0 must be an image of Pillow, a tensor or an array, got str"),
        ([(X[0], 0), (X[1, :, :4], 1)], r"sample 1 must have the shape of the first sample, \(3, 6, 5\)"),
    ],
)
def test_what_does_not_fit_is_refused_with_the_sample(data, says):
    with pytest.raises(ValueError, match=says):
        from_torch(data, name="mine")


def test_owners_must_be_one_per_sample():
    with pytest.raises(ValueError, match="owner_train and x_train must have equal lengths, got 3 and 20"):
        from_torch(TensorDataset(X, Y), name="mine", owners=[0, 1, 2])


@pytest.fixture
def kmnist(tmp_path):
    """A folder with 20 made-up images in the files of torchvision's KMNIST."""
    raw = tmp_path / "data" / "KMNIST" / "raw"
    raw.mkdir(parents=True)
    images = np.random.default_rng(0).integers(256, size=(20, 28, 28), dtype=np.uint8)
    labels = struct.pack(">2i", 0x801, 20) + bytes(i % 10 for i in range(20))
    for part in ("train", "t10k"):
        (raw / f"{part}-images-idx3-ubyte").write_bytes(struct.pack(">4i", 0x803, 20, 28, 28) + images.tobytes())
        (raw / f"{part}-labels-idx1-ubyte").write_bytes(labels)
    return images


def test_files_of_torchvision_are_read_with_the_names_of_their_classes(kmnist, tmp_path, monkeypatch):
    loaded = DataFile.of("torchvision/KMNIST", {"root": "data"}, str(tmp_path)).load()
    assert torch.equal(loaded.train_images[:, 0], torch.from_numpy(kmnist) / 255)
    assert loaded.test_labels.tolist() == [i % 10 for i in range(20)]
    assert loaded.class_names[:2] == ("o", "ki")
    monkeypatch.setenv("FEDASSAY_DATA", str(tmp_path / "data"))
    assert DataFile("torchvision/KMNIST", folder=str(tmp_path)).load().shape == (1, 28, 28)
    monkeypatch.delenv("FEDASSAY_DATA")
    with pytest.raises(ValueError, match="torchvision/KMNIST needs a folder: set root"):
        DataFile("torchvision/KMNIST", folder="elsewhere").load()


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("CIFAR10", r"torchvision/CIFAR10 \(train part\) cannot be read from .*nothing is downloaded"),
        ("CIFAR11", "torchvision has no data set 'CIFAR11' that can be read; it has CIFAR10"),
        ("LSUN", "torchvision has no data set 'LSUN' that can be read"),
        ("os", "torchvision has no data set 'os'"),
    ],
)
def test_missing_files_are_not_downloaded_and_an_unknown_name_lists_the_nearest(tmp_path, monkeypatch, name, says):
    monkeypatch.setattr(gzip, "open", lambda *_: pytest.fail("something was fetched"))
    with pytest.raises(ValueError, match=says):
        DataFile.of(f"torchvision/{name}", {"root": "."}, str(tmp_path)).load()


def test_without_the_package_of_hugging_face_the_message_names_what_to_install(tmp_path, monkeypatch):
    (tmp_path / "saved").mkdir()
    (tmp_path / "saved" / "state.json").write_text("{}")
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(ValueError, match=r"is a Hugging Face data set, .* the package datasets.*fedassay\[hf\]"):
        DataFile("./saved", folder=str(tmp_path)).load()


@pytest.fixture
def datasets():
    return pytest.importorskip("datasets")


def test_a_column_of_images_gives_the_samples(datasets, tmp_path):
    kinds = {"picture": datasets.Image(), "label": datasets.ClassLabel(names=["cat", "dog"])}
    features = datasets.Features(kinds | {"owner": datasets.Value("string")})
    rows = {"picture": [Image.new("L", (6, 5), i) for i in range(20)], "label": [i % 2 for i in range(20)]}
    whole = datasets.Dataset.from_dict(rows | {"owner": [f"u{i // 4}" for i in range(20)]}, features=features)
    datasets.DatasetDict(train=whole, test=whole.select(range(4))).save_to_disk(tmp_path / "saved")
    loaded = DataFile("./saved", folder=str(tmp_path)).load()
    assert (loaded.train_images[:, 0, 0, 0] * 255).round().int().tolist() == list(range(20))
    assert (loaded.class_names, loaded.test_labels.tolist(), loaded.shape) == (("cat", "dog"), [0, 1, 0, 1], (1, 5, 6))
    assert loaded.train_owners.tolist() == [i // 4 for i in range(20)]
    for options, says in (({"label": "fine"}, r"no column 'fine' \(label\)"), ({"drop": ["owner"]}, "of tables")):
        with pytest.raises(ValueError, match=says):
            DataFile.of("./saved", options, str(tmp_path)).load()


def test_other_columns_make_a_table_with_the_options_of_tables(datasets, tmp_path):
    rows = {"age": np.arange(40.0), "id": [f"n{i}" for i in range(40)], "h": [f"{i},5" for i in range(40)]}
    datasets.Dataset.from_dict(rows | {"label": ["x", "y"] * 20}).save_to_disk(tmp_path / "saved")
    loaded = DataFile.of("./saved", {"drop": ["id"], "decimal": ",", "scale": "none"}, str(tmp_path)).load()
    assert (loaded.columns, loaded.class_names) == ((("age", 1), ("h", 1)), ("x", "y"))
    assert torch.equal(loaded.train_images[..., 0] + 0.5, loaded.train_images[..., 1])
    with pytest.raises(ValueError, match=r"saved: column id .*in drop"):
        DataFile.of("./saved", {"decimal": ","}, str(tmp_path)).load()
