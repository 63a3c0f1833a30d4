"""Sample gradients, their norms and their clipped sums for any module, in bounded memory.

The module runs on one sample at a time, mapped over samples by ``torch.func.vmap``. Known layers record their inputs
and their outputs' gradients; the gradients of their parameters stay products of these two. All other parameters get a
gradient per sample. Which parameters these are is found by tracing one sample: a parameter that its module's forward
method does not use alone (tied to another kind of layer, read by a parent) is among them.

A module that cannot be mapped runs in a loop over samples; the reason is reported once.

The gradient of a weight matrix is a sum over positions of (output's gradient) times (input). Its norm follows from the
inner products of the two factors alone (Goodfellow 2015; Li et al. 2022 for sequences; Bu et al. 2022 choose the
cheaper of both ways), and its weighted sum over samples is one matrix product (Bu et al. 2023, "book-keeping").

Norms and sums follow Goodfellow 2015 (norms of linear layers), Li et al. 2022 (ghost clipping) and Bu et al. 2022 and
2023 (the cheaper of norms from products and from rows; sums from the same products, without a second backward pass).
Weights may differ by parameter, so that gradients can be clipped layer by layer.

PyTorch (2.15, for one) returns wrong second derivatives, without any error, where ``vmap(grad(...))`` runs through a
layer norm, an instance norm or a batch norm with weights, or through its fused weight norm; the same operation without
weights, followed by a product, is right. Of its kernels of attention one can be mapped and differentiated twice.
"""

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, Protocol
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.func import grad, vmap
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import one_hot
from torch.overrides import TorchFunctionMode


@dataclass(frozen=True, kw_only=True)
class GradientRows:
    """The gradients of the loss with respect to one parameter, one per sample: ``values (m, *shape)``."""

    values: Tensor

    def squared_norms(self) -> Tensor:
        """Return the squared norm of each sample's gradient, ``(m,)`` in double precision."""
        norms: Tensor = torch.linalg.vector_norm(self._flat, dim=1, dtype=torch.float64)
        return norms.square()

    def weighted_sum(self, weights: Tensor) -> Tensor:
        """Return the weighted sum over samples, ``(numbers,)``; ``weights (m,)``."""
        return weights @ self._flat

    def only(self, chosen: Tensor) -> "GradientRows":
        """Return the gradients of the samples in the mask ``chosen (m,)``."""
        return GradientRows(values=self.values[chosen])

    @property
    def _flat(self) -> Tensor:
        # Also for a parameter that is a single number.
        return self.values.reshape(len(self.values), -1)


@dataclass(frozen=True, kw_only=True)
class Factors:
    """The per-sample gradients of one weight as products: for each sample and group, ``left`` transposed times
    ``right``.

    Args:
        left: ``(m, groups, positions, a)``; or for an embedding the looked-up rows ``(m, 1, positions)``, integers
            below ``a``, which stand for one-hot vectors.
        right: ``(m, groups, positions, b)``.
        a: rows of one group of the weight.
    """

    left: Tensor
    right: Tensor
    a: int

    @property
    def looked_up(self) -> bool:
        """Whether ``left`` holds indices into an embedding and not vectors."""
        return not self.left.is_floating_point()

    def rows(self) -> GradientRows:
        """Return every sample's gradient, ``(m, groups * a, b)``."""
        samples, groups, _, b = self.right.shape
        if self.looked_up:
            held = self.right.new_zeros(samples, self.a, b)
            index = self.left[:, 0, :, None].expand(-1, -1, b)
            return GradientRows(values=held.scatter_add_(1, index, self.right[:, 0]))
        return GradientRows(values=(self.left.transpose(2, 3) @ self.right).reshape(samples, groups * self.a, b))

    def cheapest(self) -> "GradientRows | Factors":
        """Return the gradients as rows if these need less memory than the inner products of all pairs of positions."""
        positions, b = self.right.shape[2:]
        return self.rows() if self.a * b <= 2 * positions**2 else self

    def squared_norms(self) -> Tensor:
        """Return the squared norm of each sample's gradient, ``(m,)`` in double precision.

        It is the sum over all pairs of positions of the two factors' inner products.
        """
        if self.looked_up:
            alike: Tensor = self.left.unsqueeze(-1) == self.left.unsqueeze(-2)
        else:
            alike = self.left @ self.left.transpose(2, 3)
        products = alike * (self.right @ self.right.transpose(2, 3))
        # Opposite terms may cancel to slightly less than zero.
        return products.sum((1, 2, 3), dtype=torch.float64).clamp_min(0)

    def weighted_sum(self, weights: Tensor) -> Tensor:
        """Return the weighted sum over samples, ``(numbers,)``; ``weights (m,)``."""
        groups, b = self.right.shape[1], self.right.shape[3]
        right = (self.right * weights.view(-1, 1, 1, 1)).transpose(0, 1).reshape(groups, -1, b)
        if self.looked_up:
            return right.new_zeros(self.a, b).index_add_(0, self.left.flatten(), right[0]).flatten()
        left = self.left.transpose(0, 1).reshape(groups, -1, self.a)
        return (left.transpose(1, 2) @ right).flatten()

    def only(self, chosen: Tensor) -> "Factors":
        """Return the gradients of the samples in the mask ``chosen (m,)``."""
        return Factors(left=self.left[chosen], right=self.right[chosen], a=self.a)


