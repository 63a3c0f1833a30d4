"""The parts of an Opacus training that ``build`` returned: model, optimizer, loaders and accountant."""

import inspect
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

from ...fl.layout import Layout
from ...fl.seeded import seeded

try:
    from opacus import PrivacyEngine
    from opacus.accountants.accountant import IAccountant
    from opacus.optimizers import DPOptimizer, DPOptimizerFastGradientClipping, DPPerLayerOptimizer
    from opacus.utils.fast_gradient_clipping_utils import DPTensorFastGradientClipping
    from opacus.utils.uniform_sampler import DistributedUniformWithReplacementSampler, UniformWithReplacementSampler
except ImportError as error:
    raise ImportError("fedassay.adapters.opacus needs Opacus: pip install 'fedassay[opacus]'") from error

__all__ = ["HALF", "DPTensorFastGradientClipping", "OpacusParts", "parts_of"]

HALF = (torch.float16, torch.bfloat16)


@dataclass(frozen=True, kw_only=True, eq=False)
class OpacusParts:
    """What an Opacus training consists of; ``accountant`` is None where there is none."""

    model: nn.Module
    optimizer: Any
    loaders: tuple[Any, ...]
    accountant: Any

    @property
    def layout(self) -> Layout:
        """Names and shapes of the tensors that the optimizer noises, in its order."""
        names = {id(one): name.removeprefix("_module.") for name, one in self.model.named_parameters()}
        held = list(self.optimizer.params)
        found = [names.get(id(one), f"tensor {number}") for number, one in enumerate(held)]
        return Layout(names=tuple(found), shapes=tuple(tuple(one.shape) for one in held))

    @property
    def ghost(self) -> bool:
        """Whether rows are clipped without being computed."""
        return isinstance(self.optimizer, DPOptimizerFastGradientClipping)

    @property
    def poisson(self) -> bool:
        """Whether a loader draws Poisson lots."""
        kinds = UniformWithReplacementSampler, DistributedUniformWithReplacementSampler
        return any(isinstance(one.batch_sampler, kinds) for one in self.loaders)

    @property
    def half(self) -> bool:
        """Whether a noised tensor has half precision."""
        return any(one.dtype in HALF for one in self.optimizer.params)

    @property
    def narrowest(self) -> torch.dtype:
        """The type of a noised tensor that holds the smallest numbers."""
        types: set[torch.dtype] = {one.dtype for one in self.optimizer.params}
        return min(types, key=lambda one: torch.finfo(one).max)

    def flat(self, attribute: str) -> Tensor:
        """Return the attribute ``grad`` or ``summed_grad`` of all tensors as one vector ``(d,)``."""
        return torch.cat([getattr(one, attribute).detach().reshape(-1).cpu() for one in self.optimizer.params])

    def put_gradient(self, vector: Tensor) -> None:
        """Write the vector ``(d,)`` into the gradients of all tensors."""
        held = list(self.optimizer.params)
        # A copy, because the optimizer divides gradients in place.
        for tensor, part in zip(held, torch.split(vector.clone(), [one.numel() for one in held]), strict=True):
            tensor.grad = part.reshape(tensor.shape).to(tensor)

    def rows(self) -> Tensor:
        """Return the vectors of the records before clipping, ``(n, d)``."""
        samples = [one.detach().flatten(1).cpu() for one in self.optimizer.grad_samples]
        return torch.cat(samples, dim=1)

    def play(self, rows: Tensor, seed: int) -> Tensor:
        """Return the noised sum ``(d,)`` of these rows ``(n, d)``; model and accountant stay as they are."""
        optimizer = self.optimizer
        held = list(optimizer.params)
        for tensor, part in zip(held, torch.split(rows, [one.numel() for one in held], dim=1), strict=True):
            tensor.grad_sample, tensor.summed_grad = part.reshape(-1, *tensor.shape).to(tensor), None
        own = optimizer.generator
        if own is not None:
            optimizer.generator = torch.Generator(device=own.device).manual_seed(seed)
        try:
            with seeded(seed):
                optimizer.clip_and_accumulate()
                optimizer.add_noise()
            return self.flat("grad").clone()
        finally:
            optimizer.generator = own
            for tensor in held:
                tensor.grad_sample = tensor.summed_grad = tensor.grad = None

    def clipped(self, rows: Tensor) -> Tensor | None:
        """Return the rows clipped layer by layer; None where the whole row is clipped to one norm."""
        if not isinstance(self.optimizer, DPPerLayerOptimizer):
            return None
        parts = torch.split(rows, [one.numel() for one in self.optimizer.params], dim=1)
        norms = self.optimizer.max_grad_norms
        lengths = [torch.linalg.vector_norm(part, dim=1, keepdim=True) for part in parts]
        kept = [part * (c / (n + 1e-6)).clamp(max=1) for part, n, c in zip(parts, lengths, norms, strict=True)]
        return torch.cat(kept, dim=1)


def parts_of(built: object) -> OpacusParts:
    """Find the parts among what ``build`` returned: a tuple, a list, a mapping, or an object with attributes.

    Raises TypeError where there is no model of Opacus or not exactly one of its optimizers.
    """
    found = list(_values(built))
    optimizers = _of(found, DPOptimizer)
    if len(optimizers) != 1:
        raise TypeError(
            "build must return what make_private returned (model, optimizer, loader) and the PrivacyEngine, "
            f"got {len(optimizers)} optimizers of Opacus among {', '.join(type(one).__name__ for one in found)}"
        )
    models = _of(found, nn.Module)
    held = {id(one) for one in optimizers[0].params}
    owner = next((one for one in models if held <= {id(p) for p in one.parameters()}), None)
    if owner is None:
        raise TypeError("build must also return the model whose parameters the optimizer holds")
    return OpacusParts(
        model=owner,
        optimizer=optimizers[0],
        loaders=tuple(_of(found, DataLoader)),
        accountant=_accountant(found, optimizers[0]),
    )


def _of(found: list[Any], kind: type) -> list[Any]:
    return [one for one in found if isinstance(one, kind)]


def _values(built: object) -> Iterator[Any]:
    if isinstance(built, Mapping):
        yield from built.values()
    elif isinstance(built, tuple | list):
        yield from built
    else:
        # Objects without attributes, such as None, hold nothing.
        yield from vars(built).values() if hasattr(built, "__dict__") else (built,)


def _accountant(found: list[Any], optimizer: Any) -> Any:
    """The accountant that was handed over; else the one that the optimizer's hook calls."""
    for one in found:
        if isinstance(one, PrivacyEngine):
            return one.accountant
        if isinstance(one, IAccountant):
            return one
    hook = optimizer.step_hook
    held = inspect.getclosurevars(hook).nonlocals.values() if inspect.isfunction(hook) else ()
    return next((one for one in held if isinstance(one, IAccountant)), None)
