"""Cost: the CPU seconds of a whole run, workers, start-up, judging and pages included; its cells are a part of them."""

import time
from dataclasses import dataclass, field


@dataclass
class Cost:
    """Counts from when it is made, or ``since`` an earlier reading of this process's CPU time: 0.0 is its start."""

    since: float = field(default_factory=time.process_time)
    _workers: dict[int, float] = field(default_factory=dict)

    def add_worker(self, worker: int, seconds: float) -> None:
        """A worker process, by its id, has taken so much since it began."""
        self._workers[worker] = max(seconds, self._workers.get(worker, 0.0))

    def seconds(self) -> float:
        """So far."""
        return time.process_time() - self.since + sum(self._workers.values())