Contribution = GradientRows | Factors


def together(uses: Sequence[Contribution]) -> Contribution:
    """Return the sum of the gradients from several uses of one parameter, as for tied weights or a repeated layer.

    Gradients are added before any norm is taken: the squared norm of a sum is not the sum of squared norms.
    """
    if len(uses) == 1:
        return uses[0].cheapest() if isinstance(uses[0], Factors) else uses[0]
    factors = [use for use in uses if isinstance(use, Factors)]
    if len(factors) < len(uses):
        rows = [use.rows() if isinstance(use, Factors) else use for use in uses]
        return GradientRows(values=torch.stack([row.values.flatten(1) for row in rows]).sum(0))
    # More positions of the same product; an embedding's indices become one-hot vectors beside a linear layer's.
    if not all(use.looked_up for use in factors):
        factors = [_dense(use) for use in factors]
    return Factors(
        left=torch.cat([use.left for use in factors], dim=2),
        right=torch.cat([use.right for use in factors], dim=2),
        a=factors[0].a,
    ).cheapest()


def _dense(use: Factors) -> Factors:
    if not use.looked_up:
        return use
    return Factors(left=one_hot(use.left, use.a).to(use.right.dtype), right=use.right, a=use.a)


Values = Mapping[str, Tensor]
"""A layer's parameters by their names in the layer."""


def is_known_layer(layer: nn.Module) -> bool:
    """Return whether this file can compute per-sample gradients of the layer: linear, embedding, convolution, or group,
    layer or RMS norm.
    """
    if type(layer) not in _APPLIED:
        return False
    # A re-parametrised weight is computed in the forward pass and is not a parameter.
    if any(getattr(layer, name, None) is not None and name not in layer._parameters for name in ("weight", "bias")):
        return False
    return not isinstance(layer, nn.Embedding) or not (layer.max_norm or layer.scale_grad_by_freq or layer.sparse)


def applied(layer: nn.Module, values: Values, inputs: Tensor) -> Tensor:
    """Return the output that the layer has with the given parameters in place of its own."""
    return _APPLIED[type(layer)](layer, values.get("weight"), values.get("bias"), inputs)


def contributions(layer: nn.Module, inputs: Tensor, slopes: Tensor) -> dict[str, Contribution]:
    """Return the gradient that each sample contributes to each of the layer's parameters.

    ``inputs (m, ...)`` and ``slopes (m, ...)``, the gradients of each sample's loss with respect to the layer's output.
    """
    found = _FOUND[type(layer)](layer, inputs, slopes)
    return {name: part for name, part in found.items() if layer._parameters.get(name) is not None}


def _linear(layer: Any, inputs: Tensor, slopes: Tensor) -> dict[str, Contribution]:
    left, right = (part.reshape(len(part), 1, -1, part.shape[-1]) for part in (slopes, inputs))
    return {
        "weight": Factors(left=left, right=right, a=layer.out_features),
        "bias": GradientRows(values=left.sum((1, 2))),
    }


def _embedding(layer: Any, inputs: Tensor, slopes: Tensor) -> dict[str, Contribution]:
    left, right = inputs.reshape(len(inputs), 1, -1), slopes.reshape(len(slopes), 1, -1, slopes.shape[-1])
    if layer.padding_idx is not None:
        right = right.masked_fill((left == layer.padding_idx).unsqueeze(-1), 0)
    return {"weight": Factors(left=left, right=right, a=layer.num_embeddings)}


def _convolution(layer: Any, inputs: Tensor, slopes: Tensor) -> dict[str, Contribution]:
    spatial, groups = len(layer.kernel_size), layer.groups
    # Each mapped sample may hold a batch dimension of its own, or none.
    images = inputs.reshape(-1, *inputs.shape[-1 - spatial :])
    windows = _windows(layer, images)
    inner, places = len(images) // len(inputs), windows.shape[-1]
    right = windows.view(len(inputs), inner, groups, -1, places).permute(0, 2, 1, 4, 3)
    left = slopes.reshape(len(slopes), inner, groups, -1, places).permute(0, 2, 1, 4, 3)
    a, b = left.shape[-1], right.shape[-1]
    left, right = left.reshape(len(slopes), groups, -1, a), right.reshape(len(slopes), groups, -1, b)
    return {"weight": Factors(left=left, right=right, a=a), "bias": GradientRows(values=left.sum(2).flatten(1))}


