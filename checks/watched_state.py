"""Finds parameters and buffers of a model that change outside the noised releases."""

import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ..audit.check import MOVED, CheckResult
from ..audit.wording import listed
from ..fl.streams import seeded
from .training_record import Movement, Release, TrainingRecord, plain_name

_SIZES, _SAME = 3, 1e-4
"""Different sizes of lots, at least, that show whether a factor follows them, and relative rounding of factors."""


class Unseen:
    """A callable hook on a model that is left out of the model's copies and saved files."""

    def __init__(self, call: Callable[..., None]) -> None:
        # Compiled with a model, a hook is compiled anew for each state of the watch.
        compiling = "torch._dynamo" in sys.modules
        self._call = torch.compiler.disable(call) if compiling else call  # type: ignore[no-untyped-call]

    def __call__(self, *args: Any) -> None:
        """Call the hook."""
        self._call(*args)

    def __reduce__(self) -> tuple[Any, ...]:
        return (_no_hook, ())


def _no_hook() -> Callable[..., None]:
    return _nothing


def _nothing(*_: Any) -> None:
    pass


@dataclass(kw_only=True)
class StateWatch:
    """A watch on a model, which compares its numbers before and after each update.

    Args:
        model: whose parameters and buffers are compared.
        stepped: parameters that noised updates may move; all others must stay.
    """

    model: nn.Module
    stepped: frozenset[int]
    after: dict[str, Tensor] = field(default_factory=dict)
    found: dict[str, Movement] = field(default_factory=dict)
    inputs: tuple[Any, ...] | None = None
    start: dict[str, Tensor] = field(default_factory=dict)
    ends: dict[str, Tensor] = field(default_factory=dict)
    updates: int = 0

    def begin(self, *, aside: bool = False) -> None:
        """Remember the numbers at the start of the run, and the inputs of the first call from now on.

        ``aside``: the model is not the one that noised updates move: it may be trained in between, and on other inputs.
        """
        if not aside:
            self.model.register_forward_pre_hook(Unseen(self._keep))
        self.start = {name: one.detach().clone() for name, one in _numbers(self.model)}
        self.after, self.updates = ({}, 1) if aside else (self._parameters(), 0)

    def digest(self) -> int:
        """Return a hash of the current parameters and buffers of the model."""
        held = (*self.model.parameters(), *self.model.buffers())
        flat = [one.detach().cpu().contiguous().reshape(-1) for one in held]
        return hash(tuple(one.view(torch.uint8).numpy().tobytes() for one in flat))

    def before_update(self) -> None:
        """Compare the parameters with those after the last update, because nothing may change them between updates."""
        self.updates += 1
        self._compare()

    def _compare(self) -> None:
        for name, held in self._parameters().items():
            if name in self.after and not _equal(held, self.after[name]):
                self._note(name, "changed between two updates", by_data=False)

    def after_update(self) -> None:
        """Remember the parameters after an update."""
        self.after = self._parameters()

    def end(self) -> tuple[Movement, ...]:
        """Return everything that changed without noise, including parameters of no optimizer, and buffers that depend
        on the inputs.

        Parameters are left out where no update was seen.
        """
        if self.updates:
            self._compare()
        saved = saved_names(self.model)
        self.ends = {name: one.detach().clone() for name, one in _numbers(self.model) if name in saved}
        moved = {name for name, one in _numbers(self.model) if name in self.start and not _equal(one, self.start[name])}
        stepped = {name for name, one in self.model.named_parameters() if id(one) in self.stepped}
        parameters = {name for name, _ in self.model.named_parameters()}
        for name in sorted(moved & parameters - stepped) if self.updates else ():
            self._note(name, "changed, although no optimizer that adds noise updates it", by_data=False)
        depend = moved_by_inputs(self.model, self.inputs) if moved - parameters else frozenset()
        for name in sorted(moved - parameters):
            if name in depend:
                how = "changed, and depends on the inputs"
                loose = "" if name in saved else ", but is not saved with the model"
                self._note(name, how + loose, by_data=name in saved, owner=name.rpartition(".")[0])
        return tuple(self.found.values())

    def _keep(self, _: Any, inputs: tuple[Any, ...]) -> None:
        if self.inputs is None and any(isinstance(one, Tensor) and one.ndim and len(one) > 1 for one in inputs):
            self.inputs = tuple(one.detach().clone() if isinstance(one, Tensor) else one for one in inputs)

    def _parameters(self) -> dict[str, Tensor]:
        return {name: one.detach().clone() for name, one in self.model.named_parameters()}

    def _note(self, name: str, how: str, *, by_data: bool, owner: str | None = None) -> None:
        """``owner``: the layer of a buffer that follows the inputs."""
        given = dict[str, str]()
        if owner is not None:
            given["cause"] = f"{_layer(self.model, owner)} keeps numbers of the records that it is called on"
            of_norm = _is_batch_norm(self.model.get_submodule(owner))
            given["mend"] = "replace it by GroupNorm" if of_norm else "fix these numbers before the training"
        self.found.setdefault(name, Movement(name=name, how=how, by_data=by_data, **given))


