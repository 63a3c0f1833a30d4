"""Papers' claims in a run: what was published, what is provable of that mechanism, what an audit measured."""

from collections.abc import Sequence

from ...audit.claim import NOT_PROVABLE, PROVABLE
from ...audit.wording import at_least, at_most
from ..reading.claims import ClaimRow
from . import numerals
from .printed import VERDICTS
from .table import Table


def paper_table(rows: Sequence[ClaimRow]) -> Table:
    """Of all claims those on trial, with the witness of each refutation: an event, and how often it was missed."""
    published = [row for row in rows if row.published]
    return Table(
        title="Claims as published",
        headers=("defense", "claim", "published ε", "provable ε", "measured ε ≥", "verdict", "witness"),
        rows=tuple(
            (
                row.defense,
                row.says,
                numerals.significant(row.signed.claim.epsilon if row.signed else None),
                _provable(row),
                numerals.NOTHING if row.epsilon_low is None else at_least(row.epsilon_low),
                VERDICTS.get(row.verdict, row.verdict),
                _witness(row),
            )
            for row in published
        ),
        numeric=frozenset({2, 3, 4}),
        about=2,
        note="The provable ε is that of the mechanism as it was published, at the same δ, by the theorem that its "
        "erratum names, or none where no theorem holds; a measured one above the published one refutes the claim.",
    )


def _provable(row: ClaimRow) -> str:
    parameters = row.signed.claim.parameters if row.signed else {}
    value, words = parameters.get(PROVABLE), str(parameters.get(NOT_PROVABLE, ""))
    return words.partition(":")[0] or numerals.significant(float(value) if isinstance(value, int | float) else None)


def _witness(row: ClaimRow) -> str:
    """What refuted it: the reason's own words, and the rates of error that were seen."""
    if row.verdict != "REFUTED" or row.record is None:
        return ""
    words = row.record.reason.partition("witness: ")[2].partition("; probe: ")[0]
    if row.fpr_high is None or row.fnr_high is None:
        return words
    rates = f"FPR <= {at_most(row.fpr_high)}, FNR <= {at_most(row.fnr_high)}"
    return f"{words}; {rates}" if words else rates
