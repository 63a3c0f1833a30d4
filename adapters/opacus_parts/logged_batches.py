"""A batch sampler that remembers the batches which it handed out, for loaders whose workers read the records."""

from collections import deque
from collections.abc import Iterator
from typing import Any


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
