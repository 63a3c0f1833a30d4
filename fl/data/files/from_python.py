"""Keeps a data set that Python code gives as an object: a copy in the cache folder, which suites, workers and resumed
runs find by its name.

The name contains the digest of the content, so equal data have equal names, whatever the object is.
"""

import re
from collections.abc import Mapping
from inspect import signature
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

from ....audit.parts import Spec
from ....audit.wording import nearest
from ...objective import CLASSIFICATION, REGRESSION
from ..data_folder import cache_folder
from ..dataset import Dataset
from .npz import NpzOptions, read_npz, write_npz
from .options import options_from
from .pictures import PictureOptions
from .torch_dataset import from_torch

PREFIX = "from-python/"
_GIVEN = tuple(name for name in signature(from_torch).parameters if name not in ("train", "name", "options"))


def is_object(spec: object) -> bool:
    """Return whether a suite's data set, or the ``part`` of its table, is the data set itself and no name."""
    part = spec.get("part") if isinstance(spec, Mapping) else spec
    return part is not None and not isinstance(part, str | int | float | list | tuple | Mapping) and not callable(part)


def keep(spec: Any) -> Spec:
    """Write the data set that a suite holds as an object to the cache folder, unless an equal one is there, and return
    its name.

    ``spec``: a ``Dataset``, a map-style ``torch.utils.data.Dataset``, or a table of one of them as ``part`` with the
    arguments of ``from_torch``, and the options of images and of the split, as further keys. Raises ValueError as
    ``from_torch``, and for an unknown key.
    """
    part, options = (spec["part"], {**spec}) if isinstance(spec, Mapping) else (spec, {})
    options.pop("part", None)
    dataset = _dataset(part, options)
    reading = _reading(dataset)
    place = re.sub(r"\W+", "-", dataset.name)[:40]
    name = f"{PREFIX}{place}-{dataset.digest[:16]}.npz"
    path = _path(name)
    if not path.is_file():
        path.parent.mkdir(parents=True, exist_ok=True)
        # Renamed at the end, so that another process sees the whole file or none.
        with NamedTemporaryFile(dir=path.parent, suffix=".npz", delete=False) as file:
            temporary = Path(file.name)
        try:
            write_npz(dataset, temporary)
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)
    return {"part": name, **reading} if reading else name


def _reading(dataset: Dataset) -> dict[str, Any]:
    """The options that read the labels back as they are; none for most data sets, so that their name stays short."""
    if dataset.label_scale:
        raise ValueError(
            f"data set {dataset.name} has a label_scale, which its copy cannot hold: give a function of a module that "
            "returns the data set, or the file that it was read from"
        )
    if dataset.task != CLASSIFICATION:
        return {"task": dataset.task} | ({"label_scale": "none"} if dataset.task == REGRESSION else {})
    # The archive holds labels; only where the last classes have no sample does it not show how many there are.
    seen = int(max(dataset.train_labels.max(), dataset.test_labels.max())) + 1
    return {} if seen == dataset.classes else {"classes": dataset.classes}


def read_kept(name: str, options: Mapping[str, Any]) -> Dataset:
    """Read a data set that ``keep`` wrote; raise ValueError if its copy is gone."""
    chosen = options_from(NpzOptions, {"pixels": "0..1", "channels": "first", **options}, "a data set from Python")
    return read_npz(kept_path(name), name, chosen)


def kept_path(name: str) -> Path:
    """Return the path of the copy of this name; raise ValueError if it is gone."""
    path = _path(name)
    if not path.is_file():
        raise ValueError(
            f"data set {name} was given to fedassay.run as a Python object, and its copy is not in the folder "
            f"{path.parent} any more: start a run with the same object from Python, which writes the copy again, or "
            "set the environment variable FEDASSAY_CACHE to the folder that was used"
        )
    return path


def _path(name: str) -> Path:
    return cache_folder() / Path(*name.split("/"))


def _dataset(part: object, options: dict[str, Any]) -> Dataset:
    if isinstance(part, Dataset):
        if options:
            raise ValueError(f"a Dataset has no option {min(options)!r}; it has: none")
        return part
    given = {key: options.pop(key) for key in _GIVEN if key in options}
    known = [*_GIVEN, *vars(PictureOptions())]
    if unknown := [key for key in options if key not in known]:
        raise ValueError(f"a data set of PyTorch has no option {unknown[0]!r}; it has {nearest(unknown[0], known)}")
    pictures = options_from(PictureOptions, options, "a data set of PyTorch")
    return from_torch(part, name=type(part).__name__, options=pictures, **given)
