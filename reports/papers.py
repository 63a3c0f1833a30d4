"""Papers' claims in a run: what was published, what is provable of that mechanism, what an audit measured."""

from collections.abc import Sequence

from . import numerals
from .claims import ClaimRow
from .printed import VERDICTS
from .table import Table

PROVABLE = "provable_epsilon"
"""The parameter in which a claim that is signed as published says what holds instead."""


def paper_table(rows: Sequence[ClaimRow]) -> Table:
    """Of all claims those on trial, with the witness of each refutation."""
    published = [row for row in rows if row.published]
    return Table(
        title="Claims as published",
        headers=("defense", "claim", "published ε", "provable ε", "measured ε ≥", "verdict", "witness"),
        rows=tuple(
            (
                row.defense,
                row.says,
                numerals.epsilon(row.signed.claim.epsilon if row.signed else None),
                numerals.epsilon(_provable(row)),
                numerals.lower_bound(row.epsilon_low),
                VERDICTS.get(row.verdict, row.verdict),
                _witness(row),
            )
            for row in published
        ),
        numeric=frozenset({2, 3, 4}),
        note="The provable ε is that of the mechanism as it was published, at the same δ, by the theorem that its "
        "erratum names; a measured one above the published one refutes the claim.",
    )


def _provable(row: ClaimRow) -> float | None:
    value = row.signed.claim.parameters.get(PROVABLE) if row.signed else None
    return float(value) if isinstance(value, int | float) else None


def _witness(row: ClaimRow) -> str:
    if row.verdict != "REFUTED" or row.record is None:
        return ""
    return row.record.reason.partition("witness: ")[2].partition("; probe: ")[0]
