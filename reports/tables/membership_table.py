"""Tabulate the best membership attack for each defense and observer, and how often a sample's client was named."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from ...audit.claim import Claim, Unit
from ...audit.finding import beyond_all
from ...audit.metrics import counted_runs, joint_statement, lowest_rate, tpr_at
from ...audit.observer import Observer
from ...audit.wording import at_most, plain
from ...suites.results.record import Record
from ..reading.membership import Membership, Question, covering_claims, in_order, memberships, setting_of
from ..reading.pooling import LEVEL, TWO_SEEDS, grouped, mean_over_seeds, shared
from ..reading.run_folder import RunFolder, once_per_run
from . import numerals
from .pooled_rows import WHOLE_CELL, WORST_FIRST
from .printed import VERDICTS, namer, pooled_words
from .table import Table, tabulate

METRIC = "source_accuracy"
ALONE = "†"


@dataclass(frozen=True, kw_only=True)
class SourceInference:
    """The source-inference results of one attack on one defense: ``rows`` holds one result row per seed, and ``claims``
    those claims that apply to the attack's observer and unit.
    """

    federation: str
    defense: str
    attack: str
    observer: Observer
    rows: tuple[Record, ...]
    claims: tuple[Claim, ...]

    @property
    def value(self) -> float:
        """The fraction of samples whose client was named correctly, averaged over seeds."""
        return mean_over_seeds([row.value or 0.0 for row in self.rows]).value

    def words(self) -> str:
        """Return the result as text, such as ``correct 0.216 [0.201, 0.231], chance 0.1``; an interval from a single
        seed is marked as such.
        """
        words = pooled_words(METRIC, mean_over_seeds([row.value or 0.0 for row in self.rows], share=True))
        if len(self.rows) == 1:
            # Over the samples of one run; an interval over seeds needs several.
            interval = numerals.interval_words(METRIC, self.rows[0].ci_low, self.rows[0].ci_high)
            words += f"{interval}{ALONE if interval else ''}"
        return f"correct {words}, {self.rows[0].unit.rpartition(', ')[2]}; {self.attack}"


def source_inferences(folder: RunFolder) -> list[SourceInference]:
    """Return one result per defense, observer and source-inference attack, in the order of the records.

    Null attacks, which ignore the view, are left out.
    """
    # The accuracy and not the advantage: a share with its chance can be read without a formula.
    measured = (row for row in folder.rows("attack", status="ok") if row.metric == METRIC and row.value is not None)
    groups = grouped(measured, "federation", "defense", "observer", "attack")
    return [found for group in groups if (found := _source(folder, group)) is not None]


def _source(folder: RunFolder, group: Sequence[Record]) -> SourceInference | None:
    first = group[0]
    setting = setting_of(folder.files.arrays(first) or {}, first.observer)
    if setting is None:
        return None
    claims, _ = covering_claims(folder, first.federation, first.defense, setting)
    return SourceInference(
        **shared(first, "federation", "defense", "attack"),
        observer=setting.observer,
        rows=tuple(sorted(group, key=lambda row: row.seed or 0)),
        claims=claims,
    )


_ALONE, _SHADOWED = "†", "‡"
ADVERSARY_PREFIXES = {"realistic": "", "worst_case": "WORST-CASE ADVERSARY: ", "active": "ACTIVE SERVER: "}
NOTE = (
    "Each cell shows the attack with the largest AUC, without null attacks, on the scores of all seeds. The best "
    "attack of a worst-case adversary, who knows everything except whether the unit took part, as differential "
    "privacy assumes, and of an active server, which sends manipulated models, are shown separately. Because each is "
    "the best of several, its intervals hold jointly for all attacks on the cell (Bonferroni). AUC: DeLong interval "
    f"over independent runs; marked {_ALONE}: over the candidates of a single run, valid for that run only; marked "
    f"{_SHADOWED}: mean over shadow federations, each a target with the others as references, with a t interval by a "
    "jackknife over groups of pairs, for other draws of the membership on the same data. TPR: at the lowest FPR at "
    "which ten independent non-members are expected, with bounds on both rates that hold jointly at 95 % (this takes "
    "20 / FPR runs); with fewer runs, or with shadow federations, a point estimate at the lowest FPR that the "
    "distinct non-members allow. Client of a sample: the share of samples whose client was named correctly, mean over "
    "seeds with a 95 % t interval, compared with chance. OUT OF SCOPE: no claim of this row covers such evidence "
    "(another observer, unit or adjacency, or more rounds), so the number neither supports nor refutes it."
)


@dataclass(frozen=True, kw_only=True)
class MembershipRow:
    """A table row: a defense's claims about one unit on a federation; ``unit`` is None if the defense states no
    claim.
    """

    federation: str
    defense: str
    control: bool
    unit: Unit | None
    claims: tuple[Claim, ...]


@once_per_run
def membership_table(folder: RunFolder) -> Table:
    """Return a table of the best membership attacks: a row per defense and claimed unit, a column per observer and
    attacked unit.

    It has no rows where no attack stored scores.
    """
    found, named = memberships(folder), source_inferences(folder)
    rows, omitted = _rows(folder, found), _omitted(folder, found)
    observers = sorted({one.observer for one in named}, key=lambda observer: (-observer.rank, str(observer)))
    cells: dict[str, Callable[[MembershipRow], str]] = {
        f"{question[0].phrase}: one {question[1]}": partial(_cell, question, found, omitted)
        for question in in_order([one.question for one in found if not one.null])
    }
    cells |= {
        f"{observer.phrase}: client of a sample": partial(_source_cell, folder, observer, named)
        for observer in observers
    }
    columns = {"defense": namer(rows), "claim": _claims, **cells}
    return tabulate("Membership by observer", rows, columns, note=NOTE, about=2)


def _rows(folder: RunFolder, found: Sequence[Membership]) -> list[MembershipRow]:
    """In the suite's order: the defenses that these attacks were planned on, one row per unit that they claim."""
    order, attacks = folder.order, {(one.federation, one.attack) for one in found}
    attacked = {
        (record.federation, record.defense): record.control
        for record in folder.rows("attack", "null")
        if (record.federation, record.attack) in attacks
    }
    rows = []
    for federation, defense in sorted(attacked, key=lambda key: (order.federation(key[0]), order.defense(key[1]))):
        claims = [one.claim for one in folder.claims_on(federation, defense)]
        # A defense without a claim still has a row: its attacks are the reference for all others.
        for unit in dict.fromkeys(claim.unit for claim in claims) or (None,):
            rows.append(
                MembershipRow(
                    federation=federation,
                    defense=defense,
                    control=attacked[federation, defense],
                    unit=unit,
                    claims=tuple(claim for claim in claims if claim.unit == unit),
                )
            )
    return rows


