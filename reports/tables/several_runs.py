"""Tables of several runs: the runs side by side, all rows merged with a column that names the run, one table of chosen
columns, and scoreboards.

A scoreboard holds the claims of many runs in groups whose epsilons can be compared, and the history of each defense.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple

from ...audit.claim import Claim
from ...audit.wording import nearest, plain
from ..reading.claims import ClaimRow, claim_rows, one_row_per_claim, stated_rows
from ..reading.pooling import gathered
from ..reading.run_folder import RunFolder
from . import numerals, summary
from .answers import headline
from .covered import short_words, successes
from .pooled_rows import AttackRow, UtilityRow, pooled_attacks, pooled_utility
from .printed import (
    OF_NO_USE,
    VERDICTS,
    attack_words,
    check_counts,
    defense_words,
    neighbours_of,
    observer_words,
    pooled_words,
    quality_words,
    verdict_words,
)
from .sections import run_tables
from .table import Right, Table, tabulate

MOST = 8
"""Runs for which a table has room as columns."""


def by_run(folders: Sequence[RunFolder], labels: Sequence[str]) -> list[Table]:
    """Return the tables with one column per run, given each run's label; none for more runs than ``MOST``.

    Runs share a row only if all its identifying columns agree: claims that differ in epsilon, delta, unit, adjacency
    or adversary have rows of their own, and so have federations of one name that differ in data, model, clients or
    training; their run is then named. What a run did not measure is a dash in its column.
    """
    if len(folders) > MOST:
        return []
    named = list(zip(folders, _federation_names(folders, labels), strict=True))
    tables = (_by_run(kind, labels, [_cells(kind, folder, names) for folder, names in named]) for kind in _BY_RUN)
    return [table for table in tables if table.rows]


def _federation_names(folders: Sequence[RunFolder], labels: Sequence[str]) -> list[dict[str, str]]:
    """For each run the printed names of its federations: with the run's label where another run has a federation of the
    same name that is set up otherwise.
    """
    tables = [{name: table for name, (_, table) in folder.federations.items()} for folder in folders]
    return [
        {
            name: name if all(other.get(name, table) == table for other in tables) else f"{name} of {label}"
            for name, table in own.items()
        }
        for label, own in zip(labels, tables, strict=True)
    ]


class _ByRun(NamedTuple):
    """A table with one column per run: its title, the rows of a run, the columns that identify a row after federation
    and defense, the text of a row in the column of its run, and its note.
    """

    title: str
    rows: Callable[[RunFolder], Sequence[Any]]
    about: Mapping[str, Callable[[Any], str]]
    text: Callable[[Any], str]
    note: str = ""


def _cells(kind: _ByRun, folder: RunFolder, names: Mapping[str, str]) -> dict[tuple[str, ...], str]:
    """The text of each row of one run, by the columns that identify the row."""
    return {
        (
            names.get(row.federation, row.federation),
            defense_words(row.defense, row.control),
            *(words(row) for words in kind.about.values()),
        ): kind.text(row)
        for row in kind.rows(folder)
    }


def _by_run(kind: _ByRun, labels: Sequence[str], runs: Sequence[Mapping[tuple[str, ...], str]]) -> Table:
    keys = list(dict.fromkeys(key for cells in runs for key in cells))
    # A defense that only a later run has follows the others; its own rows stay together.
    places = {pair: place for place, pair in enumerate(dict.fromkeys(key[:2] for key in keys))}
    keys.sort(key=lambda key: places[key[:2]])
    return Table(
        title=kind.title,
        headers=("federation", "defense", *kind.about, *labels),
        rows=tuple((*key, *(cells.get(key, numerals.NOTHING) for cells in runs)) for key in keys),
        note=kind.note,
        about=2 + len(kind.about),
    )


def _found(row: ClaimRow) -> str:
    numbers = (
        ("measured ε ≥ ", row.epsilon_low, numerals.lower_bound),
        ("min detectable ", row.detectable, numerals.epsilon),
    )
    words = [f"{name}{format_(value)}" for name, value, format_ in numbers if value is not None]
    failed = check_counts(row) if row.failed_checks else ""
    verdict = verdict_words(row)
    return "; ".join(filter(None, (verdict, *words, failed)))


_BY_RUN = (
    _ByRun(
        "Claims by run",
        lambda folder: one_row_per_claim(stated_rows(folder)),
        {"claim": lambda row: row.claim_text},
        _found,
        "The verdict of each run, the lower bound on epsilon that it measured, and the smallest true epsilon "
        "that it refutes with 90 % power.",
    ),
    _ByRun(
        "Attacks by run",
        lambda folder: [row for row in pooled_attacks(folder) if row.primary],
        {
            "attack and metric": lambda row: f"{row.name}: {row.words}",
            "adversary": lambda row: observer_words(row.observer),
        },
        attack_words,
        "The first metric of each attack, with its 95 % interval where there is one: over all images for "
        "images, else over seeds; a single seed has the interval of its own measurement.",
    ),
    _ByRun(
        "Utility by run",
        lambda folder: [row for row in pooled_utility(folder) if numerals.is_quality(row.metric) and row.pooled],
        {"metric": lambda row: numerals.metric_words(row.metric, row.direction)},
        quality_words,
    ),
)


def tables_of(folders: Sequence[RunFolder]) -> list[Table]:
    """Return the tables of one run unchanged; of several runs, the tables with one column per run, and then all rows of
    the runs' own tables.
    """
    if len(folders) == 1:
        return run_tables(folders[0])
    return [*by_run(folders, run_labels(folders)), *all_rows(folders)]


def all_rows(folders: Sequence[RunFolder]) -> list[Table]:
    """Return the tables of several runs, merged by their titles, with a column that names each row's run."""
    same = gathered(
        (table.title, (label, table))
        for label, folder in zip(run_labels(folders), folders, strict=True)
        for table in run_tables(folder)
    )
    return [merged(tables) for tables in same.values()]


