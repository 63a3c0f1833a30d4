"""Seeds the global random generators around a call of a user's own code, and restores them afterwards."""

import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seed the global generators of Python, NumPy and PyTorch inside the context, and restore them afterwards.

    ``seed`` is in [0, 2**32). Generators of GPUs are seeded too, and restored where a GPU is in use before.
    """
    python, legacy = random.getstate(), np.random.get_state()  # noqa: NPY002
    gpus = list(range(torch.cuda.device_count())) if torch.cuda.is_initialized() else []  # type: ignore[no-untyped-call]
    with torch.random.fork_rng(devices=gpus):
        try:
            random.seed(seed)
            np.random.seed(seed)  # noqa: NPY002
            _seed_torch(seed)
            yield
        finally:
            random.setstate(python)
            np.random.set_state(legacy)  # noqa: NPY002


def _seed_torch(seed: int) -> None:
    if torch.accelerator.is_available():
        torch.manual_seed(seed)
    else:
        # torch.manual_seed would write down the whole call stack each time, for GPUs that might be set up later.
        torch.default_generator.manual_seed(seed)


def global_states() -> dict[str, bytes]:
    """Return the state of the global generators of Python, NumPy and PyTorch, each as bytes that can be compared."""
    return {
        "Python": repr(random.getstate()).encode(),
        "NumPy": _bytes(np.random.get_state()),  # noqa: NPY002
        "PyTorch": torch.get_rng_state().numpy().tobytes(),
    }


def _bytes(state: object) -> bytes:
    """NumPy's legacy state: its key array, the position in it, and a cached normal number."""
    assert isinstance(state, tuple)
    return np.asarray(state[1]).tobytes() + repr(state[2:]).encode()
