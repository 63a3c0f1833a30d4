"""Reads a data set that the library Hugging Face Datasets has saved to a folder (``save_to_disk``)."""

from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np

from ..dataset import Dataset
from .columns.table_options import TableOptions
from .pictures import PictureOptions, decoded
from .table import dataset_of_table
from .torch_dataset import from_torch

_SIGNS = ("dataset_dict.json", "state.json")
_TEST = ("test", "validation", "valid", "val")


@dataclass(frozen=True, kw_only=True)
class HuggingFaceOptions(PictureOptions):
    """The options of a Hugging Face data set: those of images, and of its columns.

    Args:
        label: column of the labels.
        owner: column of the owners; by default a column ``owner`` where there is one.
        drop, categories, decimal: as in ``TableOptions``; for a table without images.
    """

    label: str = "label"
    owner: str = ""
    drop: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    decimal: str = "."


def is_saved_dataset(path: Path) -> bool:
    """Return whether ``save_to_disk`` wrote this folder."""
    return any((path / sign).is_file() for sign in _SIGNS)


def read_hugging_face(path: Path, name: str, options: HuggingFaceOptions) -> Dataset:
    """Read a data set that ``save_to_disk`` wrote: one split, or the splits ``train`` and ``test`` (or ``validation``).

    With a column of images, these are the samples, and all other columns but label and owner are not used. Without one,
    every other column is a feature of a table (see ``dataset_of_table``).

    Raises ValueError where the package ``datasets`` is missing or the folder does not fit.
    """
    try:
        import datasets
    except ImportError:
        raise ValueError(
            f"{path} is a Hugging Face data set, which can be read only with the package datasets: install it, for "
            "example by pip install 'fedassay[hf]'"
        ) from None
    try:
        found = datasets.load_from_disk(str(path))
    except (FileNotFoundError, OSError, ValueError, KeyError) as error:
        raise ValueError(f"{path} cannot be read as a Hugging Face data set: {error}") from None
    train, test = _parts(found, path)
    if options.label not in train.column_names:
        raise ValueError(f"{path} has no column {options.label!r} (label); it has {', '.join(train.column_names)}")
    pictures = [one for one, feature in train.features.items() if isinstance(feature, datasets.Image)]
    if len(pictures) > 1:
        raise ValueError(f"{path} must have one column of images, got {', '.join(pictures)}")
    if not pictures:
        table = TableOptions(
            label=options.label,
            owner=options.owner,
            drop=options.drop,
            categories=options.categories,
            decimal=options.decimal,
            test="the test split" if test is not None else "",
            test_share=options.test_share,
            split_seed=options.split_seed,
        )
        frames = [None if one is None else one.to_pandas() for one in (train, test)]
        return dataset_of_table(frames[0], frames[1], file=path.name, name=name, options=table)
    for key, unused in (
        ("drop", options.drop),
        ("categories", options.categories),
        ("decimal", options.decimal != "."),
    ):
        if unused:
            raise ValueError(f"{path}: {key} is an option of tables, but the data set holds images in {pictures[0]}")
    # Opened by this package, which does not open every format that Pillow knows.
    unread = datasets.Image(decode=False)
    train = train.cast_column(pictures[0], unread)
    test = None if test is None else test.cast_column(pictures[0], unread)
    owner = options.owner or ("owner" if "owner" in train.column_names else "")
    return from_torch(
        _Pairs(train, pictures[0], options.label),
        None if test is None else _Pairs(test, pictures[0], options.label),
        name=name,
        owners=np.asarray(train[owner]).tolist() if owner else None,
        class_names=tuple(getattr(train.features[options.label], "names", ()) or ()),
        options=options,
    )


def _parts(found: Any, path: Path) -> tuple[Any, Any]:
    if hasattr(found, "column_names") and not isinstance(found, dict):
        return found, None
    if "train" not in found:
        raise ValueError(f"{path} must have a split train, got {', '.join(found)}")
    return found["train"], next((found[word] for word in _TEST if word in found), None)


class _Pairs:
    """The rows of a split as pairs (image, label)."""

    def __init__(self, split: Any, image: str, label: str) -> None:
        self.split, self.image, self.label = split, image, label

    def __len__(self) -> int:
        return len(self.split)

    def __getitem__(self, number: int) -> tuple[Any, Any]:
        row = self.split[number]
        stored, place = row[self.image], f"image {number}"
        return decoded(BytesIO(stored["bytes"]) if stored["bytes"] else Path(stored["path"]), place), row[self.label]
