"""Reads a data set from a folder of images with one sub-folder per class (the layout of torchvision's ImageFolder)."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from ....audit.wording import counted
from ..dataset import Dataset
from .npz import owner_numbers
from .pictures import PictureOptions, decoded, facts_of, picture_notes, pixels_of
from .samples import Samples, dataset_of

SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".ppm", ".pgm")
_TEST = ("test", "val", "valid", "validation")


@dataclass(frozen=True, kw_only=True)
class FolderOptions(PictureOptions):
    """The options of a folder of images: those of images, and ``owner``.

    Args:
        owner: regular expression that finds the owner of each image in its path below the class's sub-folder, with
            ``/`` between folders; the owner is its first group, or the whole match where it has no group. Empty: the
            owners are not known.
    """

    owner: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        try:
            re.compile(self.owner)
        except (re.error, TypeError) as error:
            raise ValueError(f"owner must be a regular expression, got {self.owner!r}: {error}") from None


def read_image_folder(path: Path, name: str, options: FolderOptions) -> Dataset:
    """Read a data set from a folder of images.

    The folder has one sub-folder per class, whose name is the class's name; or a folder ``train`` and a folder ``test``
    (or ``val``), each with the classes' sub-folders. Without a test part, a part is split off (``SplitOptions``).
    Hidden files and files that are no images (by their suffix) are skipped and counted.

    Raises ValueError, with folder or file, for an empty class, an image that cannot be read, or images that differ in
    size or colour without an option for it.
    """
    train, test = _parts(path)
    names = _classes(train)
    own = [] if test is None else sorted(one.name for one in _folders(test))
    if extra := sorted(set(own) - set(names)):
        raise ValueError(f"{test} has a class {extra[0]!r} that {train} does not have: {', '.join(names)}")
    files, labels, skipped = _listed(train, names)
    count = len(files)
    owners = _owners(files, train, options.owner)
    if test is not None:
        more, places, also = _listed(test, own)
        files, skipped = files + more, skipped + also
        labels += [names.index(own[place]) for place in places]
    facts = [facts_of(file, str(file)) for file in files]
    pixels = pixels_of(facts, lambda number: decoded(files[number], str(files[number])), options, path.name)
    notes = picture_notes(facts, options)
    if skipped:
        notes.append(
            f"{counted(skipped, 'file')} that {'is no image was' if skipped == 1 else 'are no images were'} skipped."
        )
    if test is not None and (lacking := sorted(set(names) - set(own))):
        notes.append(f"{test.name} has no folder for the classes {', '.join(lacking)}, which have no test sample.")
    samples = Samples(images=pixels.astype(np.float32) / np.float32(255), labels=np.array(labels))
    first = np.arange(len(files)) < count
    learnt = samples.at(first) if owners is None else replace(samples.at(first), owners=owners)
    return dataset_of(
        learnt,
        None if test is None else samples.at(~first),
        name=name,
        file=path.name,
        options=options,
        classes=len(names),
        class_names=tuple(names),
        notes=tuple(notes),
    )


def is_image_folder(path: Path) -> bool:
    """Return whether a folder has sub-folders, as a folder of images has."""
    return any(_folders(path))


def _owners(files: Sequence[Path], train: Path, pattern: str) -> np.ndarray | None:
    """The owner of each training image as a number, or None without a pattern."""
    if not pattern:
        return None
    found = []
    for file in files:
        below = "/".join(file.relative_to(train).parts[1:])
        match = re.search(pattern, below)
        owner = None if match is None else match.group(1 if match.re.groups else 0)
        if not owner:
            raise ValueError(f"{file}: owner = {pattern!r} finds no owner in {below!r}")
        found.append(owner)
    return owner_numbers(np.array(found), f"{train}: owner")


def _parts(path: Path) -> tuple[Path, Path | None]:
    folders = {one.name.lower(): one for one in _folders(path)}
    test = next((folders[word] for word in _TEST if word in folders), None)
    if "train" in folders:
        return folders["train"], test
    if test is not None and len(folders) == 1:
        raise ValueError(f"{path} has a folder {test.name} but no folder train")
    return path, None


def _classes(folder: Path) -> list[str]:
    names = sorted(one.name for one in _folders(folder))
    if len(names) < 2:
        raise ValueError(
            f"{folder} must have one sub-folder for each of at least two classes, got {', '.join(names) or 'none'}"
        )
    return names


def _folders(folder: Path) -> list[Path]:
    return [one for one in folder.iterdir() if one.is_dir() and not one.name.startswith((".", "__"))]


def _listed(folder: Path, names: Sequence[str]) -> tuple[list[Path], list[int], int]:
    """The image files in a fixed order, the class of each, and how many other files there are."""
    files, labels, others = list[Path](), list[int](), 0
    for label, name in enumerate(names):
        visible = [one for one in sorted((folder / name).rglob("*")) if one.is_file() and not one.name.startswith(".")]
        own = [one for one in visible if one.suffix.lower() in SUFFIXES]
        if not own:
            raise ValueError(f"{folder / name} must hold at least one image ({', '.join(SUFFIXES)}), got none")
        others += len(visible) - len(own)
        files += own
        labels += [label] * len(own)
    return files, labels, others