def _omitted(folder: RunFolder, found: Sequence[Membership]) -> dict[tuple[str, str, Question], str]:
    """The worst status of cells in which nothing was measured."""
    # A cell without scores does not state its unit, so it is taken from another cell of the same attack.
    questions = {(one.attack, str(one.setting.observer)): one.question for one in found}
    worst: dict[tuple[str, str, Question], str] = {}
    for record in folder.rows("attack"):
        question = questions.get((record.attack, record.observer))
        if question is not None and record.status != "ok" and record.metric == WHOLE_CELL:
            key = record.federation, record.defense, question
            # One failed seed is reported even if the other seeds were only skipped.
            worst[key] = min(record.status, worst.get(key, WORST_FIRST[-1]), key=WORST_FIRST.index)
    return worst


def _cell(
    question: Question, found: Sequence[Membership], omitted: dict[tuple[str, str, Question], str], row: MembershipRow
) -> str:
    here = [
        one
        for one in found
        if (one.federation, one.defense) == (row.federation, row.defense) and one.question == question
    ]
    attacks = [one for one in here if not one.null]
    if not attacks:
        words = omitted.get((row.federation, row.defense, question), "not attacked")
        covered = any(claim.observer.covers(question[0]) for claim in row.claims) and row.unit == question[1]
        return words if covered or row.unit is None else f"{words}; {VERDICTS['OUT_OF_SCOPE']}"
    shown = [
        f"{words}{_best_words([one for one in attacks if one.adversary == kind], len(attacks))}"
        for kind, words in ADVERSARY_PREFIXES.items()
        if any(one.adversary == kind for one in attacks)
    ]
    if row.unit is not None and not any(not beyond_all(claim, one.setting) for claim in row.claims for one in attacks):
        # Only if no attack of the cell is covered: one covered attack makes the cell evidence about the claim.
        shown.append(VERDICTS["OUT_OF_SCOPE"])
    return "; ".join(shown)


