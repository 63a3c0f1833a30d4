"""Table of a finite output space: each output's log-likelihood ratio, from its frequencies in a pilot."""

import zlib
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arrays import FloatArray
from ..exact import held

_MOST, _LOOK = 1024, 4096
_Keys = NDArray[np.uint64]


@dataclass(frozen=True, eq=False)
class FrequencyTable:
    """``keys``: (k,) sorted, of the outputs that were seen; ``ratios``: (k,) log of their frequency in world 1 over
    world 0. An output that was not seen tells nothing: 0.
    """

    keys: _Keys
    ratios: FloatArray

    def __str__(self) -> str:
        return f"likelihood ratio of {len(self.keys)} outputs"

    def score(self, outputs: NDArray[Any]) -> FloatArray:
        """``outputs``: (n, ...) numbers or strings -> (n,)."""
        wanted = row_keys(outputs)
        at = np.minimum(np.searchsorted(self.keys, wanted), len(self.keys) - 1)
        return np.where(self.keys[at] == wanted, self.ratios[at], 0.0)


def tabulate(member: NDArray[Any], nonmember: NDArray[Any]) -> FrequencyTable | None:
    """Half a count is added to every output of either world. None where nearly every output is another one, or there
    are more than 1024.
    """
    look = np.concatenate([row_keys(member[:_LOOK]), row_keys(nonmember[:_LOOK])])
    if _too_many(look):
        return None
    keys_in, keys_out = row_keys(member), row_keys(nonmember)
    if _too_many(np.concatenate([keys_in, keys_out])):
        return None
    return frequencies(keys_in, keys_out)


def frequencies(keys_in: _Keys, keys_out: _Keys) -> FrequencyTable:
    """The table of outputs that are keys already."""
    keys, codes = np.unique(np.concatenate([keys_in, keys_out]), return_inverse=True)
    counts_in = np.bincount(codes[: len(keys_in)], minlength=len(keys)) + 0.5
    counts_out = np.bincount(codes[len(keys_in) :], minlength=len(keys)) + 0.5
    return FrequencyTable(keys, np.log(counts_in / counts_in.sum()) - np.log(counts_out / counts_out.sum()))


def row_keys(outputs: NDArray[Any]) -> _Keys:
    """``(n, ...)`` -> (n,): 64 bits an output, equal for equal ones, another for nearly every other.

    Equal in value: 1 and 1.0 have one key, whole numbers that no float64 holds their own 64 bits. Two outputs of one
    key fall into one event together; that may cost power, never the guarantee.
    """
    rows = outputs.reshape(len(outputs), -1)
    if outputs.dtype.kind in "US":
        words, codes = np.unique(rows, return_inverse=True)
        bits = np.array([_of_text(str(word)) for word in words], dtype=np.uint64)[codes.reshape(rows.shape)]
    else:
        # Adding 0 makes one zero of two.
        bits = (np.asarray(rows, dtype=np.float64) + 0.0).view(np.uint64)
        if rows.dtype.kind in "iu" and not (exact := held(rows)).all():
            bits = np.where(exact, bits, rows.astype(np.uint64))
    if bits.shape[1] == 1:
        return np.ascontiguousarray(bits[:, 0])
    keys = np.zeros(len(bits), dtype=np.uint64)
    for column in bits.T:
        keys = _mixed(keys ^ _mixed(column)) + np.uint64(0x9E3779B97F4A7C15)
    return keys


def _too_many(keys: _Keys) -> bool:
    distinct = len(np.unique(keys))
    return distinct > _MOST or 2 * distinct > len(keys) + 2


def _of_text(word: str) -> int:
    data = word.encode("utf-8", "surrogatepass")
    return zlib.crc32(data) << 32 | zlib.crc32(data[::-1] + b"\x01")


def _mixed(bits: _Keys) -> _Keys:
    """The finaliser of splitmix64 (Steele, Lea, Flood 2014): every bit moves every other."""
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return bits ^ (bits >> np.uint64(31))
