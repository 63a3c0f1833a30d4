"""Reads images: files and folders of them, and data sets of PyTorch, torchvision and Hugging Face Datasets."""

import inspect
import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

import numpy as np
from pydantic import Field, field_validator
from torch import Tensor

from ....audit.wording import counted, nearest
from ..dataset import Dataset
from .arrays import ArrayOptions, dataset_of_arrays
from .features import TableOptions, dataset_of_table
from .options import SplitOptions, check_size

if TYPE_CHECKING:
    from PIL.Image import Image

SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".ppm", ".pgm")
_TEST = ("test", "val", "valid", "validation")
PREFIX = "torchvision/"
# LSUN reads a pickle that no checksum protects (CIFAR's are verified before they are read); the others hold no data.
_REFUSED = ("LSUN", "LSUNClass", "FakeData", "DatasetFolder", "ImageFolder", "VisionDataset")
_SIGNS = ("dataset_dict.json", "state.json")
_MODES = {"grey": "L", "rgb": "RGB"}
_NATURAL = {"L": "grey", "1": "grey", "RGB": "rgb", "P": "rgb"} | dict.fromkeys(("I", "I;16", "I;16L", "I;16B"), "deep")
"""The modes of Pillow that need no option; "deep" are grey values of more than 8 bits. Others hold transparency."""
# Named one by one: among Pillow's other formats is EPS, for which it starts a program.
_FORMATS = ("PNG", "JPEG", "BMP", "GIF", "TIFF", "WEBP", "PPM")
_WITH_EXIF = ("JPEG", "MPO", "TIFF", "WEBP")
"""The formats whose EXIF data stands before the pixels; a PNG file would have to be decoded for it."""
_ORIENTATION = 0x0112
"""The number of the EXIF tag that states how a camera was held; 1 is upright."""
Side = Annotated[int, Field(ge=1, strict=True)]


class ImageOptions(SplitOptions):
    """The options for reading a data set of images.

    Args:
        size: (height, width), or one number for both: each image is cut to this ratio around its centre and resized.
            By default all images must have one size.
        colour: "grey" or "rgb", to which each image is converted; "auto" keeps the images' own where it is the same in
            all.
    """

    size: Side | tuple[Side, Side] | None = None
    colour: Literal["auto", "grey", "rgb"] = "auto"


class FolderOptions(ImageOptions):
    """The options for reading a folder of images: the options of images, and ``owner``.

    Args:
        owner: regular expression that finds the owner of each image in its path below the class's sub-folder, with
            ``/`` between folders; the owner is its first group, or the whole match where it has no group. Empty: the
            owners are not known.
    """

    owner: str = ""

    @field_validator("owner")
    @classmethod
    def _compiles(cls, owner: str) -> str:
        try:
            re.compile(owner)
        except re.error as error:
            raise ValueError(f"must be a regular expression ({error})") from None
        return owner


class _Header(NamedTuple):
    """What an image states: (height, width), Pillow's mode, whether EXIF data would turn it, and whether it is one of
    several in its file."""

    size: tuple[int, int]
    mode: str
    turned: bool
    several: bool


def read_image_folder(path: Path, name: str, options: FolderOptions) -> Dataset:
    """Read a data set from a folder of images.

    The folder has one sub-folder per class, whose name is the class's name; or a folder ``train`` and a folder ``test``
    (or ``val``), each with the classes' sub-folders. Without a test part, a part is split off (``SplitOptions``).
    Hidden files and files that are no images (by their suffix) are skipped and counted.

    Raises ValueError, with folder or file, for an empty class, an image that cannot be read, or images that differ in
    size or colour without an option for it.
    """
    folders, names, skipped = _parts(path), list[str](), 0
    files, labels = dict[str, list[Path]](), dict[str, np.ndarray]()
    for part, folder in folders.items():
        own = sorted(one.name for one in sub_folders(folder))
        if part == "train" and len(own) < 2:
            found = ", ".join(own) or "none"
            raise ValueError(f"{folder} must have one sub-folder for each of at least two classes, got {found}")
        names = names or own
        if extra := sorted(set(own) - set(names)):
            raise ValueError(f"{folder} has a class {extra[0]!r} that the training part lacks: {', '.join(names)}")
        listed = {label: _images_in(folder / label) for label in own}
        files[part] = [file for images, _ in listed.values() for file in images]
        labels[part] = np.repeat([names.index(one) for one in own], [len(images) for images, _ in listed.values()])
        skipped += sum(others for _, others in listed.values())
    everything = [file for part in files.values() for file in part]
    pixels, given, notes = pixels_of(everything, options, path.name, list(map(str, everything)))
    if skipped:
        notes.append(f"{counted(skipped, 'file')} skipped, because their suffix is of no image.")
    count = len(files["train"])
    arrays = {"x_train": pixels[:count], "y_train": labels["train"]}
    if "test" in files:
        arrays |= {"x_test": pixels[count:], "y_test": labels["test"]}
    if options.owner:
        arrays["owner_train"] = np.array([_owner(file, folders["train"], options.owner) for file in files["train"]])
    facts: dict[str, Any] = {"class_names": tuple(names), "notes": tuple(notes)}
    return dataset_of_arrays(arrays, file=path.name, name=name, options=given, **facts)


