"""Mutants in a run: which planted bugs its audits caught, and which correct twins they accused."""

from collections.abc import Sequence
from dataclasses import dataclass

from ...suites.results.record import Record
from ..reading.run_folder import RunFolder
from . import numerals
from .table import Table

TWIN = " (twin)"


@dataclass(frozen=True, kw_only=True)
class Edition:
    """What the tests said of a mutant or of its twin: ``refuted`` of ``seeds`` seeds alone, ``verdict`` of all.

    ``probes``: broken deterministic probes, None where nothing was probed.
    """

    verdict: str
    route: str
    trials: int | None
    refuted: int
    seeds: int
    probes: int | None


@dataclass(frozen=True, kw_only=True)
class MutantRow:
    """A mutant beside its correct twin; an edition is None where it has no verdict."""

    name: str
    broken: Edition | None
    twin: Edition | None


def mutant_rows(folder: RunFolder) -> list[MutantRow]:
    """One row a mutant, in the order of the alphabet; none in a run without mutants."""
    seeds = [record for record in folder.rows("replicas") if record.metric == "refuted"]
    names = sorted({record.defense.removesuffix(TWIN) for record in seeds})
    return [
        MutantRow(name=name, broken=_edition(folder, seeds, name), twin=_edition(folder, seeds, f"{name}{TWIN}"))
        for name in names
    ]


def mutant_table(rows: Sequence[MutantRow]) -> Table:
    """Kills and false alarms side by side; the note counts them."""
    return Table(
        title="Mutants",
        headers=(
            "mutant",
            "trials per world and seed",
            "refuted alone",
            "all seeds",
            "broken probes",
            "twin refuted alone",
            "twin, all seeds",
        ),
        rows=tuple(
            (
                row.name,
                numerals.count(row.broken.trials if row.broken else None),
                _alone(row.broken),
                _verdict(row.broken),
                _probes(row.broken),
                _alone(row.twin),
                _verdict(row.twin),
            )
            for row in rows
        ),
        numeric=frozenset({1, 2, 4, 5}),
        note=_counts(rows),
    )


def _edition(folder: RunFolder, seeds: Sequence[Record], label: str) -> Edition | None:
    audits = [record for record in folder.rows("audit") if record.defense == label and record.verdict]
    if len(audits) != 1:
        return None
    each = [record for record in seeds if record.defense == label]
    probes = [record for record in folder.rows("probe") if record.defense == label]
    return Edition(
        verdict=audits[0].verdict,
        route=audits[0].route,
        trials=each[0].n if each else None,
        refuted=sum(record.value == 1 for record in each),
        seeds=len(each),
        probes=sum(record.verdict == "BROKEN" for record in probes) if probes else None,
    )


def _counts(rows: Sequence[MutantRow]) -> str:
    broken = [row.broken for row in rows if row.broken]
    twins = [row.twin for row in rows if row.twin]
    killed = [edition for edition in broken if edition.verdict == "REFUTED"]
    seen = [edition for edition in broken if edition.route != "probe"]
    accused = sum(edition.verdict == "REFUTED" for edition in twins)
    probed = len(broken) - len(seen)
    return (
        f"{len(killed)} of {len(rows)} mutants refuted: {len(killed) - probed} by statistics, {probed} by probes "
        f"alone. One seed's trials refuted in {_tests(seen)}. Correct twins refuted: {accused} of {len(twins)} "
        f"({_tests(twins)})."
    )


def _tests(editions: Sequence[Edition]) -> str:
    return f"{sum(edition.refuted for edition in editions)} of {sum(edition.seeds for edition in editions)} tests"


def _alone(edition: Edition | None) -> str:
    return f"{edition.refuted} of {edition.seeds}" if edition else numerals.NOTHING


def _verdict(edition: Edition | None) -> str:
    if edition is None:
        return numerals.NOTHING
    words = edition.verdict.replace("_", " ")
    return f"{words} by probe" if edition.route == "probe" else words


def _probes(edition: Edition | None) -> str:
    return numerals.NOTHING if edition is None or edition.probes is None else str(edition.probes)
