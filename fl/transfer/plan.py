"""Defines the plan of a transfer: its public facts, known to teachers, aggregator, student and adversaries alike."""

from dataclasses import dataclass

from ..fields import check_count
from ..layout import Layout
from ..partitions.sampling import Full
from ..plan import Plan
from .training import TrainingRule


@dataclass(frozen=True, kw_only=True)
class TransferPlan:
    """The facts about a transfer that are public before it starts; defenses calibrate their noise to them.

    Args:
        sizes: samples of each teacher; every client is one teacher.
        queries: number of public samples that all teachers answer.
        classes: number of labels that a teacher can answer.
        teacher, student: how each of them is trained.
        layout: the layers of the model, which teachers and student share.
    """

    sizes: tuple[int, ...]
    queries: int
    classes: int
    teacher: TrainingRule
    student: TrainingRule
    layout: Layout

    def __post_init__(self) -> None:
        if not self.sizes or min(self.sizes) < 1:
            raise ValueError(f"sizes must list at least one teacher, each with at least one sample, got {self.sizes}")
        check_count("queries", self.queries)
        check_count("classes", self.classes, least=2)

    @property
    def teachers(self) -> int:
        """The number of teachers."""
        return len(self.sizes)

    @property
    def rounds(self) -> int:
        """The number of rounds: all queries are answered in one."""
        return 1

    def as_training(self) -> Plan:
        """Return the transfer as the plan of one round in which all clients train, for attacks on the final model."""
        return Plan(
            sizes=self.sizes,
            rounds=self.rounds,
            cohort=Full(),
            lot=Full(),
            algorithm=self.teacher.algorithm(),
            layout=self.layout,
        )
