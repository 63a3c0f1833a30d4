"""Write the sentences around the tables of a report: the verdict, notes, provenance, and which data cannot be read."""

from collections.abc import Iterable, Sequence
from pathlib import PurePosixPath

from ...audit.wording import counted, plain
from ...suites.results.rows import SkippedRow, skipped_counts
from ..reading.cell_files import SkippedFile
from ..reading.claims import ClaimRow
from ..reading.pooling import gathered
from ..reading.run_folder import HORIZONTAL, FederationWords, RunFolder
from . import numerals
from .table import Table

INTERVALS = (
    "One attack may have several intervals, each for another quantity or another source of chance. The table of "
    "attacks shows the interval of this attack alone, over seeds, or over images or uploads where the line says so. "
    "The first screen, and the table and figure of membership by observer, show the interval of the scores of all "
    "seeds together, over runs (of a single run: over candidates); it is wider, because it holds jointly for all "
    "attacks of which the best is shown. The table of reconstructions shows the interval of the share of reconstructed "
    "images, over images, jointly for the attacks on the defense. So the intervals of one attack differ in width, and "
    "their middles may differ."
)
POOLING_NOTE = (
    "Metrics per image (PSNR, MSE, SSIM): median over all images and seeds with a 95 % percentile bootstrap interval, "
    "which treats the images as independent. Other metrics: mean over seeds with a 95 % t interval (shares near "
    "0 or 1: on the logit scale). Two seeds have no interval: their values are shown. A single seed "
    "keeps the interval of its own measurement, if it has one. Equal values over seeds have no interval over seeds: "
    "where independent uploads are counted, the exact interval over the uploads of all seeds stands instead. Null "
    "attacks do not use what they attack, so an attack that scores no better than a null attack has learnt nothing. "
    f"PSI: the privacy-sensitive pixels of an image. {INTERVALS}"
)
_BY_ATTACKS = (
    " By attacks: the scores of all attacks on final models of one federation in which each sample was included with "
    "probability 1/2, evaluated as guesses of one run (Steinke, Nasr, Jagielski 2023) that share alpha. These attacks "
    "are designed to find members and not to refute claims: NOT REFUTED by them is weak evidence, and their minimum "
    "detectable epsilon is unknown."
)
EXIT_WORDS = {
    0: "exit code 0: no audited claim was refuted, and every audited control was",
    10: "exit code 10: a claim was refuted, or a defense got worse than its baseline",
    11: "exit code 11: inconclusive, because the data do not suffice to judge a claim or a change, or because an "
    "implementation check failed",
    12: (
        "exit code 12: incomplete, because a cell is missing or failed, a row cannot be read, rows or claims were "
        "changed, or a control was not refuted"
    ),
}


def verdict_line(folder: RunFolder) -> str:
    """Return the verdict line of a run's outcome; for an unfinished run, return its progress."""
    if folder.gate is not None:
        return folder.gate.verdict_line
    counts = skipped_counts(folder.skipped)
    unread = f"; {counted(counts['unread'], 'row')} that cannot be read" if counts["unread"] else ""
    repeated = f"; {counted(counts['repeated'], 'repeated row')}" if counts["repeated"] else ""
    return f"UNFINISHED: {cells(folder)}; this run has no outcome yet{unread}{repeated}"


def exit_words(folder: RunFolder) -> str:
    if folder.gate is None:
        return "no exit code yet"
    if folder.gate.exit_code == 0 and not any(one.control for one in folder.claims):
        return "exit code 0: no audited claim was refuted"
    return EXIT_WORDS.get(folder.gate.exit_code, f"exit code {folder.gate.exit_code}")


