"""Independent random generators, each named by what it draws, the run, the round, the client and the step.

The name is (seed, purpose, replicate, arm, round, client, step).

A stream is named by its purpose, never by the order of the draws: adding a client, a round or a defense changes no
other stream, and two defenses can be compared on the same data, initial model and cohorts. The name is hashed (BLAKE2b,
128 bits) into the key of a counter-based Philox generator (Salmon et al. 2011), so that among n names two share a
stream with probability about n**2 / 2**129.

Torch's generators are not used: on the CPU `torch.Generator.manual_seed` keeps only the low 32 bits of its seed
(mt19937). Among a million such streams about a hundred pairs would have the same noise, and an audit's trials would no
longer be independent.

Code of users that draws from the global generators is seeded around each call, and they are restored afterwards.
"""

import hashlib
import marshal
import operator
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial
from typing import TYPE_CHECKING

import numpy as np
from numpy.random.bit_generator import ISeedSequence
from numpy.typing import NDArray

if TYPE_CHECKING:  # Audits of functions seed generators, and need no torch.
    import torch

_NUMPY_DTYPES: dict[str, type[np.float32] | type[np.float64]] = {
    "None": np.float32,
    "torch.float32": np.float32,
    "torch.float64": np.float64,
}
_FIELDS = ("seed", "replicate", "arm", "round", "client", "step")


@dataclass(frozen=True)
class Streams:
    """The source of all random generators of one experiment, derived from one seed.

    seed: any integer >= 0; all its bits count. Raises ValueError if it is negative, TypeError if it is not an integer.
    """

    seed: int

    def __post_init__(self) -> None:
        _index("seed", self.seed)

    def generator(
        self, purpose: str, *, replicate: int = 0, arm: int = 0, round: int = 0, client: int = 0, step: int = 0
    ) -> np.random.Generator:
        """Return a fresh generator at the start of the named stream; the same name always gives the same draws.

        purpose: what is drawn ("init", "cohort", "noise", ...). The numbers are integers >= 0; 0 also means "none in
        particular". The raw bits depend on neither the process, the Python version nor Python's hash. How a
        distribution turns bits into numbers is numpy's choice and may change between its releases (NEP 19). Raises
        ValueError for an empty purpose or a negative number, TypeError for a number that is not an integer.
        """
        if not purpose:
            raise ValueError("purpose must name what is drawn, got an empty string")
        numbers = (self.seed, replicate, arm, round, client, step)
        for field, number in zip(_FIELDS, numbers, strict=True):
            if type(number) is not int or number < 0:
                _index(field, number)
        # Decimal numbers first, free text last: no two names have the same encoding, whatever the purpose holds.
        name = ":".join([*(str(operator.index(number)) for number in numbers), purpose])
        # `person` keeps these keys apart from any other use of BLAKE2b on the same text.
        digest = hashlib.blake2b(name.encode(), digest_size=16, person=b"fedassay.streams").digest()
        # Numpy documents this type of seed, and its stubs leave it out.
        return np.random.Generator(np.random.Philox(_Key(digest)))  # type: ignore[arg-type]


@dataclass(frozen=True, kw_only=True, eq=False)
class Runs:
    """A batch of replicas (independent runs of a federation) that are computed together.

    Args:
        replicas: their number R, the first dimension of every tensor.
        block: number of this batch. It is part of every stream's name, so that no two batches share a draw.
        arm: 1 with the canary, 0 without it.
    """

    replicas: int = 1
    block: int = 0
    arm: int = 0

    def __post_init__(self) -> None:
        if self.replicas < 1 or self.block < 0 or self.arm not in (0, 1):
            raise ValueError(
                "replicas must be >= 1, block >= 0 and arm 0 or 1 (without or with the canary), "
                f"got {self.replicas}, {self.block} and {self.arm}"
            )

    def draws(self, streams: Streams) -> Callable[..., np.random.Generator]:
        """Return a function that gives this batch's random generators by purpose, round, client and step."""
        return partial(streams.generator, replicate=self.block, arm=self.arm)


def row_generators(rng: np.random.Generator, rows: int) -> Iterator[np.random.Generator]:
    """Yield a generator for each of several rows; its key is drawn from ``rng``.

    The keys are drawn row after row: rows in blocks have the generators that all rows at once have, and how much one
    row draws changes the draws of no other row.
    """
    for key in rng.integers(0, 1 << 64, (rows, 2), dtype=np.uint64).astype("<u8"):
        yield np.random.Generator(np.random.Philox(_Key(key.tobytes())))  # type: ignore[arg-type]


