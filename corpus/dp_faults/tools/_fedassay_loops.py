"""How fedassay watches the loops of the corpus: a LoopWatch takes what a loop hands over."""

from typing import Any

import numpy as np
import torch
from fedassay.adapters.loop_system import Loop

from dp_faults import Subject
from dp_faults.unwatched import Unwatched

from ._fedassay_parts import failed, setting, too_small


def loop(subject: Subject, part: Any, seed: int) -> str:
    """Watch a loop; the data are handed over record by record, so that the watch can exchange them."""
    like = subject.neighbours[0]
    stated = {name: part[name] for name in ("noise_multiplier", "clip_norm", "rate", "steps")}

    def train(data: Any, watch: Any) -> Any:
        record, records = _Record(watch), [data[one] for one in range(len(data))]
        held = tuple(map(_stacked, zip(*records, strict=True))) if isinstance(like, tuple) else _stacked(records)
        part["train"](held, np.random.default_rng(np.random.randint(2**31)), record)  # noqa: NPY002
        return record.synced()

    plan = _Plan(stated["noise_multiplier"])
    part["train"](like, np.random.default_rng(seed), plan)
    if len(set(plan.noise)) > 1:
        stated["noise_multiplier"] = plan.noise
    data = list(zip(*like, strict=True)) if isinstance(like, tuple) else like
    found = Loop(train, data, delta=subject.program.claim.delta, **stated, **setting(subject))
    return failed(found, seed) or too_small(subject, found.claim.epsilon)


class _Plan(Unwatched):
    """The noise multipliers that a loop states for its steps."""

    def __init__(self, of_all: float) -> None:
        self._of_all = of_all
        self.noise: list[float] = []

    def release(self, total: Any, noised: Any, **of_step: Any) -> Any:
        self.noise.append(of_step.get("noise_multiplier", self._of_all))
        return noised


class _Record:
    """What a loop of the corpus receives: a LoopWatch, with a module that holds the tensors as they are now.

    The first tensors, as many as the gradients have numbers for, are trained; others are buffers.
    """

    def __init__(self, watch: Any) -> None:
        self._watch = watch
        self._made: Any = None

    def model(self, tensors: Any) -> None:
        self._tensors = tensors

    def _begin(self, numbers: int) -> Any:
        self._module, taken = torch.nn.Module(), 0
        for name, one in self._tensors.items():
            held = _tensor(one)
            if taken < numbers:
                self._module.register_parameter(name, torch.nn.Parameter(held))
            else:
                self._module.register_buffer(name, held)
            taken += held.numel()
        return self._watch(self._module)

    def synced(self) -> Any:
        for name, one in self._module.state_dict(keep_vars=True).items():
            one.data.copy_(_tensor(self._tensors[name]))
        return self._module

    def lot(self, indices: Any, rows: Any) -> None:
        self._made = self._made or self._begin(rows.shape[1])
        self.synced()
        self._made.lot(indices, rows)

    def release(self, total: Any, noised: Any, *, noise_multiplier: Any = None, **of_step: Any) -> Any:
        self._made = self._made or self._begin(len(total))
        self.synced()
        return self._made.release(total, noised, **of_step)


def _tensor(values: Any) -> Any:
    return torch.as_tensor(values).detach().clone().to(torch.float64)


def _stacked(records: Any) -> Any:
    if isinstance(records[0], np.ndarray | np.generic):
        return np.stack(records)
    return torch.stack(records)