def run_labels(folders: Sequence[RunFolder]) -> list[str]:
    """Choose a short name for each run: its own name, followed by its path if two runs have the same name."""
    names = Counter(folder.manifest.name for folder in folders)
    return [
        folder.manifest.name if names[folder.manifest.name] == 1 else f"{folder.manifest.name} ({folder.path})"
        for folder in folders
    ]


def overview(folders: Sequence[RunFolder]) -> Table:
    """Return a table of several runs, each with its suite, its answer in plain words, its progress and its outcome."""
    return tabulate(
        "Runs",
        zip(run_labels(folders), folders, strict=True),
        {
            "run": lambda run: run[0],
            "suite": lambda run: summary.suite_words(run[1]),
            "answer": lambda run: headline(run[1]),
            "cells": lambda run: summary.cells(run[1]),
            "verdict": lambda run: summary.verdict_line(run[1]),
            Right("exit code"): lambda run: numerals.optional(run[1].gate, lambda gate: str(gate.exit_code)),
        },
        note="Each verdict concerns its own run only. Rows of different suites, datasets or models cannot be compared, "
        "even if their federations and defenses have the same names. To judge a change, use fedassay compare, which "
        "pairs the seeds.",
    )


Column = tuple[str, int]


def merged(tables: Sequence[tuple[str, Table]]) -> Table:
    """Merge tables of several runs, given as (run, table) pairs with the same title; rows that agree in the identifying
    columns follow each other, one per run.

    A column that a run's table lacks is empty in the rows of that run.
    """
    first, about = tables[0][1], tables[0][1].about
    columns = list(dict.fromkeys(column for _, table in tables for column in _columns(table)))
    # The last column holds counts or reasons. It stays the last one although other runs may add columns after it.
    columns.sort(key=lambda column: column[1] < 0)
    order: dict[tuple[str, ...], list[tuple[str, ...]]] = {}
    for label, table in tables:
        for row in table.rows:
            cells = dict(zip(_columns(table), row, strict=True))
            texts = [cells.get(column, numerals.NOTHING) for column in columns]
            # By content and not by position: the runs may list different defenses.
            order.setdefault(row[:about], []).append((*texts[:about], label, *texts[about:]))
    # The number among equal headers only distinguishes columns, and is not printed.
    headers = [name for name, _ in columns]
    numeric = {column for _, table in tables for i, column in enumerate(_columns(table)) if i in table.numeric}
    return Table(
        title=first.title,
        headers=(*headers[:about], "run", *headers[about:]),
        rows=tuple(row for rows in order.values() for row in rows),
        numeric=frozenset(i + (i >= about) for i, column in enumerate(columns) if column in numeric),
        note=_notes(tables),
        about=about + 1,
    )


