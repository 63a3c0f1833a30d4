"""Measure the CPU seconds of a whole run, including its workers, start-up, verdicts and report pages."""

import time
from collections.abc import Hashable
from dataclasses import dataclass, field


@dataclass
class Cost:
    """A counter of CPU seconds. It counts from its creation; with ``since``, it counts from the moment when this
    process had used ``since`` CPU seconds (0.0: from the start of the process).
    """

    since: float = field(default_factory=time.process_time)
    _workers: dict[Hashable, float] = field(default_factory=dict)

    def add_worker(self, worker: Hashable, seconds: float) -> None:
        """Record the CPU ``seconds`` that a worker process, given by a name of its own, has used since its start."""
        # Totals may arrive out of order, because workers report whenever a job ends.
        self._workers[worker] = max(seconds, self._workers.get(worker, 0.0))

    def seconds(self) -> float:
        """Return the CPU seconds that the run has used up to now."""
        return time.process_time() - self.since + sum(self._workers.values())
