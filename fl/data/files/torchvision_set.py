"""Reads one of torchvision's own data sets, by the name of its class, from files that are already on this machine."""

import inspect
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ....audit.wording import nearest
from ..dataset import Dataset
from .pictures import PictureOptions
from .torch_dataset import from_torch

PREFIX = "torchvision/"
# LSUN reads a pickle that no checksum protects (CIFAR's are verified before they are read); the others hold no data.
_REFUSED = ("LSUN", "LSUNClass", "FakeData", "DatasetFolder", "ImageFolder", "VisionDataset")


@dataclass(frozen=True, kw_only=True)
class TorchvisionOptions(PictureOptions):
    """The options of a data set of torchvision: those of images, and ``root``.

    Args:
        root: the folder given to torchvision's class, relative to the suite file; by default the folder that
            ``FEDASSAY_DATA`` names.
    """

    root: str = ""


def read_torchvision(name: str, folder: str, options: TorchvisionOptions) -> Dataset:
    """Read the data set ``torchvision/NAME``; nothing is downloaded.

    Images are classified by the labels that the class gives, which must be whole numbers. The training and the test
    part are those of the class's argument ``train`` or ``split``; without one a part is split off.

    Raises ValueError for an unknown class, files that are missing or damaged, and labels that are no class numbers.
    """
    import torchvision  # Imported late: 2.6 s.

    known = [
        one
        for one, kind in vars(torchvision.datasets).items()
        if inspect.isclass(kind) and issubclass(kind, torchvision.datasets.VisionDataset) and one not in _REFUSED
    ]
    word = name.removeprefix(PREFIX)
    if word not in known:
        raise ValueError(f"torchvision has no data set {word!r} that can be read; it has {nearest(word, known)}")
    root = Path(folder, options.root) if options.root else Path(os.environ.get("FEDASSAY_DATA", ""))
    if not options.root and not os.environ.get("FEDASSAY_DATA"):
        raise ValueError(f"{name} needs a folder: set root, or the environment variable FEDASSAY_DATA")
    kind = getattr(torchvision.datasets, word)
    train, test = (_part(kind, root, part, name) for part in ("train", "test"))
    names = tuple(map(str, getattr(train, "classes", ()) or ()))
    return from_torch(train, test, name=name, class_names=names, options=options)


def _part(kind: Any, root: Path, part: str, name: str) -> Any:
    """The training or the test part; None for the test part of a class that has no parts."""
    known = inspect.signature(kind.__init__).parameters
    chosen: dict[str, Any] = {}
    if "train" in known:
        chosen["train"] = part == "train"
    elif "split" in known:
        chosen["split"] = part
    elif part == "test":
        return None
    if "download" in known:
        chosen["download"] = False
    try:
        return kind(str(root), **chosen)
    except (RuntimeError, OSError, ValueError, TypeError, ImportError) as error:
        words = " ".join(str(error).split()) or type(error).__name__
        raise ValueError(
            f"{name} ({part} part) cannot be read from {root}, and nothing is downloaded: {words[:300]}"
        ) from None
