"""Fix the order of the tables of a report, the sections of each defense, and how to read them."""

from dataclasses import dataclass
from functools import partial

from ..reading.claims import claim_rows, covered, stated_rows
from ..reading.run_folder import RunFolder
from . import summary
from .auditors import mutant_rows, mutant_table
from .covered import value_words
from .inference_table import attribute_table, property_table
from .membership_table import membership_table
from .pooled_rows import AttackRow, attack_grids, omission_rows, pooled_attacks, pooled_utility, primary_results
from .printed import (
    ANSWERS,
    VERDICTS,
    attack_table,
    claim_table,
    defense_words,
    observer_words,
    omission_table,
    spread_table,
    traffic_table,
    utility_table,
)
from .reconstruction import reconstruction_rows, reconstruction_table
from .same_epsilon import same_epsilon_table
from .stated import belief_table, coverage_table, paper_table, published_table, published_values, trust_table
from .summary import INTERVALS, unread_table
from .table import Table, tabulate

MOST = 40
"""Defenses for which a page has room."""


@dataclass(frozen=True, kw_only=True)
class DefenseSection:
    """The tables about one defense that have rows.

    Args:
        key: its id on a page.
        title: its label, with a mark for a control.
    """

    key: str
    defense: str
    title: str
    tables: tuple[Table, ...]


def by_defense(folder: RunFolder) -> list[DefenseSection]:
    """Return one section per defense with a claim or a result, in the suite's order; none if there are more than
    ``MOST``.
    """
    order = folder.order
    named = dict.fromkeys([*(one.defense for one in folder.claims), *(row.defense for row in folder.rows())])
    controls = {one.defense for one in folder.claims if one.control}
    controls |= {row.defense for row in folder.rows() if row.control}
    found: list[DefenseSection] = []
    if len(named) > MOST:
        return found
    for number, defense in enumerate(sorted(filter(None, named), key=order.defense), start=1):
        claims = [row for row in stated_rows(folder) if row.defense == defense]
        used = [row for row in pooled_utility(folder) if row.defense == defense]
        tables = (claim_table(claims), _attacks(folder, defense), utility_table(used))
        kept = tuple(table for table in tables if table.rows)
        title = defense_words(defense, defense in controls)
        if kept:
            found.append(DefenseSection(key=f"defense-{number}", defense=defense, title=title, tables=kept))
    return found


def _attacks(folder: RunFolder, defense: str) -> Table:
    return tabulate(
        "Attacks",
        primary_results(folder).get(defense, []),
        {
            "federation": lambda one: one.federation,
            "attack": lambda one: one.name,
            "adversary": lambda one: observer_words(one.observer),
            "result": value_words,
            "covered by a claim": partial(_scope, folder),
        },
        about=3,
    )


def _scope(folder: RunFolder, cell: AttackRow) -> str:
    if cell.null:
        return "null attack: not judged"
    if cell.beyond:
        return "no: OUT OF SCOPE"
    return "yes" if covered(folder, cell.federation, cell.defense, cell.observer, cell.attack) else "no claim"


def how_to_read(folder: RunFolder) -> list[tuple[str, str]]:
    """Return explanations for readers of a report's claims, audits and intervals, each with a term and sentences."""
    verdicts = "; ".join(f"“{words}” is {VERDICTS[verdict]}" for verdict, words in ANSWERS.items())
    return [
        ("Claim", _claim(folder)),
        ("Adversary", _adversary(folder)),
        (
            "Audit",
            " ".join(
                (
                    *(kind.audit for kind in folder.kinds),
                    "The error rates give a lower bound: the true ε is at least the measured one.",
                )
            ),
        ),
        (
            "Power",
            "“Max certifiable” is the largest ε that this sample size can certify, even with an attack without errors. "
            "“Min detectable” is the smallest true ε at which this audit refutes the claim with 90 % power. NOT "
            "REFUTED is not a proof of the claim.",
        ),
        ("Intervals", INTERVALS),
        (
            "Answers and verdicts",
            f"The tables print as verdicts what the first screen says in words: {verdicts}.",
        ),
    ]


def _claim(folder: RunFolder) -> str:
    units = dict.fromkeys(f"a {one.claim.unit}" for one in folder.claims)
    named = f" (in this run: {', '.join(units)})" if units else ""
    return (
        f"A defense states an upper limit ε on what an adversary can learn about one unit{named}, whatever else the "
        "adversary knows, except with probability δ. A smaller ε is a stronger claim. Values for different units or δ "
        "cannot be compared."
    )


def _adversary(folder: RunFolder) -> str:
    named = "; ".join(dict.fromkeys(one.claim.observer.phrase for one in folder.claims))
    stated = f", in this run: {named}" if named else ""
    return (
        f"Each claim names its adversary{stated}. A claim covers no adversary who observes anything that its own does "
        "not."
    )


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
    grids, note = attack_grids(pooled_attacks(folder)), summary.POOLING_NOTE
    return [
        # Claims come first, because the verdict of the run is about them.
        _section("claims", claim_table(claims, summary.claims_note(claims, folder.kinds)), part="claims"),
        _section("trust", trust_table(folder), part="claims"),
        _section("coverage", coverage_table(claims)),
        _section("same-epsilon", same_epsilon_table(folder)),
        _section("beliefs", belief_table(folder)),
        _section("papers", paper_table(claims)),
        _section("published", published_table(published_values(folder))),
        _section("mutants", mutant_table(mutant_rows(folder))),
        _section("attacks", *(attack_table(grid, grid.lines, note=note) for grid in grids)),
        _section("reconstruction", reconstruction_table(reconstruction_rows(folder))),
        _section("membership", membership_table(folder)),
        _section("attributes", attribute_table(folder), property_table(folder)),
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
