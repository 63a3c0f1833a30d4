"""Save the state of a long training, so that an interrupted run can continue it.

It holds plain numbers and JSON in one npz file, nothing pickled. Random streams are addressed by round, so that no
generator has to be saved.
"""

import json
import time
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...audit.output_file import parsed_json
from ...fl.engine import ResumeState
from ...fl.plan import Plan
from ..results.store import Store

SCHEMA = "checkpoint-2"
EVERY_S = 180.0
"""CPU seconds between two checkpoints."""
_NAME, _HEADER = "checkpoint", "header"


@dataclass(frozen=True, kw_only=True)
class LoadedCheckpoint:
    """The content of a checkpoint file: the federation's state, the data recorded during training, and the seconds of
    training so far.
    """

    resume_state: ResumeState
    recorded: Any
    cpu_s: float
    wall_s: float


@dataclass(kw_only=True)
class Checkpoint:
    """A file that holds the latest saved state of one training, so that an interrupted run can continue it."""

    store: Store
    cell_id: str
    _written: float = field(default_factory=time.process_time)
    _possible: bool = True

    def save_if_due(self, resume_state: ResumeState, *, recorded: Any, cpu_s: float, wall_s: float) -> None:
        """Save the training's state if enough time has passed since the last save.

        A federation with a state that is not plain data has no checkpoints: a later session trains it from the start.
        """
        # CPU time and not wall time: a paused or starved process has computed nothing that is worth saving.
        if not self._possible or time.process_time() - self._written < EVERY_S:
            return
        tensors: list[Tensor] = []
        try:
            state = resume_state
            whole = [state.round, state.model, state.state, state.shared, state.kept, recorded]
            content = _encoded(whole, tensors)
        except TypeError:
            self._possible = False
            return
        header = {"schema": SCHEMA, "cell_id": self.cell_id, "cpu_s": cpu_s, "wall_s": wall_s, "content": content}
        arrays = {f"tensor{number}": tensor.detach().numpy() for number, tensor in enumerate(tensors)}
        text = np.frombuffer(json.dumps(header).encode(), dtype=np.uint8)
        self.store.save_arrays(self.cell_id, _NAME, {_HEADER: text, **arrays})
        self._written = time.process_time()

    def load(self, plan: Plan) -> LoadedCheckpoint | None:
        """Load the checkpoint that an interrupted run left. Return None if there is none; if it is damaged or belongs
        to another training, issue a warning and return None too.
        """
        path = self.store.cell_folder(self.cell_id) / f"{_NAME}.npz"
        if not path.exists():
            return None
        try:
            found = self._read(self.store.load_arrays(f"cells/{self.cell_id}/{_NAME}.npz"))
            # The header names the cell, but the arrays may still be damaged.
            found.resume_state.check(plan.rounds, torch.empty(1, plan.layout.dim))
            return found
        except (ValueError, KeyError, TypeError, OSError) as error:
            warnings.warn(
                f"the checkpoint {path} is not used, and the training starts again from its first round: {error}",
                RuntimeWarning,
                stacklevel=2,
            )
            return None

    def discard(self) -> None:
        """Delete the checkpoint; call this when its training is finished."""
        self.store.discard(self.cell_id, f"{_NAME}.npz")

    def _read(self, arrays: Mapping[str, np.ndarray]) -> LoadedCheckpoint:
        header = parsed_json(arrays[_HEADER].tobytes())
        if header["schema"] != SCHEMA or header["cell_id"] != self.cell_id:
            raise ValueError(
                f"a checkpoint must have schema {SCHEMA} and cell id {self.cell_id}, got "
                f"{header['schema']} and {header['cell_id']}"
            )
        number, model, state, shared, kept, recorded = _decoded(header["content"], arrays)
        resume_state = ResumeState(round=number, model=model, state=state, shared=shared, kept=kept)
        return LoadedCheckpoint(
            resume_state=resume_state, recorded=recorded, cpu_s=header["cpu_s"], wall_s=header["wall_s"]
        )


def _encoded(value: Any, tensors: list[Tensor]) -> Any:
    """The value as JSON, with each tensor replaced by its index in ``tensors``, to which it is appended.

    Raises:
        TypeError: for anything that is not plain data.
    """
    if isinstance(value, Tensor):
        # Tensors stay binary: as JSON numbers they would be several times as large.
        tensors.append(value)
        return {"tensor": len(tensors) - 1}
    if isinstance(value, Mapping):
        # Pairs instead of a JSON object, whose keys would be strings: the keys here may be clients' numbers.
        return {"map": [[_encoded(key, tensors), _encoded(item, tensors)] for key, item in value.items()]}
    if isinstance(value, list | tuple):
        return {"tuple" if isinstance(value, tuple) else "list": [_encoded(item, tensors) for item in value]}
    if value is None or type(value) in (bool, int, float, str):
        return value
    raise TypeError(
        f"a checkpoint can hold only numbers, texts, lists, dictionaries and arrays, got {type(value).__name__}"
    )


def _decoded(value: Any, arrays: Mapping[str, np.ndarray]) -> Any:
    if not isinstance(value, dict):
        return value
    ((kind, held),) = value.items()
    if kind == "tensor":
        # A copy, because from_numpy shares the array's memory, and training may write into its state.
        return torch.from_numpy(arrays[f"tensor{held}"].copy())
    if kind == "map":
        return {_decoded(key, arrays): _decoded(item, arrays) for key, item in held}
    items = [_decoded(item, arrays) for item in held]
    return tuple(items) if kind == "tuple" else items
