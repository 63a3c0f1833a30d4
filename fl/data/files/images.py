"""Turns image files and images of Pillow into one array of pixels, and a folder of them into a data set."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

import numpy as np
from pydantic import Field, field_validator

from ....audit.wording import counted
from ..dataset import Dataset
from .arrays import ArrayOptions, dataset_of_arrays
from .options import SplitOptions, check_size

if TYPE_CHECKING:
    from PIL.Image import Image

SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".ppm", ".pgm")
_TEST = ("test", "val", "valid", "validation")
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
Source = "Path | BytesIO | Image"


class ImageOptions(SplitOptions):
    """The options of images.

    Args:
        size: (height, width), or one number for both: each image is cut to this ratio around its centre and resized.
            By default all images must have one size.
        colour: "grey" or "rgb", to which each image is converted; "auto" keeps the images' own where it is the same in
            all.
    """

    size: Side | tuple[Side, Side] | None = None
    colour: Literal["auto", "grey", "rgb"] = "auto"


class FolderOptions(ImageOptions):
    """The options of a folder of images: those of images, and ``owner``.

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
    """Return the pixels of all images, (n, channel, height, width), the options by which they are read as arrays, and
    the sentences that report what was done.

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
    """Return the folders in a folder that are not hidden."""
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
    from PIL import Image, UnidentifiedImageError

    if not isinstance(source, Path | BytesIO):
        yield source
        return
    try:
        with Image.open(source, formats=_FORMATS) as image:
            yield image
    except PermissionError:
        raise
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        unknown = isinstance(error, UnidentifiedImageError)
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
