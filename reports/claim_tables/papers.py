"""Tabulate papers' claims: the published epsilon, the epsilon that can be proved, and the measured lower bound."""

import re
from collections.abc import Sequence

from ...audit.claim import NOT_PROVABLE, PROVABLE
from ...audit.wording import at_least, at_most
from ..reading.claims import ClaimRow
from ..tables import numerals
from ..tables.printed import VERDICTS
from ..tables.table import Table

_EVIDENCE = re.compile("; (?:witness|evidence): (.*?)(?:; (?:probe|implementation check): |$)")


def paper_table(rows: Sequence[ClaimRow]) -> Table:
    """Return a table of claims as papers publish them; for a refuted claim, the table shows the distinguishing event
    and its error rates.
    """
    published = [row for row in rows if row.published]
    return Table(
        title="Claims as published",
        headers=("defense", "claim", "published ε", "provable ε", "measured ε ≥", "verdict", "evidence"),
        rows=tuple(
            (
                row.defense,
                row.claim_text,
                numerals.significant(row.stated.claim.epsilon if row.stated else None),
                _provable(row),
                numerals.NOTHING if row.epsilon_low is None else at_least(row.epsilon_low),
                VERDICTS.get(row.verdict, row.verdict),
                _evidence(row),
            )
            for row in published
        ),
        numeric=frozenset({2, 3, 4}),
        about=2,
        note="The provable ε belongs to the mechanism as published, at the same δ, by the theorem that its erratum "
        "names; where no theorem applies there is none. A measured ε above the published one refutes the claim.",
    )


def _provable(row: ClaimRow) -> str:
    parameters = row.stated.claim.parameters if row.stated else {}
    value, words = parameters.get(PROVABLE), str(parameters.get(NOT_PROVABLE, ""))
    return words.partition(":")[0] or numerals.significant(float(value) if isinstance(value, int | float) else None)


def _evidence(row: ClaimRow) -> str:
    """The runs or event that refuted the claim, taken from the recorded reason, and the bounds on the error rates."""
    if row.verdict != "REFUTED" or row.record is None:
        return ""
    # The reason goes on with the implementation checks. The names of both parts differ between versions of fedassay.
    found = _EVIDENCE.search(row.record.reason)
    words = found[1] if found else ""
    if row.fpr_high is None or row.fnr_high is None:
        return words
    # Both rates are upper confidence bounds, so they are rounded up.
    rates = f"FPR <= {at_most(row.fpr_high)}, FNR <= {at_most(row.fnr_high)}"
    return f"{words}; {rates}" if words else rates
