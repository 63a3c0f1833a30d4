"""Reads files from the folder named by FEDASSAY_DATA and verifies their listed checksums."""

import gzip
import hashlib
import os
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from .dataset import DatasetMissing

_SUMS = "SHA256SUMS"


def cache_folder() -> Path:
    """Return the folder for data that can be recreated: FEDASSAY_CACHE, else ~/.cache/fedassay."""
    given = os.environ.get("FEDASSAY_CACHE")
    return Path(given) if given else Path.home() / ".cache" / "fedassay"


@dataclass(frozen=True)
class DataFolder:
    """A folder that holds data sets, or no folder (``root`` None).

    A file listed in the folder's ``SHA256SUMS`` (as printed by `sha256sum`), if that file exists, must have that sum.
    """

    root: Path | None

    @classmethod
    def from_environment(cls) -> "DataFolder":
        """Return the data folder that the environment variable FEDASSAY_DATA names."""
        name = os.environ.get("FEDASSAY_DATA")
        return cls(Path(name) if name else None)

    def check(self) -> None:
        """Raise DatasetMissing if FEDASSAY_DATA names a folder that does not exist."""
        # A mistyped folder must not silently fall back to the cache or a download.
        if self.root is not None and not self.root.is_dir():
            raise DatasetMissing(f"FEDASSAY_DATA must name a folder, got {self.root}")

    def has(self, *paths: str) -> bool:
        """Return whether all these files exist; paths are relative to the folder."""
        return self.root is not None and all((self.root / path).is_file() for path in paths)

    def file(self, path: str, *, of: str) -> Path:
        """Return the path of a file of the data set ``of``, after verifying the file's checksum.

        Raises:
            DatasetMissing: if the file does not exist.
            ValueError: if its checksum is not the listed one.
        """
        if self.root is None or not self.has(path):
            raise DatasetMissing(
                f"{of} is not on this machine and is not downloaded: set FEDASSAY_DATA to a folder that holds {path} "
                f"(FEDASSAY_DATA is {self.root or 'not set'})"
            )
        file, wanted = self.root / path, self._sums.get(path)
        # Checked at each load: a damaged file would change every result without an error.
        if wanted is not None and checksum(file) != wanted:
            raise ValueError(
                f"{file} must have the SHA-256 sum {wanted}, which {_SUMS} lists, but has another: fetch it again"
            )
        return file

    def unzipped(self, path: str, *, of: str) -> bytes:
        """Return the content of a gzip file; raises the errors of ``file``, and ValueError for a file of another
        kind.
        """
        file = self.file(path, of=of)
        try:
            return gzip.decompress(file.read_bytes())
        except (OSError, EOFError) as error:
            raise ValueError(f"{file} must be a gzip file: {error}") from error

    def text(self, path: str, *, of: str) -> str:
        """Return the text of a gzip file in UTF-8; raises the errors of ``unzipped``."""
        try:
            return self.unzipped(path, of=of).decode()
        except UnicodeDecodeError as error:
            raise ValueError(f"{self.root}/{path} must be a gzip file of text: {error.reason}") from None

    def image(self, path: str, mode: str, *, of: str) -> NDArray[np.uint8]:
        """Return the pixels of an image in a mode of Pillow, such as "L"; raises the errors of ``file``, and ValueError
        for a file of another kind.
        """
        from PIL import Image, UnidentifiedImageError  # Imported late: most data sets have no images.

        file = self.file(path, of=of)
        try:
            return np.asarray(Image.open(file).convert(mode))
        except (UnidentifiedImageError, OSError) as error:
            raise ValueError(f"{file} must be an image: {error}") from error

    @cached_property
    def _sums(self) -> dict[str, str]:
        if self.root is None or not self.has(_SUMS):
            return {}
        lines = (self.root / _SUMS).read_text().splitlines()
        return {path.removeprefix("./"): digest for digest, _, path in (line.partition("  ") for line in lines)}


def checksum(file: Path) -> str:
    """Return the SHA-256 sum of a file."""
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()
