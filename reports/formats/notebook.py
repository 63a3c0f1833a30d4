"""Write the short HTML form of a run that a notebook shows: its verdict, its claims and its attacks."""

from ..reading.claims import claim_rows
from ..reading.run_folder import RunFolder
from ..tables import summary
from ..tables.grid import attack_grids
from ..tables.pooled_rows import pooled_attacks, pooled_utility
from ..tables.printed import attack_table, claim_table, utility_table
from .templates import environment


def notebook_html(folder: RunFolder) -> str:
    """Return the verdict of a run and its tables of claims, attacks (primary metrics) and utility as HTML."""
    tables = [claim_table([row for row in claim_rows(folder) if row.stated])]
    tables += [attack_table(grid, grid.primary) for grid in attack_grids(pooled_attacks(folder))]
    tables += [utility_table(pooled_utility(folder))]
    return (
        environment(autoescape=True)
        .get_template("notebook.html.j2")
        .render(
            verdict=summary.verdict_line(folder),
            exit_words=summary.exit_words(folder),
            place=folder.path / "report.html",
            tables=[table for table in tables if table.rows],
        )
    )
