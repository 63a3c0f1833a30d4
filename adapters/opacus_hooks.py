"""Hooks on the parts of one Opacus training, which record its releases and leave the training as it is."""

import inspect
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

from ..checks.training_record import Movement, Release, plain_name
from ..checks.watched_state import StateWatch, Unseen, divided_by_sizes
from ..checks.watched_sums import contributions, marks_of
from ..fl.layout import Layout
from ..fl.streams import global_states, seeded
from .logged_data import LoggedData, hash_of
from .unwatchable import WrongUse, refuse_scaler, refuse_sharded, refuse_shares, unwrapped

try:
    from opacus import PrivacyEngine
    from opacus.accountants.accountant import IAccountant
    from opacus.optimizers import (
        AdaClipDPOptimizer,
        DPOptimizer,
        DPOptimizerFastGradientClipping,
        DPPerLayerOptimizer,
    )
    from opacus.utils.fast_gradient_clipping_utils import DPTensorFastGradientClipping
    from opacus.utils.uniform_sampler import DistributedUniformWithReplacementSampler, UniformWithReplacementSampler
except ImportError as error:
    raise ImportError("fedassay.adapters.opacus needs Opacus: pip install 'fedassay[opacus]'") from error

_SAME = 1e-4
"""Relative difference between the noised sum and the gradient of an update that counts as rounding."""

HALF = (torch.float16, torch.bfloat16)


@dataclass(frozen=True, kw_only=True, eq=False)
class OpacusParts:
    """The parts of an Opacus training, such as its optimizer; ``accountant`` is None if there is none."""

    model: nn.Module
    optimizer: Any
    loaders: tuple[Any, ...]
    accountant: Any

    @property
    def layout(self) -> Layout:
        """The names and shapes of the tensors to which the optimizer adds noise, in its order."""
        names = {id(one): plain_name(name) for name, one in self.model.named_parameters()}
        held = list(self.optimizer.params)
        found = [names.get(id(one), f"tensor {number}") for number, one in enumerate(held)]
        return Layout(names=tuple(found), shapes=tuple(tuple(one.shape) for one in held))

    @property
    def adaptive(self) -> bool:
        """Whether Opacus adapts the clip norm by a noised count."""
        return isinstance(self.optimizer, AdaClipDPOptimizer)

    @property
    def ghost(self) -> bool:
        """Whether records' gradients are clipped without being computed (ghost clipping)."""
        return isinstance(self.optimizer, DPOptimizerFastGradientClipping)

    @property
    def poisson(self) -> bool:
        """Whether a loader draws Poisson lots."""
        kinds = UniformWithReplacementSampler, DistributedUniformWithReplacementSampler
        return any(isinstance(one.batch_sampler, kinds) for one in self.loaders)

    @property
    def half(self) -> bool:
        """Whether a tensor that receives noise has half precision."""
        return any(one.dtype in HALF for one in self.optimizer.params)

    @property
    def narrowest(self) -> torch.dtype:
        """The data type with the smallest range among the tensors that receive noise."""
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
        """Return the records' gradients before clipping, ``(n, d)``."""
        samples = [one.detach().flatten(1).cpu() for one in self.optimizer.grad_samples]
        return torch.cat(samples, dim=1)

    def play(self, rows: Tensor, seed: int) -> Tensor:
        """Return the noised sum ``(d,)`` of the given rows ``(n, d)``, without changing model and accountant."""
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
        """Return the rows clipped layer by layer; None if each whole row is clipped to one norm."""
        if not isinstance(self.optimizer, DPPerLayerOptimizer):
            return None
        parts = torch.split(rows, [one.numel() for one in self.optimizer.params], dim=1)
        norms = self.optimizer.max_grad_norms
        lengths = [torch.linalg.vector_norm(part, dim=1, keepdim=True) for part in parts]
        kept = [part * (c / (n + 1e-6)).clamp(max=1) for part, n, c in zip(parts, lengths, norms, strict=True)]
        return torch.cat(kept, dim=1)


