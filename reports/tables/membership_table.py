"""Membership by observer: what each observer of each defense can tell, beside what the defense claims about it."""

from collections.abc import Sequence
from dataclasses import dataclass

from ...audit.claim import Claim, Unit
from ...audit.metrics.low_rate import counted_runs, joint_statement, lowest_rate, tpr_at
from ...audit.observer import Observer
from ...audit.scope import beyond_all
from ...audit.wording import at_most, plain
from ..reading.membership import Membership, memberships
from ..reading.order import Order
from ..reading.run_folder import RunFolder, once_a_run
from . import numerals
from .printed import VERDICTS
from .source_inference import SourceInference, source_inferences
from .table import Table
from .tables import WHOLE_CELL, WORST_FIRST

LEVEL = 0.95
_ALONE, _SHADOWED = "†", "‡"
ADVERSARIES = {"realistic": "", "worst_case": "ALL BUT ONE BIT KNOWN: ", "active": "ACTIVE SERVER: "}
NOTE = (
    "Shown is the attack with the largest AUC on that cell, null attacks apart, scores of all seeds together; and "
    "by itself the best of those that are given all but the one bit that is asked, which is what differential "
    "privacy assumes (and where a release without noise tells everything), and of servers that send other models "
    "than they should. Because each was chosen by looking, its intervals hold for all attacks on the cell at once "
    f"(Bonferroni). AUC: DeLong over independent runs or, marked {_ALONE}, over the candidates of the only run and "
    f"none other; marked {_SHADOWED}, the mean over shadow federations, each a target with the others for "
    "references, with a t interval by a jackknife of groups of pairs, for other draws of who is in on these data. "
    "TPR stands at the lowest FPR at which ten independent non-members are expected, with bounds on both rates "
    "that hold jointly at 95 % (a run gives members or non-members: it takes 20 / FPR runs); where the runs are "
    "too few for any, or references of each other, it is a point estimate at the lowest FPR that the different "
    "non-members allow. Whose sample: the share of samples whose client was named, mean over seeds with a 95 % t "
    "interval, beside chance. OUT OF SCOPE: no claim of this row speaks about such evidence (another observer, "
    "unit, neighbours or more rounds), so it can neither hold nor break it."
)
Level = tuple[Observer, Unit]
"""Who looks, at what: a column."""


@dataclass(frozen=True, kw_only=True)
class MembershipRow:
    """The claims of one unit that a defense signs on a federation; ``unit`` None where it signs none."""

    federation: str
    defense: str
    control: bool
    unit: Unit | None
    claims: tuple[Claim, ...]


@once_a_run
def membership_table(folder: RunFolder) -> Table:
    """Rows: defense and unit claimed; columns: observer and unit attacked. No rows where nothing left its scores."""
    found = memberships(folder)
    levels = sorted(
        {_level(one) for one in found if not one.null}, key=lambda level: (-level[0].rank, str(level[0]), level[1])
    )
    rows = _rows(folder, found)
    omitted = _omitted(folder, found)
    many = len({row.federation for row in rows}) > 1
    named = source_inferences(folder)
    seats = sorted({one.observer for one in named}, key=lambda seat: (-seat.rank, str(seat)))
    asked = [f"{observer.phrase}: one {unit}" for observer, unit in levels]
    return Table(
        title="Membership by observer",
        headers=("defense", "claim", *asked, *(f"{seat.phrase}: whose sample" for seat in seats)),
        rows=tuple(
            (
                _name(row, many),
                _claims(row),
                *(_cell(row, level, found, omitted) for level in levels),
                *(_source_cell(row, seat, named, folder) for seat in seats),
            )
            for row in rows
        ),
        note=NOTE,
        about=2,
    )


def _level(one: Membership) -> Level:
    return one.setting.observer, one.setting.unit


def _rows(folder: RunFolder, found: Sequence[Membership]) -> list[MembershipRow]:
    """In the suite's order: the defenses that these attacks were to look at, one row a unit that they claim."""
    order, attacks = Order.of(folder), {(one.federation, one.attack) for one in found}
    looked_at = {
        (record.federation, record.defense): record.control
        for record in folder.rows("attack", "null")
        if (record.federation, record.attack) in attacks
    }
    rows = []
    for federation, defense in sorted(looked_at, key=lambda key: (order.federation(key[0]), order.defense(key[1]))):
        claims = [one.claim for one in folder.claims if (one.federation, one.defense) == (federation, defense)]
        for unit in dict.fromkeys(claim.unit for claim in claims) or (None,):
            rows.append(
                MembershipRow(
                    federation=federation,
                    defense=defense,
                    control=looked_at[federation, defense],
                    unit=unit,
                    claims=tuple(claim for claim in claims if claim.unit == unit),
                )
            )
    return rows