def mixing_layers(model: nn.Module) -> tuple[str, ...]:
    """Return the layers that compute with all records of a batch, such as ``1 (BatchNorm1d)``."""
    return tuple(_layer(model, name) for name, one in model.named_modules() if _is_batch_norm(one))


def _is_batch_norm(layer: nn.Module) -> bool:
    return isinstance(layer, nn.modules.batchnorm._BatchNorm)


def _layer(model: nn.Module, name: str) -> str:
    return f"{plain_name(name) or 'the model'} ({type(model.get_submodule(name)).__name__})"


def moved_by_inputs(model: nn.Module, inputs: tuple[Any, ...] | None) -> frozenset[str]:
    """Return the names of buffers that differ after a call with other inputs, all else being equal.

    ``inputs``: arguments of one call of the model; tensors of numbers in them are changed. The model itself is called
    twice in training mode, and its state is restored.
    """
    if inputs is None:
        return frozenset()
    # Restored by hand: a model with hooks of a foreign library cannot always be copied.
    held = {name: one.detach().clone() for name, one in _numbers(model)}
    ends = []
    for changed in (inputs, tuple(_changed(one) for one in inputs)):
        try:
            with torch.no_grad(), seeded(0):
                model(*changed)
            ends.append({name: one.detach().clone() for name, one in _numbers(model)})
        finally:
            _restore(model, held)
    return frozenset(name for name in ends[0] if name in held and not _equal(ends[0][name], ends[1][name]))


