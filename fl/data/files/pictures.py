"""Turns image files and other images of Pillow into one array of pixels, of one size and one colour mode."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ....audit.wording import counted
from ...fields import check_count
from .limit import check_size
from .options import SplitOptions, check_choice

if TYPE_CHECKING:
    from PIL.Image import Image

COLOURS = ("auto", "grey", "rgb")
_MODES = {"grey": "L", "rgb": "RGB"}
_NATURAL = {"L": "grey", "1": "grey", "RGB": "rgb", "P": "rgb"}
"""The modes of Pillow that need no option; others hold transparency, more than 8 bits, or other colours."""
_DEEP = ("I", "F")
"""How the names of Pillow's modes of 16 and 32 bits begin, whose conversion to 8 bits cuts at 255."""
_SHOWN = 5
# Named one by one: among Pillow's other formats is EPS, for which it starts a program.
_FORMATS = ("PNG", "JPEG", "BMP", "GIF", "TIFF", "WEBP", "PPM")

_WITH_EXIF = ("JPEG", "MPO", "TIFF", "WEBP")
"""The formats whose EXIF data stands before the pixels; a PNG file would have to be decoded for it."""
_ORIENTATION = 0x0112
"""The number of the EXIF tag that states how a camera was held; 1 is upright."""


class Facts(NamedTuple):
    """What the header of an image states.

    Args:
        size: (height, width).
        mode: Pillow's name of its colours.
        turned: EXIF data state that it is to be shown turned or mirrored.
        several: the file holds further images, such as those of an animation.
    """

    size: tuple[int, int]
    mode: str
    turned: bool = False
    several: bool = False


@dataclass(frozen=True, kw_only=True)
class PictureOptions(SplitOptions):
    """The options of images.

    Args:
        size: (height, width), or one number for both: each image is cut to this ratio around its centre and resized.
            By default all images must have one size.
        colour: "grey" or "rgb", to which each image is converted; "auto" keeps the images' own where it is the same in
            all.
    """

    size: tuple[int, int] | int | None = None
    colour: str = "auto"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("colour", self.colour, COLOURS)
        if isinstance(self.size, tuple):
            if len(self.size) != 2:
                raise ValueError(f"size must be one number or [height, width], got {list(self.size)}")
            for side in self.size:
                check_count("size", side)
        elif self.size is not None:
            check_count("size", self.size)

    @property
    def sides(self) -> tuple[int, int] | None:
        """The wanted (height, width), or None."""
        return (self.size, self.size) if isinstance(self.size, int) else self.size


def facts_of(image: "Image | Path | BytesIO", place: str) -> Facts:
    """Return size and mode of an image, or of an image file, of which only the header is read for that.

    Raises ValueError, starting with ``place``, for a file that is no image.
    """
    if isinstance(image, Path | BytesIO):
        with _opened(image, place) as found:
            return facts_of(found, place)
    return Facts((image.height, image.width), image.mode, _is_turned(image), bool(getattr(image, "is_animated", False)))


def _is_turned(image: "Image") -> bool:
    if image.format not in _WITH_EXIF:
        return False
    try:
        return bool(image.getexif().get(_ORIENTATION, 1) != 1)
    except Exception:  # Damaged EXIF data, for which Pillow raises errors of many kinds.
        return False


def decoded(file: "Path | BytesIO", place: str) -> "Image":
    """Return the image of an image file; raise ValueError, starting with ``place``, for a damaged one."""
    with _opened(file, place) as image:
        try:
            image.load()
        except (OSError, ValueError, SyntaxError) as error:
            raise _unreadable(place, error) from None
        return image.copy()