def pixels_of(
    sources: "Sequence[Path | BytesIO | Image]", options: ImageOptions, place: str, places: Sequence[str]
) -> tuple[np.ndarray, ArrayOptions, list[str]]:
    """Return the pixels of all images, (n, channel, height, width), the options for reading them as arrays, and
    sentences that report what was changed.

    sources: image files, their bytes, or images of Pillow; ``places`` names each of them. Raises ValueError, starting
    with ``place``, where images differ in size or colour and no option says what to do, before any image is decoded.
    """
    headers = [_header(source, one) for source, one in zip(sources, places, strict=True)]
    colour, (height, width) = _colour(headers, options, place), _sides(headers, options, place)
    shape = (len(headers), height, width, 3 if colour == "rgb" else 1)
    check_size(place, int(np.prod(shape)))
    pixels = np.empty(shape, dtype=np.float32 if colour == "deep" else np.uint8)
    for number, (source, one) in enumerate(zip(sources, places, strict=True)):
        pixels[number] = _pixels(source, one, colour, (height, width)).reshape(shape[1:])
    top = 255 if colour != "deep" else 4095 if pixels.max() <= 4095 else 65535
    given = options.model_dump(include={"test_share", "split_seed"})
    read = ArrayOptions(**given, pixels=f"0..{top}", channels="first")  # type: ignore[arg-type]
    return pixels.transpose(0, 3, 1, 2), read, _notes(headers, options)


def sub_folders(folder: Path) -> list[Path]:
    """Return the folders in a folder, without hidden ones."""
    return [one for one in folder.iterdir() if one.is_dir() and not one.name.startswith((".", "__"))]


def _parts(path: Path) -> dict[str, Path]:
    folders = {one.name.lower(): one for one in sub_folders(path)}
    test = next((folders[word] for word in _TEST if word in folders), None)
    if "train" in folders:
        return {"train": folders["train"]} | ({} if test is None else {"test": test})
    if test is not None and len(folders) == 1:
        raise ValueError(f"{path} has a folder {test.name} but no folder train")
    return {"train": path}


def _images_in(folder: Path) -> tuple[list[Path], int]:
    """The image files below a folder in a fixed order, and how many other files there are."""
    visible = [one for one in sorted(folder.rglob("*")) if one.is_file() and not one.name.startswith(".")]
    images = [one for one in visible if one.suffix.lower() in SUFFIXES]
    if not images:
        raise ValueError(f"{folder} must hold at least one image ({', '.join(SUFFIXES)}), got none")
    return images, len(visible) - len(images)


def _owner(file: Path, folder: Path, pattern: str) -> str:
    below = "/".join(file.relative_to(folder).parts[1:])
    match = re.search(pattern, below)
    owner = None if match is None else match.group(1 if match.re.groups else 0)
    if not owner:
        raise ValueError(f"{file}: owner = {pattern!r} finds no owner in {below!r}")
    return str(owner)


@contextmanager
def _opened(source: "Path | BytesIO | Image", place: str) -> "Iterator[Image]":
    """The image, decoded when it is used; raise ValueError, starting with ``place``, for a damaged one."""
    import PIL.Image

    if not isinstance(source, Path | BytesIO):
        yield source
        return
    try:
        with PIL.Image.open(source, formats=_FORMATS) as image:
            yield image
    except PermissionError:
        raise
    except (OSError, ValueError, SyntaxError, PIL.Image.DecompressionBombError) as error:
        unknown = isinstance(error, PIL.UnidentifiedImageError)
        reason = "it is damaged or of another format" if unknown else str(error) or type(error).__name__
        raise ValueError(f"{place} cannot be read as an image: {reason}") from None


