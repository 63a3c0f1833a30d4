"""Yields what each sample of a batch contributes to every parameter's gradient, for any module, in bounded memory.

The module runs on one sample at a time, mapped over samples by ``torch.func.vmap``. Known layers (see ``layer_rules``)
record their inputs and their outputs' gradients; the gradients of their parameters stay products of these two. All
other parameters get a gradient per sample. Which parameters these are is found by tracing one sample: a parameter that
its module's forward method does not use alone (tied to another kind of layer, read by a parent) is among them.

A module that cannot be mapped runs in a loop over samples; the reason is reported once.
"""

import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Protocol
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.func import grad, vmap
from torch.nn.attention import SDPBackend, sdpa_kernel

from .contributions import Contribution, Factors, Rows, together
from .layer_rules import applied, contributions, is_known_layer

Block = dict[str, Contribution]
"""The contributions of some samples by parameter name; a parameter that the loss does not use is absent."""

# Numbers that the inputs, outputs and rows of the samples of one block may hold: a quarter of a GiB as floats.
_AT_ONCE = 2**26
_NOT_MAPPED: "WeakKeyDictionary[nn.Module, str]" = WeakKeyDictionary()


class LossOfOne(Protocol):
    """The loss of one sample as a function of the parameters by name and of the sample's tensors."""

    def __call__(self, layers: Mapping[str, Tensor], *case: Tensor) -> Tensor: ...


@dataclass(frozen=True, kw_only=True, eq=False)
class SampleLoss:
    """A module with the loss of one sample under it.

    Args:
        module: its parameters that require a gradient are the ones meant by ``layers``.
        loss: runs ``module`` on one sample, as a batch of one, and returns a number.
    """

    module: nn.Module
    loss: LossOfOne

    @cached_property
    def names(self) -> dict[int, str]:
        """The name of each trainable parameter by its identity; a tied parameter has one name."""
        return {id(value): name for name, value in self.module.named_parameters() if value.requires_grad}

    def own(self, layer: nn.Module) -> dict[str, str]:
        """Return the model's names of a layer's trainable parameters by their names in the layer."""
        held = {name: value for name, value in layer._parameters.items() if value is not None}
        return {name: self.names[id(value)] for name, value in held.items() if id(value) in self.names}

    @cached_property
    def known(self) -> dict[nn.Module, str]:
        """The layers that have trainable parameters and a rule, with their names in the module."""
        return {layer: name for name, layer in self.module.named_modules() if is_known_layer(layer) and self.own(layer)}


def sample_blocks(target: SampleLoss, layers: Mapping[str, Tensor], *cases: Tensor) -> Iterator[Block]:
    """Yield the contributions of all samples, some samples at a time, in their order.

    ``layers``: values of the trainable parameters by name; ``cases``: each ``(n, ...)``, as the loss takes them.
    """
    fixed = {name: value.detach() for name, value in layers.items()}
    if len(cases[0]) == 0:
        return
    start = 0
    if is_mapped(target.module):
        trace = _trace(target, fixed, *(case[0] for case in cases))
        for parts in zip(*(torch.split(case, trace.samples_at_once) for case in cases), strict=True):
            try:
                block = _mapped(target, trace, fixed, *parts)
            # Whatever a function transform refuses is tried in a loop, which raises the errors of the module itself.
            except (RuntimeError, NotImplementedError, TypeError, ValueError) as error:
                if start:
                    raise
                report_loop(target.module, error)
                break
            yield block
            start += len(parts[0])
    for sample in range(start, len(cases[0])):
        yield _of_one(target, fixed, *(case[sample] for case in cases))


def sample_rows(target: SampleLoss, layers: Mapping[str, Tensor], *cases: Tensor) -> dict[str, Tensor]:
    """Return every sample's gradient by parameter name, ``(n, numbers)`` each; arguments as for ``sample_blocks``."""
    found: dict[str, list[Tensor]] = {name: [value.new_zeros(0, value.numel())] for name, value in layers.items()}
    for block in sample_blocks(target, layers, *cases):
        held = {name: (part.rows() if isinstance(part, Factors) else part).values for name, part in block.items()}
        samples = len(next(iter(held.values())))
        for name, value in layers.items():
            found[name].append(
                held[name].reshape(samples, -1) if name in held else value.new_zeros(samples, value.numel())
            )
    return {name: torch.cat(parts) for name, parts in found.items()}


