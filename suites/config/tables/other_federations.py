"""Define the tables of a suite file for vertical federations and for transfers by answers (PATE)."""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from .key_types import ModelPart, Number, Partition, SuiteTable, Whole, WithData, YesOrNo

_MOST_PARTIES, _MOST_COLUMNS = 100, 100_000

_Size = Annotated[Whole, Field(ge=1)]


def _columns(value: Any) -> Any:
    """Raise ValueError, with words of this key, unless the value is a number of parties or lists of columns."""
    if isinstance(value, int) and not isinstance(value, bool) and value >= 1:
        return value
    if not isinstance(value, list | tuple):
        raise ValueError(
            "must be the number of parties that hold columns, from 1 (from 2 with active = true) to the number of "
            f"columns, or a list of columns for each party, got {value!r:.80}"
        )
    if not 1 <= len(value) <= _MOST_PARTIES:
        raise ValueError(f"must list the columns of 1 to {_MOST_PARTIES} parties, got {len(value)}")
    for party in value:
        if not isinstance(party, list | tuple) or len(party) > _MOST_COLUMNS:
            raise ValueError(f"must hold a list of at most {_MOST_COLUMNS} columns for each party, got {party!r:.80}")
        if wrong := [one for one in party if isinstance(one, bool) or not isinstance(one, int | str)]:
            raise ValueError(f"must name each column by a whole number or a text, got {wrong[0]!r:.80}")
    return value


Columns = Annotated[Annotated[int, Field(ge=1)] | tuple[tuple[Whole | str, ...], ...], BeforeValidator(_columns)]


class VerticalAuditSpec(SuiteTable):
    """The settings of the audits of a vertical federation's claims: for each claim, independent runs of a small
    federation with one of two labels, or with one of two rows, of one person; or one run with a coin for each label.
    """

    design: Literal["independent", "one_run"] = "independent"
    """``independent``: independent runs of a small federation. ``one_run``: one run of the whole federation, in which a
    fair coin gives each person one of two labels; for claims about labels against a party without labels."""
    people: Whole = Field(default=24, ge=2, le=10_000)
    """Number of people in the audit's runs. A claim holds for every data set, so a small one will do."""
    batch: Whole = Field(default=8, ge=1)
    """Number of people in a step of the audit's runs; at most the federation's own."""
    replicas: Whole = Field(default=10_000, ge=100, le=1_000_000)
    """Runs per arm; a fifth of them chooses the thresholds, the others test them."""
    pilot: Whole = Field(default=2000, ge=50, le=100_000)
    """Further runs per arm, from which the scores are learned."""


class VerticalSpec(WithData):
    """The settings of a vertical federation: data set, columns of each party, models and training."""

    columns: Columns = 2
    """The number of parties that hold columns, among which the columns are split into strips of equal width; or a list
    with the columns of each of these parties, by their names in a table, or by number, from 0 along the flattened row.
    A column of a table is never split.
    """
    active: YesOrNo = False
    """Whether the last of these parties holds the labels too; else a further party holds the labels and no columns."""
    people: Whole | None = Field(default=None, ge=2)
    """How many people take part; by default nine tenths of the training rows."""
    public: Whole | None = Field(default=None, ge=1)
    """How many people are public: they take part in nothing, and attacks may use them. By default a tenth."""
    known: Whole = Field(default=10, ge=0)
    """Number of people whose labels a passive party knows from elsewhere."""
    embedding: Whole | None = Field(default=None, ge=1)
    """Numbers that a party sends about a person; by default the number of classes."""
    hidden: tuple[_Size, ...] = Field(default=(), max_length=10)
    """Sizes of the hidden layers of each party's bottom model."""
    top_hidden: tuple[_Size, ...] = Field(default=(), max_length=10)
    """Sizes of the hidden layers of the top model."""
    summed: YesOrNo = False
    """Whether the logits are the sum of all embeddings: with no hidden layers, vertical logistic regression."""
    frozen: YesOrNo = False
    """Whether the bottom models of parties without labels keep their public initial parameters."""
    epochs: Whole = Field(ge=1, le=100_000)
    """Passes over all people."""
    batch: Whole = Field(ge=1)
    """Number of people in one step; the last step of an epoch may have fewer."""
    learning_rate: Number = Field(gt=0, allow_inf_nan=False)
    """Learning rate of plain gradient descent, of all parties' models, > 0."""
    audit: VerticalAuditSpec | None = None
    """How the claims are audited; without this table they are not."""

    @model_validator(mode="after")
    def _batch_fits(self) -> "VerticalSpec":
        if self.people is not None and self.batch > self.people:
            raise ValueError(f"batch must be at most people = {self.people}, got {self.batch}")
        return self


_Queries = Annotated[Whole, Field(ge=1, le=10_000)]


class TrainingSpec(SuiteTable):
    """How the teachers, or the students, are trained."""

    steps: Whole = Field(ge=1, le=1_000_000)
    """Number of steps of the training."""
    learning_rate: Number = Field(gt=0, allow_inf_nan=False)
    """Learning rate of every step, > 0."""
    optimizer: Literal["sgd", "adam"] = "adam"
    """``sgd`` (plain gradient descent) or ``adam``."""
    lot: Whole | None = Field(default=None, ge=1)
    """Number of samples in each step, drawn without replacement within the step; by default all samples."""


class TransferAuditSpec(SuiteTable):
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
