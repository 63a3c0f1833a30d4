"""Fix the order in which every format of a report shows its tables."""

from dataclasses import dataclass, replace

from ..claim_tables.beliefs import belief_table
from ..claim_tables.coverage import coverage_table
from ..claim_tables.covered import covered_table
from ..claim_tables.mutants import mutant_rows, mutant_table
from ..claim_tables.papers import paper_table
from ..claim_tables.published import published_table, published_values
from ..claim_tables.same_epsilon import same_epsilon_table
from ..claim_tables.trust import trust_table
from ..reading.claims import claim_rows
from ..reading.run_folder import RunFolder
from ..tables import summary
from ..tables.grid import attack_grids
from ..tables.membership_table import membership_table
from ..tables.pooled_rows import omission_rows, pooled_attacks, pooled_utility
from ..tables.printed import attack_table, claim_table, omission_table, utility_table
from ..tables.reconstruction import reconstruction_rows, reconstruction_table
from ..tables.shares import spread_table, traffic_table
from ..tables.table import Table
from ..tables.unread import unread_table


@dataclass(frozen=True, kw_only=True)
class Section:
    """A section of a report; ``key`` is its id, from which the HTML page chooses a special layout for some sections.

    ``part``: ``claims`` for what the page shows before the figures, ``details`` for what it shows after them.
    """

    key: str
    part: str
    tables: tuple[Table, ...]


def sections(folder: RunFolder) -> list[Section]:
    """Build every section of a report in order, including those whose tables have no rows.

    Call it after everything else that reads the cells' files: the last section lists the files that proved unreadable.
    """
    claims = claim_rows(folder)
    attacks = [attack_table(grid, grid.lines) for grid in attack_grids(pooled_attacks(folder))]
    return [
        # Claims come first, because the verdict of the run is about them.
        _section("claims", replace(claim_table(claims), note=summary.claims_note(claims, folder.kinds)), part="claims"),
        _section("covered", covered_table(folder), part="claims"),
        _section("trust", trust_table(folder), part="claims"),
        _section("coverage", coverage_table(claims)),
        _section("same-epsilon", same_epsilon_table(folder)),
        _section("beliefs", belief_table(folder)),
        _section("papers", paper_table(claims)),
        _section("published", published_table(published_values(folder))),
        _section("mutants", mutant_table(mutant_rows(folder))),
        _section("attacks", *(replace(table, note=summary.POOLING_NOTE) for table in attacks)),
        _section("reconstruction", reconstruction_table(reconstruction_rows(folder))),
        _section("membership", membership_table(folder)),
        _section("utility", utility_table(pooled_utility(folder))),
        _section("spread", spread_table(pooled_utility(folder))),
        _section("traffic", traffic_table(pooled_utility(folder))),
        _section("omissions", omission_table(omission_rows(folder))),
        # Last, because some damage is found only while the tables above read the files.
        _section("unread", unread_table(folder)),
    ]


def _section(key: str, *tables: Table, part: str = "details") -> Section:
    return Section(key=key, part=part, tables=tables)


def run_tables(folder: RunFolder) -> list[Table]:
    """Return the tables of all sections that have at least one row."""
    return [table for section in sections(folder) for table in section.tables if table.rows]