def modules_of(built: object, parts: OpacusParts) -> dict[str, nn.Module]:
    """Return the modules that ``build`` returned, also those in lists and mappings, without the module that the
    optimizer holds. Modules that share tensors with it are left out.
    """
    own = {id(one) for one in parts.model.parameters()}
    held: list[Any] = []
    for one in _values(built):
        held += one.values() if isinstance(one, Mapping) else one if isinstance(one, list | tuple) else [one]
    others = [one for one in _of(held, nn.Module) if not own & {id(tensor) for tensor in one.parameters()}]
    return {f"{type(one).__name__} {number}": one for number, one in enumerate(others, start=1)}


def parts_of(built: object) -> OpacusParts:
    """Find the parts of the training in what ``build`` returned: a tuple, a list, a mapping, or an object with
    attributes.

    Raises TypeError where there is no model of Opacus or not exactly one of its optimizers, Unwatchable for one of
    several processes, and for shards of a model.
    """
    found = [unwrapped(one) for one in _values(built)]
    optimizers = _of(found, DPOptimizer)
    if len(optimizers) != 1:
        raise WrongUse(
            "build must return what make_private returned (model, optimizer, loader) and the PrivacyEngine, "
            f"got {len(optimizers)} optimizers of Opacus among {', '.join(type(one).__name__ for one in found)}"
        )
    refuse_sharded(optimizers[0], *optimizers[0].params)
    refuse_shares(what="watch the same training in one process, without torch.distributed or with a world size of 1")
    models = _of(found, nn.Module)
    held = {id(one) for one in optimizers[0].params}
    owner = next((one for one in models if held <= {id(p) for p in one.parameters()}), None)
    if owner is None:
        raise WrongUse("build must also return the model whose parameters the optimizer holds")
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