def claims_note(rows: Sequence[ClaimRow], kinds: Sequence[FederationWords] = (HORIZONTAL,)) -> str:
    """Return the note below the table of claims: the confidence level of the bounds, and the meaning of the columns."""
    # Alpha is divided among the claims of a run, so the level of a single bound is higher than 1 - alpha.
    levels = sorted({row.record.ci_level for row in rows if row.record and row.record.ci_level is not None})
    words = " and ".join(f"{100 * level:.6g} %" for level in levels)
    level = f"Lower bounds hold at level {words}, each for its own claim. " if levels else ""
    return (
        f"{level}Each ε refers to the unit, adjacency, adversary and δ of its own claim. Max certifiable: the largest "
        "ε that this sample size can certify, reached by an attack without errors. Min detectable: the smallest true "
        "ε at which this audit refutes the claim with 90 % power. Runs per arm: "
        f"{'; '.join(kind.arms for kind in kinds)}. A control breaks its claim on purpose: an audit that does not "
        "refute it lacks the power to refute other claims."
        + (_BY_ATTACKS if any(row.by_attacks for row in rows) else "")
        + _elsewhere(rows)
    )


def _elsewhere(rows: Sequence[ClaimRow]) -> str:
    """Sentences that name what the audits trained, where a federation itself trains something else."""
    named = dict.fromkeys((row.federation, row.audited_on) for row in rows if row.audited_on)
    return "".join(f" The claims on {federation} were {words}." for federation, words in named)


def provenance(folder: RunFolder) -> list[tuple[str, str]]:
    """Return the facts about where a report's numbers come from, each as a name and a text."""
    manifest = folder.manifest
    # From the records, which name what was run: any key of the suite may be missing from a manifest.
    federations = dict.fromkeys((r.federation, r.dataset, r.model) for r in folder.rows())
    hardware = manifest.hardware
    rows = [
        ("run", f"{manifest.name} ({manifest.run_id})"),
        ("suite", suite_words(folder)),
        ("federations", "; ".join(f"{name}: {dataset}, {model}" for name, dataset, model in sorted(federations))),
        ("seeds", ", ".join(str(seed) for seed in manifest.seeds)),
        ("alpha", _alpha(folder)),
        ("cells", cells(folder)),
        ("data files", _left_behind(folder)),
        ("started, finished", f"{manifest.started or numerals.NOTHING}, {manifest.finished or 'not finished'}"),
        ("git", _git(folder)),
        ("machine", ", ".join(_hardware_words(name, value) for name, value in hardware.items())),
        # The machine is then the one that started the run.
        ("backends", ", ".join(manifest.backends) if set(manifest.backends) - {"local"} else ""),
        ("python", manifest.python),
        ("packages", ", ".join(f"{name} {version}" for name, version in sorted(manifest.versions.items()))),
        ("data (SHA-256)", ", ".join(f"{name} {digest}" for name, digest in sorted(manifest.data.items()))),
    ]
    return [(name, text) for name, text in rows if text]


def suite_words(folder: RunFolder) -> str:
    """Return the name and the version of a run's suite."""
    suite = folder.manifest.suite
    return f"{suite.get('name', '')}, version {suite.get('version', '')}"


def reproduce(folder: RunFolder) -> str:
    """Return the shell commands that repeat the run."""
    git = folder.manifest.git
    checkout = f"git checkout {git.commit}\n" if git and git.commit else ""
    return checkout + folder.manifest.command


def cells(folder: RunFolder) -> str:
    """Return how many cells (units of work that a run stores) are finished and how many are planned."""
    # Counted in cells: one cell writes several rows.
    done = len({record.cell_id for record in folder.records})
    return f"{numerals.count(done)} of {numerals.count(folder.manifest.planned_cells)} planned cells on record"


def _left_behind(folder: RunFolder) -> str:
    """A note where the folder ``cells`` was not copied together with the result rows that name files in it."""
    if folder.files.has_cells or not any(record.artifact for record in folder.records):
        return ""
    return (
        "none: the folder cells was not copied, so this report lacks the figures and error rates made from its arrays"
    )


