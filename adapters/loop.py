"""Watches a training loop in plain PyTorch by two lines added to it: they report the lot that came in, and the sum that
left with noise.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import index
from types import TracebackType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from ..audit.arrays import FloatArray
from ..audit.supplied.given import check_whole
from ..checks.training_record import AccountantHistory, Movement, Release, TrainingRecord
from ..checks.watched_run import Watched, watched
from ..checks.watched_state import StateWatch, divided_by_sizes, mixing_layers
from ..checks.watched_sums import contributions, undetermined_rule
from ..fl.fields import check_positive
from ..fl.layout import Layout
from .unwatchable import refuse_scaler, refuse_sharded, refuse_shares, unwrapped

Array = Tensor | np.ndarray[Any, Any]
Vectors = Array | Mapping[str, Array] | Sequence[Array]
"""A vector ``(d,)`` or rows ``(n, d)``, or tensors by name or in the order of the model's parameters."""
_SAME = 1e-4
"""Relative difference between the noised sum and the gradient of an update that counts as rounding."""
_PLAIN, _FITTED = 0.01, 8
"""Relative part of a tensor's gradient that the sum without noise must explain before it is called a fault, and the
numbers of the tensor, at least: three factors fit so many numbers by chance with a probability below 1e-15."""


class LoopWatch:
    """Records what a training loop clips, sums and noises, and checks these records against the noise that the loop
    states.

    Example::

        watch = LoopWatch(model, noise_multiplier=1.0, clip_norm=1.0, records=len(data), rate=0.1)
        with watch:
            for lot in lots:
                rows = per_sample_gradients(model, lot)
                watch.lot(lot, rows)
                total = clip(rows).sum(0)
                noised = total + noise()
                watch.release(total, noised)
                ...
        print(*watch.results().lines(), sep="\\n")

    Buffers that data move are found where the model itself is given, parameters that move between two updates where an
    optimizer is attached. As a context manager, it adds a note to an exception of the loop; what was recorded until
    then stays.

    The checks of the noise are of Gaussian noise that is independent between steps. Noise on a grid, as of the discrete
    Gaussian law, is checked where the sums lie on the same grid; correlated noise is not of this kind.

    Args:
        model: the trained module; or names and shapes of the released tensors.
        noise_multiplier: noise standard deviation over the clip norm that the loop claims, > 0; for a schedule one
            number for each accounted step, fixed before the training.
        clip_norm: L2 bound of a row, > 0.
        records: number of records in the set that lots are drawn from, >= 1; None leaves out the checks of lots.
        rate: sampling rate that the loop's accounting uses, in (0, 1], exact and not rounded; None leaves out checks of
            lots and accounting.
        steps: number of steps that were accounted, >= 0; None where the loop keeps no account.
        gathered: whether this process of several hands over lots and sums of all of them.

    Raises:
        TypeError: for a model that is neither a module nor a mapping of names to shapes.
        ValueError: for arguments out of range, and for a model without trainable parameters; Unwatchable for shards of
            a model, in one of several processes unless ``gathered``, and for steps by a ``GradScaler``.
    """

    def __init__(
        self,
        model: nn.Module | Mapping[str, Sequence[int]],
        *,
        noise_multiplier: float | Sequence[float],
        clip_norm: float,
        records: int | None = None,
        rate: float | None = None,
        steps: int | None = None,
        gathered: bool = False,
    ) -> None:
        check_positive("clip_norm", clip_norm)
        if rate is not None and not 0 < rate <= 1:
            raise ValueError(f"rate (of sampling) must be in (0, 1], got {rate}")
        if records is not None:
            check_whole("records", records, least=1)
        if steps is not None:
            check_whole("steps", steps, least=0)
        model = unwrapped(model)
        module = model if isinstance(model, nn.Module) else None
        if module is not None:
            refuse_sharded(module)
        self._gathered = gathered
        shapes = _shapes(model)
        self.layout = Layout(names=tuple(shapes), shapes=tuple(shapes.values()))
        self._noise, self._clip_norm = _of_each_step(noise_multiplier, steps), clip_norm
        self._records, self._rate, self._accounted = records, rate, steps
        self._releases: list[Release] = []
        self._lot: tuple[tuple[int, ...] | None, Tensor | None] | None = None
        self._state: StateWatch | None = None
        self._updates: int | None = None
        self._stepped: dict[str, nn.Parameter] = {}
        self._loose: list[Movement] = []
        self._factors: dict[int, float] = {}
        self._weights: list[FloatArray] = []
        self._means: Tensor | None = None
        self._plain: tuple[Tensor, ...] = ()
        self._before: dict[str, Tensor] = {}
        if module is not None:
            stepped = frozenset(id(one) for one in module.parameters() if one.requires_grad)
            self._state = StateWatch(model=module, stepped=stepped)
        self._begun = False

    def lot(self, ids: Iterable[int] | None, rows: Vectors | None) -> None:
        """Record the lot of the next release; call this several times if the lot is split.

        ``ids``: indices of its records, ``(n,)``, each record once and without padding; None where there are none;
        ``rows``: their vectors before clipping, ``(n, d)`` or tensors ``(n, *shape)``; None where they are not at hand.

        Raises ValueError for ids that are no whole numbers in one dimension or lie outside of the records, for rows of
        another shape, and for ids and rows of different number; TypeError for rows that are no arrays or tensors.
        """
        names = None if ids is None else _indices(ids)
        if names is not None and self._records is not None and any(not 0 <= one < self._records for one in names):
            raise ValueError(f"ids must be indices of the {self._records} records, got {max(names)} or below 0")
        came = None if rows is None else self._flat(rows, rows=True)
        if names is not None and came is not None and len(names) != len(came):
            raise ValueError(f"ids and rows must have equal lengths, got {len(names)} and {len(came)}")
        self._begin()
        self._compare_by_hand()
        if came is not None and len(came):
            mean = came.double().mean(0)
            self._means = mean if self._means is None else self._means + mean
        if self._lot is not None:
            before, kept = self._lot
            names = None if before is None or names is None else before + names
            came = None if kept is None or came is None else torch.cat([kept, came])
        self._lot = names, came

    def release(self, total: Vectors | None, noised: Vectors, *, clip_norm: float | None = None) -> Vectors:
        """Record the sum of the clipped rows, ``(d,)`` or tensors, before and after the noise was added; return
        ``noised``.

        Both are the sum and not the mean, in its unit: the noise has ``noise_multiplier * clip_norm``. Hand ``noised``
        over before it is rounded, clamped or divided. ``clip_norm``: that of this step, where it changes.

        Raises ValueError for sums of another shape and a clip norm out of range, TypeError for sums that are no arrays
        or tensors.
        """
        if not self._gathered:
            refuse_shares(what="pass lots and sums of all processes to the watch of one of them, with gathered=True")
        self._begin()
        norm = self._clip_norm if clip_norm is None else clip_norm
        ids, rows = self._lot or (None, None)
        received = None if total is None else self._flat(total, rows=False)
        compared = None if rows is None else contributions(rows, received, norm, tensors=self.layout.slices)
        if compared is not None and compared.weights is not None:
            self._weights.append(compared.weights)
        self._releases.append(
            Release(
                step=len(self._releases),
                released=self._flat(noised, rows=False),
                received=received,
                expected=None if compared is None else compared.expected,
                longest=None if compared is None else compared.longest,
                rule="" if compared is None else compared.rule,
                clip_norm=float(norm),
                noise_multiplier=self._noise[min(len(self._releases), len(self._noise) - 1)],
                rows=None if rows is None else len(rows),
                ids=ids,
            )
        )
        summed = [] if rows is None else [rows.double().sum(0)]
        self._plain = tuple(one for one in (received, *summed, self._means) if one is not None)
        self._lot, self._means = None, None
        if self._state is not None and self._updates is None:
            held = self._state.model.named_parameters()
            self._before = {name: one.detach().clone() for name, one in held if name in self.layout.slices}
        return noised

    def attach(self, optimizer: Optimizer) -> None:
        """Compare the parameters before and after every ``optimizer.step()``, because nothing may change them between
        two steps.

        The gradients of each step are compared with the last noised sum: they are a multiple of it, to which a multiple
        of each tensor's parameters may be added, as by weight decay. Gradients that hold the sum without its noise
        fail; all others are reported and are no accusation.

        Raises TypeError for a model that was given as names and shapes only, ValueError for a second call.
        """
        state, optimizer = self._state, unwrapped(optimizer)
        if state is None:
            raise TypeError("attach needs the module: call watch with the model itself, not with its names and shapes")
        if self._updates is not None:
            raise ValueError("attach was called twice: a watch supports one optimizer, which must hold all parameters")
        held = frozenset(id(one) for group in optimizer.param_groups for one in group["params"])
        state.stepped = held
        names = set(self.layout.names)
        self._stepped = {n: one for n, one in state.model.named_parameters() if n in names and id(one) in held}
        # A subclass of one's own may add the noise in its step, after these gradients were seen.
        plain = type(optimizer).__module__.startswith("torch.optim")
        self._begin()
        self._updates = 0

        def before(_: Any, args: tuple[Any, ...], named: dict[str, Any]) -> None:
            refuse_scaler()
            state.before_update()
            # A closure computes the gradients later, inside the step.
            if not any(callable(one) for one in (*args, *named.values())):
                self._compare_gradients(certain=plain)

        def after(*_: Any) -> None:
            state.after_update()
            self._updates = (self._updates or 0) + 1

        optimizer.register_step_pre_hook(before)
        optimizer.register_step_post_hook(after)

    def _compare_gradients(self, *, certain: bool) -> None:
        """Compare the gradients that move the model with the last release, of the tensors that have gradients."""
        if self._loose or not self._releases:
            return
        found = [
            self._tensor(name, _numbers(one.grad), one, max(_SAME, 8 * torch.finfo(one.dtype).eps))
            for name, one in self._stepped.items()
            if one.grad is not None
        ]
        update = f"of update {self._updates}"
        if self._keep_factor(found):
            return
        judged = [one.holds_plain_sum() for one in found]
        if all(one is False for one in judged):
            return
        plainly = certain and any(judged)
        how = (
            "contains the sum with less noise than was added to it"
            if plainly
            else "is not a multiple of the noised sum"
        )
        self._loose.append(Movement(name="the gradient", how=f"{update} {how}", by_data=plainly))

    def _compare_by_hand(self) -> None:
        """Compare what moved since the last release with it, where no optimizer is attached."""
        before, self._before = self._before, {}
        if self._loose or not before or self._state is None:
            return
        held, found = dict(self._state.model.named_parameters()), {}
        for name, old in before.items():
            moved, new = _numbers(old) - _numbers(held[name]), held[name]
            same = 8 * torch.finfo(new.dtype).eps * float(_numbers(new).norm()) / max(float(moved.norm()), 1e-300)
            found[name] = self._tensor(name, moved, old, max(_SAME, same))
        if self._keep_factor(list(found.values())):
            return
        for name, one in found.items():
            if one.holds_plain_sum():
                how = (
                    f"of {name} after release {len(self._releases) - 1} contains the sum with less noise than was "
                    "added to it"
                )
                self._loose.append(Movement(name="the change", how=how, by_data=True))
                return

    def _keep_factor(self, tensors: "Sequence[_Tensor]") -> bool:
        """Keep the factor between the last noised sum and the gradients; whether there is one."""
        factor = _multiple(tensors)
        if factor and math.isfinite(factor):
            self._factors[len(self._releases) - 1] = factor
        return factor is not None

    def _tensor(self, name: str, gradient: Tensor, held: Tensor, same: float) -> "_Tensor":
        place = self.layout.slices[name]
        plain = tuple(one[place].double() for one in self._plain)
        noised = self._releases[-1].released[place].double()
        return _Tensor(gradient=gradient, noised=noised, plain=plain, weights=_numbers(held), same=same)

    def recording(self) -> TrainingRecord:
        """Return everything that was recorded so far."""
        self._compare_by_hand()
        ledger: AccountantHistory | None = None
        if self._rate is not None:
            accounted = len(self._releases) if self._accounted is None else self._accounted
            noise = self._noise if len(self._noise) > 1 else self._noise * accounted
            ledger = tuple((one, float(self._rate), len(list(same))) for one, same in groupby(noise))
        remarks = {} if self._accounted is not None else {"ledger": "the loop gives no steps to an accountant"}
        if (reason := undetermined_rule(self._weights)) is not None:
            remarks["weights"] = reason
        factors = tuple(self._factors.get(number) for number in range(len(self._releases)))
        moved = None
        if self._state is not None and self._begun:
            by_size = divided_by_sizes(self._releases, factors, certain=self._rate is not None and self._rate < 1)
            moved = (*self._loose, *by_size, *self._state.end())
        return TrainingRecord(
            layout=self.layout,
            releases=tuple(self._releases),
            ledger=ledger,
            population=self._records,
            moved=moved,
            steps=self._updates,
            factors=factors,
            mixing=() if self._state is None else mixing_layers(self._state.model),
            remarks=remarks,
        )

    def results(self) -> Watched:
        """Return the results of all checks of what was recorded so far."""
        return watched(self.recording())

    def __enter__(self) -> "LoopWatch":
        self._begin()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            error.add_note(f"raised after {len(self._releases)} recorded releases, which the watch keeps")

    def _begin(self) -> None:
        if not self._begun and self._state is not None:
            self._state.begin()
        self._begun = True

    def _flat(self, values: Vectors, *, rows: bool) -> Tensor:
        """``(d,)``, or ``(n, d)`` for rows; copies, because loops change tensors in place."""
        lead = 1 if rows else 0
        if isinstance(values, Tensor | np.ndarray):
            flat = torch.as_tensor(values).detach().clone()
            if flat.ndim != lead + 1 or flat.shape[-1] != self.layout.dim:
                wanted = f"(n, {self.layout.dim})" if rows else f"({self.layout.dim},)"
                raise ValueError(f"{'rows' if rows else 'a sum'} must have shape {wanted}, got {tuple(flat.shape)}")
            return flat.cpu()
        given = values if isinstance(values, Mapping) else self._named(values)
        parts = {name: _tensor(name, one) for name, one in given.items()}
        return self.layout.flatten(parts).clone().cpu()

    def _named(self, values: Sequence[Array]) -> dict[str, Array]:
        if not isinstance(values, list | tuple):
            raise TypeError(f"vectors must be a tensor, an array, or tensors by name, got {type(values).__name__}")
        names = self.layout.names
        if len(values) != len(names):
            raise ValueError(
                f"a list must hold one tensor for each of {', '.join(names)}, got {len(values)} entries; "
                "a vector is a tensor or an array"
            )
        return dict(zip(names, values, strict=True))