@dataclass(kw_only=True)
class OpacusHooks:
    """Records the releases of one training.

    Args:
        planted: vectors before clipping of planted indices, ``(d,)`` in clip norms; zeros for a unit that is left out.
            Ghost clipping holds no vectors: there the unit has the direction of its record's own gradient, which moves
            with the model, and these vectors' lengths.
        forced: noised sums ``(d,)`` in place of this run's own, so that its updates are those of another run.
        apart: indices of records whose rows are left out of the rest of a sum, as planted ones are; rows of runs with
            such records have marks.
        held: returns a hash of all that is trained.
        releases, drawn, models, factors, rates: of all optimizers of a run, which share these.
        mine: the numbers of the releases of this one.
    """

    parts: OpacusParts
    data: LoggedData
    planted: Mapping[int, Tensor] = field(default_factory=dict)
    forced: Sequence[Tensor] = ()
    apart: Collection[int] = ()
    held: Callable[[], int]
    releases: list[Release] = field(default_factory=list)
    drawn: list[int] = field(default_factory=list)
    models: list[int] = field(default_factory=list)
    factors: dict[int, float] = field(default_factory=dict)
    rates: list[tuple[float, ...]] = field(default_factory=list)
    steps: int = 0
    loose: list[Movement] = field(default_factory=list)
    mine: list[int] = field(default_factory=list)
    _ids: list[int] | None = field(default_factory=list)
    _rows: int | None = 0
    _expected: Tensor | None = None
    _rest: Tensor | None = None
    _longest: float | None = 0.0
    _rule: str = ""
    _marks: list[Tensor] = field(default_factory=list)
    _inputs: list[int] = field(default_factory=list)
    _pending: tuple[Tensor, list[int]] | None = None
    _direction: Tensor | None = None
    _called: list[int] | None = field(default_factory=list)
    _batches: dict[int | None, tuple[int, ...] | None] = field(default_factory=dict)
    _rounding: float = 2.0**-23
    _backward: Callable[[Any], Any] | None = None
    _handle: Any = None
    _closed: tuple[Movement, ...] | None = None

    def attach(self) -> None:
        """Wrap the methods of the optimizer, the losses and the model."""
        optimizer = self.parts.optimizer
        self.state = StateWatch(model=self.parts.model, stepped=frozenset(id(one) for one in optimizer.params))
        if self.parts.ghost:
            self._wrap(optimizer, "accumulate", self._accumulate)
            self._watch_losses()
        else:
            self._wrap(optimizer, "clip_and_accumulate", self._clip)
        self._wrap(optimizer, "add_noise", self._add_noise)
        self._last_hook()
        optimizer.original_optimizer.register_step_post_hook(Unseen(lambda *_: self.state.after_update()))
        self.parts.model.register_forward_pre_hook(Unseen(self._before_call), with_kwargs=True)
        self.state.begin()
        self.data.begin()
        self._forget()
        self.earlier = sum(steps for _, _, steps in self.history)

    def close(self) -> tuple[Movement, ...]:
        """At the first call, end the watch of the model's state, and return what changed in it without noise."""
        if self._closed is None:
            own = [(self.releases[number], self.factors.get(number)) for number in self.mine]
            # Other samplers may have sizes by a public plan.
            by_size = divided_by_sizes(*zip(*own, strict=True), certain=self.parts.poisson) if own else []
            self._closed = (*by_size, *self.state.end())
        return (*self.loose, *self._closed)

    @property
    def history(self) -> list[tuple[float, float, int]]:
        """The accountant's history: (noise multiplier, sampling rate, steps)."""
        found = self.parts.accountant.history if self.parts.accountant is not None else ()
        return [(float(noise), float(rate), int(steps)) for noise, rate, steps in found]

    def _last_hook(self) -> None:
        """Compare the gradient after all other hooks of the optimizer, also those that came later."""
        if self._handle is not None:
            self._handle.remove()
        original = self.parts.optimizer.original_optimizer
        self._handle = original.register_step_pre_hook(Unseen(lambda *_: self._before_update()))

    def _wrap(self, owner: Any, name: str, around: Any) -> None:
        original = getattr(owner, name)
        setattr(owner, name, lambda *args, **named: around(lambda: original(*args, **named)))

    def _forget(self) -> None:
        dim = self.parts.layout.dim
        self._ids, self._rows, self._longest, self._pending, self._direction = [], 0, 0.0, None, None
        self._rule, self._marks, self._inputs = "", [], []
        self._expected, self._rest = torch.zeros(dim, dtype=torch.float64), torch.zeros(dim, dtype=torch.float64)

    def _before_call(self, model: Any, inputs: tuple[Any, ...], named: dict[str, Any]) -> None:
        """Take the records of a batch from those that were read, when the model is called on it.

        Calls without gradients, as in an evaluation, take theirs too, and are not part of a lot.
        """
        tensors = [one for one in (*inputs, *named.values()) if isinstance(one, Tensor) and one.ndim]
        count = len(tensors[0]) if tensors else 0
        # The numbers show records also where a lot is split or shuffled by hand.
        alike = self._alike(tensors[0]) if tensors else []
        matched = bool(alike) and None not in alike
        ids = tuple(one for one in alike if one is not None) if matched else None
        if tensors and not matched:
            ids = self.data.last(count)
            # Rows of other numbers, as after an augmentation, are those that were read, if all others are in order.
            if ids is not None and any(one not in (None, read) for one, read in zip(alike, ids, strict=False)):
                ids = None
        if not (torch.is_grad_enabled() and model.training):
            return
        if self.apart and tensors:
            self._inputs += [hash_of(row) for row in tensors[0].detach()]
        if self.data.unread and not matched:
            # Records that were read and not used: the last ones need not be those of this batch.
            ids = None
            self.data.begin()
        elif tensors:
            # A batch that was not read again is an earlier one, whose records are known by its numbers.
            content = _content(tensors)
            if ids is None:
                ids = self._batches.get(content)
            elif content is not None:
                # Batches of equal numbers and other records do not show which of them comes again.
                self._batches[content] = ids if self._batches.get(content, ids) == ids else None
        self._called = None if self._called is None or ids is None else [*self._called, *ids]

    def _alike(self, batch: Tensor) -> list[int | None]:
        try:
            return [] if self.data.ahead else self.data.alike(batch)
        except (RuntimeError, TypeError, ValueError):  # Numbers that cannot be read, such as those of sparse tensors.
            return []

    def _lot(self, rows: int) -> tuple[int, ...] | None:
        """The records of the calls since the last sum; None where they are not as many as the rows."""
        found, self._called = self._called, []
        return tuple(found) if found is not None and len(found) == rows else None

    def _clip(self, original: Any) -> Any:
        """Record the rows of one physical batch, with the planted one in its place, and what their sum became."""
        count = len(self.parts.optimizer.grad_samples[0])
        ids = self._lot(count)
        places = [] if ids is None else self._put(ids)
        rows, before = self.parts.rows(), self._sum()
        self._rounding = max(self._rounding, torch.finfo(rows.dtype).eps)
        result = original()
        self._compare(rows, self._sum() - before, ids, places)
        return result

    def _sum(self) -> Tensor:
        if any(one.summed_grad is None for one in self.parts.optimizer.params):
            return torch.zeros(self.parts.layout.dim)
        return self.parts.flat("summed_grad").clone()

    def _put(self, ids: tuple[int, ...]) -> list[int]:
        """Write the planted vectors, or zeros, into the per-sample gradients of the planted indices."""
        optimizer, layout = self.parts.optimizer, self.parts.layout
        places = [place for place, index in enumerate(ids) if index in self.planted]
        for tensor, part in zip(optimizer.params, layout.slices.values(), strict=True):
            batches = tensor.grad_sample if isinstance(tensor.grad_sample, list) else [tensor.grad_sample]
            starts = np.cumsum([0, *(len(one) for one in batches)])
            for place in places:
                batch = int(np.searchsorted(starts, place, side="right")) - 1
                row = self.planted[ids[place]][part].reshape(tensor.shape) * float(optimizer.max_grad_norm)
                batches[batch][place - int(starts[batch])] = row.to(batches[batch])
        return places

    def _compare(self, rows: Tensor, total: Tensor, ids: tuple[int, ...] | None, places: list[int]) -> None:
        norm = float(self.parts.optimizer.max_grad_norm)
        clipped = self.parts.clipped(rows.double())
        found = contributions(rows, total, norm, clipped=clipped, tensors=self.parts.layout.slices)
        self._rule = self._rule or found.rule
        if self.apart and found.kept is not None:
            self._marks.append(marks_of(rows, found.kept))
        self._ids = None if self._ids is None or ids is None else [*self._ids, *ids]
        self._rows = None if self._rows is None else self._rows + len(rows)
        known = self._longest is not None and found.longest is not None
        self._longest = max(self._longest or 0.0, found.longest or 0.0) if known else None
        if self._expected is not None:
            self._expected = self._expected + found.expected
        left = {*places, *(place for place, index in enumerate(ids or ()) if index in self.apart)}
        others = [place for place in range(len(rows)) if place not in left]
        kept = None if clipped is None else clipped[others]
        if self._rest is not None:
            self._rest = self._rest + contributions(rows[others], None, norm, clipped=kept).expected

    def _accumulate(self, original: Any) -> Any:
        """Record what ghost clipping added, and the rows of its losses; without them if none was differentiated."""
        before = self._sum()
        result = original()
        pending, self._pending = self._pending, None
        if pending is None:
            self._ids, self._rows, self._expected, self._rest, self._longest = None, None, None, None, None
        else:
            rows, places = pending
            self._compare(rows, self._sum() - before, self._lot(len(rows)), places)
        return result

    def _watch_losses(self) -> None:
        """Compute the rows again where a loss is differentiated, because ghost clipping never holds them.

        On the class, because sums, quotients and products of losses are new objects; until ``detach``.
        """
        optimizer, backward = self.parts.optimizer, DPTensorFastGradientClipping.backward

        def differentiate(loss: Any) -> Any:
            if loss.optimizer is optimizer:
                loss.loss_per_sample = self._differentiate(loss.loss_per_sample, loss.module)
            return backward(loss)

        DPTensorFastGradientClipping.backward = differentiate
        self._backward = backward

    def detach(self) -> None:
        """Undo what ``attach`` changed outside this training's own objects."""
        if self._backward is not None:
            DPTensorFastGradientClipping.backward = self._backward

    def _differentiate(self, losses: Tensor, module: Any) -> Tensor:
        """Keep the rows of these losses ``(n,)`` or ``(n, 1)``; returns the losses, with those of planted records
        stretched so that their gradients have the units' lengths. A gradient of zero cannot be stretched.
        """
        held = list(self.parts.optimizer.params)
        module.disable_hooks()
        try:
            found = [torch.autograd.grad(one.sum(), held, retain_graph=True, allow_unused=True) for one in losses]
        finally:
            module.enable_hooks()
        parts = [_row(one, held) for one in found]
        rows = torch.stack(parts) if parts else torch.zeros(0, self.parts.layout.dim)
        called = self._called if self._called is not None and len(self._called) >= len(rows) else []
        ids = called[len(called) - len(rows) :]
        places = [place for place, index in enumerate(ids) if index in self.planted]
        factors = torch.ones(len(rows))
        for place in places:
            length = float(torch.linalg.vector_norm(self.planted[ids[place]])) * self.parts.optimizer.max_grad_norm
            own = float(torch.linalg.vector_norm(rows[place]))
            if 0 < own < math.inf:
                factors[place], self._direction = length / own, rows[place].double() / own
        self._pending = rows * factors.unsqueeze(1), places
        return losses * factors.reshape(-1, *[1] * (losses.ndim - 1)).to(losses) if places else losses

    def _add_noise(self, original: Any) -> Any:
        received = self.parts.flat("summed_grad").clone()
        if self.data.unread:
            # Records that were read and are in no lot: others may have been chosen by what all of them hold.
            self._ids = None
            self.data.begin()
        optimizer = self.parts.optimizer
        clip_norm, multiplier = float(optimizer.max_grad_norm), float(optimizer.noise_multiplier)
        result, own = original(), None
        if len(self.releases) < len(self.forced):
            own = self.parts.flat("grad").clone()
            self.parts.put_gradient(self.forced[len(self.releases)])
        half = self.parts.half
        self.releases.append(
            Release(
                step=len(self.releases),
                released=self.parts.flat("grad").clone(),
                received=None if half else received,
                own=own,
                expected=None if half or (self._longest is None and not self._rows) else self._expected,
                rest=self._rest if self.planted or (self.apart and self._ids is not None) else None,
                direction=self._direction,
                clip_norm=clip_norm,
                noise_multiplier=multiplier,
                rows=self._rows,
                longest=self._longest,
                rule=self._rule,
                marks=torch.cat(self._marks, dim=1) if self._marks else None,
                inputs=tuple(self._inputs) if self.apart else None,
                ids=None if self._ids is None else tuple(self._ids),
                rounding=self._rounding,
            )
        )
        self.mine.append(len(self.releases) - 1)
        self._last_hook()
        self.models.append(self.held())
        # After each record too: other numbers of draws may end in one state again.
        self.drawn.append(hash((self.data.states, tuple(sorted(global_states().items())))))
        self._forget()
        return result

    def _before_update(self) -> None:
        """Compare the gradient that moves the model with the noised sum: one factor may lie between them."""
        refuse_scaler()
        self.steps += 1
        self.rates.append(tuple(float(group["lr"]) for group in self.parts.optimizer.param_groups if "lr" in group))
        self.state.before_update()
        if not self.mine or any(one.grad is None for one in self.parts.optimizer.params):
            return
        used, sent = self.parts.flat("grad").double(), self.releases[self.mine[-1]].released.double()
        factor = float(used @ sent) / max(float(sent @ sent), 1e-300)
        self.factors[self.mine[-1]] = factor
        # Numbers of half precision are rounded once more when they are averaged.
        same = max(_SAME, *(8 * torch.finfo(one.dtype).eps for one in self.parts.optimizer.params))
        if float((used - factor * sent).norm()) > same * max(float(used.norm()), 1e-300) and not self.loose:
            words = f"of update {self.steps - 1} is not a multiple of the noised sum"
            self.loose.append(Movement(name="the gradient", how=words, by_data=False))


def _content(tensors: Sequence[Tensor]) -> int | None:
    """A hash of the numbers of a batch; None for tensors whose numbers cannot be read, such as sparse ones."""
    try:
        plain = [one.detach().cpu().resolve_conj().resolve_neg() for one in tensors]
        flat = [one.clone(memory_format=torch.contiguous_format).reshape(-1) for one in plain]
        return hash(
            tuple(
                (one.shape, flat_.view(torch.uint8).numpy().tobytes()) for one, flat_ in zip(plain, flat, strict=True)
            )
        )
    except (RuntimeError, TypeError, NotImplementedError):
        return None


def _row(gradients: Sequence[Tensor | None], held: Sequence[Tensor]) -> Tensor:
    """One record's gradients of all tensors as a vector; a tensor that the loss does not reach has zeros."""
    parts = zip(gradients, held, strict=True)
    return torch.cat([torch.zeros(one.numel()) if part is None else part.reshape(-1).cpu() for part, one in parts])


__all__ = ["HALF", "DPTensorFastGradientClipping", "OpacusParts", "PrivacyEngine", "parts_of"]
