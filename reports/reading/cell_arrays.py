"""Check that each array in a run's files has the shape and type that its name requires."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

_SIDES = ("member", "nonmember")
_ONE_NUMBER = ("fpr_high", "fnr_high", "alpha", "auc", "auc_error", "auc_freedom", "rounds")
_IMAGES = {"originals": 4, "reconstructions": 4, "psnr": 1}
"""Name -> number of dimensions; the first dimension counts the images."""


def check_arrays(arrays: Mapping[str, "np.ndarray"]) -> None:
    """Raise ValueError if an array with a known name does not have the shape and type of that name; other names are not
    checked.

    Reports compute with these arrays without further checks, and the files may come from another machine.
    """
    import numpy as np

    for name, array in arrays.items():
        if name in _ONE_NUMBER and (array.ndim or array.dtype.kind not in "fiu" or not np.isfinite(array)):
            raise ValueError(f"{name} must be one finite number, got {_described(array)}")
        if name in _SIDES and (not array.ndim or array.dtype.kind not in "fiub" or np.isnan(array).any()):
            raise ValueError(f"{name} must be an array of scores without NaN, got {_described(array)}")
        if name in _IMAGES and (array.ndim != _IMAGES[name] or array.dtype.kind != "f"):
            raise ValueError(f"{name} must have {_IMAGES[name]} dimensions, got {_described(array)}")
    # Only if present: audits by canaries store scores without run or candidate numbers.
    for side in _SIDES:
        for of in (f"{side}_{what}" for what in ("run", "runs", "candidates")):
            _check_numbers(of, arrays.get(of), arrays.get(side))
    if len({arrays[name].shape[0] for name in _IMAGES if name in arrays}) > 1:
        raise ValueError(f"{', '.join(_IMAGES)} must hold the same number of images, got {_shapes(arrays)}")
    if len({arrays[name].shape for name in ("originals", "reconstructions") if name in arrays}) > 1:
        raise ValueError(f"originals and reconstructions must have the same shape, got {_shapes(arrays)}")


def _check_numbers(name: str, numbers: "np.ndarray | None", scores: "np.ndarray | None") -> None:
    """``numbers``: (n,), the run or candidate of each of the n scores."""
    if numbers is None or scores is None:
        return
    if numbers.shape != scores.shape[:1] or numbers.dtype.kind not in "iu" or (numbers < 0).any():
        raise ValueError(
            f"{name} must hold one whole number >= 0 for each of {len(scores)} scores, got {_described(numbers)}"
        )


def _shapes(arrays: Mapping[str, "np.ndarray"]) -> str:
    return ", ".join(f"{name} of shape {arrays[name].shape}" for name in _IMAGES if name in arrays)


def _described(array: "np.ndarray") -> str:
    return f"{array.dtype} of shape {array.shape}"
