"""Print one line per claim, and plain tables, without importing matplotlib, jinja2 or pandas."""

from ...audit.wording import at_least, at_most, plain
from ...suites.results.outcome import unseen_words
from ..reading.claims import ClaimRow, claim_rows, stated_rows
from ..reading.run_folder import RunFolder
from ..tables.auditors import mutant_rows, mutant_table
from ..tables.numerals import ATTACK_HEADLINES
from ..tables.pooled_rows import attack_grids, omission_rows, pooled_attacks, pooled_utility
from ..tables.printed import (
    attack_table,
    check_counts,
    check_words,
    namer,
    spread_table,
    traffic_table,
    utility_table,
    verdict_words,
)
from ..tables.stated import paper_table, published_table, published_values
from ..tables.summary import unread_lines


def claim_lines(folder: RunFolder) -> list[str]:
    """Return one line per claim with its defense, audit and verdict; defenses without a claim come first, one line
    each.
    """
    rows = stated_rows(folder)
    name, claiming = namer(rows, controls=False), {row.defense for row in rows}
    without = dict.fromkeys(record.defense for record in folder.records if record.defense not in claiming)
    lines = [(label, "states no claim: NO CLAIM") for label in without]
    lines += [(name(row), _line(row)) for row in rows]
    width = max((len(label) for label, _ in lines), default=0)
    return [f"claim  {label:{width}}  {line}" for label, line in lines]


def tables(folder: RunFolder) -> list[str]:
    """Return aligned plain-text tables: attacks with their primary metric and LPIPS, utility, and what was not
    measured.
    """
    mutants = mutant_table(mutant_rows(folder))
    lines = [mutants.title, *mutants.lines(), mutants.note, ""] if mutants.rows else []
    for table in (paper_table(claim_rows(folder)), published_table(published_values(folder))):
        lines += [table.title, *table.lines(), table.note, ""] if table.rows else []
    for grid in attack_grids(pooled_attacks(folder)):
        # Without intervals a line fits into a terminal, and with few metrics the table does.
        shown = [line for line in grid.lines if line.first.metric in (*ATTACK_HEADLINES, "lpips")]
        table = attack_table(grid, shown, intervals=False)
        lines += [table.title, *table.lines(), *filter(None, [table.note]), ""]
    utility = utility_table(pooled_utility(folder))
    lines += [utility.title, *utility.lines(), ""] if utility.rows else []
    for table in (spread_table(pooled_utility(folder), intervals=False), traffic_table(pooled_utility(folder))):
        # Without the note, which every other format prints: a terminal has no fold to put it in.
        lines += [table.title, *table.lines(), ""] if table.rows else []
    for row in omission_rows(folder):
        lines.append(f"{row.status}  {row.counted} of {row.what}, on {row.where}: {row.reason}")
    return lines + unread_words(folder)


def unread_words(folder: RunFolder) -> list[str]:
    """Return one line of text per reason why result rows or files of the run could not be read."""
    return [f"unread  {line}" for line in unread_lines(folder)]


def _line(row: ClaimRow) -> str:
    where = f", {row.audited_on}" if row.audited_on else ""
    # A line is to stay short: tables and records hold the rest.
    items = [] if row.should_be_refuted or row.verdict == "REFUTED" else row.not_looked_at
    unseen = f"; not looked at: {unseen_words(items)}" if items else ""
    limit = row.record.limit if row.record is not None else ""
    return f"{row.claim_text}{where}: {_shown(row)}{verdict_words(row)}{'; ' * bool(limit)}{limit}{unseen}"


def _shown(row: ClaimRow) -> str:
    record = row.record
    if record is None:
        return ""
    if row.verdict in ("FAILED", "OUT_OF_SCOPE"):
        return f"{record.reason}: " if record.reason else ""
    parts = []
    if row.epsilon_low is not None:
        parts.append(f"eps >= {at_least(row.epsilon_low)}")
    parts += [f"max certifiable {plain(round(row.ceiling, 2))}"] if row.ceiling is not None else []
    # The power of the audit no longer matters once it has refuted the claim.
    if row.verdict != "REFUTED":
        parts += [f"min detectable {plain(round(row.detectable, 2))}"] if row.detectable is not None else []
    parts += [_route(row)] if record.route else []
    parts += ["by attacks on final models"] if row.by_attacks else []
    checked = check_counts(row).partition(",")[0] if row.should_be_refuted else check_words(row, most=1)
    parts += [checked] if row.checks else []
    return f"{', '.join(parts)}: " if parts else ""


def _route(row: ClaimRow) -> str:
    route = row.record.route if row.record else ""
    if route == "check":
        return "by an implementation check"
    if route != "curve":
        return "by the bound on eps"
    if row.verdict != "REFUTED":
        return "by the stated trade-off curve"
    if row.fpr_high is None or row.fnr_high is None:
        return "under the stated trade-off curve"
    return f"under the stated trade-off curve (FPR <= {at_most(row.fpr_high)}, FNR <= {at_most(row.fnr_high)})"
