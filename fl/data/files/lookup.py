"""Finds the reader of a data set that a path or ``torchvision/NAME`` names, and reads each data set once per process.
Data sets that Python code gives as objects are written to the cache folder.

A data set from Python is copied to the cache folder, where suites, workers and resumed runs find it by its name. The
name contains the digest of the content, so equal data have equal names, whatever the object is.
"""

import hashlib
import json
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from inspect import signature
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

from ....audit.wording import nearest
from ..data_folder import cache_folder
from ..dataset import Dataset
from .arrays import ArrayOptions, dataset_of_arrays, read_npz, write_npz
from .features import TableOptions, dataset_of_table, read_table_file
from .images import (
    PREFIX,
    FolderOptions,
    HuggingFaceOptions,
    ImageOptions,
    TorchvisionOptions,
    from_torch,
    is_saved_dataset,
    read_hugging_face,
    read_image_folder,
    read_torchvision,
    sub_folders,
)
from .options import options_from

Reader = tuple[Callable[[Path, str, Any], Dataset], type[Any]]
_FILES: dict[str, Reader] = {
    ".npz": (read_npz, ArrayOptions),
    ".csv": (read_table_file, TableOptions),
    ".tsv": (read_table_file, TableOptions),
    ".parquet": (read_table_file, TableOptions),
}
_FROM_PYTHON = "from-python/"
_OF_TORCH = tuple(name for name in signature(from_torch).parameters if name not in ("train", "name", "options"))


@dataclass(frozen=True)
class DataFile:
    """A data set of the user's own, as a suite file names it.

    Args:
        name: path of a file or folder, or ``torchvision/NAME``.
        options: the options of its reader, as JSON, so that it can be the key of a cache.
        folder: the folder to which a relative path belongs; empty for the current folder.
        digest: the digest that its data must have, because a run began with them; empty for any.
    """

    name: str
    options: str = "{}"
    folder: str = ""
    digest: str = field(default="", compare=False)

    @classmethod
    def of(cls, name: str, options: Mapping[str, Any], folder: str = "", digest: str = "") -> "DataFile":
        """Build the data set's description from a table of options."""
        return cls(name, json.dumps(options, sort_keys=True, default=str), folder, digest)

    def load(self) -> Dataset:
        """Read the data set; a second call in the same process returns the same object while the files are the same.

        Raises:
            ValueError: for a path that is missing or cannot be read, unknown options, data that do not fit or are not
                those of ``digest``; one paragraph, with file, array or column, and row.
        """
        try:
            found = _read(self, self._stamp())
        except PermissionError as error:
            raise ValueError(f"{error.filename or self.name} cannot be read: permission denied") from None
        except OSError as error:
            raise ValueError(f"{self.name} cannot be read: {error}") from None
        # A run reads a file in each of its processes, perhaps hours after it began.
        if self.digest and found.digest != self.digest:
            raise ValueError(
                f"data set {self.name} changed while the run was going on: results of the old and of the new data must "
                "not be mixed. Restore the old data and resume the run, or start a new run"
            )
        return found

    def _stamp(self) -> str:
        """A text that changes when a file does, without reading its content."""
        if self.name.startswith(PREFIX):
            return ""
        path = _path(self)
        test = json.loads(self.options).get("test")
        others = [path.parent / str(test)] if test else []
        files = sorted(path.rglob("*")) if path.is_dir() else [path, *others]
        stats = [(str(file), (found := file.stat()).st_size, found.st_mtime_ns) for file in files if file.is_file()]
        return hashlib.sha256(repr(stats).encode()).hexdigest()


def names_a_file(name: str) -> bool:
    """Return whether a data set's name is a path, or ``torchvision/NAME``, and not a name of the catalogue.

    A path has a separator or a suffix, and no colon, which names code: a folder beside the suite is ``./photos``.
    """
    return ":" not in name and any(sign in name for sign in ("/", os.sep, "."))