def _alpha(folder: RunFolder) -> str:
    alpha = folder.manifest.suite.get("alpha")
    return f"{plain(float(alpha))} over all claims" if isinstance(alpha, int | float) else ""


def _git(folder: RunFolder) -> str:
    git = folder.manifest.git
    if not git:
        return "not in a git repository"
    return f"{git.commit}{', with uncommitted changes' if git.dirty else ''}"


def _hardware_words(name: str, value: object) -> str:
    if name == "memory_gb" and isinstance(value, int | float):
        return f"{value:.3g} GB memory"
    return f"{value} {name}" if isinstance(value, int | float) else str(value)


MOST_REASONS, MOST_NAMED = 20, 6
_SHOWN = {
    "scores.npz": "ROC curves and error rates",
    "images.npz": "pictures of reconstructions",
    "rounds.csv": "curves by round",
}
"""Name of a data file -> what the report shows from it."""


def unread_table(folder: RunFolder) -> Table:
    """Return a table with one row per reason why data could not be read, at most twenty: result rows first, then data
    files.

    Call it last: some damage only shows when a table or a figure reads the file.
    """
    rows = [*_rows(folder.skipped), *_files(folder.files.unread(folder.records))]
    # A damaged file can give a different reason for each of a million lines.
    left = rows[MOST_REASONS:]
    return Table(
        title="What cannot be read",
        headers=("what", "where", "cells", "reason"),
        rows=tuple(rows[:MOST_REASONS]),
        note="This report contains everything else. " + (f"{len(left)} more reasons are not shown." if left else ""),
    )


def unread_lines(folder: RunFolder) -> list[str]:
    """Return one line per reason why data could not be read, for the terminal and the top of the Markdown report."""
    return [_line(row) for row in unread_table(folder).rows]


def unread_rows(skipped: Sequence[SkippedRow]) -> list[str]:
    """Return one line per reason why rows of results.jsonl could not be read."""
    return [_line(row) for row in _rows(skipped)]


def _line(row: tuple[str, ...]) -> str:
    what, where, cells, reason = row
    return f"{what} ({where}{f', of cell {cells}' if cells else ''}): {reason}"


def _rows(skipped: Sequence[SkippedRow]) -> list[tuple[str, str, str, str]]:
    # By reason: a file cut in transfer gives the same reason for thousands of lines.
    groups = gathered((row.reason, row) for row in skipped)
    return [
        (
            f"{_counted(group, 'row')} of results.jsonl",
            f"line{'s' * (len(group) > 1)} {line_words(row.line for row in group)}",
            _cells(group),
            reason,
        )
        for reason, group in groups.items()
    ]


def _files(skipped: Sequence[SkippedFile]) -> list[tuple[str, str, str, str]]:
    groups = gathered((_lost(one), one) for one in skipped)
    return [
        (_counted(group, "file"), _few([one.place for one in group]), _cells(group), reason)
        for reason, group in groups.items()
    ]


def _lost(one: SkippedFile) -> str:
    shown = _SHOWN.get(PurePosixPath(one.place).name)
    return f"{one.reason}; reports lack the {shown} of these cells" if shown else one.reason


def _counted(group: Sequence[object], what: str) -> str:
    return f"{numerals.count(len(group))} {what}{'s' * (len(group) > 1)}"


def line_words(numbers: Iterable[int]) -> str:
    """Format line numbers as ``3, 7–9``; if there are many ranges, print the first few and count the others."""
    ranges: list[list[int]] = []
    # Ranges, because damaged lines mostly follow each other.
    for number in sorted(set(numbers)):
        if ranges and number == ranges[-1][1] + 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    return _few([str(low) if low == high else f"{low}–{high}" for low, high in ranges])


def _cells(group: Sequence[SkippedRow | SkippedFile]) -> str:
    return _few(list(dict.fromkeys(row.cell_id for row in group if row.cell_id)))


def _few(names: Sequence[str]) -> str:
    more = len(names) - MOST_NAMED
    return ", ".join(names[:MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
