"""A data set that logs which of its records were read; its last indices may stand for units that an audit adds.

Where the workers of a loader read the records, a batch sampler remembers the batches that it handed out. Where a loader
reads from another data set of as many records, such as one made of ``data[:]``, its indices are logged.
"""

from collections import Counter, deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor
from torch.utils.data import Dataset, IterableDataset

from ..fl.streams import global_states
from .unwatchable import WrongUse

_REMEMBERED = 4
"""Contents of records that are remembered, in numbers of records."""
UNREAD = (
    "the loader's records are not known as those of the data that build received: in build, write "
    "DataLoader(Subset(data, kept), ...) for a part of the data, and for changed records a data set of as many, or one "
    "whose __getitem__(self, index) returns change(data[index])"
)
"""Why lots are not known, and what to write."""


class LoggedData(Dataset[Any]):
    """A data set that wraps ``data`` and logs the indices of its records in the order of reading.

    Args:
        data: any data set with a length and indices.
        planted: number of the last indices that stand for planted units. Their record is that of index 0, and only
            their vectors are the audit's. The number of records stays, because rates and numbers of steps are computed
            from it.
        places: index of the record of ``data`` that stands at each index, for a run on other records, or on fewer; None
            for all of them in their order. Attributes that hold one value for each record follow it.
        stretched: indices of records whose floating-point numbers are multiplied by ``factor``, so that their gradients
            are long, or short.

    Raises:
        TypeError: for a data set without a length or without indices.
        ValueError: for as many units as records, or more.

    ``order`` holds a hash of the record that was read at each place of a loader's own data set.
    """

    def __init__(
        self,
        data: Any,
        *,
        planted: int = 0,
        places: Sequence[int] | None = None,
        stretched: Collection[int] = (),
        factor: float = 8.0,
    ) -> None:
        if not hasattr(data, "__len__") or not hasattr(data, "__getitem__"):
            raise WrongUse(
                "data must have a length and indices, because lots are compared by the indices of their records, "
                f"got {type(data).__name__}"
            )
        if planted and planted >= len(data):
            raise ValueError(f"the number of canaries must be below the number of records, {len(data)}, got {planted}")
        self._data, self._planted, self._places = data, planted, None if places is None else list(places)
        self._stretched, self._factor = stretched, factor
        self.reads = Counter[int]()
        self._states = 0
        self._read: list[_Read] = []
        self._known: dict[int, int | None] = {}
        self._handed: tuple[range, Tensor] | None = None
        self._batches: LoggedBatches | None = None
        self._by_place = self._elsewhere = False
        self.order: dict[int, int] = {}
        self._given: dict[int, int | None] = {}

    def __len__(self) -> int:
        return len(self._data) if self._places is None else len(self._places)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return self._several(index)
        number = int(index)
        if not -len(self) <= number < len(self):
            raise IndexError(f"index {number} is out of range for {len(self)} records")
        number %= len(self)
        self.reads[number] += 1
        place = 0 if number in self.units else number if self._places is None else self._places[number]
        found = self._data[place]
        found = _stretched(found, self._factor) if number in self._stretched else found
        self._log(number, found)
        return found

    def log_of_other(self, place: int, found: Any) -> None:
        """Log a record of another data set of as many records, by its numbers, or else by its place there."""
        self._learn()
        own = self._given.get(next(_leaves(found), 0))
        self._by_place, self._elsewhere = self._by_place or own is None, self._elsewhere or own not in (None, place)
        self._log(place if own is None else own, found)

    def _log(self, number: int, found: Any) -> None:
        leaves = list(_leaves(found))
        read = _Read(number=number, key=leaves[0] if leaves else 0, whole=hash(tuple(leaves)))
        self._read.append(read)
        self._states = hash((self._states, tuple(sorted(global_states().items()))))
        if len(self._known) > _REMEMBERED * len(self):  # Records that change with each reading.
            self._known.clear()
        self._known[read.key] = number if self._known.get(read.key, number) == number else None

    def _several(self, index: slice) -> Any:
        numbers = range(len(self))[index]
        self._read += [_Read(number=one, key=0, whole=0) for one in numbers]
        self.reads.update(numbers)
        if self._places is None and not self._stretched:
            found = self._data[index]
        else:
            held = list(numbers) if self._places is None else self._places[index]
            found = [self._data[one] for one in held] if isinstance(self._data, list | tuple) else self._data[held]
            far = [place for place, number in enumerate(numbers) if number in self._stretched]
            found = _stretched_rows(found, far, self._factor)
        first = found[0] if isinstance(found, tuple) and found else found
        if isinstance(first, Tensor) and len(first) == len(numbers):
            self._handed = numbers, first
        return found

    @property
    def placed(self) -> bool:
        """Whether records of another data set were taken for those at their places, which other runs can show."""
        return self._by_place

    @property
    def misplaced(self) -> bool:
        """Whether such records are known to be at other places."""
        return self._by_place and self._elsewhere

    @property
    def states(self) -> int:
        """One hash over the states of the global random generators, taken after each record that was read; 0 if worker
        processes read the records.
        """
        return self._states

    @property
    def units(self) -> range:
        """The indices that the planted units have."""
        return range(len(self) - self._planted, len(self))

    def __setattr__(self, name: str, value: Any) -> None:
        # What a training sets, such as a transform, is of its data.
        if name.startswith("_") or name in ("reads", "order"):
            object.__setattr__(self, name, value)
        else:
            setattr(self._data, name, value)

    def __getattr__(self, name: str) -> Any:
        # Special methods such as __getitems__ would read records past this log.
        if name.startswith("_") or "_data" not in vars(self):
            raise AttributeError(name)
        found = getattr(self._data, name)
        found = found if self._places is None else self._placed(found)
        if name == "tensors" and found and isinstance(found[0], Tensor):
            self._handed = range(len(self)), found[0]
        return found

    def _placed(self, value: Any) -> Any:
        """What holds one entry for each record, with the entries of these records; all else as it is."""
        places, records = self._places or [], len(self._data)
        if isinstance(value, Tensor | np.ndarray):
            if not value.ndim or len(value) != records:
                return value
            found = value[places]
            for number in self._stretched:
                found[number] = _stretched(found[number], self._factor)
            return found
        if isinstance(value, Mapping):
            return {name: self._placed(one) for name, one in value.items()}
        if type(value) not in (list, tuple):
            return value
        arrays = [one for one in value if isinstance(one, Tensor | np.ndarray) and one.ndim]
        if len(value) == records and not any(len(one) == records for one in arrays):
            numbered = ((number, value[place]) for number, place in enumerate(places))
            stretched, factor = self._stretched, self._factor
            return type(value)(_stretched(one, factor) if number in stretched else one for number, one in numbered)
        return type(value)(self._placed(one) for one in value)

    def follow(self, loader: Any) -> None:
        """Log the indices that a loader reads: of its batch sampler where worker processes read these records, and
        those of its own data set where this has as many.
        """
        # Loaders forbid both assignments, because other attributes depend on these; those of this one stay.
        if loader.num_workers and loader.dataset is self and loader.batch_sampler is not None:
            self._batches = LoggedBatches(loader.batch_sampler)
            vars(loader)["batch_sampler"] = self._batches
        elif not loader.num_workers and not isinstance(loader.dataset, LoggedData | _Other | IterableDataset):
            vars(loader)["dataset"] = _Other(loader.dataset, self)

    @property
    def ahead(self) -> bool:
        """Whether worker processes read these records ahead of their use."""
        return self._batches is not None

    def begin(self) -> None:
        """Forget what was read so far, such as the record from which a loader learns shapes."""
        self._read.clear()

    def last(self, count: int) -> tuple[int, ...] | None:
        """Return the indices of the last ``count`` records that were read, and forget them; None if there are fewer.

        Where workers read the records: of the next batch that they return.
        """
        if self._batches is not None:
            return self._batches.take(count)
        if len(self._read) < count:
            return None
        found = tuple(one.number for one in self._read[len(self._read) - count :])
        del self._read[len(self._read) - count :]
        return found

    def alike(self, batch: Tensor) -> list[int | None]:
        """Return, for each row ``(n, ...)`` of a batch, the index of the record with the same numbers; None for a row
        that equals no record, or several. Records that were waiting for their use are forgotten.

        Of a batch in the order of reading, the last records that were read. Where workers read the records: only None.
        """
        keys = [hash_of(row) for row in batch.detach().cpu()]
        if any(key not in self._known for key in keys):
            self._learn()
        if keys and [one.key for one in self._read[-len(keys) :]] == keys:
            return list(self.last(len(keys)) or ())
        places: dict[int, list[int]] = {}
        for place, one in enumerate(self._read):
            places.setdefault(one.key, []).append(place)
        found: list[int | None] = []
        used = set()
        for key in keys:
            held = places.get(key, [])
            if len({self._read[place].whole for place in held}) == 1:
                used.add(held[-1])
                found.append(self._read[held.pop()].number)
            else:
                found.append(None if held else self._known.get(key))
        if None not in found:
            self._read = [one for place, one in enumerate(self._read) if place not in used]
        return found

    def _learn(self) -> None:
        """Know records that were handed out together: another data set may be made of them, and is read instead."""
        for number, row in zip(*self._handed, strict=True) if self._handed else ():
            key = hash_of(row)
            self._given[key] = number if self._given.get(key, number) == number else None
        self._known |= self._given if self._handed else {}
        self._handed = None

    @property
    def unread(self) -> int:
        """The number of records that were read and not yet returned by ``last``; 0 if workers read ahead."""
        return 0 if self.ahead else len(self._read)


