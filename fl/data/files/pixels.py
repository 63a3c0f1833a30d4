"""Brings arrays of images or rows into the one form in which data sets hold them: (n, channel, height, width)."""

from collections.abc import Mapping

import numpy as np

from ....audit.wording import counted
from .columns.numbers import LARGEST_SINGLE, check_single_precision

RANGES = ("auto", "0..1", "0..255")
CHANNELS = ("auto", "first", "last")


def arranged(images: np.ndarray, place: str, channels: str = "auto") -> np.ndarray:
    """Return ``images`` with shape (n, channel, height, width).

    Grey images may be (n, height, width); images of one or three channels (n, channel, height, width) or (n, height,
    width, channel); rows of a table (n, features) become (n, 1, 1, features). ``channels``: which axis holds the
    channels, "first" or "last"; "auto" finds the one axis of length 1 or 3.

    Raises ValueError, starting with ``place``, for another shape, or one whose channel axis cannot be found.
    """
    if not np.issubdtype(images.dtype, np.number) and images.dtype != np.bool_:
        raise ValueError(f"{place} must hold numbers, got {images.dtype}")
    if np.issubdtype(images.dtype, np.complexfloating):
        raise ValueError(f"{place} must hold real numbers, got {images.dtype}")
    if not images.ndim or not len(images):
        raise ValueError(f"{place} must hold at least one sample, got shape {images.shape}")
    if 0 in images.shape:
        raise ValueError(f"{place} must hold samples with at least one number each, got shape {images.shape}")
    if images.ndim == 2:
        return images[:, None, None, :]
    if images.ndim == 3:
        return images[:, None]
    if images.ndim != 4:
        raise ValueError(
            f"{place} must be images (n, height, width), (n, channel, height, width) or (n, height, width, channel), "
            f"or rows (n, features), got shape {images.shape}"
        )
    first, last = (images.shape[axis] in (1, 3) for axis in (1, 3))
    if channels == "auto" and first == last:
        found = "both" if first else "neither"
        raise ValueError(
            f"{place} has shape {images.shape}, in which {found} of the second and the last axis may be the channels "
            '(1 or 3): set channels to "first" or "last"'
        )
    return images.transpose(0, 3, 1, 2) if channels == "last" or (channels == "auto" and last) else images


def check_finite(place: str, values: np.ndarray) -> None:
    """Raise ValueError, with the first row at fault, if a number is NaN or infinite; ``values``: (n, ...)."""
    if values.dtype.kind != "f":
        return
    wrong = np.flatnonzero(~np.isfinite(values).reshape(len(values), -1).all(1))
    if len(wrong):
        raise ValueError(
            f"{place} must hold finite numbers, got NaN or infinity in row {wrong[0]} "
            f"({counted(len(wrong), 'such row')})"
        )


def scaled(given: Mapping[str, np.ndarray], *, file: str, pixels: str = "auto") -> tuple[list[np.ndarray], str]:
    """Return the images of each part as float32 in [0, 1], and a sentence that reports what was done.

    given: images (n, c, h, w) by the name of their array. One rule holds for all parts together. ``pixels`` is the
    range: "0..1" keeps the numbers, "0..255" divides by 255. "auto" keeps numbers in [0, 1], and divides by 255 where
    they are whole numbers up to 255.

    Raises ValueError, with array and row, for NaN, infinity, or numbers outside of the range.
    """
    for name, images in given.items():
        check_finite(f"{file}: {name}", images)
    low, high = min(float(one.min()) for one in given.values()), max(float(one.max()) for one in given.values())
    if pixels == "auto":
        pixels = _range_of(given, file, low, high)
    top = 255 if pixels == "0..255" else 1
    for name, images in given.items():
        wrong = np.flatnonzero(((images < 0) | (images > top)).reshape(len(images), -1).any(1))
        if len(wrong):
            raise ValueError(
                f"{file}: {name} must hold pixels in {pixels}, got {images.min():g} to {images.max():g}, first outside "
                f"in row {wrong[0]}"
            )
    note = f"Pixels from {low:g} to {high:g} were " + ("divided by 255." if top == 255 else "kept as they are.")
    return [(images.astype(np.float32) / np.float32(top)) for images in given.values()], note


def kept(given: Mapping[str, np.ndarray], *, file: str) -> tuple[list[np.ndarray], str]:
    """Return the rows of each part as float32, unchanged, and a sentence that reports it.

    given: rows (n, 1, 1, features) by the name of their array. Raises ValueError, with array and row, for NaN,
    infinity, and numbers that single precision cannot hold or tell apart.
    """
    for name, values in given.items():
        place = f"{file}: {name}"
        check_finite(place, values)
        if values.dtype.kind == "b" or values.dtype in (np.float32, np.float16):
            continue
        wrong = np.flatnonzero((np.abs(values.astype(np.float64)) > LARGEST_SINGLE).reshape(len(values), -1).any(1))
        if len(wrong):
            raise ValueError(
                f"{place} must hold numbers of size {LARGEST_SINGLE:g} at most, got a larger one in row {wrong[0]} "
                f"({counted(len(wrong), 'such row')}): change their unit"
            )
        for number, column in enumerate(values.reshape(len(values), -1).T):
            remedy = "subtract a constant, or scale the numbers"
            check_single_precision(column, f"{place}: column {number}", remedy, first=0)
    return [values.astype(np.float32) for values in given.values()], "The numbers of the rows are kept as they are."


def _range_of(given: Mapping[str, np.ndarray], file: str, low: float, high: float) -> str:
    if low >= 0 and high <= 1:
        return "0..1"
    whole = all(images.dtype.kind in "iu" or bool((images == np.rint(images)).all()) for images in given.values())
    if low >= 0 and high <= 255 and whole:
        return "0..255"
    # Dividing numbers such as 0..2.6 by 255 would give black images without an error.
    raise ValueError(
        f"{file}: {' and '.join(given)} must hold pixels in 0..1, or whole numbers in 0..255, got {low:g} to "
        f'{high:g}: scale them to 0..1, or set pixels = "0..255". A model can subtract a mean and divide by a standard '
        "deviation itself (normalise)"
    )
