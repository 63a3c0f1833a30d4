"""Define the tables of a suite file for vertical federations: parties with different columns of the same people."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from .key_types import Number, Table, Whole, WithData

Columns = (
    Annotated[int, Field(strict=True, ge=1)]
    | Annotated[
        tuple[Annotated[tuple[Whole, ...], Field(max_length=100_000)], ...], Field(min_length=1, max_length=100)
    ]
)


class VerticalAuditSpec(Table):
    """The settings of the audits of a vertical federation's claims: for each claim, independent runs of a small
    federation with one of two labels, or with one of two rows, of one person; or one run with a coin for each label.
    """

    design: Literal["independent", "one_run"] = "independent"
    """``independent``: independent runs of a small federation. ``one_run``: one run of the whole federation, in which a
    fair coin gives each person one of two labels; for claims about labels against a party without labels."""
    people: Whole = Field(default=24, ge=2, le=10_000)
    """Number of people in the audit's runs. A claim holds for every data set, so a small one will do."""
    batch: Whole = Field(default=8, ge=1)
    replicas: Whole = Field(default=10_000, ge=100, le=1_000_000)
    """Runs per arm; half of them choose the thresholds, the other half test them."""
    pilot: Whole = Field(default=2000, ge=50, le=100_000)
    """Further runs per arm, from which the scores are learned."""


class VerticalSpec(WithData):
    """The settings of a vertical federation: data set, columns of each party, models and training."""

    columns: Columns = 2
    """The number of parties that hold columns, among which the columns are split into strips of equal width; or a list
    with the columns of each of these parties, numbered from 0 along the flattened row.
    """
    active: bool = False
    """Whether the last of these parties holds the labels too; else a further party holds the labels and no columns."""
    people: Whole | None = Field(default=None, ge=2)
    """How many people take part; by default nine tenths of the training rows."""
    public: Whole | None = Field(default=None, ge=1)
    """How many people are public: they take part in nothing, and attacks may use them. By default a tenth."""
    known: Whole = Field(default=10, ge=0)
    """Number of people whose labels a passive party knows from elsewhere."""
    embedding: Whole | None = Field(default=None, ge=1)
    """Numbers that a party sends about a person; by default the number of classes."""
    hidden: tuple[Whole, ...] = Field(default=(), max_length=10)
    """Sizes of the hidden layers of each party's bottom model."""
    top_hidden: tuple[Whole, ...] = Field(default=(), max_length=10)
    """Sizes of the hidden layers of the top model."""
    summed: bool = False
    """Whether the logits are the sum of all embeddings: with no hidden layers, vertical logistic regression."""
    frozen: bool = False
    """Whether the bottom models of parties without labels keep their public initial parameters."""
    epochs: Whole = Field(ge=1, le=100_000)
    batch: Whole = Field(ge=1)
    learning_rate: Number = Field(gt=0, allow_inf_nan=False)
    audit: VerticalAuditSpec | None = None

    @model_validator(mode="after")
    def _batch_fits(self) -> "VerticalSpec":
        if self.people is not None and self.batch > self.people:
            raise ValueError(f"batch must be at most people = {self.people}, got {self.batch}")
        return self
