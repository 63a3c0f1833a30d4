"""Names everything that one observer receives in a round, as channels by which two runs can be compared.

A channel is an array of numbers or a text. Texts hold what is no number: types, shapes, names, senders, None. A text
that contains numbers becomes two channels, its words and its numbers.
"""

import dataclasses
import re
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from enum import Enum
from numbers import Number
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..audit.observer import AGGREGATE, GLOBAL_MODELS, SHUFFLED, UPLOADS, Observer
from .hooks import overrides
from .message import Message
from .plan import Plan
from .protection import Protection
from .recorder import RoundEvent

Channel = NDArray[Any] | str
Channels = dict[str, Channel]

FINAL = "final model"
"""The name of the final model."""
STATE = "public state"
"""How the names of all channels of the public state start, including the numbers of the hook ``numbers``."""
SIDE = "report array "
"""How the names of arrays start that clients send with their reports."""
_DEEPEST, _MOST = 16, 5000
"""Levels of nesting and entries of a public state that are compared; what lies beyond is reported as not compared."""
_NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?")
_FEW = 16
"""A list of more numbers than this is one array."""
_RESOLVED = 32
"""Numbers of an array from which the coarsest last digit of all of them is compared: noise leaves it at one bit."""


def received_channels(
    event: RoundEvent,
    state: Channels,
    observer: Observer,
    protection: Protection,
    plan: Plan,
    missing: dict[str, str],
    replica: int = 0,
) -> Channels:
    """Return everything that the observer receives in a finished round, in one replica (independent run), as named
    channels.

    ``state``: the channels of the public state; ``missing``: gets what cannot be compared, with the reason. Of several
    replicas, numbers of the hook ``numbers`` are left out, which are those of the first one alone.

    An observer of reports also receives what arrives at the server. Rows that a shuffler mixed are sorted column by
    column, because their order carries no information. A model that the defense does not change before it is broadcast
    follows from the aggregates, which are compared instead.
    """
    found: Channels = {}
    if observer.rank >= UPLOADS.rank or (observer.sees_masked_words and event.reports.masked):
        found |= _message("report", event.reports, missing, replica)
    # Without a channel of its own a defense passes on the reports themselves.
    passed_on = event.received is event.reports and observer.rank >= UPLOADS.rank
    if not passed_on and (observer.rank >= SHUFFLED.rank or (observer.sees_masked_words and event.reports.masked)):
        found |= _message("arrived report", event.received, missing, replica)
    if observer.rank >= UPLOADS.rank or observer.sees_participation:
        found["who is invited"] = str(event.cohort[replica].tolist())
    changed = changes_broadcast(protection)
    if observer.rank >= AGGREGATE.rank or (observer.rank == GLOBAL_MODELS.rank and not changed):
        found |= array_channels("aggregate", event.aggregate[replica])
    if observer.rank >= GLOBAL_MODELS.rank:
        if changed:
            found |= array_channels("broadcast", event.broadcast[replica])
        found |= of_replica(state, replica, len(event.aggregate))
        if len(event.aggregate) == 1:
            found |= _plotted(event.state, protection, plan, missing)
        for name, value in event.shared.items():
            found |= array_channels(f"shared {name}", value[replica])
    return found


def of_replica(state: Channels, replica: int, replicas: int) -> Channels:
    """Return the part of a public state that belongs to one replica (independent run). With several replicas, this part
    is the replica's row of every array that has one row per replica. Everything that the replicas share is left out,
    because it looks the same whatever their noise.
    """
    if replicas == 1:
        return state
    return {
        name: array[replica : replica + 1]
        for name, array in state.items()
        if isinstance(array, np.ndarray) and len(array) == replicas
    }


def changes_broadcast(protection: Protection) -> bool:
    """Return whether the defense changes the model before it is broadcast."""
    return overrides(protection, "broadcast")


def array_channels(name: str, value: Tensor | NDArray[Any]) -> Channels:
    """Return the channels of an array: its numbers, its type and shape, and how many low bits are zero in all of its
    numbers.
    """
    array = _plain(value)
    kind = str(value.dtype).removeprefix("torch.")
    found: Channels = {name: array, f"{name}: type": f"{kind} {tuple(array.shape)}"}
    if array.dtype.kind == "f" and array.size >= _RESOLVED:
        found[f"{name}: trailing zero bits"] = str(_trailing_zeros(array))
    return found


def _message(name: str, message: Message, missing: dict[str, str], replica: int) -> Channels:
    present = message.present[replica]
    sent = {side: array for side, array in message.side.items() if side not in message.unsent}
    for side in sorted(message.unsent & message.side.keys()):
        missing[f"{name} array {side}"] = "the defense declares that no client sends it"
    found: Channels = {
        f"{name}: form": f"{len(present)} rows, arrays {sorted(sent)}, masked {message.masked}, "
        f"bits of a word {message.word_bits}, not sent {sorted(message.unsent)}"
    }
    arrays = {"values": message.values[replica], **{f"array {side}": array[replica] for side, array in sent.items()}}
    if message.senders is None:
        found[f"{name}: number"] = str(int(present.sum()))
        for what, rows in arrays.items():
            # Sorted by column: the order of a shuffler's rows carries no information.
            found |= array_channels(f"{name} {what}", rows[present].sort(dim=0).values if len(rows) else rows)
        return found
    found[f"{name}: senders"] = str([k for k, here in zip(message.senders, present.tolist(), strict=True) if here])
    for row, (sender, here) in enumerate(zip(message.senders, present.tolist(), strict=True)):
        if here:
            for what, rows in arrays.items():
                found |= array_channels(f"{name} {what} of client {sender}", rows[row])
    return found


