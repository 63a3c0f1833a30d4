"""A data set that remembers which of its records were read, and whose last indices may stand for units of an audit.

Where the workers of a loader read the records, a batch sampler remembers the batches that it handed out.
"""

from collections import deque
from collections.abc import Collection, Iterator
from typing import Any

from torch.utils.data import Dataset


class LoggedData(Dataset[Any]):
    """The records of ``data``, and the indices in the order of reading them.

    Args:
        data: any data set with a length and indices.
        planted: number of the last indices that stand for planted units. Their record is that of index 0, and only
            their vectors are the audit's. The number of records stays, because rates and numbers of steps are computed
            from it.
        other: indices that have other records, of which some come twice, for a run on other records.

    Raises:
        TypeError: for a data set without a length or without indices.
        ValueError: for as many units as records, or more.
    """

    def __init__(self, data: Any, *, planted: int = 0, other: Collection[int] = ()) -> None:
        if not hasattr(data, "__len__") or not hasattr(data, "__getitem__"):
            raise TypeError(
                "data must have a length and indices, as lots are compared by the indices of their records, "
                f"got {type(data).__name__}"
            )
        if planted and planted >= len(data):
            raise ValueError(f"planted units must be fewer than the {len(data)} records, got {planted}")
        self.data, self.planted, self._other = data, planted, other
        self._read: list[int] = []
        self._batches: LoggedBatches | None = None

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, index: Any) -> Any:
        number = int(index)
        if not -len(self) <= number < len(self):
            raise IndexError(f"index {number} is out of range for {len(self)} records")
        number %= len(self)
        self._read.append(number)
        if number in self.units:
            return self.data[0]
        # Not a permutation, under which statistics of all records would stay as they are.
        return self.data[(len(self) + number) // 2 % len(self) if number in self._other else number]

    @property
    def units(self) -> range:
        """The indices that stand for planted units."""
        return range(len(self) - self.planted, len(self))

    def __getattr__(self, name: str) -> Any:
        # Special methods such as __getitems__ would read records past this log.
        if name.startswith("_") or "data" not in vars(self):
            raise AttributeError(name)
        return getattr(self.data, name)

    def follow(self, loader: Any) -> None:
        """Take the indices from the batch sampler of a loader whose worker processes read these records."""
        if loader.num_workers and loader.dataset is self and loader.batch_sampler is not None:
            self._batches = LoggedBatches(loader.batch_sampler)
            # Loaders forbid the assignment, because other attributes depend on it; those of this one stay.
            vars(loader)["batch_sampler"] = self._batches

    @property
    def ahead(self) -> bool:
        """Whether worker processes read these records ahead of their use."""
        return self._batches is not None

    def begin(self) -> None:
        """Forget what was read until now, such as the record from which a loader learns shapes."""
        self._read.clear()

    def last(self, count: int) -> tuple[int, ...] | None:
        """Return the indices of the last ``count`` records that were read, and forget them; None if there are fewer.

        Where workers read the records: of the next batch that they return.
        """
        if self._batches is not None:
            return self._batches.take(count)
        if len(self._read) < count:
            return None
        found = tuple(self._read[len(self._read) - count :])
        del self._read[len(self._read) - count :]
        return found

    @property
    def unread(self) -> int:
        """The number of records that were read and not yet returned by ``last``; 0 where workers read ahead."""
        return 0 if self.ahead else len(self._read)


class LoggedBatches:
    """The batches of ``sampler``, and their indices in the order of handing out.

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
        """Return the next ``count`` indices; None from the first time on that they are not of one batch."""
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
