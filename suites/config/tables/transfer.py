"""Define the tables of a suite file for transfers by answers: teachers label public samples for a student (PATE)."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from .key_types import ModelPart, Number, Partition, Table, Whole, WithData

_Queries = Annotated[Whole, Field(ge=1, le=10_000)]


class TrainingSpec(Table):
    """How the teachers, or the students, are trained."""

    steps: Whole = Field(ge=1, le=1_000_000)
    """Number of steps of the training."""
    learning_rate: Number = Field(gt=0, allow_inf_nan=False)
    """Learning rate of every step, > 0."""
    optimizer: Literal["sgd", "adam"] = "adam"
    """``sgd`` (plain gradient descent) or ``adam``."""
    lot: Whole | None = Field(default=None, ge=1)
    """Number of samples in each step, drawn without replacement within the step; by default all samples."""


class TransferAuditSpec(Table):
    """The settings of the audits of a transfer's claims: for each claim, the mechanism of the votes on neighbouring
    vote counts, or of one teacher's answers on neighbouring logits.
    """

    queries: tuple[_Queries, ...] = Field(default=(1, 10), min_length=1, max_length=10)
    """Numbers of queries of the audited mechanisms. The defense is calibrated anew for each, and they share alpha: too
    little noise shows best on one query, and noise that is used twice on several. More than the transfer has become as
    many as it has."""
    trials: Whole = Field(default=20_000, ge=100, le=1_000_000)
    """Runs on each of two neighbouring inputs. Half as many on each pair of inputs choose the pair and the score."""

    @model_validator(mode="after")
    def _queries_differ(self) -> "TransferAuditSpec":
        if len(set(self.queries)) < len(self.queries):
            raise ValueError(f"queries must be different numbers, got {list(self.queries)}")
        return self


class TransferSpec(WithData):
    """The settings of a transfer: data set, model, partition of the data over the teachers, queries and training."""

    model: ModelPart = "logistic"
    """The model of all teachers and of the student. It must classify, without dropout and batch norm."""
    partition: Partition = "iid"
    teachers: Whole = Field(ge=1, le=100_000)
    """Number of teachers, each of them one client that trains a model on its own samples."""
    samples: Whole | None = Field(default=None, ge=1)
    """Number of private samples of all teachers together; by default nine tenths of the training samples."""
    queries: Whole = Field(ge=1)
    """Number of public samples that all teachers are asked about, and on which the student is trained."""
    source: Literal["test", "outsiders"] = "test"
    """``test``: the queries are test samples, and the others measure the student. ``outsiders``: they are samples that
    no teacher holds."""
    students: Whole = Field(default=10, ge=1, le=10_000)
    """Number of students per seed. All learn from the answers of the same teachers, each with noise of its own."""
    teacher: TrainingSpec
    """How each teacher is trained."""
    student: TrainingSpec
    """How each student is trained, on the queries with a released label."""
    audit: TransferAuditSpec | None = None
    """How the claims are audited; without this table they are not."""

    @model_validator(mode="after")
    def _samples_suffice(self) -> "TransferSpec":
        if self.samples is not None and self.samples < self.teachers:
            raise ValueError(f"samples must be at least teachers = {self.teachers}, got {self.samples}")
        return self