def _omitted(folder: RunFolder, found: Sequence[Membership]) -> dict[tuple[str, str, Level], str]:
    """The worst status of cells of which nothing was measured; what an attack asks is known from where it was."""
    levels = {(one.attack, str(one.setting.observer)): _level(one) for one in found}
    worst: dict[tuple[str, str, Level], str] = {}
    for record in folder.rows("attack"):
        level = levels.get((record.attack, record.observer))
        if level is not None and record.status != "ok" and record.metric == WHOLE_CELL:
            key = record.federation, record.defense, level
            worst[key] = min(record.status, worst.get(key, WORST_FIRST[-1]), key=WORST_FIRST.index)
    return worst


def _cell(
    row: MembershipRow, level: Level, found: Sequence[Membership], omitted: dict[tuple[str, str, Level], str]
) -> str:
    here = [
        one for one in found if (one.federation, one.defense) == (row.federation, row.defense) and _level(one) == level
    ]
    attacks = [one for one in here if not one.null]
    if not attacks:
        words = omitted.get((row.federation, row.defense, level), "not attacked")
        speaks = any(claim.observer.covers(level[0]) for claim in row.claims) and row.unit == level[1]
        return words if speaks or row.unit is None else f"{words}; {VERDICTS['OUT_OF_SCOPE']}"
    said = [
        f"{words}{_best_words([one for one in attacks if one.adversary == kind], len(attacks))}"
        for kind, words in ADVERSARIES.items()
        if any(one.adversary == kind for one in attacks)
    ]
    if row.unit is not None and not any(not beyond_all(claim, one.setting) for claim in row.claims for one in attacks):
        said.append(VERDICTS["OUT_OF_SCOPE"])
    return "; ".join(said)


def _best_words(attacks: Sequence[Membership], of: int) -> str:
    """The attack with the largest AUC; its intervals hold for all ``of`` attacks on the cell at once."""
    best = max(attacks, key=lambda one: one.area)
    return f"{_area_words(best, of)}; {_rate_words(best, of)}; {best.attack}"


def _source_cell(row: MembershipRow, seat: Observer, named: Sequence[SourceInference], folder: RunFolder) -> str:
    here = [one for one in named if (one.federation, one.defense, one.observer) == (row.federation, row.defense, seat)]
    if not here:
        attacks = {one.attack for one in named}
        status = [
            record.status
            for record in folder.rows("attack")
            if (record.federation, record.defense, record.observer) == (row.federation, row.defense, str(seat))
            and record.attack in attacks
        ]
        words = min(status, key=WORST_FIRST.index) if status else "not attacked"
        return words if row.unit is None else f"{words}; {VERDICTS['OUT_OF_SCOPE']}"
    best = max(here, key=lambda one: one.value)
    beyond = row.unit is not None and not any(claim in best.claims for claim in row.claims)
    return f"{best.words()}; {VERDICTS['OUT_OF_SCOPE']}" if beyond else best.words()


def _area_words(one: Membership, attacks: int) -> str:
    """``AUC 0.812 [0.771, 0.848]``."""
    ends = one.interval(1 - (1 - LEVEL) / attacks)
    if one.shadowed is not None:
        return _interval_words(one.area, ends, _SHADOWED)
    return _interval_words(one.area, ends, _ALONE if one.sides.runs == 1 and ends else "")


def _interval_words(value: float, ends: tuple[float, float] | None, mark: str) -> str:
    words = f"AUC {numerals.metric_value('auc', value)}"
    if ends is not None:
        words += f" [{', '.join(numerals.metric_value('auc', end) for end in ends)}]"
    return f"{words}{mark}"


def _rate_words(one: Membership, attacks: int) -> str:
    """``TPR 0.31 (≥ 0.18) at FPR 10 % (≤ .19)``, or a point estimate at the lowest rate that the scores allow."""
    sides = one.sides
    rate = None if one.shadowed is not None else lowest_rate(counted_runs(sides))
    if rate is not None:
        said = joint_statement(sides, rate, (1 - LEVEL) / attacks)
        found = f"{tpr_at(sides.member, sides.nonmember, rate):.3f} (≥ {_rounded_down(said.tpr_low)})"
        return f"TPR {found} at FPR {plain(100 * rate)} % (≤ {at_most(said.fpr_high)})"
    rate = lowest_rate(one.candidates)
    if rate is None:
        return "too few non-members for a TPR"
    return f"TPR {tpr_at(sides.member, sides.nonmember, rate):.3f} at FPR {plain(100 * rate)} % (point estimate)"


def _rounded_down(rate: float) -> str:
    return f"{int(round(rate * 1000, 6)) / 1000:.3f}"


def _name(row: MembershipRow, many: bool) -> str:
    name = f"{row.federation}/{row.defense}" if many else row.defense
    return f"{name} (control)" if row.control else name


def _claims(row: MembershipRow) -> str:
    if row.unit is None:
        return VERDICTS["NO_CLAIM"]
    signed = dict.fromkeys(f"ε {plain(claim.epsilon)}, δ {plain(claim.delta)}" for claim in row.claims)
    return f"one {row.unit}: {' and '.join(signed)}"
