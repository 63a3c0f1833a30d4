"""Tabulate the claims of many runs, in groups whose epsilons can be compared, and the history of each defense."""

from collections.abc import Sequence
from dataclasses import dataclass

from ...audit.claim import Claim
from ..reading.claims import ClaimRow, claim_rows
from ..reading.run_folder import RunFolder
from ..tables import numerals
from ..tables.pooled_rows import pooled_utility
from ..tables.printed import neighbours_of, verdict_words
from ..tables.table import Table
from .several_runs import run_labels

_HEADERS = (
    "defense",
    "run",
    "finished",
    "version",
    "federation",
    "claimed ε",
    "measured ε ≥",
    "min detectable",
    "verdict",
    "utility",
)
_NUMERIC = frozenset({5, 6, 7})
_NOTE = (
    "One row per claim and run. Rows of different federations differ in data, model and clients, so that their utility "
    "and the power of their audits cannot be compared, even at equal ε. NOT REFUTED is no proof of a claim: see the "
    "smallest ε that the audit detects with 90 % probability."
)


@dataclass(frozen=True, kw_only=True)
class ClaimOfRun:
    """A claim's row in one of several runs; ``number`` counts the runs from 1."""

    number: int
    label: str
    folder: RunFolder
    row: ClaimRow
    claim: Claim


def claims_of_runs(folders: Sequence[RunFolder]) -> list[ClaimOfRun]:
    """Return the rows of all claims of all runs, in the order of the runs; layers of a claim and claims of some users
    are left out, because they bound no attack on the whole release.
    """
    return [
        ClaimOfRun(number=number, label=label, folder=folder, row=row, claim=row.stated.claim)
        for number, (label, folder) in enumerate(zip(run_labels(folders), folders, strict=True), start=1)
        for row in claim_rows(folder)
        if row.stated is not None and row.stated.claim.part == "joint" and row.stated.claim.subjects == "all"
    ]


def scoreboards(claims: Sequence[ClaimOfRun]) -> list[Table]:
    """Return one table for each unit, adjacency, delta and adversary that is claimed, with defenses in alphabetical
    order and each defense's runs by the time when they finished.
    """
    groups: dict[str, list[ClaimOfRun]] = {}
    for one in claims:
        groups.setdefault(f"{neighbours_of(one.claim)}, adversary: {one.claim.observer.phrase}", []).append(one)
    return [
        Table(title=title, headers=_HEADERS, rows=tuple(map(_row, _in_order(group))), numeric=_NUMERIC, note=_NOTE)
        for title, group in sorted(groups.items())
    ]


def histories(claims: Sequence[ClaimOfRun]) -> list[Table]:
    """Return one table for each defense that several runs of one suite audited in one federation, by the time when
    they finished.
    """
    named: dict[str, list[ClaimOfRun]] = {}
    for one in claims:
        suite = one.folder.manifest.suite.get("name", "")
        named.setdefault(f"{one.row.label} in {suite}, federation {one.row.federation}", []).append(one)
    return [
        Table(
            title=f"History of {name}",
            headers=("defense", "claim", *_HEADERS[1:]),
            rows=tuple((row[0], one.row.claim_text, *row[1:]) for one in _in_order(group) for row in [_row(one)]),
            numeric=frozenset(column + 1 for column in _NUMERIC),
            about=2,
        )
        for name, group in sorted(named.items())
        if len({one.number for one in group}) > 1
    ]


def _in_order(group: Sequence[ClaimOfRun]) -> list[ClaimOfRun]:
    return sorted(group, key=lambda one: (one.row.label, one.folder.manifest.finished or "", one.number))


def _row(one: ClaimOfRun) -> tuple[str, ...]:
    manifest, row = one.folder.manifest, one.row
    commit = f"{manifest.git.commit[:12]}{' + changes' if manifest.git.dirty else ''}" if manifest.git else ""
    return (
        f"{row.label} (control)" if row.control else row.label,
        one.label,
        manifest.finished or "not finished",
        commit or str(manifest.versions.get("fedassay", numerals.NOTHING)),
        row.federation,
        f"{one.claim.epsilon:g}",
        numerals.lower_bound(row.epsilon_low),
        numerals.epsilon(row.detectable),
        verdict_words(row),
        _utility(one),
    )


def _utility(one: ClaimOfRun) -> str:
    """The defense's accuracy, or the other measure of its task, as a mean over seeds."""
    place = one.row.federation, one.row.defense
    found = [
        f"{numerals.metric(row.metric).name} {numerals.metric_value(row.metric, row.pooled.value)}"
        for row in pooled_utility(one.folder)
        if (row.federation, row.defense) == place and row.pooled is not None and numerals.is_quality(row.metric)
    ]
    return ", ".join(found) or numerals.NOTHING
