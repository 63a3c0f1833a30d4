"""Audits any callable mechanism: of another library, of one's own C++, with its own or with global generators."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..audit.claim import Claim
from ..audit.finding import Finding
from ..audit.mechanism.mechanism import DEFAULT_TRIALS, audit_mechanism, audit_outputs
from ..audit.supplied.given import check_whole, detached
from ..fl.streams import seeded

_BATCH = 200
"""Trials that one task of a process makes, and that one file of a checkpoint holds."""
_UNLIKE = 20
"""Rows of a batch that differ, from which on two equal batches are no chance: by 2^-20 or less, and mostly far less."""
_UNSEEDED = "the same calls with the same generator returned other outputs"


@dataclass(frozen=True, kw_only=True)
class Function:
    """A mechanism ``call(x)`` that draws its noise where it likes, as one that an audit can repeat.

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
        """Call the mechanism with all generators seeded from ``rng``; the form that ``audit_mechanism`` takes."""
        return self._seeded(x, int(rng.integers(2**32)))

    def audit(
        self,
        claim: Claim,
        *,
        inputs: tuple[Any, Any],
        trials: int = DEFAULT_TRIALS,
        seed: int = 0,
        alpha: float = 0.05,
        jobs: int = 1,
        checkpoint: Path | str | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> Finding:
        """Judge a claim by ``trials`` runs on each of two neighbouring inputs.

        In one process and without a checkpoint the trials are streamed (``audit_mechanism``, which learns an event on
        runs of its own). With ``jobs`` processes, a ``checkpoint`` folder, or noise that cannot be seeded, the outputs
        are made first, and every second one is counted (``audit_outputs``).

        Raises ValueError for noise that repeats in trials of different seeds, for noise that does not repeat under one
        seed unless ``seedable`` is False, for batches of trials with equal noise, and as these two functions.
        """
        check_whole("jobs", jobs, least=1)
        check_whole("trials", trials, least=8)
        if jobs == 1 and checkpoint is None and progress is None and self.seedable:
            settings = {"trials": trials, "seed": seed, "alpha": alpha, "batched": self.batched}
            try:
                return audit_mechanism(self.mechanism, claim, inputs=inputs, **settings)  # type: ignore[arg-type]
            except ValueError as error:
                if not str(error).startswith(_UNSEEDED):
                    raise
                raise ValueError(
                    f"{error}. Give reseed= for generators of the mechanism's own, or seedable=False for noise that "
                    "cannot be seeded, such as SystemRandom's"
                ) from None
        if self.batched and not self.seedable and trials <= _BATCH:
            # Few trials are one batch of each input, which could not be compared.
            _check_batches([self._batch(inputs[0], 0, _BATCH, seed, 0)[1] for _ in range(2)])
        folder = None if checkpoint is None else Path(checkpoint)
        out, within = (
            self.outputs(x, trials, seed=seed, arm=arm, jobs=jobs, folder=folder, progress=progress)
            for arm, x in enumerate(inputs)
        )
        return audit_outputs(out, within, claim, inputs=inputs, alpha=alpha)

    def outputs(
        self,
        x: Any,
        trials: int,
        *,
        seed: int = 0,
        arm: int = 0,
        jobs: int = 1,
        folder: Path | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> NDArray[Any]:
        """Return the outputs of independent trials on one input, ``(trials, ...)``.

        ``arm``: number of the input, so that two inputs share no noise. ``folder``: keeps finished batches of trials,
        and those that it already holds are not made again; it must be of this mechanism, input and seed.
        """
        sizes = [min(_BATCH, trials - start) for start in range(0, trials, _BATCH)]
        base = None if folder is None else folder / f"input{arm}"
        paths = [None if base is None else base / f"seed{seed}-{number:05d}.npy" for number in range(len(sizes))]
        missing = [n for n, path in enumerate(paths) if path is None or not _holds(path, sizes[n])]
        made: dict[int, NDArray[Any]] = {}
        for number, outputs in self._made(x, missing, sizes, seed, arm, jobs):
            if (path := paths[number]) is None:
                made[number] = outputs
            else:
                _write(path, outputs)
            if progress is not None:
                progress(sum(sizes) - sum(sizes[n] for n in missing if n > number), trials)
        parts = [made[n] if n in made else _read(path) for n, path in enumerate(paths)]
        if self.batched and not self.seedable:
            _check_batches(parts)
        return np.concatenate(parts)

    def _made(
        self, x: Any, missing: Sequence[int], sizes: Sequence[int], seed: int, arm: int, jobs: int
    ) -> Iterator[tuple[int, NDArray[Any]]]:
        if jobs == 1 or len(missing) < 2:
            yield from (self._batch(x, number, sizes[number], seed, arm) for number in missing)
            return
        from joblib import Parallel, delayed  # Lazy: trials in one process do not need it.

        tasks = (delayed(self._batch)(x, number, sizes[number], seed, arm) for number in missing)
        yield from Parallel(n_jobs=jobs, return_as="generator")(tasks)

    def _batch(self, x: Any, number: int, size: int, seed: int, arm: int) -> tuple[int, NDArray[Any]]:
        words = np.random.SeedSequence(seed, spawn_key=(arm, number)).generate_state(size + 1)
        if self.batched:
            rows = np.repeat(np.asarray(x)[np.newaxis], size, axis=0)
            return number, np.asarray(detached(self._seeded(rows, int(words[0]))))
        return number, np.stack([np.asarray(detached(self._seeded(x, int(word)))) for word in words[:size]])

    def _seeded(self, x: Any, word: int) -> Any:
        if not self.seedable:
            return _of_one_kind(self.call(x))
        with seeded(word):
            if self.reseed is not None:
                self.reseed(word)
            return _of_one_kind(self.call(x))


def _of_one_kind(output: Any) -> Any:
    """Refuse a list of texts and numbers, whose numbers NumPy would silently turn into texts."""
    if isinstance(output, list | tuple) and len({isinstance(one, str) for one in output}) > 1:
        raise ValueError(f"an output must be numbers or a string, got a {type(output).__name__} of both: {output!r}")
    return output


def _check_batches(batches: Sequence[NDArray[Any]]) -> None:
    """Refuse a batched mechanism that draws the same noise at two calls; batches of few different rows may be equal."""
    seen: set[bytes] = set()
    for rows in batches:
        if (data := rows.tobytes()) in seen and np.count_nonzero(~_as_first(rows)) >= _UNLIKE:
            raise ValueError(
                f"two calls returned the same {len(rows)} outputs, which differ by row: the mechanism repeats its noise"
            )
        seen.add(data)


def _as_first(rows: NDArray[Any]) -> NDArray[np.bool_]:
    # NaN is the only value that differs from itself.
    same = (rows == rows[0]) | ((rows != rows) & (rows[0] != rows[0]))
    return np.asarray(same.reshape(len(rows), -1).all(axis=1))


def _holds(path: Path, size: int) -> bool:
    return path.exists() and len(np.load(path, allow_pickle=False)) == size


def _read(path: Path | None) -> NDArray[Any]:
    assert path is not None
    return np.asarray(np.load(path, allow_pickle=False))


def _write(path: Path, outputs: NDArray[Any]) -> None:
    """Write to a temporary file and rename it, so that a killed audit leaves no partial batch."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial.npy")
    np.save(partial, outputs, allow_pickle=False)
    partial.replace(path)
