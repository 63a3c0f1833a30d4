"""State what the implementation checks of each claim looked at, and what they did not."""

from collections.abc import Sequence

from ...audit.wording import counted
from ..reading.claims import ClaimRow, claim_rows
from ..reading.run_folder import RunFolder
from ..tables.table import Table


def coverage_table(rows: Sequence[ClaimRow]) -> Table:
    """Return a table of what the implementation checks of each claim looked at, and what they did not."""
    many = len({row.federation for row in rows}) > 1
    return Table(
        title="Coverage of the implementation checks",
        headers=("defense", "claim", "looked at", "not looked at"),
        rows=tuple(
            (
                f"{row.federation}/{row.label}" if many else row.label,
                row.claim_text,
                "; ".join(row.looked_at),
                "; ".join(row.not_looked_at),
            )
            for row in rows
            if row.looked_at or row.not_looked_at
        ),
        about=2,
    )


def coverage_lines(folder: RunFolder) -> list[str]:
    """Return one line for each statement of what the checks of claims did not look at, with the claims' defenses."""
    found: dict[str, list[str]] = {}
    for row in claim_rows(folder):
        if row.stated and (words := _words(row)):
            found.setdefault(words, []).append(row.label)
    return [f"checks {', '.join(dict.fromkeys(labels))}: {words}" for words, labels in found.items()]


def _words(row: ClaimRow) -> str:
    """Format what the checks of a claim did not look at, without the reasons; empty where no checks ran."""
    without = [item.partition(":")[0] for item in row.not_looked_at]
    return f"{counted(len(row.looked_at), 'item')} looked at; not looked at: {', '.join(without)}" if without else ""