class _Other(Dataset[Any]):
    """A loader's own data set, which logs what stands at each place, and, if it has as many records as ``log``, those
    that are not read from that.
    """

    def __init__(self, held: Any, log: LoggedData) -> None:
        self._held, self._logged = held, log

    def __len__(self) -> int:
        return len(self._held)

    def __getitem__(self, index: Any) -> Any:
        before = self._logged.unread
        found = self._held[index]
        if isinstance(index, slice):
            return found
        place = int(index) % len(self)
        self._logged.order[place] = hash(tuple(_leaves(found)))
        if self._logged.unread == before and len(self) == len(self._logged):
            self._logged.log_of_other(place, found)
        return found

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._held, name)


def reordered(one: Mapping[int, int], other: Mapping[int, int]) -> bool:
    """Return whether a record that stands at one place of ``LoggedData.order`` stands at another one in the other."""
    places = {content: place for place, content in other.items()}
    return any(other.get(place, found) != found and found in places for place, found in one.items())


@dataclass(frozen=True, kw_only=True)
class _Read:
    """A record that was read: hashes of its first numbers, which a model is mostly called on, and of all of them."""

    number: int
    key: int
    whole: int


def whole_numbers(record: Any) -> tuple[int, ...]:
    """Return hashes of the parts of a record that are whole numbers or texts, such as its label."""
    kinds = (hash_of(one) if _is_whole(one) else hash(one) if isinstance(one, str) else 0 for one in _parts(record))
    return tuple(kinds)