@dataclass(frozen=True, kw_only=True, eq=False)
class _Tensor:
    """One tensor of an update, flat and in double precision.

    ``plain``: what data give without noise: the sum of clipped rows, that of rows as they came in, and the sum of the
    means of their parts; ``same``: relative rounding of its gradient.
    """

    gradient: Tensor
    noised: Tensor
    plain: tuple[Tensor, ...]
    weights: Tensor
    same: float

    def holds_plain_sum(self) -> bool | None:
        """Whether the gradient is a sum with less noise than was released, or holds one without noise; None where no
        sum explains it.

        With ``a * noised + c * sum + b * weights`` it is ``a + c`` of the sum and ``a`` of the noise. Nothing noised
        explains such a gradient by chance, and noise that is scaled up has ``|a + c| <= |a|``; of rows that were not
        clipped, any part is without its noise.
        """
        if not self.plain or len(self.gradient) < _FITTED or self.same > _SAME:
            return None
        length = float(self.gradient.norm())
        known = torch.stack([self.noised, self.weights], dim=1)
        if not all(bool(one.isfinite().all()) for one in (known, self.gradient, *self.plain)):
            return None
        if not _fitted(known, self.gradient)[1] > _PLAIN * length:
            return None
        for one in self.plain:
            factors, rest = _fitted(torch.cat([known, one[:, None]], dim=1), self.gradient)
            if rest <= self.same * length:
                noise, total = float(factors[0]), float(factors[0] + factors[2])
                return abs(total) > (1 + _PLAIN) * abs(noise) or not self._clipped(one)
        return None

    def _clipped(self, one: Tensor) -> bool:
        """Whether a sum is that of clipped rows, or a multiple of it."""
        clipped = self.plain[0]
        return _fitted(clipped[:, None], one)[1] <= _SAME * float(one.norm())