class _Key(ISeedSequence):
    """A key of 128 bits for Philox: given as ``key=``, numpy would first gather entropy for a seed that it drops, which
    takes three times as long.
    """

    def __init__(self, digest: bytes) -> None:
        self.digest = digest

    def generate_state(self, n_words: int, dtype: object = np.uint64) -> NDArray[np.uint64]:
        """Return the key as two words of 64 bits, the lower one first."""
        return np.frombuffer(self.digest, dtype="<u8").astype(np.uint64)


def normal(rng: np.random.Generator, shape: tuple[int, ...], *, dtype: "torch.dtype | None" = None) -> "torch.Tensor":
    """Draw standard normal numbers as a tensor of the given shape on the CPU.

    dtype: torch.float32 (the default) or torch.float64, else ValueError.
    """
    import torch

    return torch.from_numpy(rng.standard_normal(tuple(shape), dtype=_numpy_dtype(dtype)))


def uniform(rng: np.random.Generator, shape: tuple[int, ...], *, dtype: "torch.dtype | None" = None) -> "torch.Tensor":
    """Draw uniform numbers in [0, 1) as a tensor of the given shape on the CPU.

    dtype: torch.float32 (the default) or torch.float64, else ValueError.
    """
    import torch

    return torch.from_numpy(rng.random(tuple(shape), dtype=_numpy_dtype(dtype)))


def _numpy_dtype(dtype: "torch.dtype | None") -> type[np.float32] | type[np.float64]:
    if str(dtype) not in _NUMPY_DTYPES:
        raise ValueError(f"dtype must be torch.float32 or torch.float64, got {dtype}")
    return _NUMPY_DTYPES[str(dtype)]


def _index(field: str, number: int) -> int:
    try:
        index = operator.index(number)
    except TypeError:
        raise TypeError(f"{field} must be an integer, got {number!r}") from None
    # A minus sign would be unambiguous too, but negative numbers only arise from mistakes.
    if index < 0:
        raise ValueError(f"{field} must be >= 0, got {index}")
    return index


@contextmanager
def seeded(seed: int | None) -> Iterator[None]:
    """Seed the global generators of Python, NumPy and PyTorch (where it is installed) inside the context, and restore
    their states afterwards.

    ``seed`` is in [0, 2**32); None leaves them as they are at the start. Generators of GPUs are seeded too, and
    restored where a GPU is in use before.
    """
    python, legacy = random.getstate(), np.random.get_state()  # noqa: NPY002
    with _seeded_torch(seed):
        try:
            if seed is not None:
                random.seed(seed)
                np.random.seed(seed)  # noqa: NPY002
            yield
        finally:
            random.setstate(python)
            np.random.set_state(legacy)  # noqa: NPY002


@contextmanager
def _seeded_torch(seed: int | None) -> Iterator[None]:
    if not _has_torch():
        yield
        return
    import torch

    gpus = list(range(torch.cuda.device_count())) if torch.cuda.is_initialized() else []  # type: ignore[no-untyped-call]
    with torch.random.fork_rng(devices=gpus):
        if seed is None:
            pass
        elif torch.accelerator.is_available():
            torch.manual_seed(seed)
        else:
            # torch.manual_seed would write down the whole call stack each time, for GPUs that might be set up later.
            torch.default_generator.manual_seed(seed)
        yield


@cache
def _has_torch() -> bool:
    try:
        import torch  # noqa: F401
    except ModuleNotFoundError:
        return False
    return True


def global_states() -> dict[str, bytes]:
    """Return the states of the global generators of Python, NumPy and PyTorch, each as bytes that can be compared."""
    import torch

    return {
        "Python": marshal.dumps(random.getstate()),
        "NumPy": _bytes(np.random.get_state()),  # noqa: NPY002
        "PyTorch": torch.get_rng_state().numpy().tobytes(),
    }


def _bytes(state: object) -> bytes:
    """NumPy's legacy state: its key array, the position in it, and a cached normal number."""
    assert isinstance(state, tuple)
    return np.asarray(state[1]).tobytes() + repr(state[2:]).encode()
