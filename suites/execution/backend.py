"""Define a backend: where the jobs of a run are carried out, in processes of this machine or on a cluster."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Protocol, Self

from ..jobs.planned_audit import PlannedAudit
from ..planning.run_plan import Job
from ..results.store import Store

Work = Job | PlannedAudit


class Carry(Protocol):
    """A function that does one job, writes its cells to the store and returns the titles of failed cells with their
    reasons. Workers import it by name.
    """

    def __call__(self, job: Work, store: Store) -> list[str]: ...


@dataclass(frozen=True, kw_only=True)
class Done:
    """A job that a worker has done.

    Args:
        index: its place among the jobs that were sent.
        failed: titles of failed cells with their reasons.
        worker: names the process among all workers of the run.
        cpu_s: CPU seconds that this worker has used for the run so far.
    """

    index: int
    failed: list[str]
    worker: str
    cpu_s: float


class ClusterError(RuntimeError):
    """A cluster could not do a job: its workers died again and again, do not see the run's folder, or differ from the
    process that started the run. Finished cells are kept, and the run can be resumed.
    """


class Backend(Protocol):
    """Where the jobs of a run are carried out; entered once per run, before anything is sent."""

    name: str

    @property
    def at_once(self) -> int:
        """How many jobs the workers that are there now do at the same time, at least 1; known once entered."""
        ...

    def sends(self, jobs: int) -> bool:
        """Return whether so many jobs are worth sending to workers, instead of doing them in this process."""
        ...

    def results(self, carry: Carry, jobs: Sequence[Work], store: Store) -> Iterator[Done]:
        """Have workers do the jobs, each with ``carry(job, store)``; yield each as soon as it ends.

        Raises:
            ClusterError: after all other jobs, if some could not be done.
        """
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
