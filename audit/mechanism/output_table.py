"""Frequency table of a mechanism's distinct outputs in pilot trials, with the log-likelihood ratio of each output."""

import zlib
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arrays import FloatArray
from ..exact import held
from .cells import ratios
from .score import Counts

# A table of more outputs than this has too few pilot trials per output; most continuous outputs are recognised by
# a first look at 4096 trials, without sorting the whole pilot.
_MOST, _LOOK = 1024, 4096
_Keys = NDArray[np.uint64]


@dataclass(frozen=True, eq=False)
class FrequencyTable:
    """A table of the distinct outputs seen in pilot trials, with each one's log-likelihood ratio (second over first
    input).

    ``keys``: (k,), sorted, one per output that was seen; ``ratios``: (k,), the log of its frequency on the second input
    over that on the first. An output that was not seen has ratio 0, which favours neither input.
    """

    keys: _Keys
    ratios: FloatArray

    def __str__(self) -> str:
        return f"likelihood ratio of {len(self.keys)} outputs"

    def score(self, outputs: NDArray[Any]) -> FloatArray:
        """Return the log-likelihood ratio of each output; a higher value means that the second input is more likely.

        An array ``(n, ...)`` of numbers or strings becomes ``(n,)``.
        """
        return self.of_keys(row_keys(outputs))

    def count(self, outputs: NDArray[Any]) -> Counts:
        """Count how often each output of the table occurs; others are left out."""
        wanted = row_keys(outputs)
        at = np.minimum(np.searchsorted(self.keys, wanted), len(self.keys) - 1)
        found = at[self.keys[at] == wanted]
        return [np.bincount(found, minlength=len(self.keys)).astype(np.float64)]

    def counted(self, member: Counts, nonmember: Counts) -> "FrequencyTable":
        return FrequencyTable(self.keys, ratios(member[0], nonmember[0]))

    def of_keys(self, wanted: _Keys) -> FloatArray:
        """Return the log-likelihood ratio of each key (n,), 0 where it was not seen."""
        at = np.minimum(np.searchsorted(self.keys, wanted), len(self.keys) - 1)
        return np.where(self.keys[at] == wanted, self.ratios[at], 0.0)


def tabulate(member: NDArray[Any], nonmember: NDArray[Any]) -> FrequencyTable | None:
    """Count how often each distinct output occurs in pilot trials on two inputs, and return the table of likelihood
    ratios.

    Half a count is added to every output of either input.

    None where nearly every output is distinct, or there are more than 1024.
    """
    look = np.concatenate([row_keys(member[:_LOOK]), row_keys(nonmember[:_LOOK])])
    if _too_many(look):
        return None
    keys_in, keys_out = row_keys(member), row_keys(nonmember)
    if _too_many(np.concatenate([keys_in, keys_out])):
        return None
    return frequencies(keys_in, keys_out)


def frequencies(keys_in: _Keys, keys_out: _Keys) -> FrequencyTable:
    """Count how often each distinct output, given as a 64-bit key, occurs on each of two inputs.

    ``keys_in``: (n1,) of the second input, ``keys_out``: (n0,) of the first.
    """
    # Half a count on both sides keeps every ratio finite.
    keys, codes = np.unique(np.concatenate([keys_in, keys_out]), return_inverse=True)
    counts_in = np.bincount(codes[: len(keys_in)], minlength=len(keys)) + 0.5
    counts_out = np.bincount(codes[len(keys_in) :], minlength=len(keys)) + 0.5
    return FrequencyTable(keys, np.log(counts_in / counts_in.sum()) - np.log(counts_out / counts_out.sum()))


def row_keys(outputs: NDArray[Any]) -> _Keys:
    """Return a 64-bit key for each output, equal for equal outputs: an array ``(n, ...)`` becomes ``(n,)``.

    Nearly all different outputs have different keys.

    Equality is by value: 1 and 1.0 have one key, and a whole number that float64 does not hold keeps its own 64 bits.
    Different outputs with one key fall into an event together, which may cost power and never costs validity.
    """
    rows = outputs.reshape(len(outputs), -1)
    if outputs.dtype.kind in "US":
        words, codes = np.unique(rows, return_inverse=True)
        bits = np.array([_of_text(str(word)) for word in words], dtype=np.uint64)[codes.reshape(rows.shape)]
    else:
        # Adding 0 turns -0.0 into 0.0, which have different bits and equal values.
        values = np.asarray(rows, dtype=np.float64) + 0.0
        # One NaN for all, which may have different bits.
        values = np.where(np.isnan(values), np.nan, values)
        bits = np.ascontiguousarray(values).view(np.uint64)
        if rows.dtype.kind in "iu" and not (exact := held(rows)).all():
            bits = np.where(exact, bits, rows.astype(np.uint64))
    if bits.shape[1] == 1:
        return np.ascontiguousarray(bits[:, 0])
    # Mixed column by column, so that outputs with the same numbers in another order get different keys.
    keys = np.zeros(len(bits), dtype=np.uint64)
    for column in bits.T:
        keys = _mixed(keys ^ _mixed(column)) + np.uint64(0x9E3779B97F4A7C15)
    return keys


def _too_many(keys: _Keys) -> bool:
    distinct = len(np.unique(keys))
    return distinct > _MOST or 2 * distinct > len(keys) + 2


def _of_text(word: str) -> int:
    # Not hash(): it is salted, and differs between two processes.
    data = word.encode("utf-8", "surrogatepass")
    return zlib.crc32(data) << 32 | zlib.crc32(data[::-1] + b"\x01")


def _mixed(bits: _Keys) -> _Keys:
    """The finaliser of splitmix64 (Steele, Lea, Flood 2014): every bit moves every other."""
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return bits ^ (bits >> np.uint64(31))