def _notes(tables: Sequence[tuple[str, Table]]) -> str:
    """The note of all runs; where they differ, each with the names of its runs."""
    runs = gathered((table.note, label) for label, table in tables if table.note)
    if len(runs) < 2:
        return "".join(runs)
    return " ".join(f"{', '.join(labels)}: {note}" for note, labels in runs.items())


def _columns(table: Table) -> list[Column]:
    """Identifies each column by its header and its number among equal headers: a defense may have a column's name."""
    seen: Counter[str] = Counter()
    columns = []
    for header in table.headers[:-1]:
        columns.append((header, seen[header]))
        seen[header] += 1
    return [*columns, (table.headers[-1], -1)]


_CLAIM_COLUMNS: dict[str, tuple[str, Callable[[ClaimRow], str]]] = {
    "epsilon": ("claimed ε", lambda row: plain(row.claim.epsilon)),
    "delta": ("δ", lambda row: plain(row.claim.delta)),
    "unit": ("unit", lambda row: row.claim.unit.value),
    "observer": ("adversary", lambda row: str(row.claim.observer)),
    "verdict": ("verdict", lambda row: VERDICTS.get(row.verdict, row.verdict)),
    "epsilon_low": ("measured ε ≥", lambda row: numerals.lower_bound(row.epsilon_low)),
    "detectable": ("min. detectable ε", lambda row: numerals.epsilon(row.detectable)),
}
_NAMES = ("run", "federation", "defense")


def chosen_table(folders: Sequence[RunFolder], *, columns: Sequence[str] = (), metrics: Sequence[str] = ()) -> Table:
    """Return one table of the runs, with one row per defense (and per federation and run, if there are several).

    Args:
        columns: in the order wanted: ``run``, ``federation``, ``defense``, a column of the claim (``epsilon``,
            ``delta``, ``unit``, ``observer``, ``verdict``, ``epsilon_low``, ``detectable``), a metric of the utility
            such as ``accuracy``, or ``ATTACK.METRIC`` such as ``loss.auc``. Several claims of one defense share a
            cell, as do values by several observers, each with its observer. None: the names, the claimed epsilon,
            the verdict, the measured bound and every metric of ``metrics``.
        metrics: names of metrics, of utility or of any attack; each adds its columns after ``columns``.

    Raises:
        ValueError: for a column or metric that no run has; the message lists the nearest that it has.
    """
    values = [_Values(folder) for folder in folders]
    known = list(dict.fromkeys(name for each in values for name in each.columns))
    wanted = list(columns) or [*_names(folders), "epsilon", "verdict", "epsilon_low"]
    for metric in metrics:
        found = [name for name in known if name == metric or name.endswith(f".{metric}")]
        if not found:
            own = dict.fromkeys(name.rpartition(".")[2] for name in known)
            raise ValueError(f"no run has the metric {metric!r}; the runs have: {nearest(metric, list(own))}")
        wanted += [name for name in found if name not in wanted]
    for name in wanted:
        if name not in (*_NAMES, *_CLAIM_COLUMNS, *known):
            every = [*_NAMES, *_CLAIM_COLUMNS, *known]
            raise ValueError(f"no run has the column {name!r}; known columns: {nearest(name, every)}")
    rows = [
        tuple(each.cell(name, label, federation, defense) for name in wanted)
        for label, each in zip(run_labels(folders), values, strict=True)
        for federation, defense in each.rows
    ]
    headers = tuple(next((head for each in values if (head := each.header(name))), name) for name in wanted)
    numeric = frozenset(
        i for i, name in enumerate(wanted) if name in known or name in ("epsilon", "delta", "epsilon_low")
    )
    return Table(
        title=" and ".join(run_labels(folders)),
        headers=headers,
        rows=tuple(rows),
        numeric=numeric,
        about=max(1, sum(name in _NAMES for name in wanted)),
    )