def _windows(layer: Any, images: Tensor) -> Tensor:
    """The input under the kernel at each place, ``(images, channels * kernel, places)``, with strides and dilation."""
    sides = layer._reversed_padding_repeated_twice
    mode = "constant" if layer.padding_mode == "zeros" else layer.padding_mode
    windows = F.pad(images, sides, mode=mode) if any(sides) else images
    for number, (size, stride, dilation) in enumerate(
        zip(layer.kernel_size, layer.stride, layer.dilation, strict=True), start=2
    ):
        windows = windows.unfold(number, dilation * (size - 1) + 1, stride)[..., ::dilation]
    spatial = len(layer.kernel_size)
    places, kernel = range(2, 2 + spatial), range(2 + spatial, 2 + 2 * spatial)
    ordered = windows.permute(0, 1, *kernel, *places)
    return ordered.flatten(2 + spatial).flatten(1, 1 + spatial)


def _group_norm(layer: Any, inputs: Tensor, slopes: Tensor) -> dict[str, Contribution]:
    plain = F.group_norm(inputs.flatten(0, 1), layer.num_groups, eps=layer.eps).view_as(inputs)
    others = (1, *range(3, inputs.ndim))
    return {
        "weight": GradientRows(values=(slopes * plain).sum(others)),
        "bias": GradientRows(values=slopes.sum(others)),
    }


def _trailing_norm(layer: Any, inputs: Tensor, slopes: Tensor) -> dict[str, Contribution]:
    shape = layer.normalized_shape
    if isinstance(layer, nn.LayerNorm):
        plain = F.layer_norm(inputs, shape, eps=layer.eps)
    else:
        plain = F.rms_norm(inputs, shape, eps=layer.eps)
    rows = {"weight": slopes * plain, "bias": slopes}
    return {name: GradientRows(values=row.reshape(len(row), -1, *shape).sum(1)) for name, row in rows.items()}


_APPLIED: Mapping[type[nn.Module], Callable[..., Tensor]] = {
    nn.Linear: lambda layer, weight, bias, x: F.linear(x, weight, bias),
    nn.Embedding: lambda layer, weight, bias, x: F.embedding(x, weight, layer.padding_idx),
    **dict.fromkeys(
        (nn.Conv1d, nn.Conv2d, nn.Conv3d), lambda layer, weight, bias, x: layer._conv_forward(x, weight, bias)
    ),
    nn.GroupNorm: lambda layer, weight, bias, x: F.group_norm(x, layer.num_groups, weight, bias, layer.eps),
    nn.LayerNorm: lambda layer, weight, bias, x: F.layer_norm(x, layer.normalized_shape, weight, bias, layer.eps),
    nn.RMSNorm: lambda layer, weight, bias, x: F.rms_norm(x, layer.normalized_shape, weight, layer.eps),
}
_FOUND: Mapping[type[nn.Module], Callable[[Any, Tensor, Tensor], dict[str, Contribution]]] = {
    nn.Linear: _linear,
    nn.Embedding: _embedding,
    **dict.fromkeys((nn.Conv1d, nn.Conv2d, nn.Conv3d), _convolution),
    nn.GroupNorm: _group_norm,
    nn.LayerNorm: _trailing_norm,
    nn.RMSNorm: _trailing_norm,
}


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
    """A module that wraps a model and returns the loss of one sample.

    Args:
        module: its parameters that require a gradient are the ones meant by ``layers``.
        loss: runs ``module`` on one sample, as a batch of one, and returns a number.
    """

    module: nn.Module
    loss: LossOfOne

    @cached_property
    def names(self) -> dict[int, str]:
        """The name of each trainable parameter, keyed by its identity; a tied parameter has one name."""
        return {id(value): name for name, value in self.module.named_parameters() if value.requires_grad}

    def own(self, layer: nn.Module) -> dict[str, str]:
        """Return, for each of a layer's trainable parameters, its name in the model, keyed by its name in the layer."""
        held = {name: value for name, value in layer._parameters.items() if value is not None}
        return {name: self.names[id(value)] for name, value in held.items() if id(value) in self.names}

    @cached_property
    def known(self) -> dict[nn.Module, str]:
        """The layers with trainable parameters of which per-sample gradients can be computed directly, with their names
        in the module.
        """
        return {layer: name for name, layer in self.module.named_modules() if is_known_layer(layer) and self.own(layer)}


