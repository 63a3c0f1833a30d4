"""What fedassay looks at inside programs: loops and Opacus trainings are watched, epsilon is computed again.

Each look returns the first fault in words, and an empty string where it sees none.
"""

from importlib import import_module
from typing import Any

import numpy as np

from dp_faults import Subject

UNITS = {"record": "sample", "client": "client", "user": "user"}
ROUNDING = 0.01
"""Relative difference of two accountants that is no fault."""


def _setting(subject: Subject) -> dict[str, Any]:
    claim = subject.program.claim
    return {"unit": UNITS.get(claim.unit, "report"), "adjacency": claim.adjacency}


def _failed(system: Any, seed: int, **setting: Any) -> str:
    """The first check that fails in a watched run."""
    failed = system.watch(seed, **setting).failed
    return str(failed[0].words) if failed else ""


def _too_small(subject: Subject, implied: float) -> str:
    """Why the claimed epsilon is too small."""
    claimed = subject.program.claim.epsilon
    words = f"the stated law implies epsilon {implied:.4g}, and {claimed:.4g} is claimed"
    return words if implied > claimed * (1 + ROUNDING) else ""


def loop(subject: Subject, part: Any, seed: int) -> str:
    """Watch a loop; the data are handed over record by record, so that the watch can exchange them."""
    like, system = subject.neighbours[0], import_module("fedassay.adapters.loop_system").Loop
    stated = {name: part[name] for name in ("noise_multiplier", "clip_norm", "rate", "steps")}

    def train(data: Any, watch: Any) -> Any:
        record, records = _Record(watch), [data[one] for one in range(len(data))]
        held = tuple(map(_stacked, zip(*records, strict=True))) if isinstance(like, tuple) else _stacked(records)
        part["train"](held, np.random.default_rng(np.random.randint(2**31)), record)  # noqa: NPY002
        return record.synced()

    data = list(zip(*like, strict=True)) if isinstance(like, tuple) else like
    found = system(train, data, delta=subject.program.claim.delta, **stated, **_setting(subject))
    return _failed(found, seed) or _too_small(subject, found.claim.epsilon)


def opacus(subject: Subject, part: Any, seed: int) -> str:
    """Watch an Opacus training."""
    system = import_module("fedassay.adapters.opacus").Training
    found = system(part["build"], part["train"], subject.neighbours[0], delta=part["delta"], **_setting(subject))
    return _failed(found, seed) or _too_small(subject, found.claim.epsilon)


class _Record:
    """What a loop of the corpus receives: a LoopWatch, with a module that holds the trained tensors as they are."""

    def __init__(self, watch: Any) -> None:
        self._watch = watch

    def model(self, tensors: Any) -> None:
        nn, self._tensors = import_module("torch.nn"), tensors
        self._module = nn.Module()
        for name, one in tensors.items():
            self._module.register_parameter(name, nn.Parameter(_tensor(one)))
        self._made = self._watch(self._module)

    def synced(self) -> Any:
        for name, one in self._module.named_parameters():
            one.data.copy_(_tensor(self._tensors[name]))
        return self._module

    def lot(self, indices: Any, rows: Any) -> None:
        self.synced()
        self._made.lot(indices, rows)

    def release(self, total: Any, noised: Any) -> Any:
        self.synced()
        return self._made.release(total, noised)


def _tensor(values: Any) -> Any:
    torch = import_module("torch")
    return torch.as_tensor(values).detach().clone().to(torch.float64)


def _stacked(records: Any) -> Any:
    if isinstance(records[0], np.ndarray | np.generic):
        return np.stack(records)
    return import_module("torch").stack(records)


LOOKS = {"loop": loop, "opacus": opacus}