def differing(one: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> frozenset[str]:
    """Return the names of the numbers that differ between the ends of two runs."""
    return frozenset(name for name in one if name not in other or not _equal(one[name], other[name]))


def saved_names(model: nn.Module) -> frozenset[str]:
    """Return the names of the parameters and buffers that a model's ``state_dict`` holds.

    Buffers that are not persistent, and tensors that are plain attributes, stay with the process that trains.
    """
    found = {name for name, _ in model.named_parameters()}
    for prefix, module in model.named_modules():
        kept = module._buffers.keys() - module._non_persistent_buffers_set
        found |= {f"{prefix}.{name}" if prefix else name for name in kept}
    return frozenset(found)


def _changed(value: Any) -> Any:
    if not isinstance(value, Tensor) or not value.is_floating_point():
        return value
    return 2 * value.flip(0) + 1


def _numbers(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Parameters, buffers, and tensors that modules hold as plain attributes."""
    yield from model.named_parameters()
    yield from model.named_buffers()
    for prefix, module in model.named_modules():
        for name, value in vars(module).items():
            if isinstance(value, Tensor):
                yield f"{prefix}.{name}" if prefix else name, value


def _restore(model: nn.Module, held: Mapping[str, Tensor]) -> None:
    places = dict(model.named_modules())
    for name, one in list(_numbers(model)):
        if name in held and not _equal(one, held[name]):
            prefix, _, last = name.rpartition(".")
            owner = places[prefix]
            if last in vars(owner):
                setattr(owner, last, held[name])
            else:
                with torch.no_grad():
                    one.copy_(held[name])


def _equal(one: Tensor, other: Tensor) -> bool:
    return one.shape == other.shape and bool(((one == other) | (one.isnan() & other.isnan())).all())


def divided_by_sizes(releases: Sequence[Release], factors: Sequence[float | None], *, certain: bool) -> list[Movement]:
    """Return whether updates are divided by the true sizes of their lots, which are not public.

    ``factors``: between each noised sum and its update; ``certain``: whether sizes are drawn at random.
    """
    pairs = zip(factors, (one.rows for one in releases), strict=True)
    known = [(factor, rows) for factor, rows in pairs if rows and factor and math.isfinite(factor)]
    sizes = {rows for _, rows in known}
    products = np.array([factor * rows for factor, rows in known])
    if len(sizes) < _SIZES or np.ptp(products) > _SAME * np.abs(products).max():
        return []
    how = (
        f"is divided by the number of records in its lot, as {len(known)} updates with {len(sizes)} different lot "
        "sizes show"
    )
    return [Movement(name="the noised sum", how=how, by_data=certain)]


def first_difference(first: TrainingRecord, other: TrainingRecord) -> tuple[str, str]:
    """Return where a run on other records, with the noised sums of the first, left its course, and what mends it."""
    for step, (one, again) in enumerate(zip(first.rates, other.rates, strict=False)):
        if one != again:
            rates = f"{again[0]:.4g} instead of {one[0]:.4g}" if one and again else "another one"
            words = f"on other records the learning rate of update {step} is {rates}"
            return words, "set learning rates by a fixed schedule, or by noised values"
    pairs = list(zip(first.held, other.held, strict=False))
    apart = [number for number, (one, again) in enumerate(pairs) if one != again]
    if not pairs or len(first.held) != len(other.held):
        return "", ""
    if not apart:
        return (
            "the model was the same until the last step, and after it the data changed it, or chose the checkpoint "
            "that is kept",
            "keep the last model as it is, or change and choose it by noised or public values",
        )
    if apart[0] == 0:
        return (
            "the model differs before the first noised sum, as where it was trained without noise, or initialised by "
            "records, before make_private",
            "train it before on public data only",
        )
    return (
        f"the model differs from step {apart[0]} on, so that something else than the noised sums follows the data",
        "let the model follow the noised sums alone",
    )


def movement_checks(recording: TrainingRecord) -> list[CheckResult]:
    """Check that only noised updates changed the model."""
    if recording.moved is None:
        reason = recording.remarks.get("state", "the model's state was not watched")
        return [MOVED.skipped(reason)]
    if not recording.moved:
        words = recording.remarks.get("moved", "no parameter and no buffer changed without noise")
        return [MOVED.passes(words)]
    certain = [one for one in recording.moved if one.by_data]
    shown = certain or list(recording.moved)
    words = "; ".join(_in_words(shown, how) for how in list(dict.fromkeys(one.how for one in shown))[:3])
    cause = next((one.cause for one in shown if one.cause), "")
    if certain:
        return [MOVED.failed(words, cause=cause, mend=next((one.mend for one in shown if one.mend), ""))]
    # An average of noised models, for one, is no fault.
    if any(one.how.startswith("changed") for one in shown):
        words += ": one run does not show whether noised numbers or the data caused this"
    return [MOVED.skipped(f"{words}; {cause}" if cause else words)]


def _in_words(moved: Sequence[Movement], how: str) -> str:
    """Everything that moved in one way, in one clause."""
    names = [plain_name(one.name) for one in moved if one.how == how]
    return f"{listed(names)} {how.replace('ends with', 'end with', 1) if len(names) > 1 else how}"