def dataset_from(found: Any, name: str, options: Mapping[str, Any] | None = None) -> Dataset:
    """Convert an object that Python code gives to a data set. The object is a ``Dataset``, a table of pandas, arrays
    keyed by the names of a numpy archive, or a map-style ``torch.utils.data.Dataset``.

    ``options``: those of the reader of the same kind of data; none for a ``Dataset``. A table may have the columns
    ``label``, ``owner`` and ``split``. Raises ValueError for anything else, and as the readers do.
    """
    given = dict(options or {})
    if isinstance(found, Dataset):
        if given:
            raise ValueError(f"a Dataset has no option {min(given)!r}; it has: none")
        return found
    import pandas

    if isinstance(found, pandas.DataFrame):
        columns = {"split": "split"} if "split" in found and "label" in found else {}
        table = options_from(TableOptions, columns | given, "a table of pandas")
        return dataset_of_table(found.reset_index(drop=True), None, file=name, name=name, options=table)
    if isinstance(found, Mapping):
        return dataset_of_arrays(found, file=name, name=name, options=options_from(ArrayOptions, given, "arrays"))
    if found is None:
        kinds = "a table of pandas, arrays by their names, or a map-style data set of PyTorch"
        raise ValueError(f"a data set must be a fedassay Dataset, {kinds}, got NoneType")
    own = {key: given.pop(key) for key in _OF_TORCH if key in given}
    known = [*_OF_TORCH, *ImageOptions.model_fields]
    if unknown := [key for key in given if key not in known]:
        raise ValueError(f"a data set of PyTorch has no option {unknown[0]!r}; it has {nearest(unknown[0], known)}")
    return from_torch(found, name=name, options=options_from(ImageOptions, given, "a data set of PyTorch"), **own)


def is_object(spec: object) -> bool:
    """Return whether a suite's data set, or the ``part`` of its table, is an object itself and not a name."""
    part = spec.get("part") if isinstance(spec, Mapping) else spec
    return part is not None and not isinstance(part, str | int | float | list | tuple | Mapping) and not callable(part)


def keep(spec: Any) -> str:
    """Write a data set that a suite holds as an object to the cache folder, unless an equal one is there, and return
    its name.

    ``spec``: what ``dataset_from`` accepts, or a table of it as ``part`` with its options as further keys. Raises
    ValueError as ``dataset_from``.
    """
    part, options = (spec["part"], {**spec}) if isinstance(spec, Mapping) else (spec, {})
    options.pop("part", None)
    dataset = dataset_from(part, type(part).__name__, options)
    place = re.sub(r"\W+", "-", dataset.name)[:40]
    name = f"{_FROM_PYTHON}{place}-{dataset.digest[:16]}.npz"
    path = cache_folder() / name
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
    return name


@lru_cache(maxsize=8)
def _read(data: DataFile, stamp: str) -> Dataset:
    options = json.loads(data.options)
    if data.name.startswith(PREFIX):
        return read_torchvision(data.name, data.folder, options_from(TorchvisionOptions, options, data.name))
    path = _path(data)
    read, kind = _reader(path)
    return read(path, data.name, options_from(kind, options, path.name))


def _path(data: DataFile) -> Path:
    kept = data.name.startswith(_FROM_PYTHON)
    path = cache_folder() / data.name if kept else Path(data.folder, Path(data.name).expanduser())
    if path.is_file() or path.is_dir():
        return path
    if path.exists():  # Such as a pipe, of which a reader would wait for ever.
        raise ValueError(f"data set {data.name!r} must be a file or a folder, and {path} is neither")
    if kept:
        raise ValueError(
            f"data set {data.name} was given to fedassay.run as a Python object, and its copy is not in the folder "
            f"{path.parent} any more: start a run with the same object from Python, which writes the copy again, or "
            "set the environment variable FEDASSAY_CACHE to the folder that was used"
        )
    if not path.parent.is_dir():
        raise ValueError(f"data set {data.name!r} is not there: {path.parent} is no folder")
    there = [one.name for one in path.parent.iterdir() if not one.name.startswith(".")]
    raise ValueError(f"data set {data.name!r} is not there: {path.parent} holds {nearest(path.name, there)}")


def _reader(path: Path) -> Reader:
    if path.is_dir():
        if is_saved_dataset(path):
            return read_hugging_face, HuggingFaceOptions
        if any(sub_folders(path)):
            return read_image_folder, FolderOptions
        raise ValueError(
            f"{path} must be a folder of images with one sub-folder per class, or a Hugging Face data set, got a "
            "folder without sub-folders"
        )
    suffix = path.suffix.lower()
    if suffix not in _FILES:
        raise ValueError(
            f"{path.name} has an unknown suffix {suffix!r}: a data set is a file {', '.join(_FILES)}, a folder of "
            "images, or a function of your own that reads any file (package.module:function)"
        )
    return _FILES[suffix]
