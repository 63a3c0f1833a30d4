"""A data set of 60 random training images, each recognisable by its first pixel."""

import torch
from fedassay.fl.data.dataset import Dataset
from fedassay.fl.streams import Streams, uniform

TRAIN = 60


def numbered_images(**facts):
    """Three classes in turn, images of 4x4 pixels; nine test images. ``facts``: others of the data set."""
    rng = Streams(0).generator("toy data")
    images = uniform(rng, (TRAIN, 1, 4, 4))
    images[:, 0, 0, 0] = torch.arange(TRAIN) / TRAIN
    given = {"train_images": images, "train_labels": torch.arange(TRAIN) % 3}
    given |= {"test_images": uniform(rng, (9, 1, 4, 4)), "test_labels": torch.arange(9) % 3}
    return Dataset(**({"name": "toy", "classes": 3} | given | facts))