@dataclass(frozen=True, kw_only=True)
class _Trace:
    """What one sample's pass met: the known layers whose parameters they alone use, and their calls in order."""

    layers: frozenset[nn.Module]
    calls: list[tuple[nn.Module, tuple[int, ...]]]
    outside: tuple[str, ...]
    numbers: int

    @property
    def samples_at_once(self) -> int:
        return max(1, _AT_ONCE // max(1, self.numbers))


def _trace(target: SampleLoss, fixed: Mapping[str, Tensor], *case: Tensor) -> _Trace:
    """Run one sample with known layers cut off from parameters: one that still has a gradient is used elsewhere."""
    leaves = {name: value.clone().requires_grad_() for name, value in fixed.items()}
    met: list[tuple[nn.Module, tuple[int, ...]]] = []
    numbers = 0

    def call(layer: nn.Module, inputs: Tensor) -> Tensor:
        nonlocal numbers
        values = {name: value.detach() for name, value in layer._parameters.items() if value is not None}
        outputs = applied(layer, values, inputs)
        met.append((layer, tuple(outputs.shape)))
        numbers += 2 * (inputs.numel() + outputs.numel())
        return outputs

    with _differentiable(), _watched(target.known, call):
        loss = target.loss(leaves, *case)
    found = torch.autograd.grad(loss, list(leaves.values()), allow_unused=True) if loss.requires_grad else ()
    outside = {name for name, value in zip(leaves, found, strict=False) if value is not None}
    cut = _cut(target, outside)
    calls = [one for one in met if one[0] in cut]
    if not calls and not outside:
        raise ValueError(f"the loss of {type(target.module).__name__} depends on none of its trained parameters")
    return _Trace(
        layers=cut,
        calls=calls,
        outside=tuple(name for name in fixed if name in outside),
        numbers=numbers + sum(fixed[name].numel() for name in outside),
    )


def _cut(target: SampleLoss, outside: set[str]) -> frozenset[nn.Module]:
    """The known layers none of whose parameters is used elsewhere; the parameters of the others join ``outside``."""
    cut = set(target.known)
    while True:
        shared = {layer for layer in cut if outside & set(target.own(layer).values())}
        if not shared:
            return frozenset(cut)
        # Their other parameters get rows too, and so do layers tied to these.
        cut -= shared
        outside.update(name for layer in shared for name in target.own(layer).values())


@contextmanager
def _differentiable() -> Iterator[None]:
    # Of the kernels of attention only this one can be mapped over samples and differentiated twice.
    with torch.enable_grad(), sdpa_kernel(SDPBackend.MATH):
        yield


@contextmanager
def _watched(layers: Mapping[nn.Module, str] | frozenset[nn.Module], call: Callable[..., Tensor]) -> Iterator[None]:
    """Replace the forward method of some layers by ``call(layer, input)``."""
    for layer in layers:
        layer.forward = partial(call, layer)
    try:
        yield
    finally:
        for layer in layers:
            del layer.forward


def _mapped(target: SampleLoss, trace: _Trace, fixed: Mapping[str, Tensor], *parts: Tensor) -> Block:
    """The contributions of some samples, computed for all of them at once."""
    first = next(iter(fixed.values()))
    shifts = tuple(first.new_zeros(shape) for _, shape in trace.calls)
    # A copy per sample, without memory: PyTorch's recurrent cells write in place into products of the weights, and such
    # a product must have the samples' dimension already.
    outside = {name: fixed[name].expand(len(parts[0]), *fixed[name].shape) for name in trace.outside}

    def one(own: Mapping[str, Tensor], added: tuple[Tensor, ...], *case: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
        inputs, left = list[Tensor](), iter(added)

        def call(layer: nn.Module, input: Tensor) -> Tensor:
            inputs.append(input)
            # The gradient with respect to an added zero is the gradient of the output.
            return type(layer).forward(layer, input) + next(left)  # type: ignore[no-any-return]

        with _watched(trace.layers, call):
            loss = target.loss({**fixed, **own}, *case)
        return loss, tuple(inputs)

    gradients = vmap(grad(one, argnums=(0, 1), has_aux=True), in_dims=(0, None, *[0] * len(parts)))
    with _differentiable():
        (rows, slopes), inputs = gradients(outside, shifts, *parts)
    uses: dict[str, list[Contribution]] = {name: [Rows(values=row)] for name, row in rows.items()}
    for (layer, _), given, slope in zip(trace.calls, inputs, slopes, strict=True):
        own = target.own(layer)
        for local, part in contributions(layer, given.detach(), slope.detach()).items():
            if local in own:
                uses.setdefault(own[local], []).append(part)
    return {name: together(parts) for name, parts in uses.items()}


def _of_one(target: SampleLoss, fixed: Mapping[str, Tensor], *case: Tensor) -> Block:
    leaves = {name: value.clone().requires_grad_() for name, value in fixed.items()}
    with _differentiable():
        loss = target.loss(leaves, *case)
    found = torch.autograd.grad(loss, list(leaves.values()), allow_unused=True)
    return {
        name: Rows(values=row.detach().unsqueeze(0)) for name, row in zip(leaves, found, strict=True) if row is not None
    }


class SlowGradients(UserWarning):
    """The warning that a model's sample gradients are computed in a loop."""


def is_mapped(module: nn.Module) -> bool:
    """Return whether no function transform has refused the module so far."""
    return module not in _NOT_MAPPED


def report_loop(module: nn.Module, error: Exception) -> None:
    """Remember and report, once per module, that a function transform refuses it and a loop is used."""
    reason = str(error).strip().split("\n")[0]
    _NOT_MAPPED[module] = reason
    warnings.warn(
        f"sample gradients of {type(module).__name__} are computed one sample at a time, which is slower, because "
        f"torch.func cannot map it over samples: {reason}",
        SlowGradients,
        stacklevel=2,
    )