def _multiple(tensors: Sequence[_Tensor]) -> float | None:
    """The factor by which gradients are a multiple of the noised sum and, in each tensor, any multiple of the
    parameters; None where they are not.
    """
    used = [_without(one.gradient, one.weights) for one in tensors]
    sent = [_without(one.noised, one.weights) for one in tensors]
    square = sum(float(one @ one) for one in sent)
    factor = sum(float(one @ other) for one, other in zip(used, sent, strict=True)) / max(square, 1e-300)
    rest = sum(float((one - factor * other).square().sum()) for one, other in zip(used, sent, strict=True))
    allowed = sum((one.same * float(one.gradient.norm())) ** 2 for one in tensors)
    # Rounding is relative to all gradients, of which one tensor's may be small.
    return None if rest > allowed else factor


def _without(vector: Tensor, weights: Tensor) -> Tensor:
    square = float(weights @ weights)
    return vector - float(vector @ weights) / square * weights if square > 0 else vector


def _fitted(columns: Tensor, vector: Tensor) -> tuple[Tensor, float]:
    """Factors of the columns in the vector by least squares, and the length of what is left."""
    factors = torch.linalg.lstsq(columns, vector[:, None], driver="gelsd").solution[:, 0]
    return factors, float((columns @ factors - vector).norm())


