"""Watches one run of an Opacus training: all optimizers that ``make_private`` returned, and everything else that the
run trains.
"""

import functools
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any

from torch import Tensor, nn
from torch.optim.optimizer import register_optimizer_step_pre_hook

from ..checks.training_record import AccountantHistory, Movement, Release
from ..checks.watched_state import StateWatch
from .logged_data import LoggedData
from .opacus_hooks import OpacusHooks, OpacusParts, PrivacyEngine, parts_of


@dataclass(kw_only=True)
class OpacusRun:
    """One run of a training, built from the parts that ``build`` returned; a training may call ``make_private`` again.

    Args:
        modules: further modules that ``build`` returned.
        planted, forced, apart: as in ``OpacusHooks``.
    """

    parts: OpacusParts
    data: LoggedData
    modules: Mapping[str, nn.Module]
    planted: Mapping[int, Tensor] = field(default_factory=dict)
    forced: Sequence[Tensor] = ()
    apart: Collection[int] = ()
    hooks: list[OpacusHooks] = field(default_factory=list)
    releases: list[Release] = field(default_factory=list)
    drawn: list[int] = field(default_factory=list)
    models: list[int] = field(default_factory=list)
    factors: dict[int, float] = field(default_factory=dict)
    rates: list[tuple[float, ...]] = field(default_factory=list)
    ends: dict[str, Tensor] = field(default_factory=dict)
    begins: dict[str, Tensor] = field(default_factory=dict)
    _aside: dict[str, StateWatch] = field(default_factory=dict)
    _plain: list[Tensor] = field(default_factory=list)
    _without_noise: dict[str, str] = field(default_factory=dict)

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Watch everything that is trained inside the context."""
        for name, module in self.modules.items():
            self._watch_aside(name, module)
        self._attach(self.parts)
        original = PrivacyEngine.make_private

        @functools.wraps(original)
        def make_private(engine: Any, *args: Any, **named: Any) -> Any:
            made = original(engine, *args, **named)
            self._attach(parts_of((*made, engine)))
            return made

        PrivacyEngine.make_private = make_private
        handle = register_optimizer_step_pre_hook(lambda optimizer, *_: self._before_step(optimizer))
        try:
            yield
        finally:
            handle.remove()
            PrivacyEngine.make_private = original
            for one in self.hooks:
                one.detach()

    def _attach(self, parts: OpacusParts) -> None:
        if parts.layout.shapes != self.parts.layout.shapes:
            raise ValueError(
                "make_private was called again for other tensors: watch each model as a separate training, with its "
                "own build function"
            )
        for loader in parts.loaders:
            self.data.follow(loader)
        for one in self.hooks:
            one.close()
        hooks = OpacusHooks(
            parts=parts,
            data=self.data,
            planted=self.planted,
            forced=self.forced,
            apart=self.apart,
            held=self._held,
            releases=self.releases,
            drawn=self.drawn,
            models=self.models,
            factors=self.factors,
            rates=self.rates,
        )
        hooks.attach()
        self.hooks.append(hooks)
        self.begins = {**hooks.state.start, **self.begins}

    def _held(self) -> int:
        """A hash of the numbers of all modules that are watched."""
        return hash(tuple(one.digest() for one in (*(one.state for one in self.hooks), *self._aside.values())))

    def _before_step(self, optimizer: Any) -> None:
        """Watch tensors that an optimizer of no other watch is about to move, and name those of a watched model that
        one without noise moves.
        """
        noised = [each for one in self.hooks for each in (one.parts.optimizer, one.parts.optimizer.original_optimizer)]
        if not any(optimizer is one for one in noised):
            moves = {id(one) for group in optimizer.param_groups for one in group["params"]}
            for name, one in self.parts.model.named_parameters():
                if id(one) in moves:
                    self._without_noise[name] = type(optimizer).__name__
        watched = [*(one.parts.model for one in self.hooks), *(one.model for one in self._aside.values())]
        known = {id(tensor) for module in watched for tensor in module.parameters()} | {id(one) for one in self._plain}
        found = [one for group in optimizer.param_groups for one in group["params"] if id(one) not in known]
        if found:
            self._plain += found
            name = f"{type(optimizer).__name__} {1 + len(self._aside)}"
            self._watch_aside(name, _Tensors(found))
            names = [f"{name}.{one}" for one, _ in self._aside[name].model.named_parameters()]
            self._without_noise |= dict.fromkeys(names, type(optimizer).__name__)

    def _watch_aside(self, name: str, module: nn.Module) -> None:
        state = StateWatch(model=module, stepped=frozenset())
        state.begin(aside=True)
        self._aside[name] = state
        self.begins.update({f"{name}.{one}": held for one, held in state.start.items()})

    def end(self) -> tuple[Movement, ...]:
        """Return everything that changed without noise."""
        moved = [one for hooks in self.hooks for one in hooks.close()]
        for hooks in self.hooks:
            self.ends.update(hooks.state.ends)
        for name, state in self._aside.items():
            moved += [replace(one, name=f"{name}.{one.name}") for one in state.end()]
            self.ends.update({f"{name}.{one}": held for one, held in state.ends.items()})
        return tuple(self._explained(one) for one in moved)

    def _explained(self, one: Movement) -> Movement:
        kind = self._without_noise.get(one.name)
        cause = f"{kind}, an optimizer that adds no noise, updates these numbers"
        mend = "let the optimizer that make_private returned update all that is trained on records"
        return one if kind is None or one.cause else replace(one, cause=cause, mend=mend)

    @property
    def steps(self) -> int:
        """The number of model updates by all optimizers."""
        return sum(one.steps for one in self.hooks)

    @property
    def accountants(self) -> list[OpacusHooks]:
        """The hooks that were attached first for each accountant."""
        found = {id(one.parts.accountant): one for one in reversed(self.hooks) if one.parts.accountant is not None}
        return list(reversed(found.values()))

    @property
    def ledger(self) -> AccountantHistory | None:
        """The histories of all accountants, with their steps in the order of the releases."""
        owners = self.accountants
        if len(owners) < 2:
            return tuple(owners[0].history) if owners else None
        left = {
            id(one.parts.accountant): _steps(one.history)[one.earlier if number else 0 :]
            for number, one in enumerate(owners)
        }
        first = owners[0].earlier
        place = {number: id(one.parts.accountant) for one in self.hooks for number in one.mine}
        found = left[id(owners[0].parts.accountant)][:first]
        del left[id(owners[0].parts.accountant)][:first]
        for number in range(len(self.releases)):
            if left.get(place[number]):
                found.append(left[place[number]].pop(0))
        found += [one for rest in left.values() for one in rest]
        return tuple((*law, len(list(steps))) for law, steps in groupby(found))

    @property
    def shared(self) -> bool:
        """Whether the steps of each accountant read records that another accountant's steps read too, as far as records
        are known.
        """
        lots = [self._records(one.parts.accountant) for one in self.accountants]
        read = Counter(index for lot in lots for index in lot)
        return all(not lot or any(read[index] > 1 for index in lot) for lot in lots)

    def _records(self, accountant: Any) -> Collection[int]:
        numbers = [number for one in self.hooks if one.parts.accountant is accountant for number in one.mine]
        return {index for number in numbers for index in self.releases[number].ids or ()}


class _Tensors(nn.Module):
    """Tensors that an optimizer holds."""

    def __init__(self, tensors: Sequence[Tensor]) -> None:
        super().__init__()
        for number, one in enumerate(tensors):
            # A plain tensor is watched through a parameter that shares its numbers.
            self.register_parameter(f"tensor {number}", one if isinstance(one, nn.Parameter) else _parameter(one))


def _parameter(tensor: Tensor) -> nn.Parameter:
    return nn.Parameter(tensor.detach(), requires_grad=False)


def _steps(history: AccountantHistory | Sequence[tuple[float, float, int]]) -> list[tuple[float, float]]:
    return [(noise, rate) for noise, rate, count in history for _ in range(count)]