class _Values:
    """The values of one run by column, federation and defense."""

    def __init__(self, folder: RunFolder) -> None:
        order = folder.order
        self.claims = claim_rows(folder)
        self.utility = pooled_utility(folder)
        self.attacks = [row for row in pooled_attacks(folder) if row.pooled]
        rows: list[ClaimRow | AttackRow | UtilityRow] = [*self.claims, *self.utility, *self.attacks]
        pairs = {(row.federation, row.defense) for row in rows}
        self.rows = sorted(pairs, key=lambda pair: (order.federation(pair[0]), order.defense(pair[1])))
        self._metrics: dict[str, dict[tuple[str, str], list[AttackRow | UtilityRow]]] = {}
        measured: list[AttackRow | UtilityRow] = [*self.utility, *self.attacks]
        for row in measured:
            name = f"{row.attack}.{row.metric}" if isinstance(row, AttackRow) else row.metric
            self._metrics.setdefault(name, {}).setdefault((row.federation, row.defense), []).append(row)

    @property
    def columns(self) -> list[str]:
        return list(self._metrics)

    def header(self, name: str) -> str:
        if name in _CLAIM_COLUMNS:
            return _CLAIM_COLUMNS[name][0]
        if name not in self._metrics:
            return ""
        row = next(iter(self._metrics[name].values()))[0]
        words = numerals.metric_words(row.metric, row.direction)
        return f"{row.attack}: {words}" if isinstance(row, AttackRow) else words

    def cell(self, name: str, run: str, federation: str, defense: str) -> str:
        if name in _NAMES:
            return {"run": run, "federation": federation, "defense": defense}[name]
        if name in _CLAIM_COLUMNS:
            own = [row for row in self.claims if (row.federation, row.defense) == (federation, defense)]
            # A defense without a claim still has a verdict.
            shown = (_CLAIM_COLUMNS[name][1](row) for row in own if row.stated or name == "verdict")
            return "; ".join(dict.fromkeys(shown)) or numerals.NOTHING
        found = self._metrics.get(name, {}).get((federation, defense), [])
        several = len(found) > 1
        values = [
            pooled_words(row.metric, row.pooled)
            + (f" ({observer_words(row.observer)})" if several and isinstance(row, AttackRow) else "")
            for row in found
        ]
        return "; ".join(values) or numerals.NOTHING


def _names(folders: Sequence[RunFolder]) -> list[str]:
    """The names that identify a row: the run and the federation only where there are several."""
    federations = {record.federation for folder in folders for record in folder.records}
    return [*(["run"] if len(folders) > 1 else []), *(["federation"] if len(federations) > 1 else []), "defense"]