def _numbers(tensor: Tensor | None) -> Tensor:
    assert tensor is not None
    held = tensor.detach()
    return (held.to_dense() if held.is_sparse else held).reshape(-1).cpu().double()


def _tensor(name: str, value: Any) -> Tensor:
    if not isinstance(value, Tensor | np.ndarray):
        raise TypeError(f"{name} must be a tensor or an array, got {type(value).__name__}")
    return torch.as_tensor(value).detach()


def _of_each_step(noise: float | Sequence[float], steps: int | None) -> tuple[float, ...]:
    """The noise multiplier of each step, or the one of all."""
    each = noise if isinstance(noise, Sequence | np.ndarray) and not isinstance(noise, str) else [noise]
    for one in each:
        check_positive("noise_multiplier", one)
    if len(each) not in (1, steps or max(1, len(each))):
        raise ValueError(f"noise_multiplier must have one number for each of the {steps} steps, got {len(each)}")
    return tuple(map(float, each))


def _indices(ids: Iterable[int]) -> tuple[int, ...]:
    """Whole numbers of one dimension; a mask or fractions would be read as other records."""
    hint = "for a mask use mask.nonzero().flatten()"
    if isinstance(ids, Tensor | np.ndarray):
        ids = torch.as_tensor(ids).detach().cpu().numpy() if isinstance(ids, Tensor) else ids
        if ids.ndim != 1 or (ids.dtype.kind not in "iu" and ids.size):
            raise ValueError(f"ids must be whole numbers (n,), got {ids.dtype} of shape {ids.shape}; {hint}")
        return tuple(int(one) for one in ids)
    found = []
    for one in ids:
        try:
            found.append(index(one))
        except TypeError:
            raise ValueError(f"ids must be whole numbers, got {one!r}; {hint}") from None
        if isinstance(one, bool) or (isinstance(one, Tensor) and one.dtype == torch.bool):
            raise ValueError(f"ids must be whole numbers, got {one!r}; {hint}")
    return tuple(found)


def _shapes(model: nn.Module | Mapping[str, Sequence[int]]) -> dict[str, tuple[int, ...]]:
    if isinstance(model, nn.Module):
        shapes = {name: tuple(one.shape) for name, one in model.named_parameters() if one.requires_grad}
        if not shapes:
            raise ValueError("model must have a parameter that requires a gradient, but all its parameters are frozen")
        return shapes
    if not isinstance(model, Mapping):
        raise TypeError(f"model must be a module, or a mapping of names to shapes, got {model!r}")
    return {name: tuple(shape) for name, shape in model.items()}