def state_channels(state: Mapping[str, Any]) -> tuple[Channels, dict[str, str]]:
    """Return the channels of a public state, however nested. Also return the parts of the state that cannot be
    compared, each with the reason.
    """
    found: Channels = {}
    missing: dict[str, str] = {}
    for name, value in _flat(STATE, state, missing, _DEEPEST, set()):
        if len(found) >= _MOST:
            missing[f"{STATE} after {_MOST} entries"] = "too many entries"
            break
        found[name] = value
    return found, missing


def state_numbers(state: Channels) -> dict[str, Tensor]:
    """Return the numbers of a public state, keyed by name, in double precision; numbers within texts are left out."""
    return {
        name.removeprefix(f"{STATE}."): torch.from_numpy(value.astype(np.float64))
        for name, value in state.items()
        if isinstance(value, np.ndarray) and ": " not in name
    }


def _plotted(state: Mapping[str, Any], protection: Protection, plan: Plan, missing: dict[str, str]) -> Channels:
    """What the hook ``numbers`` publishes."""
    try:
        numbers = dict(protection.numbers(plan, state))
    except Exception as problem:  # A hook of a foreign defense may raise anything.
        missing[f"{STATE}: numbers"] = f"the hook numbers raised {type(problem).__name__}"
        return {}
    return dict(_flat(f"{STATE}: numbers", numbers, missing, _DEEPEST, set()))


def _flat(name: str, value: Any, missing: dict[str, str], depth: int, above: set[int]) -> Iterator[tuple[str, Channel]]:
    """Every leaf of a nested state with its path, and the shape of the nesting."""
    if isinstance(value, Tensor) or (isinstance(value, np.ndarray) and value.dtype.kind in "biufc"):
        # A copy: a hook may change its state in place.
        yield from (
            (key, part.copy() if isinstance(part, np.ndarray) else part)
            for key, part in array_channels(name, value).items()
        )
    elif isinstance(value, str):
        yield from _text(name, value)
    elif isinstance(value, bytes | bytearray | memoryview):
        yield from array_channels(name, np.frombuffer(bytes(value), dtype=np.uint8)).items()
    elif value is None or isinstance(value, Enum):
        yield name, repr(value)
    elif isinstance(value, Number | np.generic):
        yield from _scalar(name, value)
    elif depth == 0 or id(value) in above:
        missing[name] = "nested too deep" if depth == 0 else "contains itself"
    else:
        yield from _nested(name, value, missing, depth, above | {id(value)})


def _nested(
    name: str, value: Any, missing: dict[str, str], depth: int, above: set[int]
) -> Iterator[tuple[str, Channel]]:
    kind = type(value).__name__
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if isinstance(value, np.random.Generator):
        value = value.bit_generator.state
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    elif isinstance(value, AbstractSet):
        value = sorted(value, key=repr)
    if isinstance(value, Mapping):
        yield from _text(f"{name}: keys", f"{kind} {[str(key) for key in value]}")
        for key, item in value.items():
            yield from _flat(f"{name}.{key}", item, missing, depth - 1, above)
    elif isinstance(value, Sequence):
        yield f"{name}: length", f"{kind} {len(value)}"
        if len(value) > _FEW and all(type(item) in (int, float) for item in value):
            yield name, np.array([float(item) for item in value])
            return
        for place, item in enumerate(value):
            yield from _flat(f"{name}[{place}]", item, missing, depth - 1, above)
    elif hasattr(value, "__dict__") and not callable(value):
        yield from _flat(name, {"type": kind, **vars(value)}, missing, depth - 1, above)
    else:
        missing[name] = f"an object of type {kind}"


def _scalar(name: str, value: Any) -> Iterator[tuple[str, Channel]]:
    if isinstance(value, complex | np.complexfloating):
        yield from array_channels(name, np.array([value.real, value.imag])).items()
        return
    try:
        number = np.array([value])
        number = number if number.dtype.kind in "biuf" else np.array([float(value)])
    except (TypeError, ValueError, OverflowError):
        number = None
    yield f"{name}: type", type(value).__name__
    if number is not None:
        yield name, _plain(number)
    # Fractions, decimals and integers of many digits hold more than a float does.
    if number is None or type(value).__module__ in ("fractions", "decimal") or abs(number.astype(float)[0]) > 2**53:
        yield f"{name}: digits", str(value)


def _text(name: str, value: str) -> Iterator[tuple[str, Channel]]:
    """The words of a text, and its numbers."""
    numbers = _NUMBER.findall(value)
    yield f"{name}: words" if numbers else name, _NUMBER.sub("#", value)
    if numbers:
        yield f"{name}: numbers in the text", np.array([float(number) for number in numbers])


def _plain(value: Tensor | NDArray[Any]) -> NDArray[Any]:
    """A numpy array of booleans as bytes, integers or floats, of at least one dimension."""
    if isinstance(value, Tensor):
        dense = value.detach().to_dense().cpu() if value.layout is not torch.strided else value.detach().cpu()
        # Numpy has no bfloat16; every such number is a float32.
        value = (dense.float() if dense.dtype is torch.bfloat16 else dense.resolve_conj()).numpy()
    if value.dtype.kind == "c":
        value = np.stack([value.real, value.imag])
    if value.dtype.kind == "b":
        value = value.astype(np.uint8)
    return np.atleast_1d(value)


def _trailing_zeros(array: NDArray[Any]) -> int:
    """Bits that are zero at the end of every number of the array."""
    width = array.dtype.itemsize
    if width not in (2, 4, 8):
        return 0
    bits = np.bitwise_or.reduce(np.ascontiguousarray(array).view(f"u{width}"), axis=None)
    return (int(bits) & -int(bits)).bit_length() - 1
