"""Define the tables of a suite file for vertical federations: parties with different columns of the same people."""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from ....audit.estimators.label_guesses import check_prior
from .key_types import Number, Table, Whole, WithData, YesOrNo, is_absent

_MOST_PARTIES, _MOST_COLUMNS = 100, 100_000

_Size = Annotated[Whole, Field(ge=1)]


def _columns(value: Any) -> Any:
    """Raise ValueError, with words of this key, unless the value is a number of parties or lists of columns."""
    if isinstance(value, int) and not isinstance(value, bool) and value >= 1:
        return value
    if not isinstance(value, list | tuple):
        raise ValueError(
            "must be the number of parties that hold columns, a whole number from 1 (with active = true from 2) to the "
            f"number of columns, or a list for each party, got {value!r:.80}"
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


class VerticalAuditSpec(Table):
    """The settings of the audits of a vertical federation's claims: for each claim, independent runs of a small
    federation with one of two labels, or with one of two rows, of one person; or one run with a coin for each label; or
    one run with the labels as they are.
    """

    design: Literal["independent", "one_run", "observational"] = "independent"
    """``independent``: independent runs of a small federation. ``one_run``: one run of the whole federation, in which a
    fair coin gives each person one of two labels; for claims about labels against a party without labels.
    ``observational``: one run of the whole federation with its own labels, which are guessed; for such claims at
    delta 0. It can refute a claim only with a ``prior``."""
    prior: Annotated[tuple[Number, ...], Field(min_length=2)] | None = Field(default=None, exclude_if=is_absent)
    """For the observational design: the largest probability that each label has given any person's columns, as where
    labels were drawn by a known law. The labels must also be independent of each other given the columns. Without it
    the audit states an estimate, which refutes nothing, because columns alone may show labels."""
    people: Whole = Field(default=24, ge=2, le=10_000)
    """Number of people in the audit's runs. A claim holds for every data set, so a small one will do."""
    batch: Whole = Field(default=8, ge=1)
    """Number of people in a step of the audit's runs; at most the federation's own."""
    replicas: Whole = Field(default=10_000, ge=100, le=1_000_000)
    """Runs per arm; half of them choose the thresholds, the other half test them."""
    pilot: Whole = Field(default=2000, ge=50, le=100_000)
    """Further runs per arm, from which the scores are learned."""

    @model_validator(mode="after")
    def _prior_fits(self) -> "VerticalAuditSpec":
        if self.prior is None:
            return self
        if self.design != "observational":
            raise ValueError(f'prior is for design = "observational", got {self.design!r}')
        check_prior(self.prior)
        return self


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