def _best_words(attacks: Sequence[Membership], of: int) -> str:
    """The attack with the largest AUC; its intervals are corrected for the ``of`` attacks on the cell."""
    best = max(attacks, key=lambda one: one.area)
    return f"{_area_words(best, of)}; {_rate_words(best, of)}; {best.attack}"


def _source_cell(folder: RunFolder, observer: Observer, named: Sequence[SourceInference], row: MembershipRow) -> str:
    place = row.federation, row.defense, observer
    here = [one for one in named if (one.federation, one.defense, one.observer) == place]
    if not here:
        attacks = {one.attack for one in named}
        status = [
            record.status
            for record in folder.rows("attack")
            if (record.federation, record.defense, record.observer) == (row.federation, row.defense, str(observer))
            and record.attack in attacks
        ]
        # A failure must not be hidden by seeds that were only skipped.
        words = min(status, key=WORST_FIRST.index) if status else "not attacked"
        return words if row.unit is None else f"{words}; {VERDICTS['OUT_OF_SCOPE']}"
    best = max(here, key=lambda one: one.value)
    beyond = row.unit is not None and not any(claim in best.claims for claim in row.claims)
    return f"{best.words()}; {VERDICTS['OUT_OF_SCOPE']}" if beyond else best.words()


def _area_words(one: Membership, attacks: int) -> str:
    """``AUC 0.812 [0.771, 0.848]``."""
    ends = one.interval(1 - (1 - LEVEL) / attacks)
    alone = _ALONE if one.sides.runs == 1 and ends else ""
    interval = numerals.interval_words("auc", *(ends or (None, None))) or (f" ({TWO_SEEDS})" if one.two_seeds else "")
    return f"AUC {numerals.metric_value('auc', one.area)}{interval}{alone if one.shadowed is None else _SHADOWED}"


def _rate_words(one: Membership, attacks: int) -> str:
    """``TPR 0.31 (≥ 0.18) at FPR 10 % (≤ .19)``, or a point estimate at the lowest FPR that the scores allow."""
    sides = one.sides
    rate = None if one.shadowed is not None else lowest_rate(counted_runs(sides))
    if rate is not None:
        bounds = joint_statement(sides, rate, (1 - LEVEL) / attacks)
        low = numerals.rounded(bounds.tpr_low, 3, math.floor)
        found = f"{tpr_at(sides.member, sides.nonmember, rate):.3f} (≥ {low:.3f})"
        return f"TPR {found} at FPR {plain(100 * rate)} % (≤ {at_most(bounds.fpr_high)})"
    # With too few runs for a bound, candidates still allow a point estimate, but they are not independent.
    rate = lowest_rate(one.candidates)
    if rate is None:
        return "too few non-members for a TPR"
    return f"TPR {tpr_at(sides.member, sides.nonmember, rate):.3f} at FPR {plain(100 * rate)} % (point estimate)"


def _claims(row: MembershipRow) -> str:
    if row.unit is None:
        return VERDICTS["NO_CLAIM"]
    stated = dict.fromkeys(f"ε {plain(claim.epsilon)}, δ {plain(claim.delta)}" for claim in row.claims)
    return f"one {row.unit}: {' and '.join(stated)}"
