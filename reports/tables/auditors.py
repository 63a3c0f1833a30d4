"""Tabulate how well audits detect mutants (mechanisms with a planted bug), and how often they wrongly refute correct
versions.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from ...audit.wording import counted
from ...suites.results.record import CORRECT, Record
from ..reading.run_folder import RunFolder
from . import numerals
from .table import Right, Table, tabulate

_KINDS = ("mechanisms", "federations", "vertical federations", "transfers", "pairs", "correct cases")
"""The federations' names in the rows of mutants, as ``planning.plan_mutants`` writes them."""


@dataclass(frozen=True, kw_only=True)
class AuditedVersion:
    """The audit results of a mutant (a mechanism with a planted bug), or of its correct version.

    ``refuted``: of ``seeds`` audits of one seed each, how many refuted the claim. ``verdict``: of the audit of all
    seeds together. ``failed_checks``: names of the failed implementation checks, None where there were no checks.
    """

    verdict: str
    route: str
    trials: int | None
    refuted: int
    seeds: int
    failed_checks: tuple[str, ...] | None
    cpu_seconds: float


@dataclass(frozen=True, kw_only=True)
class MutantRow:
    """A table row: a mutant (a mechanism with a planted bug) and its correct version; either is None if it has no
    verdict.

    ``kind``: "mechanisms", "federations", "vertical federations", "transfers", "pairs", or "correct cases", which are
    unusual and have no bug.
    """

    name: str
    kind: str
    broken: AuditedVersion | None
    correct: AuditedVersion | None


def mutant_rows(folder: RunFolder) -> list[MutantRow]:
    """Return one table row per mutant (mechanism with a planted bug) and per correct case, by kind and name; there are
    no rows in a run without mutants.
    """
    seeds = [record for record in folder.rows("replicas") if record.metric == "refuted"]
    audits = [record for record in folder.rows("audit") if record.federation in _KINDS]
    kinds = {record.defense.removesuffix(CORRECT): record.federation for record in (*seeds, *audits)}
    return [
        MutantRow(
            name=name,
            kind=kind,
            broken=_audited(folder, seeds, name),
            correct=_audited(folder, seeds, f"{name}{CORRECT}"),
        )
        for name, kind in sorted(kinds.items(), key=lambda item: (_order(item[1]), item[0]))
    ]


def mutant_table(rows: Sequence[MutantRow]) -> Table:
    """Return a table of detected planted bugs and wrongly refuted correct versions; its note counts both."""
    return tabulate(
        "Mutants",
        rows,
        {
            "mutant": lambda row: row.name,
            Right("runs per arm and seed"): lambda row: numerals.count(row.broken.trials if row.broken else None),
            Right("refuted, one seed each"): lambda row: _one_seed_each(row.broken),
            "all seeds": lambda row: _verdict(row.broken),
            "failed checks": lambda row: _failed_checks(row.broken),
            Right("correct version: refuted, one seed each"): lambda row: _one_seed_each(row.correct),
            "correct version: all seeds": lambda row: _verdict(row.correct),
            Right("CPU s"): lambda row: f"{sum(one.cpu_seconds for one in (row.broken, row.correct) if one):.1f}",
        },
        note=_counts(rows),
    )


def _order(kind: str) -> int:
    return _KINDS.index(kind) if kind in _KINDS else len(_KINDS)


def _audited(folder: RunFolder, seeds: Sequence[Record], label: str) -> AuditedVersion | None:
    audits = [record for record in folder.rows("audit") if record.defense == label and record.verdict]
    # With another number of audits it is not clear which verdict belongs to the mutant.
    if len(audits) != 1:
        return None
    each = [record for record in seeds if record.defense == label]
    checks = [record for record in folder.rows("check") if record.defense == label]
    failed = dict.fromkeys(record.metric for record in checks if record.verdict == "FAILED")
    return AuditedVersion(
        verdict=audits[0].verdict,
        route=audits[0].route,
        trials=each[0].n if each else None,
        refuted=sum(record.value == 1 for record in each),
        seeds=len(each),
        # None and an empty tuple differ: without checks nothing was passed.
        failed_checks=tuple(name.removeprefix("check_").replace("_", " ") for name in failed) if checks else None,
        cpu_seconds=audits[0].cpu_s or 0.0,
    )


def _counts(rows: Sequence[MutantRow]) -> str:
    mutants = [row for row in rows if row.kind != "correct cases"]
    broken = [row.broken for row in mutants if row.broken]
    # A mutant without exactly one verdict is not counted as refuted, but stays in the number of all mutants.
    killed = [one for one in broken if one.verdict == "REFUTED"]
    # A bug that only a deterministic check can find says nothing about the power of the statistical tests.
    statistical = [one for one in broken if one.route != "check" and one.seeds]
    checked = sum(one.route == "check" for one in killed)
    wrongly, correct = _refuted([row.correct for row in mutants])
    tested = [row.correct for row in mutants if row.correct and row.correct.seeds]
    note = (
        f"{len(killed)} of {counted(len(mutants), 'mutant')} refuted: {len(killed) - checked} by statistics, {checked} "
        f"by implementation checks alone. With the runs of one seed alone, mutants were refuted in "
        f"{_tests(statistical)}. Correct versions refuted: {wrongly} of {correct} ({_tests(tested)} of one seed)."
    )
    if pairs := [row for row in rows if row.kind == "pairs"]:
        found, _ = _refuted([row.broken for row in pairs])
        note += f" Of {counted(len(pairs), 'mutant')} with two faults in one protection, {found} refuted."
    if cases := [row.correct for row in rows if row.kind == "correct cases"]:
        note += f" Of {counted(len(cases), 'unusual correct protection')}, {_refuted(cases)[0]} refuted."
    return note


def _refuted(versions: Sequence[AuditedVersion | None]) -> tuple[int, int]:
    """The number of refuted versions, and of those with a verdict."""
    known = [one for one in versions if one]
    return sum(one.verdict == "REFUTED" for one in known), len(known)


def _tests(audited: Sequence[AuditedVersion]) -> str:
    return f"{sum(one.refuted for one in audited)} of {counted(sum(one.seeds for one in audited), 'test')}"


def _one_seed_each(audited: AuditedVersion | None) -> str:
    return f"{audited.refuted} of {audited.seeds}" if audited and audited.seeds else numerals.NOTHING


def _verdict(audited: AuditedVersion | None) -> str:
    if audited is None:
        return numerals.NOTHING
    words = audited.verdict.replace("_", " ")
    return f"{words} by implementation check" if audited.route == "check" else words


def _failed_checks(audited: AuditedVersion | None) -> str:
    if audited is None or audited.failed_checks is None:
        return numerals.NOTHING
    return ", ".join(audited.failed_checks) or "none"