def _header(source: "Path | BytesIO | Image", place: str) -> _Header:
    with _opened(source, place) as image:
        turned = False
        if image.format in _WITH_EXIF:
            try:
                turned = bool(image.getexif().get(_ORIENTATION, 1) != 1)
            except Exception:  # Damaged EXIF data, for which Pillow raises errors of many kinds.
                turned = False
        return _Header((image.height, image.width), image.mode, turned, bool(getattr(image, "is_animated", False)))


def _pixels(source: "Path | BytesIO | Image", place: str, colour: str, size: tuple[int, int]) -> np.ndarray:
    from PIL.Image import Resampling
    from PIL.ImageOps import fit

    with _opened(source, place) as image:
        # By way of I: Pillow would cut values of more than 8 bits at 255 in other modes.
        image = image.convert("I").convert("F") if colour == "deep" else image.convert(_MODES[colour])
        if (image.height, image.width) != size:
            image = fit(image, size[::-1], method=Resampling.BILINEAR)
        return np.asarray(image)


def _sides(headers: Sequence[_Header], options: ImageOptions, place: str) -> tuple[int, int]:
    if options.size is not None:
        return (options.size, options.size) if isinstance(options.size, int) else options.size
    sizes = Counter(one.size for one in headers)
    if len(sizes) > 1:
        found = ", ".join(f"{count} of {height}x{width}" for (height, width), count in sizes.most_common(5))
        smallest = min(side for size in sizes for side in size)
        raise ValueError(
            f"{place} has images of {len(sizes)} sizes (height x width), such as {found}. Set size to one size, such "
            f"as size = {smallest}, to which all images are resized"
        )
    return next(iter(sizes))


def _colour(headers: Sequence[_Header], options: ImageOptions, place: str) -> str:
    """grey, rgb or deep: grey values of more than 8 bits."""
    modes = Counter(one.mode for one in headers)
    colours = {_NATURAL.get(mode, "") for mode in modes}
    deep = "deep" in colours or any(mode.startswith(("I", "F")) for mode in modes)
    if colours == {"deep"} and options.colour != "rgb":
        return "deep"
    found = ", ".join(f"{count} of mode {mode}" for mode, count in modes.most_common())
    if deep:
        raise ValueError(
            f"{place} has grey values of more than 8 bits among other images, or they are to become RGB, or they are "
            f"fractions: {found}. Convert the images to one kind"
        )
    if options.colour == "auto" and (len(colours) > 1 or "" in colours):
        raise ValueError(
            f'{place} has images that are not all grey or all RGB: {found}. Set colour to "grey" or "rgb", to which '
            "all images are converted (transparency is dropped)"
        )
    return colours.pop() if options.colour == "auto" else options.colour


def _notes(headers: Sequence[_Header], options: ImageOptions) -> list[str]:
    sides = (options.size, options.size) if isinstance(options.size, int) else options.size
    done = {
        f"cut to the ratio of {sides} (height, width) and resized": sides is not None
        and sum(one.size != sides for one in headers),
        f"converted to {options.colour}": options.colour != "auto"
        and sum(_NATURAL.get(one.mode) != options.colour for one in headers),
        "not turned upright, as the EXIF data of the files would have it": sum(one.turned for one in headers),
        "the first of several in the file, and the others were left out": sum(one.several for one in headers),
    }
    return [f"{int(count)} of {counted(len(headers), 'image')} were {words}." for words, count in done.items() if count]


class TorchvisionOptions(ImageOptions):
    """The options for reading a data set of torchvision: the options of images, and ``root``.

    Args:
        root: the folder given to torchvision's class, relative to the suite file; by default the folder that
            ``FEDASSAY_DATA`` names.
    """

    root: str = ""


class HuggingFaceOptions(ImageOptions, TableOptions):
    """The options for reading a Hugging Face data set: the options of images, or of a table if it has no images."""


