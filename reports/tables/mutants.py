"""Tabulate which planted bugs (mutants) the audits detected, and which correct versions they wrongly refuted."""

from collections.abc import Sequence
from dataclasses import dataclass

from ...audit.wording import counted
from ...suites.results.record import CORRECT, Record
from ..reading.run_folder import RunFolder
from . import numerals
from .table import Table


@dataclass(frozen=True, kw_only=True)
class AuditedVersion:
    """The audit results of a mutant (a mechanism with a planted bug), or of its correct version.

    ``refuted``: of ``seeds`` audits of one seed each, how many refuted the claim. ``verdict``: of the audit of all
    seeds together. ``failed_checks``: failed implementation checks, None where there were no checks.
    """

    verdict: str
    route: str
    trials: int | None
    refuted: int
    seeds: int
    failed_checks: int | None


@dataclass(frozen=True, kw_only=True)
class MutantRow:
    """A table row: a mutant (a mechanism with a planted bug) and its correct version; either is None if it has no
    verdict.
    """

    name: str
    broken: AuditedVersion | None
    correct: AuditedVersion | None


def mutant_rows(folder: RunFolder) -> list[MutantRow]:
    """Return one table row per mutant (mechanism with a planted bug), in alphabetical order; none in a run without
    mutants.
    """
    seeds = [record for record in folder.rows("replicas") if record.metric == "refuted"]
    names = sorted({record.defense.removesuffix(CORRECT) for record in seeds})
    return [
        MutantRow(name=name, broken=_audited(folder, seeds, name), correct=_audited(folder, seeds, f"{name}{CORRECT}"))
        for name in names
    ]


def mutant_table(rows: Sequence[MutantRow]) -> Table:
    """Return a table of detected planted bugs and wrongly refuted correct versions; its note counts both."""
    return Table(
        title="Mutants",
        headers=(
            "mutant",
            "runs per arm and seed",
            "refuted, one seed each",
            "all seeds",
            "failed checks",
            "correct version: refuted, one seed each",
            "correct version: all seeds",
        ),
        rows=tuple(
            (
                row.name,
                numerals.count(row.broken.trials if row.broken else None),
                _one_seed_each(row.broken),
                _verdict(row.broken),
                _failed_checks(row.broken),
                _one_seed_each(row.correct),
                _verdict(row.correct),
            )
            for row in rows
        ),
        numeric=frozenset({1, 2, 4, 5}),
        note=_counts(rows),
    )


def _audited(folder: RunFolder, seeds: Sequence[Record], label: str) -> AuditedVersion | None:
    audits = [record for record in folder.rows("audit") if record.defense == label and record.verdict]
    # With another number of audits it is not clear which verdict belongs to the mutant.
    if len(audits) != 1:
        return None
    each = [record for record in seeds if record.defense == label]
    checks = [record for record in folder.rows("probe") if record.defense == label]
    return AuditedVersion(
        verdict=audits[0].verdict,
        route=audits[0].route,
        trials=each[0].n if each else None,
        refuted=sum(record.value == 1 for record in each),
        seeds=len(each),
        # None and zero differ: without checks nothing was passed.
        failed_checks=sum(record.verdict == "BROKEN" for record in checks) if checks else None,
    )


def _counts(rows: Sequence[MutantRow]) -> str:
    broken = [row.broken for row in rows if row.broken]
    correct = [row.correct for row in rows if row.correct]
    # A mutant without exactly one verdict is not counted as refuted, but stays in the number of all mutants.
    killed = [one for one in broken if one.verdict == "REFUTED"]
    # A bug that only a deterministic check can find says nothing about the power of the statistical tests.
    statistical = [one for one in broken if one.route != "probe"]
    wrongly = sum(one.verdict == "REFUTED" for one in correct)
    checked = len(broken) - len(statistical)
    return (
        f"{len(killed)} of {counted(len(rows), 'mutant')} refuted: {len(killed) - checked} by statistics, {checked} by "
        f"implementation checks alone. With the runs of one seed alone, mutants were refuted in {_tests(statistical)}. "
        f"Correct versions refuted: {wrongly} of {len(correct)} ({_tests(correct)} of one seed)."
    )


def _tests(audited: Sequence[AuditedVersion]) -> str:
    return f"{sum(one.refuted for one in audited)} of {counted(sum(one.seeds for one in audited), 'test')}"


def _one_seed_each(audited: AuditedVersion | None) -> str:
    return f"{audited.refuted} of {audited.seeds}" if audited else numerals.NOTHING


def _verdict(audited: AuditedVersion | None) -> str:
    if audited is None:
        return numerals.NOTHING
    words = audited.verdict.replace("_", " ")
    return f"{words} by implementation check" if audited.route == "probe" else words


def _failed_checks(audited: AuditedVersion | None) -> str:
    return numerals.NOTHING if audited is None or audited.failed_checks is None else str(audited.failed_checks)