def _opened(file: "Path | BytesIO", place: str) -> "Image":
    from PIL import Image, UnidentifiedImageError

    try:
        return Image.open(file, formats=_FORMATS)
    except PermissionError:
        raise
    except (UnidentifiedImageError, OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise _unreadable(place, error) from None


def _unreadable(place: str, error: Exception) -> ValueError:
    words = str(error)
    reason = "it is damaged or of another format" if "cannot identify" in words else words or type(error).__name__
    return ValueError(f"{place} cannot be read as an image: {reason}")


def pixels_of(
    facts: Sequence[Facts], open_one: Callable[[int], "Image"], options: PictureOptions, place: str
) -> np.ndarray:
    """Return the pixels of all images, (n, channel, height, width) whole numbers in 0..255.

    facts: size and mode of each image; ``open_one`` gives the image of a number in 0..n - 1. Raises ValueError,
    starting with ``place``, where images differ in size or colour and no option says what to do, before any image is
    decoded.
    """
    from PIL.Image import Resampling
    from PIL.ImageOps import fit

    colour, (height, width) = _colour(facts, options, place), _sides(facts, options, place)
    check_size(place, len(facts) * (3 if colour == "rgb" else 1) * height * width)
    pixels = np.empty((len(facts), height, width, 3 if colour == "rgb" else 1), dtype=np.uint8)
    for number in range(len(facts)):
        image = open_one(number).convert(_MODES[colour])
        if (image.height, image.width) != (height, width):
            image = fit(image, (width, height), method=Resampling.BILINEAR)
        pixels[number] = np.asarray(image).reshape(height, width, -1)
    return pixels.transpose(0, 3, 1, 2)


def picture_notes(facts: Sequence[Facts], options: PictureOptions) -> list[str]:
    """Return the sentences that report what was done to the images."""
    notes = []
    if options.sides is not None:
        changed = sum(one.size != options.sides for one in facts)
        notes.append(f"{_of(changed, facts)} cut to the ratio of {_size(options.sides)} and resized.")
    if options.colour != "auto":
        changed = sum(_NATURAL.get(one.mode) != options.colour for one in facts)
        notes.append(f"{_of(changed, facts)} converted to {options.colour}.")
    if turned := sum(one.turned for one in facts):
        notes.append(f"{_of(turned, facts)} not turned upright, as the EXIF data of the files would have it.")
    if several := sum(one.several for one in facts):
        notes.append(f"{_of(several, facts)} the first of several in the file, and the others were left out.")
    return notes


def _of(count: int, facts: Sequence[Facts]) -> str:
    return f"{count} of {counted(len(facts), 'image')} {'was' if count == 1 else 'were'}"


def _sides(facts: Sequence[Facts], options: PictureOptions, place: str) -> tuple[int, int]:
    sizes = Counter(one.size for one in facts)
    if options.sides is not None:
        return options.sides
    if len(sizes) > 1:
        found = [f"{count} of {_size(size)}" for size, count in sizes.most_common(_SHOWN)]
        if len(sizes) > _SHOWN:
            found.append(f"and {len(sizes) - _SHOWN} other sizes")
        smallest = min(side for size in sizes for side in size)
        raise ValueError(
            f"{place} has images of several sizes (height x width): {', '.join(found)}. Set size to one size, such as "
            f"size = {smallest}, to which all images are resized"
        )
    return next(iter(sizes))


def _colour(facts: Sequence[Facts], options: PictureOptions, place: str) -> str:
    modes = Counter(one.mode for one in facts)
    deep = {mode: count for mode, count in modes.items() if mode.startswith(_DEEP)}
    if deep:
        found = ", ".join(f"{count} of mode {mode}" for mode, count in deep.items())
        raise ValueError(
            f"{place} must have images of 8 bits per channel, got images of more bits: {found}. Convert them to 8 bits "
            "first: Pillow would turn every value above 255 into white"
        )
    if options.colour != "auto":
        return options.colour
    colours = {_NATURAL.get(mode) for mode in modes}
    if len(colours) > 1 or None in colours:
        found = ", ".join(f"{count} of mode {mode}" for mode, count in modes.most_common())
        raise ValueError(
            f'{place} has images that are not all grey or all RGB: {found}. Set colour to "grey" or "rgb", to which '
            "all images are converted (transparency is dropped)"
        )
    return str(next(iter(colours)))


def _size(size: tuple[int, int]) -> str:
    return f"{size[0]}x{size[1]}"