def from_torch(
    train: Any,
    test: Any = None,
    *,
    name: str,
    owners: Sequence[int | str] | None = None,
    class_names: Sequence[str] = (),
    options: ImageOptions | None = None,
) -> Dataset:
    """Read all samples of one or two PyTorch data sets once, and return them as a data set.

    Args:
        train, test: map-style data sets, ``len(data)`` and ``data[i] -> (image, label)``. An image is a Pillow image,
            or a tensor or array (height, width), (channel, height, width) or (height, width, channel), in [0, 1] or as
            whole numbers; a row of a table is (features,), whose numbers are kept. Labels are class numbers from 0 on.
            Data that change with each call, such as random augmentation, are read as they come the first time. Without
            ``test`` a part is split off.
        name: the data set's name in records.
        owners: (n,), the owner of each training sample.
        class_names: the name of each class.
        options: of images and of the split.

    Raises ValueError, with the number of the sample, for anything else.
    """
    options = options or ImageOptions()
    read = ArrayOptions(test_share=options.test_share, split_seed=options.split_seed)
    given = {"train": train} if test is None else {"train": train, "test": test}
    items = {part: _items(data, f"{name}: {part}") for part, data in given.items()}
    arrays: dict[str, Any] = {f"y_{part}": _class_numbers(pairs, f"{name}: {part}") for part, pairs in items.items()}
    places = [f"{name}: {part}: sample {number}" for part, pairs in items.items() for number in range(len(pairs))]
    images, notes = [image for pairs in items.values() for image, _ in pairs], list[str]()
    if all(isinstance(image, Path | BytesIO) or hasattr(image, "convert") for image in images):
        pixels, read, notes = pixels_of(images, options, name, places)
    else:
        pixels = _stacked(images, places)
        # PyTorch puts channels first; only where they cannot be there is the last axis tried.
        if isinstance(images[0], Tensor) and images[0].ndim == 3 and len(images[0]) in (1, 3):
            read = read.model_copy(update={"channels": "first"})
    arrays["x_train"] = pixels[: len(items["train"])]
    if test is not None:
        arrays["x_test"] = pixels[len(items["train"]) :]
    if owners is not None:
        arrays["owner_train"] = np.asarray(owners)
    if len(class_names):
        read = read.model_copy(update={"classes": len(class_names)})
    facts: dict[str, Any] = {"class_names": tuple(class_names), "notes": tuple(notes)}
    return dataset_of_arrays(arrays, file=name, name=name, options=read, **facts)


def read_torchvision(name: str, folder: str, options: TorchvisionOptions) -> Dataset:
    """Read the data set ``torchvision/NAME`` by torchvision's class ``NAME``; nothing is downloaded.

    Images are classified by the labels that the class gives, which must be whole numbers. The training and the test
    part are those of the class's argument ``train`` or ``split``; without one a part is split off.

    Raises ValueError for an unknown class, files that are missing or damaged, and labels that are no class numbers.
    """
    import torchvision  # Imported late: 2.6 s.

    base, kinds = torchvision.datasets.VisionDataset, vars(torchvision.datasets).items()
    known = [one for one, kind in kinds if inspect.isclass(kind) and issubclass(kind, base) and one not in _REFUSED]
    word = name.removeprefix(PREFIX)
    if word not in known:
        raise ValueError(f"torchvision has no data set {word!r} that can be read; it has {nearest(word, known)}")
    root = Path(folder, options.root) if options.root else os.environ.get("FEDASSAY_DATA")
    if not root:
        raise ValueError(f"{name} needs a folder: set root, or the environment variable FEDASSAY_DATA")
    kind = getattr(torchvision.datasets, word)
    train, test = (_torchvision_part(kind, str(root), part, name) for part in ("train", "test"))
    names = tuple(map(str, getattr(train, "classes", ()) or ()))
    return from_torch(train, test, name=name, class_names=names, options=options)


