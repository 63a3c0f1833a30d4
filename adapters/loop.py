"""Watches a loop in plain PyTorch by two lines in it: the lot that came in, and the sum that left with noise."""

from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from ..fl.fields import check_positive
from ..fl.layout import Layout
from .checks.movement import StateWatch
from .checks.sums import contributions
from .recording import Ledger, Recording, Release
from .watch import Watched, watched

Vectors = Tensor | np.ndarray[Any, Any] | Mapping[str, Tensor] | Sequence[Tensor]
"""A vector ``(d,)`` or rows ``(n, d)``, or tensors by name or in the order of the model's parameters."""


class LoopWatch:
    """Records what a training loop clips, sums and noises, and checks it against the noise that the loop states.

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

    Args:
        model: the trained module; or names and shapes of the released tensors.
        noise_multiplier: noise standard deviation over the clip norm that the loop claims, > 0.
        clip_norm: L2 bound of a row, > 0.
        records: number of records that lots are drawn from; None leaves out the checks of lots.
        rate: sampling rate that the loop's accounting uses, in (0, 1]; None leaves out checks of lots and accounting.
        steps: number of steps that were accounted; None where the loop keeps no account.
    """

    def __init__(
        self,
        model: nn.Module | Mapping[str, Sequence[int]],
        *,
        noise_multiplier: float,
        clip_norm: float,
        records: int | None = None,
        rate: float | None = None,
        steps: int | None = None,
    ) -> None:
        check_positive("noise_multiplier", noise_multiplier)
        check_positive("clip_norm", clip_norm)
        if rate is not None and not 0 < rate <= 1:
            raise ValueError(f"rate (of sampling) must be in (0, 1], got {rate}")
        module = model if isinstance(model, nn.Module) else None
        shapes = _shapes(model)
        self.layout = Layout(names=tuple(shapes), shapes=tuple(shapes.values()))
        self._noise_multiplier, self._clip_norm = noise_multiplier, clip_norm
        self._records, self._rate, self._accounted = records, rate, steps
        self._releases: list[Release] = []
        self._lot: tuple[tuple[int, ...] | None, Tensor | None] | None = None
        self._state: StateWatch | None = None
        self._updates: int | None = None
        if module is not None:
            stepped = frozenset(id(one) for one in module.parameters() if one.requires_grad)
            self._state = StateWatch(model=module, stepped=stepped)
        self._begun = False

    def lot(self, ids: Iterable[int] | None, rows: Vectors | None) -> None:
        """Record the lot of the next release, in several calls where it is split.

        ``ids``: indices of its records, ``(n,)``, None where there are none; ``rows``: their vectors before clipping,
        ``(n, d)`` or tensors ``(n, *shape)``; None where they are not at hand.
        """
        names = None if ids is None else tuple(int(one) for one in ids)
        if names is not None and self._records is not None and any(not 0 <= one < self._records for one in names):
            raise ValueError(f"ids must be indices of the {self._records} records, got {max(names)} or below 0")
        came = None if rows is None else self._flat(rows, rows=True)
        if names is not None and came is not None and len(names) != len(came):
            raise ValueError(f"ids and rows must be equally many, got {len(names)} and {len(came)}")
        self._begin()
        if self._lot is not None:
            before, kept = self._lot
            names = None if before is None or names is None else before + names
            came = None if kept is None or came is None else torch.cat([kept, came])
        self._lot = names, came

    def release(
        self,
        total: Vectors | None,
        noised: Vectors,
        *,
        noise_multiplier: float | None = None,
        clip_norm: float | None = None,
    ) -> None:
        """Record the sum of the clipped rows, ``(d,)`` or tensors, before and after the noise was added.

        ``noise_multiplier``, ``clip_norm``: those of this step, where a schedule changes them.
        """
        self._begin()
        norm = self._clip_norm if clip_norm is None else clip_norm
        ids, rows = self._lot or (None, None)
        received = None if total is None else self._flat(total, rows=False)
        compared = None if rows is None else contributions(rows, received, norm)
        self._releases.append(
            Release(
                step=len(self._releases),
                released=self._flat(noised, rows=False),
                received=received,
                expected=None if compared is None else compared.expected,
                longest=None if compared is None else compared.longest,
                clip_norm=norm,
                noise_multiplier=self._noise_multiplier if noise_multiplier is None else noise_multiplier,
                rows=None if rows is None else len(rows),
                ids=ids,
            )
        )
        self._lot = None

    def attach(self, optimizer: Optimizer) -> None:
        """Compare the parameters before and after every ``optimizer.step()``: between two steps nothing may move them.

        Raises TypeError for a model that was given as names and shapes only.
        """
        state = self._state
        if state is None:
            raise TypeError("attach needs the module: give the model itself and not its names and shapes")
        held = [one for group in optimizer.param_groups for one in group["params"]]
        state.stepped = frozenset(id(one) for one in held)
        self._begin()
        self._updates = 0

        def before(*_: Any) -> None:
            state.before_update()

        def after(*_: Any) -> None:
            state.after_update()
            self._updates = (self._updates or 0) + 1

        optimizer.register_step_pre_hook(before)
        optimizer.register_step_post_hook(after)

    def recording(self) -> Recording:
        """Return all that was recorded so far."""
        ledger: Ledger | None = None
        if self._rate is not None:
            accounted = len(self._releases) if self._accounted is None else self._accounted
            ledger = ((self._noise_multiplier, self._rate, accounted),) if accounted else ()
        remarks = {} if self._accounted is not None else {"ledger": "the loop keeps no account of its steps"}
        moved = None if self._state is None or not self._begun else self._state.end()
        return Recording(
            layout=self.layout,
            releases=tuple(self._releases),
            ledger=ledger,
            population=self._records,
            moved=moved,
            steps=self._updates,
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
            error.add_note(f"raised after {len(self._releases)} recorded releases, which stay in the watch")

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
        parts = values if isinstance(values, Mapping) else dict(zip(self.layout.names, values, strict=True))
        return self.layout.flatten({name: one.detach() for name, one in parts.items()}).clone().cpu()


def _shapes(model: nn.Module | Mapping[str, Sequence[int]]) -> dict[str, tuple[int, ...]]:
    if isinstance(model, nn.Module):
        return {name: tuple(one.shape) for name, one in model.named_parameters() if one.requires_grad}
    return {name: tuple(shape) for name, shape in model.items()}
