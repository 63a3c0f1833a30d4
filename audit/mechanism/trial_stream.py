"""Independent trials of a mechanism, drawn in chunks so that memory does not grow with their number.

Every purpose of an audit has a generator of its own, keyed by (seed, purpose, pair, arm, chunk), so that trials
share no noise, and the output of a trial does not depend on how many follow it.

Whether the trials of one call share noise is tested by a one-way analysis of variance of ranks, calls against rows
within calls, for each coordinate by itself (Kruskal and Wallis 1952, with the F distribution of Conover and Iman 1981).
Ranks have a variance whatever the noise, while Cauchy noise, for one, has none.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Any
from zlib import crc32

import numpy as np
from numpy.typing import NDArray
from scipy.special import fdtrc

from ..arrays import FloatArray, refuse_lost
from ..supplied.given import detached
from ..wording import shortened

MOST_TESTED = 16
"""The number of coordinates that are tested, from the first."""
UNSEEDED = "the same calls with the same generator returned other outputs"
"""How the refusal of a mechanism whose noise does not come from its generator begins."""


def call_effect(outputs: NDArray[Any]) -> FloatArray:
    """Test whether the trials that a mechanism draws in one call, one per output row, are independent; return one
    p-value for each output coordinate.

    Under the hypothesis, rows of one call depend on each other no more than rows of different calls.

    ``outputs``: (calls, rows, ...) numbers -> (coordinates,). A coordinate that is constant everywhere has p-value 1.
    """
    calls, rows = outputs.shape[:2]
    columns = outputs.reshape(calls * rows, -1).T[:MOST_TESTED]
    return np.array([_p_value(_ranks(column).reshape(calls, rows)) for column in columns])


def _ranks(values: NDArray[Any]) -> FloatArray:
    # Tied values share their mean rank, so that ties alone make no call differ from another.
    _, codes, counts = np.unique(values, return_inverse=True, return_counts=True)
    return np.asarray((np.cumsum(counts) - (counts - 1) / 2)[codes.reshape(-1)], dtype=np.float64)


def _p_value(ranks: FloatArray) -> float:
    calls, rows = ranks.shape
    means = ranks.mean(axis=1, keepdims=True)
    between = rows * float(np.sum((means - ranks.mean()) ** 2))
    within = float(np.sum((ranks - means) ** 2))
    if between + within == 0:
        return 1.0
    freedom = calls - 1, calls * (rows - 1)
    # Without variance within calls F is infinite, and its p-value 0.
    return float(fdtrc(*freedom, between / freedom[0] / (within / freedom[1]))) if within else 0.0


def dependence(series: Callable[[int], NDArray[Any]], level: float) -> float | None:
    """Return a p-value for dependence between rows of one call; None if nothing shows dependence.

    ``series``: its number -> (calls, rows, ...) fresh outputs; two series must agree, because the test is rough where
    numbers repeat. ``level``: probability, over all numbers of a series, that it shows independent rows as dependent.
    """
    first = call_effect(series(0))
    share = level / len(first)
    if not first.min() < share:
        return None
    worst = float(np.maximum(first, call_effect(series(1))).min())
    return worst if worst < share else None


Mechanism = Callable[[Any, np.random.Generator], Any]
"""``(x, rng) -> output`` for one trial. A batched one takes ``(n, ...)`` equal rows x and returns n outputs."""

_VALUES, _FEWEST, _MOST = 2**20, 64, 2**15
"""Numbers held in a chunk, and the least and the most trials in it."""
# Trials of each of the two guard calls, and the number of differing rows from which equal calls are suspicious: a
# mechanism of few outputs may repeat a call by chance.
_GUARD = 256
# Odd, so that a mechanism that switches between two states is in the other one at the second series of calls.
_FEW = 15
_UNLIKE = 20
_ONE_TRIAL = (
    "the mechanism was called as mechanism(x, rng), with one plain input x per trial; one that takes an array with one "
    "row per trial needs batched=True (on the command line --batched)"
)
_CALLS, _ROWS, _LEVEL = 16, 16, 1e-9
"""Number of small calls, trials in each, and the p-value below which two such series must both fall."""


class TrialPurpose(IntEnum):
    """The purpose of a trial, such as pilot or counted; trials of different purposes share no random draws."""

    GUARD = 0
    PILOT = 1
    COUNTED = 2
    RANKING = 3
    CHOICE = 4
    COINS = 5


_PHRASES = {
    TrialPurpose.GUARD: "first calls",
    TrialPurpose.PILOT: "pilot",
    TrialPurpose.RANKING: "comparison of scores",
    TrialPurpose.CHOICE: "choice of the event",
    TrialPurpose.COUNTED: "counted trials",
}


@dataclass(frozen=True, eq=False, kw_only=True)
class Stream:
    """A source of independent trials of one mechanism on one input.

    The input ``x`` is the first (``arm`` 0) or second (``arm`` 1) of the ``pair``-th pair of inputs.

    ``shape``: of one output, () for a scalar; ``text``: whether outputs are strings. ``open_stream`` finds both.
    """

    mechanism: Mechanism
    x: Any
    arm: int
    pair: int
    seed: int
    batched: bool
    shape: tuple[int, ...] = ()
    text: bool = False

    @property
    def chunk(self) -> int:
        """The number of trials that are drawn at once; this number depends on the sizes of input and output alone."""
        size = max(np.asarray(self.x).size if self.batched else 1, int(np.prod(self.shape)))
        return int(np.clip(_VALUES // max(size, 1), _FEWEST, _MOST))

    @property
    def input(self) -> str:
        """A short text that describes the input ``x`` in error messages."""
        return shortened(self.x.item() if isinstance(self.x, np.ndarray) and self.x.ndim == 0 else self.x)

    def draw(self, purpose: TrialPurpose, trials: int) -> Iterator[NDArray[Any]]:
        """Yield the outputs of ``trials`` trials, in arrays ``(n, *shape)`` of numbers, which may be NaN or infinite,
        or of strings.

        Raises ValueError for any other output.
        """
        given = _rows(self.x, min(self.chunk, trials)) if self.batched else None
        for number, start in enumerate(range(0, trials, self.chunk)):
            outputs = self._outputs(purpose, number, min(self.chunk, trials - start), start, given)
            self._check(outputs, purpose, start)
            yield outputs

    def _outputs(
        self, purpose: TrialPurpose, number: int, n: int, start: int, given: NDArray[Any] | None
    ) -> NDArray[Any]:
        # One generator per chunk, keyed by its number, so that no chunk depends on what was drawn before it.
        key = np.random.SeedSequence(self.seed, spawn_key=(purpose, self.pair, self.arm, number))
        rng = np.random.Generator(np.random.Philox(key))
        raw: Any = []
        try:
            if given is not None:
                raw = self.mechanism(given[:n], rng)
            else:
                for _ in range(n):
                    raw.append(self.mechanism(self.x, rng))
        except (Exception, SystemExit) as error:
            trial = f"trial {start + len(raw)}" if given is None else f"trials {start} to {start + n - 1}"
            note = f"raised by the mechanism in {self._where(purpose)}, {trial}"
            if isinstance(error, SystemExit):
                # Passed through, sys.exit() would end the audit with the exit code of a success.
                left = RuntimeError(f"the mechanism called sys.exit({'' if error.code is None else repr(error.code)})")
                left.add_note(note)
                raise left from error
            error.add_note(note)
            if given is None and purpose is TrialPurpose.GUARD and isinstance(error, AttributeError | TypeError):
                error.add_note(_ONE_TRIAL)
            raise
        return self._array(raw, n, purpose, start)

    def _array(self, raw: Any, n: int, purpose: TrialPurpose, start: int) -> NDArray[Any]:
        try:
            outputs = np.asarray(raw := detached(raw))
        except ValueError as error:
            raise ValueError(f"outputs must have one shape, got several in {self._where(purpose)}: {error}") from None
        if outputs.dtype.kind == "O":
            outputs = _missing_as_nan(outputs)
        if outputs.dtype.kind not in "biufUS":
            odd = next((type(value).__name__ for value in np.ravel(outputs)), "nothing")
            raise ValueError(f"outputs must be numbers or strings, got {odd} in {self._where(purpose)}")
        if outputs.dtype.kind == "f" and isinstance(raw, list):
            refuse_lost(f"outputs in {self._where(purpose)}", raw)
        if self.batched and (outputs.ndim == 0 or len(outputs) != n):
            raise ValueError(
                f"a batched mechanism must return one row per trial, got shape {outputs.shape} for {n} trials "
                f"in {self._where(purpose)}, from trial {start}"
            )
        return outputs

    def _check(self, outputs: NDArray[Any], purpose: TrialPurpose, start: int) -> None:
        if outputs.shape[1:] != self.shape or (outputs.dtype.kind in "US") != self.text:
            kind = "strings" if self.text else "numbers"
            raise ValueError(
                f"all outputs must be {kind} of shape {self.shape}, got {outputs.dtype} of {outputs.shape[1:]} "
                f"in {self._where(purpose)}, from trial {start}"
            )
        if outputs.size == 0:
            raise ValueError(f"outputs must not be empty, got shape {self.shape} in {self._where(purpose)}")

    def _where(self, purpose: TrialPurpose) -> str:
        return f"the {_PHRASES[purpose]} on input {self.arm} ({self.input})"


def coins(seed: int, event: str) -> np.random.Generator:
    """Return the generator of the fair coins that choose the inputs of the trials in which an ``event`` is counted. The
    generator depends on the event, because otherwise the same input would have more trials in all audits of a seed.
    """
    key = (TrialPurpose.COINS, crc32(event.encode()))
    return np.random.Generator(np.random.Philox(np.random.SeedSequence(seed, spawn_key=key)))


def open_stream(mechanism: Mechanism, x: Any, *, arm: int, pair: int, seed: int, batched: bool) -> Stream:
    """Return a source of independent trials of the mechanism on input ``x``; a few runs of the mechanism first
    determine the outputs' shape.

    Raises ValueError for outputs that cannot be audited, and for a batched mechanism whose trials are not
    independent: one noise for all rows of a call or most of one, or the same noise at every call. So is a mechanism
    that keeps state between calls.
    """
    if batched and np.asarray(x).dtype.kind not in "biufcUS":
        raise ValueError(f"inputs of a batched mechanism must be arrays of numbers or strings, got {shortened(x)}")
    if batched or isinstance(x, np.ndarray):
        x = _frozen(x)
    stream = Stream(mechanism=mechanism, x=x, arm=arm, pair=pair, seed=seed, batched=batched)
    n = min(_GUARD, stream.chunk) if batched else _FEW
    given = _rows(x, n) if batched else None
    first = stream._outputs(TrialPurpose.GUARD, 0, n, 0, given)
    stream = replace(stream, shape=first.shape[1:], text=first.dtype.kind in "US")
    stream._check(first, TrialPurpose.GUARD, 0)
    _check_state(first, stream._outputs(TrialPurpose.GUARD, 0, n, 0, given), stream)
    if batched:
        second = stream._outputs(TrialPurpose.GUARD, 1, n, n, given)
        stream._check(second, TrialPurpose.GUARD, n)
        # Dependent rows would count one noise draw as many trials, which voids the bound.
        _check_noise(first, second)
        _check_calls(stream)
    return stream


def _check_state(first: NDArray[Any], again: NDArray[Any], stream: Stream) -> None:
    """Refuse a mechanism whose answer depends on more than its input and generator; a correct one never is."""
    if first.shape != again.shape or not np.array_equal(first, again, equal_nan=not stream.text):
        raise ValueError(
            f"{UNSEEDED} on input {stream.arm} ({stream.input}): "
            "the mechanism keeps state between calls, or does not draw all its noise from the rng that it gets, so "
            "its trials are not independent and no bound would hold"
        )


def _missing_as_nan(outputs: NDArray[Any]) -> NDArray[Any]:
    """Outputs with NaN for None, where all others are numbers; None alone is no output but a forgotten return."""
    flat = outputs.ravel().tolist()
    kept = [value for value in flat if value is not None]
    if not 0 < len(kept) < len(flat) or not all(isinstance(value, bool | int | float | np.number) for value in kept):
        return outputs
    refuse_lost("outputs", kept)
    return np.array([np.nan if value is None else float(value) for value in flat]).reshape(outputs.shape)


def _check_noise(first: NDArray[Any], second: NDArray[Any]) -> None:
    """Refuse noise shared by one call or by all calls.

    With calls of 64 trials or more, a correct mechanism is refused with chance 2^-127 or 1e-18 at most.
    """
    unlike = ~_equal_rows(first)
    same = _equal(second, second[0])
    if not unlike.any() and same and not _equal(first[0], second[0]):
        raise ValueError(
            f"all {len(first)} rows that one call returned are equal, while another call returned different ones: a "
            "batched mechanism must draw independent noise for each row of x"
        )
    if np.count_nonzero(unlike) >= _UNLIKE and _equal(first, second):
        raise ValueError(
            f"two calls returned the same {len(first)} outputs, although the rows of one call differ: a batched "
            "mechanism must draw all its noise from the rng that it gets"
        )


def _equal(one: NDArray[Any], other: NDArray[Any]) -> bool:
    return bool(np.array_equal(one, np.broadcast_to(other, one.shape), equal_nan=one.dtype.kind == "f"))


def _equal_rows(rows: NDArray[Any]) -> NDArray[np.bool_]:
    """Whether each row equals the first; NaN equals NaN."""
    same = rows == rows[0]
    if rows.dtype.kind == "f":
        same |= np.isnan(rows) & np.isnan(rows[0])
    return np.asarray(same.reshape(len(rows), -1).all(axis=1))


def _check_calls(stream: Stream) -> None:
    """Refuse rows of one call that depend on each other.

    A correct mechanism is refused with chance 1e-9 at most where the F distribution is exact. Where ties make it rough
    the chance is 1e-5 per series, hence two series, and 1e-10 per coordinate.
    """
    if stream.text:
        return
    worst = dependence(lambda series: _small_calls(stream, series), _LEVEL)
    if worst is not None:
        raise ValueError(
            f"the outputs of one call depend on each other (p-value {worst:.1g} over {_CALLS} calls of {_ROWS} rows "
            "on input "
            f"{stream.arm}, {stream.input}): a batched mechanism must draw all of its noise in the shape of x"
        )


def _small_calls(stream: Stream, series: int) -> NDArray[Any]:
    given, drawn = _rows(stream.x, _ROWS), []
    # Numbers 0 and 1 belong to the two large guard calls; reusing them would repeat their noise.
    for number in range(2 + series * _CALLS, 2 + (series + 1) * _CALLS):
        start = 2 * min(_GUARD, stream.chunk) + (number - 2) * _ROWS
        drawn.append(stream._outputs(TrialPurpose.GUARD, number, _ROWS, start, given))
        stream._check(drawn[-1], TrialPurpose.GUARD, start)
    return np.stack(drawn)


def _frozen(x: Any) -> NDArray[Any]:
    array = np.array(x)
    array.flags.writeable = False
    return array


def _rows(x: NDArray[Any], n: int) -> NDArray[Any]:
    """``n`` rows of one input, read-only: a mechanism that writes into its input would change later trials."""
    rows = np.repeat(np.asarray(x)[np.newaxis], n, axis=0)
    rows.flags.writeable = False
    return rows
