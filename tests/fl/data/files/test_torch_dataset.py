"""A PyTorch data set becomes a data set of this package, read once."""

import numpy as np
import pytest
import torch
from fedassay.fl.data.files.pictures import PictureOptions
from fedassay.fl.data.files.torch_dataset import from_torch
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
    assert from_torch(Own(), name="mine", options=PictureOptions(size=4, colour="rgb")).shape == (3, 4, 4)


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
        ([(X[0], 0), (X[1, :, :4], 1)], r"samples of one shape, got 2 shapes: \(3, 4, 5\), \(3, 6, 5\)"),
        ([(X[0], 0), (X[1] * torch.nan, 1)], "train images must hold finite numbers, got NaN or infinity in row 1"),
        ([(X[0], 0)] * 9, "train labels must hold at least two classes"),
    ],
)
def test_what_does_not_fit_is_refused_with_the_sample(data, says):
    with pytest.raises(ValueError, match=says):
        from_torch(data, name="mine")


def test_owners_must_be_one_per_sample():
    with pytest.raises(ValueError, match="owners must have one owner per sample, got 3 for 20"):
        from_torch(TensorDataset(X, Y), name="mine", owners=np.arange(3))