def is_saved_dataset(path: Path) -> bool:
    """Return whether this folder was written by ``save_to_disk`` of Hugging Face Datasets."""
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
    parts = found if isinstance(found, dict) else {"train": found}
    if "train" not in parts:
        raise ValueError(f"{path} must have a split train, got {', '.join(parts)}")
    train, test = parts["train"], next((parts[word] for word in _TEST if word in parts), None)
    if options.label not in train.column_names and not options.labels:
        raise ValueError(f"{path} has no column {options.label!r} (label); it has {', '.join(train.column_names)}")
    pictures = [one for one, feature in train.features.items() if isinstance(feature, datasets.Image)]
    if options.test or options.separator:
        raise ValueError(f"{path}: test and separator are options of text files, and no option of a saved data set")
    if not pictures:
        table = options.model_copy(update={"test": "" if test is None else "the test split"})
        frames = [None if one is None else one.to_pandas() for one in (train, test)]
        return dataset_of_table(frames[0], frames[1], file=path.name, name=name, options=table)
    if len(pictures) > 1:
        raise ValueError(f"{path} must have one column of images, got {', '.join(pictures)}")
    if of_tables := options.model_fields_set - set(ImageOptions.model_fields) - {"label", "owner"}:
        raise ValueError(f"{path}: {min(of_tables)} is an option of tables, but column {pictures[0]} holds images")
    # Opened by this package, which does not open every format that Pillow knows.
    columns = (pictures[0], options.label, datasets.Image(decode=False))
    owner = options.owner or ("owner" if "owner" in train.column_names else "")
    return from_torch(
        _Pairs(train, *columns),
        None if test is None else _Pairs(test, *columns),
        name=name,
        owners=np.asarray(train[owner]).tolist() if owner else None,
        class_names=tuple(getattr(train.features[options.label], "names", ()) or ()),
        options=options,
    )


class _Pairs:
    """The rows of a split as pairs (image, label)."""

    def __init__(self, split: Any, image: str, label: str, unread: Any) -> None:
        self.split, self.image, self.label = split.cast_column(image, unread), image, label

    def __len__(self) -> int:
        return len(self.split)

    def __getitem__(self, number: int) -> tuple[Any, Any]:
        row: Mapping[str, Any] = self.split[number]
        stored = row[self.image]
        return BytesIO(stored["bytes"]) if stored["bytes"] else Path(stored["path"]), row[self.label]


def _items(data: Any, place: str) -> list[tuple[Any, Any]]:
    try:
        items = [data[number] for number in range(len(data))]
    except TypeError as error:
        raise ValueError(f"{place} must be a map-style data set, with len(data) and data[i]: {error}") from None
    if not items:
        raise ValueError(f"{place} must hold at least one sample, got none")
    for number, item in enumerate(items):
        if not isinstance(item, tuple | list) or len(item) != 2:
            raise ValueError(f"{place} must give pairs (image, label), got {type(item).__name__} for sample {number}")
    return [(image, label) for image, label in items]


def _class_numbers(pairs: Sequence[tuple[Any, Any]], place: str) -> np.ndarray:
    found = []
    for number, (_, label) in enumerate(pairs):
        value = label.item() if isinstance(label, Tensor | np.generic) and np.ndim(label) == 0 else label
        if not isinstance(value, int):
            raise ValueError(f"{place}: the label of sample {number} must be a class number, got {label!r:.80}")
        found.append(int(value))
    return np.array(found)


def _stacked(images: Sequence[Any], places: Sequence[str]) -> np.ndarray:
    """Tensors or arrays of one shape as one array."""
    arrays = [image.numpy() if isinstance(image, Tensor) else image for image in images]
    for array, place in zip(arrays, places, strict=True):
        if not isinstance(array, np.ndarray) or array.ndim not in (1, 2, 3):
            raise ValueError(f"{place} must be an image of Pillow, a tensor or an array, got {type(array).__name__}")
        if array.shape != arrays[0].shape:
            raise ValueError(f"{place} must have the shape of the first sample, {arrays[0].shape}, got {array.shape}")
    return np.stack(arrays)


def _torchvision_part(kind: Any, root: str, part: str, name: str) -> Any:
    """The training or the test part; None for the test part of a class that has no parts."""
    known, chosen = inspect.signature(kind.__init__).parameters, dict[str, Any]()
    if "train" in known:
        chosen["train"] = part == "train"
    elif "split" in known:
        chosen["split"] = part
    elif part == "test":
        return None
    if "download" in known:
        chosen["download"] = False
    try:
        return kind(root, **chosen)
    except (RuntimeError, OSError, ValueError, TypeError, ImportError) as error:
        words = " ".join(str(error).split()) or type(error).__name__
        raise ValueError(
            f"{name} ({part} part) cannot be read from {root}, and nothing is downloaded: {words[:300]}"
        ) from None
