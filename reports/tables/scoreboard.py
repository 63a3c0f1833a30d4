"""Tabulate the claims of many runs, in groups whose epsilons can be compared, and the history of each defense."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from ...audit.claim import Claim
from ...suites.results.outcome import WEAK
from ..reading.claims import ClaimRow, claim_rows
from ..reading.run_folder import RunFolder
from . import numerals
from .answers import weakness
from .covered import short_words, successes
from .pooled_rows import pooled_utility
from .printed import OF_NO_USE, neighbours_of, verdict_words
from .several_runs import run_labels
from .table import Right, Table, tabulate

_NOTE = (
    "One row per claim and run. Rows of different federations differ in data, model and clients, so that their utility "
    "and the power of their audits cannot be compared, even at equal ε. NOT REFUTED is no proof of a claim: see the "
    "smallest ε that the audit detects with 90 % probability (min detectable). Weak test: this ε is more than "
    f"{WEAK:g} times the claimed one, or not known. Shown outside the claims: attacks on this defense that no claim of "
    "it covers and that did better than guessing. Of no use: the model is not clearly better than guessing or than a "
    "constant answer. Commit: of the repository in which the run was started."
)
SETTINGS = frozenset({"part", "plan", "federation", "replicas", "seeds", "epsilon", "delta"})
"""What a suite sets for every defense, which is no option of its part."""


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
    """Return one table for each unit, adjacency, delta and adversary that is claimed. Defenses are in alphabetical
    order, each with its runs by the time when they finished; controls follow, and claims without a result come last.
    """
    groups: dict[str, list[ClaimOfRun]] = {}
    for one in claims:
        groups.setdefault(f"{neighbours_of(one.claim)}, adversary: {one.claim.observer.phrase}", []).append(one)
    columns = {"defense": _defense, **_COLUMNS}
    return [tabulate(title, _in_order(group), columns, note=_NOTE) for title, group in sorted(groups.items())]


def histories(claims: Sequence[ClaimOfRun]) -> list[Table]:
    """Return one table for each defense that several runs of one suite audited in one federation, by the time when
    they finished; controls come last. Defenses with the same label and other parts have tables of their own.
    """
    named: dict[tuple[bool, str], list[ClaimOfRun]] = {}
    for one in claims:
        suite, part = one.folder.manifest.suite.get("name", ""), str(_settings(one).get("part") or "")
        name = (
            f"{_with(one.row.defense, part, 'control' * one.row.control)} in {suite}, federation {one.row.federation}"
        )
        named.setdefault((one.row.control, name), []).append(one)
    columns = {"defense": _defense, "claim": lambda one: one.row.claim_text, **_COLUMNS}
    return [
        tabulate(f"History of {name}", _in_order(group), columns, about=2)
        for (_, name), group in sorted(named.items())
        if len({one.number for one in group}) > 1
    ]


def _in_order(group: Sequence[ClaimOfRun]) -> list[ClaimOfRun]:
    return sorted(
        group,
        key=lambda one: (
            one.row.record is None,
            one.row.control,
            one.row.defense,
            one.folder.manifest.finished or "",
            one.number,
        ),
    )


def _settings(one: ClaimOfRun) -> dict[str, object]:
    return one.folder.defense_fields(one.row.defense)


def _defense(one: ClaimOfRun) -> str:
    """The label with the part where the suite names one, because a label alone may stand for any code, and its
    options.
    """
    settings = _settings(one)
    options = [f"{name} {value}" for name, value in settings.items() if name not in SETTINGS]
    return _with(one.row.defense, str(settings.get("part") or ""), *options, "control" * one.row.control)


def _with(words: str, *more: str) -> str:
    added = ", ".join(filter(None, more))
    return f"{words} ({added})" if added else words


def _finished(text: str | None) -> str:
    if text is None:
        return "not finished"
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:  # Edited by hand.
        return text
    # A manifest's time without a zone is in UTC already.
    return f"{moment if moment.tzinfo is None else moment.astimezone(UTC):%Y-%m-%d %H:%M}"


def _version(folder: RunFolder) -> str:
    """The package's version, and the commit, by which runs of one version differ."""
    git = folder.manifest.git
    commit = f"{git.commit[:12]}{' + changes' if git.dirty else ''}" if git and git.commit else "no commit recorded"
    return f"{folder.manifest.versions.get('fedassay', numerals.NOTHING)}, {commit}"


def _utility(one: ClaimOfRun) -> str:
    """The defense's accuracy, or the other measure of its task, as a mean over seeds."""
    place = one.row.federation, one.row.defense
    found = [
        _with(
            f"{numerals.metric(row.metric).name} {numerals.metric_value(row.metric, row.pooled.value)}",
            OF_NO_USE * bool(row.useless),
        )
        for row in pooled_utility(one.folder)
        if (row.federation, row.defense) == place and row.pooled is not None and numerals.is_quality(row.metric)
    ]
    return ", ".join(found) or numerals.NOTHING


def _verdict(one: ClaimOfRun) -> str:
    return _with(verdict_words(one.row), "weak test" * bool(weakness(one.row) and not one.row.control))


def _shown(one: ClaimOfRun) -> str:
    """What attacks on the defense did that no claim of it covers."""
    shown = successes(one.folder, one.row.defense)
    return "; ".join(short_words(one.folder, row) for row in shown) or numerals.NOTHING


_COLUMNS: dict[str, Callable[[ClaimOfRun], str]] = {
    "run": lambda one: one.label,
    "finished (UTC)": lambda one: _finished(one.folder.manifest.finished),
    "fedassay, commit": lambda one: _version(one.folder),
    "federation": lambda one: one.row.federation,
    Right("claimed ε"): lambda one: f"{one.claim.epsilon:g}",
    Right("measured ε ≥"): lambda one: numerals.lower_bound(one.row.epsilon_low),
    Right("min detectable"): lambda one: numerals.epsilon(one.row.detectable),
    "verdict": _verdict,
    "utility": _utility,
    "shown outside the claims": _shown,
}