_BOARD_NOTE = (
    "One row per claim and run. Rows of different federations differ in data, model and clients, so that their utility "
    "and the power of their audits cannot be compared, even at equal ε. NOT REFUTED is no proof of a claim: see the "
    "smallest ε that the audit detects with 90 % probability (min detectable). Weak test: this ε is more than "
    "twice the claimed one and more than 1 above it, which the user has accepted. Shown outside the claims: attacks on "
    "this defense that no claim of "
    "it covers and that did better than guessing. Of no use: the model is not clearly better than guessing or than a "
    "constant answer. Commit: of the repository in which the run was started."
)
SETTINGS = frozenset({"part", "plan", "federation", "replicas", "seeds", "sweep", "epsilon", "delta"})
"""What a suite sets for every defense, which is no option of its part."""


@dataclass(frozen=True, kw_only=True)
class ClaimOfRun:
    """The row of a claim in one of several runs; ``number`` counts the runs from 1."""

    number: int
    label: str
    folder: RunFolder
    row: ClaimRow
    claim: Claim


def claims_of_runs(folders: Sequence[RunFolder]) -> list[ClaimOfRun]:
    """Return the rows of all claims of all runs, in the order of the runs. Claims about single layers or about some
    users are left out, because they bound no attack on the whole release.
    """
    return [
        ClaimOfRun(number=number, label=label, folder=folder, row=row, claim=row.stated.claim)
        for number, (label, folder) in enumerate(zip(run_labels(folders), folders, strict=True), start=1)
        for row in claim_rows(folder)
        if row.stated is not None and row.stated.claim.part == "joint" and row.stated.claim.subjects == "all"
    ]


def scoreboards(claims: Sequence[ClaimOfRun]) -> list[Table]:
    """Return one table for each unit, adjacency, delta and adversary for which claims are stated. Defenses are in
    alphabetical order, and the runs of each by the time when they finished; controls follow, and claims without a
    result come last.
    """
    groups = gathered((f"{neighbours_of(one.claim)}, adversary: {one.claim.observer.phrase}", one) for one in claims)
    columns = {"defense": _defense, **_BOARD_COLUMNS}
    return [tabulate(title, _in_order(group), columns, note=_BOARD_NOTE) for title, group in sorted(groups.items())]


def histories(claims: Sequence[ClaimOfRun]) -> list[Table]:
    """Return one table for each defense that several runs of one suite audited in one federation, with the runs by the
    time when they finished; controls come last. Defenses with equal labels but different configurations have separate
    tables.
    """
    named = gathered(((one.row.control, _about(one)), one) for one in claims)
    columns = {"defense": _defense, "claim": lambda one: one.row.claim_text, **_BOARD_COLUMNS}
    return [
        tabulate(f"History of {name}", _in_order(group), columns, about=2)
        for (_, name), group in sorted(named.items())
        if len({one.number for one in group}) > 1
    ]


def _about(one: ClaimOfRun) -> str:
    suite, part = one.folder.manifest.suite.get("name", ""), str(_settings(one).get("part") or "")
    return f"{_with(one.row.defense, part, 'control' * one.row.control)} in {suite}, federation {one.row.federation}"


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


def _best_quality(one: ClaimOfRun) -> str:
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
    return verdict_words(one.row)


def _shown(one: ClaimOfRun) -> str:
    """What attacks on the defense did that no claim of it covers."""
    shown = successes(one.folder, one.row.defense)
    return "; ".join(short_words(one.folder, row) for row in shown) or numerals.NOTHING


_BOARD_COLUMNS: dict[str, Callable[[ClaimOfRun], str]] = {
    "run": lambda one: one.label,
    "finished (UTC)": lambda one: _finished(one.folder.manifest.finished),
    "fedassay, commit": lambda one: _version(one.folder),
    "federation": lambda one: one.row.federation,
    Right("claimed ε"): lambda one: f"{one.claim.epsilon:g}",
    Right("measured ε ≥"): lambda one: numerals.lower_bound(one.row.epsilon_low),
    Right("min detectable"): lambda one: numerals.epsilon(one.row.detectable),
    "verdict": _verdict,
    "utility": _best_quality,
    "shown outside the claims": _shown,
}
