"""Estimate the memory of the largest arrays of vertical federations and transfers, and refuse what does not fit.

An estimate counts the arrays that a run certainly holds at once, as 32-bit floats, so that it is too low rather than
too high. What exceeds the memory of this machine would end without a message, after everything before it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ...audit.observer import ACTIVE_PARTY, PASSIVE_PARTY, Observer
from ...fl.transfer.plan import TransferPlan
from ...fl.vertical.plan import VerticalPlan
from ..config.resolve_vertical import small_plan
from ..config.source import ConfigError, Source
from ..config.tables.transfer import TransferSpec
from ..config.tables.vertical import VerticalSpec
from ..results.environment import hardware
from ..vertical.runs import BLOCK

_COPIES = 2
"""Of parameters that are trained: they and their gradients."""
_BYTES = 4


@dataclass(frozen=True, kw_only=True)
class HeldArrays:
    """Arrays that a run holds at once.

    Args:
        what: in words.
        numbers: how many numbers they hold.
        keys: the keys of the federation's table that determine it, dotted.
    """

    what: str
    numbers: int
    keys: tuple[str, ...]

    @property
    def gigabytes(self) -> float:
        """Their memory in units of 2^30 bytes."""
        return self.numbers * _BYTES / 2**30


def check_memory(held: Sequence[HeldArrays], place: tuple[str, ...], spec: Any, source: Source) -> None:
    """Raise ConfigError if some arrays of a federation exceed the memory of this machine.

    ``place``: the federation's table in the suite file; ``spec``: its settings.
    """
    limit = float(hardware()["memory_gb"])
    largest = max(held, key=lambda one: one.numbers)
    if not 0 < limit < largest.gigabytes:  # Systems that do not state their memory have 0.
        return
    key = max(largest.keys, key=lambda name: _size(_value(spec, name)))
    value = _value(spec, key)
    given = list(value) if isinstance(value, tuple) else value
    raise ConfigError(
        f"{source.where((*place, *key.split('.')))}: {'.'.join((*place, key))} = {given}: {largest.what} "
        f"would need about {largest.gigabytes:,.0f} GB, more than the {limit:,g} GB of this machine's memory; "
        f"choose smaller values of {', '.join(largest.keys)}"
    )


def _value(spec: Any, name: str) -> Any:
    for part in name.split("."):
        spec = getattr(spec, part, None)
    return spec


def _size(value: Any) -> int:
    """The largest whole number of a setting, a number or a list of numbers."""
    numbers = value if isinstance(value, tuple) else (value,)
    return max((one for one in numbers if isinstance(one, int)), default=0)


def of_vertical(spec: VerticalSpec, plan: VerticalPlan, observers: set[Observer]) -> list[HeldArrays]:
    """Return the largest arrays of a vertical federation: its models, what is kept for attacks by ``observers``, and
    the runs of its audit that are made at once.
    """
    network, sizes = plan.network, ("embedding", "hidden", "top_hidden")
    top = 0 if network.top is None else network.top.dim
    models = _COPIES * (sum(one.dim for one in network.bottoms) + top)
    # Of every step the observer's own model and its messages are kept.
    rows, own = plan.people * plan.epochs, network.bottoms[0].dim
    kept = {
        PASSIVE_PARTY: plan.steps * own + rows * network.embedding,
        ACTIVE_PARTY: plan.steps * top + 2 * rows * network.passive * network.embedding,
    }
    seen = sum(numbers for observer, numbers in kept.items() if observer in observers)
    found = [
        HeldArrays(what="the models of one training", numbers=models, keys=sizes),
        HeldArrays(
            what="what an adversary receives in all steps, with its own model in each",
            numbers=seen,
            keys=(*sizes, "epochs"),
        ),
    ]
    if spec.audit is None or spec.audit.design != "independent":
        return found
    runs, small = min(BLOCK, spec.audit.replicas), small_plan(plan, spec.audit.people, spec.audit.batch)
    messages = small.people * small.epochs * network.embedding  # Of the one party whose messages an audit reads.
    what = f"the models and messages of {runs} runs of the audit at once"
    keys = (*sizes, "epochs", "audit.people")
    return [*found, HeldArrays(what=what, numbers=runs * (models + messages), keys=keys)]


def of_transfer(spec: TransferSpec, plan: TransferPlan, shadows: int) -> list[HeldArrays]:
    """Return the largest arrays of a transfer: all teachers, their answers, and the students; ``shadows``: the largest
    number of shadow students of its attacks.
    """
    sets, answers = max(1, shadows), plan.teachers * plan.queries * plan.classes
    return [
        HeldArrays(
            what=f"{sets * plan.teachers:,} teachers",
            numbers=sets * plan.teachers * plan.layout.dim,
            keys=("teachers",),
        ),
        HeldArrays(
            what=f"the teachers' answers in {max(sets, spec.students):,} runs",
            numbers=max(sets, spec.students) * answers,
            keys=("teachers", "queries", "students"),
        ),
        HeldArrays(
            what=f"{max(sets, spec.students):,} students",
            numbers=max(sets, spec.students) * plan.layout.dim,
            keys=("students",),
        ),
    ]
