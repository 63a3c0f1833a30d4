"""Audits any callable mechanism, of another library or of one's own C++, with random generators of its own or with
global ones.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..audit.claim import Claim
from ..audit.finding import Finding
from ..audit.mechanism.mechanism import DEFAULT_TRIALS, audit_mechanism, audit_outputs
from ..audit.mechanism.trial_stream import UNSEEDED
from ..audit.supplied.given import check_whole, detached
from ..fl.streams import seeded

_BATCH = 200
"""Trials of noise that is not seeded that one call makes."""
_UNLIKE = 20
"""Rows of a batch that differ, from which on two equal batches are no chance: by 2^-20 or less, and mostly far less."""


@dataclass(frozen=True, kw_only=True)
class Function:
    """A mechanism ``call(x)`` with its own random generators, in a form that an audit can repeat.

    Example::

        mechanism = Function(call=library.randomise, reseed=library.seed)
        print(mechanism.audit(Claim.stated(1.0, unit="report", adjacency="replace_one"), inputs=(0.0, 1.0)).line())

    Args:
        call: ``call(x)`` -> a number, string or array; with ``batched``, x and the result have one row per trial.
        reseed: ``reseed(seed)`` seeds generators of the mechanism's own before every call; None where it draws from the
            global generators of Python, NumPy and PyTorch, which are seeded and restored in any case.
        batched: whether one call makes many trials; advised where the mechanism can, because seeding all generators
            takes about 0.6 ms a call.
        seedable: False for a source of noise that cannot be seeded, such as the operating system's. Its trials are
            independent by themselves, and no two of them can be compared under equal noise.
    """

    call: Callable[[Any], Any]
    reseed: Callable[[int], object] | None = None
    batched: bool = False
    seedable: bool = True

    def __post_init__(self) -> None:
        if not callable(self.call):
            raise TypeError(f"call must be a function call(x), got {self.call!r}")

    def mechanism(self, x: Any, rng: np.random.Generator) -> Any:
        """Call the mechanism with all generators seeded from ``rng``. This method has the form of a mechanism that
        ``audit_mechanism`` takes.
        """
        return self._seeded(x, int(rng.integers(2**32)))

    def audit(
        self, claim: Claim, *, inputs: tuple[Any, Any], trials: int = DEFAULT_TRIALS, seed: int = 0, alpha: float = 0.05
    ) -> Finding:
        """Judge a privacy claim by ``trials`` runs of the mechanism on each of two neighbouring inputs.

        The trials are streamed (``audit_mechanism``, which learns an event on runs of its own). Those of noise that
        cannot be seeded are made first, and every second one is counted (``audit_outputs``).

        Raises ValueError for noise that repeats in trials of different seeds, for noise that does not repeat under one
        seed unless ``seedable`` is False, for batches of trials with equal noise, and as these two functions.
        """
        check_whole("trials", trials, least=8)
        if not self.seedable:
            if self.batched and trials <= _BATCH:
                # Few trials are one batch of each input, which could not be compared.
                _check_batches([self._batch(inputs[0], _BATCH) for _ in range(2)])
            out, within = (self.unseeded_outputs(x, trials) for x in inputs)
            return audit_outputs(out, within, claim, inputs=inputs, alpha=alpha)
        try:
            return audit_mechanism(
                self.mechanism, claim, inputs=inputs, trials=trials, seed=seed, alpha=alpha, batched=self.batched
            )
        except ValueError as error:
            if not str(error).startswith(UNSEEDED):
                raise
            raise ValueError(
                f"{error}. Give reseed= for generators of the mechanism's own, or seedable=False for noise that "
                "cannot be seeded, such as SystemRandom's"
            ) from None

    def unseeded_outputs(self, x: Any, trials: int) -> NDArray[Any]:
        """Return the outputs of trials on one input whose noise is not seeded, ``(trials, ...)``."""
        batches = [self._batch(x, min(_BATCH, trials - start)) for start in range(0, trials, _BATCH)]
        if self.batched:
            _check_batches(batches)
        return np.concatenate(batches)

    def _batch(self, x: Any, size: int) -> NDArray[Any]:
        if self.batched:
            rows = np.repeat(np.asarray(x)[np.newaxis], size, axis=0)
            return np.asarray(detached(_of_one_kind(self.call(rows))))
        return np.stack([np.asarray(detached(_of_one_kind(self.call(x)))) for _ in range(size)])

    def _seeded(self, x: Any, word: int) -> Any:
        with seeded(word):
            if self.reseed is not None:
                self.reseed(word)
            return _of_one_kind(self.call(x))


def _of_one_kind(output: Any) -> Any:
    """Refuse a list of texts and numbers, whose numbers NumPy would silently turn into texts."""
    if isinstance(output, list | tuple) and len({isinstance(one, str) for one in output}) > 1:
        raise ValueError(
            f"an output must be numbers or a string, got a {type(output).__name__} that holds both: {output!r}"
        )
    return output


def _check_batches(batches: Sequence[NDArray[Any]]) -> None:
    """Refuse a batched mechanism that draws the same noise at two calls; batches of few different rows may be equal."""
    seen: set[bytes] = set()
    for rows in batches:
        if (data := rows.tobytes()) in seen and np.count_nonzero(~_as_first(rows)) >= _UNLIKE:
            raise ValueError(
                f"two calls returned the same {len(rows)} outputs, although outputs within a call differ: the "
                "mechanism repeats its noise"
            )
        seen.add(data)


def _as_first(rows: NDArray[Any]) -> NDArray[np.bool_]:
    # NaN is the only value that differs from itself.
    same = (rows == rows[0]) | ((rows != rows) & (rows[0] != rows[0]))
    return np.asarray(same.reshape(len(rows), -1).all(axis=1))
