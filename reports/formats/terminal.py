"""What a run prints: one line a claim, and plain tables. Imports neither matplotlib nor jinja2 nor pandas."""

from ...audit.wording import at_least, at_most, plain
from ..reading.claims import ClaimRow, claim_rows
from ..reading.run_folder import RunFolder
from ..tables.grid import attack_grids
from ..tables.mutants import mutant_rows, mutant_table
from ..tables.numerals import count, metric
from ..tables.papers import paper_table
from ..tables.printed import VERDICTS, attack_table, probe_words, utility_table
from ..tables.published import published_table, published_values
from ..tables.tables import omission_rows, pooled_attacks, pooled_utility
from ..tables.unread import unread_lines


def claim_lines(folder: RunFolder) -> list[str]:
    """One line per claim: who signed what, what was shown, the verdict; and one per defense that claims nothing."""
    rows = [row for row in claim_rows(folder) if row.signed]
    many = len({row.federation for row in rows}) > 1
    signing = {row.defense for row in rows}
    silent = dict.fromkeys(record.defense for record in folder.records if record.defense not in signing)
    said = [(label, "claims nothing: NO CLAIM") for label in silent]
    said += [(f"{row.federation}/{row.defense}" if many else row.defense, _line(row)) for row in rows]
    width = max((len(label) for label, _ in said), default=0)
    return [f"claim  {label:{width}}  {line}" for label, line in said]


def tables(folder: RunFolder) -> list[str]:
    """Attacks and utility as aligned plain text, one primary metric an attack, and a count of what was not measured."""
    mutants = mutant_table(mutant_rows(folder))
    lines = [mutants.title, *mutants.lines(), mutants.note, ""] if mutants.rows else []
    for table in (paper_table(claim_rows(folder)), published_table(published_values(folder))):
        lines += [table.title, *table.lines(), table.note, ""] if table.rows else []
    for grid in attack_grids(pooled_attacks(folder)):
        table = attack_table(grid, grid.primary, intervals=False)
        lines += [table.title, *table.lines(), ""]
    utility = utility_table(pooled_utility(folder))
    lines += [utility.title, *utility.lines(), ""] if utility.rows else []
    for row in omission_rows(folder):
        what = f"{row.attack}, {metric(row.metric).name}, on {row.where}"
        lines.append(f"{row.status}  {what}: {count(row.rows)} row{'s' * (row.rows > 1)}: {row.reason}")
    return lines + unread_words(folder)


def unread_words(folder: RunFolder) -> list[str]:
    """What of the run cannot be read, a line a reason."""
    return [f"unread  {line}" for line in unread_lines(folder)]


def _line(row: ClaimRow) -> str:
    return f"{row.says}: {_shown(row)}{_verdict(row)}"


def _shown(row: ClaimRow) -> str:
    record = row.record
    if record is None:
        return ""
    if row.verdict in ("FAILED", "OUT_OF_SCOPE"):
        return f"{record.reason}: " if record.reason else ""
    parts = []
    if row.epsilon_low is not None:
        parts.append(f"eps >= {at_least(row.epsilon_low)}")
    parts += [f"ceiling {plain(round(row.ceiling, 2))}"] if row.ceiling is not None else []
    if row.verdict != "REFUTED":
        parts += [f"detectable {plain(round(row.detectable, 2))}"] if row.detectable is not None else []
    parts += [_route(row)] if record.route else []
    parts += ["by attacks on final models"] if row.by_attacks else []
    parts += [probe_words(row)] if row.probes else []
    return f"{', '.join(parts)}: " if parts else ""


def _route(row: ClaimRow) -> str:
    route = row.record.route if row.record else ""
    if route == "probe":
        return "by a deterministic probe"
    if route != "curve":
        return "by the bound on eps"
    if row.verdict != "REFUTED":
        return "by curve"
    if row.fpr_high is None or row.fnr_high is None:
        return "under the signed curve"
    return f"under the signed curve (FPR <= {at_most(row.fpr_high)}, FNR <= {at_most(row.fnr_high)})"


def _verdict(row: ClaimRow) -> str:
    words = VERDICTS.get(row.verdict, row.verdict)
    if row.published:
        words += " (as published)"
    if row.must_fall:
        words += " (a control: it must be)" if row.verdict == "REFUTED" else " (a control: it must be REFUTED)"
    return words