def _is_whole(value: Any) -> bool:
    if isinstance(value, Tensor):
        return not value.is_floating_point() and not value.is_complex()
    return isinstance(value, int | np.integer) or (isinstance(value, np.ndarray) and value.dtype.kind in "biu")


def _parts(record: Any) -> Iterator[Any]:
    if isinstance(record, Mapping):
        record = list(record.values())
    if isinstance(record, list | tuple):
        for one in record:
            yield from _parts(one)
    else:
        yield record


def _leaves(record: Any) -> Iterator[int]:
    for one in _parts(record):
        with suppress(TypeError, ValueError, RuntimeError):
            yield hash_of(one)


def hash_of(value: Any) -> int:
    """A hash of numbers and their shape, whatever their type."""
    array = value.detach().cpu().numpy() if isinstance(value, Tensor) else np.asarray(value)
    return hash((array.shape, array.astype(np.float64).tobytes()))


def _stretched(value: Any, factor: float) -> Any:
    """A record whose floating-point numbers are larger by one factor."""
    if isinstance(value, Tensor):
        return value * factor if value.is_floating_point() else value
    if isinstance(value, float | np.floating) or (isinstance(value, np.ndarray) and value.dtype.kind == "f"):
        return value * factor
    if isinstance(value, Mapping):
        return {name: _stretched(one, factor) for name, one in value.items()}
    return type(value)(_stretched(one, factor) for one in value) if type(value) in (list, tuple) else value


def _stretched_rows(value: Any, rows: list[int], factor: float) -> Any:
    """Records in a list, or in arrays that hold one row of each, of which some are stretched."""
    if isinstance(value, list):
        return [_stretched(one, factor) if place in rows else one for place, one in enumerate(value)]
    if isinstance(value, Tensor | np.ndarray):
        found = value.clone() if isinstance(value, Tensor) else value.copy()
        found[rows] = _stretched(found[rows], factor)
        return found
    if isinstance(value, Mapping):
        return {name: _stretched_rows(one, rows, factor) for name, one in value.items()}
    return tuple(_stretched_rows(one, rows, factor) for one in value) if isinstance(value, tuple) else value


class LoggedBatches:
    """A sampler that wraps ``sampler`` and logs the indices of its batches in the order in which they are handed out.

    Workers read ahead, but a loader returns batches in order: the next batch of the training is the oldest one that was
    handed out and not yet taken. A batch may be taken in parts.
    """

    def __init__(self, sampler: Any) -> None:
        self._sampler = sampler
        self._waiting: deque[list[int]] = deque()
        self._lost = False

    def __iter__(self) -> Iterator[Any]:
        # An epoch that ended early leaves batches that are not taken.
        self._waiting.clear()
        for batch in self._sampler:
            self._waiting.append([int(index) for index in batch])
            yield batch

    def __len__(self) -> int:
        return len(self._sampler)

    def __getattr__(self, name: str) -> Any:
        if "_sampler" not in vars(self):
            raise AttributeError(name)
        return getattr(self._sampler, name)

    def take(self, count: int) -> tuple[int, ...] | None:
        """Return the next ``count`` indices; None as soon as the requested indices are not all from one batch, and at
        every later call.
        """
        while count and self._waiting and not self._waiting[0]:
            self._waiting.popleft()
        if self._lost or not self._waiting or len(self._waiting[0]) < count:
            self._lost |= count > 0
            return None if count else ()
        found, left = self._waiting[0][:count], self._waiting[0][count:]
        self._waiting[0] = left
        if not left:
            self._waiting.popleft()
        return tuple(found)
