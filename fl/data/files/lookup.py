"""Finds the reader of a data set that a path or ``torchvision/NAME`` names, and reads it once per process."""

import hashlib
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from ....audit.wording import nearest
from ..dataset import Dataset
from .columns.table_options import TableOptions
from .csv_file import CsvOptions, read_csv
from .from_python import PREFIX as FROM_PYTHON
from .from_python import kept_path, read_kept
from .hugging_face import HuggingFaceOptions, is_saved_dataset, read_hugging_face
from .image_folder import FolderOptions, is_image_folder, read_image_folder
from .npz import NpzOptions, read_npz
from .options import options_from
from .parquet_file import read_parquet
from .torchvision_set import PREFIX, TorchvisionOptions, read_torchvision

Reader = tuple[Callable[[Path, str, Any], Dataset], type[Any], str]
_FILES: dict[str, Reader] = {
    ".npz": (read_npz, NpzOptions, "a numpy archive"),
    ".csv": (read_csv, CsvOptions, "a text file"),
    ".tsv": (read_csv, CsvOptions, "a text file"),
    ".parquet": (read_parquet, TableOptions, "a Parquet file"),
}
_SAVED: Reader = (read_hugging_face, HuggingFaceOptions, "a Hugging Face data set")
_IMAGES: Reader = (read_image_folder, FolderOptions, "a folder of images")


@dataclass(frozen=True)
class DataFile:
    """A data set of the user's own, as a suite file names it.

    Args:
        name: path of a file or folder, or ``torchvision/NAME``.
        options: the options of its reader, as sorted pairs.
        folder: the folder to which a relative path belongs; empty for the current folder.
        digest: the digest that its data must have, because a run began with them; empty for any.
    """

    name: str
    options: tuple[tuple[str, Any], ...] = ()
    folder: str = ""
    digest: str = field(default="", compare=False)

    @classmethod
    def of(cls, name: str, options: Mapping[str, Any], folder: str = "", digest: str = "") -> "DataFile":
        """Make one from a table of options, whose lists and tables are kept as immutable values."""
        return cls(name, tuple(sorted((key, _frozen(value)) for key, value in options.items())), folder, digest)

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
        others = [path.parent / str(dict(self.options)["test"])] if "test" in dict(self.options) else []
        files = sorted(path.rglob("*")) if path.is_dir() else [path, *others]
        stats = [(str(file), (found := file.stat()).st_size, found.st_mtime_ns) for file in files if file.is_file()]
        return hashlib.sha256(repr(stats).encode()).hexdigest()


def names_a_file(name: str) -> bool:
    """Return whether a data set's name is a path or ``torchvision/NAME``.

    A path has a separator or a suffix, and no colon, which names code: a folder beside the suite is ``./photos``.
    """
    return ":" not in name and any(sign in name for sign in ("/", os.sep, "."))


@lru_cache(maxsize=8)
def _read(data: DataFile, stamp: str) -> Dataset:
    options = {key: _thawed(value) for key, value in data.options}
    if data.name.startswith(PREFIX):
        return read_torchvision(
            data.name, data.folder, options_from(TorchvisionOptions, options, "a data set of torchvision")
        )
    if data.name.startswith(FROM_PYTHON):
        return read_kept(data.name, options)
    path = _path(data)
    read, kind, what = _reader(path)
    return read(path, data.name, options_from(kind, options, what))


def _path(data: DataFile) -> Path:
    if data.name.startswith(FROM_PYTHON):
        return kept_path(data.name)
    path = Path(data.folder, Path(data.name).expanduser())
    if path.exists():
        return path
    parent = path.parent
    if not parent.is_dir():
        raise ValueError(f"data set {data.name!r} is not there: {parent} is no folder")
    there = [one.name for one in parent.iterdir() if not one.name.startswith(".")]
    raise ValueError(f"data set {data.name!r} is not there: {parent} holds {nearest(path.name, there)}")


def _reader(path: Path) -> Reader:
    if path.is_dir():
        if is_saved_dataset(path):
            return _SAVED
        if is_image_folder(path):
            return _IMAGES
        raise ValueError(
            f"{path} must be a folder of images with one sub-folder per class, or a Hugging Face data set, got a "
            "folder without sub-folders"
        )
    suffix = path.suffix.lower()
    if suffix not in _FILES:
        raise ValueError(
            f"{path.name} has an unknown suffix {suffix!r}: a data set is a file {', '.join(_FILES)} or a folder of "
            "images"
        )
    return _FILES[suffix]


def _frozen(value: Any) -> Any:
    """The value with tuples in place of lists and tables, so that it can be a key; see ``_thawed``."""
    if isinstance(value, Mapping):
        return ("table", *sorted((key, _frozen(one)) for key, one in value.items()))
    return ("list", *map(_frozen, value)) if isinstance(value, list | tuple) else value


def _thawed(value: Any) -> Any:
    if not isinstance(value, tuple):
        return value
    kind, *rest = value
    return {key: _thawed(one) for key, one in rest} if kind == "table" else [_thawed(one) for one in rest]