def sample_blocks(target: SampleLoss, layers: Mapping[str, Tensor], *cases: Tensor) -> Iterator[Block]:
    """Yield the per-sample gradients of all samples, some samples at a time, in their order.

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
    """Return every sample's gradient, keyed by parameter name, ``(n, numbers)`` each; arguments as for
    ``sample_blocks``.
    """
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
    uses: dict[str, list[Contribution]] = {name: [GradientRows(values=row)] for name, row in rows.items()}
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
        name: GradientRows(values=row.detach().unsqueeze(0))
        for name, row in zip(leaves, found, strict=True)
        if row is not None
    }


class SlowGradients(UserWarning):
    """The warning that a model's per-sample gradients are computed in a loop."""


def is_mapped(module: nn.Module) -> bool:
    """Return whether function transforms (vmap) may be used on the module, because none has failed on it so far."""
    return module not in _NOT_MAPPED


def report_loop(module: nn.Module, error: Exception) -> None:
    """Remember, and report once per module, that function transforms fail on it, so that a loop is used."""
    reason = str(error).strip().split("\n")[0]
    _NOT_MAPPED[module] = reason
    warnings.warn(
        f"sample gradients of {type(module).__name__} are computed one sample at a time, which is slower, because "
        f"torch.func cannot map it over samples: {reason}",
        SlowGradients,
        stacklevel=2,
    )


Weigh = Callable[[Tensor], Tensor]
"""Gives each sample's weight ``(m,)``, or ``(m, parameters)``, from its parameters' norms ``(m, parameters)``."""


def clipped_sum_of(target: SampleLoss, layers: Mapping[str, Tensor], weigh: Weigh, *cases: Tensor) -> dict[str, Tensor]:
    """Return the weighted sum of the samples' gradients, keyed by parameter name.

    ``weigh`` gives the weights of a block of samples from their norms, for example ``clip_norm / norm`` where a norm is
    too long. A sample whose gradient is not finite contributes nothing.
    """
    names = list(layers)
    total = {name: torch.zeros_like(value, requires_grad=False) for name, value in layers.items()}
    for block in sample_blocks(target, layers, *cases):
        norms = _norms(block, names).to(next(iter(total.values())))
        finite = norms.isfinite().all(1)
        if not finite.all():
            block, norms = {name: part.only(finite) for name, part in block.items()}, norms[finite]
        weights = weigh(norms)
        weights = weights.unsqueeze(1).expand_as(norms) if weights.ndim == 1 else weights
        for column, name in enumerate(names):
            if name in block and len(norms):
                total[name] += block[name].weighted_sum(weights[:, column]).view_as(total[name])
    return total


def _norms(block: Block, names: Sequence[str]) -> Tensor:
    """The norms of a block's samples ``(m, parameters)``; zero for parameters that the loss does not use."""
    squares = {name: part.squared_norms() for name, part in block.items()}
    one = next(iter(squares.values()))
    return torch.stack([squares.get(name, torch.zeros_like(one)) for name in names], dim=1).sqrt()


@contextmanager
def differentiable_twice() -> Iterator[None]:
    """Inside this context, replace the operations whose second derivatives are wrong or missing."""
    with sdpa_kernel(SDPBackend.MATH), _Replaced():
        yield


class _Replaced(TorchFunctionMode):
    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        return _REPLACED.get(func, func)(*args, **(kwargs or {}))


def _layer_norm(
    input: Tensor, normalized_shape: Any, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5
) -> Tensor:
    return _scaled(F.layer_norm(input, normalized_shape, eps=eps), weight, bias)


def _by_channel(norm: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """An instance or batch norm whose weights are applied after it."""

    def scaled(
        input: Tensor,
        running_mean: Tensor | None = None,
        running_var: Tensor | None = None,
        weight: Tensor | None = None,
        bias: Tensor | None = None,
        *rest: Any,
        **options: Any,
    ) -> Tensor:
        plain = norm(input, running_mean, running_var, None, None, *rest, **options)
        # Numbers per channel, the second dimension of the input.
        shape = (-1, *[1] * (input.ndim - 2))
        return _scaled(plain, *(None if one is None else one.view(shape) for one in (weight, bias)))

    return scaled


def _weight_norm(direction: Tensor, length: Tensor, dim: int = 0) -> Tensor:
    # All other dimensions; -1 stands for the norm of the whole weight.
    others = [axis for axis in range(direction.ndim) if axis != dim]
    # Without the test a sum over no dimension would be one over all.
    norms: Tensor = direction.square().sum(others, keepdim=True).sqrt() if others else direction.abs()
    return direction * (length / norms)


def _scaled(plain: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    scaled = plain if weight is None else plain * weight
    return scaled if bias is None else scaled + bias


_REPLACED: Mapping[Any, Callable[..., Tensor]] = {
    F.layer_norm: _layer_norm,
    F.instance_norm: _by_channel(F.instance_norm),
    F.batch_norm: _by_channel(F.batch_norm),
    torch._weight_norm: _weight_norm,
}
